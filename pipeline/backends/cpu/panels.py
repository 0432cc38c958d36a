"""Columns of a matrix in panels: the form in which register tiles multiply them, so that nobody packs them again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import light_kernel, prepare, summing_kernel
from pipeline.backends.cpu.value_tiles import value_shape, value_tile
from pipeline.backends.cpu.vectors import ROWS, adjacent, lanes, prefetch, take


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

    def rows(self) -> np.ndarray:
        """Return the matrix (n, q) in C order."""
        blocks, panels, _, V = self.data.shape
        whole = self.data.transpose(0, 2, 1, 3).reshape(blocks * ROWS, panels * V)
        return np.ascontiguousarray(whole[: self.shape[0], : self.shape[1]])

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
    # Blocks are taken by the kernel: a thread that asked the interpreter for the next one waited for it meanwhile.
    taken = np.zeros(1, np.int64)

    def part(i: int) -> None:
        _gather(*rows, found.data, taken, (0,) * V)

    shared = kernels.Shared(part, min(blocks, kernels.threads()), parallel=n * q > kernels.SERIAL)

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
    prepare(
        _gather,
        source,
        index,
        vector,
        np.zeros((0, 1, 1, 1), dtype),
        np.zeros(1, np.int64),
        (0,) * lanes(dtype),
    )


def apply(X: Panels, coef: np.ndarray, intercept: np.ndarray, out: np.ndarray) -> None:
    """Write X coef' + intercept to out (n, J), worked out in float64; coef (J, q), intercept (J,), both float64."""
    shape = value_shape(len(coef))
    size = len(shape[1])
    wide = np.zeros((-(-len(coef) // size) * size, X.data.shape[1] * X.data.shape[3]))
    wide[: len(coef), : X.shape[1]] = coef
    given, tile = (X.data, wide, intercept, out), len(shape[0]) * size
    prepare(_apply, *given, np.empty(tile), 0, 0, shape)
    kernels.share_rows(lambda a, b: _apply(*given, np.empty(tile), a, b, shape), len(X.data), X.size)


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


@light_kernel
def _gather(X, columns, center, data, taken, lanes):
    """Threads wait for memory: a row ahead, its cache lines are asked for. 128 of 3240 columns: 4.6 ms, now 3.0.

    Columns are unsigned: of a signed index Numba asks each time whether it is counted from the end.
    """
    n, q, V = X.shape[0], columns.size, len(lanes)
    panels = data.shape[1]
    flat = data.reshape(-1)
    while True:
        block = take(taken)
        if block >= data.shape[0]:
            break
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


@light_kernel
def _apply(data, coef, intercept, out, found, begin, end, shape):
    n, J = out.shape
    panels, V = data.shape[1], data.shape[3]
    flat, factors = data.reshape(-1), coef.reshape(-1)
    some, classes = len(shape[0]), len(shape[1])
    for block in range(begin, end):
        left = n - block * ROWS
        for r in range(0, ROWS if left > ROWS else left, some):
            d = (block * panels * ROWS + r) * V
            for first in range(0, J, classes):
                value_tile(flat, d, panels, factors, first * coef.shape[1], found, 0, shape)
                for m in range(some if left - r > some else left - r):
                    for j in range(classes if J - first > classes else J - first):
                        out[block * ROWS + r + m, first + j] = found[m * classes + j] + intercept[first + j]


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
