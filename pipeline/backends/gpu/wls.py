"""Weighted least squares on the device: our kernels feed cuBLAS, cuSOLVER factorises all classes at once.

Every function takes X as a device array or as another kind of matrix (:mod:`pipeline.backends.gpu.matrix`), and works
on as many rows at a time as memory allows. Sums over chunks of rows are in float64.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends import fits
from pipeline.backends.gpu import blas, launch, memory, namespace, wls_plan
from pipeline.backends.gpu.cholesky import Systems
from pipeline.backends.gpu.column_moments import column_moments
from pipeline.backends.gpu.fourier import frequencies, random_features
from pipeline.backends.gpu.matrix import empty_matrix, fill_rows, over_rows
from pipeline.backends.protocol import ComponentwiseSums, Sums, WlsFit
from pipeline.backends.solve import DELICATE
from pipeline.spans import part as measured

__all__ = [
    "apply",
    "classes_at_once",
    "classes_together",
    "column_moments",
    "componentwise_sums",
    "fit",
    "frequencies",
    "gather",
    "over_classes",
    "random_features",
    "refine",
    "residual_sums",
    "rough",
    "solve",
    "sums",
]

rough = None  # Gram matrices are as exact as they are asked for
classes_together = 1
SYSTEM_BYTES = 48  # per entry of a Gram matrix: itself, its parts, and the copies that a factorisation makes


def gather(X: Any, columns: np.ndarray, center: Any) -> Any:
    """Return X[:, columns] - center[columns], contiguous (n, q) in the dtype of X.

    It is on the device, or streams through it if no room is left beside X.
    """
    n, p = X.shape
    q = columns.size
    if q and not (columns.min() >= 0 and columns.max() < p):
        raise IndexError(f"columns must be from 0 to {p - 1}")
    out = empty_matrix(n, q, X.dtype, logging.DEBUG)  # of one round: a line in each would be too many
    on_device = cp.asarray(columns.astype(np.int32))
    center = center.astype(X.dtype, copy=False)

    def work(part: slice, block: Any) -> None:
        m = len(block)
        plan = wls_plan.gather(X.dtype, m, q)
        fill_rows(out, part, lambda rows: launch.run(plan, block, on_device, center, rows, m, p, q))

    over_rows(X, q * X.dtype.itemsize, work)
    return out


def fit(X: Any, center: Any, W: Any, R: Any, l2: float, gram_precision: str = "full") -> WlsFit:
    """Fit one weighted least squares with intercept per class; the columns are shared.

    Minimises, for each class j, ``sum_i w_ij (r_ij / w_ij - b_j - (x_i - center)'beta_j)^2 + l2 |beta_j|^2``.

    Parameters
    ----------
    X : (n, q) float32 or float64, C order
    center : (q,) subtracted from every row
    W, R : (n, J) in the dtype of X; weights w >= 0 and weighted responses r = w z
    l2 : penalty of the coefficients, not of the intercept
    gram_precision : "full"; or "tf32": float32 Gram matrices from inputs rounded to 10 bits, on tensor cores.
        They are the exact Gram matrices of a slightly different X, so the rules for rank and pivots stand.

    Returns
    -------
    WlsFit

    Notes
    -----
    As :func:`pipeline.backends.cpu.wls.fit`, all classes at once: scaled rows of a batch of classes, one batched
    product, one batched Cholesky. In float64, and where systems are delicate, one step of refinement follows.
    """
    return fits.fit(namespace, sys.modules[__name__], _Given(X, center, W, R, gram_precision), l2)


class _Given:
    """Rows that lie in memory, as :func:`pipeline.backends.fits.fit` asks for their sums."""

    at_once: int | None = None
    rough = False
    whole = True

    def __init__(self, X: Any, center: Any, W: Any, R: Any, gram_precision: str) -> None:
        # kernels take no strides
        self.rows = (X, center, cp.ascontiguousarray(W), cp.ascontiguousarray(R))
        self.gram_precision = gram_precision
        self.n_columns, self.n_classes = X.shape[1], W.shape[1]
        self.precision = X.dtype.name

    def sums(self, classes: slice, totals: bool, roughly: bool = False) -> Sums:
        return sums(*self.rows, classes, totals, self.gram_precision)

    def residual_sums(self, classes: slice, coef: Any, intercept: Any) -> tuple[Any, Any]:
        return residual_sums(*self.rows, classes, coef, intercept)

    def stage(self) -> AbstractContextManager[None]:
        return nullcontext()


def sums(
    X: Any, center: Any, W: Any, R: Any, classes: slice, totals: bool, gram_precision: str = "full"
) -> Sums:
    """Return the Gram matrices of a range of classes, and with `totals` the other sums, of all classes.

    Parameters are those of :func:`fit`. Of the Gram matrices, float64 (classes, q, q), the lower triangles count.
    """
    with measured("sums"):
        q, J = X.shape[1], W.shape[1]
        W, R = cp.ascontiguousarray(W), cp.ascontiguousarray(R)  # kernels take no strides
        center = center.astype(X.dtype, copy=False)
        xr = xw = sr = sw = None
        if totals:
            sw, sr = W.sum(axis=0, dtype=cp.float64), R.sum(axis=0, dtype=cp.float64)
            both = _products(X, center, cp.concatenate([R, W], axis=1)) if q else cp.zeros((0, 2 * J))
            xr, xw = both[:, :J], both[:, J:]
        if classes.stop == classes.start:
            return Sums(xr, xw, sr, sw)
        return Sums(xr, xw, sr, sw, _grams(X, center, W, classes, gram_precision == "tf32"))


def residual_sums(
    X: Any, center: Any, W: Any, R: Any, classes: slice, coef: Any, intercept: Any
) -> tuple[Any, Any]:
    """Return (X - center)' e (q, classes) and the sums of e = r - w f (classes,) for fits f of those classes.

    In float64 throughout, whatever the type of X.
    """
    with measured("refine"):
        center = center.astype(X.dtype, copy=False)
        W, R = W[:, classes], R[:, classes]
        q, count = coef.shape
        xr, sr = cp.zeros((q, count)), cp.zeros(count)

        def work(part: slice, block: Any) -> None:
            rows = (block - center).astype(cp.float64, copy=False)
            fitted = cp.matmul(rows, coef) + intercept
            residual = R[part].astype(cp.float64, copy=False) - W[part] * fitted
            both = cp.matmul(rows.T, residual), residual.sum(axis=0)
            cp.add(xr, both[0], out=xr)
            cp.add(sr, both[1], out=sr)

        over_rows(X, q * (X.dtype.itemsize + 8) + 3 * 8 * count, work)
        return xr, sr


def solve(sums: Sums, l2: float, precision: str) -> tuple[WlsFit, Systems | None]:
    """Return the fits of the classes whose sums are given, and their factors if the fits are to be refined.

    Parameters
    ----------
    sums : of the same classes throughout; the Gram matrices are overwritten
    l2 : penalty of the coefficients
    precision : type of the rows, which says how exact the sums are
    """
    systems = Systems(sums.gram, np.dtype(precision), sums.xw, sums.sw, l2)
    found = WlsFit(*systems.solve(sums.xr, sums.sr), systems.rank, systems.ladder)
    return found, systems if precision == "float64" or systems.margin < DELICATE else None


def refine(factors: Systems, xr: Any, sr: Any, found: WlsFit) -> WlsFit:
    """Return the fits improved by one step for the sums that :func:`residual_sums` gave."""
    delta, shift = factors.solve(xr - factors.l2 * found.coef, sr)
    return found._replace(coef=found.coef + delta, intercept=found.intercept + shift)


def classes_at_once(n_classes: int, q: int, whole: bool = False) -> int:
    """Return how many Gram matrices of q columns to ask for at a time, whether or not of rows as they lie."""
    return memory.chunk(n_classes, SYSTEM_BYTES * q * q, memory.free_bytes())


def over_classes(
    n_classes: int, q: int, at_once: int | None, work: Callable[[slice], None], whole: bool = False
) -> None:
    """Call work(classes) for ranges that cover the classes, of `at_once` or what :func:`classes_at_once` says.

    When memory runs out after all, a range is taken again with half of its classes.
    """
    one = SYSTEM_BYTES * q * q
    largest = memory.free_bytes() if at_once is None else min(memory.free_bytes(), at_once * one)
    memory.in_chunks(n_classes, one, work, "classes", largest=largest)


def _products(X: Any, center: Any, V: Any) -> Any:
    """Return (X - center)' V, float64 (q, columns of V)."""
    q = X.shape[1]
    total = cp.zeros((q, V.shape[1]))

    def work(part: slice, block: Any) -> None:
        cp.add(total, cp.matmul((block - center).T, V[part]), out=total)

    over_rows(X, q * X.dtype.itemsize, work)
    return total


def _grams(X: Any, center: Any, W: Any, classes: slice, tf32: bool) -> Any:
    """Return the lower triangles of (X - center)' diag(w_j) (X - center) for some classes: float64 (batch, q, q)."""
    q, J = X.shape[1], W.shape[1]
    first, batch = classes.start, classes.stop - classes.start
    total = cp.zeros((batch, q, q))

    def add(block: Any, weights: Any, cut: int) -> None:
        m = len(block)
        scaled = cp.empty((batch, m, q), dtype=X.dtype)
        launch.run(
            wls_plan.center_scale(X.dtype, m, q), block, center, weights, scaled, m, q, J, first, batch
        )
        cp.add(total, blas.grams(scaled, cut, tf32), out=total)

    def work(part: slice, block: Any) -> None:
        # In two steps, so that the rows of the first can be cut into equal parts. An allocation may fail in either;
        # then the whole part is taken again, so the total is put back.
        m, before = len(block), total.copy()
        cut = blas.parts(m, q, batch)
        main = m // cut * cut
        try:
            add(block[:main], W[part][:main], cut)
            if main < m:
                add(block[main:], W[part][main:], 1)
        except (MemoryError, RuntimeError):
            total[...] = before
            raise

    over_rows(X, (batch + 1) * q * X.dtype.itemsize, work)
    return total


def componentwise_sums(X: Any, center: Any, W: Any, R: Any) -> ComponentwiseSums:
    """Return the sums from which the best single feature of each class follows: one pass over X for all classes.

    Parameters
    ----------
    X : (n, p), float32 or float64, C order
    center : (p,)
    W, R : (n, J) weights and weighted responses, dtype of X
    """
    p, J = X.shape[1], W.shape[1]
    W, R = cp.ascontiguousarray(W), cp.ascontiguousarray(R)  # kernels take no strides
    center = center.astype(X.dtype, copy=False)
    total = cp.zeros((3, J, p))

    def work(part: slice, block: Any) -> None:
        m = len(block)
        plan = wls_plan.componentwise(X.dtype, m, p, J)
        partial, sums = cp.empty((plan.parts, 3, J, p)), cp.empty((3, J, p))
        launch.run(plan.partial, block, center, W[part], R[part], partial, m, p, J, plan.rows_per_block)
        launch.run(plan.finish, partial, sums, plan.parts, 3 * J * p)
        cp.add(total, sums, out=total)

    over_rows(X, 16, work)
    return ComponentwiseSums(total[0].T, total[1].T, total[2].T)


def apply(X: Any, center: Any, coef: Any, intercept: Any) -> Any:
    """Return (X - center) @ coef + intercept, shape (n, J), in the dtype of X."""
    n, q = X.shape
    center, coef = center.astype(X.dtype, copy=False), coef.astype(X.dtype, copy=False)
    intercept = intercept.astype(X.dtype, copy=False)
    J = coef.shape[1]
    out = memory.whole(lambda: cp.empty((n, J), dtype=X.dtype), f"values of {n} rows and {J} classes")

    def work(part: slice, block: Any) -> None:
        out[part] = cp.matmul(block - center, coef) + intercept

    over_rows(X, (q + 2 * coef.shape[1]) * X.dtype.itemsize, work)
    return out
