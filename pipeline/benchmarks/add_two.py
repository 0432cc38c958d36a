"""Suite ``add_two``: two is added to every number of a large array, work that memory alone limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.benchmarks import gpus
from pipeline.benchmarks.registry import Case, Setup, Work, row, suite

TWO = np.float32(2)  # a Python 2 would make some of the packages compute in float64
PERIOD = 1024  # divides a plane of the array, whatever its size
ARRAYS = (
    5  # of the full size in memory at once: source, target, a result, what Dask joins or JAX copies, and room
)
ROOM = 0.8  # share of the free memory that they may take
SLICE = 1 << 18  # elements given to the plain Python loop
NEW, EXISTING = "into a new array", "into an array that is there"


@suite("add_two", share=0.4)
def case(setup: Setup) -> Case:
    """Return numbers that repeat 0 to 1023; what comes out must repeat 2 to 1025."""
    shape, notes = list(setup.choose((1024, 1024, 512), (256, 1024, 64), (8, 32, 32))), []
    asked = tuple(shape)
    while shape[0] > 1 and ARRAYS * 4 * int(np.prod(shape)) > ROOM * setup.memory:
        shape[0] //= 2
    if tuple(shape) != asked:
        notes.append(
            f"the array is {_by(shape)} instead of {_by(asked)}: {ARRAYS} of the larger ones do not fit into "
            f"{setup.memory / 1e9:.1f} GB of free memory"
        )
    source = np.empty(shape, np.float32)
    source.reshape(-1, PERIOD)[:] = np.arange(PERIOD, dtype=np.float32)
    data = SimpleNamespace(source=source, target=np.zeros_like(source))

    def error(found: Any) -> float:
        return _error(found, tuple(shape), setup.threads)

    work = f"x + 2 for {_by(shape)} float32 ({source.nbytes / 1e6:,.0f} MB)"
    return Case(data, error, 0.0, 2 * source.nbytes, "largest difference", work, setup, notes)


def _by(shape: Any) -> str:
    return " x ".join(map(str, shape))


def _error(found: Any, shape: tuple[int, ...], threads: int) -> float:
    """Return the largest difference to the closed form; float64 or another shape is no right result."""
    found = np.asarray(found)
    if found.shape != shape or found.dtype != np.float32:
        return float("inf")
    rows = found.reshape(-1, PERIOD)
    wanted = np.arange(PERIOD, dtype=np.float32) + TWO

    def block(begin: int) -> float:
        return float(np.abs(rows[begin : begin + 256] - wanted).max())

    with ThreadPoolExecutor(threads) as pool:
        return float(np.max(list(pool.map(block, range(0, len(rows), 256)))))  # NaN stays NaN


@row("add_two", "Python loop")
def _python_loop(case: Case) -> Work:
    flat = case.data.source.reshape(-1)[:SLICE]
    out = np.zeros_like(flat)

    def run() -> np.ndarray:
        for i in range(len(flat)):
            out[i] = flat[i] + TWO
        return out

    return Work(
        run,
        scale=case.data.source.size / flat.size,
        error=lambda found: _error(found, flat.shape, 1),
        note=f"{flat.size:,} elements, extrapolated" if flat.size < case.data.source.size else "",
    )


@row("add_two", "NumPy, out of place")
def _numpy_new(case: Case) -> Work:
    return Work(lambda: case.data.source + TWO, note=NEW)


@row("add_two", "NumPy, out=")
def _numpy_out(case: Case) -> Work:
    out = case.data.target
    return Work(lambda: np.add(case.data.source, TWO, out=out), restore=lambda: out.fill(0), note=EXISTING)


@row("add_two", "NumPy, in place")
def _numpy_in_place(case: Case) -> Work:
    x = case.data.target

    def run() -> np.ndarray:
        np.add(x, TWO, out=x)
        return x

    return Work(run, restore=lambda: np.copyto(x, case.data.source), note="x += 2")


def _numba_loop(case: Case, parallel: bool) -> Work:
    import numba

    @numba.njit(parallel=parallel)
    def add(x, out):
        for i in numba.prange(x.size):
            out[i] = x[i] + TWO

    x, out = case.data.source.reshape(-1), case.data.target.reshape(-1)

    def run() -> np.ndarray:
        add(x, out)
        return case.data.target

    return Work(run, restore=lambda: out.fill(0), note=EXISTING)


@row("add_two", "Numba jit")
def _numba_jit(case: Case) -> Work:
    return _numba_loop(case, parallel=False)


@row("add_two", "Numba prange")
def _numba_prange(case: Case) -> Work:
    return _numba_loop(case, parallel=True)


@row("add_two", "Numba vectorize")
def _numba_vectorize(case: Case) -> Work:
    import numba

    @numba.vectorize
    def add(x):
        return x + TWO

    out = case.data.target
    return Work(lambda: add(case.data.source, out=out), restore=lambda: out.fill(0), note=EXISTING)


@row("add_two", "Numba guvectorize")
def _numba_guvectorize(case: Case) -> Work:
    import numba

    @numba.guvectorize("void(float32[:], float32[:])", "(n)->(n)", target="parallel")
    def add(x, out):
        for i in range(x.size):
            out[i] = x[i] + TWO

    out = case.data.target
    return Work(
        lambda: add(case.data.source, out),
        restore=lambda: out.fill(0),
        note=f"{EXISTING}; compiled before the first call",
    )


@row("add_two", "Numba stencil")
def _numba_stencil(case: Case) -> Work:
    import numba

    @numba.stencil
    def kernel(x):
        return x[0, 0, 0] + TWO

    @numba.njit(parallel=True)
    def add(x, out):
        kernel(x, out=out)

    out = case.data.target

    def run() -> np.ndarray:
        add(case.data.source, out)
        return out

    return Work(run, restore=lambda: out.fill(0), note=EXISTING)


@row("add_two", "Dask", needs=("dask",))
def _dask(case: Case) -> Work:
    import dask.array

    chunks = (max(1, case.data.source.shape[0] // (4 * case.setup.threads)), -1, -1)
    task = dask.array.from_array(case.data.source, chunks=chunks, name=False) + TWO
    return Work(
        lambda: task.compute(scheduler="threads", num_workers=case.setup.threads),
        note=f"{NEW}, in chunks that are joined",
    )


@row("add_two", "PyTorch", needs=("torch",))
def _torch_cpu(case: Case) -> Work:
    import torch

    torch.set_num_threads(case.setup.threads)
    x = torch.from_numpy(case.data.source)  # shares the memory

    def run() -> np.ndarray:
        return (x + 2.0).numpy()

    return Work(run, note=NEW)


@row("add_two", "JAX", needs=("jax",))
def _jax_cpu(case: Case) -> Work:
    return _jax(case, "cpu")


def _jax(case: Case, platform: str) -> Work:
    import jax

    place = jax.devices(platform)[case.setup.device if platform == "gpu" else 0]
    return Work(
        jax.jit(lambda x: x + TWO),
        put=lambda: jax.device_put(case.data.source, place),
        get=np.asarray,
        wait=jax.block_until_ready,
        on_device=platform == "gpu",
        note=NEW if platform == "gpu" else f"{NEW}; on as many threads as JAX likes",
    )


@row("add_two", "CuPy", needs=("cupy",))
def _cupy(case: Case) -> Work:
    cupy = gpus.cupy(case.setup.device)
    return Work(
        lambda x: x + TWO,
        put=lambda: cupy.asarray(case.data.source),
        get=cupy.asnumpy,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        on_device=True,
        note=NEW,
    )


@row("add_two", "PyTorch, GPU", needs=("torch-gpu",))
def _torch_gpu(case: Case) -> Work:
    import torch

    place = torch.device("cuda", case.setup.device)
    return Work(
        lambda x: x + 2.0,
        put=lambda: torch.from_numpy(case.data.source).to(place),
        get=lambda x: x.cpu().numpy(),
        wait=lambda _: torch.cuda.synchronize(place),
        on_device=True,
        note=NEW,
    )


@row("add_two", "JAX, GPU", needs=("jax-gpu",))
def _jax_gpu(case: Case) -> Work:
    return _jax(case, "gpu")


@row("add_two", "Numba CUDA", needs=("numba-cuda",))
def _numba_cuda(case: Case) -> Work:
    from numba import cuda

    from pipeline.benchmarks import cuda_kernels

    cuda.select_device(case.setup.device)
    flat = case.data.source.reshape(-1)
    blocks = -(-flat.size // 256)

    def run(x):
        out = cuda.device_array(flat.shape, np.float32)
        cuda_kernels.add_two[blocks, 256](x, out)
        return out

    return Work(
        run,
        put=lambda: cuda.to_device(flat),
        get=lambda out: out.copy_to_host().reshape(case.data.source.shape),
        wait=lambda _: cuda.synchronize(),
        on_device=True,
        note=NEW,
    )


@row("add_two", "PyCUDA", needs=("pycuda",))
def _pycuda(case: Case) -> Work:
    from pycuda import driver, gpuarray

    on_it = gpus.pycuda(case.setup.device)
    return Work(
        on_it(lambda x: x + TWO),
        put=on_it(lambda: gpuarray.to_gpu(case.data.source)),
        get=on_it(lambda x: x.get()),
        wait=on_it(lambda _: driver.Context.synchronize()),
        on_device=True,
        note=NEW,
    )
