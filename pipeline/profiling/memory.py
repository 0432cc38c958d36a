"""How much memory the process has resident, and the most it had while a stage was at work."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY = 0.02  # seconds between two looks: each takes some 10 us
MOST_SAMPLES = 20_000  # kept for the trace; when there are more, every second one goes


class MemoryWatch:
    """A thread that looks at the resident memory now and then.

    Attributes
    ----------
    stage : name of the stage at work; set by the one who knows
    highest : most bytes seen
    samples : (nanoseconds of ``time.perf_counter_ns``, bytes) of the looks
    """

    def __init__(self) -> None:
        self.stage = ""
        self.highest = 0
        self.samples: list[tuple[int, int]] = []
        self._peaks: dict[str, int] = {}
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
        self._file = None
        self._page = 0
        statm = Path("/proc/self/statm")
        if statm.exists():
            import resource

            self._file = statm.open("rb", buffering=0)
            self._page = resource.getpagesize()

    def read(self) -> int:
        """Return the bytes resident now."""
        if self._file is not None:
            # two threads look: a position of their own, not the file's
            now = int(os.pread(self._file.fileno(), 256, 0).split()[1]) * self._page
        else:
            import psutil

            now = int(psutil.Process().memory_info().rss)
        self.highest = max(self.highest, now)
        return now

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """Look no more; return the most bytes seen in each stage."""
        self._enough.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()
        return self._peaks

    def _run(self) -> None:
        looks, stride = 0, 1
        while not self._enough.wait(EVERY):
            stage, now = self.stage, self.read()
            looks += 1
            if looks % stride == 0:
                self.samples.append((time.perf_counter_ns(), now))
            if len(self.samples) == MOST_SAMPLES:
                del self.samples[::2]
                stride *= 2
            self._peaks[stage] = max(self._peaks.get(stage, 0), now)


def release() -> None:
    """Give memory that is free back to the system, so that what the next run takes is seen as growth.

    The C library keeps up to some 64 MB of freed memory at hand and hands it out again: an array of that size would
    not show. Only glibc can be asked; elsewhere growth is a lower bound.
    """
    import ctypes
    import gc
    import sys

    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent in other C libraries
        if trim is not None:
            trim(0)
