"""HoG kernels for gradients on a bin's edge but for rounding: found, kept out of the sums, and added later.

scikit-image takes ``rad2deg(arctan2(g_row, g_col)) % 180`` and compares it with 180 / n * i, all in float64. Where the
true angle is within the rounding of these steps of an edge, only the same steps give the same bin. ``arctan2`` must
be NumPy's own: it may be another function than the C library's, in another last digit, depending on the processor.
So the kernels set such gradients aside, and NumPy takes their angles.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu.hog_gradients import ROWS, TILE
from pipeline.backends.cpu.jit import light_kernel, light_part

# Radians from an edge within which rounding may decide. scikit-image: arctan2 and the factor 180 / pi 4e-16 each, the
# product and % 180 2.5e-16 each, the edge 7e-16: 2e-15. The products below and the cotangents: 1e-15. Doubled.
NEAR = 4e-15
TOGETHER = 3  # edges in one sweep; their number is a multiple of it
TOO_LARGE = 1e37  # a cell whose magnitudes sum to more may overflow scikit-image's float32 sums
DEGREES = 180.0 / math.pi


@light_part
def count_near(line, columns, sines, cosines, distance):
    """Write each folded gradient's distance from the nearest edge, times its magnitude; return how many are near.

    An edge at an angle a from 0 to 90 degrees stands for 180 - a too. A gradient exactly on an axis or a diagonal
    is not near: scikit-image's angle is exact there.
    """
    distance[:TILE] = math.inf
    for k in range(0, sines.shape[0], TOGETHER):
        s0, s1, s2 = sines[k], sines[k + 1], sines[k + 2]
        c0, c1, c2 = cosines[k], cosines[k + 1], cosines[k + 2]
        for i in range(TILE):
            x, y = abs(line[i]), line[i + ROWS * TILE]
            d, d1, d2 = abs(x * s0 - y * c0), abs(x * s1 - y * c1), abs(x * s2 - y * c2)
            d = d1 if d1 < d else d
            d = d2 if d2 < d else d
            distance[i] = d if d < distance[i] else distance[i]
    near = 0
    for i in range(columns):
        x, y = abs(line[i]), line[i + ROWS * TILE]
        close = (distance[i] < NEAR * line[i + 2 * ROWS * TILE]) & (x > 0) & (y > 0) & (x != y)
        distance[i] = 1 if close else 0
        near += close
    return near


@light_part
def set_aside(padded, shape, row, first, columns, line, candidate, place, cell, aside):
    """Move the gradients of one tile row that are near an edge from `line` to the lists of `aside`.

    aside = (sines, cosines, distance, taken, where, x, y): of the edges, scratch (TILE,), the number set aside so
    far (1,), and per gradient the number of its cell in the chunk and the gradient, not folded. `place` is the number
    of the tile's first cell, shape (h, w) the image's; `padded` and `candidate` are as for `fast`. Returns how many
    magnitudes are too large for `add_late`.
    """
    sines, cosines, scratch, taken, where, x, y = aside
    if count_near(line, columns, sines, cosines, scratch) == 0:
        return 0
    height, width = shape
    start = 1 + row * width
    inside = 0 < row < height - 1
    limit = TOO_LARGE / (cell[0] * cell[1])
    large = 0
    n = taken[0]
    for i in range(columns):
        if scratch[i] > 0:
            large += not (line[i + 2 * ROWS * TILE] < limit)
            line[i + 2 * ROWS * TILE] = 0
            where[n] = place + i // cell[1]
            if padded is not None:
                k = first + i
                p = start + k
                x[n] = padded[p + 1] - padded[p - 1] if 0 < k < width - 1 else 0
                y[n] = padded[p + width] - padded[p - width] if inside else 0
            if candidate is not None:  # `strongest` has just left them there
                x[n] = candidate[i]
                y[n] = candidate[TILE + i]
            n += 1
    taken[0] = n
    return large


@light_part
def fold_angle(angle):
    """Return the angle of arctan2 as scikit-image's degrees from 0 to 180: 180 by rounding only, NaN for NaN."""
    degrees = angle * DEGREES
    if degrees == 180.0:
        return 0.0
    return degrees + 180.0 if degrees < 0 else degrees


@light_kernel
def add_late(where, x, y, angle, orientations, scale, squares, hist, sums):
    """Add the gradients set aside to hist (cells, orientations) and sums (cells,), at arctan2's `angle`."""
    width = 180.0 / orientations
    for i in range(where.shape[0]):
        degrees = fold_angle(angle[i])
        k = 0
        while k < orientations and degrees >= width * (k + 1):
            k += 1
        if k < orientations:  # else 180 degrees by rounding, which is in no bin
            v = np.sqrt(x[i] * x[i] + y[i] * y[i]) * scale
            before = hist[where[i], k]
            hist[where[i], k] = before + v
            sums[where[i]] += v * (2 * before + v) if squares else v
