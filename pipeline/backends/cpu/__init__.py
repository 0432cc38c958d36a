"""The cpu backend: Numba kernels for pixels and for weighted least squares, BLAS for products with many columns."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator

import numpy as np
from threadpoolctl import ThreadpoolController

from pipeline.backends.cpu import hog, pca, preprocess, scores, wls
from pipeline.backends.cpu.panels import gather_meanwhile
from pipeline.backends.host import first_not_finite, get, holds, in_room, map_images, put, resident, rows

__all__ = [
    "clock",
    "first_not_finite",
    "gather_meanwhile",
    "get",
    "hog",
    "holds",
    "in_room",
    "map_images",
    "name",
    "pca",
    "preprocess",
    "put",
    "resident",
    "rows",
    "scores",
    "threads",
    "wls",
    "xp",
]

name = "cpu"
xp = np
clock = None  # its work takes the time that passes here


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Return who limits the threads of the loaded libraries; looking for them takes 1.2 ms.

    `modules` is how many Python modules are loaded: a library that came since came with one.
    """
    return ThreadpoolController()


@contextlib.contextmanager
def threads(count: int) -> Iterator[int]:
    """Limit Numba and BLAS to `count` threads (0: every core this process may use); yields the number."""
    import numba

    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    wanted = min(count or available, numba.config.NUMBA_NUM_THREADS)
    before = numba.get_num_threads()
    numba.set_num_threads(wanted)
    try:
        with _libraries(len(sys.modules)).limit(limits=wanted):
            yield wanted
    finally:
        numba.set_num_threads(before)
