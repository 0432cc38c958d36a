"""The cpu backend: Numba kernels for pixels, BLAS for the weighted least squares."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np

from pipeline.backends.cpu import hog, pca, preprocess, wls
from pipeline.backends.host import first_not_finite, get, holds, map_images, put, rows

__all__ = [
    "clock",
    "first_not_finite",
    "get",
    "hog",
    "holds",
    "map_images",
    "name",
    "pca",
    "preprocess",
    "put",
    "rows",
    "scores",
    "threads",
    "wls",
    "xp",
]

name = "cpu"
xp = np
clock = None  # its work takes the time that passes here
scores = None  # the loop's own array code serves


@contextlib.contextmanager
def threads(count: int) -> Iterator[int]:
    """Limit Numba and BLAS to `count` threads (0: every core this process may use); yields the number."""
    import numba
    from threadpoolctl import threadpool_limits

    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    wanted = min(count or available, numba.config.NUMBA_NUM_THREADS)
    before = numba.get_num_threads()
    numba.set_num_threads(wanted)
    try:
        with threadpool_limits(limits=wanted):
            yield wanted
    finally:
        numba.set_num_threads(before)
