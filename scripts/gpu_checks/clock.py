"""A limit on the time of a section."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class TimeIsUp(BaseException):
    """The section took too long. No Exception: what a section itself catches must not catch this."""


@contextlib.contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp in what is done inside when so many seconds are over; between two steps of Python, that is.

    An alarm that was set before is set again afterwards.
    """
    if seconds <= 0.0:
        raise TimeIsUp

    def ring(number: int, frame: Any) -> None:
        raise TimeIsUp

    handler = signal.signal(signal.SIGALRM, ring)
    before, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)
        signal.signal(signal.SIGALRM, handler)
