"""The small linear systems behind a weighted least squares: factorise once, solve, refine, report the rank.

Works on host arrays in float64, whatever made the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import blas, lapack, qr, solve_triangular

from pipeline.backends.cholesky import factorise_upper, solve_upper
from pipeline.backends.triangle import SQUARE

RAISES = 3  # how often the penalty is raised tenfold before the minimum-norm solution is taken
MINIMUM_NORM = RAISES + 1
# Unknowns from which sums of float32 rows are factorised in float32, in half the time: at 3240 it is a tenth of a round
# less. Smaller systems take no time that matters.
SINGLE = SQUARE
# Margin of a factor below which a fit to float32 rows is refined. Of HoG features it is .4 and more with a penalty, and
# fits are exact to 1e-7; without one, and of random features, it is .001 to .02, and they differ by 1e-5.
DELICATE = 0.1
SINGLE_EPS = 1e-8  # between the roundings of float64 and float32
# Improvements of a solution at most; residual, beside the right-hand side, that ends them; correction, beside the
# solution, after which a residual that no longer shrinks is the rounding of float64: of large solutions that is more
STEPS, EXACT, SETTLED = 6, 1e-13, 1e-9


# Powers of two by which columns of a minimum norm may differ in size: squared, half of the digits of float64.
APART = 13


class Upper(Protocol):
    """A Cholesky factor U (a, a) that is no array."""

    def diagonal(self) -> np.ndarray:
        """Return its diagonal (a,)."""

    def divide(self, rhs: np.ndarray) -> np.ndarray:
        """Return the solution x (a,) of U'U x = rhs, in the type of U."""


class Symmetric(Protocol):
    """A Gram matrix (a, a) that is no array: of many columns only a triangle is kept."""

    def diagonal(self) -> np.ndarray:
        """Return its diagonal, float64 (a,)."""

    def among(self, active: np.ndarray) -> Symmetric:
        """Return the matrix of some of the columns."""

    def times(self, x: np.ndarray) -> np.ndarray:
        """Return the product with a vector, float64 (a,)."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...


@dataclass(frozen=True)
class Factor:
    """The factorised normal equations of one class, intercept eliminated.

    Attributes
    ----------
    active : int (a,): columns that vary under these weights
    scale : float64 (a,): 1 / sqrt(diagonal); the factorised matrix has a unit diagonal
    upper : (a, a), its upper triangle the Cholesky factor U of U'U, or an :class:`Upper`; or None
    equations : what was factorised, if the factor is in float32; else None
    basis, triangle : the minimum-norm form M+ = Q (R R')^-1 Q' of the rank-deficient matrix M of the intercept and
        the active columns, or None
    xw, sw : weighted column sums (q,) and the sum of weights
    l2 : the penalty used, after any raise
    rank : numerical rank of the weighted, centred columns; with a penalty the number of active columns
    margin : what a relative rounding error of the sums is divided by on its way to the coefficients, 1 at most: the
        least share of a column's squares that is left about its mean, times the smallest squared pivot; 0 for a
        minimum norm
    ladder : 0 Cholesky; 1 to 3 Cholesky with the penalty raised tenfold that often; 4 minimum norm
    """

    active: np.ndarray
    scale: np.ndarray
    upper: np.ndarray | Upper | None
    equations: Equations | None
    basis: np.ndarray | None
    triangle: np.ndarray | None
    xw: np.ndarray
    sw: float
    l2: float
    rank: int
    ladder: int
    margin: float = 0.0

    def solve(self, xr: np.ndarray, sr: float) -> tuple[np.ndarray, float]:
        """Return coefficients (q,) and intercept for the right-hand side X'r (q,) and sum of r."""
        beta = np.zeros(self.xw.size)
        if self.sw <= 0.0:
            return beta, 0.0
        if self.basis is not None:
            half = solve_triangular(self.triangle, self.basis.T @ np.r_[sr, xr[self.active]], lower=False)
            beta[self.active] = (self.basis @ solve_triangular(self.triangle, half, lower=False, trans=1))[1:]
        elif self.active.size:
            rhs = (xr - self.xw * (sr / self.sw))[self.active] * self.scale
            beta[self.active] = self._divided(rhs) * self.scale
        return beta, float((sr - self.xw @ beta) / self.sw)

    def _divided(self, rhs: np.ndarray) -> np.ndarray:
        """Return the solution x of U'U x = rhs, to the accuracy of float64.

        With a factor in float32 x is improved by residuals in float64, as in LAPACK's dsposv (Langou et al., Exploiting
        the performance of 32 bit floating point arithmetic in obtaining 64 bit accuracy, SC 2006). Where that does
        not settle in a few steps the matrix is factorised in float64.
        """
        factor = self.upper
        assert factor is not None
        if self.equations is None:
            return _divided(factor, rhs)
        x, largest = np.zeros_like(rhs), np.abs(rhs).max(initial=0.0)
        residual, last = rhs, largest
        if largest == 0.0:
            return x
        for _ in range(STEPS):
            # of a common size: float32 has no numbers as small as the residuals of a late round
            step = last * _divided(factor, residual / last)
            x = x + step
            residual = rhs - self.equations.times(x)
            size = np.abs(residual).max()
            settled = size > last / 2 and np.abs(step).max() <= SETTLED * np.abs(x).max()
            if settled or size <= EXACT * largest:
                return x
            last = size
        exact = normal_matrix(*self.equations)
        factorise_upper(exact)
        return solve_upper(exact, rhs)


def _divided(factor: np.ndarray | Upper, rhs: np.ndarray) -> np.ndarray:
    """Return the solution x of U'U x = rhs, in the type of U."""
    return solve_upper(factor, rhs) if isinstance(factor, np.ndarray) else factor.divide(rhs)


class Equations(NamedTuple):
    """The normal matrix S = D (G - xw xw'/sw + l2 I) D with D = diag(scale), in its parts.

    Attributes
    ----------
    gram : float64 (a, a), Fortran order, below its diagonal the lower triangle of G; above it and on it anything finite
        (or a :class:`Symmetric`)
    diagonal : float64 (a,), that of G
    xw, scale : float64 (a,)
    sw : sum of the weights
    l2 : penalty
    """

    gram: np.ndarray | Symmetric
    diagonal: np.ndarray
    xw: np.ndarray
    sw: float
    scale: np.ndarray
    l2: float

    def times(self, x: np.ndarray) -> np.ndarray:
        """Return S x."""
        y = self.scale * x
        gram = self.gram
        found = blas.dsymv(1.0, gram, y, lower=1) if isinstance(gram, np.ndarray) else gram.times(y)
        found += (self.diagonal - self.gram.diagonal() + self.l2) * y
        if self.sw > 0.0:
            found -= self.xw * (self.xw @ y / self.sw)
        return self.scale * found


Cholesky = Callable[[Any], int]
Normal = Callable[[Any, np.ndarray, np.ndarray, float, np.ndarray, float, str], Any]


def normal_matrix(
    gram: np.ndarray | Symmetric,
    diagonal: np.ndarray,
    xw: np.ndarray,
    sw: float,
    scale: np.ndarray,
    l2: float,
    dtype: str = "float64",
) -> np.ndarray:
    """Return the upper triangle of D (G - xw xw'/sw + l2 I) D with D = diag(scale), Fortran order.

    Parameters
    ----------
    gram, diagonal, xw, sw, scale, l2 : as in :class:`Equations`; a function like this may write its result to the
        upper triangle and the diagonal of `gram`, and is called again with the same `gram` then
    dtype : of the result
    """
    S = np.array(np.asarray(gram).T, dtype=np.float64, order="F")
    S[np.diag_indices(S.shape[0])] = diagonal
    if sw > 0.0:
        S = blas.dsyr(-1.0 / sw, xw, a=S, lower=0, overwrite_a=1)
    S[np.diag_indices(S.shape[0])] += l2
    S *= scale
    S *= scale[:, None]
    return S.astype(dtype, order="F", copy=False)


def varies(variance: np.ndarray, squares: np.ndarray, eps: float) -> np.ndarray:
    """Tell which columns vary by more than the rounding of their weighted sums of squares."""
    return variance > 64.0 * eps * squares


def factorise(
    gram: np.ndarray | Symmetric,
    xw: np.ndarray,
    sw: float,
    l2: float,
    eps: float,
    normal: Normal = normal_matrix,
    cholesky: Cholesky = factorise_upper,
) -> Factor:
    """Factorise the normal equations of one weighted least squares with an intercept.

    Parameters
    ----------
    gram : float32 or float64 (q, q), lower triangle of X' W X; its upper one may be overwritten with the factor. Or a
        :class:`Symmetric`, with functions `normal` and `cholesky` for it; of float32 rows it has a factor in float32
    xw : float64 (q,), X' w
    sw : sum of the weights
    l2 : penalty on the coefficients
    eps : relative rounding error of the products in `gram`
    normal : as :func:`normal_matrix`
    cholesky : as :func:`pipeline.backends.cholesky.factorise_upper`

    Notes
    -----
    The intercept is eliminated: G = X'WX - xw xw'/sw. Columns are scaled to a unit diagonal, so that the
    units of a feature do not matter (statsmodels#9258). Columns whose variance under the weights is rounding
    noise take no part and get coefficient 0. If the Cholesky factorisation fails, or its smallest pivot is
    rounding noise, l2 is raised tenfold up to three times; then, and at once for l2 = 0, the solution of least norm is
    taken: of all (intercept, coefficients) that fit equally well the ones with the least sum of squares, as
    statsmodels' pseudo-inverse takes them.
    """
    raw = gram.diagonal().astype(np.float64)
    variance = raw - xw * (xw / sw) if sw > 0.0 else raw
    active = np.flatnonzero(varies(variance, raw, eps))
    mine = xw
    if active.size < raw.size:
        gram, variance, mine = _among(gram, active), variance[active], xw[active]
    tolerance = max(active.size, 8) * eps
    diagonal = gram.diagonal().astype(np.float64)
    for attempt in range(RAISES + 1 if l2 > 0.0 else 1):
        raised = l2 * 10.0**attempt
        scale = 1.0 / np.sqrt(variance + raised)
        single = eps > SINGLE_EPS and (active.size > SINGLE or not isinstance(gram, np.ndarray))
        equations = Equations(gram, diagonal, mine, sw, scale, raised)
        upper = _cholesky(normal(*equations, "float32" if single else "float64"), tolerance, cholesky)
        if upper is not None:
            left = ((variance + raised) / (diagonal + raised)).min(initial=1.0)
            margin = float(left * upper.diagonal().min(initial=1.0) ** 2)
            kept = equations if single else None
            return Factor(
                active, scale, upper, kept, None, None, xw, sw, raised, active.size, attempt, margin
            )
    if not np.isfinite(variance).all():
        raise np.linalg.LinAlgError("the weighted Gram matrix is not finite")
    basis, triangle, rank = _minimum_norm(gram, diagonal, mine, sw, tolerance)
    return Factor(active, scale, None, None, basis, triangle, xw, sw, 0.0, rank, MINIMUM_NORM)


def _among(gram: np.ndarray | Symmetric, active: np.ndarray) -> np.ndarray | Symmetric:
    if isinstance(gram, np.ndarray):
        return np.asfortranarray(gram[np.ix_(active, active)])
    return gram.among(active)


def _cholesky(S: Any, tolerance: float, cholesky: Cholesky) -> Any:
    """Return S (a, a), float64 or 32, factorised; None if a pivot is no more than rounding noise."""
    if S.shape[0] == 0:
        return S
    info = cholesky(S)
    pivots = S.diagonal()
    if info != 0 or not np.isfinite(pivots).all() or pivots.min() ** 2 <= tolerance:
        return None
    return S


def _minimum_norm(
    G: np.ndarray | Symmetric, diagonal: np.ndarray, xw: np.ndarray, sw: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return Q (a + 1, r + 1), upper R and the rank r of the columns, with M+ ~ Q (R R')^-1 Q' as in :class:`Factor`.

    The rank is found with columns scaled to a unit diagonal, by pivoted Cholesky; the norm is that of the columns
    as they are, so its factor is scaled back before it is orthogonalised. BLAS-3 throughout: at 3240 columns an
    order of magnitude faster than an eigendecomposition.

    Where columns (and the intercept's ones) differ in size by more than APART powers of two, the norm is that of
    columns that do not: the QR factorisation would lose the small ones, and the fit with them. Of fits that are
    equally good another is taken then, of which a coefficient of a large column counts as if the column were smaller.
    """
    size = xw.size + 1
    M = np.zeros((size, size), order="F")
    M[1:, 0], M[1:, 1:] = xw, G
    squares = np.r_[sw, diagonal]
    root = np.sqrt(squares)
    scaled = normal_matrix(M, squares, root, 0.0, 1.0 / root, 0.0)
    factor, pivots, rank, info = lapack.dpstrf(scaled, lower=0, tol=tolerance)
    if info < 0 or not np.isfinite(factor.diagonal()).all():
        raise np.linalg.LinAlgError("the weighted Gram matrix is not finite")
    unordered = np.zeros((size, rank))
    unordered[pivots - 1] = np.triu(factor)[:rank].T
    power = np.frexp(root)[1]
    shrunk = np.ldexp(1.0, -np.maximum(power - power.min() - APART, 0))[:, None]
    basis, triangle = qr(unordered * (root[:, None] * shrunk), mode="economic", check_finite=False)
    return basis * shrunk, triangle, int(rank) - 1


def refine(factor: Factor, xr: np.ndarray, sr: float, beta: np.ndarray, b: float) -> tuple[np.ndarray, float]:
    """Return (beta, b) improved by one step for the residual sums X'(r - w f) (q,) and sum of (r - w f)."""
    delta, shift = factor.solve(xr - factor.l2 * beta, sr)
    return beta + delta, b + shift
