"""Principal component analysis on the device: Gram matrices by cuBLAS, their eigenvectors by cuSOLVER.

X is a device array or another kind of matrix, see :mod:`pipeline.backends.gpu.matrix`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cupy as cp
import cupyx
import numpy as np

from pipeline.backends import spectrum
from pipeline.backends.gpu import blas, memory, transfer, wls
from pipeline.backends.gpu.matrix import HostMatrix, empty_matrix, fill_rows, now, over_rows
from pipeline.backends.protocol import Pca

log = logging.getLogger(__name__)


def fit(X: Any, n_components: int | None, share: float | None) -> Pca:
    """Find the directions of largest variance of the rows of X (n, p), in float64.

    Parameters
    ----------
    X : (n, p) float32 or float64, n at least 2
    n_components : components to keep, at most min(n, p), or None
    share : if `n_components` is None: keep the fewest that explain more than this share of the variance

    Returns
    -------
    Pca
        In host memory: the components come home once.

    Notes
    -----
    As :func:`pipeline.backends.cpu.pca.fit`.
    """
    n, p = X.shape
    mean, _ = wls.column_moments(X)
    gram = _columns_gram(X, mean) if n < p else _rows_gram(X, mean)
    gram /= n - 1
    values, vectors = _leading(gram, lambda all_: spectrum.how_many(all_, n_components, share))
    del gram
    components = _combined(X, mean, vectors) if n < p else cp.ascontiguousarray(vectors.T)
    return spectrum.finish(n, transfer.get(mean), transfer.get(components), values, vectors.shape[1])


def _leading(gram: Any, choose: Callable[[np.ndarray], int]) -> tuple[np.ndarray, Any]:
    """Return all eigenvalues (m,) on the host, largest first, and the first eigenvectors (m, k) on the device.

    Where the device has no room for cuSOLVER's work, or it does not converge, LAPACK does it on the host.
    """
    made: list[Any] = []

    def work() -> None:
        with cupyx.errstate(linalg="raise"):  # else what cuSOLVER could not finish looks like a result
            made.extend(cp.linalg.eigh(gram, UPLO="L"))

    try:
        found = "no room on the GPU" if not memory.attempt(work) else None
    except np.linalg.LinAlgError as error:
        found = str(error)
    if found is None:
        values = transfer.get(made[0])[::-1]
        return values, made[1][:, ::-1][:, : choose(values)]
    cp.get_default_memory_pool().free_all_blocks()
    log.warning("eigenvectors of a Gram matrix of %d columns are found on the host (%s)", len(gram), found)
    values, vectors = spectrum.leading(np.asfortranarray(transfer.get(gram)), choose)
    return values, cp.asarray(vectors)


def _rows_gram(X: Any, mean: Any) -> Any:
    """Return the lower triangle of (X - mean)'(X - mean): float64 (p, p)."""
    p = X.shape[1]
    total = cp.zeros((p, p))

    def work(part: slice, block: Any) -> None:
        centred = cp.empty((1, len(block), p))
        cp.subtract(block, mean, out=centred[0])
        product = blas.grams(centred, 1, False)[0]
        cp.add(total, product, out=total)  # the last step: nothing before it leaves a trace

    over_rows(X, 8 * p, work)
    return total


def _columns_gram(X: Any, mean: Any) -> Any:
    """Return (X - mean)(X - mean)': float64 (n, n)."""
    n = X.shape[0]
    total = cp.zeros((n, n))

    def work(part: slice, columns: Any) -> None:
        product = cp.matmul(columns, columns.T)
        cp.add(total, product, out=total)

    _over_columns(X, mean, work)
    return total


def _combined(X: Any, mean: Any, vectors: Any) -> Any:
    """Return vectors' (X - mean): float64 (k, p)."""
    out = cp.empty((vectors.shape[1], X.shape[1]))

    def work(part: slice, columns: Any) -> None:
        out[:, part] = cp.matmul(vectors.T, columns)

    _over_columns(X, mean, work)
    return out


def _over_columns(X: Any, mean: Any, work: Callable[[slice, Any], None]) -> None:
    """Call work(part, X[:, part] - mean[part]) with float64 columns, as many at a time as memory allows."""

    def step(part: slice) -> None:
        present = now(X)
        if isinstance(present, HostMatrix):
            columns = transfer.put(np.ascontiguousarray(present.host[:, part], dtype=np.float64))
        else:
            columns = present[:, part].astype(cp.float64)
        del present
        if isinstance(columns, HostMatrix):  # put found no room for them
            raise cp.cuda.memory.OutOfMemoryError(columns.nbytes, memory.free_bytes())
        columns -= mean[part]
        work(part, columns)

    memory.in_chunks(X.shape[1], 3 * 8 * X.shape[0], step, "columns")


def transform(X: Any, mean: Any, components: Any, out: Any = None) -> Any:
    """Return (X - mean) components', shape (n, k), in the dtype of X; in `out` if given.

    Parameters
    ----------
    X : (n, p) float32 or float64
    mean : (p,)
    components : (k, p)
    out : (n, k) of the dtype of X, on the device or streaming through it
    """
    n, p = X.shape
    k = components.shape[0]
    mean = mean.astype(X.dtype, copy=False)
    loadings = components.astype(X.dtype, copy=False).T
    if out is None:
        out = empty_matrix(n, k, X.dtype)

    def work(part: slice, block: Any) -> None:
        def write(rows: Any) -> None:
            rows[...] = cp.matmul(block - mean, loadings)

        fill_rows(out, part, write)

    over_rows(X, (p + 2 * k) * X.dtype.itemsize, work)
    return out
