"""The sums of a weighted regression on few or many columns, of all classes together, by register tiles."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, part, prepare
from pipeline.backends.cpu.tiles import (
    ROWS,
    ROWS_OF_ONE,
    add_gram_tile,
    adjacent,
    gram_shape,
    pack_vector,
    prefetch,
)

AHEAD = 64  # columns by which cache lines are asked for ahead of their use
SEGMENTS = (
    12  # least number of tasks, if rows allow: of two blocks of columns, four sets of rows, equally divided
)


def columns_of_a_block(q: int, classes: int) -> int:
    """Return the columns of a block at most: its sums should stay in the second-level cache, rows be read seldom."""
    if classes == 1:
        return 640
    return 64 if q <= 192 else 128


class Found(NamedTuple):
    """Sums over rows, float64; the last two are empty if they were not asked for."""

    gram: np.ndarray  # (classes, q, q), upper triangles: sum_i w_ij x_i x_i'
    products: np.ndarray  # (2, classes, q): sum_i r_ij x_i and sum_i w_ij x_i
    totals: np.ndarray  # (2, classes): sum_i r_ij and sum_i w_ij


class _Task(NamedTuple):
    """Rows of a segment, of the products of columns a:a + width with columns b:b + width."""

    chunk: int
    a: int
    b: int
    segment: int


def weighted_sums(X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray | None = None) -> Found:
    """Return the Gram matrix of each class, and with R the sums of its responses, of x = X - center.

    Parameters
    ----------
    X : (n, q) float32 or float64, rows of adjacent numbers
    center : (q,) in the dtype of X
    W, R : (n, classes) weights and weighted responses, in the dtype of X; where the weights of a row are all zero so
        are its responses

    Notes
    -----
    The product of two columns is worked out once and weighted by every class: n q^2 / 2 multiplications more than
    the n q^2 operations a class that a symmetric product needs, and none of the passes that scale rows. Each ROWS
    rows, counted from the first, are added in the dtype of X, and these sums in float64: sets of rows that are cut at
    multiples of ROWS give the same sums up to the rounding of float64. Rows without weight are left out.
    """
    adjacent(X)
    plan = _Plan.of(X, W.shape[1])
    n, q = X.shape
    gram = np.zeros((W.shape[1], q, q))
    rest = np.empty((plan.chunks, 2 * plan.size, q + 1))
    weights, responses = plan.chunked(W), plan.chunked(W[:0] if R is None else R)
    found: dict[_Task, tuple[np.ndarray, np.ndarray]] = {}
    first = weights[0], responses[0]
    prepare(
        _add_products,
        X,
        center,
        *first,
        0,
        n,
        0,
        0,
        plan.width,
        plan.shape,
        plan.both,
        np.zeros(1),
        np.zeros(1),
    )
    sizes = tuple(map(len, plan.shape))
    prepare(_write, np.zeros(1), gram, 0, 0, plan.width, q, sizes)

    def work(i: int) -> None:
        task = plan.tasks[i]
        same = task.a == task.b
        tiles = np.empty(plan.numbers(same))
        sums = np.empty((plan.width + 1) * 2 * plan.size if same else 0)
        rows = plan.bounds[task.segment], plan.bounds[task.segment + 1]
        mine = weights[task.chunk], responses[task.chunk]
        _add_products(X, center, *mine, *rows, task.a, task.b, plan.width, plan.shape, plan.both, tiles, sums)
        found[task] = tiles, sums

    def finish(i: int) -> None:
        task = plan.tasks[i]
        (tiles, sums), *others = [found.pop(task._replace(segment=s)) for s in range(plan.segments)]
        for more in others:
            tiles += more[0]
            sums += more[1]
        classes = gram[task.chunk * plan.size : (task.chunk + 1) * plan.size]
        _write(tiles, classes, task.a, task.b, plan.width, q, sizes)
        if task.a == task.b:
            V = len(plan.shape[3])
            columns = (
                sums[2 * plan.size :]
                .reshape(-1, 2 * plan.size, V)
                .transpose(1, 0, 2)
                .reshape(2 * plan.size, -1)
            )
            rest[task.chunk, :, task.a : min(task.a + plan.width, q)] = columns[:, : q - task.a]
            rest[task.chunk, :, q] = sums[: 2 * plan.size]

    parallel = n * q > kernels.SERIAL
    if plan.segments == 1:

        def both(i: int) -> None:
            work(i)
            finish(i)

        kernels.share(both, len(plan.tasks), parallel)
    else:
        kernels.share(work, len(plan.tasks), parallel)
        whole = [i for i, task in enumerate(plan.tasks) if task.segment == 0]
        kernels.share(lambda i: finish(whole[i]), len(whole), parallel)
    if R is None:
        return Found(gram, np.empty(0), np.empty(0))
    rest = rest.reshape(plan.chunks, 2, plan.size, q + 1).transpose(1, 0, 2, 3).reshape(2, -1, q + 1)
    rest = rest[:, : W.shape[1]]
    return Found(gram, rest[..., :q], rest[..., q])


class _Plan(NamedTuple):
    """How the sums are divided into tasks.

    Attributes
    ----------
    shape : of a tile, see gram_shape
    both : of a tile of sums of responses and of weights
    chunks, size : sets of classes, and how many a set has
    width : columns of a block
    segments, bounds : sets of rows, and where they begin and end
    tasks : the longest first
    """

    shape: tuple
    both: tuple
    chunks: int
    size: int
    width: int
    segments: int
    bounds: list[int]
    tasks: list[_Task]

    @classmethod
    def of(cls, X: np.ndarray, classes: int) -> _Plan:
        """Divide the sums of a number of classes over the rows X."""
        n, q = X.shape
        shape = gram_shape(classes, X.dtype)
        size, most = len(shape[0]), columns_of_a_block(q, classes)
        rows = ROWS if classes > 1 else ROWS_OF_ONE
        unit = len(shape[3]) * len(shape[2])
        width = -(-q // (-(-q // most) * unit)) * unit  # equal blocks: no wider than whole panels make them
        chunks = -(-classes // size)
        blocks = list(itertools.combinations_with_replacement(range(0, q, width), 2))
        segments = max(1, min(-(-SEGMENTS // (len(blocks) * chunks)), -(-n // rows)))
        bounds = [-(-n // rows) * s // segments * rows for s in range(segments)] + [n]
        blocks.sort(key=lambda ab: ab[0] == ab[1])
        tasks = [
            _Task(c, a, b, s) for (a, b), c, s in itertools.product(blocks, range(chunks), range(segments))
        ]
        both = (0,) * (2 * size), (0,), (0,), shape[3]
        return cls(shape, both, chunks, size, width, segments, bounds, tasks)

    def chunked(self, V: np.ndarray) -> list[np.ndarray]:
        """Return the columns of V in sets of `size`; the last is filled up with zeros."""
        return [_padded(V[:, c * self.size : (c + 1) * self.size], self.size) for c in range(self.chunks)]

    def numbers(self, same: bool) -> int:
        """Return how many numbers the tiles of a task are; `same`: of columns with themselves."""
        V, B = len(self.shape[3]), len(self.shape[2])
        P = self.width // V
        pairs = sum(P // B - a // B for a in range(P)) * B if same else P * P
        return pairs * V * V * self.size


def _padded(W: np.ndarray, size: int) -> np.ndarray:
    if W.shape[1] == size:
        return np.ascontiguousarray(W)
    wide = np.zeros((W.shape[0], size), dtype=W.dtype)
    wide[:, : W.shape[1]] = W
    return wide


@part
def _pack(X, center, rows, weights, m, begin, end, lanes, out):
    """Write weights (X[rows] - center) of columns begin:end to panels of m rows, zero beyond the last column."""
    V = len(lanes)
    q = X.shape[1]
    o = 0
    for k in range(begin, end, V):
        later = min(k + AHEAD, min(end, q) - 1)
        for i in range(m):
            prefetch(X, rows[i], later)
            if k + V <= q:
                pack_vector(X, rows[i], k, center, weights[i], out, o, lanes)
            else:
                for v in range(V):
                    out[o + v] = weights[i] * (X[rows[i], k + v] - center[k + v]) if k + v < q else 0
            o += V


@kernel
def _add_products(X, center, W, R, begin, end, a, b, width, shape, both, tiles, sums):
    """Write the products of columns a:a + width with b:b + width, summed over rows begin:end, to `tiles`.

    Where the columns are the same, write to `sums` those of responses and weights, then of their products with x; no
    responses, no such sums.
    """
    classes, columns, panels, lanes = shape
    C, A, B, V = len(classes), len(columns), len(panels), len(lanes)
    P = width // V
    most = ROWS_OF_ONE if C == 1 else ROWS
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
        for i in range(start, min(start + most, end)):
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
                    add_gram_tile(left, p * m * V + v, right, r * m * V, weights, 0, m, tiles, t, shape)
                    t += C * A * B * V
        if with_sums:
            for p in range(P):
                add_gram_tile(ones, 0, right, p * m * V, pairs, 0, m, sums, 2 * C * (1 + p * V), both)


@kernel
def _write(tiles, gram, a, b, width, q, sizes):
    """Write the tiles of a task to gram (classes, q, q); sizes are the lengths of a tile's shape.

    As numbers, and not as what code is compiled for: forty unrolled copies of the loop took .5 s to compile.
    """
    C, A, B, V = sizes
    P = width // V
    t = 0
    for p in range(P):
        for r in range(p // B if a == b else 0, P // B):
            for v in range(V // A):
                for c in range(C):
                    for k in range(A):
                        row = a + p * V + v * A + k
                        for s in range(B):
                            first = b + (r * B + s) * V
                            wanted = c < gram.shape[0] and row < q and (r * B + s >= p or a != b)
                            for u in range(min(V, q - first) if wanted else 0):
                                gram[c, row, first + u] = tiles[t + u]
                            t += V
