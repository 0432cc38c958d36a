"""Decoding the files of a listing on all cores: by threads, and small files by processes, see ``helping``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from pipeline import config
from pipeline.datasets.decode import quiet, to_bytes
from pipeline.datasets.images import Progress, Rejected
from pipeline.datasets.reasons import NO_MEMORY, DecodeError
from pipeline.errors import DataError
from pipeline.processor import usable_cores
from pipeline.spans import part

if TYPE_CHECKING:
    from pipeline.datasets.folder import Entry
    from pipeline.datasets.processes import Helpers

log = logging.getLogger(__name__)
_BATCH = 16  # files a thread takes at a time
FEWEST = 1000  # files for each process that helps: below this it starts for too little
SMALL = 16 << 10  # bytes of a file on the average; of larger ones the codecs take nearly all the time
LARGEST = 1 << 20  # pixels of a picture that is worth copying


class Decoder:
    """Decodes files, with the help of processes where `helpers` are given and worth it; see :func:`decoding`."""

    def __init__(self, data: config.Data, image: config.Image, helpers: Helpers | None = None) -> None:
        self._data, self._image, self._helpers = data, image, helpers

    def decode(
        self, entries: Sequence[Entry], pixels: np.ndarray, progress: Progress | None = None
    ) -> list[Rejected | None]:
        """Decode files, each into its own row.

        Parameters
        ----------
        entries : sequence of Entry
        pixels : ndarray of uint8, shape (len(entries), image.height, image.width), C order
            Receives the pictures. Rows of rejected files are undefined.
        progress : callable, optional
            Called in this thread with (files done, len(entries)).

        Returns
        -------
        list of Rejected or None, in the order of ``entries``
            Memory beyond ``pixels`` is one decoded file for each worker, and 5 MB for each process.
        """
        rejected: list[Rejected | None] = [None] * len(entries)
        rows: memoryview = memoryview(pixels).cast("B") if pixels.size else memoryview(b"")  # type: ignore[arg-type]
        length = self._image.height * self._image.width

        def work(indices: Sequence[int]) -> int:
            with part("decode"):
                for i in indices:
                    one = entries[i]
                    try:
                        row = to_bytes(one.path, one.size, self._image, self._data.max_pixels)
                        rows[i * length : (i + 1) * length] = row
                    except DecodeError as error:
                        rejected[i] = Rejected(one.name, str(error))
            return len(indices)

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, len(entries))

        left: Sequence[int] = range(len(entries))
        with quiet():
            if self._helpers is not None and len(entries):
                paths, sizes = [one.path for one in entries], [one.size for one in entries]
                most = self._data.max_pixels
                left = self._helpers.read(paths, sizes, self._image, most, rows, work, tell)
            done = len(entries) - len(left)
            for count in self._by_threads(left, work):
                done += count
                tell(done)
            # Perhaps others, which were decoded at the same time, had the memory: once more, alone.
            for i, found in enumerate(rejected):
                if found is not None and found.reason == NO_MEMORY:
                    rejected[i] = None
                    work([i])
        return rejected

    def _by_threads(self, indices: Sequence[int], work: Callable[[Sequence[int]], int]) -> Iterator[int]:
        """Yield the number of files done, now and then."""
        parts = [indices[start : start + _BATCH] for start in range(0, len(indices), _BATCH)]
        if not parts:
            return
        with ThreadPoolExecutor(min(workers_of(self._data), len(parts))) as pool:
            try:
                jobs = _submitted(pool, parts, work)
                for job in as_completed(jobs):
                    yield job.result()
            finally:  # an interrupt or a fault must not wait for thousands of files
                pool.shutdown(wait=False, cancel_futures=True)


def _submitted(
    pool: ThreadPoolExecutor, parts: Sequence[Sequence[int]], work: Callable[[Sequence[int]], int]
) -> list[Future[int]]:
    try:
        return [pool.submit(work, one) for one in parts]
    except RuntimeError as error:  # how Python says that the system gives it no thread
        raise DataError(
            f"{error}: no memory is left, or too many processes run; use fewer data.workers, or raise the limits "
            "(ulimit -v, ulimit -u)"
        ) from error


@contextmanager
def started(files: int, data: config.Data, image: config.Image) -> Iterator[Helpers | None]:
    """Start processes for about so many files, before it is known how large they are; None: too few files."""
    helpers = _start(helping(files, data, image))
    with helpers if helpers is not None else nullcontext():
        yield helpers


@contextmanager
def decoding(
    entries: Sequence[Entry], data: config.Data, image: config.Image, ready: Helpers | None = None
) -> Iterator[Decoder]:
    """Choose who decodes files that `entries` are all of; `ready` are processes that are there already."""
    n = len(entries)
    if sum(one.size for one in entries) > SMALL * n:
        yield Decoder(data, image)
    elif ready is not None:
        yield Decoder(data, image, ready)
    else:
        with started(n, data, image) as helpers:
            yield Decoder(data, image, helpers)


def workers_of(data: config.Data) -> int:
    """Return how many are to decode at the same time."""
    return data.workers or usable_cores()


def enough(data: config.Data) -> int:
    """Return the number of files above which no more processes help."""
    return FEWEST * (workers_of(data) - 1)


def helping(files: int, data: config.Data, image: config.Image) -> int:
    """Return how many processes beside this one are worth their start for so many small files; 0: use threads."""
    if image.height * image.width > LARGEST:
        return 0
    return min(workers_of(data) - 1, files // FEWEST)


def _start(count: int) -> Helpers | None:
    if count == 0:
        return None
    from pipeline.datasets import processes

    if not processes.available():
        return None
    try:
        return processes.Helpers(count)
    except OSError as error:
        log.warning("no process can be started to help with reading (%s): threads read", error)
        return None
