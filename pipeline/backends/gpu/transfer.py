"""Between host and device: through page-locked buffers on a stream of their own, so that copies and work overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import cupyx
import numpy as np

from pipeline.backends.gpu import memory
from pipeline.backends.gpu.clock import mark
from pipeline.backends.gpu.matrix import HostMatrix, Resident, empty_matrix, fill_rows, now, streamed
from pipeline.backends.host import native
from pipeline.spans import beside, count, span

STAGED = 1 << 22  # bytes from which page-locked buffers pay
BUFFER = 1 << 25  # bytes of one page-locked buffer
IMAGES = 8192  # images per chunk at most: several chunks, so that there is something to overlap
WORKSPACE = 40  # bytes per pixel that preprocessing may take: float64 copies and their filtered forms


def holds(array: Any) -> bool:
    """Tell whether `array` is a device array, or a matrix that is there or streams through the device."""
    return isinstance(array, cp.ndarray | HostMatrix | Resident)


def put(array: Any) -> Any:
    """Copy a host array to the device.

    A matrix that leaves no room for the work on it stays where it is, as a :class:`HostMatrix`.
    """
    if holds(array):
        return array
    array = native(np.asarray(array))
    if array.ndim == 2 and array.nbytes >= STAGED and not memory.fits(array.nbytes):
        return streamed(array)
    if array.nbytes < STAGED:
        count("to the device", array.nbytes)
        return cp.asarray(np.ascontiguousarray(array))
    out = cp.empty(array.shape, dtype=array.dtype)

    def fill(part: slice, rows: Any) -> None:
        out[part] = rows

    upload(array, None, max(1, BUFFER // max(array[:1].nbytes, 1)), fill, "rows")
    return out


def resident(matrix: Any) -> Any:
    """Return a matrix (n, p) where the backend works, that leaves the device if work on it finds no room there.

    A host matrix is copied to the device, and must not be changed while the result is in use. A device array given must
    be kept by nobody else: as long as somebody does, its memory does not become free.
    """
    if isinstance(matrix, cp.ndarray):
        return Resident(matrix)
    found = put(matrix)
    return Resident(found, np.asarray(matrix)) if isinstance(found, cp.ndarray) else found


def in_room(work: Callable[[], Any], what: str) -> Any:
    """Return work(); if the memory of the device runs out in it, again with the pool emptied, and with room made.

    `work` must leave nothing behind when it fails. `what` says in the log what it is for.
    """
    return memory.whole(work, what)


def get(array: Any) -> np.ndarray:
    """Copy an array to the host; a host array is returned as it is."""
    array = now(array)
    if isinstance(array, HostMatrix):
        return array.host
    if not isinstance(array, cp.ndarray):
        return np.asarray(array)
    if array.nbytes < STAGED:  # what takes time is the wait for the work before it, which has its own name
        count("to the host", array.nbytes)
        return cp.asnumpy(array)
    with span("copy back"):
        count("to the host", array.nbytes)
        return cp.asnumpy(array)


def rows(array: Any, index: np.ndarray) -> Any:
    """Return array[index] for host row numbers, contiguous. Numbers out of range are an IndexError.

    CuPy itself wraps them silently. Rows that find no room beside `array` come home and stream from there. Rows of a
    host array stay in host memory.
    """
    index = np.asarray(index)
    if index.size and (index.min() < 0 or index.max() >= array.shape[0]):
        raise IndexError(f"row numbers must be from 0 to {array.shape[0] - 1}")
    array = now(array)
    if isinstance(array, HostMatrix):
        return HostMatrix(np.ascontiguousarray(array.host[index]))
    if not isinstance(array, cp.ndarray):
        return np.ascontiguousarray(array[index])
    made: list[Any] = []
    if memory.attempt(lambda: made.append(cp.take(array, cp.asarray(index), axis=0))):
        return made[0]
    return streamed(get(array)[index])


def map_images(
    pixels: np.ndarray,
    index: np.ndarray | None,
    work: Callable[[Any, Any], Any],
    width: int,
    dtype: str,
    size: int,
    advance: Callable[[int, int], None] | None = None,
) -> Any:
    """Return the matrix (n, width) that `work` writes from the images; `size` is left to the free memory.

    The images go up once, as they are: 8-bit images as bytes. Parameters and result are those of
    :meth:`pipeline.backends.protocol.Backend.map_images`.
    """
    n = len(pixels) if index is None else len(index)
    out = empty_matrix(n, width, dtype)
    one = int(np.prod(pixels.shape[1:]))
    per_image = one * (2 * pixels.dtype.itemsize + WORKSPACE) + 2 * width * np.dtype(dtype).itemsize

    def place(part: slice, batch: Any) -> None:
        fill_rows(out, part, lambda rows: work(batch, rows))
        if advance is not None:
            advance(part.stop, n)

    upload(pixels, index, min(IMAGES, memory.chunk(max(n, 1), per_image)), place, "images")
    return out


def upload(
    source: np.ndarray,
    index: np.ndarray | None,
    size: int,
    work: Callable[[slice, Any], None],
    what: str,
) -> None:
    """Call work(part, rows) with the rows of source[index] on the device, `size` at a time or fewer.

    While the device works on one chunk, the next is gathered into page-locked memory and copied. `rows` is
    overwritten later: `work` must not keep it. After a failed allocation the chunk is taken again in halves.
    """
    n = len(source) if index is None else len(index)
    begin, planned = 0, size
    while begin < n:
        reached = _upload_from(begin, n, source, index, size, work)
        if reached < n:
            size = memory.halved(min(size, n - reached), what, planned)
        begin = reached


def _upload_from(begin, n, source, index, size, work) -> int:
    """Work through the chunks from `begin`; return where an allocation failed, or n."""
    made: list[Staging] = []
    if not memory.attempt(
        lambda: made.append(Staging((min(size, n - begin), *source.shape[1:]), source.dtype))
    ):
        return begin
    staging = made[0]
    parts = [slice(a, min(a + size, n)) for a in range(begin, n, size)]
    try:
        staging.fill(0, source, index, parts[0])
        for number, part in enumerate(parts):
            if number + 1 < len(parts):
                staging.fill((number + 1) % 2, source, index, parts[number + 1])
            if not memory.attempt(work, part, staging.take(number % 2)):
                return part.start
            staging.release(number % 2)
        return n
    finally:
        staging.close()


class Staging:
    """Two page-locked buffers and two device buffers that take turns.

    Parameters
    ----------
    shape : rows of a buffer, and the shape of a row
    dtype : type of the rows
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        dtype = np.dtype(dtype).newbyteorder(
            "="
        )  # a device knows no other; numbers are turned as they are gathered
        self.device = [cp.empty(shape, dtype=dtype) for _ in range(2)]
        self.pinned = [cupyx.empty_pinned(shape, dtype=dtype) for _ in range(2)]
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.copied = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        self.used = [cp.cuda.Event(disable_timing=True) for _ in range(2)]
        self.count = [0, 0]  # rows in each buffer
        # The buffers may be memory that earlier work on this stream still reads: copies wait for it.
        for slot in range(2):
            self.release(slot)

    def fill(self, slot: int, source: np.ndarray, index: np.ndarray | None, part: slice) -> None:
        """Gather source[index[part]] and start its copy to the device."""
        with span("copy to device"):
            self._fill(slot, source, index, part)

    def _fill(self, slot: int, source: np.ndarray, index: np.ndarray | None, part: slice) -> None:
        rows = part.stop - part.start
        self.copied[slot].synchronize()  # the buffer's last copy must be done before it is overwritten
        pinned = self.pinned[slot][:rows]
        if index is None:
            pinned[...] = source[part]
        else:
            pinned[...] = source[index[part]]
        self.stream.wait_event(self.used[slot])
        target = self.device[slot][:rows]
        beside(lambda: mark(self.stream), lambda: target.set(pinned, stream=self.stream))
        count("to the device", pinned.nbytes)
        self.copied[slot].record(self.stream)
        self.count[slot] = rows

    def take(self, slot: int) -> Any:
        """Return the rows on the device; work that is queued from now on waits for their copy."""
        cp.cuda.get_current_stream().wait_event(self.copied[slot])
        return self.device[slot][: self.count[slot]]

    def release(self, slot: int) -> None:
        """Let the buffer be overwritten once the work queued so far is done."""
        self.used[slot].record(cp.cuda.get_current_stream())

    def close(self) -> None:
        """Wait for copies in flight: their buffers are about to be given back."""
        self.stream.synchronize()


def first_not_finite(X: Any) -> int | None:
    """Return the first row of X (n, p) that holds NaN or infinity, or None. One number comes home per chunk."""
    from pipeline.backends.gpu.matrix import over_rows

    found: list[int] = []

    def look(part: slice, block: Any) -> None:
        good = cp.isfinite(block).all(axis=1)
        worst = cp.argmin(good)
        state = cp.asnumpy(cp.stack([good[worst].astype(cp.int64), worst]))
        if not state[0]:
            found.append(part.start + int(state[1]))

    over_rows(X, 2 * X.shape[1], look)
    return min(found, default=None)
