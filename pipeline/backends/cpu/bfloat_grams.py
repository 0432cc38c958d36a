"""Weighted Gram matrices of numbers in bfloat16: in half the time, to three digits, for fits that are refined."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu import bfloat_tiles
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.bfloat_tiles import add_pair_tile, pack_pairs
from pipeline.backends.cpu.jit import light_kernel, light_part, prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.vectors import BYTES, ROWS

SUMS = 1 << 22  # bytes of sums of all segments at most, if there are several
TASKS = 16  # least number of tasks, if rows and classes allow
COLUMNS, PANELS = (None,) * 8, (None,) * 2  # of a tile


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
    Of each product one factor is a number and the other a weighted one, both rounded to bfloat16 (8 bits). The errors,
    2^-9 of a factor at most, have either sign: over 10,000 rows a Gram matrix is exact to 1e-4 of its diagonal. Sums
    are float32, those of segments float64; segments do not depend on the number of threads.
    """
    if not bfloat_tiles.available():
        raise RuntimeError("this processor has no products of numbers in bfloat16")
    q, J = X.shape[1], W.shape[1]
    blocks, panels, _, V = X.data.shape
    side = panels * V
    segments = max(1, min(-(-TASKS // J), SUMS // (4 * J * side**2), blocks))
    bounds = [blocks * i // segments for i in range(segments + 1)]
    total, gram = np.empty((segments, J, side, side), np.float32), np.empty((J, q, q))
    middle = np.zeros(side, np.float32)
    middle[:q] = center
    numbers = np.empty((blocks, side * ROWS // 2), np.float32)
    given = X.data, np.ascontiguousarray(W.T), np.ones(ROWS, np.float32), middle, numbers
    prepare(_add, *given, 0, 0, 0, 0, middle, total[0], COLUMNS, PANELS)

    def pack(begin: int, end: int) -> None:
        _add(*given, begin, end, 0, 0, middle, total[0], COLUMNS, PANELS)

    def add(i: int) -> None:
        s, c = divmod(i, J)
        room = np.empty(side * ROWS // 2, np.float32)
        _add(*given, bounds[s], bounds[s + 1], c, c + 1, room, total[s], COLUMNS, PANELS)

    def add_up(j: int) -> None:
        mine, parts = gram[j], total[:, j, :q, :q]
        mine[:] = parts[0]
        for part in parts[1:]:
            np.add(mine, part, out=mine)
        if center.any():
            c, w, s = center.astype(np.float64), xw[:, j], sw[j]
            mine += np.multiply.outer(c, w - s * c) + np.multiply.outer(w, c)

    parallel = X.size > kernels.SERIAL
    kernels.share_rows(pack, blocks, X.size)
    kernels.share(add, segments * J, parallel)
    kernels.share(add_up, J, parallel)
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
def _add(data, W, ones, center, numbers, begin, end, first, last, weighted, total, columns, panels):
    """Write to total (classes, side, side), on and above the diagonal, the sums of classes first:last over some blocks.

    For no classes, write the pairs of numbers of these blocks to `numbers`, where they are taken from else. In
    `weighted` there is room for a block's pairs of a class's weighted numbers.
    """
    n, count, V, side = W.shape[1], data.shape[1], data.shape[3], total.shape[2]
    A, B = len(columns), len(panels)
    X, sums, none = (
        data.reshape(-1),
        total.reshape(-1),
        np.intp(0),
    )  # for a literal 0 a part is compiled again
    total[first:last] = 0.0
    for block in range(begin, end):
        start, x, right = block * ROWS, block * count * ROWS * V, numbers[block]
        rows = ROWS if n - start > ROWS else n - start
        pairs = (rows + 1) // 2
        if first == last:
            _pack(X, x, ones, none, rows, center, right)
        for c in range(first, last):
            _pack(X, x, W[c], start, rows, center, weighted)
            for p in range(count):
                for a in range(0, V, A):
                    here, t = p * pairs * V + a, (c * side + p * V + a) * side
                    for r in range(p, count - B + 1, B):
                        there, place = r * pairs * V, t + r * V
                        add_pair_tile(weighted, here, right, there, pairs, sums, place, side, columns, panels)
                    for r in range(count - (count - p) % B, count):
                        there, place = r * pairs * V, t + r * V
                        add_pair_tile(
                            weighted, here, right, there, pairs, sums, place, side, columns, panels[:1]
                        )
