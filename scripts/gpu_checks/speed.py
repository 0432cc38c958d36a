"""Sections of check_gpu.py: what the machine's memory and bus can do, transfers, and the ratio to the cpu backend."""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any, NamedTuple

import numpy as np

from gpu_checks import common
from pipeline.boosting import LogitBoostClassifier
from pipeline.features import HogExtractor


class Measured(NamedTuple):
    """Bytes per second: read and written by a copy on the device; over the bus from and to page-locked memory."""

    copy: float
    up: float
    down: float


@functools.cache
def measured(sizes: common.Sizes) -> Measured:
    """Measure what the other sections are compared with."""
    cp = common.namespace()
    source = cp.zeros(sizes.copy_bytes // 4, dtype=np.float32)
    target = cp.empty_like(source)

    def copy() -> None:
        target[...] = source

    rate = 2e3 * sizes.copy_bytes / common.median_ms(copy, sizes.timings, sizes.seconds)
    ways = _ways(sizes, np.zeros(sizes.transfer_bytes, dtype=np.uint8))
    up, down = (
        1e3 * sizes.transfer_bytes / common.median_ms(ways[way], sizes.timings, sizes.seconds)
        for way in ("up, page-locked", "down, page-locked")
    )
    return Measured(rate, up, down)


def bandwidths(sizes: common.Sizes) -> dict[str, Any]:
    """Report what a copy on the device and over the bus reaches."""
    found = measured(sizes)
    return {
        "copy on the device GB/s": found.copy / 1e9,
        "bus up GB/s": found.up / 1e9,
        "bus down GB/s": found.down / 1e9,
    }


def _ways(sizes: common.Sizes, pageable: np.ndarray) -> dict[str, Any]:
    """Return how bytes cross the bus, by name: pageable and page-locked memory, and the backend's own way."""
    import cupyx

    gpu, cp = common.gpu(), common.namespace()
    pinned = cupyx.empty_pinned(pageable.shape, np.uint8)
    pinned[...] = pageable
    device = cp.empty(pageable.shape, dtype=np.uint8)
    device.set(pageable)
    return {
        "up, pageable": lambda: device.set(pageable),
        "up, page-locked": lambda: device.set(pinned),
        "up, as the backend does": lambda: gpu.put(pageable),
        "down, pageable": device.get,
        "down, page-locked": lambda: device.get(out=pinned),
    }


def transfers(n: int, sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time copies of the pixels of n images in both directions, next to what the bus reaches for large ones."""
    bus = measured(sizes)
    pixels = random.integers(0, 256, (n, *sizes.image_shape), dtype=np.uint8)
    found = {}
    for name, work in _ways(sizes, pixels).items():
        ms = common.median_ms(work, sizes.timings, sizes.seconds)
        rate = 1e3 * pixels.nbytes / ms
        share = rate / (bus.up if name.startswith("up") else bus.down)
        found[f"copy {name}"] = {
            "ms": ms,
            "MB": pixels.nbytes / 1e6,
            "GB/s": rate / 1e9,
            "share of bus": share,
        }
    return found


def against_cpu(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time images to features, and training, on both backends in this run."""
    n = sizes.images[1]
    pixels = random.integers(0, 256, (n, *sizes.image_shape), dtype=np.uint8)
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
