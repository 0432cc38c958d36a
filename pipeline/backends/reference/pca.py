"""Principal component analysis by scikit-learn, through the singular values of the centred matrix."""

from __future__ import annotations

import warnings

import numpy as np

from pipeline.backends import spectrum
from pipeline.backends.protocol import Pca


def fit(X: np.ndarray, n_components: int | None, share: float | None) -> Pca:
    """Fit ``sklearn.decomposition.PCA(svd_solver="full")`` to X (n, p) in float64.

    Parameters
    ----------
    X : (n, p), n at least 2
    n_components : components to keep, at most min(n, p), or None
    share : if `n_components` is None: keep the fewest that explain more than this share of the variance
    """
    from sklearn.decomposition import PCA

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)  # shares of a variance of 0
        found = PCA(svd_solver="full").fit(X.astype(np.float64))
    k = spectrum.how_many(found.explained_variance_, n_components, share)
    return spectrum.finish(len(X), found.mean_, found.components_[:k].copy(), found.explained_variance_, k)


def transform(
    X: np.ndarray, mean: np.ndarray, components: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """Return (X - mean) components', shape (n, k), in the dtype of X; in `out` if given."""
    found = (X.astype(np.float64) - mean) @ components.T.astype(np.float64)
    if out is None:
        return found.astype(X.dtype)
    out[...] = found
    return out
