"""The sums of single features, of all classes in one pass over X by register tiles."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, prepare
from pipeline.backends.cpu.tiles import ROWS, add_moment_tile, adjacent, lanes, moment_shape

STRIP = 256  # columns whose rows stay in the second-level cache while one set of classes after the other reads them
# Columns by which the cache lines of a row are asked for ahead of their use: the next row's are 13 kB further, and no
# processor guesses that.
AHEAD = 64


def weighted_moments(X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Return sum_i r_ij x_ik, sum_i w_ij x_ik and sum_i w_ij x_ik^2 with x = X - center, float64 (3, J, p).

    Parameters
    ----------
    X : (n, p) float32 or float64, rows of adjacent numbers
    center : (p,) in the dtype of X
    W, R : (n, J) in the dtype of X

    Notes
    -----
    Each ROWS rows are added in the dtype of X, and these sums in float64.
    """
    adjacent(X)
    (n, p), J = X.shape, W.shape[1]
    classes, V = moment_shape(J), lanes(X.dtype)
    size = len(classes)
    chunks = -(-J // size)
    weights = np.zeros((chunks, n, 2, size), dtype=X.dtype)
    for c in range(chunks):
        part = slice(c * size, min((c + 1) * size, J))
        weights[c, :, 0, : part.stop - part.start] = R[:, part]
        weights[c, :, 1, : part.stop - part.start] = W[:, part]
    panels = -(-p // V)
    shift = np.zeros(panels * V, dtype=X.dtype)
    shift[:p] = center
    bounds = [-(-n // ROWS) * i // kernels.SEGMENTS * ROWS for i in range(kernels.SEGMENTS)] + [n]
    totals: list[np.ndarray | None] = [None] * kernels.SEGMENTS
    shape = classes, (0,) * V
    prepare(_add_moments, X, shift, weights, 0, n, shape, np.zeros(1))

    def segment(i: int) -> None:
        if bounds[i] < bounds[i + 1]:
            total = totals[i] = np.empty(chunks * panels * 3 * size * V)
            _add_moments(X, shift, weights, bounds[i], bounds[i + 1], shape, total)

    kernels.share(segment, kernels.SEGMENTS, parallel=X.size > kernels.SERIAL)
    total, *others = [one for one in totals if one is not None]
    for one in others:
        total += one
    tiles = total.reshape(chunks, panels, 3, size, V).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(tiles).reshape(3, chunks * size, panels * V)[:, :J, :p]


@kernel
def _add_moments(X, shift, weights, begin, end, shape, total):
    total[:] = 0.0
    classes, lanes = shape
    C, V = len(classes), len(lanes)
    n, p = weights.shape[1], X.shape[1]
    flat = weights.reshape(-1)
    size, whole = 3 * C * V, p // V * V
    rest = np.zeros((ROWS, V), X.dtype)  # the last columns, filled up with zeros
    for start in range(begin, end, ROWS):
        m = min(ROWS, end - start)
        for first in range(0, whole, STRIP):
            for c in range(len(weights)):
                w, t = (c * n + start) * 2 * C, c * len(shift) // V
                for k in range(first, min(first + STRIP, whole), V):
                    later = min(k + AHEAD, p - 1) if c == 0 else k
                    tile = (t + k // V) * size
                    add_moment_tile(X, start, k, shift, flat, w, m, total, tile, classes, later)
        if whole < p:
            for i in range(m):
                for v in range(p - whole):
                    rest[i, v] = X[start + i, whole + v]
            for c in range(len(weights)):
                w, t = (c * n + start) * 2 * C, (c * len(shift) + whole) // V
                add_moment_tile(rest, 0, 0, shift[whole:], flat, w, m, total, t * size, classes, 0)
