"""Images shared out among threads: each takes the next part when it is done with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels


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

    Threads are those that :mod:`pipeline.backends.cpu.wls_kernels` keeps: to start one anew, to see it begin and to
    see it end took .4 ms, of 7 ms in which two threads describe 2,000 images. Each makes its worker itself, beside the
    others.

    Parameters
    ----------
    make : returns a worker
    per_thread : images below which another thread costs more than it saves
    """
    n = len(source)
    threads = min(kernels.threads(), -(-n // per_thread))
    if not threads:
        return
    first = make()
    size = -(-n // (threads * -(-n // (threads * first.chunk))))  # as many chunks for each thread
    parts = iter([slice(begin, begin + size) for begin in range(0, n, size)])
    if threads == 1:
        first(source, out, parts)
        return
    if not first.prepared:
        first.compile(out)
    idle = [first]

    def take_part(_: int) -> None:
        try:
            try:
                worker = idle.pop()
            except IndexError:
                worker = make()
            worker(source, out, parts)
        except BaseException:  # after an interrupt nobody takes another
            list(parts)
            raise
        idle.append(worker)  # where no other thread was free, the next call is here, too

    kernels.share(take_part, threads, parallel=True)
