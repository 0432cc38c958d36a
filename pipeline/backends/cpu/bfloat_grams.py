"""Weighted Gram matrices of numbers in bfloat16: in half the time, to three digits, for fits that are refined."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.bfloat_tiles import add_pair_tile, pack_pairs
from pipeline.backends.cpu.jit import light_kernel, light_part, prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.vectors import BYTES, ROWS

SEGMENTS = 4  # parts into which rows are cut, if their sums are small enough
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
    q, J = X.shape[1], W.shape[1]
    blocks, panels, _, V = X.data.shape
    size = panels * (panels + 1) // 2 * V * V
    segments = max(1, min(SEGMENTS, SUMS // (4 * size * J), blocks))
    groups = min(J, -(-TASKS // segments))
    rows = [blocks * i // segments for i in range(segments + 1)]
    classes = [J * i // groups for i in range(groups + 1)]
    total, gram = np.empty((segments, J, size), np.float32), np.zeros((J, q, q))
    middle = np.zeros(panels * V, np.float32)
    middle[:q] = center
    given = X.data, np.ascontiguousarray(W.T), np.ones(ROWS, np.float32), middle
    prepare(_add, *given, 0, 0, 0, 0, *np.empty((2, 1), np.float32), total[0], COLUMNS, PANELS)
    prepare(_place, total, gram, 0, V)

    def add(i: int) -> None:
        s, g = divmod(i, groups)
        room = np.empty((2, panels * ROWS // 2 * V), np.float32)
        _add(*given, rows[s], rows[s + 1], classes[g], classes[g + 1], *room, total[s], COLUMNS, PANELS)

    kernels.share(add, segments * groups, parallel=X.size > kernels.SERIAL)
    kernels.share(lambda j: _place(total, gram, j, V), J, parallel=total.size > kernels.SERIAL)
    if center.any():
        c = center.astype(np.float64)
        for j in range(J):
            gram[j] += np.multiply.outer(c, xw[:, j] - sw[j] * c) + np.multiply.outer(xw[:, j], c)
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
def _add(data, W, ones, center, begin, end, first, last, left, right, total, columns, panels):
    """Write to total (classes, numbers) the tiles of classes first:last, summed over blocks begin:end.

    In `left` and `right` there is room for a block's pairs: of a class's weighted numbers, and of numbers.
    """
    n, count, V = W.shape[1], data.shape[1], data.shape[3]
    A, B = len(columns), len(panels)
    X, sums, tile = data.reshape(-1), total.reshape(-1), V * V
    size = total.shape[1]
    total[first:last] = 0.0
    for block in range(begin, end):
        start, x = block * ROWS, block * count * ROWS * V
        rows = ROWS if n - start > ROWS else n - start
        pairs = (rows + 1) // 2
        steps = pairs * V, tile
        _pack(X, x, ones, 0, rows, center, right)
        for c in range(first, last):
            _pack(X, x, W[c], start, rows, center, left)
            t = c * size
            for p in range(count):
                for a in range(0, V, A):
                    here, there = p * pairs * V + a, t + a * V
                    for r in range(p, count - B + 1, B):
                        place = there + (r - p) * tile
                        add_pair_tile(
                            left, here, right, r * steps[0], pairs, steps, sums, place, columns, panels
                        )
                    for r in range(count - (count - p) % B, count):
                        place = there + (r - p) * tile
                        add_pair_tile(
                            left, here, right, r * steps[0], pairs, steps, sums, place, columns, panels[:1]
                        )
                t += (count - p) * tile


@light_kernel
def _place(total, gram, c, V):
    """Write the sums of all segments of a class to its Gram matrix, on its diagonal panels also below the diagonal."""
    q, t = gram.shape[1], 0
    panels = (q + V - 1) // V
    for p in range(panels):
        for r in range(p, panels):
            here = V if q - r * V > V else q - r * V
            for k in range(V if q - p * V > V else q - p * V):
                row, begin = gram[c, p * V + k], t + k * V
                for s in range(total.shape[0]):
                    sums = total[s, c]
                    for v in range(here):
                        row[r * V + v] += sums[begin + v]
            t += V * V
