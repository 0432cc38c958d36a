"""The leading eigenvectors of a Gram matrix, and the rules by which they become principal components.

Works on host arrays in float64, whatever made the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh_tridiagonal, eigvalsh_tridiagonal, lapack

from pipeline.backends.protocol import Pca


def leading(gram: np.ndarray, choose: Callable[[np.ndarray], int]) -> tuple[np.ndarray, np.ndarray]:
    """Return all eigenvalues (m,), largest first, and the eigenvectors (m, k) of the first k of them.

    Parameters
    ----------
    gram : float64 (m, m), Fortran order, lower triangle of a positive semidefinite matrix; overwritten
    choose : called with the eigenvalues, returns k

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not finite, or LAPACK fails.

    Notes
    -----
    What LAPACK's dsyevr does (which ``scipy.linalg.eigh(subset_by_index=...)`` calls), in its three steps: the
    matrix is brought to tridiagonal form, which takes most of the time; its eigenvalues tell k; only the k
    eigenvectors are computed and brought back. One call of dsyevr would have to know k, and a share of the
    variance is known only once the eigenvalues are.
    """
    m = len(gram)
    if not np.isfinite(gram.diagonal()).all():
        raise np.linalg.LinAlgError("the Gram matrix is not finite")
    if m == 1:
        choose(gram[0])
        return gram[0].copy(), np.ones((1, 1))
    largest = float(gram.diagonal().max())
    if largest > 0.0:
        gram /= largest  # no power of it can overflow or vanish
    work, _ = lapack.dsytrd_lwork(m, lower=1)
    reflectors, diagonal, beside, tau, info = lapack.dsytrd(gram, lower=1, lwork=int(work), overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"dsytrd failed with info={info}")
    values = eigvalsh_tridiagonal(diagonal, beside)[::-1]
    k = choose(values)
    _, vectors = eigh_tridiagonal(diagonal, beside, select="i", select_range=(m - k, m - 1))
    vectors = np.asfortranarray(vectors[:, ::-1])
    # The reflectors lie below the subdiagonal, as those of a QR factorisation of all rows but the first.
    below = np.asfortranarray(reflectors[1:, : m - 1])
    rest = np.asfortranarray(vectors[1:])
    _, work, _ = lapack.dormqr("L", "N", below, tau, rest, -1)
    vectors[1:], _, info = lapack.dormqr("L", "N", below, tau, rest, int(work[0]), overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"dormqr failed with info={info}")
    return values * (largest if largest > 0.0 else 1.0), vectors


def how_many(variances: np.ndarray, n_components: int | None, share: float | None) -> int:
    """Return the number of components to keep.

    Parameters
    ----------
    variances : (m,) of all components, largest first; rounding may have made the last ones negative
    n_components : the number itself, or None
    share : the fewest components that explain more than this share of the variance, as scikit-learn counts; at
        least one, also where nothing varies
    """
    if n_components is not None:
        return n_components
    assert share is not None
    running = np.cumsum(np.maximum(variances, 0.0))
    if not running[-1] > 0.0:
        return 1
    return min(int(np.searchsorted(running / running[-1], share, side="right")) + 1, len(variances))


def finish(n: int, mean: np.ndarray, components: np.ndarray, variances: np.ndarray, k: int) -> Pca:
    """Return the principal components in the form that all backends share.

    Parameters
    ----------
    n : rows that were fitted
    mean : float64 (p,)
    components : float64 (k, p), of any length and sign; overwritten
    variances : float64 (m,) of all components, largest first
    k : number of components kept

    Raises
    ------
    numpy.linalg.LinAlgError
        If a variance is not finite.

    Notes
    -----
    Each component has unit length, and its element of largest magnitude is positive, as scikit-learn's ``svd_flip``
    has it. The direction of a component whose variance is rounding noise is arbitrary, and would differ between
    backends: it is set to zero, with variance 0, and so adds nothing.
    """
    if not np.isfinite(variances).all():
        raise np.linalg.LinAlgError("the variances are not finite")
    noise = max(n, components.shape[1]) * np.finfo(np.float64).eps * max(float(variances[0]), 0.0)
    kept = np.where(variances[:k] > noise, variances[:k], 0.0)
    components[kept == 0.0] = 0.0
    length = np.sqrt(np.einsum("kp,kp->k", components, components))
    largest = components[np.arange(k), np.abs(components).argmax(axis=1)]
    components *= (np.where(largest < 0.0, -1.0, 1.0) / np.where(length > 0.0, length, 1.0))[:, None]
    return Pca(mean, components, kept, float(np.maximum(variances, 0.0).sum()))
