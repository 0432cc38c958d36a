"""Random Fourier features cos(x'R + b): drawn, multiplied and written in panels, a few rows at a time.

Drawing R, 3240 x 512, took 18.5 ms of a round on two threads with the library's functions and takes 3.6 with those
of ``vector_functions.py``. The product is that of register tiles: no number of X R is stored before its cosine is.
"""

from __future__ import annotations

import numpy as np

from pipeline.backends import host, philox
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import light_kernel, prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.tiles import add_gram_tile, gram_shape, square, whole_panels
from pipeline.backends.cpu.vector_functions import TOGETHER, convert, draw_normal, write_cosines
from pipeline.backends.cpu.vectors import ROWS, adjacent, lanes, pack_transposed

# Rows and columns whose sums are in the second-level cache together, half of it, and terms that are added in the
# precision of the rows, at most, before their sum is, in float64.
UNIT, WIDTH, DEPTH = 128, 512, 512


@light_kernel
def _draw(data, q, scale, key0, key1, index, numbers, begin, end):
    """Write rows begin:end of a matrix (p, q) of normal numbers to panels (panels, p, V)."""
    panels, p, V = data.shape
    flat = data.reshape(-1)
    for k in range(begin, end):
        block = k * q >> 2
        unused = k * q - 4 * block
        for i in range(0, unused + q, 4 * TOGETHER):
            draw_normal(numbers, i, block + (i >> 2), key0, key1, index, scale)
        for c in range(panels):
            convert(numbers, unused + c * V, flat, (c * p + k) * V)


@light_kernel
def _write(X, first, groups, center, right, a, b, phase, kept, bounds, left, total, out, o, shape):
    """Write cos((X - center) R + phase) of `groups` times V rows to panels a:b of a block; return whether all could be.

    Parameters
    ----------
    first : first of the rows
    right : flat, R in panels (panels, p, V)
    phase, kept : float64 (panels * V,); kept is 0 beyond the last column, else 1
    bounds : of the columns of X whose products are added in the precision of X
    left, total : room for DEPTH columns of the rows, and zeros for their products with whole tiles of panels, (tiles,
        rows, panels of a tile, V); these are left there
    out, o : flat, and the place of the first number in panel a
    shape : of a tile, see :func:`pipeline.backends.cpu.tiles.gram_shape`
    """
    (n, p), far, at = X.shape, False, 0
    A, B, V = len(shape[1]), len(shape[2]), len(shape[3])
    for part in range(len(bounds) - 1):
        k = bounds[part]
        depth, t = bounds[part + 1] - k, 0
        for g in range(groups):
            for j in range(0, depth, V):  # the last vector may begin within the one before
                at = j if j < depth - V else depth - V
                pack_transposed(X, first + g * V, n - 1, k + at, center, left, (g * depth + at) * V)
        for c in range(a, b, B):
            whole, x = V if b - c >= B else 0, (c * p + k) * V
            for g in range(groups):
                i = g * depth * V
                for v in range(0, whole, A):
                    add_gram_tile(left, i + v, right, x, p * V, center, 0, depth, total, t, B * V, shape)
                    t += A * B * V
                for m in range(0 if whole else b - c):  # the last panels, fewer than a tile's
                    right_m = x + m * p * V
                    add_gram_tile(
                        left, i, right, right_m, 0, center, 0, depth, total, t + m * V, B * V, square(X)
                    )
                t += 0 if whole else V * B * V
    t = 0
    for c in range(a, b, B):
        for m in range(B if b - c >= B else b - c):
            for i in range(groups * V):
                far |= write_cosines(total, t + (i * B + m) * V, phase, (c + m) * V, kept, out, o + i * V)
            o += ROWS * V
        t += groups * V * B * V
    return not far


def normal_panels(p: int, q: int, scale: float, seed: int, index: int, dtype: np.dtype) -> np.ndarray:
    """Return scale * N(0, 1), a matrix (p, q), as panels (panels, p, V), zeros beyond the last column.

    The numbers are those of :func:`pipeline.backends.philox.normal`, to their last digit or two.
    """
    V = lanes(np.dtype(dtype))
    data = np.empty((-(-q // V), p, V), dtype)
    words = tuple(map(np.uint64, (*philox.split_seed(seed), index)))

    def rows(begin: int, end: int) -> None:
        numbers = np.empty(4 + len(data) * V + 4 * TOGETHER)
        _draw(data, q, scale, *words, numbers, begin, end)

    prepare(_draw, data, q, scale, *words, np.empty(0), 0, 0)
    kernels.share_rows(rows, p, 4 * data.size)
    data[q // V :, :, q % V :] = 0
    return data


def features(X: np.ndarray, center: np.ndarray, R: np.ndarray, phase: np.ndarray) -> Panels:
    """Return cos((X - center) R + phase), in the dtype of X; each row's numbers depend on no other row.

    Parameters
    ----------
    X : (n, p) float32 or float64, rows of adjacent numbers
    center : (p,)
    R : (panels, p, V), see :func:`normal_panels`
    phase : (q,)
    """
    adjacent(X)
    n, q, (panels, p, V) = len(X), phase.size, R.shape
    center = center.astype(X.dtype, copy=False)
    if p < V:  # a vector is loaded at once
        X, center = np.pad(X, ((0, 0), (0, V - p))), np.pad(center, (0, V - p))
        R = np.pad(R, ((0, 0), (0, V - p), (0, 0)))
    wide, kept = np.zeros(panels * V), np.zeros(panels * V)
    wide[:q], kept[:q] = phase, 1.0
    found = Panels(host.empty((-(-n // ROWS), whole_panels(q, X.dtype), ROWS, V), X.dtype), (n, q))
    found.data[:, panels:] = 0
    parts, shape = -(-X.shape[1] // DEPTH), gram_shape(1, X.dtype)
    together = len(shape[2])
    bounds = np.array([X.shape[1] * i // max(parts, 1) for i in range(parts + 1)], np.intp)
    right, out, most = R.reshape(-1), found.data.reshape(-1), WIDTH // V

    def unit(i: int) -> None:
        first = i * UNIT
        rows = -(-min(UNIT, n - first) // V) * V
        left = np.empty(rows * DEPTH, X.dtype)
        for a in range(0, panels, most):
            b = min(a + most, panels)
            total = np.zeros(-(-(b - a) // together) * together * rows * V)
            o = ((first // ROWS * found.data.shape[1] + a) * ROWS + first % ROWS) * V
            given = center, right, a, b, wide, kept, bounds, left, total, out, o, shape
            if not _write(X, first, rows // V, *given):
                sums = total.reshape(-1, rows, together, V).transpose(0, 2, 1, 3).reshape(-1, rows, V)
                angles = sums[: b - a] + wide[a * V : b * V].reshape(-1, 1, V)
                values = np.cos(angles) * kept[a * V : b * V].reshape(-1, 1, V)
                found.data[first // ROWS, a:b, first % ROWS : first % ROWS + rows] = values

    nothing = np.zeros(0, X.dtype), np.zeros(0)
    prepare(_write, X, 0, 0, center, right, 0, 0, wide, kept, bounds, *nothing, out, 0, shape)
    kernels.share(unit, -(-n // UNIT), n * R.size > kernels.SERIAL)
    return found
