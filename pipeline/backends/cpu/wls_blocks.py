"""Products over blocks of rows, shared out among threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from pipeline.backends import cholesky
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.wls_kernels import SEGMENTS

BUFFER = 1 << 22  # numbers in a block of rows that BLAS multiplies with many columns at full speed
CACHED = 1 << 18  # numbers in a block of rows that stays in the second-level cache


class _OneBlasThread:
    """A context in which BLAS uses one thread; safe when several fits are in it at the same time.

    The limit belongs to the process: the first to enter sets it, the last to leave restores what was before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limit = _blas().limit(limits=1, user_api="blas")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


one_blas_thread = _OneBlasThread()


def factorise_upper(matrix: np.ndarray) -> int:
    """As :func:`pipeline.backends.cholesky.factorise_upper`, large matrices on several threads."""
    with one_blas_thread:
        return cholesky.factorise_upper(matrix, functools.partial(kernels.share, parallel=True))


def share_segments(work: Callable[[int, int], Any], n: int, size: int) -> list[Any]:
    """Return work(begin, end) of each of a fixed number of segments of n rows; on several threads if it pays.

    The segments do not depend on the number of threads, so neither do sums of their results. BLAS uses one thread
    within a segment: waking a second for products this small took longer than it saved.
    """
    bounds = [n * i // SEGMENTS for i in range(SEGMENTS + 1)]
    results: list[Any] = [None] * SEGMENTS

    def segment(i: int) -> None:
        if bounds[i] < bounds[i + 1]:
            results[i] = work(bounds[i], bounds[i + 1])

    with one_blas_thread:
        kernels.share(segment, SEGMENTS, parallel=size > kernels.SERIAL)
    return [result for result in results if result is not None]


def centred_blocks(
    X: np.ndarray, center: np.ndarray, begin: int, end: int, size: int, dtype: np.dtype
) -> Iterator[tuple]:
    """Yield (a, b, X[a:b] - center) for blocks of rows of at most about `size` numbers, in one reused buffer.

    Where nothing is to be subtracted and the type is that of X, the rows are those of X itself.
    """
    rows = max(1, min(end - begin, size // max(X.shape[1], 1)))
    if dtype == X.dtype and not center.any():
        for a in range(begin, end, rows):
            yield a, min(a + rows, end), X[a : min(a + rows, end)]
        return
    buffer = np.empty((rows, X.shape[1]), dtype=dtype)
    for a in range(begin, end, rows):
        b = min(a + rows, end)
        kernels.center_rows(X[a:b], center, buffer[: b - a])
        yield a, b, buffer[: b - a]


def products(X: np.ndarray, center: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return (X - center)' V, float64 (q, columns of V), of factors in float64.

    These sums are few and cheap beside Gram matrices, and what they lose no refinement of the fit would bring back.
    """
    q, k = X.shape[1], V.shape[1]

    def segment(begin: int, end: int) -> np.ndarray:
        total = np.zeros((k, q))
        for a, b, rows in centred_blocks(X, center, begin, end, CACHED // 2, np.dtype(np.float64)):
            total += (
                V[a:b].astype(np.float64).T @ rows
            )  # this way round BLAS runs at full speed on few columns
        return total

    return np.add.reduce(share_segments(segment, X.shape[0], X.size)).T


def residual_products(
    X: np.ndarray, center: np.ndarray, W: np.ndarray, R: np.ndarray, coef: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (X - center)' e (q, classes) and the sums of e (classes,), with e = R - W ((X - center) coef + intercept).

    Parameters
    ----------
    W, R : (n, classes)
    coef, intercept : float64 (q, classes), (classes,)

    Notes
    -----
    One pass over X in float64 throughout, whatever its type.
    """
    (q, count), center = coef.shape, center.astype(X.dtype, copy=False)
    rows = np.ascontiguousarray(coef.T)

    def segment(begin: int, end: int) -> np.ndarray:
        total = np.zeros((count, q + 1))
        part = slice(begin, end)
        kernels.residual_rows(X[part], center, W[part], R[part], rows, intercept, total)
        return total

    total = np.add.reduce(share_segments(segment, X.shape[0], X.size * count))
    return total[:, :q].T, total[:, q]
