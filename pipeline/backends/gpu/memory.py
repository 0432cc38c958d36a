"""How many rows or images fit into the memory of the GPU, and what to do when they do not after all.

CuPy's pool keeps freed memory and fragments, and cuBLAS takes work space when it likes: what is free is an estimate.
So steps are planned for half of it, and an allocation that fails is not the end: the pool is emptied and the step is
taken again with half as many rows, down to one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

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
    while begin < n:
        part = slice(begin, min(begin + size, n))
        if attempt(work, part):
            begin = part.stop
        else:
            size = halved(part.stop - part.start, what)


def whole(make: Callable[[], Any], what: str) -> Any:
    """Return make(), an allocation that cannot be halved; if it fails, once more from an empty pool.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If it fails again.
    """
    made: list[Any] = []
    if attempt(lambda: made.append(make())):
        return made[0]
    cp.get_default_memory_pool().free_all_blocks()
    log.warning("out of GPU memory for %s: trying again with the pool emptied", what)
    return make()


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


def halved(size: int, what: str) -> int:
    """Empty the pool and return half of `size`, with a line in the log.

    Raises
    ------
    BackendError
        If `size` is 1 already.
    """
    cp.get_default_memory_pool().free_all_blocks()
    if size <= 1:
        raise BackendError(
            f"out of GPU memory: {free_bytes() / 1e6:.0f} MB are free, too few for a single one of the {what}; "
            "end other programs on this GPU (nvidia-smi), use hog=coarse, or backend=cpu"
        )
    log.warning("out of GPU memory with %d %s at a time: trying %d", size, what, size // 2)
    return size // 2
