"""Progress: a bar on a terminal, a line every tenth in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET = 10.0  # seconds without a line

log = logging.getLogger(__name__)

Advance = Callable[..., None]  # advance(done, total, note="")
_silenced = False


@contextmanager
def silent() -> Iterator[None]:
    """Show no progress inside the ``with`` block: neither bars nor lines."""
    global _silenced  # noqa: PLW0603  what is silenced is the program
    before, _silenced = _silenced, True
    try:
        yield
    finally:
        _silenced = before


@contextmanager
def progress(label: str, unit: str = "images", done: int = 0) -> Iterator[Advance]:
    """Show how far a stage is, on the standard error stream.

    Parameters
    ----------
    label : str
        Name of the stage.
    unit : str
        What is counted.
    done : int
        What was done before: the time that is left follows from the rest. It follows without what is done first,
        too: a first round compiles or loads its kernels.

    Yields
    ------
    callable
        ``advance(done, total, note="")``; `note` is shown beside the bar.
    """
    if _silenced:
        yield lambda done, total, note="": None
    elif sys.stderr.isatty():
        with _bar(label, unit, done) as advance:
            yield advance
    else:
        yield _Lines(label, unit, done)


@contextmanager
def _bar(label: str, unit: str, begun: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [
        TextColumn("{task.description:12}"),
        BarColumn(bar_width=28),
        TextColumn(f"{{task.completed:.0f}}/{{task.total:.0f}} {unit}"),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    ]
    lines = _Lines(label, unit, begun, echo=False)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=max(begun, 1), completed=begun, note="")

        def advance(done: int, total: int, note: str = "") -> None:
            bar.update(task, completed=done, total=max(total, 1), note=note)
            lines(done, total, note)

        yield advance


class _Lines:
    """A line at each tenth of the way and at least every ten seconds.

    It goes to the log, and to the error stream where there is no bar.
    """

    def __init__(self, label: str, unit: str, begun: int = 0, echo: bool = True) -> None:
        self.label, self.unit, self.begun, self.echo = label, unit, begun, echo
        self.begin = self.last = time.perf_counter()
        self.tenth = 0
        self.first: tuple[float, int] | None = None  # when the first was done, and how much there was then

    def __call__(self, done: int, total: int, note: str = "") -> None:
        tenth = 10 * done // total if total else 0
        now = time.perf_counter()
        if self.first is None and done > self.begun:
            self.first = now, done
        if tenth <= self.tenth and now - self.last < QUIET:
            return
        self.tenth, self.last = tenth, now
        seconds, left = now - self.begin, self._left(now, done, total)
        line = f"{self.label} {done}/{total} {self.unit}" + (f"  {note}" if note else "")
        if left is not None:
            line += f"  {left:.0f} s left"
        log.info(line)
        if self.echo and (seconds > 2.0 or (left or 0.0) > 2.0):  # short stages need no progress report
            try:
                print(line, file=sys.stderr, flush=True)
            except (
                BrokenPipeError
            ):  # nobody reads the progress any more, as in 2>&1 | head -1; the work goes on
                self.echo = False

    def _left(self, now: float, done: int, total: int) -> float | None:
        """Return the seconds that are left, by all but the first; None while there is nothing else to go by."""
        if done >= total:
            return 0.0
        since, before = self.first or (now, done)
        return (now - since) * (total - done) / (done - before) if done > before else None
