"""What the backends that work in host memory share: there is nowhere to copy to, and nothing to wait for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.spans import span

ROWS = 4096  # rows looked at together by first_not_finite
CACHE_LINE, HUGE_PAGE = 64, 1 << 21  # bytes
MAPPED = 1 << 25  # bytes from which the C library asks the system for new memory each time


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array of unset values, in C order, that begins at a cache line, a large one at a huge page.

    Vectors of a register's size then lie in one cache line each: products of panels that began 16 bytes after one, as
    NumPy's arrays often do, ran at .97 of the speed with registers of 32 bytes.

    NumPy asks for huge pages, but an array may begin anywhere: what lies before its first huge page and after its last
    came in 410 to 920 pages of 4 kB, each by a fault of its own, beside 60 huge ones for the features of 10,000 images:
    some 4 % of HoG's time on two threads.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    unit = CACHE_LINE if size < MAPPED else HUGE_PAGE
    try:
        memory = np.empty(size + unit, np.uint8)
    except MemoryError:
        return np.empty(shape, kind)  # may just fit; if not, the error names what was asked for
    begin = -memory.ctypes.data % unit
    return memory[begin : begin + size].view(kind).reshape(shape)


def put(array: np.ndarray) -> np.ndarray:
    """Return `array`: host memory is where this backend works."""
    return array


def resident(matrix: np.ndarray) -> np.ndarray:
    """Return `matrix`: there is no other memory that it could leave."""
    return matrix


def in_room(work: Callable[[], Any], what: str) -> Any:
    """Return work(): there is no other memory in which room could be made."""
    return work()


def get(array: np.ndarray) -> np.ndarray:
    """Return `array`: host memory is where this backend works."""
    return array


def holds(array: Any) -> bool:
    """Return False: this backend has no arrays that NumPy cannot see."""
    return False


def rows(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return array[index] as a contiguous copy."""
    return np.ascontiguousarray(array[index])


def map_images(
    pixels: np.ndarray,
    index: np.ndarray | None,
    work: Callable[[np.ndarray, np.ndarray], Any],
    width: int,
    dtype: str,
    size: int,
    advance: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Return the matrix (n, width) that `work` writes from pixels[index], `size` images at a time.

    Parameters and result are those of :meth:`pipeline.backends.protocol.Backend.map_images`.
    """
    n = len(pixels) if index is None else len(index)
    out = empty((n, width), dtype)
    for begin in range(0, n, max(size, 1)):
        part = slice(begin, min(begin + size, n))
        with span("gather"):
            batch = pixels[part] if index is None else pixels[index[part]]
        work(batch, out[part])
        if advance is not None:
            advance(part.stop, n)
    return out


def first_not_finite(X: np.ndarray) -> int | None:
    """Return the first row of X (n, p) that holds NaN or infinity, or None."""
    for begin in range(0, len(X), ROWS):
        good = np.isfinite(X[begin : begin + ROWS]).all(axis=1)
        if not good.all():
            return begin + int(np.argmin(good))
    return None


def native(array: np.ndarray) -> np.ndarray:
    """Return an array with its bytes in this machine's order: a copy only if they are in the other order."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
