"""HoG kernels from pixels to cell histograms: plain loops over one chunk of images, compiled by Numba.

Two ways to a histogram. The branch-free way keeps one accumulator row per orientation and lets the compiler work on
8 or 16 pixels at a time; it serves every image whose arithmetic is safe. The ordered way adds pixel by pixel as
scikit-image does, in float32 and in its order; it serves large cells (where scikit-image's rounding becomes visible),
NaN, infinities, overflow, and gradients that lie within rounding of a bin's edge.

The angle of a folded gradient is at least i bins when x <= cot(180 i / n) y. For integers up to 255 this one float32
product decides every pair as exact arithmetic does, ties included (see the tests); all other input is decided in
float64.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu.hog_gradients import (
    NEAR,
    ROWS,
    TILE,
    doubtful,
    fold,
    folded_gradient,
    gradient,
    strongest,
    vertical,
)
from pipeline.backends.cpu.jit import kernel, part

GROUP = 3  # orientation bins that are filled in one sweep
TOO_LARGE = 1e37  # a cell whose magnitudes sum to more may overflow scikit-image's float32 sums


@part
def accumulate(work, cot, acc):
    """Add the magnitudes of ROWS rows to their bins: acc (bins * TILE,), bins padded to a multiple of GROUP.

    The magnitudes in `work` are overwritten: after the sweep for thresholds up to i those of angles of at
    least i bins are left. Differences are taken pixel by pixel, where they are exact, and not between sums,
    where they would cancel. cot[i] is the cotangent of the upper edge of bin i; -inf for the last and for
    padding.
    """
    zero = work.dtype.type(0)
    for first in range(0, cot.shape[0], GROUP):
        c0, c1, c2 = cot[first], cot[first + 1], cot[first + 2]
        bins = acc[first * TILE : (first + GROUP) * TILE]
        for i in range(TILE):
            xa, xb, xc, xd = work[i], work[i + TILE], work[i + 2 * TILE], work[i + 3 * TILE]
            ya, yb, yc, yd = work[i + 4 * TILE], work[i + 5 * TILE], work[i + 6 * TILE], work[i + 7 * TILE]
            a, b, c, d = work[i + 8 * TILE], work[i + 9 * TILE], work[i + 10 * TILE], work[i + 11 * TILE]
            e = a if xa <= c0 * ya else zero
            f = b if xb <= c0 * yb else zero
            g = c if xc <= c0 * yc else zero
            h = d if xd <= c0 * yd else zero
            bins[i] += ((a - e) + (b - f)) + ((c - g) + (d - h))
            a = e if xa <= c1 * ya else zero
            b = f if xb <= c1 * yb else zero
            c = g if xc <= c1 * yc else zero
            d = h if xd <= c1 * yd else zero
            bins[i + TILE] += ((e - a) + (f - b)) + ((g - c) + (h - d))
            e = a if xa <= c2 * ya else zero
            f = b if xb <= c2 * yb else zero
            g = c if xc <= c2 * yc else zero
            h = d if xd <= c2 * yd else zero
            bins[i + 2 * TILE] += ((a - e) + (b - f)) + ((c - g) + (d - h))
            work[i + 8 * TILE] = e
            work[i + 9 * TILE] = f
            work[i + 10 * TILE] = g
            work[i + 11 * TILE] = h


@part
def fold_columns(acc, cell_cols, orientations, scale, squares, cells, sums):
    """Sum the columns of each cell of a tile: acc (bins * TILE,) to cells (cells * orientations,), scaled.

    sums (cells,) receives the sum of each cell's bins, or of their squares.
    """
    t = cells.dtype.type
    sums[:] = 0
    for k in range(orientations):
        line = acc[k * TILE : (k + 1) * TILE]
        for c in range(sums.shape[0]):
            p = line[c * cell_cols : (c + 1) * cell_cols]
            if cell_cols == 8:  # the usual size, written out so that it becomes vector adds
                total = ((p[0] + p[4]) + (p[1] + p[5])) + ((p[2] + p[6]) + (p[3] + p[7]))
            else:
                total = t(0)
                for i in range(cell_cols):
                    total += p[i]
            total *= scale
            cells[c * orientations + k] = total
            sums[c] += total * total if squares else total


@part
def tile_rows(pixels, padded, top, rows, first, columns, work, candidate):
    """Fill `work` with one tile's folded gradients of `rows` image rows from `top`; zeros up to ROWS."""
    height, width = pixels.shape[1], pixels.shape[2]
    for k in range(rows):
        row = top + k
        line = work[k * TILE :]
        if candidate is not None:
            x, y = line[:columns], line[ROWS * TILE : ROWS * TILE + columns]
            strongest(pixels, row, first, x, y, candidate)
            fold(x, y, line[2 * ROWS * TILE : 2 * ROWS * TILE + columns])
            continue
        at = row * width + first  # `padded` begins with one pixel that is not the image's
        above = at if row == 0 or row == height - 1 else at - width
        below = at if row == 0 or row == height - 1 else at + width
        stop = TILE + 2
        folded_gradient(
            padded[above : above + stop], padded[at : at + stop], padded[below : below + stop], line
        )
        if first == 0:
            vertical(line, first)
        if first + columns >= width:
            vertical(line, width - 1 - first)
    for k in range(rows, ROWS):
        for line in (k, ROWS + k, 2 * ROWS + k):
            work[line * TILE : (line + 1) * TILE] = 0


@part
def histograms(pixels, padded, cell, orientations, cot, work, candidate, acc, squares, hist, sums, limit):
    """Fill hist (cell rows, cell cols * orientations) and sums of one image (c, h, w) the branch-free way.

    Returns whether the ordered way is needed instead: a cell value is not below `limit`, or a gradient is
    within rounding of an edge. `limit` is None where neither can be. `padded` is the image once more, flat,
    in F, with one pixel before and TILE behind. `candidate` is None for grayscale. (Branches on None are
    compiled only where taken.)
    """
    t = hist.dtype.type
    n_cells = hist.shape[1] // orientations
    per_tile = TILE // cell[1]
    scale = t(1) / t(cell[0] * cell[1])
    near = 0
    for r in range(hist.shape[0]):
        for c in range(0, n_cells, per_tile):
            cells = min(per_tile, n_cells - c)
            columns = cells * cell[1]
            acc[:] = 0
            for k in range(0, cell[0], ROWS):
                rows = min(ROWS, cell[0] - k)
                tile_rows(pixels, padded, r * cell[0] + k, rows, c * cell[1], columns, work, candidate)
                if limit is not None:
                    for p in range(0, rows * TILE, TILE):
                        near += doubtful(
                            work[p : p + columns], work[p + ROWS * TILE : p + ROWS * TILE + columns]
                        )
                accumulate(work, cot, acc)
            line = hist[r, c * orientations : (c + cells) * orientations]
            fold_columns(
                acc,
                cell[1],
                orientations,
                scale,
                squares,
                line,
                sums[r * n_cells + c : r * n_cells + c + cells],
            )
    if limit is not None:
        for r in range(hist.shape[0]):
            for i in range(hist.shape[1]):
                near += not (hist[r, i] < limit)
    return near > 0


@part
def bin_of(x, y, orientations):
    """Return the bin by scikit-image's formula, -1 where rounding leaves none, -2 for NaN (all bins)."""
    angle = np.rad2deg(math.atan2(y, x)) % 180.0
    if math.isnan(angle):
        return -2
    width = 180.0 / orientations
    for k in range(orientations):
        if width * k <= angle < width * (k + 1):
            return k
    return -1


@part
def vote(total, x, y, cot, orientations):
    """Add one gradient, not folded, to the float32 sums `total` (orientations,) of its cell."""
    m = math.sqrt(x * x + y * y)
    a, b = abs(x), abs(y)
    low, high = min(a, b), max(a, b)
    tight = NEAR * high
    if not (m < math.inf) or (0 < low < tight) or (0 < high - low < tight):
        k = bin_of(x, y, orientations)
        m = math.hypot(x, y)
    else:
        sign = -1.0 if y < 0 or (y == 0 and x < 0) else 1.0
        k = 0
        for i in range(orientations - 1):
            k += x * sign <= cot[i] * b
    if k >= 0:
        total[k] = np.float32(total[k] + m)
    elif k == -2:
        for i in range(orientations):
            total[i] = np.float32(total[i] + m)


@part
def vote_row(x, y, m, bins, cell_cols, cot, total):
    """Add the folded gradients of one row, none of them doubtful, to total (cells, orientations)."""
    bins[:] = 0
    for k in range(total.shape[1] - 1):
        edge = cot[k]
        for i in range(x.shape[0]):
            bins[i] += 1 if x[i] <= edge * y[i] else 0
    # neighbouring votes go to different cells, so that no addition waits for the one before it
    for i in range(cell_cols):
        for c in range(total.shape[0]):
            p = c * cell_cols + i
            k = bins[p]
            total[c, k] = np.float32(total[c, k] + m[p])


@part
def ordered_row(pixels, row, cell_cols, orientations, cot, rows, bins, candidate, total):
    """Add the votes of one image row to total (cells, orientations), in scikit-image's order."""
    x, y, m = rows[0], rows[1], rows[2]
    for attempt in range(2):
        if candidate is None:
            gradient(pixels[0], row, 0, x, y)
        else:
            for t in range(0, x.shape[0], TILE):
                strongest(pixels, row, t, x[t : t + TILE], y[t : t + TILE], candidate)
        if attempt == 1:
            for p in range(x.shape[0]):
                vote(total[p // cell_cols], x[p], y[p], cot, orientations)
            return
        fold(x, y, m)
        doubt = doubtful(x, y)
        for i in range(x.shape[0]):
            doubt += not (m[i] < math.inf)
        if doubt == 0:
            vote_row(x, y, m, bins, cell_cols, cot, total)
            return


@part
def ordered_histograms(pixels, cell, orientations, cot, rows, bins, candidate, total, squares, hist, sums):
    """Fill hist (cell rows, cell cols * orientations) and sums by float32 sums in scikit-image's order."""
    n_cells = hist.shape[1] // orientations
    area = np.float32(cell[0] * cell[1])
    for r in range(hist.shape[0]):
        total[:] = 0
        for row in range(r * cell[0], (r + 1) * cell[0]):
            ordered_row(pixels, row, cell[1], orientations, cot, rows, bins, candidate, total)
        for c in range(n_cells):
            sums[r * n_cells + c] = 0
            for k in range(orientations):
                v = np.float64(total[c, k] / area)
                hist[r, c * orientations + k] = v
                sums[r * n_cells + c] += v * v if squares else v


@part
def convert(source, target):
    """Copy one flat array to another of a wider type."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@kernel
def fast(
    images, flat, padded, cell, orientations, cot, work, candidate, acc, squares, limit, hist, sums, redo
):
    """Histograms of a chunk, images (n, c, h, w) to hist (n, cell rows, cell cols * orientations).

    sums (n, cells) receives the sum of each cell's bins, or of their squares; redo[i] asks for `ordered` instead.
    `flat` is `images` as (n, c * h * w).
    """
    for i in range(images.shape[0]):
        if candidate is None:
            convert(flat[i], padded[1:])
        redo[i] = histograms(
            images[i], padded, cell, orientations, cot, work, candidate, acc, squares, hist[i], sums[i], limit
        )


@kernel
def ordered(images, cell, orientations, cot, rows, bins, candidate, total, squares, hist, sums, redo):
    """As `fast`, for those images of a chunk where `redo` is set."""
    for i in range(images.shape[0]):
        if redo[i]:
            ordered_histograms(
                images[i], cell, orientations, cot, rows, bins, candidate, total, squares, hist[i], sums[i]
            )
