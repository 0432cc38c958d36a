"""Products over blocks of rows, shared out among threads: sums of X' V and Gram matrices."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.linalg import blas
from threadpoolctl import ThreadpoolController

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.wls_kernels import SEGMENTS

# Elements in the row buffer. Large enough that syrk runs at full speed (p = 3240: 1294 rows), small beside X.
BUFFER = 1 << 22
CACHED = 1 << 18  # numbers in a block of rows that stays in the second-level cache
# Rows of a block whose Gram matrix NumPy's syrk adds up. Of 512 columns it runs at .61 of the speed of a large product
# with 256 rows, .83 with 1024, .86 with 2048; of 128 columns at .68 with 1024, and more would leave the cache.
SHORT, LONG, NARROW = 1024, 2048, 192


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


def centred_blocks(X: np.ndarray, center: np.ndarray, begin: int, end: int, size: int) -> Iterator[tuple]:
    """Yield (a, b, X[a:b] - center) for blocks of rows of at most about `size` numbers, in one reused buffer."""
    rows = max(1, min(end - begin, size // max(X.shape[1], 1)))
    buffer = np.empty((rows, X.shape[1]), dtype=X.dtype)
    for a in range(begin, end, rows):
        b = min(a + rows, end)
        kernels.center_rows(X[a:b], center, buffer[: b - a])
        yield a, b, buffer[: b - a]


def products(X: np.ndarray, center: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return (X - center)' V, float64 (q, columns of V), added up in float64 over blocks of rows."""
    q, k = X.shape[1], V.shape[1]

    def segment(begin: int, end: int) -> np.ndarray:
        total = np.zeros((k, q))
        for a, b, rows in centred_blocks(X, center, begin, end, CACHED):
            total += V[a:b].T @ rows  # this way round BLAS runs at full speed on few columns
        return total

    return np.add.reduce(share_segments(segment, X.shape[0], X.size)).T


def weighted_blocks(
    X: np.ndarray, center: np.ndarray, w: np.ndarray, rows_at_once: int
) -> Iterator[np.ndarray]:
    """Yield sqrt(w) (X - center) in blocks of rows, in one reused buffer.

    Rows of weight zero (trimmed, or of zero sample weight) are left out: the cost falls with them.
    """
    rows = np.flatnonzero(w)
    root = np.sqrt(w[rows])
    buffer = np.empty((min(rows.size, rows_at_once), X.shape[1]), dtype=X.dtype)
    for a in range(0, rows.size, rows_at_once):
        part = rows[a : a + rows_at_once]
        kernels.scale_rows(X, center, part, root[a : a + part.size], buffer[: part.size])
        yield buffer[: part.size]


def small_gram(X: np.ndarray, center: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """Write (X - center)' diag(w) (X - center) to `out`, float64; blocks are added up in float64.

    NumPy sees A'A and calls syrk, with the GIL released: other threads do other classes meanwhile.
    """
    q = X.shape[1]
    product = np.empty((q, q), dtype=X.dtype)
    out[...] = 0.0
    for block in weighted_blocks(X, center, w, SHORT if q <= NARROW else LONG):
        out += np.matmul(block.T, block, out=product)


def large_gram(X: np.ndarray, center: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the same, lower triangle in Fortran order, added up by syrk itself in the dtype of X.

    At q = 3240 adding blocks up outside of BLAS took a quarter of the time.
    """
    q = X.shape[1]
    syrk = blas.ssyrk if X.dtype == np.float32 else blas.dsyrk
    gram = np.zeros((q, q), dtype=X.dtype, order="F")
    for block in weighted_blocks(X, center, w, max(1, BUFFER // q)):
        gram = syrk(1.0, block.T, beta=1.0, c=gram, lower=True, overwrite_c=True)
    return gram
