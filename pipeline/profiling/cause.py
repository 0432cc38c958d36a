"""Causes, limits and how near a stage came to them: the words in which verdicts are given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pipeline.profiling.count import Count
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Row

IDLE = 0.5  # cores busy below which for most of the time not even one thread ran
# Share of a limit from which the limit is the cause. The limits are the best of plain copies and large products: a
# perfect program could be at most twice as fast, and no more cores or less Python would give more.
NEAR = 0.5
# The same for stages that stream arrays: a write to memory also reads the line, and new pages are zeroed first, so up
# to twice the bytes counted do move.
NEAR_STREAMING = 0.25


class Cause(Enum):
    """What a stage waits for or is busy with."""

    files = "waiting for files"
    python = "Python overhead"
    one_core = "one core busy"
    memory = "memory bandwidth"
    arithmetic = "arithmetic"
    copies = "copies to the device"
    launches = "launch overhead"
    compile = "compile time"
    waiting = "waiting"
    small = "too short to matter"


@dataclass(frozen=True)
class Verdict:
    """What holds a stage back.

    Attributes
    ----------
    cause : Cause
    words : a sentence
    share_of_limit : of the nearest limit, 0 to about 1; above it where arrays stay in cache. None where nothing was
        counted, or there is no such limit
    limit : the name of that limit
    excess : bytes of memory, or bytes copied, beyond what the work needs; 0 if no more than usual
    behind : whether the host only waits here for what other stages gave to the GPU
    """

    cause: Cause
    words: str
    share_of_limit: float | None = None
    limit: str | None = None
    excess: float = 0.0
    behind: bool = False


@dataclass(frozen=True)
class Share:
    """How near a stage came to one limit, and how many times as high it is for all cores as for one."""

    value: float
    limit: str
    cause: Cause
    gain: float = 1.0

    @property
    def words(self) -> str:
        """Say so."""
        if self.value <= 1.0:
            return f"{f'{self.value:.0%}' if self.value >= 0.005 else 'less than 1%'} of {self.limit}"
        if self.cause is Cause.arithmetic:
            return f"all of {self.limit}"
        return f"all of {self.limit}, and more: part of it stays in cache"


def precision(count: Count) -> str:
    """Return the type of a stage's arithmetic."""
    return "float64" if count.number_bytes == 8 else "float32"


def nearest(row: Row, count: Count, limits: Limits, device: bool) -> Share | None:
    """Return the limit that a stage came nearest to, bandwidth or products; of the `device` if it did the work."""
    kind, spent = precision(count), seconds(row) if device else row.wall
    bandwidth, products, where = limits.copy, limits.product[kind], "this machine's"
    arithmetic = f"{kind} matrix products"
    if count.kind != "products" and limits.vector(
        kind
    ):  # no such stage could reach what blocks in registers give
        products, arithmetic = limits.vector(kind), f"{kind} arithmetic on numbers in cache"
    gains = (bandwidth / limits.copy_one, products / limits.product_one[kind])
    if device and limits.device_copy and limits.device_product:
        bandwidth, products, where = limits.device_copy, limits.device_product[kind], "the GPU's"
        arithmetic = f"{kind} matrix products"
    shares = (
        Share(count.bytes / spent / bandwidth, f"{where} memory bandwidth", Cause.memory, gains[0]),
        Share(count.operations / spent / products, f"{where} {arithmetic}", Cause.arithmetic, gains[1]),
    )
    best = max(shares, key=lambda share: share.value)
    return best if best.value > 0.0 else None


def near(found: Share | None, count: Count) -> bool:
    """Tell whether a stage is held by the limit it came nearest to."""
    if found is None:
        return False
    streams = found.cause is Cause.memory and count.kind == "memory"
    return found.value >= (NEAR_STREAMING if streams else NEAR)


def seconds(row: Row) -> float:
    """Return how long a stage took, where the device may go on after the host."""
    return max(row.wall, row.device or 0.0)


def told(found: Share | None) -> tuple[float | None, str | None]:
    """Return share and name of a limit for a verdict."""
    return (found.value, found.limit) if found is not None else (None, None)


def size(count: float) -> str:
    """Return bytes for people."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.{1 if count < 10 * unit else 0}f} {name}"
    return f"{count:.0f} bytes"


def duration(time: float) -> str:
    """Return seconds for people."""
    return (
        f"{time:.1f} s" if time >= 1.0 else f"{time * 1e3:.1f} ms" if time >= 1e-3 else f"{time * 1e6:.0f} us"
    )
