"""How many rows or images fit into the memory of the GPU, and what to do when they do not after all.

CuPy's pool keeps freed memory and fragments, and cuBLAS takes work space when it likes: what is free is an estimate.
So steps are planned for half of it, and an allocation that fails is not the end: the pool is emptied and the step is
taken again with half as many rows, down to one. What cannot be halved, and what one row is too much for, asks for room:
matrices that can stream through the device leave it, the largest first.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import cupy as cp

from pipeline.errors import BackendError

log = logging.getLogger(__name__)

OUT_OF_MEMORY = {  # classes of CuPy's errors, and the status by which each says it
    ("CUDARuntimeError", 2),
    ("CUDADriverError", 2),
    ("CUBLASError", 3),
    ("CUSOLVERError", 2),
}
SHARE = 0.5  # of the free memory that one step may plan to use
LARGEST = 1 << 30  # bytes of one chunk, beyond which larger chunks are no faster


class Guest(Protocol):
    """What is on a device and need not be: a matrix that can stream through it instead."""

    place: int  # number of the device
    nbytes: int  # of its memory; 0 when it has left

    def leave(self) -> str:
        """Let go of the device's memory; return what is to be told of it."""


_guests: weakref.WeakSet[Guest] = weakref.WeakSet()
_leaving = threading.Lock()


def may_leave(guest: Guest) -> None:
    """Take note of a guest; it is forgotten when nobody uses it any more."""
    _guests.add(guest)


def make_room(what: str) -> bool:
    """Let the largest guest of the current device leave it, with a line in the log; tell whether there was one."""
    with _leaving:
        here = cp.cuda.Device().id
        guests = [one for one in list(_guests) if one.nbytes and one.place == here]
        if not guests:
            return False
        told = max(guests, key=lambda one: one.nbytes).leave()
    log.warning("out of GPU memory for %s: %s", what, told)
    cp.get_default_memory_pool().free_all_blocks()
    return True


def free_bytes() -> int:
    """Return the bytes that can still be allocated on the current device, within the pool's limit if it has one."""
    pool = cp.get_default_memory_pool()
    free = int(cp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    limit = int(pool.get_limit())
    if limit:
        free = min(free, limit - int(pool.used_bytes()))
    return max(free, 0)


def fits(nbytes: int) -> bool:
    """Tell whether an array of `nbytes` leaves room for the work on it."""
    return nbytes <= SHARE * free_bytes()


def chunk(n: int, bytes_per_item: int, largest: int = LARGEST) -> int:
    """Return how many of `n` items to work on at a time, at least 1, when each takes `bytes_per_item`."""
    budget = min(largest, SHARE * free_bytes())
    return max(1, min(n, int(budget) // max(bytes_per_item, 1)))


def chunks(n: int, bytes_per_item: int) -> Iterator[slice]:
    """Yield slices that cover `n` items, each as long as free memory allows when it is asked for."""
    begin = 0
    while begin < n:
        part = slice(begin, begin + chunk(n - begin, bytes_per_item))
        yield part
        begin = part.stop


def in_chunks(
    n: int,
    bytes_per_item: int,
    work: Callable[[slice], None],
    what: str = "rows",
    largest: int = LARGEST,
) -> None:
    """Call work(part) for slices that cover `n` items; on a failed allocation again with half of the items.

    `work` must leave nothing behind when it fails: it may be called again for a part that it has begun.
    """
    in_halves(n, work, what, chunk(n, bytes_per_item, largest))


def in_halves(n: int, work: Callable[[slice], None], what: str = "rows", size: int | None = None) -> None:
    """Call work(part) for slices of `size` of the `n` items, all at once if it is None; otherwise as :func:`in_chunks`.

    All at once is for work that takes next to nothing beside its results: asking for free memory would cost more.
    """
    begin, size = 0, n if size is None else size
    planned = size
    while begin < n:
        part = slice(begin, min(begin + size, n))
        if attempt(work, part):
            begin = part.stop
        else:
            size = halved(part.stop - part.start, what, planned)


def whole(make: Callable[[], Any], what: str) -> Any:
    """Return make(), work that cannot be halved; if an allocation fails, again from an empty pool, then with room made.

    `make` may be called several times: it must leave nothing behind when it fails.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If it fails with no matrix left on the device that could leave it.
    """
    made: list[Any] = []
    if attempt(lambda: made.append(make())):
        return made[0]
    cp.get_default_memory_pool().free_all_blocks()
    log.warning("out of GPU memory for %s: trying again with the pool emptied", what)
    while True:
        try:
            return make()
        except (MemoryError, RuntimeError) as error:
            if not (ran_out(error) and make_room(what)):
                raise


def attempt(work: Callable[..., Any], *arguments: Any) -> bool:
    """Call work(*arguments); return False if an allocation failed; what it had allocated is free then."""
    try:
        work(*arguments)
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        return False
    return True


def ran_out(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out: of CuPy's pool, or elsewhere in the driver or a library.

    Page-locked buffers, the work space of cuBLAS and cuSOLVER and the stacks of kernels are not taken from the pool.
    """
    if isinstance(error, cp.cuda.memory.OutOfMemoryError):
        return True
    return (type(error).__name__, getattr(error, "status", None)) in OUT_OF_MEMORY


def halved(size: int, what: str, planned: int = 1) -> int:
    """Empty the pool and return half of `size`, with a line in the log; if it is 1, make room and return `planned`.

    Raises
    ------
    BackendError
        If `size` is 1 already and nothing can leave the device.
    """
    cp.get_default_memory_pool().free_all_blocks()
    if size <= 1:
        if make_room(f"a single one of the {what}"):
            return planned
        raise BackendError(
            f"out of GPU memory: {free_bytes() / 1e6:.0f} MB are free, too few for a single one of the {what}; "
            "end other programs on this GPU (nvidia-smi), use hog=coarse, or backend=cpu"
        )
    log.warning("out of GPU memory with %d %s at a time: trying %d", size, what, size // 2)
    return size // 2
