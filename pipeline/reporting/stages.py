"""Wall-clock seconds of the named stages of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipeline import interrupts
from pipeline.spans import span


class Stages:
    """Seconds per stage, in the order in which the stages first began.

    Parameters
    ----------
    started : float, optional
        ``time.perf_counter()`` at the start of the program; everything until now becomes the stage "start".

    typed : sequence of str
        The settings as they were typed on the command line.

    Attributes
    ----------
    seconds : dict of str to float
    """

    def __init__(self, started: float | None = None, typed: Sequence[str] = ()) -> None:
        self.typed = tuple(typed)
        self.seconds: dict[str, float] = {}
        if started is not None:
            self.seconds["start"] = time.perf_counter() - started

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time inside the ``with`` block to stage `name`."""
        interrupts.check()
        begin = time.perf_counter()
        self.seconds.setdefault(name, 0.0)
        try:
            with span(name):
                yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @property
    def total(self) -> float:
        """Sum over the stages, in seconds."""
        return sum(self.seconds.values())
