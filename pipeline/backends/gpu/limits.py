"""What this GPU can do at best: copies, matrix products, the bus, and the smallest kernel."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import cupy as cp
import cupyx
import numpy as np

from pipeline.backends.gpu import clock, memory

COPIED = 1 << 30  # bytes of source and target of a copy on the device, each: far beyond its cache
MOVED = 1 << 27  # bytes of a copy over the bus
SIZE = {"float32": 8192, "float64": 4096}  # rows and columns of the matrices multiplied
SHARE = 8  # of the free memory, one part in so many for one array
LAUNCHES = 1000  # small kernels timed together
TRIES = 5


def measure(
    copied: int | None = None,
    moved: int | None = None,
    size: dict[str, int] | None = None,
    launches: int | None = None,
) -> dict[str, Any]:
    """Return the device's part of ``profiling.limits.Limits``.

    Parameters
    ----------
    copied, moved : bytes of one array for the copy on the device and over the bus; less if memory is short
    size : rows of the matrices, by type
    launches : small kernels timed together

    All have defaults that take about a second together.
    """
    room = memory.free_bytes() // SHARE
    to_device, to_host = _bus(max(1, min(moved or MOVED, room)))
    rates = {name: _product(name, n, room) for name, n in (size or SIZE).items()}
    return {
        "device_copy": _copy(max(1, min(copied or COPIED, room) // 8)),
        "device_product": rates,
        "to_device": to_device,
        "to_host": to_host,
        "launch": _launch(launches or LAUNCHES),
    }


def _best(work: Callable[[], Any]) -> float:
    """Return the device seconds of the fastest of a few tries; the first, which warms up, does not count."""
    work()
    seconds = []
    for _ in range(TRIES):
        begin = clock.mark()
        work()
        seconds.append(clock.seconds(begin, clock.mark()))
    return max(min(seconds), 1e-9)


def _copy(numbers: int) -> float:
    """Return the bytes per second of a copy on the device, read and written both counted."""
    source, target = cp.ones(numbers), cp.empty(numbers)

    def work() -> None:
        target[...] = source

    return 16.0 * numbers / _best(work)


def _product(dtype: str, n: int, room: int) -> float:
    """Return the operations per second of a matrix product; no TF32."""
    n = max(1, min(n, int((room / np.dtype(dtype).itemsize) ** 0.5)))
    a, b, out = (cp.ones((n, n), dtype=dtype) for _ in range(3))
    return 2.0 * n**3 / _best(lambda: cp.matmul(a, b, out=out))


def _bus(size: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes per second to the device and to the host, from ordinary and from page-locked memory."""
    device = cp.ones(size, dtype=np.uint8)
    pageable, pinned = np.ones(size, dtype=np.uint8), cupyx.empty_pinned(size, dtype=np.uint8)
    pinned[...] = 1
    up, down = {}, {}
    for name, host in (("pageable", pageable), ("pinned", pinned)):
        up[name] = size / _wall(functools.partial(device.set, host))
        down[name] = size / _wall(functools.partial(device.get, out=host))
    return up, down


def _wall(work: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of a few tries until the device is done: the host takes part in these."""
    seconds = []
    work()
    for _ in range(TRIES):
        clock.finish()
        begin = time.perf_counter()
        work()
        clock.finish()
        seconds.append(time.perf_counter() - begin)
    return max(min(seconds), 1e-9)


def _launch(launches: int) -> float:
    """Return the seconds from one small kernel to the next when the host does nothing but launch."""
    small = cp.ones(32)

    def work() -> None:
        for _ in range(launches):
            cp.add(small, small, out=small)

    return _wall(work) / launches
