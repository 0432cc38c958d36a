"""Columns of a matrix in panels: the form in which register tiles multiply them, so that nobody packs them again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.backends import host
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import light_kernel, prepare
from pipeline.backends.cpu.tiles import whole_panels
from pipeline.backends.cpu.value_tiles import add_product_tile, product_shape, value_shape, value_tile
from pipeline.backends.cpu.vectors import ROWS, adjacent, lanes, prefetch, take


class Panels:
    """A matrix (n, q) as blocks of ROWS rows of panels of V columns; ``numpy.asarray`` gives its rows.

    Parameters
    ----------
    data : (blocks, panels, ROWS, V), panels as :func:`pipeline.backends.cpu.tiles.whole_panels` says; beyond the last
        column zeros, beyond the last row anything
    shape : (n, q)
    centred : whether the means of the columns are near zero
    """

    def __init__(self, data: np.ndarray, shape: tuple[int, int], centred: bool = False) -> None:
        self.data, self.shape, self.centred = data, shape, centred

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

    @functools.cached_property
    def means(self) -> np.ndarray:
        """About the means of the columns, in the type of the numbers: those of the blocks' first rows."""
        return self.data[:, :, 0].mean(axis=0).reshape(-1)[: self.shape[1]]

    def rows(self) -> np.ndarray:
        """Return the matrix (n, q) in C order."""
        (n, q), V = self.shape, self.data.shape[3]
        found = np.empty(self.shape, self.dtype)
        for k in range(0, q, V):  # a panel at a time: all of them at once would be copied twice
            found[:, k : k + V] = self.data[:, k // V].reshape(-1, V)[:n, : q - k]
        return found

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
    found = Panels(host.empty((blocks, whole_panels(q, X.dtype), ROWS, V), X.dtype), (n, q), centred=True)
    ready(X.dtype, X.flags.writeable)
    rows = X, columns.astype(np.uintp), center.astype(X.dtype, copy=False)
    # Blocks are taken by the kernel: a thread that asked the interpreter for the next one waited for it meanwhile.
    taken = np.zeros(1, np.int64)

    def part(i: int) -> None:
        _gather(*rows, found.data, taken, (None,) * V)

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
        (None,) * lanes(dtype),
    )


def apply(X: Panels, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Return X coef + intercept (n, classes), worked out in the type of the coefficients.

    Parameters
    ----------
    coef, intercept : (q, classes), (classes,), float64 or in the type of X
    """
    shape = value_shape(len(intercept))
    out, found = np.empty((len(X), len(intercept)), coef.dtype), len(shape[0]) * len(shape[1])
    given = X.data, _in_panels(X, coef, shape), intercept, out

    def part(begin: int, end: int) -> None:
        _write_values(*given, np.empty(found, coef.dtype), begin, end, shape)

    prepare(_write_values, *given, np.empty(found, coef.dtype), 0, 0, shape)
    kernels.share_rows(part, len(X.data), X.size)
    return out


def _in_panels(X: Panels, coef: np.ndarray, shape: tuple[Any, ...]) -> np.ndarray:
    """Return coefficients (q, classes) as tiles of values want them: (classes, columns), filled up with zeros."""
    size = len(shape[1])
    filled = np.zeros((-(-coef.shape[1] // size) * size, X.data.shape[1] * X.data.shape[3]), coef.dtype)
    filled[: coef.shape[1], : X.shape[1]] = coef.T
    return filled


def residual_sums(
    X: Panels, W: np.ndarray, R: np.ndarray, coef: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return X' e (q, classes) and the sums of e, e = R - W (X coef + intercept), float64.

    Parameters
    ----------
    W, R : (n, classes)
    coef : (q, classes), float64, or float32: the type in which residuals are worked out, and added up ROWS at a time
    intercept : (classes,), in the same type
    """
    shape = value_shape(len(intercept))
    return _products(X, R, (W, _in_panels(X, coef, shape), intercept), coef.dtype, len(intercept))


def products(X: Panels, V: np.ndarray, n_classes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return X' V, float64 (q, k), and the sums of the columns of V (n, k), of the type of X or float64.

    They are worked out in the type of V, ROWS rows at a time, and these sums added up in float64. Tiles are those of
    the residuals of `n_classes`, if given: machine code that is needed in any case.
    """
    none = np.zeros((0, V.shape[1]), V.dtype), np.zeros((0, 0), V.dtype), np.zeros(0, V.dtype)
    return _products(X, V, none, V.dtype, n_classes or V.shape[1])


def _products(
    X: Panels,
    V: np.ndarray,
    fitted: tuple[np.ndarray, np.ndarray, np.ndarray],
    worked: np.dtype,
    n_classes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return X' V and the sums of V; where `fitted` = (W, coef, intercept) has rows, of V - W (X coef + intercept)."""
    q, count = X.shape[1], V.shape[1]
    panels, columns = X.data.shape[1], X.data.shape[3]
    tile, shape = product_shape(n_classes, X.dtype, worked), value_shape(n_classes)
    step = -(-count // len(tile)) * len(tile)
    totals, sums = np.zeros((kernels.SEGMENTS, step, panels * columns)), np.zeros((kernels.SEGMENTS, step))
    bounds = [len(X.data) * i // kernels.SEGMENTS for i in range(kernels.SEGMENTS + 1)]
    W, coef, intercept = fitted
    given = X.data, np.ascontiguousarray(V), np.ascontiguousarray(W), coef, intercept
    tiles = shape, tile

    def room() -> tuple[np.ndarray, np.ndarray]:
        return np.empty(len(shape[0]) * len(shape[1]), worked), np.zeros(ROWS * step, worked)

    def segment(i: int) -> None:
        _add_products(*given, *room(), totals[i], sums[i], bounds[i], bounds[i + 1], tiles)

    prepare(_add_products, *given, *room(), totals[0], sums[0], 0, 0, tiles)
    kernels.share(segment, kernels.SEGMENTS, parallel=X.size * count > kernels.SERIAL)
    return np.add.reduce(totals)[:count, :q].T, np.add.reduce(sums)[:count]


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
                filled = np.uintp(max(min(V, q - panel * V), 0))
                for v in range(filled):
                    column = columns[first + v]
                    flat[o + v] = X[i, column] - center[column]
                for v in range(filled, np.uintp(V)):
                    flat[o + v] = 0


@light_kernel
def _write_values(data, coef, intercept, out, found, begin, end, shape):
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
                    i = block * ROWS + r + m
                    for j in range(classes if J - first > classes else J - first):
                        out[i, first + j] = found[m * classes + j] + intercept[first + j]


@light_kernel
def _add_products(data, V, W, coef, intercept, found, values, total, sums, begin, end, tiles):
    """Add X' V to `total` (k, columns) and the columns of V to `sums`, over some blocks of rows.

    With coefficients, V less W times the values of fits takes the place of V: rows whose values are known are still in
    the cache when they are multiplied.
    """
    shape, tile = tiles
    n, count = V.shape
    panels, lanes = data.shape[1], data.shape[3]
    some, classes = len(shape[0]), len(shape[1])
    step, flat, factors, out = sums.size, data.reshape(-1), coef.reshape(-1), total.reshape(-1)
    for block in range(begin, end):
        start = block * ROWS
        rows = ROWS if n - start > ROWS else n - start
        for r in range(0, rows if len(coef) > 0 else 0, some):
            d = (block * panels * ROWS + r) * lanes
            for first in range(0, count, classes):
                value_tile(flat, d, panels, factors, first * coef.shape[1], found, 0, shape)
                for m in range(some if rows - r > some else rows - r):
                    i = start + r + m
                    for j in range(classes if count - first > classes else count - first):
                        k = first + j
                        value = V[i, k] - W[i, k] * (found[m * classes + j] + intercept[k])
                        values[(r + m) * step + k] = value
                        sums[k] += value
        for i in range(rows if len(coef) == 0 else 0):
            for j in range(count):
                value = V[start + i, j]
                values[i * step + j] = value
                sums[j] += value
        for j in range(0, step, len(tile)):
            for c in range(panels):
                d, t = (block * panels + c) * ROWS * lanes, (j * panels + c) * lanes
                add_product_tile(flat, d, values, j, step, rows, out, t, panels * lanes, tile)
