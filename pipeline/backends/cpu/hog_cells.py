"""HoG kernels from pixels to cell histograms: plain loops over one chunk of images, compiled by Numba.

Two ways to a histogram. The branch-free way keeps one accumulator row per orientation and lets the compiler work on
8 or 16 pixels at a time; it serves every image whose arithmetic is safe. The ordered way (see ``hog_ordered``) adds
pixel by pixel as scikit-image does, in float32 and in its order; it serves large cells (where scikit-image's rounding
becomes visible), NaN, infinities and overflow.

The angle of a folded gradient is at least i bins when x <= cot(180 i / n) y. For integers up to 255 this one float32
product, and for integers of 16 bits one float64 product, decides every pair as exact arithmetic does, ties included
(see the tests). Other gradients may lie so close to an edge that scikit-image's rounding decides: those are set aside
(see ``hog_doubts``).
"""

from __future__ import annotations

from pipeline.backends.cpu.hog_doubts import TOO_LARGE, set_aside
from pipeline.backends.cpu.hog_fold import fold_columns
from pipeline.backends.cpu.hog_gradients import ROWS, TILE, fold, folded_gradient, strongest, vertical
from pipeline.backends.cpu.jit import light_kernel, light_part

GROUP = 3  # orientation bins that are filled in one sweep


@light_part
def accumulate(work, cot, acc):
    """Add the magnitudes of ROWS rows to their bins: acc (bins * TILE,), bins padded to a multiple of GROUP.

    The magnitudes in `work` are overwritten: after the sweep for thresholds up to i those of angles of at
    least i bins are left. Differences are taken pixel by pixel, where they are exact, and not between sums,
    where they would cancel. cot[i] is the cotangent of the upper edge of bin i; -inf for the last and for
    padding.
    """
    zero = work.dtype.type(0)
    none = -zero  # added to anything, -0 leaves it as it is: no addition is compiled
    for first in range(0, cot.shape[0], GROUP):
        c0, c1, c2 = cot[first], cot[first + 1], cot[first + 2]
        bins = acc[first * TILE : (first + GROUP) * TILE]
        for i in range(TILE):
            s0 = s1 = s2 = none
            for pair in range(
                0, ROWS, 2
            ):  # in loops, which the compiler unrolls: a quarter as much to compile
                d0 = d1 = d2 = none
                for j in range(i + pair * TILE, i + (pair + 2) * TILE, TILE):
                    x, y, m = work[j], work[j + ROWS * TILE], work[j + 2 * ROWS * TILE]
                    a = m if x <= c0 * y else zero
                    b = a if x <= c1 * y else zero
                    c = b if x <= c2 * y else zero
                    d0 += m - a
                    d1 += a - b
                    d2 += b - c
                    work[j + 2 * ROWS * TILE] = c
                s0 += d0
                s1 += d1
                s2 += d2
            bins[i] += s0
            bins[i + TILE] += s1
            bins[i + 2 * TILE] += s2


@light_part
def tile_row(pixels, padded, row, first, columns, line, candidate):
    """Write one tile's folded gradients of one image row to `line`, the row's place in the work space."""
    height, width = pixels.shape[1], pixels.shape[2]
    if candidate is not None:
        x, y = line[:columns], line[ROWS * TILE : ROWS * TILE + columns]
        strongest(pixels, row, first, x, y, candidate)
        fold(x, y, line[2 * ROWS * TILE : 2 * ROWS * TILE + columns])
    if padded is not None:
        at = row * width + first  # `padded` begins with one pixel that is not the image's
        above = at if row == 0 or row == height - 1 else at - width
        below = at if row == 0 or row == height - 1 else at + width
        stop = TILE + 2
        mid = padded[at : at + stop]
        folded_gradient(padded[above : above + stop], mid, padded[below : below + stop], line)
        if first == 0:
            vertical(line, first)
        if first + columns >= width:
            vertical(line, width - 1 - first)


@light_part
def tile_rows(pixels, padded, top, first, columns, cell, cot, work, candidate, acc, aside, place):
    """Add the gradients of one tile of a row of cells to acc the general way; return how many are too large.

    `top` and `first` are the tile's first row and column, `place` the number of its first cell in the chunk.
    """
    large = 0
    for k in range(0, cell[0], ROWS):
        rows = ROWS if k + ROWS < cell[0] else cell[0] - k
        for row in range(rows):
            line = work[row * TILE :]
            tile_row(pixels, padded, top + k + row, first, columns, line, candidate)
            if aside is not None:
                at = top + k + row
                large += set_aside(
                    padded, pixels.shape[1:], at, first, columns, line, candidate, place, cell, aside
                )
        for row in range(rows, ROWS):
            for p in (row, ROWS + row, 2 * ROWS + row):
                work[p * TILE : (p + 1) * TILE] = 0
        accumulate(work, cot, acc)
    return large


@light_part
def convert(source, target):
    """Copy one flat array to another of a wider type."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@light_part
def too_large(hist, cell):
    """Return whether a cell's value of an image (cell rows, cell cols * orientations) is not below TOO_LARGE / area."""
    limit = TOO_LARGE / (cell[0] * cell[1])
    large = 0
    for r in range(hist.shape[0]):
        for i in range(hist.shape[1]):
            large += not (hist[r, i] < limit)
    return large > 0


@light_kernel
def fast(
    images,
    flat,
    padded,
    cell,
    orientations,
    cot,
    work,
    candidate,
    acc,
    squares,
    hist,
    sums,
    aside,
    redo,
):
    """Histograms of a chunk, images (n, c, h, w) to hist (n, cell rows, cell cols * orientations).

    sums (n, cells) receives the sum of each cell's bins, or of their squares; redo[i] asks for `ordered` instead: a
    magnitude or a cell value is not below TOO_LARGE / cell area. `flat` is `images` as (n, c * h * w), `padded` work
    space for one image in F, flat, with one pixel before and TILE behind, and None for colour. `aside` is what
    `set_aside` needs, or None where no gradient can be in doubt; gradients in doubt are missing from hist and sums.
    `candidate` is None for grayscale. (Branches for what is None are not compiled; others are, taken or not.)
    """
    t = hist.dtype.type
    n_cells = hist.shape[2] // orientations
    per_tile = TILE // cell[1]
    scale = t(1) / t(cell[0] * cell[1])
    for i in range(images.shape[0]):
        if padded is not None:
            convert(flat[i], padded[1:])
        large = 0
        for r in range(hist.shape[1]):
            for c in range(0, n_cells, per_tile):
                cells = per_tile if c + per_tile < n_cells else n_cells - c
                here = r * n_cells + c
                acc[:] = 0
                large += tile_rows(
                    images[i],
                    padded,
                    r * cell[0],
                    c * cell[1],
                    cells * cell[1],
                    cell,
                    cot,
                    work,
                    candidate,
                    acc,
                    aside,
                    i * sums.shape[1] + here,
                )
                line = hist[i, r, c * orientations : (c + cells) * orientations]
                fold_columns(acc, cell[1], orientations, scale, squares, line, sums[i, here : here + cells])
        redo[i] = large > 0
        if aside is not None:
            redo[i] = redo[i] or too_large(hist[i], cell)
