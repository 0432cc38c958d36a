"""How much memory the process has resident, and the most it had while a stage was at work."""

from __future__ import annotations

import os
import threading
from pathlib import Path

EVERY = 0.02  # seconds between two looks: each takes some 10 us


class MemoryWatch:
    """A thread that looks at the resident memory now and then.

    Attributes
    ----------
    stage : name of the stage at work; set by the one who knows
    highest : most bytes seen
    """

    def __init__(self) -> None:
        self.stage = ""
        self.highest = 0
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
        while not self._enough.wait(EVERY):
            stage, now = self.stage, self.read()
            self._peaks[stage] = max(self._peaks.get(stage, 0), now)
