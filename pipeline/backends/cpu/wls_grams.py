"""The sums of a weighted regression on few or many columns, of all classes together, by register tiles."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipeline.backends import triangle
from pipeline.backends.cpu import gram_kernels
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.panels import products as panel_products
from pipeline.backends.cpu.tiles import gram_shape
from pipeline.backends.cpu.vectors import ROWS, ROWS_OF_ONE, adjacent

SEGMENTS = (
    12  # least number of tasks, if rows allow: of two blocks of columns, four sets of rows, equally divided
)


TOGETHER = 256  # columns of rows up to which classes share the products of two columns
HALF = 352  # columns of a block at most where there are to be two at least
# Share of weights that are not zero below which classes are added up one by one: measured .35 at 128 columns
SPARSE = 1 / 3


def mostly_zero(W: np.ndarray) -> bool:
    """Tell whether so few weights are not zero that each class is added up for itself, of its rows alone."""
    return bool(np.count_nonzero(W) < SPARSE * W.size)


def one_by_one(X: np.ndarray | Panels) -> bool:
    """Tell whether several classes are each added up for itself: then sums do not depend on which are asked for.

    So it is of rows with 257 to 768 columns: together they are hardly faster, and few Gram matrices may be held at a
    time. Of panels, which lie ready, sums together are a tenth faster; of more columns one matrix is held anyway.
    """
    return not isinstance(X, Panels) and TOGETHER < X.shape[1] <= triangle.SQUARE


def columns_of_a_block(q: int, classes: int, rows: bool = False) -> int:
    """Return the columns of a block at most: its sums should stay in the second-level cache, rows be read seldom.

    Of a single class in a tile there are two blocks at least where `rows` as they lie are few numbers, and sums, too:
    half of them take half of the memory.

    Parameters
    ----------
    classes : of a tile
    """
    if classes == 1 and rows and TOGETHER < q <= triangle.SQUARE:
        return min(HALF, -(-q // 2))
    if classes == 1:
        return 640
    return 64 if q <= 192 else 128


class Found(NamedTuple):
    """Sums over rows, float64; the last two are empty if they were not asked for."""

    gram: np.ndarray  # (classes, q, q), upper triangles, or (classes, numbers), panels: sum_i w_ij x_i x_i'
    products: np.ndarray  # (2, classes, q): sum_i r_ij x_i and sum_i w_ij x_i
    totals: np.ndarray  # (2, classes): sum_i r_ij and sum_i w_ij


class _Product(NamedTuple):
    """The products of columns a:a + width with columns b:b + width, for a set of classes."""

    chunk: int
    a: int
    b: int

    @property
    def same(self) -> bool:
        """Whether the columns are the same: half of the products are enough."""
        return self.a == self.b


def weighted_sums(
    X: np.ndarray | Panels,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray | None = None,
    panels: bool = False,
    apart: bool = False,
) -> Found:
    """Return the Gram matrix of each class, and with R the sums of its responses, of x = X - center.

    Parameters
    ----------
    X : (n, q) float32 or float64, rows of adjacent numbers; or panels, which are centred already
    center : (q,) in the dtype of X; of panels it is not looked at
    W, R : (n, classes) weights and weighted responses, in the dtype of X; where the weights of a row are all zero so
        are its responses
    panels : whether the Gram matrices are wanted as in :mod:`pipeline.backends.triangle`
    apart : whether each class is to be added up for itself: see :func:`one_by_one`; or most weights are zero, of other
        rows for each class

    Notes
    -----
    The product of two columns is worked out once and weighted by every class of a tile: n q^2 / 2 multiplications more
    than the n q^2 operations a class that a symmetric product needs, and none of the passes that scale rows. Tiles of
    one class, all there are with 16 registers, scale the rows of one factor while they are in the cache. Each ROWS
    rows, counted from the first, are added in the dtype of X, and these sums in float64: sets of rows that are cut at
    multiples of ROWS give the same sums up to the rounding of float64. Rows without weight are left out, but not of
    panels. The tiles of a task are added to the Gram matrix as soon as those of the rows before are: all of them
    together would take as much memory again, or several times as much.
    """
    if not isinstance(X, Panels):
        adjacent(X)
    plan = _Plan.of(X, W.shape[1], apart)
    q, classes = X.shape[1], W.shape[1]
    starts = triangle.starts(q) if panels else np.arange(0, q * q, q)
    gram = np.zeros((classes, triangle.size(q) if panels else q * q))
    apiece = isinstance(X, Panels) and plan.size == 1  # then the other sums are of all classes, in one pass
    sums = _add_all(X, center, plan, W, W[:0] if R is None or apiece else R, (gram, starts))
    if not panels:
        gram = gram.reshape(classes, q, q)
    if R is None:
        return Found(gram, np.empty(0), np.empty(0))
    if isinstance(X, Panels) and plan.size == 1:
        # by the machine code that residuals of several classes need, too
        both, totals = panel_products(X, np.hstack([R, W]), classes if classes > 1 else 0)
        return Found(gram, both.T.reshape(2, classes, q), totals.reshape(2, classes))
    return Found(gram, *_rest(plan, sums, q, classes))


def _add_all(X, center, plan: _Plan, W, R, into: tuple[np.ndarray, np.ndarray]) -> dict[_Product, np.ndarray]:
    """Add the Gram matrices to `into`, zeros and where their rows begin; return the other sums of each product."""
    gram, starts = into
    weights, responses = plan.chunked(W), plan.chunked(R)
    multiply = _multiplier(X, center, plan, weights[0], responses[0])
    sizes = tuple(map(len, plan.shape))
    prepare(gram_kernels.add_to_gram, np.zeros(1), gram, starts, 0, 0, plan.width, sizes, True)
    sums = {one: np.empty((plan.segments, plan.sums(one.same))) for one in plan.products}
    turns = {one: _Turns() for one in plan.products}

    def work(i: int) -> None:
        one, segment = tasks[i]
        tiles, rows = np.empty(plan.numbers(one.same)), plan.bounds[segment : segment + 2]
        multiply(weights[one.chunk], responses[one.chunk], *rows, one, tiles, sums[one][segment])
        mine = gram[one.chunk * plan.size : (one.chunk + 1) * plan.size]
        place = mine, starts, one.a, one.b, plan.width, sizes, segment == 0
        turns[one].take(segment, lambda: gram_kernels.add_to_gram(tiles, *place))

    tasks = list(itertools.product(plan.products, range(plan.segments)))
    # in turns: then tiles seldom wait for those of the rows before
    if plan.size == 1 and X.shape[1] <= triangle.SQUARE:
        tasks.sort(key=lambda task: task[1])
    kernels.share(work, len(tasks), parallel=X.size > kernels.SERIAL)
    return sums


class _Turns:
    """Calls in the order of their numbers, from 0 on, each by whoever is there when its turn has come."""

    def __init__(self) -> None:
        self._lock, self._waiting = threading.Lock(), dict[int, Callable[[], None]]()
        self._next, self._busy = 0, False

    def take(self, number: int, work: Callable[[], None]) -> None:
        """Call `work` now, and what waits for it, or leave it to the one whose call is at work or awaited."""
        with self._lock:
            self._waiting[number] = work
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                turn = self._waiting.pop(self._next, None)
                if turn is None:
                    self._busy = False
                    return
                self._next += 1
            turn()


def _multiplier(X, center, plan: _Plan, W: np.ndarray, R: np.ndarray) -> Callable[..., None]:
    """Return multiply(W, R, begin, end, product, tiles, sums): a product over rows begin to end."""
    shapes: tuple = (plan.width, plan.shape, plan.both)
    nothing = np.zeros(1), np.zeros(1)
    if isinstance(X, Panels):
        data, n = X.data, len(X)
        if plan.size == 1:
            add_one = gram_kernels.add_panel_products_of_one
            prepare(add_one, data, n, W, 0, 0, 0, 0, plan.width, plan.shape, nothing[0])

            def of_one(W, R, begin, end, product, tiles, sums) -> None:
                blocks = begin // ROWS, -(-end // ROWS)
                add_one(data, n, W, *blocks, product.a, product.b, plan.width, plan.shape, tiles)

            return of_one
        add = gram_kernels.add_panel_products
        shapes = plan.width, (plan.shape, _halved(plan.shape)), plan.both
        ones = np.ones(ROWS * data.shape[3], data.dtype)
        prepare(add, data, n, W, R, 0, 0, 0, 0, *shapes, *nothing, ones)

        def panels(W, R, begin, end, product, tiles, sums) -> None:
            blocks = begin // ROWS, -(-end // ROWS)
            add(data, n, W, R, *blocks, product.a, product.b, *shapes, tiles, sums, ones)

        return panels
    add, most = gram_kernels.add_products, plan.rows
    prepare(add, X, center, W, R, 0, 0, 0, 0, most, *shapes, *nothing)

    def rows(W, R, begin, end, product, tiles, sums) -> None:
        add(X, center, W, R, begin, end, product.a, product.b, most, *shapes, tiles, sums)

    return rows


def _halved(shape: tuple) -> tuple:
    """Return the shape of a tile with half the lanes, or the same if its columns are not within half of them."""
    *rest, columns = shape
    fits = len(columns) % 2 == 0 and len(columns) // 2 % len(shape[1]) == 0
    return (*rest, columns[::2]) if fits else shape


def _rest(
    plan: _Plan, sums: dict[_Product, np.ndarray], q: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return products (2, classes, q) and totals (2, classes) from what the kernels wrote."""
    V, size = len(plan.shape[3]), plan.size
    products, totals = np.empty((plan.chunks, 2 * size, q)), np.empty((plan.chunks, 2 * size))
    for one in plan.products:
        if one.same:
            found = np.add.reduce(sums[one])
            columns = found[2 * size :].reshape(-1, 2 * size, V).transpose(1, 0, 2).reshape(2 * size, -1)
            products[one.chunk, :, one.a : one.a + plan.width] = columns[:, : q - one.a]
            if one.a == 0:
                totals[one.chunk] = found[: 2 * size]
    products = products.reshape(-1, 2, size, q).transpose(1, 0, 2, 3).reshape(2, -1, q)
    totals = totals.reshape(-1, 2, size).transpose(1, 0, 2).reshape(2, -1)
    return products[:, :classes], totals[:, :classes]


class _Plan(NamedTuple):
    """How the sums are divided into tasks: each is a product over a segment.

    Attributes
    ----------
    shape : of a tile, see gram_shape
    both : of a tile of sums of responses and of weights
    chunks, size : sets of classes, and how many a set has
    width : columns of a block
    rows : added in the dtype of X at a time
    segments, bounds : sets of rows, and where they begin and end
    products : the longest first
    """

    shape: tuple
    both: tuple
    chunks: int
    size: int
    width: int
    rows: int
    segments: int
    bounds: list[int]
    products: list[_Product]

    @classmethod
    def of(cls, X: np.ndarray | Panels, classes: int, apart: bool) -> _Plan:
        """Divide the sums of a number of classes over the rows X; of classes `apart` as if there were no other."""
        (n, q), alone = X.shape, apart and one_by_one(X)
        shape = gram_shape(1 if apart else classes, X.dtype)
        size = len(shape[0])
        most = columns_of_a_block(q, size, not isinstance(X, Panels))
        both: tuple = ((None,) * (2 * size), (None,), (None,), shape[3])
        if isinstance(X, Panels) and size > 1:
            shape = shape[0], shape[1], (None,), shape[3]
            both = shape[0], (None,), (None,), shape[3]
        rows = ROWS_OF_ONE if size == 1 and not isinstance(X, Panels) and not alone else ROWS
        unit = len(shape[3]) * len(shape[2])
        width = -(-q // (-(-q // most) * unit)) * unit  # equal blocks: no wider than whole panels make them
        chunks = -(-classes // size)
        blocks = list(itertools.combinations_with_replacement(range(0, q, width), 2))
        tasks = len(blocks) * (2 if alone else 1 if apart else chunks)
        segments = max(1, min(-(-SEGMENTS // tasks), -(-n // rows)))
        bounds = [-(-n // rows) * s // segments * rows for s in range(segments)] + [n]
        blocks.sort(key=lambda ab: ab[0] == ab[1])
        products = [_Product(c, a, b) for (a, b), c in itertools.product(blocks, range(chunks))]
        return cls(shape, both, chunks, size, width, rows, segments, bounds, products)

    def chunked(self, V: np.ndarray) -> list[np.ndarray]:
        """Return the columns of V in sets of `size`; the last is filled up with zeros."""
        return [_padded(V[:, c * self.size : (c + 1) * self.size], self.size) for c in range(self.chunks)]

    def sums(self, same: bool) -> int:
        """Return how many sums of responses and weights a task has."""
        return (self.width + 1) * 2 * self.size if same else 0

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
