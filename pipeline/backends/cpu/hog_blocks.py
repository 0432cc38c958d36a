"""HoG kernels from cell histograms to features: overlapping blocks, each normalised and written once."""

from __future__ import annotations

import math

from pipeline.backends.cpu.jit import light_summing_kernel, light_summing_part

L1_SQRT, L2, L2_HYS = 1, 2, 3  # places in config.BLOCK_NORMS; 0 is L1
EPS = 1e-5


@light_summing_part
def clipped_squares(block, scale):
    """Return the sum of squares of block * scale, clipped at 0.2; NaN stays NaN."""
    t = block.dtype.type
    total = t(0)
    for k in range(block.shape[0]):
        v = block[k] * scale
        v = t(0.2) if v > t(0.2) else v
        total += v * v
    return total


@light_summing_part
def block_scales(sums, cols, block, norm, scales):
    """Write what each block is multiplied by, 1 / norm, to scales[0] (cells,), at its first cell.

    The sum over a block is the sum over its cells, taken on the flat array: entries that run over the right
    or lower edge are of no block and never read.
    """
    t = sums.dtype.type
    eps = t(EPS)
    across = scales[1]
    total = scales[0]
    across[:] = 0
    for j in range(block[1]):
        for i in range(sums.shape[0] - j):
            across[i] += sums[i + j]
    total[:] = 0
    for j in range(0, block[0] * cols, cols):
        for i in range(sums.shape[0] - j):
            total[i] += across[i + j]
    for i in range(sums.shape[0]):
        total[i] = t(1) / (math.sqrt(total[i] + eps * eps) if norm >= L2 else total[i] + eps)


@light_summing_part
def gather(hist, width, orientations, strips):
    """Copy the cells of each column of blocks to one piece: strips (block cols, cell rows * width)."""
    for c in range(strips.shape[0]):
        for r in range(hist.shape[0]):
            source = hist[r, c * orientations : c * orientations + width]
            target = strips[c, r * width : (r + 1) * width]
            if width == 27:  # the default, where a constant length saves the checks: twice as fast
                for k in range(27):
                    target[k] = source[k]
            else:
                for k in range(width):
                    target[k] = source[k]


@light_summing_part
def write_block(block, scale, again, norm, out):
    """Write one normalised block to out, both (features of a block,)."""
    t = block.dtype.type
    if norm == L2_HYS:
        for k in range(block.shape[0]):
            v = block[k] * scale
            out[k] = (t(0.2) if v > t(0.2) else v) * again
    elif norm == L1_SQRT:
        for k in range(block.shape[0]):
            out[k] = math.sqrt(block[k] * scale)
    else:
        for k in range(block.shape[0]):
            out[k] = block[k] * scale


@light_summing_part
def all_scales(hist, sums, strips, scales, orientations, block, norm):
    """Fill the strips of an image, and what each of its blocks is multiplied by before and after clipping."""
    t = hist.dtype.type
    width = block[1] * orientations
    size = block[0] * width
    cols = hist.shape[1] // orientations
    scale, again = scales[0], scales[1]
    block_scales(sums, cols, block, norm, scales)
    gather(hist, width, orientations, strips)
    if norm == L2_HYS:
        again[:] = 0
        for c in range(strips.shape[0]):
            for r in range(hist.shape[0] - block[0] + 1):
                block_of = strips[c, r * width : r * width + size]
                again[r * cols + c] = clipped_squares(block_of, scale[r * cols + c])
        for i in range(again.shape[0]):
            again[i] = t(1) / math.sqrt(again[i] + t(EPS) * t(EPS))


@light_summing_kernel
def normalise(hist, sums, strips, scales, orientations, block, norm, out):
    """Features of a chunk: hist (n, cell rows, cell cols * orientations), sums (n, cells) to out (n, features).

    Every block is normalised and written once, in order. In a strip each block lies in one piece, which overlaps the
    next. Norms of all blocks of an image are taken together, so that no block waits for a square root.
    """
    width = block[1] * orientations
    size = block[0] * width
    cols = hist.shape[2] // orientations
    down = hist.shape[1] - block[0] + 1
    scale, again = scales[0], scales[1]
    for image in range(hist.shape[0]):
        all_scales(hist[image], sums[image], strips, scales, orientations, block, norm)
        p = 0
        for r in range(down):
            for c in range(strips.shape[0]):
                i = r * cols + c
                block_of = strips[c, r * width : r * width + size]
                write_block(block_of, scale[i], again[i], norm, out[image, p : p + size])
                p += size


@light_summing_kernel
def keep(hist, sums, strips, scales, orientations, block, norm, out):
    """Write to out (n, width) what is kept of the images: histograms, and what each block is multiplied by.

    The latter in the blocks' order: before clipping, and with L2-Hys after it.
    """
    cols = hist.shape[2] // orientations
    down, across = hist.shape[1] - block[0] + 1, strips.shape[0]
    size = hist.shape[1] * hist.shape[2]
    for image in range(hist.shape[0]):
        all_scales(hist[image], sums[image], strips, scales, orientations, block, norm)
        cells, kept = hist[image].reshape(-1), out[image]
        for k in range(size):
            kept[k] = cells[k]
        for n in range(2 if norm == L2_HYS else 1):
            p = size + n * down * across
            for r in range(down):
                for c in range(across):
                    kept[p] = scales[n, r * cols + c]
                    p += 1
