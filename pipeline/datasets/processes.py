"""Processes that help to read small files, and what they and this one tell each other.

Nothing is forked and nothing pickled: ``helper`` is a program of its own. Pictures come through a few slots of memory
that all share, and are copied from there: an array that is shared as a whole consists of small pages, whose first use
and release take longer (50 MB: 46 ms instead of 7). The memory has no name, so that nothing is left of it when its
processes end, however they end. A process that dies, or is stopped, is told in the log, and its files are read here.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import PIL

from pipeline import config, spans
from pipeline.datasets import helper, plain
from pipeline.datasets.helper import BATCH, DONE, END, TOLD

log = logging.getLogger(__name__)
_PROGRAM, _PLAIN = Path(helper.__file__), Path(plain.__file__)
_MANY = 256  # files; where helpers leave so many, and read fewer, they are no help
SILENT = 10.0  # seconds; who tells of no files for so long, when nothing else is left to do, is ended
_SLOTS, _BYTES = 2, 4 << 20  # at least so many slots for each process; bytes of them where more fit


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
    """A number of processes that help this one, to be used as a context manager.

    Raises
    ------
    OSError
        When the system refuses them.
    """

    def __init__(self, count: int) -> None:
        self._total = count + 1
        self._running: list[_Helper] = []
        self._memory = os.memfd_create("pictures")
        try:
            for who in range(1, self._total):
                self._running.append(_Helper(self._started(who), who))
        except BaseException:
            self.close()
            raise

    def _started(self, who: int) -> subprocess.Popen[bytes]:
        site = str(Path(PIL.__file__).parents[1])
        words = [sys.executable, "-I", "-S", "-B", str(_PROGRAM), str(_PLAIN), site, str(self._memory)]
        return subprocess.Popen(
            [*words, str(who), str(self._total)],
            bufsize=0,
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
        image: config.Image,
        most: int,
        pixels: memoryview,
        here: Callable[[range], object],
        progress: Callable[[int], object],
    ) -> list[int]:
        """Read files together.

        Parameters
        ----------
        paths, sizes : of the files; bytes, 0 where they are not known
        image : settings
        most : pixels of a file
        pixels : bytes of the pictures, one after the other
        here : reads some of the files in this process
        progress : is told the number of files done

        Returns
        -------
        list of int
            Files that nobody has read: they are not plain, as most may be, or a process died of them.
        """
        n, length = len(paths), image.height * image.width
        slots = max(_SLOTS, _BYTES // (BATCH * length))
        taken, at_sizes, at_paths = helper.places(n, self._total, slots, length)
        blob = os.fsencode("\0".join(paths))
        os.ftruncate(self._memory, 0)  # what the last order left is gone
        try:
            os.ftruncate(self._memory, at_paths + len(blob))
            memory = mmap.mmap(self._memory, at_paths + len(blob))
        except (OSError, ValueError, MemoryError) as error:
            log.warning("no memory to share with processes that help to read (%s): threads read", error)
            return list(range(n))
        state = bytearray(n)
        left = 0
        with memory:
            memory[at_sizes:at_paths] = np.asarray(sizes, np.int64).tobytes()
            memory[at_paths:] = blob
            padded = image.fit is config.Fit.pad
            line = b"%d %d %d %d %d %d\n" % (n, image.width, image.height, padded, most, slots)
            for one in self._running:
                one.begin(line, slots)

            def collect(one: _Helper) -> None:
                nonlocal left
                for batch, found, slot in one.told():
                    files = helper.files_of(batch, n)
                    begin, size = slot * BATCH * length, len(files) * length
                    pixels[files.start * length : files.stop * length] = memory[begin : begin + size]
                    state[files.start : files.stop] = found[: len(files)]
                    one.free_slot()
                    left += len(files) - found.count(DONE)

            for batch in helper.turns(n, 0, self._total, memory, taken):
                files = helper.files_of(batch, n)
                here(files)
                state[files.start : files.stop] = bytes([DONE]) * len(files)
                for one in self._running:
                    collect(one)
                done = state.count(DONE)
                progress(done)
                if left > max(_MANY, done):  # whoever is at work stops after the batch it has
                    memory[taken:at_sizes] = bytes([1]) * (at_sizes - taken)
            while waiting := [one for one in self._running if one.at_work]:
                heard = _any_tells(waiting)
                for one in waiting:
                    collect(one) if heard else one.give_up()
        self._running = [one for one in self._running if not one.dead]
        return [i for i, done in enumerate(state) if done != DONE]

    def close(self) -> None:
        """End the processes, at once."""
        for one in self._running:
            one.process.kill()
        for one in self._running:
            one.close()
        self._running.clear()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _any_tells(waiting: Sequence[_Helper]) -> bool:
    """Wait until one of them tells something, but not longer than SILENT seconds."""
    poll = select.poll()  # select() has no use for descriptors above 1,023
    for one in waiting:
        poll.register(one, select.POLLIN)
    return bool(poll.poll(SILENT * 1000) or poll.poll(0))  # this process may have been stopped meanwhile


class _Helper:
    """One of the processes, as it is known here."""

    def __init__(self, process: subprocess.Popen[bytes], who: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._who = process, who
        self._orders, self._answers = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._answers, False)
        self.at_work = self.dead = False
        self._rest = b""

    def fileno(self) -> int:
        """Return the descriptor of what it tells, for ``select``."""
        return self._answers

    def begin(self, order: bytes, slots: int) -> None:
        """Give an order."""
        self.at_work, self._slots, self._count, self._rest = True, slots, 0, b""
        self._say(order)

    def told(self) -> list[tuple[int, bytes, int]]:
        """Return the batches that it has read since: number, what became of the files, and slot."""
        if not self.at_work:
            return []
        try:
            said = os.read(self._answers, 1 << 16)
        except BlockingIOError:
            return []
        if not said:
            self._died()
            return []
        said = self._rest + said
        whole = len(said) - len(said) % TOLD.size
        self._rest, found = said[whole:], []
        for batch, what in TOLD.iter_unpack(said[:whole]):
            if batch == END:
                self.at_work = False
                spans.worked_elsewhere(int(what.rstrip(b"\0")))
            else:
                slot = (self._who - 1) * self._slots + self._count % self._slots
                found.append((batch, what, slot))
                self._count += 1
        return found

    def free_slot(self) -> None:
        """Say that a slot may be used again."""
        self._say(b"\0")

    def _say(self, what: bytes) -> None:
        with suppress(BrokenPipeError):  # it has died, which is seen where it should tell something
            os.write(self._orders, what)

    def give_up(self) -> None:
        """End a process that tells nothing: it was stopped, or waits for a disk."""
        self.at_work, self.dead = False, True
        self.process.kill()
        log.warning(
            "a process that helped to read files has told nothing for %g s: its files are read here", SILENT
        )
        self.close()

    def _died(self) -> None:
        assert self.process.stderr is not None
        self.at_work, self.dead = False, True
        self.process.kill()
        said = self.process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        code = self.process.wait()
        why = f"signal {-code}" if code < 0 else said or f"status {code}"
        log.warning("a process that helped to read files ended early (%s): its files are read here", why)
        self.close()

    def close(self) -> None:
        """Wait for its end, and close what led to it."""
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
