"""The small linear systems of all classes at once, by batched Cholesky on the device.

The rules are those of :mod:`pipeline.backends.solve`: intercept eliminated, unit diagonal, the same tolerances. CuPy
does not raise when a factorisation fails, and what it leaves then may look harmless: so every factor is checked, and
the classes that fail, only those, take the ladder of ``solve.py`` on the host.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import cupyx
import numpy as np

from pipeline.backends.solve import Factor, factorise

BATCHED = 512  # unknowns up to which cuSOLVER's batched routines are the faster ones
CHECKED = 1e-6  # relative deviation of a row of L L' from the matrix that no rounding explains


class Systems:
    """The factorised normal equations of J classes.

    Parameters
    ----------
    gram : float64 (J, q, q), lower triangles of X' W X; overwritten
    precision : type in which the Gram matrices were computed: says how exact they are
    xw : float64 (q, J), X' w
    sw : float64 (J,), sums of weights
    l2 : penalty on the coefficients

    Attributes
    ----------
    rank, ladder : int (J,) in host memory, as in :class:`pipeline.backends.protocol.WlsFit`
    l2 : float64 (J,): the penalty used for each class, after any raise
    margin : the least of the classes, see :class:`pipeline.backends.solve.Factor`
    """

    def __init__(self, gram: Any, precision: np.dtype, xw: Any, sw: Any, l2: float) -> None:
        J = len(gram)
        self.xw, self.sw = xw, sw
        self.positive = cp.where(sw > 0.0, sw, cp.ones_like(sw))
        eps = float(np.finfo(precision).eps)
        raw = _diagonal(gram).copy()
        across = xw.T / self.positive[:, None]
        variance = raw - across * xw.T
        active = variance > 64.0 * eps * raw
        one = cp.ones_like(variance)
        self.scale = cp.where(active, 1.0 / cp.sqrt(cp.where(active, variance + l2, one)), cp.zeros_like(one))
        matrix = gram - across[:, :, None] * xw.T[:, None, :]
        matrix *= self.scale[:, :, None]
        matrix *= self.scale[:, None, :]
        unit = cp.where(active, (variance + l2) * self.scale * self.scale, one)
        _diagonal(matrix)[...] = unit
        self.lower = _cholesky(matrix)
        left = cp.where(active, (variance + l2) / cp.where(active, raw + l2, one), one)
        good, counts, margins = self._check(active, unit, left, eps)
        self.rank, self.ladder = counts.astype(np.intp), np.zeros(J, dtype=np.intp)
        self.failed = {int(j): self._on_host(int(j), gram, precision, l2) for j in np.flatnonzero(~good)}
        penalties = np.full(J, l2)
        for j, factor in self.failed.items():
            self.rank[j], self.ladder[j], penalties[j] = factor.rank, factor.ladder, factor.l2
            margins[j] = factor.margin
        self.margin = float(margins.min(initial=1.0))
        self.l2 = cp.asarray(penalties) if self.failed else cp.full(J, l2)

    def _check(
        self, active: Any, unit: Any, left: Any, eps: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each class whether its factorisation holds, its number of active columns, and its margin.

        The smallest pivot of an active column must exceed rounding noise, and the rows of L must have the length
        that L L' = S gives them: a factorisation that stopped half-way leaves rows that have not.
        """
        pivot = cp.where(active, _diagonal(self.lower), cp.ones_like(unit))
        counts = active.sum(axis=1)
        tolerance = cp.maximum(counts, 8).astype(cp.float64) * eps
        length = (self.lower * self.lower).sum(axis=2)
        off = cp.abs(length - unit).max(axis=1)
        good = (pivot.min(axis=1) > 0.0) & ((pivot * pivot).min(axis=1) > tolerance) & (off <= CHECKED)
        margin = left.min(axis=1) * (pivot * pivot).min(axis=1)
        counts = counts.astype(cp.float64)  # exact
        marked, margins = cp.asnumpy(
            cp.stack([cp.where(good, counts, -1.0 - counts), margin])
        )  # two numbers a class
        return marked >= 0.0, np.where(marked >= 0.0, marked, -1.0 - marked), margins

    def _on_host(self, j: int, gram: Any, precision: np.dtype, l2: float) -> Factor:
        eps = float(np.finfo(precision).eps)
        return factorise(cp.asnumpy(gram[j]), cp.asnumpy(self.xw[:, j]), float(self.sw[j]), l2, eps)

    def solve(self, xr: Any, sr: Any) -> tuple[Any, Any]:
        """Return coefficients (q, J) and intercepts (J,) for X' r (q, J) and the sums of r (J,)."""
        rhs = (xr - self.xw * (sr / self.positive)).T * self.scale
        beta = (_solve(self.lower, rhs) * self.scale).T
        for j, factor in self.failed.items():
            found = factor.solve(cp.asnumpy(xr[:, j]), float(sr[j]))[0]
            beta[:, j] = cp.asarray(found)
        intercept = (sr - (self.xw * beta).sum(axis=0)) / self.positive
        return beta, cp.where(self.sw > 0.0, intercept, cp.zeros_like(intercept))


def _diagonal(matrices: Any) -> Any:
    """Return the diagonals (J, q) of contiguous matrices (J, q, q), as a view."""
    J, q = matrices.shape[:2]
    return matrices.reshape(J, q * q)[:, :: q + 1]


def _cholesky(matrices: Any) -> Any:
    with cupyx.errstate(
        linalg="ignore"
    ):  # whatever the caller has set: failures are looked for, class by class
        if matrices.shape[1] <= BATCHED:
            return cp.linalg.cholesky(matrices)
        return cp.stack([cp.linalg.cholesky(matrices[j]) for j in range(len(matrices))])


def _solve(lower: Any, rhs: Any) -> Any:
    """Return the solutions (J, q) of lower lower' x = rhs."""
    from cupyx.lapack import potrs

    with cupyx.errstate(linalg="ignore"):
        if lower.shape[1] <= BATCHED:
            return potrs(lower, rhs[:, :, None].copy(), True).reshape(rhs.shape)
        return cp.stack([potrs(lower[j], rhs[j].copy(), True) for j in range(len(lower))])
