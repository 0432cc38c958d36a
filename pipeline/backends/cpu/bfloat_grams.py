"""Weighted Gram matrices of numbers in bfloat16: in half the time, to three digits, for fits that are refined."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.backends.cpu import bfloat_tiles
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.bfloat_tiles import add_pair_tile, pack_pairs
from pipeline.backends.cpu.jit import light_kernel, light_part, prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.vectors import BYTES, ROWS

SUMS = 1 << 22  # bytes of sums of all segments at most, if there are several
TASKS = 16  # least number of tasks, if rows and classes allow
TOGETHER = 256  # columns up to which numbers are packed once for all classes, not once for each
NUMBERS = 1 << 22  # bytes of these at most: they stay in the cache, rows come in as many sets as that takes
# Columns on the left, panels on the right and columns of each of these: of a tile, and of one within a panel
TILE, HALF = ((None,) * 8, (None,) * 2, (None,) * 16), ((None,) * 8, (None,), (None,) * 8)


def grams(X: Panels, W: np.ndarray, center: np.ndarray, xw: np.ndarray, sw: np.ndarray) -> np.ndarray:
    """Return the Gram matrix sum_i w_ij x_i x_i' of each class, float64 (classes, q, q), upper triangles.

    Parameters
    ----------
    X : (n, q) float32
    W : (n, classes) float32 weights
    center : float32 (q,): numbers are rounded about it; what is returned is about zero nevertheless
    xw, sw : float64 (q, classes), (classes,) sums of the weights

    Notes
    -----
    Of each product one factor is a number and the other a weighted one, both rounded to bfloat16 (8 bits): an error of
    2^-9 of a factor at most. Where numbers or weights differ from row to row errors have either sign, and over 10,000
    rows a Gram matrix is exact to 2e-4 of its diagonal; columns of a hundred values had 9e-4 and of two values 4e-3,
    with equal weights. Sums are float32, those of segments float64; segments do not depend on the number of threads.
    """
    if not bfloat_tiles.available():
        raise RuntimeError("this processor has no products of numbers in bfloat16")
    rows = _Rows(X, W, center)
    gram = np.empty((W.shape[1], X.shape[1], X.shape[1]))
    for begin in range(0, rows.blocks, rows.size):
        rows.add(gram, begin, min(begin + rows.size, rows.blocks))
    if center.any():
        c = center.astype(np.float64)

        def about_zero(j: int) -> None:
            w = xw[:, j]
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # of sums that are not finite no factor is made
                gram[j] += np.multiply.outer(c, w - sw[j] * c) + np.multiply.outer(w, c)

        kernels.share(about_zero, len(gram), rows.parallel)
    return gram


class _Rows:
    """Rows whose products are added up, a set at a time: as many as their packed numbers have room."""

    def __init__(self, X: Panels, W: np.ndarray, center: np.ndarray) -> None:
        self.blocks, panels, _, V = X.data.shape
        self.side, self.classes, self.count = panels * V, W.shape[1], X.size
        self.parallel = self.count > kernels.SERIAL
        middle = np.zeros(self.side, np.float32)
        middle[: center.size] = center
        self.given = X.data, np.ascontiguousarray(W.T), np.ones(ROWS, np.float32), middle
        self.together = self.side <= TOGETHER and self.classes > 1 and self.blocks > 1
        sets = -(-self.blocks * self.side * ROWS * 2 // NUMBERS) if self.together else 1
        self.size = -(-self.blocks // sets)
        self.numbers = self._pairs(self.size if self.together else 0)
        prepare(_add, *self.given, self.numbers, 0, 0, 0, middle, self._none, TILE, HALF)

    _none = np.zeros((0, 0), np.float32)

    def _pairs(self, blocks: int) -> np.ndarray:
        return np.empty((blocks, self.side * ROWS // 2), np.float32)

    def add(self, gram: np.ndarray, begin: int, end: int) -> None:
        """Add the products of blocks begin to end to `gram`; of the first ones write them there."""
        if self.together:
            kernels.share_rows(lambda a, b: self._pack(begin + a, begin + b), end - begin, self.count)
        J, size = self.classes, end - begin
        segments = max(1, min(-(-TASKS // J), SUMS // (4 * J * self.side**2), size))
        bounds = [begin + size * i // segments for i in range(segments + 1)]
        totals: list[Any] = [None] * (segments * J)

        def task(i: int) -> None:
            s, j = divmod(i, J)
            total = self._total(j, bounds[s], bounds[s + 1])
            if segments == 1:
                add_up(j, [total])
            else:
                totals[i] = total

        def add_up(j: int, parts: list[np.ndarray]) -> None:
            q, mine = gram.shape[1], gram[j]
            if begin == 0:
                mine[:] = parts.pop(0)[:q, :q]
            with np.errstate(over="ignore", invalid="ignore"):
                for part in parts:
                    np.add(mine, part[:q, :q], out=mine)

        kernels.share(task, segments * J, self.parallel)
        if segments > 1:
            kernels.share(lambda j: add_up(j, totals[j::J]), J, self.parallel)

    def _pack(self, begin: int, end: int) -> None:
        _add(*self.given, self.numbers, begin, end, 0, self.given[-1], self._none, TILE, HALF)

    def _total(self, j: int, begin: int, end: int) -> np.ndarray:
        """Return the sums (side, side) of class j over some blocks, float32."""
        total, weighted = np.empty((self.side, self.side), np.float32), self._pairs(1)[0]
        numbers = self.numbers if self.together else self._pairs(1)
        _add(*self.given, numbers, begin, end, j, weighted, total, TILE, HALF)
        return total


@light_part
def _pack(X, x, factors, start, rows, center, out):
    """Write the pairs of `rows` rows of all panels, from X[x] on, times factors[start:], to `out`."""
    V = BYTES // 4
    pairs = (rows + 1) // 2
    for p in range(center.size // V):
        first, o = x + p * ROWS * V, p * pairs * V
        for i in range(rows // 2):
            a, b = factors[start + 2 * i], factors[start + 2 * i + 1]
            y = first + 2 * i * V
            pack_pairs(X, y, y + V, center, p * V, a, b, out, o + i * V)
        if rows % 2 == 1:
            y = first + (rows - 1) * V
            pack_pairs(
                X, y, y, center, p * V, factors[start + rows - 1], np.float32(0.0), out, o + (pairs - 1) * V
            )


@light_kernel
def _add(data, W, ones, center, numbers, begin, end, c, weighted, total, tile, half):
    """Write to total (side, side), on and above the diagonal, the sums of class c over some blocks.

    Pairs of numbers are in `numbers`, which has room for those of a set of blocks, or of one. If the total is empty
    they are written there instead. In `weighted` there is room for a block's pairs of weighted numbers.
    """
    n, count, V, side = W.shape[1], data.shape[1], data.shape[3], len(total)
    A, B, H = len(tile[0]), len(tile[1]), len(half[2])
    X, sums = data.reshape(-1), total.reshape(-1)
    none = np.intp(0)  # for a literal 0 a part is compiled again
    total[:] = 0.0
    for block in range(begin, end):
        start, x, own = block * ROWS, block * count * ROWS * V, len(numbers) == 1
        right = numbers[block % len(numbers)]
        rows = ROWS if n - start > ROWS else n - start
        pairs = (rows + 1) // 2
        if own or side == 0:
            _pack(X, x, ones, none, rows, center, right)
        if side > 0:
            _pack(X, x, W[c], start, rows, center, weighted)
        for p in range(count if side > 0 else 0):
            for a in range(0, V, A):
                here, there, t = p * pairs * V + a, p * pairs * V, (p * V + a) * side + p * V
                alone = (count - p) % B
                for v in range(a, V if alone else a, H):  # a panel with itself, from these columns on
                    add_pair_tile(weighted, here, right, there + v, pairs, sums, t + v, side, half)
                for r in range(alone, count - p, B):
                    add_pair_tile(
                        weighted, here, right, there + r * pairs * V, pairs, sums, t + r * V, side, tile
                    )
