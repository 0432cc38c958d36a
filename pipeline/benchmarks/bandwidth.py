"""How fast this machine copies memory: the limit that the GB/s of the rows are compared with."""

from __future__ import annotations

import importlib
import time

import numpy as np

from pipeline.benchmarks import needs
from pipeline.profiling import limits

LARGE = 1 << 28  # bytes: many times the last-level cache
BEST_OF = 5


def copy_rate(on_device: bool, threads: int, nbytes: int = LARGE) -> float | None:
    """Return the bytes per second that a copy reads and writes together, the best of five.

    None for a GPU on which CuPy cannot work, whatever else can.

    Parameters
    ----------
    on_device : copy within the memory of the GPU that CuPy works on, instead of within host memory
    threads : threads that share a copy in host memory
    nbytes : size of what is copied
    """
    if on_device and needs.missing("cupy") is not None:
        return None
    return 2.0 * nbytes / _device_seconds(nbytes) if on_device else limits.copy(threads, nbytes)


def _device_seconds(nbytes: int) -> float:
    cupy = importlib.import_module("cupy")
    source = cupy.zeros(nbytes, dtype=np.uint8)
    target = cupy.empty(nbytes, dtype=np.uint8)
    best = float("inf")
    for _ in range(BEST_OF + 1):  # the first loads CuPy's kernel
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        target[...] = source
        cupy.cuda.get_current_stream().synchronize()
        best = min(best, time.perf_counter() - begin)
    return best
