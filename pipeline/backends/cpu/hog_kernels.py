"""The HoG kernels: plain loops over one chunk of images, compiled by Numba.

Two ways to a histogram. The branch-free way keeps one accumulator row per orientation and lets the compiler work on 8
or 16 pixels at a time; it serves every image whose arithmetic is safe. The ordered way adds pixel by pixel as
scikit-image does, in float32 and in its order; it serves large cells (where scikit-image's rounding becomes visible),
NaN, infinities, overflow, and gradients that lie within rounding of a bin's edge.

A pixel's gradient (g_row, g_col) is folded to the upper half plane as (y, x) with y >= 0. Its angle is at least i bins
when x <= cot(180 i / n) y. For integers up to 255 this single float32 product decides every pair as exact arithmetic
does, ties included (see the tests); all other input is decided in float64.

Everything is in one file because Numba's cache notices changes of this file only. Names: T is the type of the
sums (float32 for 8-bit images, else float64), F the type in which scikit-image subtracts pixels.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu.jit import kernel

ROWS = 4  # image rows that are accumulated together: each accumulator is loaded and stored once for the four
GROUP = 3  # orientation bins that are filled in one sweep
NEAR = 4.5e-16  # distance to an axis or diagonal, over the magnitude, below which scikit-image's rounding decides
TOO_LARGE = 1e37  # a cell whose magnitudes sum to more may overflow scikit-image's float32 sums
L1, L1_SQRT, L2, L2_HYS, CELLS = 0, 1, 2, 3, 4
EPS = 1e-5


@kernel
def gradient(channel, row, x, y):
    """Write the centred differences of one row of `channel` (h, w) to x (columns) and y (rows): NUMERICS, [-1, 0, 1]."""
    height, width = channel.shape
    stop = x.shape[0]
    mid = channel[row]
    if row == 0 or row == height - 1:
        y[:] = 0
    else:
        up = channel[row - 1]
        down = channel[row + 1]
        for i in range(stop):
            y[i] = down[i] - up[i]
    x[0] = 0
    x[stop - 1] = 0
    for i in range(1, min(stop, width - 1)):
        x[i] = mid[i + 1] - mid[i - 1]


@kernel
def strongest(pixels, row, x, y, candidate):
    """As `gradient`, of the channel of `pixels` (c, h, w) whose gradient is longest at each pixel; the first on ties.

    `candidate` (3, stop) is work space. Lengths are compared in F. In float64 two lengths within rounding of each
    other are compared by the C library's hypot, whose rounding scikit-image's choice depends on.
    """
    best, cx, cy = candidate[0], candidate[1], candidate[2]
    stop = x.shape[0]
    f = pixels.dtype.type
    gradient(pixels[0], row, x, y)
    for i in range(stop):
        best[i] = f(math.sqrt(x[i] * x[i] + y[i] * y[i]))
    for c in range(1, pixels.shape[0]):
        gradient(pixels[c], row, cx, cy)
        for i in range(stop):
            a, b = cx[i], cy[i]
            length = f(math.sqrt(a * a + b * b))
            if abs(length - best[i]) <= NEAR * length or length == math.inf:
                length = f(math.hypot(a, b))
                best[i] = f(math.hypot(x[i], y[i]))
            if length > best[i] or (length != length and best[i] == best[i]):
                best[i] = length
                x[i] = a
                y[i] = b


@kernel
def fold(x, y, m):
    """Turn gradients (x, y) into magnitudes m and, where they point down or straight left, into their opposites."""
    t = m.dtype.type
    for i in range(m.shape[0]):
        a = x[i]
        b = y[i]
        m[i] = math.sqrt(a * a + b * b)
        sign = t(-1) if (b < t(0)) | ((b == t(0)) & (a < t(0))) else t(1)
        x[i] = a * sign
        y[i] = b * sign


@kernel
def doubtful(x, y):
    """Count folded gradients that are within rounding of an axis or a diagonal but not on it."""
    count = 0
    for i in range(x.shape[0]):
        a = abs(x[i])
        low = min(a, y[i])
        high = max(a, y[i])
        tight = NEAR * high
        count += ((low > 0) & (low < tight)) | ((high > low) & (high - low < tight))
    return count


@kernel
def accumulate(x, y, m, cot, acc):
    """Add the magnitudes of ROWS rows to their bins: acc (bins, stop), bins padded to a multiple of GROUP.

    `m` is overwritten: after the sweep for thresholds up to i it holds the magnitudes of angles of at least i bins.
    Differences are taken pixel by pixel, where they are exact, and not between sums, where they would cancel.
    cot[i] is the cotangent of the upper edge of bin i; -inf for the last and for padding.
    """
    t = m.dtype.type
    stop = m.shape[1]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    m0, m1, m2, m3 = m[0], m[1], m[2], m[3]
    for first in range(0, acc.shape[0], GROUP):
        c0, c1, c2 = cot[first], cot[first + 1], cot[first + 2]
        acc0, acc1, acc2 = acc[first], acc[first + 1], acc[first + 2]
        for i in range(stop):
            xa, xb, xc, xd = x0[i], x1[i], x2[i], x3[i]
            ya, yb, yc, yd = y0[i], y1[i], y2[i], y3[i]
            a, b, c, d = m0[i], m1[i], m2[i], m3[i]
            e = a if xa <= c0 * ya else t(0)
            f = b if xb <= c0 * yb else t(0)
            g = c if xc <= c0 * yc else t(0)
            h = d if xd <= c0 * yd else t(0)
            acc0[i] += ((a - e) + (b - f)) + ((c - g) + (d - h))
            a = e if xa <= c1 * ya else t(0)
            b = f if xb <= c1 * yb else t(0)
            c = g if xc <= c1 * yc else t(0)
            d = h if xd <= c1 * yd else t(0)
            acc1[i] += ((e - a) + (f - b)) + ((g - c) + (h - d))
            e = a if xa <= c2 * ya else t(0)
            f = b if xb <= c2 * yb else t(0)
            g = c if xc <= c2 * yc else t(0)
            h = d if xd <= c2 * yd else t(0)
            acc2[i] += ((a - e) + (b - f)) + ((c - g) + (d - h))
            m0[i], m1[i], m2[i], m3[i] = e, f, g, h


@kernel
def fold_columns(acc, cell_cols, orientations, scale, cells):
    """Sum the columns of each cell: acc (bins, cells * cell_cols) to cells (cells * orientations,), times `scale`."""
    t = cells.dtype.type
    n_cells = cells.shape[0] // orientations
    for k in range(orientations):
        line = acc[k]
        if cell_cols == 8:  # the usual size, written out so that it becomes vector adds
            for c in range(n_cells):
                p = line[8 * c : 8 * c + 8]
                total = ((p[0] + p[4]) + (p[1] + p[5])) + ((p[2] + p[6]) + (p[3] + p[7]))
                cells[c * orientations + k] = total * scale
        else:
            for c in range(n_cells):
                total = t(0)
                for i in range(c * cell_cols, (c + 1) * cell_cols):
                    total += line[i]
                cells[c * orientations + k] = total * scale


@kernel
def histograms(pixels, cell_rows, cell_cols, orientations, cot, work, acc, hist, check):
    """Fill hist (cell rows, cell cols * orientations) of one image (c, h, w) the branch-free way.

    Returns whether the ordered way is needed instead (asked only when `check`): something is not finite, too large, or
    within rounding of an edge.
    """
    t = hist.dtype.type
    stop = acc.shape[1]
    x, y, m = work[0:ROWS], work[ROWS : 2 * ROWS], work[2 * ROWS : 3 * ROWS]
    scale = t(1) / t(cell_rows * cell_cols)
    near = 0
    for r in range(hist.shape[0]):
        acc[:] = 0
        for first in range(0, cell_rows, ROWS):
            for k in range(ROWS):
                if first + k >= cell_rows:
                    x[k] = 0
                    y[k] = 0
                    m[k] = 0
                    continue
                if pixels.shape[0] == 1:
                    gradient(pixels[0], r * cell_rows + first + k, x[k], y[k])
                else:
                    strongest(pixels, r * cell_rows + first + k, x[k], y[k], work[3 * ROWS :])
                fold(x[k], y[k], m[k])
                if check:
                    near += doubtful(x[k], y[k])
            accumulate(x, y, m, cot, acc)
        fold_columns(acc[:, :stop], cell_cols, orientations, scale, hist[r])
    if not check:
        return False
    largest = TOO_LARGE / (cell_rows * cell_cols)
    for r in range(hist.shape[0]):
        for i in range(hist.shape[1]):
            near += not (hist[r, i] < largest)
    return near > 0


@kernel
def bin_of(x, y, orientations):
    """Return the bin by scikit-image's own formula, -1 where rounding leaves none, -2 for NaN (a vote in every bin)."""
    angle = np.rad2deg(math.atan2(y, x)) % 180.0
    if angle != angle:
        return -2
    width = 180.0 / orientations
    for k in range(orientations):
        if width * k <= angle < width * (k + 1):
            return k
    return -1


@kernel
def vote(total, x, y, m, cot, orientations):
    """Add one folded gradient to the float32 sums `total` (orientations,) of its cell."""
    a = abs(x)
    low = min(a, y)
    high = max(a, y)
    tight = NEAR * high
    if not (m < math.inf) or (0 < low < tight) or (0 < high - low < tight):
        k = bin_of(x, y, orientations)
        m = math.hypot(x, y)
    else:
        k = 0
        for i in range(orientations - 1):
            k += x <= cot[i] * y
    if k >= 0:
        total[k] = np.float32(total[k] + m)
    elif k == -2:
        for i in range(orientations):
            total[i] = np.float32(total[i] + m)


@kernel
def ordered_histograms(pixels, cell_rows, cell_cols, orientations, cot, work, total, hist):
    """Fill hist (cell rows, cell cols * orientations) with scikit-image's float32 sums, in its order."""
    x, y, m = work[0], work[1], work[2]
    n_cells = hist.shape[1] // orientations
    area = np.float32(cell_rows * cell_cols)
    for r in range(hist.shape[0]):
        total[:] = 0
        for row in range(r * cell_rows, (r + 1) * cell_rows):
            if pixels.shape[0] == 1:
                gradient(pixels[0], row, x, y)
            else:
                strongest(pixels, row, x, y, work[3 * ROWS :])
            fold(x, y, m)
            # neighbouring votes go to different cells, so that no addition waits for the one before it
            for i in range(cell_cols):
                for c in range(n_cells):
                    p = c * cell_cols + i
                    vote(total[c], x[p], y[p], m[p], cot, orientations)
        for c in range(n_cells):
            for k in range(orientations):
                hist[r, c * orientations + k] = total[c, k] / area


@kernel
def cell_sums(hist, orientations, squares, sums):
    """Write the sum of each cell's bins, or of their squares, to sums (cell rows, cell cols)."""
    t = hist.dtype.type
    for r in range(sums.shape[0]):
        for c in range(sums.shape[1]):
            total = t(0)
            for k in range(c * orientations, (c + 1) * orientations):
                v = hist[r, k]
                total += v * v if squares else v
            sums[r, c] = total


@kernel
def blocks(hist, sums, orientations, block_rows, block_cols, norm, out):
    """Normalise every block of hist and write it to out (features,). A block's sum is the sum over its cells."""
    t = hist.dtype.type
    n = block_cols * orientations
    eps = t(EPS)
    p = 0
    cell_sums(hist, orientations, norm >= L2, sums)
    for r in range(sums.shape[0] - block_rows + 1):
        for c in range(sums.shape[1] - block_cols + 1):
            total = t(0)
            for i in range(block_rows):
                for j in range(block_cols):
                    total += sums[r + i, c + j]
            scale = t(1) / (math.sqrt(total + eps * eps) if norm >= L2 else total + eps)
            start = p
            clipped = t(0)
            for i in range(block_rows):
                line = hist[r + i, c * orientations : c * orientations + n]
                target = out[p : p + n]
                p += n
                if norm == L2_HYS:
                    for k in range(n):
                        v = min(line[k] * scale, t(0.2))
                        target[k] = v
                        clipped += v * v
                elif norm == L1_SQRT:
                    for k in range(n):
                        target[k] = math.sqrt(line[k] * scale)
                else:
                    for k in range(n):
                        target[k] = line[k] * scale
            if norm == L2_HYS:
                scale = t(1) / math.sqrt(clipped + eps * eps)
                for k in range(start, p):
                    out[k] *= scale


@kernel
def emit(hist, sums, orientations, block_rows, block_cols, norm, out):
    """Write the features of one image, or its cell histograms when norm is CELLS."""
    if norm == CELLS:
        n = hist.shape[1]
        for r in range(hist.shape[0]):
            out[r * n : (r + 1) * n] = hist[r]
    else:
        blocks(hist, sums, orientations, block_rows, block_cols, norm, out)


@kernel
def fast(images, pixels, cell, block, orientations, cot, work, acc, hist, sums, norm, check, out, redo):
    """Features of a chunk, images (n, c, h, w) to out (n, features); redo[i] is set where `ordered` must follow."""
    for i in range(images.shape[0]):
        pixels[:] = images[i]
        redo[i] = histograms(pixels, cell[0], cell[1], orientations, cot, work, acc, hist, check)
        if not redo[i]:
            emit(hist, sums, orientations, block[0], block[1], norm, out[i])


@kernel
def ordered(images, cell, block, orientations, cot, work, total, hist, sums, norm, out, redo):
    """Features of those images (n, c, h, w) of a chunk where `redo` is set, to out (n, features)."""
    for i in range(images.shape[0]):
        if redo[i]:
            ordered_histograms(images[i], cell[0], cell[1], orientations, cot, work, total, hist)
            emit(hist, sums, orientations, block[0], block[1], norm, out[i])
