"""Processes that help to read small files, and the memory that they share with this one.

Nothing is forked and nothing pickled: ``helper`` is a program of its own. The memory has no name, so that nothing is
left of it when its processes end, however they end. A process that dies is told in the log, and its files are read
here.
"""

from __future__ import annotations

import logging
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import PIL

from pipeline import config, spans
from pipeline.datasets import helper, plain
from pipeline.datasets.images import no_room

log = logging.getLogger(__name__)
_PROGRAM, _PLAIN = Path(helper.__file__), Path(plain.__file__)


def available() -> bool:
    """Return whether such processes can be started here: on Linux, by a Python that is a program and runs files."""
    return (
        hasattr(os, "memfd_create")
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)
        and _PROGRAM.is_file()
        and _PLAIN.is_file()
    )


class Helpers:
    """A number of processes that help, and room for pictures.

    Parameters
    ----------
    count : int
        Processes beside this one.
    capacity : int
        The most pictures of an order.
    image : settings

    Attributes
    ----------
    pixels : ndarray of uint8, shape (capacity, height, width)
        Lives on when the processes have ended.

    Raises
    ------
    DataError
        When there is no memory for the pictures.
    OSError
        When the system refuses the processes.
    """

    def __init__(self, count: int, capacity: int, image: config.Image) -> None:
        self._image, self._total = image, count + 1
        self._running: list[subprocess.Popen[bytes]] = []
        shape = (capacity, image.height, image.width)
        size = capacity * image.height * image.width
        self._tail = -(-max(size, 1) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._memory = os.memfd_create("pictures")
        try:
            try:
                os.ftruncate(self._memory, self._tail)
                shared = mmap.mmap(self._memory, self._tail)
            except (OSError, ValueError, OverflowError, MemoryError) as error:
                raise no_room(capacity, image) from error
            self.pixels = np.frombuffer(shared, np.uint8, size).reshape(shape)
            for who in range(1, self._total):
                self._running.append(self._started(who))
        except BaseException:
            self.close()
            raise

    def _started(self, who: int) -> subprocess.Popen[bytes]:
        site = str(Path(PIL.__file__).parents[1])
        words = [sys.executable, "-I", "-S", "-B", str(_PROGRAM), str(_PLAIN), site, str(self._memory)]
        return subprocess.Popen(
            [*words, str(who), str(self._total)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._memory,),
            process_group=0,  # an interrupt at the terminal is for this process, which ends them
        )

    def read(
        self,
        paths: Sequence[str],
        sizes: Sequence[int],
        most: int,
        here: Callable[[range], object],
        progress: Callable[[int], object],
    ) -> list[int]:
        """Read files into the first rows of ``pixels``, together.

        Parameters
        ----------
        paths, sizes : of the files; bytes, 0 where they are not known
        most : pixels of a file
        here : reads some of the files in this process
        progress : is told the number of files done

        Returns
        -------
        list of int
            Files that nobody has read, for they are not plain, or a process died of them.
        """
        n = len(paths)
        blob = os.fsencode("\0".join(paths))
        taken, files, where, text = helper.places(n, 0)
        os.ftruncate(self._memory, self._tail)  # what the last order left is gone
        os.ftruncate(self._memory, self._tail + text + len(blob))
        order = [n, self._tail, self._image.width, self._image.height]
        order += [self._image.fit is config.Fit.pad, most]
        with mmap.mmap(self._memory, text + len(blob), offset=self._tail) as tail:
            tail[where:text] = np.asarray(sizes, np.int64).tobytes()
            tail[text:] = blob
            line = b"%d %d %d %d %d %d\n" % tuple(order)
            for process in self._running:
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # it has died, which is seen below
                    process.stdin.write(line)
                    process.stdin.flush()
            for batch in helper.turns(n, 0, self._total, tail, taken):
                here(batch)
                tail[files + batch.start : files + batch.stop] = bytes([helper.DONE]) * len(batch)
                progress(n - tail[files : files + n].count(helper.UNREAD))
            for process in list(self._running):
                self._await(process)
            state = np.frombuffer(tail[files : files + n], np.uint8)
        return np.flatnonzero(state != helper.DONE).tolist()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process has finished the order; one that has died is told of and forgotten."""
        assert process.stdout is not None
        assert process.stderr is not None
        answer = process.stdout.readline()
        if answer:
            spans.worked_elsewhere(int(answer))
            return
        process.kill()
        said = process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        code = process.wait()
        why = f"signal {-code}" if code < 0 else said or f"status {code}"
        log.warning("a process that helped to read files ended early (%s): its files are read here", why)
        self._running.remove(process)
        _closed(process)

    def close(self) -> None:
        """End the processes, at once."""
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
            _closed(process)
        self._running.clear()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _closed(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):  # an order that nobody read
                stream.close()
