"""Sections of check_gpu.py: the same bits every time, and care with memory."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from gpu_checks import common
from pipeline.boosting import LogitBoostClassifier
from pipeline.features import HogExtractor, HogLayout


def repeatability(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Do the same several times: every bit must be the same."""
    gpu = common.gpu()
    pixels = gpu.put(common.make_pixels(random, (sizes.parity_images, 50, 100), "uint8"))
    X, y = common.make_classes(random, sizes.training_rows // 2, sizes.training_columns, 4, "float32")
    wrong: list[str] = []
    features = [
        gpu.get(gpu.hog.hog(pixels, HogLayout((50, 100)), "L2-Hys", False, "float32"))
        for _ in range(sizes.repeats)
    ]
    if not all(np.array_equal(features[0], f) for f in features):
        wrong.append("HoG features differ from run to run")
    device = gpu.put(X)
    for learner in common.LEARNERS:
        params = dict(
            learner=learner, n_rounds=3, subspace_size=16, n_components=32, random_state=1, backend="gpu"
        )
        runs = [LogitBoostClassifier(**params).fit(device, y) for _ in range(sizes.repeats)]
        scores = [run.decision_function(device) for run in runs]
        if not all(np.array_equal(scores[0], s) for s in scores):
            wrong.append(f"{learner}: scores differ from run to run")
    return {"repeats": sizes.repeats, "failed": wrong}


OUTSIDE = 64 << 20  # bytes outside the pool that libraries may take when they like


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def memory(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Limit the pool so that chunks are halved, a matrix streams, and one leaves; the results must not change."""
    from pipeline.backends.gpu import memory as plan
    from pipeline.backends.gpu import transfer

    pool = common.namespace().get_default_memory_pool()
    pixels = common.make_pixels(random, (sizes.parity_images * 4, 50, 100), "float32")
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    wanted = extractor.transform(pixels)
    X, y = common.make_classes(random, sizes.training_rows, sizes.training_columns, 3, "float64")
    model = LogitBoostClassifier(
        n_rounds=5, subspace_size=max(1, X.shape[1] // 8), dtype="float64", random_state=0, backend="gpu"
    )
    proba = model.fit(X, y).predict_proba(X)
    log, kept = _Log(), (plan.chunk, transfer.STAGED)
    logging.getLogger("pipeline.backends.gpu").addHandler(log)
    wrong: list[str] = []
    try:
        pool.free_all_blocks()
        plan.chunk = lambda n, *_, **__: n  # a plan that is wrong on purpose
        pool.set_limit(size=pool.used_bytes() + wanted.nbytes * 2 + pixels.nbytes // 2)
        if not np.array_equal(extractor.transform(pixels), wanted):
            wrong.append("features differ after chunks were halved")
        plan.chunk, transfer.STAGED = kept[0], 0
        pool.free_all_blocks()
        pool.set_limit(size=pool.used_bytes() + X.nbytes * 2 - 1)
        streamed = model.fit(X, y).predict_proba(X)
    finally:
        plan.chunk, transfer.STAGED = kept
        pool.set_limit(size=0)
        logging.getLogger("pipeline.backends.gpu").removeHandler(log)
    off, faults = common.close("streamed matrix", streamed, proba, 1e-9)
    faults += _scores_in_halves(sizes, random, log) + _a_matrix_leaves(sizes, random, log)
    told = (
        "images at a time: trying",
        "streams through the GPU in every round",
        "rows at a time: trying",
        "leaves the GPU",
    )
    for words in told:
        if not any(words in line for line in log.lines):
            wrong.append(f"no line in the log says '{words}'")
    return {"log": log.lines[:20], "streamed": off, "failed": wrong + faults}


def _scores_in_halves(sizes: common.Sizes, random: np.random.Generator, log: _Log) -> list[str]:
    """Move scores with room for the results, and for the work of some rows only; return what is wrong."""
    gpu, pool = common.gpu(), common.namespace().get_default_memory_pool()
    n, J = 64 * sizes.training_rows, sizes.classes
    F = gpu.put(random.normal(size=(n, J)).astype(np.float32))
    values = gpu.put(random.normal(size=(J, n)).astype(np.float32)).T  # each chunk of them is copied
    labels, weight = gpu.scores.targets(np.arange(n) % J, J), gpu.put(np.ones(n, dtype=np.float32))
    wanted = [gpu.get(a) for a in gpu.scores.advance(F, values, 0.3, labels, weight)]
    logger = logging.getLogger("pipeline.backends.gpu")
    logger.addHandler(log)
    try:
        pool.free_all_blocks()
        pool.set_limit(size=pool.used_bytes() + F.nbytes + F.nbytes // 2)
        found = [gpu.get(a) for a in gpu.scores.advance(F, values, 0.3, labels, weight)]
    finally:
        pool.set_limit(size=0)
        logger.removeHandler(log)
    same = all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    return [] if same else ["scores differ after their rows were halved"]


def _a_matrix_leaves(sizes: common.Sizes, random: np.random.Generator, log: _Log) -> list[str]:
    """Fit with less and less memory until X must leave the device; return what is wrong then."""
    pool, J = common.namespace().get_default_memory_pool(), 24
    X, y = common.make_classes(random, max(sizes.training_rows // 2, 4 * J), 48, J, "float64")
    model = LogitBoostClassifier(
        n_rounds=3, subspace_size=8, dtype="float64", random_state=0, backend="gpu", early_stopping=False
    )
    pool.free_all_blocks()
    used = pool.used_bytes()
    wanted = model.fit(X, y).predict_proba(X)
    limit, seen = pool.total_bytes() - used, len(log.lines)
    logger = logging.getLogger("pipeline.backends.gpu")
    logger.addHandler(log)
    try:
        while not any("leaves the GPU" in line for line in log.lines[seen:]):
            limit -= X.nbytes // 4
            if limit < 2 * X.nbytes:
                return ["X never left the device, however little memory there was"]
            pool.free_all_blocks()
            pool.set_limit(size=used + limit)
            model.fit(X, y)
        found = model.predict_proba(X)
    finally:
        pool.set_limit(size=0)
        logger.removeHandler(log)
    return common.close("fit whose X left the device", found, wanted, 1e-9)[1]


def leaks(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Repeat, and look whether memory in use grows, in the pool and outside it, where libraries take theirs."""
    cp = common.namespace()
    pool = cp.get_default_memory_pool()
    pixels = common.make_pixels(random, (64, 50, 100), "uint8")
    X, y = common.make_classes(random, 600, 40, 3, "float32")
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])

    def once() -> None:
        extractor.transform(pixels)
        LogitBoostClassifier(n_rounds=2, subspace_size=8, backend="gpu").fit(X, y)

    def outside() -> int:
        cp.cuda.Device().synchronize()
        pool.free_all_blocks()
        free, total = cp.cuda.runtime.memGetInfo()
        return int(total - free) - int(pool.total_bytes())

    once()
    before, before_outside = pool.used_bytes(), outside()
    for _ in range(sizes.leak_rounds):
        once()
    grown, grown_outside = int(pool.used_bytes() - before), outside() - before_outside
    wrong = [f"{grown} bytes of the pool leaked"] if grown else []
    if grown_outside > OUTSIDE:
        wrong.append(f"{grown_outside} bytes outside the pool leaked, or another program took them")
    return {
        "rounds": sizes.leak_rounds,
        "grown bytes": grown,
        "grown bytes outside the pool": grown_outside,
        "failed": wrong,
    }
