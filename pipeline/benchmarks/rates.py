"""What this machine does at best: the limits that the rates of the rows are compared with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from pipeline.benchmarks import gpus, needs
from pipeline.benchmarks.registry import Setup
from pipeline.profiling import limits

LARGE = 1 << 28  # bytes of a copy: many times the last-level cache
BEST_OF = 5
PAUSE = 0.01  # seconds, some ticks of the system's clock: only then is the processor time of other threads counted
PAUSES = 40
IN_CACHE = 12 << 10  # bytes of a vector: two of them stay in the first-level cache
VECTORS = 2000  # products of them in one call, beside which the call costs nothing
ON_DEVICE = {"float32": 8192, "float64": 4096}  # rows and columns of the matrices multiplied
BLOCKS, THREADS, STEPS, CHAINS = 4096, 256, 256, 8

# Chains of multiply-adds that do not wait for each other; the result is stored, or they would be left out.
CUDA = r"""
extern "C" __global__ void multiply_add(TYPE* out, unsigned int steps) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    TYPE x = out[i], a[8];
    for (int k = 0; k < 8; ++k) a[k] = (TYPE)k;
    for (unsigned int step = 0; step < steps; ++step)
        for (int k = 0; k < 8; ++k) a[k] = a[k] * x + x;
    TYPE sum = 0;
    for (int k = 0; k < 8; ++k) sum += a[k];
    out[i] = sum;
}
"""


class Limit(NamedTuple):
    """One limit of a machine.

    Attributes
    ----------
    kind : "copy" of memory, matrix "product", or "vector": products of vectors that stay in cache, near what loops
        reach that are no matrix product
    dtype : "float32" or "float64"; "" for a copy
    on_device : of the GPU
    """

    kind: str
    dtype: str = ""
    on_device: bool = False

    @property
    def place(self) -> str:
        """Where it holds, for a reader."""
        return "GPU" if self.on_device else "host"

    def __str__(self) -> str:
        return f"{self.dtype} {self.kind}".strip()


def measure(limit: Limit, setup: Setup, large: int = LARGE) -> float | None:
    """Return the best of some tries: bytes per second read and written together, or operations per second.

    None for a GPU on which CuPy cannot work, whatever else can.

    Parameters
    ----------
    limit : what is measured
    setup : `threads` and `device` are heeded
    large : bytes of what is copied
    """
    if limit.on_device:
        return _on_device(limit, setup.device, large)
    if limit.kind == "copy":
        return limits.copy(setup.threads, large)
    if limit.kind == "product":
        return limits.product(limit.dtype, setup.threads)
    return _vector(limit.dtype, setup.threads)


def _vector(dtype: str, threads: int) -> float:
    """Return the operations per second of products of vectors in cache, every thread with some of its own."""
    size = IN_CACHE // np.dtype(dtype).itemsize
    given = [(np.ones(size, dtype), np.ones(size, dtype)) for _ in range(threads)]
    gate = threading.Barrier(threads)

    def one(pair: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
        many = np.broadcast_to(pair[0], (VECTORS, size))  # the same vector again and again
        gate.wait()
        begin = time.perf_counter()
        np.vecdot(many, pair[1])
        return begin, time.perf_counter()

    taken = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(BEST_OF + 1):  # from the first begin to the last end, without the start of the threads
            spans = list(pool.map(one, given))
            taken.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    return 2.0 * size * VECTORS * threads / min(taken)


def _on_device(limit: Limit, device: int, large: int) -> float | None:
    if needs.missing("cupy", device) is not None:
        return None
    cupy = gpus.cupy(device)
    if limit.kind == "copy":
        source, target = cupy.ones(large // 4, dtype=np.float32), cupy.empty(large // 4, dtype=np.float32)

        def copy() -> None:
            target[...] = source

        return 8.0 * (large // 4) / _device_seconds(cupy, copy)
    if limit.kind == "product":
        n = ON_DEVICE[limit.dtype]
        a, b, out = (cupy.ones((n, n), dtype=limit.dtype) for _ in range(3))
        return 2.0 * n**3 / _device_seconds(cupy, lambda: cupy.matmul(a, b, out=out))
    return _device_vector(cupy, limit.dtype)


def _device_vector(cupy: Any, dtype: str) -> float:
    name = {"float32": "float", "float64": "double"}[dtype]
    kernel = cupy.RawModule(code=CUDA.replace("TYPE", name), options=("-std=c++17",)).get_function(
        "multiply_add"
    )
    numbers = cupy.ones(BLOCKS * THREADS, dtype=dtype)
    taken = _device_seconds(cupy, lambda: kernel((BLOCKS,), (THREADS,), (numbers, np.uint32(STEPS))))
    return 2.0 * CHAINS * STEPS * BLOCKS * THREADS / taken


def _device_seconds(cupy: Any, work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(BEST_OF + 1):  # the first loads what CuPy works with
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        work()
        cupy.cuda.get_current_stream().synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def rest() -> None:
    """Wait until the threads of this process that worked before are at rest.

    Those of BLAS and OpenMP look for more work for 100 to 200 ms, each on a core that the next work would get.
    """
    for _ in range(PAUSES):
        before = time.process_time()
        time.sleep(PAUSE)
        if time.process_time() - before < PAUSE / 2:
            return
