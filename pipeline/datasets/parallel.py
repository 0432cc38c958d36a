"""Decoding the files of a listing on all cores: by threads, and small files by processes, see ``helping``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pipeline import config
from pipeline.datasets.decode import DecodeError, quiet, to_bytes
from pipeline.datasets.images import Progress, Rejected, allocate
from pipeline.spans import part

if TYPE_CHECKING:
    from pipeline.datasets.folder import Entry
    from pipeline.datasets.processes import Helpers

log = logging.getLogger(__name__)
_BATCH = 16  # files a thread takes at a time
FEWEST = 1000  # files for each process that helps: below this it starts for too little
SMALL = 16 << 10  # bytes of a file on the average; of larger ones the codecs take nearly all the time


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


class Decoder:
    """Room for the pictures of some files at a time, and who decodes them.

    Attributes
    ----------
    pixels : ndarray of uint8, shape (capacity, image.height, image.width)
        The pictures of the last call of :meth:`decode`; rows of rejected files are undefined.
    """

    def __init__(
        self, pixels: np.ndarray, helpers: Helpers | None, data: config.Data, image: config.Image
    ) -> None:
        self.pixels, self._helpers, self._data, self._image = pixels, helpers, data, image

    def decode(self, entries: Sequence[Entry], progress: Progress | None = None) -> list[Rejected | None]:
        """Decode files, each into its own row.

        Parameters
        ----------
        entries : sequence of Entry
            At most as many as there is room for.
        progress : callable, optional
            Called in this thread with (files done, len(entries)).

        Returns
        -------
        list of Rejected or None, in the order of ``entries``
            Memory beyond ``pixels`` is one decoded file for each worker.
        """
        rejected: list[Rejected | None] = [None] * len(entries)
        pixels: memoryview = memoryview(self.pixels).cast("B")  # type: ignore[arg-type]
        length = self._image.height * self._image.width

        def work(indices: Sequence[int]) -> int:
            with part("decode"):
                for i in indices:
                    one = entries[i]
                    try:
                        row = to_bytes(one.path, one.size, self._image, self._data.max_pixels)
                        pixels[i * length : (i + 1) * length] = row
                    except DecodeError as error:
                        rejected[i] = Rejected(one.name, str(error))
            return len(indices)

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, len(entries))

        left: Sequence[int] = range(len(entries))
        with quiet():
            if self._helpers is not None:
                paths, sizes = [one.path for one in entries], [one.size for one in entries]
                left = self._helpers.read(paths, sizes, self._data.max_pixels, work, tell)
            done = len(entries) - len(left)
            for count in self._by_threads(left, work):
                done += count
                tell(done)
        return rejected

    def _by_threads(self, indices: Sequence[int], work: Callable[[Sequence[int]], int]) -> Iterator[int]:
        """Yield the number of files done, now and then."""
        parts = [indices[start : start + _BATCH] for start in range(0, len(indices), _BATCH)]
        if not parts:
            return
        with ThreadPoolExecutor(min(workers_of(self._data), len(parts))) as pool:
            jobs: list[Future[int]] = [pool.submit(work, one) for one in parts]
            try:
                for job in as_completed(jobs):
                    yield job.result()
            finally:  # an interrupt or a fault must not wait for thousands of files
                pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def decoder(
    entries: Sequence[Entry], data: config.Data, image: config.Image, capacity: int | None = None
) -> Iterator[Decoder]:
    """Make room for `capacity` pictures, by default for all, and ready who decodes them.

    Raises
    ------
    DataError
        When there is no memory for them.
    """
    capacity = len(entries) if capacity is None else min(capacity, len(entries))
    helpers = _helpers(entries, capacity, data, image)
    if helpers is None:
        yield Decoder(allocate(capacity, image), None, data, image)
        return
    with helpers:
        yield Decoder(helpers.pixels, helpers, data, image)


def workers_of(data: config.Data) -> int:
    """Return how many are to decode at the same time."""
    return data.workers or usable_cores()


def helping(entries: Sequence[Entry], data: config.Data) -> int:
    """Return how many processes beside this one are worth their start for these files; 0: use threads."""
    n = len(entries)
    if n < FEWEST or sum(one.size for one in entries) > SMALL * n:
        return 0
    return min(workers_of(data) - 1, n // FEWEST)


def _helpers(
    entries: Sequence[Entry], capacity: int, data: config.Data, image: config.Image
) -> Helpers | None:
    count = helping(entries, data)
    if count == 0:
        return None
    from pipeline.datasets import processes

    if not processes.available():
        return None
    try:
        return processes.Helpers(count, capacity, image)
    except OSError as error:
        log.warning("no process can be started to help with reading (%s): threads read", error)
        return None
