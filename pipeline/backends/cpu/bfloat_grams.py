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
    q, J = X.shape[1], W.shape[1]
    blocks, panels, _, V = X.data.shape
    side = panels * V
    segments = max(1, min(-(-TASKS // J), SUMS // (4 * J * side**2), blocks))
    bounds = [blocks * i // segments for i in range(segments + 1)]
    gram = np.empty((J, q, q))
    tiles: list[Any] = [None] * (segments * J)
    middle = np.zeros(side, np.float32)
    middle[:q] = center
    together = blocks > 1 and side <= TOGETHER
    given = X.data, np.ascontiguousarray(W.T), np.ones(ROWS, np.float32), middle
    numbers = np.empty((blocks if together else 0, side * ROWS // 2), np.float32)
    none = np.zeros((0, 0), np.float32)
    prepare(_add, *given, numbers, 0, 0, 0, middle, none, TILE, HALF)

    def add(i: int) -> None:
        s, j = divmod(i, J)
        mine = numbers if together else np.empty((1, side * ROWS // 2), np.float32)
        total, room = np.empty((side, side), np.float32), np.empty(side * ROWS // 2, np.float32)
        _add(*given, mine, bounds[s], bounds[s + 1], j, room, total, TILE, HALF)
        if segments == 1:
            add_up(j, [total])
        else:
            tiles[i] = total

    def add_up(j: int, parts: list[np.ndarray]) -> None:
        mine = gram[j]
        mine[:] = parts[0][:q, :q]
        for part in parts[1:]:
            np.add(mine, part[:q, :q], out=mine)
        if center.any():
            c, w, s = center.astype(np.float64), xw[:, j], sw[j]
            with np.errstate(invalid="ignore"):  # of sums that are not finite; a factor of such is refused
                mine += np.multiply.outer(c, w - s * c) + np.multiply.outer(w, c)

    parallel = X.size > kernels.SERIAL
    if together:
        work = (*given, numbers)
        kernels.share_rows(lambda a, b: _add(*work, a, b, 0, middle, none, TILE, HALF), blocks, X.size)
    kernels.share(add, segments * J, parallel)
    if segments > 1:
        kernels.share(lambda j: add_up(j, tiles[j::J]), J, parallel)
    return gram


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

    Pairs of numbers are in `numbers` for each block, or there is room for those of one. If the total is empty they
    are written there instead. In `weighted` there is room for a block's pairs of weighted numbers.
    """
    n, count, V, side = W.shape[1], data.shape[1], data.shape[3], len(total)
    A, B, H = len(tile[0]), len(tile[1]), len(half[2])
    X, sums = data.reshape(-1), total.reshape(-1)
    none = np.intp(0)  # for a literal 0 a part is compiled again
    total[:] = 0.0
    for block in range(begin, end):
        start, x, own = block * ROWS, block * count * ROWS * V, len(numbers) == 1
        right = numbers[0 if own else block]
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
