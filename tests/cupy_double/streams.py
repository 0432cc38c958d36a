"""Streams whose work is done as late as CUDA allows: when someone waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.cupy_double.machine import CUDARuntimeError, Machine


class Stream:
    """A stream of copies. Work on the null stream, where everything else runs, is done at once."""

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.eager = null
        self.queue: list[Callable[[], None] | None] = []
        self.done = 0

    def submit(self, work: Callable[[], None]) -> None:
        """Queue some work."""
        self.queue.append(work)
        if self.eager:
            self.run(len(self.queue))

    def run(self, until: int) -> None:
        """Do the first `until` pieces of work that were queued."""
        while self.done < until:
            work = self.queue[self.done]
            self.queue[self.done] = None  # and the arrays that it holds
            self.done += 1
            if work is not None:
                work()

    def synchronize(self) -> None:
        """Do everything."""
        self.run(len(self.queue))

    def record(self, event: Event | None = None) -> Event:
        """Mark this place in the stream."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work of this stream wait for the event."""
        self.submit(event.synchronize)

    def __enter__(self) -> Stream:
        raise AssertionError("double: the backend works on the caller's current stream")

    def __exit__(self, *_: Any) -> None:
        return


class Event:
    """A place in a stream."""

    machine: Machine

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.place: tuple[Stream, int] | None = None
        self.when = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Mark the place."""
        stream = stream or NULL
        self.place = (stream, len(stream.queue))
        self.when = time.perf_counter()

    def synchronize(self) -> None:
        """Wait until the stream has come so far."""
        if self.place is not None:
            self.place[0].run(self.place[1])


NULL = Stream(null=True)


def device(machine: Machine) -> type:
    """Return the class of devices."""

    class Device:
        """As cupy.cuda.Device."""

        def __init__(self, number: int | None = None) -> None:
            self.id = machine.current if number is None else number

        def use(self) -> None:
            """Make it the current device."""
            if not 0 <= self.id < machine.devices:
                raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
            machine.current = self.id

        def __enter__(self) -> Device:
            self.before = machine.current
            self.use()
            return self

        def __exit__(self, *_: Any) -> None:
            machine.current = self.before

        def synchronize(self) -> None:
            """Wait for everything."""
            NULL.synchronize()

    return Device


def get_current_stream() -> Stream:
    """Return the null stream."""
    return NULL


def get_elapsed_time(begin: Event, end: Event) -> float:
    """Return milliseconds between two events."""
    return max((end.when - begin.when) * 1e3, 1e-6)
