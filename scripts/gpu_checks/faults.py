"""What check_gpu.py runs under compute-sanitizer: every kernel on small inputs, with a fault planted or without."""

from __future__ import annotations

import numpy as np

from gpu_checks import common
from pipeline.features import HogLayout

# name: (text in wls.cu, what takes its place); each is a fault that one tool must report
FAULTS: dict[str, tuple[str, str] | None] = {
    "none": None,
    "bounds": ("if (k >= q) return;\n    const int column", "if (k > q) return;\n    const int column"),
    "race": (
        "        __syncthreads();\n        if ((int)threadIdx.x < half) shared",
        "        if ((int)threadIdx.x < half) shared",
    ),
    "barrier": (
        "        __syncthreads();\n        if ((int)threadIdx.x < half) shared",
        "        if ((int)threadIdx.x < half) __syncthreads();\n        if ((int)threadIdx.x < half) shared",
    ),
    "uninitialised": ("if (j < classes && k < p) partial", "if (j < classes && k < p - 1) partial"),
}


def faulty(text: str, name: str) -> str:
    """Return the kernels with the fault planted."""
    change = FAULTS[name]
    if change is None:
        return text
    if text.count(change[0]) != 1:
        raise ValueError(f"the place of the fault {name!r} occurs {text.count(change[0])} times, not once")
    return text.replace(*change)


def sanitize(name: str) -> None:
    """Run every kernel on small inputs. Without a pool, so that each array is an allocation of its own."""
    from pipeline.backends.gpu import launch

    cp = common.namespace()
    cp.cuda.set_allocator(None)
    text = launch.source
    launch.source = lambda file: faulty(text(file), name) if file == "wls.cu" else text(file)
    try:
        gpu, random = common.gpu(), np.random.default_rng(0)
        for layout in (
            HogLayout((50, 100)),
            HogLayout((33, 47), 8, (7, 5), (2, 1), 3),
            HogLayout((304, 304)),
        ):
            shape = (2, *layout.image_shape, *(() if layout.channels is None else (layout.channels,)))
            gpu.get(
                gpu.hog.hog(
                    gpu.put(common.make_pixels(random, shape, "uint8")), layout, "L2-Hys", False, "float32"
                )
            )
        X, center, W, R = (gpu.put(a) for a in common.make_problem(random, 300, 70, 5, "float32"))
        gpu.get(gpu.wls.gather(X, np.array([0, 3, 69]), center))
        gpu.get(gpu.wls.componentwise_sums(X, center, W, R).xr)
        gpu.get(gpu.wls.random_features(X, center, 0.1, 33, 1, 2))
        from pipeline.backends.gpu import wls_plan

        scaled = cp.empty((5, 300, 70), dtype=np.float32)
        plan = wls_plan.center_scale(X.dtype, 300, 70)
        launch.run(plan, X, center.astype(X.dtype), W, scaled, 300, 70, 5, 0, 5)
        gpu.get(scaled)
        labels = gpu.scores.targets(np.arange(300) % 5, 5)
        weight = cp.ones(300, dtype=np.float32)
        gpu.get(gpu.scores.working_response(R, labels, weight, 3.0, "gradient", 1e-7)[0])
        gpu.get(gpu.scores.advance(R, W, 0.3, labels, weight)[1])
    finally:
        launch.source = text
