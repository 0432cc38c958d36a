"""Sections of check_gpu.py: what CuPy does, and whether the gpu backend gives what the cpu backend gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_checks import common
from pipeline import backends
from pipeline.config import BLOCK_NORMS, Preprocess, PreprocessName
from pipeline.features import HogLayout


def machine() -> dict[str, Any]:
    """Say what runs here."""
    cp = common.namespace()
    found = common.gpu().require()
    return {"cupy": cp.__version__, "device": found.name, "text": str(found), "memory": found.memory}


def _outcome(work: Callable[[], Any]) -> str:
    try:
        work()
    except Exception as error:
        return type(error).__name__
    return "no error"


def facts() -> dict[str, Any]:
    """Ask CuPy what the test double assumes of it."""
    cp = common.namespace()
    three, bad = cp.arange(3.0), cp.asarray(np.array([[[1.0, 2.0], [2.0, 1.0]]] * 2))
    found = {
        "implicit conversion": _outcome(lambda: np.asarray(three)),
        "host and device operands": _outcome(lambda: three + np.ones(3)),
        "index out of range wraps": cp.asnumpy(three[cp.asarray(np.array([0, 4]))]).tolist(),
        "failed Cholesky": _outcome(lambda: cp.linalg.cholesky(bad)),
        "failed Cholesky leaves": cp.asnumpy(cp.linalg.cholesky(bad))[0].tolist(),
    }
    wanted = {
        "implicit conversion": "TypeError",
        "host and device operands": "TypeError",
        "index out of range wraps": [0.0, 1.0],
        "failed Cholesky": "no error",
    }
    wrong = [f"{k}: {found[k]}, the double assumes {v}" for k, v in wanted.items() if found[k] != v]
    return {**found, "failed": wrong}


def hog_parity(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Compare HoG with the cpu backend over types, layouts and norms, outputs poisoned."""
    n = sizes.parity_images
    cases: list[tuple[HogLayout, str, bool, str, str]] = []
    for dtype in ("uint8", "uint16", "float32", "float64", "int32"):
        cases += [(HogLayout((50, 100)), norm, False, dtype, "float32") for norm in BLOCK_NORMS]
    for layout in (
        HogLayout((33, 47), 8, (7, 5), (2, 1)),
        HogLayout((128, 64), 12, (8, 8), (2, 2)),
        HogLayout((20, 31), 18, (3, 4), (1, 3)),
        HogLayout((50, 100), 9, (10, 10), (2, 2), 3),
        HogLayout((400, 400), 9, (8, 8), (3, 3)),
    ):
        cases += [(layout, "L2-Hys", root, "uint8", "float64") for root in (False, True)]
    worst, rounded, wrong = 0.0, 0, []
    cases = cases[:: sizes.parity_step]
    for layout, norm, root, dtype, out in cases:
        count = max(1, min(n, 10_000_000 // (layout.image_shape[0] * layout.image_shape[1])))
        shape = (count, *layout.image_shape, *(() if layout.channels is None else (layout.channels,)))
        pixels = common.make_pixels(random, shape, dtype)
        wanted = backends.get("cpu").hog.hog(pixels, layout, norm, root, out)
        got = common.gpu().get(common.gpu().hog.hog(common.gpu().put(pixels), layout, norm, root, out))
        name = f"{layout.image_shape} {layout.pixels_per_cell} {norm} sqrt={root} {dtype} -> {out}"
        if not np.isfinite(got).all():
            wrong.append(f"{name}: features that are not finite")
            continue
        distance = np.abs(got - wanted).max(axis=1)
        excused = (distance > 1e-6) & common.rounding_decides(pixels, layout.orientations, root)
        rounded += int(excused.sum())
        off = float(distance[~excused].max(initial=0.0))
        worst = max(worst, off)
        if off > 1e-6:
            wrong.append(f"{name}: off by {off:.2g}, allowed 1e-6")
    wrong += _own_function(random)
    return {"cases": len(cases), "largest difference": worst, "images excused": rounded, "failed": wrong}


def _own_function(random: np.random.Generator) -> list[str]:
    """Compare ``hog``, which users of cuCIM call, with the cpu backend: one image, a batch, channels first."""
    from pipeline.backends.gpu.hog_features import hog

    wrong: list[str] = []
    settings = {"orientations": 8, "pixels_per_cell": (5, 6), "cells_per_block": (2, 3)}
    for name, shape, axis in (
        ("image", (40, 60), None),
        ("batch", (5, 40, 60), None),
        ("channels", (3, 40, 60), 0),
    ):
        pixels = random.integers(0, 256, shape, dtype=np.uint8)
        batch = np.moveaxis(pixels, 0, -1)[None] if axis == 0 else pixels.reshape(-1, 40, 60)
        layout = HogLayout((40, 60), 8, (5, 6), (2, 3), 3 if axis == 0 else None)
        wanted = backends.get("cpu").hog.hog(np.ascontiguousarray(batch), layout, "L2-Hys", False, "float32")
        got = hog(common.gpu().put(pixels), **settings, channel_axis=axis)
        wrong += common.close(f"hog of a CuPy {name}", got, wanted if name == "batch" else wanted[0], 1e-6)[1]
    return wrong


def sums_parity(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Compare fits, componentwise sums, random features and scores with the cpu backend."""
    gpu, cpu = common.gpu(), backends.get("cpu")
    found: dict[str, Any] = {}
    wrong: list[str] = []

    def compare(name: str, got: Any, wanted: Any, bound: float) -> None:
        found[name], faults = common.close(name, got, wanted, bound)
        wrong.extend(faults)

    for dtype, bound in (("float64", 1e-8), ("float32", 5e-3)):
        for q, J in ((1, 1), (40, 2), (128, sizes.classes), (300, 3)):
            problem = common.make_problem(random, sizes.training_rows + q, q, J, dtype)
            device = [gpu.put(a) for a in problem]
            label = f"{dtype} q={q} J={J}"
            got, wanted = gpu.wls.fit(*device, 1.0), cpu.wls.fit(*problem, 1.0)
            compare(f"fit {label}", got.coef, wanted.coef, bound)
            if got.ladder.tolist() != wanted.ladder.tolist():
                wrong.append(f"fit {label}: ladder {got.ladder.tolist()}, cpu {wanted.ladder.tolist()}")
            sums = zip(gpu.wls.componentwise_sums(*device), cpu.wls.componentwise_sums(*problem), strict=True)
            for kind, (a, b) in zip(("xr", "xw", "xxw"), sums, strict=True):
                compare(f"componentwise {kind} {label}", a, b, 1e-10 if dtype == "float64" else 1e-4)
            phi = gpu.wls.random_features(*device[:2], 0.02, 64, 12345, 7)
            wanted_phi = cpu.wls.random_features(*problem[:2], 0.02, 64, 12345, 7)
            compare(f"random features {label}", phi, wanted_phi, 1e-9 if dtype == "float64" else 2e-4)
    singular = common.make_problem(random, 20, 60, 3, "float64")  # more columns than rows, and no penalty
    ladder = gpu.wls.fit(*map(gpu.put, singular), 0.0).ladder.tolist()
    if ladder != [4, 4, 4]:
        wrong.append(f"singular design: ladder {ladder}, must be [4, 4, 4]")
    rounded = common.make_problem(random, sizes.training_rows, 64, 3, "float32")
    coarse = gpu.wls.fit(*map(gpu.put, rounded), 1.0, "tf32").coef
    compare("fit with gram_precision=tf32", coarse, cpu.wls.fit(*rounded, 1.0).coef, 5e-2)
    return {**found, "failed": wrong}


def preprocess_parity(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Compare every preprocessing step with the cpu backend; cuCIM may be missing."""
    gpu, cpu = common.gpu(), backends.get("cpu")
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name in PreprocessName:
        step = Preprocess(name)
        reason = common.not_run(step, sizes)
        if reason is not None:
            found[name.value] = reason
            continue
        pixels = common.make_pixels(random, (5, 50, 100), "uint8")
        wanted = cpu.preprocess.apply(pixels, step)
        got = gpu.preprocess.apply(gpu.put(pixels), step)
        found[name.value], faults = common.close(name.value, got, wanted, 1e-5)
        wrong += faults
    return {**found, "failed": wrong}


def pca_parity(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Compare principal components with the cpu backend, for more rows than columns and for fewer."""
    gpu, cpu = common.gpu(), backends.get("cpu")
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for n, p in (sizes.components, sizes.components[::-1]):
        X = random.normal(size=(n, p)) * np.geomspace(3.0, 0.1, p) + random.normal(size=p)
        for dtype, bound in (("float64", 1e-9), ("float32", 1e-4)):
            name, k = f"{n} x {p} {dtype}", min(n, p) // 4
            A = X.astype(dtype)
            ours, theirs = gpu.pca.fit(gpu.put(A), k, None), cpu.pca.fit(A, k, None)
            scores = gpu.pca.transform(*map(gpu.put, (A, theirs.mean, theirs.components)))
            spans = [
                fitted.components.T @ (fitted.components @ A[0].astype(float)) for fitted in (ours, theirs)
            ]
            cases = {
                "variances": (ours.variances, theirs.variances, 1e-9),
                "subspace": (*spans, 1e-6),  # a gap between the last one kept and the next decides
                "scores": (scores, cpu.pca.transform(A, theirs.mean, theirs.components), bound),
            }
            for what, (a, b, allowed) in cases.items():
                found[f"{name} {what}"], faults = common.close(f"{name} {what}", a, b, allowed)
                wrong += faults
    return {**found, "failed": wrong}
