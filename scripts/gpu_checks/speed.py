"""Sections of check_gpu.py: how fast kernels, transfers and whole stages are."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from gpu_checks import common
from pipeline.boosting import LogitBoostClassifier
from pipeline.features import HogExtractor, HogLayout


def copy_bandwidth(sizes: common.Sizes) -> float:
    """Return bytes per second, read and written, of a copy on the device."""
    cp = common.cupy()
    source = cp.zeros(sizes.copy_bytes // 4, dtype=np.float32)
    target = cp.empty_like(source)

    def copy() -> None:
        target[...] = source

    return 2 * sizes.copy_bytes / common.median_ms(copy, sizes.timings) * 1e3


def hog_speed(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time HoG against the bytes that must move: pixels in, features out."""
    gpu, layout = common.gpu(), HogLayout((50, 100))
    copied = copy_bandwidth(sizes)
    found: dict[str, Any] = {"copy GB/s": copied / 1e9}
    for n in sizes.images:
        pixels = gpu.put(random.integers(0, 256, (n, 50, 100), dtype=np.uint8))
        time_ms = common.median_ms(
            lambda p=pixels: gpu.hog.hog(p, layout, "L2-Hys", False, "float32"), sizes.timings
        )
        moved = n * (5000 + 4 * layout.n_features)
        rate = moved / time_ms * 1e3
        found[f"HoG {n}"] = {"ms": time_ms, "GB/s": rate / 1e9, "share of copy": rate / copied}
    return found


def boosting_speed(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time what a boosting round does, and whole rounds, at the size of the project's 10,000 images."""
    gpu, cp = common.gpu(), common.cupy()
    n, p, J = sizes.rows, sizes.columns, sizes.classes
    X, y = common.make_classes(random, n, p, J, "float32")
    device = gpu.put(X)
    W = gpu.put(random.random((n, J)).astype(np.float32))
    R = gpu.put(random.normal(size=(n, J)).astype(np.float32))
    center = cp.zeros(p)
    columns = np.sort(random.choice(p, min(128, p), replace=False))
    subset = gpu.wls.gather(device, columns, center)
    small = cp.zeros(len(columns))
    stages = {
        "componentwise sums": lambda: gpu.wls.componentwise_sums(device, center, W, R),
        "gather": lambda: gpu.wls.gather(device, columns, center),
        "subspace fit": lambda: gpu.wls.fit(subset, small, W, R, 1.0),
        "subspace fit, tf32": lambda: gpu.wls.fit(subset, small, W, R, 1.0, "tf32"),
        "random features": lambda: gpu.wls.random_features(device, center, 1e-4, min(512, p), 1, 0),
        "apply": lambda: gpu.wls.apply(device, center, cp.zeros((p, J)), cp.zeros(J)),
    }
    found: dict[str, Any] = {
        name: {"ms": common.median_ms(work, sizes.timings)} for name, work in stages.items()
    }
    few = max(1, sizes.timings // 7)
    for precision in ("full", "tf32"):
        work = lambda precision=precision: gpu.wls.fit(device, center, W, R, 1.0, precision)  # noqa: E731
        found[f"ridge fit, all features, {precision}"] = {"ms": common.median_ms(work, few)}
    sums = found["componentwise sums"]
    sums["GB/s"] = X.nbytes / sums["ms"] / 1e6
    for learner in ("subspace", "componentwise", "random_features"):
        model = LogitBoostClassifier(
            learner,
            n_rounds=sizes.rounds,
            subspace_size=len(columns),
            n_components=min(512, p),
            random_state=0,
            backend="gpu",
        )
        ms = common.median_ms(lambda model=model: model.fit(device, y), min(3, sizes.timings))
        found[f"fit, {learner}"] = {"ms": ms, "ms per round": ms / sizes.rounds}
    return found


def transfers(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time copies to the device from pageable and from page-locked memory."""
    import cupyx

    cp = common.cupy()
    pageable = random.integers(0, 256, sizes.transfer_bytes, dtype=np.uint8)
    pinned = cupyx.empty_pinned(pageable.shape, np.uint8)
    pinned[...] = pageable
    target = cp.empty(pageable.shape, dtype=np.uint8)
    ways = {
        "pageable": lambda: target.set(pageable),
        "page-locked": lambda: target.set(pinned),
        "put": lambda: common.gpu().put(pageable),
    }
    found = {}
    for name, work in ways.items():
        ms = common.median_ms(work, max(2, sizes.timings // 4))
        found[name] = {"ms": ms, "GB/s": sizes.transfer_bytes / ms / 1e6}
    return found


def against_cpu(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time images to features, and training, on both backends in this run."""
    n = sizes.images[1]
    pixels = random.integers(0, 256, (n, 50, 100), dtype=np.uint8)
    X, y = common.make_classes(random, sizes.training_rows, sizes.training_columns, sizes.classes, "float32")
    found: dict[str, Any] = {}
    for name in ("cpu", "gpu"):
        extractor = HogExtractor(backend=name).fit(pixels[:1])
        model = LogitBoostClassifier(n_rounds=sizes.rounds, subspace_size=64, random_state=0, backend=name)
        for label, work in (
            (f"host images to host features, {n}", lambda e=extractor: e.transform(pixels)),
            (f"{sizes.rounds} rounds of subspace", lambda m=model: m.fit(X, y)),
        ):
            work()
            times = []
            for _ in range(3):
                begin = time.perf_counter()
                work()
                times.append(time.perf_counter() - begin)
            found.setdefault(label, {})[f"{name} ms"] = statistics.median(times) * 1e3
    for pair in found.values():
        pair["cpu / gpu"] = pair["cpu ms"] / pair["gpu ms"]
    return found


def table(sections: dict[str, Any]) -> str:
    """Return the timed rows as a table for people."""
    lines = []
    for title in ("HoG speed", "boosting speed", "transfers", "against the cpu"):
        for name, values in sections.get(title, {}).items():
            if isinstance(values, dict):
                shown = "  ".join(f"{key} {value:.4g}" for key, value in values.items())
                lines.append(f"{name:<40} {shown}")
            elif isinstance(values, float) and name != "seconds":
                lines.append(f"{name:<40} {values:.4g}")
    return "\n".join(lines)
