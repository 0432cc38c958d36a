"""Fits from rough Gram matrices: solutions are improved by residuals of the rows to the accuracy of exact sums.

With a Gram matrix G + E for G, a step of refinement leaves of an error e at most the share |G^-1 E| of it (iterative
refinement; Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 12). Of matrices from numbers in
bfloat16 that share was measured: .001 to .004 for 128 HoG features of 2,160 to 10,000 images, .01 to .05 for 512 random
features or a small penalty. A step reads the rows once, which is little beside the products that a Gram matrix takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline.backends import triangle
from pipeline.backends.cpu import bfloat_grams, bfloat_tiles, panels, wls_systems
from pipeline.backends.cpu import wls_blocks as blocks
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.panels import Panels, as_rows
from pipeline.backends.cpu.wls_grams import mostly_zero, weighted_sums
from pipeline.backends.protocol import Sums, WlsFit
from pipeline.backends.solve import DELICATE, factorise
from pipeline.spans import part

MOST = triangle.SQUARE  # columns up to which systems are squares
# Products of n rows, q columns and J classes, n q J (q - COLUMNS), from which half their time is more than what two
# steps take. Measured: 10,000 rows and 128 columns of ten classes .85 of the time of exact sums, of five 1.04; 60,000
# rows and 64, 96 and 112 columns 1.3, 1.1 and .87; 2,500 rows and 256 columns of ten, three and two classes .70, .99
# and 1.10. Of a single class exact sums are plain products: 1.45, 1.04 at 512 columns.
WORTH, COLUMNS, CLASSES = 9 << 25, 96, 2
# What stands for the rounding error of rough sums where rank is judged. Columns and pivots that come near what rounding
# in float32 (1.2e-7) would decide are left to exact sums: a step of refinement shows whether the others' were right.
EPS = 2.0**-20


class Limits(NamedTuple):
    """When refinement ends.

    Attributes
    ----------
    error : of a fit, beside its largest coefficient, that ends it
    slowest : share of an error that a step may leave; a fit that improves less is left to exact sums
    steps : fits that need more, or will at the rate of the last, are left to exact sums
    """

    error: float
    slowest: float
    steps: int


# In float32. Fits by Gram matrices of float32 products had errors of 4e-7 to 3e-6 on HoG features, these after one step
# 4e-7 to 1.3e-6, and more steps left that as it was.
SINGLE = Limits(2.0**-20, 0.2, 6)
# In float64, for delicate fits. On 42 sets of such fits (HoG features with small penalties, random features) exact sums
# and their one step had errors of 4e-12 to 8e-7, and these have 5e-13 to 4e-9, on 33 of them less than by exact sums;
# with bounds of 2^-20, 2^-25 and 2^-30 up to 1e-6, 3e-8 and 8e-10, for .66, .88 and 1.09 times the steps. Steps that
# leave .3, and ten of them, pay. No more than six were taken on such features; where each column was there twice, all
# classes would have needed a dozen.
DOUBLE = Limits(2.0**-28, 0.3, 10)


def begins(n: int, q: int, n_classes: int, l2: float, precision: str) -> bool:
    """Tell whether fits of some classes to q columns of n rows, gathered or drawn, begin with rough Gram matrices.

    They are of numbers in bfloat16, which the processor must have, and pay where products are most of the work.
    Without a penalty rank is decided by the last digits of sums: they are exact then.
    """
    worth = q <= MOST and n_classes >= CLASSES and n * q * n_classes * (q - COLUMNS) >= WORTH
    return worth and l2 > 0.0 and precision == "float32" and bfloat_tiles.available()


def sums(X: Panels, W: np.ndarray, R: np.ndarray, classes: slice, totals: bool) -> Sums:
    """Return sums as :func:`pipeline.backends.cpu.wls.sums` about zero, the Gram matrices of numbers in bfloat16.

    Numbers are rounded about the means of their columns, which are far from zero where the columns are random features:
    of those a step of refinement left .3 of an error, about their means .01.
    """
    with part("sums"):
        q, weights = X.shape[1], W[:, classes]
        xr = xw = sr = sw = None
        if totals:
            J = W.shape[1]
            both, totals_ = panels.products(X, np.hstack([R, W]), J)
            xr, xw, sr, sw = both[:, :J], both[:, J:], totals_[:J], totals_[J:]
        if X.centred:
            center, mine = np.zeros(q), (np.zeros((q, 0)), np.zeros(0))
        elif xw is not None and sw is not None:
            center, mine = X.means, (xw[:, classes], sw[classes])
        else:
            center, mine = X.means, panels.products(X, weights)
        if mostly_zero(weights):  # rows that do not count are left out: .4 of the time at 512 columns
            gram = weighted_sums(as_rows(X), np.zeros(q, X.dtype), weights, panels=False, apart=True).gram
        else:
            gram = bfloat_grams.grams(X, weights, center, *mine)
        return Sums(xr, xw, sr, sw, gram)


class Rough:
    """Fits of some classes, not yet exact.

    Parameters
    ----------
    sums : of the classes, with their Gram matrices (classes, q, q), upper triangles of rough products
    l2 : penalty of the coefficients, more than 0

    Attributes
    ----------
    coef, intercept : (q, classes), (classes,); float64, or float32: then residuals in float32 will do, whose errors
        average out over rows where a fit is not delicate
    open : bool (classes,): fits that the next step of refinement improves. In float64 all take steps until the last is
        exact: it is one product for all of them
    lost : bool (classes,): fits for which the Gram matrix is too rough
    """

    def __init__(self, sums: Sums, l2: float) -> None:
        gram, xr, xw, sr, sw = sums.gram, *sums[:4]
        self._xw, self._sw, self._l2 = np.ascontiguousarray(xw.T), sw, l2
        self._factors: list[Any] = []  # of solve.Factor; None where there is none
        self._found: Any = None
        if len(xr) <= wls_systems.MOST:
            given = gram, xr, xw, sr, sw, l2, EPS
            found = self._found = wls_systems.solve_regular(*given, keep=True, dtype="float32")
            self.coef, self.intercept, self._scale = found.coef, found.intercept, found.scale
            self.lost, margin = ~found.regular, found.margin
        else:
            margin = self._factorise(gram, xr, xw, sr, sw)
        self.coef[:, self.lost], self.intercept[self.lost] = 0.0, 0.0
        self.open = ~self.lost
        self._last = self._size()  # of the last correction: at first, of all there is
        self._taken = 0
        # Of all classes together, as exact sums are refined: where one class is delicate most are, and steps in float64
        # for some, in float32 for others would read the rows twice as often.
        self._single = bool((margin >= DELICATE)[self.open].all())
        self._limits = SINGLE if self._single else DOUBLE
        if self._single:
            self.coef, self.intercept = self.coef.astype(np.float32), self.intercept.astype(np.float32)

    def _factorise(self, gram, xr, xw, sr, sw) -> np.ndarray:
        q, count = xr.shape
        self.coef, self.intercept = np.zeros((q, count)), np.zeros(count)
        factors: list[Any] = [None] * count

        def of_class(i: int) -> None:
            given = xw[:, i], sw[i], self._l2, EPS, kernels.normal_matrix, blocks.factorise_upper
            try:
                factors[i] = factorise(gram[i].T, *given)
            except np.linalg.LinAlgError:  # numbers that are not finite: exact sums are, or say so
                return
            with blocks.one_blas_thread:
                self.coef[:, i], self.intercept[i] = factors[i].solve(xr[:, i], sr[i])

        with blocks.one_blas_thread:
            kernels.share(of_class, count, parallel=True)
        self._factors = factors
        self.lost = np.array([one is None or one.ladder > 0 or one.rank < q for one in factors])
        margin = np.array([0.0 if one is None else one.margin for one in factors])
        self._scale = np.ones((count, q))
        for i in np.flatnonzero(~self.lost):
            self._scale[i] = factors[i].scale
        return margin

    def _size(self) -> np.ndarray:
        """Return the largest coefficient of each class, of columns scaled to a unit diagonal."""
        return np.abs(self.coef.T / self._scale).max(axis=1)

    def improve(self, xr: np.ndarray, sr: np.ndarray) -> None:
        """Take a step of refinement for the sums X' e (q, classes) and sums of e = r - w f at the fits as they are."""
        right = xr - self._l2 * self.coef.astype(np.float64, copy=False)
        if self._found is not None:
            delta, shift = wls_systems.divide(self._found, self._xw, self._sw, right, sr, self.open)
        else:
            delta, shift = np.zeros_like(right), np.zeros_like(sr)

            def of_class(i: int) -> None:
                delta[:, i], shift[i] = self._factors[i].solve(right[:, i], sr[i])

            some = np.flatnonzero(self.open)
            with blocks.one_blas_thread:
                kernels.share(lambda k: of_class(some[k]), some.size, parallel=True)
        exact = self.coef + delta, self.intercept + shift
        change, whole = np.abs(delta.T / self._scale).max(axis=1), self._size()
        self._taken += 1
        slow = ~(change <= self._limits.slowest * self._last)  # NaN, too
        # Of the error, if steps go on so: later ones leave more, and it was up to three times this. The first says
        # nothing of the share: the solution may hold little of what the matrix has wrong. Where columns of two values
        # were nearly equal, fits that ended there had errors of 3e-5, and delicate ones of 2e-3.
        share = change / np.where(self._last > 0.0, self._last, 1.0)
        if self._taken == 1:
            share = np.full_like(share, self._limits.slowest / (1.0 - self._limits.slowest))
        left, allowed = change * share, self._limits.error * whole
        done = left <= allowed
        ahead = self._limits.steps - self._taken
        # Later shares are smaller at times: two steps more are granted in what is foretold than there are
        hopeless = (self._taken > 1) & ~(left * share ** (ahead + 2 if ahead else 0) <= allowed)
        self.lost |= self.open & ((slow & ~(change <= allowed)) | (hopeless & ~done))
        self.open &= ~self.lost
        if self._single:
            self.open &= ~done
        elif done[self.open].all():
            self.open[:] = False
        self._last = change
        self.coef, self.intercept = exact
        if self._single and self.open.any():
            self.coef, self.intercept = (one.astype(np.float32) for one in exact)

    def fit(self) -> WlsFit:
        """Return the fits."""
        q, count = self.coef.shape
        rank = np.full(count, q, dtype=np.intp)
        coef, intercept = (one.astype(np.float64, copy=False) for one in (self.coef, self.intercept))
        return WlsFit(coef, intercept, rank, np.zeros(count, dtype=np.intp))
