"""Weighted least squares by statsmodels, one class at a time: the original program, the oracle and the baseline.

Everything is computed in float64 with plain NumPy expressions; nothing here is meant to be fast.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipeline.backends import philox
from pipeline.backends.protocol import ComponentwiseSums, Sums, WlsFit

rough = None  # fits come from the rows themselves
classes_together = 1


def column_moments(X: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted mean and population variance (float64, (p,)) of each column of X (n, p)."""
    s = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    rows = X[s > 0].astype(np.float64)
    s = s[s > 0]
    mean = s @ rows / s.sum()
    variance = s @ (rows - mean) ** 2 / s.sum()
    constant = (rows == rows[0]).all(axis=0)
    return np.where(constant, rows[0], mean), np.where(constant, 0.0, variance)


FAR = 20  # powers of two from 1 up to which columns are fitted as they are


def gather(X: np.ndarray, columns: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return X[:, columns] - center[columns], shape (n, q), in the dtype of X."""
    return np.ascontiguousarray(X[:, columns] - center[columns].astype(X.dtype))


def fit(
    X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray, l2: float, gram_precision: str = "full"
) -> WlsFit:
    """Fit ``statsmodels.WLS`` with an intercept per class.

    Minimises, for each class j, ``sum_i w_ij (r_ij / w_ij - b_j - (x_i - center)'beta_j)^2 + l2 |beta_j|^2``.
    The penalty enters as q extra rows sqrt(l2) I with response 0 and no intercept, which makes ridge regression
    an ordinary least squares problem.

    Parameters
    ----------
    X : (n, q)
    center : (q,)
    W, R : (n, J) weights and weighted responses r = w z
    l2 : penalty of the coefficients
    gram_precision : changes nothing here: everything is float64
    """
    classes = slice(0, W.shape[1])
    return solve(sums(X, center, W, R, classes, True), l2, X.dtype.name)[0]


class Rows(NamedTuple):
    """What takes the place of Gram matrices here: statsmodels wants the rows themselves."""

    D: np.ndarray  # float64 (n, q), centred
    W: np.ndarray  # float64 (n, classes)
    R: np.ndarray  # float64 (n, classes)

    def __iadd__(self, more: tuple) -> Rows:  # type: ignore[misc]  # of tuples a sum is otherwise a longer tuple
        return Rows(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


def sums(
    X: np.ndarray,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    classes: slice,
    totals: bool,
    gram_precision: str = "full",
) -> Sums:
    """Return the rows with the weights of a range of classes, and with `totals` the sums of the weights."""
    D = X.astype(np.float64) - center
    W, R = W.astype(np.float64), R.astype(np.float64)
    rows = Rows(D, W[:, classes], R[:, classes])
    if not totals:
        return Sums(None, None, None, None, rows)
    return Sums(None, None, R.sum(axis=0), W.sum(axis=0), rows)


def residual_sums(
    X: np.ndarray,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    classes: slice,
    coef: np.ndarray,
    intercept: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (X - center)' e (q, classes) and the sums of e = r - w f (classes,) for fits f of those classes."""
    D = X.astype(np.float64) - center
    residual = R[:, classes] - W[:, classes] * (D @ coef + intercept)
    return D.T @ residual, residual.sum(axis=0)


def solve(sums: Sums, l2: float, precision: str) -> tuple[WlsFit, None]:
    """Return the fits by statsmodels of the rows in `sums`; there are no factors, and nothing to refine."""
    import statsmodels.api as sm

    D, W, R = sums.gram
    q, J = D.shape[1], W.shape[1]
    unit = _unit(D)
    design = np.column_stack([np.ones(len(D)), D * unit])
    if l2 > 0.0:
        design = np.vstack([design, np.column_stack([np.zeros(q), np.sqrt(l2) * unit * np.eye(q)])])
    varying = [int((np.ptp(D[W[:, j] > 0], axis=0) > 0.0).sum()) for j in range(J)]
    coef, intercept, rank = np.zeros((q, J)), np.zeros(J), np.zeros(J, dtype=np.intp)
    for j in range(J):
        w, r = W[:, j], R[:, j]
        z = np.divide(r, w, out=np.zeros_like(r), where=w > 0)
        if l2 > 0.0:
            z, w = np.concatenate([z, np.zeros(q)]), np.concatenate([w, np.ones(q)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # statsmodels warns of a singular design; `rank` tells it instead
            result = sm.WLS(z, design, weights=w).fit()
        intercept[j], coef[:, j] = result.params[0], result.params[1:] * unit
        rank[j] = result.model.rank - 1 if l2 == 0.0 else varying[j]  # statsmodels counts the intercept too
    return WlsFit(coef, intercept, rank, np.zeros(J, dtype=np.intp)), None


def _unit(D: np.ndarray) -> float:
    """Return the power of two that brings numbers far from 1 near it, and 1 for others.

    The pseudo-inverse takes what is smaller by 1e-15 than the largest for nothing: the intercept beside huge columns,
    or all columns beside the intercept.
    """
    power = int(np.frexp(np.abs(D).max(initial=0.0))[1])
    return float(np.ldexp(1.0, -power)) if abs(power) > FAR else 1.0


def refine(factors: None, xr: np.ndarray, sr: np.ndarray, found: WlsFit) -> WlsFit:
    """Return the fits as they are: they come from the rows themselves."""
    return found


def classes_at_once(n_classes: int, q: int, whole: bool = False) -> int:
    """Return how many classes to fit at a time: all, since they share their rows."""
    return n_classes


def over_classes(
    n_classes: int, q: int, at_once: int | None, work: Callable[[slice], None], whole: bool = False
) -> None:
    """Call work(classes) for ranges that cover the classes, of `at_once` or all."""
    step = at_once or n_classes
    for first in range(0, n_classes, step):
        work(slice(first, min(first + step, n_classes)))


def componentwise_sums(X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray) -> ComponentwiseSums:
    """Return the sums (float64, (p, J)) from which the best single feature of each class follows."""
    D = X.astype(np.float64) - center
    W, R = W.astype(np.float64), R.astype(np.float64)
    return ComponentwiseSums(D.T @ R, D.T @ W, (D * D).T @ W)


def apply(X: np.ndarray, center: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Return (X - center) @ coef + intercept, shape (n, J), in the dtype of X."""
    return ((X.astype(np.float64) - center) @ coef + intercept).astype(X.dtype)


def frequencies(p: int, n_components: int, gamma: float, seed: int, index: int, dtype: np.dtype):
    """Return R (p, n_components) ~ N(0, 2 gamma) of draw `index`."""
    R = np.sqrt(2.0 * gamma) * philox.normal(p * n_components, seed, index).reshape(p, n_components)
    return R.astype(dtype)


def _projection(p: int, n_components: int, gamma: float, seed: int, index: int, dtype: np.dtype):
    """Return R (p, n_components) ~ N(0, 2 gamma) and b (n_components,) ~ U(0, 2 pi) of draw `index`."""
    R = frequencies(p, n_components, gamma, seed, index, dtype)
    return R, (2.0 * np.pi * philox.uniform(n_components, seed, index)).astype(dtype)


def random_features(
    X: np.ndarray, center: np.ndarray, gamma: float, n_components: int, seed: int, index: int
) -> np.ndarray:
    """Return cos((X - center) @ R + b), shape (n, n_components), in the dtype of X."""
    R, b = _projection(X.shape[1], n_components, gamma, seed, index, X.dtype)
    return np.cos(apply(X, center, R, b))
