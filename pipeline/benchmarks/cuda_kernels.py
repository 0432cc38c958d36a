"""Kernels in Numba CUDA. Imported inside the rows that launch them: numba.cuda loads the driver.

They are functions of the module, not of a row, so that Numba's simulator (NUMBA_ENABLE_CUDASIM=1) can run them on
a machine without a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.random import xoroshiro128p_uniform_float64

TWO = np.float32(2)


@cuda.jit
def add_two(x: Any, out: Any) -> None:
    """Write x + 2 into `out`, a number to a thread."""
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + TWO


@cuda.jit
def count_hits(states: Any, each: int, hits: Any) -> None:
    """Count which of `each` points of every thread fall into the quarter circle."""
    thread = cuda.grid(1)
    if thread < hits.size:
        found = 0
        for _ in range(each):
            x = xoroshiro128p_uniform_float64(states, thread)
            y = xoroshiro128p_uniform_float64(states, thread)
            if x * x + y * y < 1.0:
                found += 1
        hits[thread] = found
