"""The sums of single features, of all classes in one pass over X by register tiles."""

from __future__ import annotations

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, part, prepare
from pipeline.backends.cpu.tiles import SHARED, add_gram_tile, add_moment_tile, moment_shape, packed_shape
from pipeline.backends.cpu.vectors import ROWS, adjacent, lanes, pack_rows, prefetch

# Numbers of X, times classes that fill up a set, from which another kernel is worth its compilation of .4 s: at
# 10,000 x 3240 such a class takes 1 ms of a round
WORTH = 1 << 25
SUMS = 1 << 23  # bytes of the sums of all segments, if there are classes to share out instead,
SHARE = 16  # or this part of X where that is more
STRIP = (
    16  # panels whose rows stay in the second-level cache while one set of classes after the other reads them
)
# Columns by which the cache lines of a row are asked for ahead of their use: the next row's are 13 kB further, and no
# processor guesses that.
AHEAD = 64
# Where rows are packed, they are asked for between one tile and the next: 29 ms of one thread at 10,000 x 3240 and ten
# classes; 34 ms all at once before, 36 if nobody asks. From 16 columns ahead it was 32, from 64 31.
DISTANCE = 32


def weighted_moments(X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Return sum_i r_ij x_ik, sum_i w_ij x_ik and sum_i w_ij x_ik^2 with x = X - center, float64 (3, J, p).

    Parameters
    ----------
    X : (n, p) float32 or float64, rows of adjacent numbers
    center : (p,) in the dtype of X
    W, R : (n, J) in the dtype of X

    Notes
    -----
    Each ROWS rows are added in the dtype of X, and these sums in float64.

    Sets of equally many classes would make 45 of 43. Where it matters two sizes make up the number. Over some rows a
    class's sums are the same whatever set it is in.
    """
    adjacent(X)
    J = W.shape[1]
    size = len(moment_shape(J))
    given = np.ascontiguousarray(R), np.ascontiguousarray(W)
    if not SHARED and size < J:
        return _packed_moments(X, center, *given)
    missing = -J % size
    if missing == 0 or missing * X.size < WORTH:
        return _moments(X, center, *given, 0, J, moment_shape(J))
    cut = J - missing * (size - 1)
    sets = (0, cut, size), (cut, J, size - 1)
    return np.concatenate(
        [_moments(X, center, *given, first, last, (None,) * k) for first, last, k in sets], axis=1
    )


def _moments(
    X: np.ndarray,
    center: np.ndarray,
    R: np.ndarray,
    W: np.ndarray,
    first: int,
    last: int,
    classes: tuple[None, ...],
) -> np.ndarray:
    """Return the sums of classes first:last, of sets of as many classes as the tuple is long."""
    n, p = X.shape
    V, size = lanes(X.dtype), len(classes)
    sets, panels = -(-(last - first) // size), -(-p // V)
    shift = np.zeros(panels * V, dtype=X.dtype)
    shift[:p] = center
    segments, groups = _tasks(n, sets, 8 * sets * panels * 3 * size * V, max(SUMS, X.nbytes // SHARE))
    bounds = [-(-n // ROWS) * i // segments * ROWS for i in range(segments)] + [n]
    # of one piece: from the threads that write it, the system would want the memory back each time, and fill it anew
    total = np.empty((segments, sets, panels, 3 * size * V))
    shape = classes, (None,) * V
    prepare(_add_moments, X, shift, R, W, 0, n, 0, 0, shape, total[0])

    def task(i: int) -> None:
        part, group = divmod(i, groups)
        one, end = sets * group // groups, sets * (group + 1) // groups
        mine = first + one * size, min(first + end * size, last)
        _add_moments(X, shift, R, W, bounds[part], bounds[part + 1], *mine, shape, total[part, one:end])

    def add(i: int) -> None:
        part = slice(panels * i // segments, panels * (i + 1) // segments)
        for j in range(1, segments):
            total[0, :, part] += total[j, :, part]

    kernels.share(task, segments * groups, parallel=X.size > kernels.SERIAL)
    kernels.share(add, segments if segments > 1 else 0, parallel=total.size > kernels.SERIAL)
    tiles = total[0].reshape(sets, panels, 3, size, V).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(tiles).reshape(3, sets * size, panels * V)[:, : last - first, :p]


def _packed_moments(X: np.ndarray, center: np.ndarray, R: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return the sums by tiles that multiply columns in panels, as of Gram matrices, with weights in place of columns.

    With 16 registers a tile of rows as they lie holds the sums of four classes, whose weights must be loaded for each
    vector of each row. At 10,000 x 3240 and ten classes it took 25 to 28 ms on a Zen 3 processor.
    """
    (n, p), J = X.shape, W.shape[1]
    shape = packed_shape(J, X.dtype)
    A, B, V = (len(part) for part in shape[1:])
    sets = -(-J // A)
    wide = -(-p // (B * V)) * B * V
    shift = np.zeros(wide, X.dtype)
    shift[:p] = center
    # At least twice the memory of the other way before classes are cut into groups, each of which packs X again: at
    # 10,000 x 12,000 and ten classes the sums took 93 ms in two groups, 73 in one.
    segments, groups = _tasks(n, sets, 8 * 3 * sets * A * wide, max(2 * SUMS, X.nbytes // SHARE))
    bounds = [-(-n // ROWS) * i // segments * ROWS for i in range(segments)] + [n]
    # what is returned is of the first: nobody keeps the others
    total, *rest = np.empty((3, sets * A, wide)), *np.empty((segments - 1, 3, sets * A, wide))
    prepare(_add_packed_moments, X, shift, R, W, 0, n, 0, 0, shape, total)

    def task(i: int) -> None:
        part, group = divmod(i, groups)
        mine = sets * group // groups, sets * (group + 1) // groups
        sums = rest[part - 1] if part else total
        _add_packed_moments(X, shift, R, W, bounds[part], bounds[part + 1], *mine, shape, sums)

    kernels.share(task, segments * groups, parallel=X.size > kernels.SERIAL)
    flat = total.reshape(-1)

    def add(i: int) -> None:
        part = slice(flat.size * i // segments, flat.size * (i + 1) // segments)
        for more in rest:
            flat[part] += more.reshape(-1)[part]

    kernels.share(add, segments if rest else 0, parallel=segments * total.size > kernels.SERIAL)
    return total[:, :J, :p]


def _tasks(n: int, chunks: int, size: int, most: int) -> tuple[int, int]:
    """Return into how many segments rows are cut, and into how many groups sets of classes are.

    A task is a segment for a group. Each segment has sums of its own, of `size` bytes: where all would take more than
    `most`, there are fewer segments and more groups, which read X once each.
    """
    segments, groups = kernels.SEGMENTS, 1
    while segments * size > most and segments > 1 and 2 * groups <= chunks:
        segments, groups = segments // 2, 2 * groups
    return max(1, min(segments, -(-n // ROWS))), groups


@part
def _pack_classes(W, start, m, first, last, step, out, o):
    """Write the row W[start + i, first:last] to out[o + i * step:], of each of m rows."""
    for i in range(m):
        for c in range(last - first):
            out[o + i * step + c] = W[start + i, first + c]


@kernel
def _add_packed_moments(X, shift, R, W, begin, end, first_set, last_set, shape, total):
    """Write the sums over rows begin:end of some sets of classes to total (3, classes, columns).

    Responses and weights of a block of rows are copied to panels, one for each set: of all rows they would take more
    memory than the responses and weights do.
    """
    _, classes, panels, lanes = shape
    A, B, V = len(classes), len(panels), len(lanes)
    sets, p, wide = last_set - first_set, X.shape[1], total.shape[2]
    step, numbers = ROWS * V, total.reshape(-1)
    x, none = np.empty(B * step, X.dtype), np.empty(0, X.dtype)
    weights = np.zeros(2 * sets * step, X.dtype)
    total[:, first_set * A : last_set * A] = 0.0
    for start in range(begin, end, ROWS):
        m = ROWS if end - start > ROWS else end - start
        for s in range(sets):
            first, last = (first_set + s) * A, min((first_set + s + 1) * A, R.shape[1])
            _pack_classes(R, start, m, first, last, V, weights, s * step)
            _pack_classes(W, start, m, first, last, V, weights, (sets + s) * step)
        for k in range(0, wide, B * V):
            later, asked, calls = k + DISTANCE if k + DISTANCE < p else k, 0, 0
            if k + B * V <= p:
                pack_rows(X, start, k, m, shift, x, step, panels)
            else:
                for i in range(m):
                    for c in range(k, k + B * V):
                        o = (c - k) // V * step + i * V + c % V
                        x[o] = X[start + i, c] - shift[c] if c < p else 0
            for kind in range(3):
                if kind == 2:
                    for o in range(B * step):
                        x[o] *= x[o]
                for s in range(sets):
                    calls += 1
                    while asked < m * calls // (3 * sets):
                        prefetch(X, start + asked, later)
                        asked += 1
                    w = ((sets if kind > 0 else 0) + s) * step
                    t = (kind * total.shape[1] + (first_set + s) * A) * wide + k
                    add_gram_tile(weights, w, x, 0, step, none, 0, m, numbers, t, wide, shape)


@kernel
def _add_moments(X, shift, R, W, begin, end, first, last, shape, total):
    """Write the sums over rows begin:end of classes first:last to total (sets, panels, numbers of a tile).

    Responses and weights of a block of rows are copied, class beside class for each set: of all rows they would take
    as much memory as the responses and weights do.
    """
    classes, lanes = shape
    C, V = len(classes), len(lanes)
    sets, panels, size = total.shape
    p, step = X.shape[1], ROWS * 2 * C
    full, numbers = p // V, total.reshape(-1)
    weights = np.zeros(sets * step, X.dtype)
    rest = np.empty((ROWS, V), X.dtype)  # the last columns, filled up with zeros
    rest[:] = 0.0
    total[:] = 0.0
    for start in range(begin, end, ROWS):
        m = ROWS if end - start > ROWS else end - start
        for s in range(sets):
            one, after = first + s * C, min(first + (s + 1) * C, last)
            _pack_classes(R, start, m, one, after, 2 * C, weights, s * step)
            _pack_classes(W, start, m, one, after, 2 * C, weights, s * step + C)
        if full < panels:
            for i in range(m):
                for v in range(p - full * V):
                    rest[i, v] = X[start + i, full * V + v]
        for strip in range(0, panels, STRIP):
            for s in range(sets):
                for panel in range(strip, strip + STRIP if strip + STRIP < full else full):
                    later = panel * V + AHEAD
                    if s > 0 or later >= p:
                        later = panel * V
                    t = (s * panels + panel) * size
                    add_moment_tile(
                        X, start, panel * V, shift, weights, s * step, m, numbers, t, classes, later
                    )
        for s in range(sets if full < panels else 0):
            t = (s * panels + full) * size
            add_moment_tile(rest, 0, 0, shift[full * V :], weights, s * step, m, numbers, t, classes, 0)
