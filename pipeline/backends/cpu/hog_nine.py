"""The default's own way from 8-bit pixels to cell histograms: nine orientations, gradients never leave the registers.

The edges of nine bins lie symmetrically about 90 degrees, so that four comparisons of |x| and y place a gradient on
either side; none of their cotangents is rational, so that no pair of integers lies on an edge. Gradients of images
that are reflected about their border pixels vanish there by themselves: no row or column is a special case. Together
a fifth faster than the general way (``hog_cells.accumulate``).
"""

from __future__ import annotations

import math

from pipeline.backends.cpu.hog_fold import fold_columns
from pipeline.backends.cpu.hog_gradients import ROWS, TILE
from pipeline.backends.cpu.jit import light_kernel, light_part

ORIENTATIONS = 9


@light_part
def reflect(source, height, width, target):
    """Copy an image, flat (h * w,), to `target` with one more pixel on each side, rows of width + 2.

    The pixel outside equals the one inside the border, so that centred differences are 0 on the border.
    """
    stride = width + 2
    second, last_but_one = 1 if height > 1 else 0, height - 2 if height > 1 else 0
    left, right = 1 if width > 1 else 0, width - 2 if width > 1 else 0
    for r in range(height + 2):
        row = second if r == 0 else last_but_one if r == height + 1 else r - 1
        line = source[row * width : (row + 1) * width]
        out = target[r * stride : (r + 1) * stride]
        for i in range(width):
            out[i + 1] = line[i]
        out[0] = line[left]
        out[width + 1] = line[right]


@light_part
def accumulate_nine(pixels, stride, cot, acc):
    """Add the gradients of ROWS rows to acc (9 * TILE,): bins 0 to 8 of TILE columns each.

    `pixels` begins one row above and one column left of the first pixel; its rows are `stride` apart.
    """
    t = acc.dtype.type
    zero = t(0)
    c0, c1, c2, c3 = cot[0], cot[1], cot[2], cot[3]
    wide = TILE + 2
    rows = (
        pixels[0:wide],
        pixels[stride : stride + wide],
        pixels[2 * stride : 2 * stride + wide],
        pixels[3 * stride : 3 * stride + wide],
        pixels[4 * stride : 4 * stride + wide],
        pixels[5 * stride : 5 * stride + wide],
    )
    for i in range(TILE):
        p0 = p1 = p2 = p3 = middle = n0 = n1 = n2 = n3 = zero
        for r in range(ROWS):
            a = rows[r + 1][i + 2] - rows[r + 1][i]
            b = rows[r + 2][i + 1] - rows[r][i + 1]
            m = math.sqrt(a * a + b * b)
            left = ((a < zero) != (b < zero)) & (b != zero)
            n = m if left else zero
            p = m - n
            x, y = abs(a), abs(b)
            g0, g1, g2, g3 = x <= c0 * y, x <= c1 * y, x <= c2 * y, x <= c3 * y
            first, second, third = g0 & (not g1), g1 & (not g2), g2 & (not g3)
            p0 += zero if g0 else p
            n0 += zero if g0 else n
            p1 += p if first else zero
            n1 += n if first else zero
            p2 += p if second else zero
            n2 += n if second else zero
            p3 += p if third else zero
            n3 += n if third else zero
            middle += m if g3 else zero
        acc[i] += p0
        acc[i + TILE] += p1
        acc[i + 2 * TILE] += p2
        acc[i + 3 * TILE] += p3
        acc[i + 4 * TILE] += middle
        acc[i + 5 * TILE] += n3
        acc[i + 6 * TILE] += n2
        acc[i + 7 * TILE] += n1
        acc[i + 8 * TILE] += n0


@light_kernel
def fast_nine(flat, height, width, reflected, cell, cot, acc, squares, hist, sums):
    """Histograms of a chunk of 8-bit images, flat (n, h * w), to hist (n, cell rows, cell cols * 9).

    sums (n, cells) receives the sum of each cell's bins, or of their squares. `reflected` is work space. A kernel of
    its own, apart from the general way, compiles in half the time.
    """
    t = hist.dtype.type
    n_cells = hist.shape[2] // ORIENTATIONS
    per_tile = TILE // cell[1]
    scale = t(1) / t(cell[0] * cell[1])
    stride = width + 2
    for i in range(flat.shape[0]):
        reflect(flat[i], height, width, reflected)
        for r in range(hist.shape[1]):
            for c in range(0, n_cells, per_tile):
                cells = per_tile if c + per_tile < n_cells else n_cells - c
                here = r * n_cells + c
                acc[:] = 0
                for k in range(0, cell[0], ROWS):
                    accumulate_nine(reflected[(r * cell[0] + k) * stride + c * cell[1] :], stride, cot, acc)
                line = hist[i, r, c * ORIENTATIONS : (c + cells) * ORIENTATIONS]
                fold_columns(acc, cell[1], ORIENTATIONS, scale, squares, line, sums[i, here : here + cells])
