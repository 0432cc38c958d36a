"""Parts of the HoG kernels: the gradients of one row of pixels.

A pixel's gradient (g_row, g_col) is folded to the upper half plane as (y, x) with y >= 0. Names: T is the type of
the sums (float32 for 8-bit images, else float64), F the type in which scikit-image subtracts pixels.
"""

from __future__ import annotations

import math

from pipeline.backends.cpu.jit import hypot, light_part

ROWS = 4  # image rows that are accumulated together: each accumulator is loaded and stored once for the four
# Image columns worked on together: 12 cells of 8. A constant, so that loops have no remainder and need no
# check whether rows of one work array overlap: 1.6 times as fast as rows of the image's own width.
TILE = 96
# Two lengths this close, over either, may be ordered differently by a square root and by hypot: four roundings.
NEAR = 1e-15


@light_part
def gradient(channel, row, first, x, y):
    """Write the centred differences of one row of `channel` (h, w), from column `first`, to x and y."""
    height, width = channel.shape
    stop = x.shape[0]
    mid = channel[row]
    if row == 0 or row == height - 1:
        y[:] = 0
    else:
        up = channel[row - 1, first : first + stop]
        down = channel[row + 1, first : first + stop]
        for i in range(stop):
            y[i] = down[i] - up[i]
    x[0] = 0
    x[stop - 1] = 0
    start = 1 if first == 0 else 0
    last = first + stop if first + stop < width - 1 else width - 1
    inner = last - (first + start)
    left = mid[first + start - 1 :]
    right = mid[first + start + 1 :]
    target = x[start:]
    for i in range(inner):
        target[i] = right[i] - left[i]


@light_part
def settle(s, f):
    """Take lengths by the C library's hypot, in type `f`, where two channels are within rounding.

    `s` is the work space of `strongest`. Nothing is to do where the two gradients are the same pair, in any
    order and with any signs. float32 work space is for 8-bit pixels, whose squares are exact: there only equal
    lengths are in doubt, and if hypot finds the candidate's longer, the winner's is made shorter.
    """
    small = s.itemsize == 4
    for i in range(TILE):
        x, y, a, b = abs(s[i]), abs(s[i + TILE]), abs(s[i + 2 * TILE]), abs(s[i + 3 * TILE])
        best, length = s[i + 4 * TILE], s[i + 5 * TILE]
        unlike = not ((a == x) & (b == y) | (a == y) & (b == x))
        if small:
            if length == best and unlike and hypot(a, b) > hypot(x, y):
                s[i + 4 * TILE] = -1
        elif length == math.inf or (abs(length - best) <= NEAR * length and unlike):
            s[i + 4 * TILE] = f(hypot(x, y))
            s[i + 5 * TILE] = f(hypot(a, b))


@light_part
def strongest(pixels, row, first, x, y, s):
    """As `gradient`, of the channel of `pixels` (c, h, w) with the longest gradient, the first on ties.

    At most TILE columns. Lengths are compared in F. In float64 two lengths within rounding of each other
    are compared by the C library's hypot, whose rounding scikit-image's choice depends on; in float32 its
    hypot is the float64 length, rounded. `s` (6 * TILE,) is work space: the winner's x and y, the
    candidate's x and y, the winner's length, the candidate's length.
    """
    stop = x.shape[0]
    f = pixels.dtype.type
    t = s.dtype.type
    near, infinite = t(NEAR), t(math.inf)
    for c in range(pixels.shape[0]):  # one call of `gradient`, whose code comes in place of each
        gradient(pixels[c], row, first, s[2 * TILE : 2 * TILE + stop], s[3 * TILE : 3 * TILE + stop])
        if c == 0:
            for i in range(TILE):
                a, b = s[i + 2 * TILE], s[i + 3 * TILE]
                s[i], s[i + TILE] = a, b
                s[i + 4 * TILE] = f(math.sqrt(a * a + b * b))
            continue
        close = 0
        for i in range(TILE):
            a, b = abs(s[i + 2 * TILE]), abs(s[i + 3 * TILE])
            p, q = abs(s[i]), abs(s[i + TILE])
            v = t(f(math.sqrt(a * a + b * b)))
            s[i + 5 * TILE] = v
            unlike = not ((a == p) & (b == q) | (a == q) & (b == p))
            close += ((abs(v - s[i + 4 * TILE]) <= near * v) & unlike) | (v == infinite)
        if close > 0:
            settle(s, f)
        for i in range(TILE):
            v, w = s[i + 5 * TILE], s[i + 4 * TILE]
            a, b = s[i + 2 * TILE], s[i + 3 * TILE]
            longer = (v > w) | (math.isnan(v) & (w == w))  # noqa: PLR0124  (False for NaN; vectorises)
            s[i + 4 * TILE] = v if longer else w
            s[i] = a if longer else s[i]
            s[i + TILE] = b if longer else s[i + TILE]
    for i in range(stop):
        x[i] = s[i]
        y[i] = s[i + TILE]


@light_part
def fold(x, y, m):
    """Write magnitudes of gradients (x, y) to m; turn those that point up or straight left around."""
    t = m.dtype.type
    for i in range(m.shape[0]):
        a = x[i]
        b = y[i]
        m[i] = math.sqrt(a * a + b * b)
        sign = t(-1) if (b < t(0)) | ((b == t(0)) & (a < t(0))) else t(1)
        x[i] = a * sign
        y[i] = b * sign


@light_part
def folded_gradient(up, mid, down, work):
    """`gradient` and `fold` in one sweep over TILE columns, for grayscale.

    up, mid and down begin one column to the left of the tile. x, y, m go to the same row of the three parts
    of `work`.
    """
    t = work.dtype.type
    for i in range(TILE):
        a = t(mid[i + 2] - mid[i])
        b = t(down[i + 1] - up[i + 1])
        work[i + 2 * ROWS * TILE] = math.sqrt(a * a + b * b)
        sign = t(-1) if (b < t(0)) | ((b == t(0)) & (a < t(0))) else t(1)
        work[i] = a * sign
        work[i + ROWS * TILE] = b * sign


@light_part
def vertical(work, i):
    """Drop the column component of the folded gradient at column i: the image's first or last."""
    work[i] = 0
    work[i + 2 * ROWS * TILE] = work[i + ROWS * TILE]
