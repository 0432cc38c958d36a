"""A recording as a file of Chrome's trace event format, which Perfetto and speedscope open.

Format: "Trace Event Format" (Google, public document): complete events (ph "X"), counters ("C") and metadata ("M").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.profiling.record import Event, Recording

PROCESS = 1  # one process: its number says nothing


def trace(
    recording: Recording,
    counters: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    title: str = "hogboost train",
) -> dict[str, Any]:
    """Return a recording as a trace.

    Parameters
    ----------
    recording : Recording
    counters : mapping of str to sequence of (float, float), optional
        More curves: seconds since the recording began, and the value from then on.
    title : str
        Name of the process.

    Returns
    -------
    dict
        ``traceEvents`` in the order of time, times in microseconds with nanoseconds as decimals.
        Thread 0 runs the program, the others are its helpers. The curves are ``threads at work``, and
        ``resident memory`` in MB if it was sampled.
    """
    threads = sorted({event.thread for event in recording.events} | {0})
    listed: list[dict[str, Any]] = [_meta("process_name", 0, name=title)]
    for thread in threads:
        listed.append(_meta("thread_name", thread, name="program" if thread == 0 else f"thread {thread}"))
        listed.append(_meta("thread_sort_index", thread, sort_index=thread))
    # Of two that begin together the longer goes first: it is the outer one.
    for event in sorted(recording.events, key=lambda one: (one.begin, -one.seconds, one.depth)):
        listed.append(
            {
                "name": event.name,
                "cat": "stage" if event.thread == 0 else "part",
                "ph": "X",
                "ts": _microseconds(event.begin),
                "dur": _microseconds(event.seconds),
                "pid": PROCESS,
                "tid": event.thread,
            }
        )
    curves: dict[str, Sequence[tuple[float, float]]] = {"threads at work": _busy(recording.events)}
    if recording.memory:
        curves["resident memory, MB"] = [(at, size / 1e6) for at, size in recording.memory]
    curves.update(counters or {})
    for name, samples in curves.items():
        listed.extend(
            {
                "name": name,
                "ph": "C",
                "ts": _microseconds(at),
                "pid": PROCESS,
                "tid": 0,
                "args": {"value": value},
            }
            for at, value in samples
        )
    other = {"wall_seconds": recording.wall, "spans": recording.spans, "spans_kept": len(recording.events)}
    return {"traceEvents": listed, "displayTimeUnit": "ms", "otherData": other}


def write(
    recording: Recording,
    path: str | Path,
    counters: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> None:
    """Write ``trace.json``; see :func:`trace`.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    from pipeline.files import atomic

    with atomic(path) as stream:
        json.dump(trace(recording, counters), stream, separators=(",", ":"), allow_nan=False)


def _meta(name: str, thread: int, /, **values: Any) -> dict[str, Any]:
    return {"name": name, "ph": "M", "ts": 0, "pid": PROCESS, "tid": thread, "args": values}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _busy(events: Sequence[Event]) -> list[tuple[float, float]]:
    """Return how many threads are at work from each moment on at which that changes."""
    inside: dict[int, int] = {}
    steps: list[tuple[float, int, int]] = []
    for event in events:
        steps += [(event.begin, 1, event.thread), (event.begin + event.seconds, -1, event.thread)]
    curve: list[tuple[float, float]] = []
    for at, step, thread in sorted(steps, key=lambda one: (one[0], -one[1])):
        inside[thread] = inside.get(thread, 0) + step
        busy = float(sum(1 for depth in inside.values() if depth > 0))
        if curve and curve[-1][0] == at:
            curve[-1] = (at, busy)
        elif not curve or curve[-1][1] != busy:
            curve.append((at, busy))
    return curve
