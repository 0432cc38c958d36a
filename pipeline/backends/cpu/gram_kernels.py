"""The kernels under weighted Gram matrices: products of blocks of columns, over rows as they lie or over panels."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu.jit import kernel, light_kernel, part
from pipeline.backends.cpu.tiles import add_gram_tile, square
from pipeline.backends.cpu.vectors import ROWS, pack_vector, prefetch, scale_vector

AHEAD = 64  # columns by which cache lines are asked for ahead of their use


@part
def _pack(X, center, rows, weights, m, begin, end, lanes, out):
    """Write weights (X[rows] - center) of columns begin:end to panels of m rows, zero beyond the last column."""
    V = len(lanes)
    q = X.shape[1]
    o = 0
    for k in range(begin, end, V):
        last = (end if end < q else q) - 1
        later = k + AHEAD if k + AHEAD < last else last
        for i in range(m):
            prefetch(X, rows[i], later)
            if k + V <= q:
                pack_vector(X, rows[i], k, center, weights[i], out, o)
            else:
                for v in range(V):
                    out[o + v] = weights[i] * (X[rows[i], k + v] - center[k + v]) if k + v < q else 0
            o += V


@kernel
def add_products(X, center, W, R, begin, end, a, b, most, width, shape, both, tiles, sums):
    """Write the products of columns a:a + width with b:b + width, summed over rows begin:end, to `tiles`.

    `most` rows are added in the type of X at a time.
    Where the columns are the same, write to `sums` those of responses and weights, for the first columns, then of their
    products with x; no responses, no such sums.
    """
    classes, columns, panels, lanes = shape
    C, A, B, V = len(classes), len(columns), len(panels), len(lanes)
    P = width // V
    left = np.empty(most * width, X.dtype)
    right = left if a == b and C > 1 else np.empty(most * width, X.dtype)
    weights, ones = np.empty(most * C, X.dtype), np.empty(most * V, X.dtype)
    pairs = np.empty(most * 2 * C, X.dtype)
    rows = np.empty(most, np.intp)
    with_sums = a == b and len(R) > 0
    ones[:] = 1.0
    tiles[:] = 0.0
    sums[:] = 0.0
    for start in range(begin, end, most):
        m = np.intp(0)  # of a literal 0, Numba would compile a version of _pack
        for i in range(start, start + most if start + most < end else end):
            used = False
            for c in range(C):
                w = W[i, c]
                weights[m * C + c] = w
                used |= w != 0
            if used:
                if with_sums:
                    for c in range(C):
                        r, w = R[i, c], W[i, c]
                        pairs[m * 2 * C + c], pairs[m * 2 * C + C + c] = r, w
                        sums[c] += r
                        sums[C + c] += w
                rows[m] = i
                m += 1
        _pack(X, center, rows, weights if C == 1 else ones, m, a, a + width, lanes, left)
        if a != b or C == 1:
            _pack(X, center, rows, ones, m, b, b + width, lanes, right)
        t = 0
        for p in range(P):
            for r in range(p // B * B if a == b else 0, P, B):
                for v in range(0, V, A):
                    add_gram_tile(
                        left, p * m * V + v, right, r * m * V, m * V, weights, 0, m, tiles, t, B * V, shape
                    )
                    t += C * A * B * V
        if with_sums:
            for p in range(P):
                add_gram_tile(ones, 0, right, p * m * V, 0, pairs, 0, m, sums, 2 * C * (1 + p * V), V, both)


@light_kernel
def add_panel_products(data, n, W, R, begin, end, a, b, width, shape, both, tiles, sums, ones):
    """As :func:`add_products`, of columns in panels (blocks, panels, ROWS, V): nothing is packed.

    Blocks begin:end, panels a // V and b // V on; the tile has one panel, and several classes. Of a panel with itself
    the second half of the columns is multiplied with itself only, by tiles of half the lanes. A panel of `ones` is
    what sums of responses are multiplied with.
    """
    shape, half = shape
    classes, columns, _, lanes = shape
    C, A, V, H = len(classes), len(columns), len(lanes), len(half[3])
    P, count, step = width // V, data.shape[1], ROWS * V
    X, weights, responses = data.reshape(-1), W.reshape(-1), R.reshape(-1)
    here, there = count - a // V, count - b // V
    here, there = (P if here > P else here), (P if there > P else there)
    tiles[:] = 0.0
    sums[:] = 0.0
    for block in range(begin, end):
        first = block * ROWS
        m = ROWS if n - first > ROWS else n - first
        mine, theirs = (block * count + a // V) * step, (block * count + b // V) * step
        for p in range(here):
            t = (p * P - (p * (p - 1) // 2 if a == b else 0)) * C * V * V
            for r in range(p if a == b else 0, there):
                left, right = mine + p * step, theirs + r * step
                whole = H if left == right else V
                for v in range(0, whole, A):
                    add_gram_tile(X, left + v, X, right, step, weights, first * C, m, tiles, t, V, shape)
                    t += C * A * V
                for v in range(whole, V, A):
                    add_gram_tile(
                        X, left + v, X, right + H, step, weights, first * C, m, tiles, t + H, V, half
                    )
                    t += C * A * V
        if a == b and len(R) > 0:
            for i in range(first, first + m if a == 0 else first):
                for c in range(C):
                    sums[c] += R[i, c]
                    sums[C + c] += W[i, c]
            for p in range(here):
                t, right = 2 * C * (1 + p * V), mine + p * step
                add_gram_tile(ones, 0, X, right, step, responses, first * C, m, sums, t, V, both)
                add_gram_tile(ones, 0, X, right, step, weights, first * C, m, sums, t + C * V, V, both)


@kernel
def add_panel_products_of_one(data, n, W, begin, end, a, b, width, shape, tiles):
    """As :func:`add_panel_products`, for one class: its weights are in the first factor, which is copied.

    There are as many panels as whole tiles have.
    """
    _, columns, panels, lanes = shape
    A, B, V = len(columns), len(panels), len(lanes)
    P, count, step = width // V, data.shape[1], ROWS * V
    X = data.reshape(-1)
    here, there = count - a // V, count - b // V
    here, there = (P if here > P else here), (P if there > P else there)
    left, none = np.empty(step, X.dtype), np.empty(0, X.dtype)
    tiles[:] = 0.0
    for block in range(begin, end):
        first = block * ROWS
        m = ROWS if n - first > ROWS else n - first
        mine, theirs = (block * count + a // V) * step, (block * count + b // V) * step
        t = 0
        for p in range(here):
            for i in range(m):
                scale_vector(X, mine + p * step + i * V, W[first + i, 0], left, i * V)
            for r in range(p // B * B if a == b else 0, P, B):
                # of the first tile on the diagonal, the panels before p are not wanted
                alone = B == 2 and a == b and r < p
                for v in range(0, V if r < there and not alone else 0, A):
                    add_gram_tile(
                        left, v, X, theirs + r * step, step, none, 0, m, tiles, t + v * B * V, B * V, shape
                    )
                if alone:
                    add_gram_tile(
                        left, 0, X, theirs + p * step, step, none, 0, m, tiles, t + V, B * V, square(X)
                    )
                t += V * B * V


@light_kernel
def add_to_gram(tiles, gram, starts, a, b, width, sizes, first):
    """Add tiles to the upper triangles of gram (classes, numbers), whose row i has column k at starts[i] + k.

    The `first` ones are written: to read memory that is new costs a second page fault. Of tiles on the diagonal
    numbers below it are written, too, within V columns. The sizes of a tile come as numbers, and not as what code is
    compiled for: forty unrolled copies of the loop took .5 s to compile.
    """
    C, A, B, V = sizes
    P, q = width // V, starts.size
    t = 0
    for p in range(P):
        for r in range(p // B if a == b else 0, P // B):
            for v in range(V // A):
                for c in range(C):
                    for k in range(A):
                        row = a + p * V + v * A + k
                        for s in range(B):
                            column = b + (r * B + s) * V
                            wanted = c < gram.shape[0] and row < q and (r * B + s >= p or a != b)
                            here = V if q - column > V else q - column
                            begin = starts[row] + column if wanted else 0
                            if first:
                                for u in range(here if wanted else 0):
                                    gram[c, begin + u] = tiles[t + u]
                            else:
                                for u in range(here if wanted else 0):
                                    gram[c, begin + u] += tiles[t + u]
                            t += V
