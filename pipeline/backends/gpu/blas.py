"""Gram matrices of a batch of classes in one call of cuBLAS.

cuBLAS has no batched syrk, and CuPy's batched matmul copies a transposed operand and has no TF32: so
``cublasGemmStridedBatchedEx`` is called directly. A product of few columns leaves most of a GPU idle, so the rows are
cut into parts that are multiplied side by side and added up; a product of many columns is computed in panels, which
leave out most of the upper triangle.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

TILE = 128  # rows and columns of the product that one multiprocessor computes at a time
TILES = 264  # tiles that keep a large GPU busy
LEAST = 256  # rows of a part at least
PANELS, PANELLED = 4, 1024  # so many panels from so many columns


def parts(n: int, q: int, batch: int) -> int:
    """Return into how many parts to cut n rows for `batch` Gram matrices of q columns."""
    tiles = batch * (-(-q // TILE)) ** 2
    return max(1, min(-(-TILES // tiles), n // LEAST))


def grams(scaled: Any, cut: int, tf32: bool) -> Any:
    """Return scaled[j]' scaled[j] for each j: lower triangles in the type of `scaled`, (batch, q, q).

    Parameters
    ----------
    scaled : (batch, n, q) float32 or float64, C order; n a multiple of `cut`
    cut : parts of the rows that are multiplied side by side
    tf32 : round float32 inputs to TF32 (10 bits) for the tensor cores; sums stay float32
    """
    batch, n, q = scaled.shape
    if n % cut or not scaled.flags.c_contiguous:
        raise ValueError(f"{n} rows cannot be cut into {cut} parts, or the rows are not contiguous")
    out = cp.zeros((batch * cut, q, q), dtype=scaled.dtype)
    width = -(-q // PANELS) if q >= PANELLED else q
    for a in range(0, q, width):
        _panel(scaled, out, n // cut, a, min(a + width, q), tf32)
    return out.reshape(batch, cut, q, q).sum(axis=1) if cut > 1 else out


def _panel(scaled: Any, out: Any, rows: int, a: int, b: int, tf32: bool) -> None:
    """Write rows a to b and columns 0 to b of each product.

    cuBLAS reads memory column by column: there `scaled` is a batch of (q, rows) matrices S and the rows a to b of a
    product are the columns a to b of S S'.
    """
    from cupy_backends.cuda.libs import cublas

    single = scaled.dtype == np.float32
    kind = cp.cuda.runtime.CUDA_R_32F if single else cp.cuda.runtime.CUDA_R_64F
    compute = cublas.CUBLAS_COMPUTE_32F if single else cublas.CUBLAS_COMPUTE_64F
    if single and tf32:
        compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32
    q, item = scaled.shape[2], scaled.dtype.itemsize
    one, zero = np.array(1, dtype=scaled.dtype), np.array(0, dtype=scaled.dtype)
    cublas.gemmStridedBatchedEx(
        cp.cuda.device.get_cublas_handle(),
        *(cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T),
        *(b, b - a, rows),
        one.ctypes.data,
        *(scaled.data.ptr, kind, q, rows * q),
        *(scaled.data.ptr + a * item, kind, q, rows * q),
        zero.ctypes.data,
        *(out.data.ptr + a * q * item, kind, q, q * q),
        len(out),
        *(compute, cublas.CUBLAS_GEMM_DEFAULT),
    )
