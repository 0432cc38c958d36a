"""Suite ``monte_carlo_pi``: the share of random points that fall into a quarter circle, work without memory.

Results differ with the generator, so a row is right if it is within five standard errors of pi.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.benchmarks import gpus
from pipeline.benchmarks.registry import Case, Setup, Work, row, suite

STANDARD_ERRORS = 5.0
# Of a point: two numbers of splitmix64 (three products, three shifts, three exclusive ors, a sum, and a shift, a
# conversion and a product to bring it between 0 and 1), then x * x + y * y < 1 and the count.
OPERATIONS = 2 * 13 + 5
BLOCK = 1 << 15  # points whose coordinates stay in the second-level cache

# splitmix64 (Steele, Lea and Flood 2014): the number of a point is its random state, so that any thread can start
# anywhere and serial, parallel and GPU rows count the same points.
CUDA = r"""
__device__ unsigned long long mix(unsigned long long z) {
    z *= 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}
extern "C" __global__ void count_hits(unsigned long long seed, unsigned int n, unsigned int each, unsigned int* hits) {
    unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int found = 0;
    for (unsigned int k = 0; k < each; ++k) {
        unsigned long long i = (unsigned long long)thread * each + k;
        if (i >= n) break;
        double x = (double)(mix(seed + 2 * i + 1) >> 11) * 0x1p-53;
        double y = (double)(mix(seed + 2 * i + 2) >> 11) * 0x1p-53;
        found += x * x + y * y < 1.0;
    }
    hits[thread] = found;
}
"""


@suite("monte_carlo_pi", share=0.1)
def case(setup: Setup) -> Case:
    """Return how many points; a result is an estimate of pi."""
    n = setup.choose(20_000_000, 2_000_000, 20_000)
    work = f"pi from {n:,} random points"
    return Case(
        SimpleNamespace(n=n, seed=setup.seed),
        _error(n),
        STANDARD_ERRORS,
        0,
        "distance from pi in standard errors",
        work,
        setup,
        [f"shares count {OPERATIONS} operations a point, which it takes with numbers of splitmix64"],
        operations=float(OPERATIONS * n),
        arithmetic=("product", "float64"),
        pieces=(n, "points"),
    )


def _error(n: int) -> Any:
    """Return the error of an estimate 4 k / n, where k is binomial with the chance pi / 4."""
    return lambda found: abs(float(found) - np.pi) / np.sqrt(np.pi * (4.0 - np.pi) / n)


@row("monte_carlo_pi", "Python loop")
def _python_loop(case: Case) -> Work:
    n = min(case.data.n, max(10_000, case.data.n // 200))

    def run() -> float:
        draw, hits = random.Random(case.data.seed).random, 0
        for _ in range(n):
            x, y = draw(), draw()
            hits += x * x + y * y < 1.0
        return 4.0 * hits / n

    return Work(run, scale=case.data.n / n, error=_error(n), note=f"{n:,} points, extrapolated")


def _numpy(case: Case, block: int) -> Work:
    n = case.data.n

    def run() -> float:
        rng = np.random.default_rng(case.data.seed)
        hits = 0
        for begin in range(0, n, block):
            x, y = rng.random((2, min(block, n - begin)))
            hits += int(np.count_nonzero(x * x + y * y < 1.0))
        return 4.0 * hits / n

    return Work(run)


@row("monte_carlo_pi", "NumPy")
def _numpy_whole(case: Case) -> Work:
    return _numpy(case, case.data.n)._replace(note="all points at once")


@row("monte_carlo_pi", "NumPy, in blocks")
def _numpy_blocks(case: Case) -> Work:
    return _numpy(case, BLOCK)._replace(note=f"{BLOCK:,} points at a time, which stay in the cache")


def _numba(case: Case, parallel: bool) -> Work:
    import numba

    u64 = np.uint64

    @numba.njit(inline="always")
    def mix(z: Any) -> Any:
        z = z * u64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
        return z ^ (z >> u64(31))

    @numba.njit(parallel=parallel)
    def count(seed: Any, n: Any) -> Any:
        hits: Any = 0
        for i in numba.prange(n):
            place = seed + u64(2) * u64(i)
            x = np.float64(mix(place + u64(1)) >> u64(11)) * 2.0**-53
            y = np.float64(mix(place + u64(2)) >> u64(11)) * 2.0**-53
            hits += x * x + y * y < 1.0
        return hits

    return Work(lambda: 4.0 * count(u64(case.data.seed), case.data.n) / case.data.n)


@row("monte_carlo_pi", "Numba jit")
def _numba_jit(case: Case) -> Work:
    return _numba(case, parallel=False)


@row("monte_carlo_pi", "Numba prange")
def _numba_prange(case: Case) -> Work:
    return _numba(case, parallel=True)


@row("monte_carlo_pi", "CuPy, arrays", needs=("cupy",))
def _cupy_arrays(case: Case) -> Work:
    cupy, n = gpus.cupy(case.setup.device), case.data.n

    def run():
        points = cupy.random.default_rng(case.data.seed).random((2, n))
        x, y = points[0], points[1]
        return (x * x + y * y < 1.0).sum()

    return Work(
        run,
        get=lambda hits: 4.0 * int(hits) / n,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        on_device=True,
        note="all points at once",
    )


@row("monte_carlo_pi", "CuPy, one kernel", needs=("cupy",))
def _cupy_kernel(case: Case) -> Work:
    cupy = gpus.cupy(case.setup.device)
    n, size = case.data.n, 256
    each = max(1, n // 500_000)
    blocks = -(-n // (each * size))
    kernel = cupy.RawModule(code=CUDA, options=("-std=c++17",)).get_function("count_hits")

    def run():
        hits = cupy.empty(blocks * size, dtype=np.uint32)
        kernel((blocks,), (size,), (np.uint64(case.data.seed), np.uint32(n), np.uint32(each), hits))
        return hits.sum()

    return Work(
        run,
        get=lambda hits: 4.0 * int(hits) / n,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        on_device=True,
        note="points are counted where they are drawn",
    )


@row("monte_carlo_pi", "Numba CUDA", needs=("numba-cuda",))
def _numba_cuda(case: Case) -> Work:
    from numba import cuda
    from numba.cuda.random import create_xoroshiro128p_states

    from pipeline.benchmarks import cuda_kernels

    cuda.select_device(case.setup.device)
    threads = min(1 << 16, max(32, case.data.n // 1000))
    threads -= threads % 32
    each = -(-case.data.n // threads)
    states = create_xoroshiro128p_states(threads, seed=case.data.seed)

    def run():
        hits = cuda.device_array(threads, np.int64)
        cuda_kernels.count_hits[threads // 32, 32](states, each, hits)
        return hits

    return Work(
        run,
        get=lambda hits: 4.0 * hits.copy_to_host().sum() / (threads * each),
        wait=lambda _: cuda.synchronize(),
        on_device=True,
    )


@row("monte_carlo_pi", "PyTorch, GPU", needs=("torch-gpu",))
def _torch_gpu(case: Case) -> Work:
    import torch

    place, n = torch.device("cuda", case.setup.device), case.data.n

    def run():
        torch.manual_seed(case.data.seed)
        x, y = torch.rand((2, n), device=place, dtype=torch.float64)
        return (x * x + y * y < 1.0).sum()

    return Work(
        run,
        get=lambda hits: 4.0 * int(hits) / n,
        wait=lambda _: torch.cuda.synchronize(place),
        on_device=True,
        note="all points at once",
    )
