"""HoG kernels that add pixel by pixel, in float32 and in scikit-image's order."""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu.hog_doubts import fold_angle
from pipeline.backends.cpu.hog_gradients import TILE, fold, gradient, strongest
from pipeline.backends.cpu.jit import hypot, light_kernel, light_part


@light_kernel
def gradients(gray, images, candidate, x, y):
    """Gradients of `gray` (n, h, w) or `images` (n, c, h, w), the other None.

    x, y (n, rows of whole cells, columns of whole cells) are not folded. `candidate` is as for `fast`. (Branches for
    what is None are not compiled.)
    """
    for i in range(x.shape[0]):
        for row in range(x.shape[1]):
            if gray is not None:
                gradient(gray[i], row, 0, x[i, row], y[i, row])
            if candidate is not None:
                for first in range(0, x.shape[2], TILE):
                    part_of = slice(first, first + TILE)
                    strongest(images[i], row, first, x[i, row, part_of], y[i, row, part_of], candidate)


@light_part
def bins_by_edges(x, y, cot, orientations, bins):
    """Count the edges that folded gradients have reached, by exact products."""
    bins[:] = 0
    for k in range(orientations - 1):
        edge = cot[k]
        for i in range(x.shape[0]):
            bins[i] += 1 if x[i] <= edge * y[i] else 0


@light_part
def bins_by_angle(angle, orientations, bins):
    """Count the edges at or below arctan2's `angle`; `orientations` (no bin) for 180, -1 (all bins) for NaN."""
    width = 180.0 / orientations
    for i in range(angle.shape[0]):
        degrees = fold_angle(angle[i])
        angle[i] = degrees
        bins[i] = -1 if math.isnan(degrees) else 0
    for k in range(1, orientations + 1):
        edge = width * k
        for i in range(angle.shape[0]):
            bins[i] += 1 if angle[i] >= edge else 0


@light_part
def vote_row(m, bins, cell_cols, total):
    """Add the magnitudes of one row to total (cells, orientations)."""
    orientations = total.shape[1]
    # neighbouring votes go to different cells, so that no addition waits for the one before it
    for i in range(cell_cols):
        for c in range(total.shape[0]):
            p = c * cell_cols + i
            k = bins[p]
            if 0 <= k < orientations:
                total[c, k] = np.float32(total[c, k] + m[p])
            elif k < 0:
                for j in range(orientations):
                    total[c, j] = np.float32(total[c, j] + m[p])


@light_kernel
def ordered(x, y, angle, which, cell, orientations, cot, m, bins, total, squares, hist, sums):
    """Fill hist (n, cell rows, cell cols * orientations) and sums (n, cells) of the images numbered `which`.

    x, y (images, rows, columns) are `gradients`, which are overwritten; `angle` is their arctan2, or None where exact
    products with `cot` decide, which is None elsewhere. total (cell cols, orientations) float32, m and bins (columns,)
    are work space.
    """
    area = np.float32(cell[0] * cell[1])
    n_cells = total.shape[0]
    for image in range(which.shape[0]):
        i = which[image]
        for r in range(hist.shape[1]):
            total[:] = 0
            for row in range(r * cell[0], (r + 1) * cell[0]):
                gx, gy = x[image, row], y[image, row]
                fold(gx, gy, m)
                if cot is not None:
                    bins_by_edges(gx, gy, cot, orientations, bins)
                if angle is not None:
                    bins_by_angle(angle[image, row], orientations, bins)
                    for p in range(m.shape[0]):
                        if not (m[p] < math.inf):  # hypot may be finite, or infinite beside NaN
                            m[p] = hypot(gx[p], gy[p])
                vote_row(m, bins, cell[1], total)
            for c in range(n_cells):
                sums[i, r * n_cells + c] = 0
                for k in range(orientations):
                    v = np.float64(total[c, k] / area)
                    hist[i, r, c * orientations + k] = v
                    sums[i, r * n_cells + c] += v * v if squares else v
