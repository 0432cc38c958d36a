"""Normal equations of few unknowns, of all classes together: LAPACK and Python would take most of the time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import light_part, light_summing_kernel, light_summing_part, prepare
from pipeline.backends.cpu.value_tiles import subtract_rows
from pipeline.backends.cpu.vectors import BYTES, lanes
from pipeline.backends.solve import Factor, varies

MOST = 256  # unknowns up to which this is faster than LAPACK: a system lies in the second-level cache
# q^3 of all classes from which systems are solved on several threads; of fewer a thread that is gathering columns
# meanwhile is worth more
WORTH = 1 << 26
SIDE = 8  # rows that are subtracted from those below at a time, and a multiple of a vector's numbers
ONE, TWO, ALL = (None,), (None,) * 2, (None,) * SIDE


class Solved(NamedTuple):
    """Solutions of the classes that need nothing but a Cholesky factorisation.

    Attributes
    ----------
    regular : bool (classes,): which these are; the others' solutions mean nothing
    coef, intercept : float64 (q, classes), (classes,)
    margin : float64 (classes,), as in :class:`pipeline.backends.solve.Factor`
    scale : float64 (classes, q), likewise
    factors : (classes, q, more than q), the upper triangles and other columns; or empty
    """

    regular: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    margin: np.ndarray
    scale: np.ndarray
    factors: np.ndarray

    def factor(self, i: int, xw: np.ndarray, sw: float, l2: float) -> Factor:
        """Return the factor of class i, to refine its fit with; xw (q,) and sw are that class's sums."""
        q = xw.size
        upper = np.asfortranarray(self.factors[i, :, :q])
        every, margin = np.arange(q), float(self.margin[i])
        return Factor(every, self.scale[i], upper, None, None, None, xw, sw, l2, q, 0, margin)


def solve_regular(
    gram: np.ndarray,
    xr: np.ndarray,
    xw: np.ndarray,
    sr: np.ndarray,
    sw: np.ndarray,
    l2: float,
    eps: float,
    keep: bool,
    dtype: str = "float64",
) -> Solved:
    """Solve the normal equations of each class, as :func:`pipeline.backends.solve.factorise` and its factor do.

    Parameters
    ----------
    gram : float64 (classes, q, q), C order, upper triangles of X' W X
    xr, xw : float64 (q, classes)
    sr, sw : float64 (classes,)
    l2 : penalty on the coefficients
    eps : relative rounding error of the products in `gram`
    keep : whether the factors are wanted
    dtype : of the factors
    """
    count, q = gram.shape[:2]
    raw = np.ascontiguousarray(gram.diagonal(axis1=1, axis2=2))
    safe = np.where(sw > 0.0, sw, 1.0)
    mine = np.ascontiguousarray(xw.T)
    right = xr.T - mine * (sr / safe)[:, None]
    variance = raw - mine * (mine / safe[:, None])
    regular = (sw > 0.0) & (varies(variance, raw, eps) & np.isfinite(variance)).all(axis=1)
    used = np.where(regular[:, None], variance + l2, 1.0)
    scale = 1.0 / np.sqrt(used)
    unit = max(SIDE, lanes(np.dtype(dtype)))
    width = -(-(q + 1) // unit) * unit  # the right-hand side is one more column
    factors = np.zeros((count if keep else 0, q, width), dtype)
    least = np.zeros(count)
    given = gram, mine, safe, scale, l2, right, regular
    parallel = count * q**3 > WORTH
    tasks = count if parallel else min(count, 1)

    def task(i: int) -> None:
        room = np.zeros((0 if keep else q, width), dtype)
        _solve(*given, factors, room, least, count * i // tasks, count * (i + 1) // tasks)

    prepare(_solve, *given, factors, np.zeros((0, width), dtype), least, 0, 0)
    kernels.share(task, tasks, parallel)
    regular &= least**2 > max(q, 8) * eps
    beta = right * scale
    intercept = (sr - (mine * beta).sum(axis=1)) / safe
    left = (used / np.where(regular[:, None], raw + l2, 1.0)).min(axis=1, initial=1.0)
    return Solved(
        regular, np.ascontiguousarray(beta.T), intercept, left * np.minimum(least, 1.0) ** 2, scale, factors
    )


def divide(
    solved: Solved, xw: np.ndarray, sw: np.ndarray, right: np.ndarray, sr: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the solutions (q, classes), (classes,) for other right-hand sides, by the factors that were kept.

    Parameters
    ----------
    solved : with its factors
    xw, sw : float64 (classes, q), (classes,) sums of the weights
    right : float64 (q, classes) sums of x r, or what stands for them
    sr : float64 (classes,) sums of r
    wanted : bool (classes,); the others' solutions are zero
    """
    safe = np.where(sw > 0.0, sw, 1.0)
    x = np.ascontiguousarray((right - xw.T * (sr / safe)).T)
    prepare(_divide, solved.factors, solved.scale, wanted, x)
    _divide(solved.factors, solved.scale, wanted, x)
    beta = np.where(wanted[:, None], x * solved.scale, 0.0)
    return beta.T, np.where(wanted, (sr - (xw * beta).sum(axis=1)) / safe, 0.0)


@light_part
def unit_of(S):
    """Return the numbers that rows begin at a multiple of."""
    V = BYTES // S.itemsize
    return V if V > SIDE else SIDE


@light_part
def factorise_rows(S, k, last):
    """Factorise rows k:last of S, from which the rows above are subtracted; return the smallest pivot, or 0."""
    width, smallest = S.shape[1], np.inf
    first = k // unit_of(S) * unit_of(S)
    for i in range(k, last):
        row = S[i]
        if not row[i] > 0.0:
            return 0.0
        pivot = np.sqrt(row[i])
        smallest = pivot if pivot < smallest else smallest
        for j in range(i, width):
            row[j] /= pivot
        for other in range(i + 1, last):
            subtract_rows(S, other, i, first, width, ONE, ONE)
    return smallest


@light_summing_part
def back_substitute(S, x):
    """Write the solution x of U x = y: U is the upper triangle of S, y the column beside it."""
    q = x.size
    for k in range(q - 1, -1, -1):
        value = S[k, q]
        for j in range(k + 1, q):
            value -= S[k, j] * x[j]
        x[k] = value / S[k, k]


@light_summing_kernel
def _solve(gram, xw, sw, scale, l2, right, regular, factors, room, least, begin, end):
    """Overwrite `right` (classes, q) with solutions, and `least` with the smallest diagonal number of the factor, or 0.

    With the right-hand side as a column more, its forward substitution is part of the factorisation. Rows are worked on
    from a multiple of SIDE on, or of a vector's numbers, and to one, so that no loop has a remainder.
    """
    q, width, unit = right.shape[1], factors.shape[2], unit_of(room)
    for c in range(begin, end):
        if not regular[c]:
            continue
        S = factors[c] if len(factors) > 0 else room
        G, s, w, x = gram[c], scale[c], xw[c], right[c]
        for i in range(q):
            a, b = -w[i] / sw[c], s[i]
            for k in range(i, q):
                S[i, k] = (G[i, k] + a * w[k]) * (b * s[k])
            S[i, i] += l2 * (b * b)
            S[i, q] = x[i] * b
        smallest = np.inf
        for k in range(0, q, SIDE):
            pivot = factorise_rows(S, k, k + SIDE if k + SIDE < q else q)
            smallest = pivot if pivot < smallest else smallest
            if smallest == 0.0:
                break
            for i in range(k + SIDE, q - 1, 2):
                subtract_rows(S, i, k, i // unit * unit, width, TWO, ALL)
            if k + SIDE < q and q % 2 == 1:
                subtract_rows(S, q - 1, k, (q - 1) // unit * unit, width, ONE, ALL)
        least[c] = smallest
        if smallest > 0.0:
            back_substitute(S, x)


@light_summing_kernel
def _divide(factors, scale, wanted, x):
    """Overwrite x (classes, q), or those of its rows that are wanted, with solutions of U'U x = scale x."""
    q = x.shape[1]
    for c in range(x.shape[0] if q > 0 else 0):
        if not wanted[c]:
            continue
        S, s, y = factors[c], scale[c], x[c]
        for k in range(q):
            y[k] *= s[k]
        for k in range(q):
            value = y[k] / S[k, k]
            S[k, q] = value
            for j in range(k + 1, q):
                y[j] -= value * S[k, j]
        back_substitute(S, y)
