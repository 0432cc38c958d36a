"""What is known of rows and suites after they ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass
class RowResult:
    """What is known of a row.

    Attributes
    ----------
    status : "ok", "wrong" (its result), "failed" (it raised) or "absent" (this machine lacks what it needs)
    reason, install : why it was not timed, and the command that helps
    first : seconds of the first call, with what is compiled in it
    seconds : of the whole work in each round; extrapolated if `scale` is above 1
    put, get : seconds of the copies to and from where the row works, in each round
    nbytes, operations, arithmetic : what the work needs at least, see `pipeline.benchmarks.registry.Case`
    rate, unit : what binds the work, done in a second: bytes "B", operations "FLOP" or the suite's pieces
    limit, share : the limit that binds, in words, and the time in which the work could be done at that limit by the
        row's; "" and None if the limits are not known
    faster : times the speed of the first row of the suite, or of its group; the median over the rounds
    """

    name: str
    status: str
    reason: str = ""
    install: str = ""
    note: str = ""
    scale: float = 1.0
    on_device: bool = False
    error: float | None = None
    tolerance: float | None = None
    measure: str = ""
    first: float | None = None
    seconds: list[float] = field(default_factory=list)
    put: list[float] = field(default_factory=list)
    get: list[float] = field(default_factory=list)
    nbytes: int = 0
    operations: float = 0.0
    arithmetic: tuple[str, str] = ("vector", "float32")
    rate: float | None = None
    unit: str = ""
    limit: str = ""
    share: float | None = None
    faster: float | None = None

    @property
    def median(self) -> float | None:
        """Median of the rounds, in seconds."""
        return median(self.seconds) if self.seconds else None


@dataclass
class SuiteResult:
    """What is known of a suite."""

    name: str
    work: str
    notes: list[str]
    rounds: int
    rows: list[RowResult]
    limits: dict[str, float]  # "host copy", "GPU float32 product", ...: bytes or operations per second
