"""Signals that ask the process to end: at once, or, while a round of boosting is at work, after it.

The command line installs the handlers with :func:`catch_signals`. Whoever must not be cut short says so with
:func:`deferred`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

log = logging.getLogger(__name__)

_deferring = False
_pending: int | None = None
_raised: int | None = None


class Stopped(KeyboardInterrupt):
    """A signal that asks the process to end.

    Attributes
    ----------
    number : int
        Of the signal.
    advice : str
        What to tell beside "interrupted": how far the work came, and how to go on; may be empty.
    """

    def __init__(self, number: int, advice: str = "") -> None:
        super().__init__(number)
        self.number, self.advice = number, advice


def raised(number: int) -> Stopped:
    """Return what to raise for a signal, and keep that it was raised: see :func:`check`."""
    global _raised  # noqa: PLW0603  signals belong to the process
    _raised = number
    return Stopped(number)


def check() -> None:
    """Raise the last signal again, if what it raised was swallowed: compilers and finalizers do that.

    Called where a stage or a round begins.
    """
    if _raised is not None:
        raise Stopped(_raised)


def note(number: int) -> bool:
    """Keep a signal for later if one may wait; return False if the process has to end now.

    A second signal never waits.
    """
    global _pending  # noqa: PLW0603  signals belong to the process
    if not _deferring or _pending is not None:
        return False
    _pending = number
    return True


def pending() -> int | None:
    """Return the number of the signal that waits, or None."""
    return _pending


@contextmanager
def deferred() -> Iterator[None]:
    """Let the first signal wait while the block runs; the block looks for it with :func:`pending`.

    Raises
    ------
    Stopped
        At the end of the block, if a signal came that the block did not see.
    """
    global _deferring, _pending
    _deferring, _pending = True, None
    try:
        yield
    finally:
        _deferring, number, _pending = False, _pending, None
    if number is not None:
        raise Stopped(number)


def catch_signals() -> None:
    """End on SIGTERM and SIGHUP as on Ctrl-C: half-written files are removed on the way out.

    While train boosts, the first signal lets the round end and a checkpoint be written.
    """
    came: list[int] = []

    def stop(number: int, _: Any) -> None:
        came.append(number)
        if note(number):
            if sys.stderr.isatty():  # not through Python's stream, which may be in the middle of a line
                with suppress(OSError):  # SIGHUP: the terminal has gone
                    os.write(2, b"\nstopping after this round; once more stops at once\n")
            return
        raise raised(number)

    tell = sys.unraisablehook

    def told(problem: Any) -> None:
        if issubclass(
            problem.exc_type, Stopped
        ):  # a finalizer caught it: the next stage or round raises it again
            return
        if came and _of_compiler(
            problem.object
        ):  # the signal met the making of an object: half of one is finalized
            log.debug("after a signal: %s: %s", problem.exc_type.__name__, problem.exc_value)
            return
        tell(problem)

    sys.unraisablehook = told
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is None:  # Windows has no SIGHUP
            continue
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):  # nohup ignores SIGHUP
            signal.signal(number, stop)


def _of_compiler(finalizer: Any) -> bool:
    """Tell whether a finalizer is of the compiler's objects."""
    return str(getattr(finalizer, "__module__", "")).split(".")[0] in ("llvmlite", "numba")
