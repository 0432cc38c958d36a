"""The sums of single features, of all classes in one pass over X by register tiles."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, prepare
from pipeline.backends.cpu.tiles import ROWS, add_moment_tile, adjacent, lanes, moment_shape

STRIP = 8  # panels of a task: of 3240 columns there are 26 tasks, and rows of a strip stay in the second-level cache
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
    strips = -(-panels // STRIP)
    segments = (
        kernels.SEGMENTS if strips < kernels.SEGMENTS else 1
    )  # of rows, where columns are too few to share out
    bounds = [-(-n // ROWS) * i // segments * ROWS for i in range(segments)] + [n]
    total = np.empty((segments, chunks, panels * 3 * size * V))
    shape = classes, (0,) * V
    prepare(_add_moments, X, shift, weights, 0, n, 0, 0, shape, total[0])

    def task(i: int) -> None:
        segment, strip = divmod(i, strips)
        part = strip * STRIP, min(panels, (strip + 1) * STRIP)
        _add_moments(X, shift, weights, bounds[segment], bounds[segment + 1], *part, shape, total[segment])

    kernels.share(task, segments * strips, parallel=X.size > kernels.SERIAL)
    found = total[0] if segments == 1 else np.add.reduce(total)
    tiles = found.reshape(chunks, panels, 3, size, V).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(tiles).reshape(3, chunks * size, panels * V)[:, :J, :p]


@kernel
def _add_moments(X, shift, weights, begin, end, first, last, shape, total):
    """Write the sums over rows begin:end of the panels first:last to total (chunks, panels * numbers of a tile)."""
    classes, lanes = shape
    C, V = len(classes), len(lanes)
    n, p, size = weights.shape[1], X.shape[1], 3 * C * V
    flat, numbers = weights.reshape(-1), total.reshape(-1)
    rest = np.zeros((ROWS, V), X.dtype)  # the last columns, filled up with zeros
    full = min(last, p // V)
    total[:, first * size : last * size] = 0.0
    for start in range(begin, end, ROWS):
        m = min(ROWS, end - start)
        for c in range(len(weights)):
            w, t = (c * n + start) * 2 * C, c * total.shape[1]
            for panel in range(first, full):
                i, later = start, panel * V + AHEAD if c == 0 else panel * V
                if later >= last * V:
                    i, later = start + ROWS, later + (first - last) * V
                place = t + panel * size
                add_moment_tile(X, start, panel * V, shift, flat, w, m, numbers, place, classes, i, later)
        if full < last:
            for i in range(m):
                for v in range(p - full * V):
                    rest[i, v] = X[start + i, full * V + v]
            for c in range(len(weights)):
                w, place = (c * n + start) * 2 * C, c * total.shape[1] + full * size
                add_moment_tile(rest, 0, 0, shift[full * V :], flat, w, m, numbers, place, classes, 0, 0)
