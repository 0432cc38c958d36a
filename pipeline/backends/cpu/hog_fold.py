"""The part of the HoG kernels that both ways to cell histograms share: from columns of pixels to cells."""

from __future__ import annotations

from pipeline.backends.cpu.hog_gradients import TILE
from pipeline.backends.cpu.jit import light_part


@light_part
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
