"""What a training run costs on a machine: measured here on samples, or forecast from a datasheet.

Forecasts are rooflines: the time of a stage is the longest of the times for its bytes, its operations and its
instructions, each at a stated share of the datasheet's peak, plus launches and copies. Stages that no device does
(start, reading, decoding, splitting, scoring, saving) take what they take on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline import config
from pipeline.profiling.counts_fits import residual_bytes
from pipeline.profiling.footprint import Footprint
from pipeline.profiling.work import Work

HOST = ("start", "read", "decode", "split", "evaluate", "save", "between stages")  # whoever does the rest
BANDWIDTH, ARITHMETIC, INSTRUCTIONS, ONE_CORE = "memory bandwidth", "arithmetic", "instructions", "one core"
COPIES, LAUNCHES, HERE, CHAIN = "copies", "launches", "as here", "chain of steps"
# Shares of the peak, assumed: 4.3 of 4.8 TB/s for a copy on an H200 (docs/gpu.md).
OF_BANDWIDTH, OF_PRODUCTS = 0.9, 0.7


class Amounts(Protocol):
    """What is counted of a stage (see ``counts.Count``)."""

    @property
    def bytes(self) -> float: ...  # noqa: D102
    @property
    def operations(self) -> float: ...  # noqa: D102
    @property
    def to_device(self) -> float: ...  # noqa: D102
    @property
    def to_host(self) -> float: ...  # noqa: D102


class Counts(Protocol):
    """Counts the stages of a work: ``counts.counts``."""

    def __call__(self, work: Work, streamed: bool = False) -> Mapping[str, Any]:
        """Return an :class:`Amounts` for each stage, all rounds together."""


@dataclass(frozen=True)
class StageCost:
    """A stage: seconds, and the limit that binds it."""

    stage: str
    seconds: float
    limit: str


@dataclass(frozen=True)
class Forecast:
    """A training run on one machine.

    Attributes
    ----------
    machine : its entry
    measured : whether the seconds come from runs on this machine; else they are a forecast
    images, rounds : of the run
    stages : in order
    footprint : whether it fits
    assumptions : what a forecast takes for granted, in words
    """

    machine: config.Machine
    measured: bool
    images: int
    rounds: int
    stages: tuple[StageCost, ...]
    footprint: Footprint
    assumptions: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of the run, from the start of its process to the end."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def on_device(self) -> float | None:
        """Seconds that the device works and copies, the only ones that a faster one shortens; None without one."""
        if not self.footprint.device_memory:
            return None
        return sum(stage.seconds for stage in self.stages if stage.stage not in HOST)

    @property
    def price(self) -> float | None:
        """What the run costs, in the currency of ``machine.price_per_hour``."""
        each = self.machine.price_per_hour
        return None if each is None else each * self.seconds / 3600.0

    @property
    def energy(self) -> float | None:
        """Watt hours at most: the power of the datasheet all the time."""
        watts = self.machine.power_watts
        return None if watts is None else watts * self.seconds / 3600.0

    def share(self, limit: str) -> float:
        """Return the share of the seconds that `limit` binds."""
        bound = sum(stage.seconds for stage in self.stages if stage.limit == limit)
        return bound / self.seconds if self.seconds > 0.0 else 0.0


def given(machine: config.Machine, name: str) -> float:
    """Return a number of a datasheet entry, which ``machines.require`` has looked at."""
    value = getattr(machine, name)
    if value is None:
        raise ValueError(f"machine.{name} of '{machine.name}' is missing; machines.require comes first")
    return float(value)


def number_type(work: Work, stage: str) -> str:
    """Return the type of a stage's arithmetic, "float32" or "float64"."""
    wide = work.number_bytes == 8 and stage.startswith("boost")
    if stage == "boost/refine":
        wide = residual_bytes(work) == 8
    return "float64" if wide or stage == "boost/solve" else "float32"


def peak(machine: config.Machine, work: Work, stage: str) -> float:
    """Return the datasheet's operations a second for a stage."""
    narrow = number_type(work, stage) == "float32"
    return given(machine, "fp32_tflops" if narrow else "fp64_tflops") * 1e12
