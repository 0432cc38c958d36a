"""Time on the device, and what NVIDIA's profilers are told: the names of stages, and when to look."""

from __future__ import annotations

from typing import Any

import cupy as cp


def mark(stream: Any = None) -> Any:
    """Record an event behind the work queued so far on a stream, the current one if none is given."""
    event = cp.cuda.Event()
    event.record(stream or cp.cuda.get_current_stream())
    return event


def seconds(begin: Any, end: Any) -> float:
    """Return the seconds between two events; waits for the second."""
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end)) / 1e3


def finish() -> None:
    """Wait until the device has done everything."""
    cp.cuda.get_current_stream().synchronize()


def memory() -> int:
    """Return the bytes that CuPy's pool holds on the device, used or kept for later: its peak, unless emptied."""
    return int(cp.get_default_memory_pool().total_bytes())


def start_profiler() -> None:
    """Tell nsys or ncu to begin, if one is attached and waits for it (``--capture-range=cudaProfilerApi``)."""
    cp.cuda.profiler.start()


def stop_profiler() -> None:
    """Tell nsys or ncu to stop."""
    cp.cuda.profiler.stop()


def has_ranges() -> bool:
    """Tell whether this CuPy can name ranges: it is built without NVTX on some systems."""
    return hasattr(cp.cuda.nvtx, "RangePush")


class Ranges:
    """Hands the names of spans to NVTX, where NVIDIA's profilers show them; without one it costs next to nothing."""

    def begin(self, name: str, is_part: bool) -> None:
        """Open a range in this thread."""
        cp.cuda.nvtx.RangePush(name)

    def end(self, token: Any) -> None:
        """Close the innermost range of this thread."""
        cp.cuda.nvtx.RangePop()

    def count(self, name: str, amount: float) -> None:
        """Take no notice."""

    def beside(self, begin: Any, end: Any) -> None:
        """Take no notice: the ranges of the host enclose it."""
