"""Weighted least squares: sums over rows by register tiles, systems in float64 or improved to it.

No function makes an array of the size of X: columns of a round are gathered or drawn into panels that tiles multiply,
and where all columns are multiplied, blocks of rows go through small buffers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pipeline.backends import fits, philox, triangle
from pipeline.backends.cpu import fourier, panels, wls_systems
from pipeline.backends.cpu import wls_blocks as blocks
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu import wls_large as large
from pipeline.backends.cpu import wls_rough as rough
from pipeline.backends.cpu.panels import Panels, as_rows
from pipeline.backends.cpu.tiles import gram_shape
from pipeline.backends.cpu.wls_grams import TOGETHER, mostly_zero, one_by_one, weighted_sums
from pipeline.backends.cpu.wls_moments import weighted_moments
from pipeline.backends.protocol import ComponentwiseSums, Sums, WlsFit
from pipeline.backends.solve import DELICATE, Factor, factorise
from pipeline.backends.solve import refine as refined
from pipeline.spans import part

Matrix = np.ndarray | Panels
SMALL_SYSTEM = triangle.SQUARE  # unknowns up to which classes are solved side by side, each on one thread
FEW = 64  # columns of a product that are few
classes_together = len(gram_shape(12, np.dtype(np.float32))[0])
GRAMS = 1 << 25  # bytes of the Gram matrices of small systems that are held at a time


def column_moments(X: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted mean and population variance (float64, (p,)) of each column of X (n, p).

    Two passes over X, in float64. A column that holds one value gets exactly that value as its mean and exactly 0 as
    its variance, so that it vanishes when it is centred.
    """
    s = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    total = s.sum()
    first = X[0].astype(np.float64)
    mean = first + kernels.weighted_sums(X, s, first, squared=False) / total
    variance = kernels.weighted_sums(X, s, mean, squared=True) / total
    _settle_constants(X, s, mean, variance)
    return mean, variance


def _settle_constants(X: np.ndarray, s: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    row = int(np.argmax(s > 0))
    suspects = np.flatnonzero(variance <= (1e-7 * np.abs(mean)) ** 2)
    for k in suspects:
        column = X[s > 0, k]
        if (column == column[0]).all():
            mean[k], variance[k] = float(X[row, k]), 0.0
        else:  # squares that vanish are not those of a constant: the caller refuses them
            variance[k] = max(variance[k], np.finfo(np.float64).tiny)


def gather(X: np.ndarray, columns: np.ndarray, center: np.ndarray) -> Panels:
    """Return X[:, columns] - center[columns], (n, q) in the dtype of X, in the form the other functions like best."""
    return panels.gather_meanwhile(X, columns, center)()


def fit(
    X: Matrix, center: np.ndarray, W: np.ndarray, R: np.ndarray, l2: float, gram_precision: str = "full"
) -> WlsFit:
    """Fit one weighted least squares with intercept per class; the columns are shared.

    Minimises, for each class j, ``sum_i w_ij (r_ij / w_ij - b_j - (x_i - center)'beta_j)^2 + l2 |beta_j|^2``.

    Parameters
    ----------
    X : (n, q) float32 or float64, C order; or what :func:`gather` gives
    center : (q,) subtracted from every row
    W, R : (n, J) in the dtype of X; weights w >= 0 and weighted responses r = w z
    l2 : penalty of the coefficients, not of the intercept
    gram_precision : "full" or "tf32", which is a gain on a GPU's tensor cores only: here it changes nothing

    Returns
    -------
    WlsFit

    Notes
    -----
    The intercept is eliminated through the weighted means. The products in a Gram matrix have the precision of X, or,
    where ``wls_rough.begins`` says so, less, and the fits are improved until that makes no difference; its
    factorisation is in float64, of float32 rows of more than 768 columns in float32, its solutions improved to
    float64's accuracy. One step of refinement with residuals taken from X in float64 (the corrected
    seminormal equations; Bjorck, Linear Algebra Appl. 88/89, 1987) brings the accuracy of a QR factorisation. It is
    always taken in float64, and in float32 where a class's margin (see Factor) is small: without it six rounds of
    ``full`` or ``random_features`` differed by 3e-6 to 9e-6 between two orders of the rows, with it by 2e-7.

    Systems of up to 256 columns are solved together (``wls_systems``), of up to 768 side by side, a class each: one
    does not keep two threads busy. Of larger ones there is one at a time.
    """
    return fits.fit(np, sys.modules[__name__], _Given(X, center, W, R, l2, gram_precision), l2)


class _Given:
    """Rows that lie in memory, as :func:`pipeline.backends.fits.fit` asks for their sums."""

    at_once: int | None = None

    def __init__(self, X, center, W, R, l2, gram_precision) -> None:
        self.rows = (X, center, W, R)
        self.whole = not isinstance(X, Panels)
        self.gram_precision = gram_precision
        self.n_columns, self.n_classes = X.shape[1], W.shape[1]
        self.precision = X.dtype.name
        ready = isinstance(X, Panels) and not center.any()
        self.rough = ready and rough.begins(len(X), X.shape[1], W.shape[1], l2, self.precision)

    def sums(self, classes: slice, totals: bool, roughly: bool = False) -> Sums:
        X, center, W, R = self.rows
        if roughly and isinstance(X, Panels):
            return rough.sums(X, W, R, classes, totals)
        return sums(X, center, W, R, classes, totals, self.gram_precision)

    def residual_sums(self, classes: slice, coef: np.ndarray, intercept: np.ndarray):
        return residual_sums(*self.rows, classes, coef, intercept)

    def stage(self) -> AbstractContextManager[None]:
        return nullcontext()


def sums(
    X: Matrix,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    classes: slice,
    totals: bool,
    gram_precision: str = "full",
) -> Sums:
    """Return the Gram matrices of a range of classes, and with `totals` the other sums, of all classes.

    Parameters are those of :func:`fit`. Of the Gram matrices, float64 (classes, q, q), the upper triangles count; of
    more than SMALL_SYSTEM columns they are panels (classes, numbers) as in :mod:`pipeline.backends.triangle`.
    """
    with part("sums"):
        q, J = X.shape[1], W.shape[1]
        center = center.astype(X.dtype, copy=False)
        first, last, _ = classes.indices(J)
        sparse = mostly_zero(W)
        if sparse or center.any():
            X = as_rows(X)
        alone = J > 1 and one_by_one(X)
        apart = q == 0 or (first, last) != (0, J) or sparse or alone
        if totals and not apart:
            gram, products, whole = weighted_sums(X, center, W, R, panels=q > SMALL_SYSTEM)
            return Sums(products[0].T, products[1].T, whole[0], whole[1], gram)
        xr = xw = sr = sw = None
        if totals:
            sw, sr = W.sum(axis=0, dtype=np.float64), R.sum(axis=0, dtype=np.float64)
            both = _products(X, center, R, W)
            xr, xw = both[:, :J], both[:, J:]
        return Sums(xr, xw, sr, sw, _grams(X, center, W[:, classes], alone))


def _products(X: Matrix, center: np.ndarray, R: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return (X - center)' [R W], float64 (q, columns of both), worked out in float64."""
    if X.shape[1] == 0:
        return np.zeros((0, R.shape[1] + W.shape[1]))
    if isinstance(X, Panels):
        return panels.products(X, np.hstack([R, W]).astype(np.float64))[0]
    return blocks.products(X, center, np.hstack([R, W]))


def _grams(X: Matrix, center: np.ndarray, W: np.ndarray, alone: bool) -> np.ndarray:
    q, count = X.shape[1], W.shape[1]
    if q == 0 or count == 0:
        return np.zeros((count, q, q))
    apart = alone or mostly_zero(W)  # trimmed: each class for itself leaves rows out
    return weighted_sums(X, center, W, panels=q > SMALL_SYSTEM, apart=apart).gram


def residual_sums(
    X: Matrix,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    classes: slice,
    coef: np.ndarray,
    intercept: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (X - center)' e (q, classes) and the sums of e = r - w f (classes,) for fits f of those classes."""
    with part("refine"):
        if isinstance(X, Panels) and not center.any():
            return panels.residual_sums(X, W[:, classes], R[:, classes], coef, intercept)
        X = as_rows(X)
        return blocks.residual_products(X, center, W[:, classes], R[:, classes], coef, intercept)


def solve(sums: Sums, l2: float, precision: str) -> tuple[WlsFit, list[Factor] | None]:
    """Return the fits of the classes whose sums are given, and their factors if the fits are to be refined.

    Parameters
    ----------
    sums : of the same classes throughout; the Gram matrices are overwritten
    l2 : penalty of the coefficients
    precision : type of the rows, which says how exact the sums are
    """
    xr, xw, sr, sw = sums[:4]
    q, count = xr.shape
    coef, intercept, margin = np.zeros((q, count)), np.zeros(count), np.zeros(count)
    rank, ladder = np.full(count, q, dtype=np.intp), np.zeros(count, dtype=np.intp)
    factors: list[Any] = [None] * count
    gram, eps = np.asarray(sums.gram), float(np.finfo(precision).eps)
    others: Any = range(count)
    together = q <= wls_systems.MOST and gram.ndim == 3
    if together:
        gram = np.ascontiguousarray(gram, dtype=np.float64)
        given = gram, xr, xw, sr, sw, l2, eps
        found = wls_systems.solve_regular(*given, keep=precision == "float64")
        coef, intercept, margin = found.coef, found.intercept, found.margin
        others = np.flatnonzero(~found.regular)

    def of_class(i: int) -> None:
        mine = np.ascontiguousarray(gram[i], dtype=np.float64)
        rest = xw[:, i], sw[i], l2, eps
        if mine.ndim == 1:
            triangular = large.Gram.of(mine, q, precision == "float32")
            factors[i] = factor = factorise(triangular, *rest, large.Gram.normal, large.factorise)
        else:  # upper in C order is lower in Fortran order
            factors[i] = factor = factorise(mine.T, *rest, kernels.normal_matrix, blocks.factorise_upper)
        with blocks.one_blas_thread:
            coef[:, i], intercept[i] = factor.solve(xr[:, i], sr[i])
        rank[i], ladder[i], margin[i] = factor.rank, factor.ladder, factor.margin

    if q > SMALL_SYSTEM:
        for i in others:
            of_class(i)
    elif len(others):
        parallel = len(others) * q**3 > wls_systems.WORTH
        with blocks.one_blas_thread:
            kernels.share(lambda k: of_class(others[k]), len(others), parallel)
    fit = WlsFit(coef, intercept, rank, ladder)
    if precision != "float64" and margin.min() >= DELICATE:
        return fit, None
    if together and not len(found.factors):  # of float32 rows they are seldom wanted
        found = wls_systems.solve_regular(*given, keep=True)
    for i in range(count):
        if factors[i] is None:
            factors[i] = found.factor(i, xw[:, i], sw[i], l2)
    return fit, factors


def refine(factors: list[Factor], xr: np.ndarray, sr: np.ndarray, found: WlsFit) -> WlsFit:
    """Return the fits improved by one step for the sums that :func:`residual_sums` gave."""
    coef, intercept = found.coef, found.intercept
    for i, factor in enumerate(factors):
        coef[:, i], intercept[i] = refined(factor, xr[:, i], sr[i], coef[:, i], intercept[i])
    return found


def classes_at_once(n_classes: int, q: int, whole: bool = False) -> int:
    """Return how many Gram matrices of q columns to ask for at a time; `whole`: of rows as they lie.

    Beside rows of 257 to 768 columns, ten Gram matrices would take as much memory as 10,000 rows. So there are as many
    as threads solve side by side, two at least: sums of rows as they lie are the same whatever the number. Others'
    are not, and of those the number does not depend on threads.
    """
    if q > SMALL_SYSTEM:
        return 1
    most = GRAMS // (8 * max(q, 1) ** 2)  # 7 at least
    if whole and q > TOGETHER:
        most = min(most, max(2, kernels.threads()))
    return min(n_classes, most)


def over_classes(
    n_classes: int, q: int, at_once: int | None, work: Callable[[slice], None], whole: bool = False
) -> None:
    """Call work(classes) for ranges that cover the classes, of `at_once` or what :func:`classes_at_once` says."""
    step = at_once or classes_at_once(n_classes, q, whole)
    with blocks.one_blas_thread if q <= SMALL_SYSTEM else nullcontext():
        for first in range(0, n_classes, step):
            work(slice(first, min(first + step, n_classes)))


def componentwise_sums(X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray) -> ComponentwiseSums:
    """Return the sums from which the best single feature of each class follows.

    Parameters
    ----------
    X : (n, p), float32 or float64, C order
    center : (p,)
    W, R : (n, J) weights and weighted responses, dtype of X

    Notes
    -----
    6 n p J operations by register tiles; X is read once for each group of classes: of few classes once.
    """
    sums = weighted_moments(X, center.astype(X.dtype, copy=False), W, R)
    return ComponentwiseSums(sums[0].T, sums[1].T, sums[2].T)


def apply(X: Matrix, center: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Return (X - center) @ coef + intercept, shape (n, J), in the dtype of X.

    Few columns are worked out in float64 and rounded once: where coefficients are large and cancel, as without a
    penalty, the rounding of float32 products would show in the scores.
    """
    if coef.shape[1] > FEW:
        return _product(as_rows(X), center, coef, intercept)
    if isinstance(X, Panels) and not center.any():
        wide = coef.astype(np.float64, copy=False), intercept.astype(np.float64, copy=False)
        return panels.apply(X, *wide).astype(X.dtype, copy=False)
    out = np.empty((X.shape[0], coef.shape[1]), dtype=X.dtype)
    X, center = as_rows(X), center.astype(X.dtype, copy=False)
    kernels.apply_rows(X, center, np.ascontiguousarray(coef.T), intercept, out)
    return out


def _product(X: np.ndarray, center: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Return (X - center) @ coef + intercept of many columns by BLAS."""
    center = center.astype(X.dtype, copy=False)
    coef, intercept = np.ascontiguousarray(coef, dtype=X.dtype), intercept.astype(X.dtype, copy=False)
    out = np.empty((X.shape[0], coef.shape[1]), dtype=X.dtype)

    def segment(begin: int, end: int) -> None:
        for a, b, rows in blocks.centred_blocks(X, center, begin, end, blocks.BUFFER // 4, X.dtype):
            np.matmul(rows, coef, out=out[a:b])
            out[a:b] += intercept

    blocks.share_segments(segment, X.shape[0], X.size)
    return out


def frequencies(p: int, n_components: int, gamma: float, seed: int, index: int, dtype: np.dtype):
    """Return R (p, n_components) ~ N(0, 2 gamma) of draw `index`."""
    panels = fourier.normal_panels(p, n_components, float(np.sqrt(2.0 * gamma)), seed, index, dtype)
    return panels.transpose(1, 0, 2).reshape(p, -1)[:, :n_components]


def _phases(n_components: int, seed: int, index: int, dtype: np.dtype) -> np.ndarray:
    return (2.0 * np.pi * philox.uniform(n_components, seed, index)).astype(dtype)


def random_features(
    X: np.ndarray, center: np.ndarray, gamma: float, n_components: int, seed: int, index: int
) -> Panels:
    """Return cos((X - center) @ R + b), shape (n, n_components), in the dtype of X and the form of :func:`gather`.

    R ~ N(0, 2 gamma) and b ~ U(0, 2 pi) are drawn from (seed, index) and forgotten: random Fourier features
    of the Gaussian kernel exp(-gamma |x - y|^2) (Rahimi and Recht, NIPS 2007).
    """
    R = fourier.normal_panels(X.shape[1], n_components, float(np.sqrt(2.0 * gamma)), seed, index, X.dtype)
    return fourier.features(X, center, R, _phases(n_components, seed, index, X.dtype))
