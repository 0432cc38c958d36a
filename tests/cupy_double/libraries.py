"""cuBLAS, cuSOLVER and cuCIM of the double, behind the names through which the backend calls them."""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.cupy_double.array import ndarray
from tests.cupy_double.machine import Block, Machine

FAILURES = ("nan", "untouched", "negative")  # what a failed factorisation may leave


def _at(address: int, count: int, dtype: Any) -> np.ndarray:
    """Return `count` numbers at an address, as an array that shares their memory."""
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype=dtype)


def _columns(address: int, rows: int, cols: int, lead: int, dtype: Any) -> np.ndarray:
    """Return the column-major matrix (rows, cols) at an address."""
    flat = _at(address, (cols - 1) * lead + rows, dtype)
    item = flat.dtype.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), (item, lead * item))


def round_to_tf32(values: np.ndarray) -> np.ndarray:
    """Return float32 values with 10 bits of mantissa."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def opener(machine: Machine) -> Callable[[str], types.ModuleType]:
    """Return the __getattr__ of cupy_backends.cuda.libs.

    It finds libraries that pip installed, which an import of a module by its full name does not; NVRTC is opened
    when it is first called.
    """
    known = {"cublas": cublas(machine), "cusolver": types.ModuleType("cusolver"), "nvrtc": _nvrtc(machine)}

    def open_library(name: str) -> types.ModuleType:
        if name not in known:
            raise AttributeError(name)
        if name in machine.absent and name != "nvrtc":
            raise ImportError(f'Failure finding "lib{name}.so":\n  no such file')
        return known[name]

    return open_library


def _nvrtc(machine: Machine) -> types.ModuleType:
    module = types.ModuleType("nvrtc")

    def version() -> tuple[int, int]:
        if "nvrtc" in machine.absent:
            raise RuntimeError('Failure finding "libnvrtc.so":\n  no such file')
        return (12, 9)

    module.getVersion = version  # type: ignore[attr-defined]
    return module


def cublas(machine: Machine) -> types.ModuleType:
    """Return cupy_backends.cuda.libs.cublas."""
    module = types.ModuleType("cupy_backends.cuda.libs.cublas")
    names = {
        "CUBLAS_OP_N": 0,
        "CUBLAS_OP_T": 1,
        "CUBLAS_COMPUTE_32F": 68,
        "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
        "CUBLAS_COMPUTE_64F": 70,
        "CUBLAS_GEMM_DEFAULT": -1,
    }
    vars(module).update(names)

    def gemm(
        handle, transa, transb, m, n, k, alpha, A, a_type, lda, stride_a, B, b_type, ldb, stride_b,
        beta, C, c_type, ldc, stride_c, count, compute, algo,
    ):  # fmt: skip
        kinds = {0: np.float32, 1: np.float64}
        dtype = kinds[a_type]
        assert a_type == b_type == c_type
        assert compute in ((68, 77) if dtype is np.float32 else (70,)), "compute type does not fit the data"
        assert lda >= (k if transa else m)
        assert ldb >= (n if transb else k)
        assert ldc >= m
        one, zero = (_at(p, 1, dtype)[0] for p in (alpha, beta))
        machine.note("gemm")
        for i in range(count):
            item = np.dtype(dtype).itemsize
            a = _columns(A + i * stride_a * item, *((k, m) if transa else (m, k)), lda, dtype)
            b = _columns(B + i * stride_b * item, *((n, k) if transb else (k, n)), ldb, dtype)
            c = _columns(C + i * stride_c * item, m, n, ldc, dtype)
            if compute == 77:
                a, b = round_to_tf32(a), round_to_tf32(b)
            product = (a.T if transa else a) @ (b.T if transb else b)
            c[...] = one * product + (zero * c if zero else 0)

    module.gemmStridedBatchedEx = gemm  # type: ignore[attr-defined]
    return module


def cholesky(machine: Machine, matrices: ndarray) -> ndarray:
    """As cupy.linalg.cholesky: reads the lower triangle, does not raise, leaves garbage where it fails."""
    if not isinstance(matrices, ndarray):
        raise TypeError("cupy.ndarray expected")
    machine.note("cholesky")
    given = matrices.host
    out = np.tril(given)
    flat = out.reshape(-1, *out.shape[-2:])
    for matrix in flat:
        whole = np.tril(matrix) + np.tril(matrix, -1).T
        try:
            matrix[...] = np.linalg.cholesky(whole)
        except np.linalg.LinAlgError:
            if machine.linalg == "raise":
                raise
            how = FAILURES[machine.failed_cholesky % len(FAILURES)]
            machine.failed_cholesky += 1
            _leave(matrix, whole, how)
    return ndarray(out)


def errstate(machine: Machine) -> Callable[..., Any]:
    """Return cupyx.errstate."""

    @contextlib.contextmanager
    def state(*, linalg: str) -> Iterator[None]:
        before, machine.linalg = machine.linalg, linalg
        try:
            yield
        finally:
            machine.linalg = before

    return state


def _leave(matrix: np.ndarray, whole: np.ndarray, how: str) -> None:
    """Leave in `matrix` what a factorisation leaves that stops at its first bad pivot."""
    q = len(whole)
    for k in range(q):
        pivot = whole[k, k] - matrix[k, :k] @ matrix[k, :k]
        if not pivot > 0:
            matrix[k, k] = {"nan": np.nan, "untouched": whole[k, k], "negative": pivot}[how]
            return
        matrix[k, k] = np.sqrt(pivot)
        matrix[k + 1 :, k] = (whole[k + 1 :, k] - matrix[k + 1 :, :k] @ matrix[k, :k]) / matrix[k, k]


def eigh(machine: Machine, matrix: ndarray, triangle: str) -> tuple[ndarray, ndarray]:
    """As cupy.linalg.eigh: reads one triangle, takes room for copies and work space, raises a failure if so set."""
    if not isinstance(matrix, ndarray):
        raise TypeError("cupy.ndarray expected")
    machine.note("eigh")
    work = Block(machine, 3 * matrix.nbytes)
    values, vectors = np.linalg.eigh(matrix.host, triangle)
    if machine.failed_eigh and machine.linalg == "raise":
        raise np.linalg.LinAlgError("Error reported by xsyevd in cuSOLVER. devInfo = 3.")
    if machine.failed_eigh:
        values[0] += 1e-3 * abs(values[-1])
    del work
    return ndarray(values), ndarray(vectors)


def potrs(lower_factor: ndarray, b: ndarray, lower: bool) -> ndarray:
    """As cupyx.lapack.potrs: solves in place, one system or a batch."""
    if not isinstance(lower_factor, ndarray) or not isinstance(b, ndarray):
        raise TypeError("cupy.ndarray expected")
    if not lower:
        raise AssertionError("double: only lower factors")
    factors = np.tril(lower_factor.host).reshape(-1, *lower_factor.shape[-2:])
    single = b.ndim < lower_factor.ndim
    rhs = b.host.reshape(len(factors), factors.shape[1], -1)
    if single and lower_factor.ndim > 2:
        raise AssertionError("double: give a batch of right-hand sides a last axis")
    found = np.empty_like(rhs)
    with np.errstate(all="ignore"):
        for j, factor in enumerate(factors):
            usable = np.isfinite(factor).all() and (factor.diagonal() != 0).all()
            half = np.linalg.solve(factor, rhs[j]) if usable else np.full_like(rhs[j], np.nan)
            found[j] = np.linalg.solve(factor.T, half) if usable else half
    b.host[...] = found.reshape(b.shape)
    return b


def cucim() -> dict[str, types.ModuleType]:
    """Return the modules of cuCIM that the backend imports; scikit-image does their work."""
    from skimage import exposure, filters

    def lifted(function: Any) -> Any:
        def call(image: ndarray, *arguments: Any, **named: Any) -> ndarray:
            if not isinstance(image, ndarray):
                raise TypeError("cupy.ndarray expected")
            return ndarray(np.asarray(function(image.host, *arguments, **named)))

        return call

    names = ("cucim", "cucim.skimage", "cucim.skimage.exposure", "cucim.skimage.filters")
    modules = {name: types.ModuleType(name) for name in names}
    for name in ("rescale_intensity", "equalize_hist", "equalize_adapthist"):
        setattr(modules["cucim.skimage.exposure"], name, lifted(getattr(exposure, name)))
    modules["cucim.skimage.filters"].gaussian = lifted(filters.gaussian)  # type: ignore[attr-defined]
    return modules
