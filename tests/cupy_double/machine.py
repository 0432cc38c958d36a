"""The machine that the double pretends to be: its driver, its memory, and what has happened on it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

GRANULE = 512  # bytes to which CuPy's pool rounds an allocation


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError."""


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime.CUDARuntimeError; status 2 is cudaErrorMemoryAllocation."""

    def __init__(self, text: str, status: int = 999) -> None:
        super().__init__(text)
        self.status = status


class Machine:
    """State of the pretended machine; tests set it and read it.

    Attributes
    ----------
    devices, driver, runtime, capability, memory : what the driver tells
    limit : bytes of the memory pool; 0: no limit but the device's memory
    count : how often: "h2d", "d2h" (transfers), "launch" (our kernels), "gemm", "cholesky", "eigh", "wait"
    bytes : bytes of "h2d" and "d2h"
    peak : the most bytes in use at a time
    places : of each device, how many arrays were made on it
    ranges : names of the NVTX ranges that were opened, in order
    open_ranges : of each thread, how many are open
    """

    def __init__(self) -> None:
        self.devices, self.driver, self.runtime, self.capability = 1, 12080, 12090, (9, 0)
        self.memory = 1 << 30
        self.limit = 0
        self.current = 0
        self.device: Any = None  # the class of devices; set by namespace.py
        self.used = self.cached = self.peak = 0
        self.count: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.places: Counter[int] = Counter()
        self.failed_cholesky = 0
        self.failed_eigh = False
        self.ranges: list[str] = []
        self.open_ranges: Counter[int] = Counter()
        self.linalg = "ignore"  # as cupyx.errstate has it: "raise" makes a failed factorisation an error
        self.fault: str | None = None  # text of the error with which the driver answers
        self.shut: str | None = None  # text of the error with which the device refuses a process
        self.page_locked: int | None = None  # bytes that one page-locked buffer may have; None: any
        self.absent: set[str] = set()  # libraries that are not installed

    def note(self, kind: str, nbytes: int = 0) -> None:
        """Count an event, and a transfer's bytes."""
        self.count[kind] += 1
        self.bytes[kind] += nbytes

    def forget(self) -> None:
        """Set all counters to zero."""
        self.count.clear()
        self.bytes.clear()
        self.peak = self.used

    def push_range(self, name: str) -> None:
        """As cupy.cuda.nvtx.RangePush."""
        self.ranges.append(name)
        self.open_ranges[threading.get_ident()] += 1

    def pop_range(self) -> None:
        """As cupy.cuda.nvtx.RangePop."""
        self.open_ranges[threading.get_ident()] -= 1
        assert self.open_ranges[threading.get_ident()] >= 0, "double: no range is open in this thread"

    def start_profiler(self) -> None:
        """As cupy.cuda.profiler.start."""
        self.count["profiler started"] += 1

    def stop_profiler(self) -> None:
        """As cupy.cuda.profiler.stop."""
        self.count["profiler stopped"] += 1

    def ask(self) -> None:
        """Raise the error that the driver answers with, if it is set."""
        if self.fault is not None:
            raise CUDARuntimeError(self.fault)


class Block:
    """One allocation in the pool; given back when the last array that uses it is gone."""

    def __init__(self, machine: Machine, nbytes: int) -> None:
        self.machine = machine
        self.nbytes = 0
        rounded = -(-nbytes // GRANULE) * GRANULE
        room = min(machine.limit or machine.memory, machine.memory) - machine.used
        if rounded > room:
            raise OutOfMemoryError(
                f"Out of memory allocating {rounded:,} bytes (allocated so far: {machine.used:,})"
            )
        self.nbytes, self.place = rounded, machine.current
        machine.places[self.place] += 1
        machine.cached = max(0, machine.cached - rounded)
        machine.used += rounded
        machine.peak = max(machine.peak, machine.used)

    def __del__(self) -> None:
        self.machine.used -= self.nbytes
        self.machine.cached += self.nbytes


class Pool:
    """As cupy.cuda.MemoryPool, as far as it is asked."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def used_bytes(self) -> int:
        """Return the bytes of live arrays."""
        return self.machine.used

    def free_bytes(self) -> int:
        """Return the bytes kept for later arrays."""
        return self.machine.cached

    def total_bytes(self) -> int:
        """Return the bytes taken from the device."""
        return self.machine.used + self.machine.cached

    def get_limit(self) -> int:
        """Return the limit in bytes; 0 for none."""
        return self.machine.limit

    def set_limit(self, size: int = 0) -> None:
        """Set the limit in bytes."""
        self.machine.limit = size

    def free_all_blocks(self) -> None:
        """Give back what is kept for later arrays."""
        self.machine.count["emptied"] += 1
        self.machine.cached = 0
