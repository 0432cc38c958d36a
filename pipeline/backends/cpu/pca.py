"""Principal component analysis by BLAS: the centred Gram matrix in blocks, its leading eigenvectors by LAPACK.

No function makes an array of the size of X.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas

from pipeline.backends import spectrum
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.wls import column_moments
from pipeline.backends.cpu.wls_blocks import BUFFER, one_blas_thread
from pipeline.backends.protocol import Pca


def fit(X: np.ndarray, n_components: int | None, share: float | None) -> Pca:
    """Find the directions of largest variance of the rows of X (n, p), in float64.

    Parameters
    ----------
    X : (n, p) float32 or float64, C order, n at least 2
    n_components : components to keep, at most min(n, p), or None
    share : if `n_components` is None: keep the fewest that explain more than this share of the variance

    Returns
    -------
    Pca

    Notes
    -----
    With at least as many rows as columns the eigenvectors of the p x p Gram matrix are the components. With fewer
    rows those of the n x n Gram matrix, u, are as cheap as they can be, and X'u are the components. n p min(n, p)
    operations for the Gram matrix and 4/3 min(n, p)^3 for its tridiagonal form. A variance is exact to rounding
    relative to the largest one (the singular values of scikit-learn are exact to rounding's square: the
    smallest variances of nearly dependent columns have fewer digits here).
    """
    n, p = X.shape
    mean, _ = column_moments(X)
    gram = _columns_gram(X, mean) if n < p else _rows_gram(X, mean)
    gram /= n - 1
    with (
        one_blas_thread
    ):  # the tridiagonal form is thousands of short products, which two threads take longer for
        values, vectors = spectrum.leading(gram, lambda all_: spectrum.how_many(all_, n_components, share))
    components = _combined(X, mean, vectors) if n < p else np.ascontiguousarray(vectors.T)
    return spectrum.finish(n, mean, components, values, vectors.shape[1])


def _rows_gram(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the lower triangle of (X - mean)'(X - mean): float64 (p, p), Fortran order."""
    n, p = X.shape
    step = max(1, BUFFER // p)
    buffer = np.empty((min(step, n), p))
    gram = np.zeros((p, p), order="F")
    for a in range(0, n, step):
        rows = buffer[: min(step, n - a)]
        kernels.center_rows(X[a : a + step], mean, rows)
        gram = blas.dsyrk(1.0, rows.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
    return gram


def _columns_gram(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the lower triangle of (X - mean)(X - mean)': float64 (n, n), Fortran order."""
    n, p = X.shape
    step = max(1, BUFFER // n)
    gram = np.zeros((n, n), order="F")
    for a in range(0, p, step):
        columns = X[:, a : a + step] - mean[a : a + step]
        gram = blas.dsyrk(1.0, columns.T, beta=1.0, c=gram, lower=1, trans=1, overwrite_c=1)
    return gram


def _combined(X: np.ndarray, mean: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors' (X - mean): float64 (k, p)."""
    n, p = X.shape
    step = max(1, BUFFER // n)
    out = np.empty((vectors.shape[1], p))
    for a in range(0, p, step):
        out[:, a : a + step] = vectors.T @ (X[:, a : a + step] - mean[a : a + step])
    return out


def transform(
    X: np.ndarray, mean: np.ndarray, components: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """Return (X - mean) components', shape (n, k), in the dtype of X; in `out` if given.

    Parameters
    ----------
    X : (n, p) float32 or float64
    mean : (p,)
    components : (k, p); free of a copy if it has the dtype of X
    out : (n, k) of the dtype of X, C order
    """
    n, p = X.shape
    mean = mean.astype(X.dtype, copy=False)
    loadings = components.astype(X.dtype, copy=False).T
    if out is None:
        out = np.empty((n, loadings.shape[1]), dtype=X.dtype)
    step = max(1, BUFFER // p)
    buffer = np.empty((min(step, n), p), dtype=X.dtype)
    for a in range(0, n, step):
        rows = buffer[: min(step, n - a)]
        kernels.center_rows(X[a : a + step], mean, rows)
        np.matmul(rows, loadings, out=out[a : a + len(rows)])
    return out
