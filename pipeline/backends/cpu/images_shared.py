"""Images shared out among threads: each takes the next part when it is done with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np


class ImageWorker(Protocol):
    """Scratch memory of one thread, and what it does."""

    chunk: int  # images at a time
    prepared: Any  # true: nothing is left to compile

    def compile(self, out: np.ndarray) -> None:
        """Compile before threads start, so that they do not wait for one another inside."""

    def __call__(self, source: np.ndarray, out: np.ndarray, parts: Iterator[slice], /) -> None:
        """Write the rows of `out` from those of `source`, one of the `parts` after another."""


def share_images(
    make: Callable[[], ImageWorker], source: np.ndarray, out: np.ndarray, per_thread: int
) -> None:
    """Let workers, one for each thread, write the rows of `out` from those of `source`.

    Parameters
    ----------
    make : returns a worker
    per_thread : images below which starting another thread costs more than it saves
    """
    from numba import get_num_threads

    n = len(source)
    threads = min(get_num_threads(), -(-n // per_thread))
    workers = [make() for _ in range(threads)]
    if not threads:
        return
    size = -(-n // (threads * -(-n // (threads * workers[0].chunk))))  # as many chunks for each thread
    parts = iter([slice(first, first + size) for first in range(0, n, size)])
    if threads == 1:
        workers[0](source, out, parts)
        return
    if not workers[0].prepared:
        workers[0].compile(out)
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(worker, source, out, parts) for worker in workers[1:]]
        try:
            workers[0](source, out, parts)
        finally:  # after an interrupt nobody takes another
            list(parts)
        for other in others:
            other.result()
