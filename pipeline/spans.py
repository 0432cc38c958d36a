"""Names for stretches of work, for whoever measures: the profiler, NVTX. Without a listener they cost 0.1 us.

``with span("hog"):`` marks a stage, in the thread that runs the program. ``with part("sums"):`` marks what a stage
consists of, in any thread: the time of the stage is shared out in proportion. ``count("bytes to the device", n)``
adds to what the stage at work has moved or done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol


class Listener(Protocol):
    """Someone who wants to know."""

    def begin(self, name: str, is_part: bool) -> Any:
        """Note that work called `name` begins in this thread; what is returned comes back to ``end``."""

    def end(self, token: Any) -> None:
        """Note that the work ended, also when it failed."""

    def count(self, name: str, amount: float) -> None:
        """Add `amount` to the count called `name`."""

    def beside(self, begin: Any, end: Any) -> None:
        """Note two events of a device's other stream, between which the work of the stage at work is done."""


_listeners: tuple[Listener, ...] = ()
_elsewhere = 0
_NOBODY: AbstractContextManager[None] = nullcontext()  # one object for all: it holds no state


class _Span:
    __slots__ = ("is_part", "listeners", "name", "tokens")

    def __init__(self, name: str, is_part: bool) -> None:
        self.name, self.is_part = name, is_part

    def __enter__(self) -> None:
        self.listeners = _listeners
        self.tokens = [listener.begin(self.name, self.is_part) for listener in self.listeners]

    def __exit__(self, *exception: object) -> None:
        for listener, token in zip(reversed(self.listeners), reversed(self.tokens), strict=True):
            listener.end(token)


def span(name: str) -> AbstractContextManager[None]:
    """Return a context in which the stage `name` is at work. Stages may lie in each other."""
    return _Span(name, False) if _listeners else _NOBODY


def part(name: str) -> AbstractContextManager[None]:
    """Return a context in which this thread works on the part `name` of the stage at work. Parts do not nest."""
    return _Span(name, True) if _listeners else _NOBODY


def count(name: str, amount: float) -> None:
    """Add to a count of the stage at work."""
    for listener in _listeners:
        listener.count(name, amount)


def beside(make_event: Callable[[], Any], work: Callable[[], Any]) -> None:
    """Do work that a device does on another stream than the current one, between two events if someone listens.

    Parameters
    ----------
    make_event : records an event on that stream and returns it
    work : queues the work
    """
    if not _listeners:
        work()
        return
    begin = make_event()
    work()
    end = make_event()
    for listener in _listeners:
        listener.beside(begin, end)


def elsewhere() -> int:
    """Return the processor time in ns of processes that worked for this one and told so."""
    return _elsewhere


def worked_elsewhere(nanoseconds: int) -> None:
    """Note processor time that another process took for the stage at work here."""
    global _elsewhere  # noqa: PLW0603  as the listeners
    _elsewhere += nanoseconds


def add(listener: Listener) -> None:
    """Let `listener` hear of everything from now on; adding it again changes nothing."""
    global _listeners  # noqa: PLW0603  one process, one set of listeners: that is the point
    if listener not in _listeners:
        _listeners = (*_listeners, listener)


def remove(listener: Listener) -> None:
    """Let `listener` hear no more."""
    global _listeners  # noqa: PLW0603
    _listeners = tuple(one for one in _listeners if one is not listener)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let `listener` hear of everything inside the ``with`` block."""
    add(listener)
    try:
        yield
    finally:
        remove(listener)
