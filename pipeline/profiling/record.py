"""What one run took, stage by stage: seconds, processor time, device time, memory, bytes copied."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pipeline.profiling.memory import MemoryWatch
from pipeline.spans import elsewhere

ALONE = frozenset(
    {"compile", "copy to device", "copy back", "decode", "expand"}
)  # one row wherever they happen
WHOLE = "validation"  # a row with all that is done in it
MOST_EVENTS = 200_000  # kept for the trace; the sums go on


class Clock(Protocol):
    """Time on a device; events are recorded in the order of its work."""

    def mark(self) -> Any:
        """Record an event after the work queued so far."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Return the seconds between two events, when both have happened."""


class Event(NamedTuple):
    """A stretch of work, for the trace. Times in seconds since the recording began."""

    name: str
    begin: float
    seconds: float
    thread: int  # 0: the one that runs the program
    depth: int


@dataclass
class Row:
    """Sums over all stretches of one stage, without the stages inside it.

    Attributes
    ----------
    wall, cpu : seconds passed, and processor seconds of all threads, and of processes that help
    device : seconds between the device's events at begin and end; None without a device
    calls : stretches
    counts : what was counted in it, such as bytes copied
    memory_begin, memory_peak : bytes resident when it first began, and at most while it was at work
    """

    wall: float = 0.0
    cpu: float = 0.0
    device: float | None = None
    calls: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    memory_begin: int = 0
    memory_peak: int = 0

    @property
    def cores(self) -> float:
        """Cores kept busy on average."""
        return self.cpu / self.wall if self.wall > 0.0 else 0.0


@dataclass
class Recording:
    """One run."""

    rows: dict[str, Row]
    wall: float
    cpu: float
    memory_peak: int
    events: list[Event]
    spans: int
    memory: list[tuple[float, int]] = field(default_factory=list)  # (seconds since the begin, bytes resident)


@dataclass
class _Frame:
    """A stage at work."""

    path: tuple[str, ...]
    begin: int
    cpu: int
    mark: Any
    inner_wall: int = 0
    inner_cpu: int = 0
    inner_device: list[tuple[Any, Any]] = field(default_factory=list)
    beside: list[tuple[Any, Any]] = field(default_factory=list)  # events of another stream
    parts: dict[str, float] = field(default_factory=dict)  # seconds of all threads
    threads: set[int] = field(default_factory=set)


class Recorder:
    """Listens to the spans of a run (see :mod:`pipeline.spans`); use it as a context manager, once.

    Parameters
    ----------
    clock : Clock, optional
        Of the device that works; without one there are no device seconds.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._stack: list[_Frame] = []
        self._events: list[Event] = []
        self._marks: list[tuple[str, Any, Any, list[tuple[Any, Any]]]] = []
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        self._spans = 0
        self.recording: Recording | None = None

    def __enter__(self) -> Recorder:
        from pipeline import spans

        self._main = threading.get_ident()
        self._threads[self._main] = 0
        self._memory = MemoryWatch()
        self._memory.start()
        self._cpu, self._begin = time.process_time_ns() + elsewhere(), time.perf_counter_ns()
        spans.add(self)
        return self

    def __exit__(self, *exception: object) -> None:
        from pipeline import spans

        wall, cpu = time.perf_counter_ns() - self._begin, time.process_time_ns() + elsewhere() - self._cpu
        spans.remove(self)
        peaks = self._memory.stop()
        for key, peak in peaks.items():
            if key in self._rows:
                self._rows[key].memory_peak = max(self._rows[key].memory_peak, peak)
        self._resolve_device()
        top = max(self._memory.highest, *(row.memory_peak for row in self._rows.values()), 0)
        memory = [((at - self._begin) / 1e9, size) for at, size in self._memory.samples]
        self.recording = Recording(self._rows, wall / 1e9, cpu / 1e9, top, self._events, self._spans, memory)

    # ---- the listener ----

    def begin(self, name: str, is_part: bool) -> Any:
        """Note that work begins."""
        if is_part or threading.get_ident() != self._main:
            frame = self._stack[-1] if self._stack else None
            return (name, frame, time.perf_counter_ns())
        outer = self._stack[-1].path if self._stack else ()
        mark = self._clock.mark() if self._clock is not None else None
        frame = _Frame((*outer, name), 0, time.process_time_ns() + elsewhere(), mark)
        self._stack.append(frame)
        self._memory.stage = _key(frame.path)
        if len(self._stack) == 1:
            self._note_memory(_key(frame.path))
        frame.begin = time.perf_counter_ns()  # last: what this method takes belongs to the stage outside
        return frame

    def end(self, token: Any) -> None:
        """Note that the work ended."""
        now = time.perf_counter_ns()
        self._spans += 1
        if isinstance(token, tuple):
            self._end_part(token, now)
            return
        frame: _Frame = token
        cpu = time.process_time_ns() + elsewhere() - frame.cpu
        wall = now - frame.begin
        while self._stack and self._stack[-1] is not frame:  # a stage inside was left by an exception
            self._stack.pop()
        self._stack.pop()
        key = _key(frame.path)
        self._share_out(key, frame, (wall - frame.inner_wall) / 1e9, (cpu - frame.inner_cpu) / 1e9)
        if self._clock is not None:
            self._end_device(key, frame)
        if self._stack:
            outer = self._stack[-1]
            outer.inner_wall += wall
            outer.inner_cpu += cpu
            self._memory.stage = _key(outer.path)
        else:
            self._note_memory(key)
            self._memory.stage = ""
        self._note(frame.path[-1], frame.begin, now, 0, len(frame.path) - 1)

    def count(self, name: str, amount: float) -> None:
        """Add to a count of the stage at work."""
        if not self._stack:
            return
        key = _key(self._stack[-1].path)
        with self._lock:
            counts = self._rows.setdefault(key, Row()).counts
            counts[name] = counts.get(name, 0.0) + amount

    def beside(self, begin: Any, end: Any) -> None:
        """Note events of another stream: they, and not those of the current one, time the stage at work."""
        if self._stack:
            self._stack[-1].beside.append((begin, end))

    # ---- sums ----

    def _end_device(self, key: str, frame: _Frame) -> None:
        assert self._clock is not None
        if frame.beside:  # it overlaps with the work of the stages around: nothing to take away there
            self._marks += [(key, begin, end, []) for begin, end in frame.beside]
            return
        mark = self._clock.mark()
        self._marks.append((key, frame.mark, mark, frame.inner_device))
        if self._stack:
            self._stack[-1].inner_device.append((frame.mark, mark))

    def _end_part(self, token: tuple[str, _Frame | None, int], now: int) -> None:
        name, frame, begin = token
        thread = threading.get_ident()
        with self._lock:
            number = self._threads.setdefault(thread, len(self._threads))
            if frame is not None:
                frame.parts[name] = frame.parts.get(name, 0.0) + (now - begin) / 1e9
                frame.threads.add(thread)
        self._note(name, begin, now, number, len(frame.path) if frame is not None else 0)

    def _share_out(self, key: str, frame: _Frame, wall: float, cpu: float) -> None:
        """Give the frame's own seconds to its parts, in proportion to the seconds that threads spent on them."""
        rest = 1.0
        if frame.parts and wall > 0.0:
            spent = sum(frame.parts.values())
            covered = min(1.0, spent / (len(frame.threads) * wall))
            for name, seconds in frame.parts.items():
                share = covered * seconds / spent if spent > 0.0 else 0.0
                self._add(_key((*frame.path[:-1], name) if len(frame.path) > 1 else (*frame.path, name)),
                          share * wall, share * cpu)  # fmt: skip
            rest -= covered
            key = _key(frame.path[:-1]) if len(frame.path) > 1 else key
        self._add(key, rest * wall, rest * cpu)

    def _add(self, key: str, wall: float, cpu: float) -> None:
        with self._lock:
            row = self._rows.setdefault(key, Row())
        row.wall += wall
        row.cpu += cpu
        row.calls += 1

    def _note(self, name: str, begin: int, end: int, thread: int, depth: int) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append(Event(name, (begin - self._begin) / 1e9, (end - begin) / 1e9, thread, depth))

    def _note_memory(self, key: str) -> None:
        now = self._memory.read()
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row()  # rows stand in the order in which stages first began
        row.memory_begin = row.memory_begin or now
        row.memory_peak = max(row.memory_peak, now)

    def _resolve_device(self) -> None:
        if self._clock is None:
            return
        for key, begin, end, inner in self._marks:
            seconds = self._clock.seconds(begin, end) - sum(self._clock.seconds(*pair) for pair in inner)
            row = self._rows.setdefault(key, Row())
            row.device = (row.device or 0.0) + max(seconds, 0.0)


def _key(path: tuple[str, ...]) -> str:
    """Return the name of a row: the path of its stages, or the last of them if it has one row wherever it is.

    A stage in a stage of the same name belongs to it, and so does whatever looks at validation images.
    """
    if path and path[-1] in ALONE:
        return path[-1]
    names = [name for name in path if name not in ALONE]
    if WHOLE in names:
        names = names[: names.index(WHOLE) + 1]
    return "/".join(name for i, name in enumerate(names) if i == 0 or name != names[i - 1])
