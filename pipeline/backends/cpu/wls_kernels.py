"""Kernels over rows: centred into small reused buffers, multiplied, summed; and the threads that share them.

Each is a serial Numba function that releases the GIL; rows are shared out among threads in static chunks. Small
buffers are filled by the calling thread: waking another would cost more than it saves.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numba
import numpy as np

from pipeline.backends.cpu.jit import light_kernel, light_summing_part, prepare, summing_kernel

SEGMENTS = 8  # parts into which rows are cut, whatever the number of threads
TILE = 32  # rows of a matrix that are transposed at a time
SERIAL = 1 << 17  # numbers in a buffer up to which one thread fills it


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the threads beside the caller's; each starts when it is needed first."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), thread_name_prefix="hogboost")


class _Background:
    """Those of them that work for somebody who may not have asked for the result yet.

    They are looked at, not counted up and down: an interrupt between a count and the work that would undo it left the
    process with one thread for good.
    """

    def __init__(self) -> None:
        self.lock, self.work = threading.Lock(), list[Future]()

    def add(self, work: list[Future]) -> None:
        with self.lock:
            self.work += work

    @property
    def threads(self) -> int:
        with self.lock:
            self.work = [one for one in self.work if not one.done()]
            return len(self.work)


_background = _Background()


def _forked() -> None:
    """Forget threads: a forked child has none of its parent's, and makes its own."""
    _pool.cache_clear()
    _background.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_sharing = (
    threading.local()
)  # .busy is set while a thread does its part: sharing within it would wait for itself


def _on_threads(run: Callable[[int], None], threads: int) -> None:
    """Call run(0) here and run(1) to run(threads - 1) on other threads; return when all are done."""

    def part(i: int) -> None:
        _sharing.busy = True
        try:
            run(i)
        finally:
            _sharing.busy = False

    others = [_pool().submit(part, i) for i in range(1, threads)]
    try:
        part(0)
    finally:
        wait(others)
    for other in others:
        other.result()


def threads() -> int:
    """Return the number of threads that share work."""
    return numba.get_num_threads()


def _threads(count: int, parallel: bool) -> int:
    """Return how many threads share `count` tasks: those that are at work already are not waited for."""
    if not parallel or getattr(_sharing, "busy", False):
        return 1
    return max(1, min(numba.get_num_threads() - _background.threads, count))


def share_rows(work: Callable[[int, int], None], rows: int, size: int) -> None:
    """Call work(begin, end) for chunks that cover `rows` rows; on several threads if `size` numbers are many."""
    threads = _threads(rows, size > SERIAL)
    if threads == 1:
        work(0, rows)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    _on_threads(lambda i: work(bounds[i], bounds[i + 1]), threads)


def _nothing(i: int) -> None:
    """Do nothing: there is no task left."""


class Shared:
    """Calls of work(0) to work(count - 1), each once, handed out one by one.

    Other threads begin at once if `parallel`; the thread that calls :meth:`finish` takes part from then on.
    """

    def __init__(self, work: Callable[[int], None], count: int, parallel: bool) -> None:
        self._work, self._tasks, self._lock = work, iter(range(count)), threading.Lock()
        threads = _threads(count, parallel)
        self._others = [_pool().submit(self._part) for _ in range(1, threads)]
        _background.add(self._others)

    def _run(self) -> None:
        while True:
            with self._lock:
                i = next(self._tasks, None)
            if i is None:
                return
            self._work(i)

    def _part(self) -> None:
        _sharing.busy = True
        try:
            self._run()
        finally:
            _sharing.busy = False

    def finish(self) -> None:
        """Return when all is done."""
        if not self._others:
            self._run()
            return
        try:
            self._part()
        finally:  # nothing is left for those that have not begun: they may be busy for long with other callers' work
            begun = [other for other in self._others if not other.cancel()]
            try:
                wait(begun)
            except BaseException:  # an interrupt: nobody may write any more when the caller hears of it
                wait(begun)
                raise
            # What was cancelled stays in the pool's queue until a thread comes by: arrays of the work must not
            self._work = _nothing
        for other in begun:
            other.result()


def share(work: Callable[[int], None], count: int, parallel: bool) -> None:
    """Call work(0) to work(count - 1), each once; on several threads if `parallel`, handed out one by one."""
    Shared(work, count, parallel).finish()


def center_rows(X: np.ndarray, center: np.ndarray, out: np.ndarray) -> None:
    """Write X - center to out, both (rows, p); out may be of a wider type."""
    prepare(_center_rows, X, center, out)
    share_rows(lambda a, b: _center_rows(X[a:b], center, out[a:b]), len(X), out.size)


def residual_rows(
    X: np.ndarray,
    center: np.ndarray,
    W: np.ndarray,
    R: np.ndarray,
    coef: np.ndarray,
    intercept: np.ndarray,
    total,
) -> None:
    """Add to total (classes, q + 1), float64, sum_i e_ij (X_i - center) and sum_i e_ij, e the weighted residuals."""
    prepare(_residual_rows, X, center, W, R, coef, intercept, total)
    _residual_rows(X, center, W, R, coef, intercept, total)


def apply_rows(
    X: np.ndarray, center: np.ndarray, coef: np.ndarray, intercept: np.ndarray, out: np.ndarray
) -> None:
    """Write (X - center) coef' + intercept to out (n, J), worked out in float64; coef (J, q), intercept (J,)."""
    coef, intercept = coef.astype(np.float64, copy=False), intercept.astype(np.float64, copy=False)
    prepare(_apply_rows, X, center, coef, intercept, out)
    share_rows(lambda a, b: _apply_rows(X[a:b], center, coef, intercept, out[a:b]), len(X), X.size)


def weighted_sums(X: np.ndarray, s: np.ndarray, center: np.ndarray, *, squared: bool) -> np.ndarray:
    """Return sum_i s_i (x_ik - center_k), or of its square, float64 (p,); rows are added in fixed segments."""
    n, p = X.shape
    bounds = [n * i // SEGMENTS for i in range(SEGMENTS + 1)]
    totals = np.zeros((SEGMENTS, p))
    prepare(_sum_rows, X, s, center, squared, totals[0])

    def segment(i: int) -> None:
        rows = slice(bounds[i], bounds[i + 1])
        _sum_rows(X[rows], s[rows], center, squared, totals[i])

    share(segment, SEGMENTS, parallel=X.size > SERIAL)
    return np.add.reduce(totals)


def normal_matrix(
    gram: np.ndarray,
    diagonal: np.ndarray,
    xw: np.ndarray,
    sw: float,
    scale: np.ndarray,
    l2: float,
    dtype: str = "float64",
) -> np.ndarray:
    """As :func:`pipeline.backends.solve.normal_matrix`, in float64 and written to the upper triangle of `gram` itself.

    At 512 columns a new matrix took as long as its factorisation: the system fills new memory with zeros first.
    """
    if dtype != "float64":
        raise ValueError("systems with factors in float32 have their own: see wls_large")
    q = xw.size
    given = gram.T  # in C order, what lies below the diagonal in Fortran order lies above it
    factor = -1.0 / sw if sw > 0.0 else 0.0
    prepare(_normal_tiles, given, diagonal, xw, factor, scale, l2, 0, q)
    tasks = 1 if q * q <= SERIAL else 4 * SEGMENTS
    bounds = [-(-q // TILE) * i // tasks * TILE for i in range(tasks)] + [q]
    share(
        lambda i: _normal_tiles(given, diagonal, xw, factor, scale, l2, bounds[i], bounds[i + 1]),
        tasks,
        tasks > 1,
    )
    return gram


@light_kernel
def _center_rows(X, center, out):
    for i in range(X.shape[0]):
        for k in range(X.shape[1]):
            out[i, k] = X[i, k] - center[k]


@light_kernel
def _sum_rows(X, s, center, squared, total):
    """Both sums in one loop: two took .1 s more to compile, and two kernels .2 s."""
    for i in range(X.shape[0]):
        w = s[i]
        for k in range(X.shape[1]):
            d = X[i, k] - center[k]
            total[k] += w * (d * (d if squared else 1.0))


@light_kernel
def _normal_tiles(gram, diagonal, xw, factor, scale, l2, begin, end):
    """Write the normal matrix of rows begin:end of the upper triangle, transposed, to the lower one."""
    q = gram.shape[1]
    for i in range(begin, end):
        gram[i, i] = (diagonal[i] + factor * xw[i] * xw[i] + l2) * (scale[i] * scale[i])
    for first in range(begin, end, TILE):
        last = first + TILE if first + TILE < end else end
        for k in range(first + 1, q):
            x, s = factor * xw[k], scale[k]
            for i in range(first, k if k < last else last):
                gram[k, i] = (gram[i, k] + x * xw[i]) * (s * scale[i])


@light_summing_part
def value(x, coef, intercept, j):
    """Return intercept[j] + x' coef[j]."""
    f = intercept[j]
    for k in range(x.size):
        f += x[k] * coef[j, k]
    return f


@light_summing_part
def add_products(x, e, total, j):
    """Add e x, and e itself, to total[j]."""
    for k in range(x.size):
        total[j, k] += e * x[k]
    total[j, x.size] += e


@summing_kernel
def _apply_rows(X, center, coef, intercept, out):
    x = np.empty(
        X.shape[1]
    )  # made here: the compiler knows that it overlaps no other array, a quarter of the time
    for i in range(X.shape[0]):
        for k in range(x.size):
            x[k] = X[i, k] - center[k]
        for j in range(coef.shape[0]):
            out[i, j] = value(x, coef, intercept, j)


@summing_kernel
def _residual_rows(X, center, W, R, coef, intercept, total):
    x = np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for k in range(x.size):
            x[k] = X[i, k] - center[k]
        for j in range(coef.shape[0]):
            add_products(x, R[i, j] - W[i, j] * value(x, coef, intercept, j), total, j)
