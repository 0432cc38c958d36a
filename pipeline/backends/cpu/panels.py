"""Columns of a matrix in panels: the form in which register tiles multiply them, so that nobody packs them again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, prepare, summing_kernel
from pipeline.backends.cpu.tiles import ROWS, adjacent, lanes, prefetch


class Panels:
    """A matrix (n, q) as blocks of ROWS rows of panels of V columns; ``numpy.asarray`` gives its rows.

    Parameters
    ----------
    data : (blocks, panels, ROWS, V); beyond the last column zeros, beyond the last row anything
    shape : (n, q)
    """

    def __init__(self, data: np.ndarray, shape: tuple[int, int]) -> None:
        self.data, self.shape = data, shape

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.data.dtype

    @property
    def size(self) -> int:
        """How many numbers the matrix has."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """Return the matrix (n, q) in C order, or its rows begin:end."""
        end = self.shape[0] if end is None else end
        first = begin // ROWS
        data = self.data[first : -(-end // ROWS)]
        whole = data.transpose(0, 2, 1, 3).reshape(len(data) * ROWS, -1)
        return np.ascontiguousarray(whole[begin - first * ROWS : end - first * ROWS, : self.shape[1]])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("panels become rows in a copy only")
        return self.rows() if dtype is None else self.rows().astype(dtype)


def as_rows(X: np.ndarray | Panels) -> np.ndarray:
    """Return a matrix in rows."""
    return X.rows() if isinstance(X, Panels) else X


def gather_meanwhile(X: np.ndarray, columns: np.ndarray, center: np.ndarray) -> Callable[[], Panels]:
    """Begin to write X[:, columns] - center[columns] on threads that are idle; what is returned ends it.

    Parameters
    ----------
    X : (n, p) float32 or float64, rows of adjacent numbers
    columns : intp (q,)
    center : (p,)
    """
    adjacent(X)
    n, q, V = len(X), columns.size, lanes(X.dtype)
    blocks = -(-n // ROWS)
    found = Panels(np.empty((blocks, -(-q // V), ROWS, V), X.dtype), (n, q))
    ready(X.dtype, X.flags.writeable)
    rows = X, columns.astype(np.uintp), center.astype(X.dtype, copy=False)
    tasks = min(blocks, 2 * kernels.SEGMENTS)
    bounds = [blocks * i // max(tasks, 1) for i in range(tasks + 1)]

    def part(i: int) -> None:
        _gather(*rows, found.data, bounds[i], bounds[i + 1], (0,) * V)

    shared = kernels.Shared(part, tasks, parallel=n * q > kernels.SERIAL)

    def end() -> Panels:
        shared.finish()
        return found

    return end


@functools.cache
def ready(dtype: np.dtype, writeable: bool) -> None:
    """Load or compile the kernel that reads a matrix of `dtype`; `writeable` is part of its type to Numba."""
    X, vector, index = np.zeros((1, 1), dtype), np.zeros(1, dtype), np.zeros(1, np.uintp)
    source = X.copy()
    source.flags.writeable = writeable
    prepare(_gather, source, index, vector, np.zeros((1, 1, 1, 1), dtype), 0, 0, (0,) * lanes(dtype))


def apply(X: Panels, coef: np.ndarray, intercept: np.ndarray, out: np.ndarray) -> None:
    """Write X coef' + intercept to out (n, J), worked out in float64; coef (J, q), intercept (J,), both float64."""
    wide = _filled(X, coef)
    prepare(_apply, X.data, wide, intercept, out, 0, 0)
    kernels.share_rows(lambda a, b: _apply(X.data, wide, intercept, out, a, b), len(X.data), X.size)


def residual_sums(
    X: Panels, W: np.ndarray, R: np.ndarray, coef: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return X' e (q, classes) and the sums of e, e = R - W (X coef + intercept), worked out in float64.

    Parameters
    ----------
    W, R : (n, classes)
    coef, intercept : float64 (q, classes), (classes,)
    """
    wide, q = _filled(X, np.ascontiguousarray(coef.T)), X.shape[1]
    totals = np.zeros((kernels.SEGMENTS, len(wide), wide.shape[1] + 1))
    bounds = [len(X.data) * i // kernels.SEGMENTS for i in range(kernels.SEGMENTS + 1)]
    prepare(_residuals, X.data, W, R, wide, intercept, totals[0], 0, 0)
    kernels.share(
        lambda i: _residuals(X.data, W, R, wide, intercept, totals[i], bounds[i], bounds[i + 1]),
        kernels.SEGMENTS,
        parallel=X.size * len(wide) > kernels.SERIAL,
    )
    total = np.add.reduce(totals)
    return total[:, :q].T, total[:, -1]


def _filled(X: Panels, coef: np.ndarray) -> np.ndarray:
    """Return coef (J, q) with zeros for the columns that fill up the last panel."""
    wide = np.zeros((len(coef), X.data.shape[1] * X.data.shape[3]))
    wide[:, : coef.shape[1]] = coef
    return wide


@kernel
def _gather(X, columns, center, data, begin, end, lanes):
    """Threads wait for memory: a row ahead, its cache lines are asked for. 128 of 3240 columns: 4.6 ms, now 3.0.

    Columns are unsigned: of a signed index Numba asks each time whether it is counted from the end.
    """
    n, q, V = X.shape[0], columns.size, len(lanes)
    panels = data.shape[1]
    flat = data.reshape(-1)
    for block in range(begin, end):
        left = n - block * ROWS
        for r in range(ROWS if left > ROWS else left):
            i = block * ROWS + r
            ahead = i + 1 if i + 1 < n else i
            for k in range(q):
                prefetch(X, ahead, columns[k])
            for panel in range(panels):
                o = np.uintp(((block * panels + panel) * ROWS + r) * V)
                first = np.uintp(panel * V)
                filled = np.uintp(V if q - panel * V > V else q - panel * V)
                for v in range(filled):
                    column = columns[first + v]
                    flat[o + v] = X[i, column] - center[column]
                for v in range(filled, np.uintp(V)):
                    flat[o + v] = 0


@summing_kernel
def _apply(data, coef, intercept, out, begin, end):
    panels, V = data.shape[1], data.shape[3]
    x = np.empty(panels * V)
    for block in range(begin, end):
        left = out.shape[0] - block * ROWS
        for r in range(ROWS if left > ROWS else left):
            for panel in range(panels):
                for v in range(V):
                    x[panel * V + v] = data[block, panel, r, v]
            for j in range(coef.shape[0]):
                out[block * ROWS + r, j] = kernels.value(x, coef, intercept, j)


@summing_kernel
def _residuals(data, W, R, coef, intercept, total, begin, end):
    panels, V = data.shape[1], data.shape[3]
    x = np.empty(panels * V)
    for block in range(begin, end):
        left = W.shape[0] - block * ROWS
        for r in range(ROWS if left > ROWS else left):
            i = block * ROWS + r
            for panel in range(panels):
                for v in range(V):
                    x[panel * V + v] = data[block, panel, r, v]
            for j in range(coef.shape[0]):
                e = R[i, j] - W[i, j] * kernels.value(x, coef, intercept, j)
                kernels.add_products(x, e, total, j)
