"""What a profile says: the content of ``profile.json``, and of every table and page made of it.

The names of these fields are the keys of the file; docs/profile.md describes each. A key is never renamed, dropped or
given another unit without a new :data:`VERSION`; a new key needs none. What was not measured is null or an empty list.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

VERSION = 1  # of the schema

LABELS = {
    "start": "Start and imports",
    "read": "Read files",
    "decode": "Decode images",
    "split": "Split",
    "preprocess": "Preprocess",
    "copy to device": "Copy to the GPU",
    "gather": "Gather the images",
    "hog": "HoG features",
    "write": "Write cell histograms",
    "expand": "Expand cell histograms",
    "reduce": "Principal components",
    "copy back": "Copy back",
    "boost": "Boosting loop",
    "boost/set-up": "Boosting: set-up",
    "boost/columns": "Boosting: columns of a round",
    "boost/sums": "Boosting: sums of products",
    "boost/solve": "Boosting: factorise and solve",
    "boost/refine": "Boosting: refine",
    "boost/update": "Boosting: update",
    "boost/validation": "Boosting: validation",
    "evaluate": "Evaluate",
    "save": "Save",
    "compile": "Compile",
    "": "Between the stages",
}


MADE = {"synthetic": "Make images", "digits": "Unpack the digits"}  # what "read" is where there are no files


def label(key: str, source: str = "") -> str:
    """Return the name of a stage as a person reads it; a stage without one keeps its key.

    Parameters
    ----------
    source : kind of data, if known
    """
    if key == "read" and source in MADE:
        return MADE[source]
    return LABELS.get(key, key)


@dataclass(frozen=True)
class Total:
    """The whole run in the steady state: what a second run in the same process takes."""

    wall: float  # seconds, median over the repeats
    spread: tuple[float, float]  # seconds, smallest and largest
    first: float  # seconds of the first run, which compiles and loads
    cpu: float  # processor seconds of all threads
    memory_peak: int  # bytes resident in host memory at most
    verdict: str  # what holds the run back, a sentence
    device_memory: int | None = None  # bytes of device memory at most
    accuracy: float | None = None  # on the held-out images
    log_loss: float | None = None  # nats
    repeats: int = 1  # runs that `wall` is the median of


@dataclass(frozen=True)
class Stage:
    """One stage of the run, without the stages inside it."""

    name: str  # key: "hog", "boost/sums"
    label: str  # for a person
    wall: float  # seconds, median over the repeats
    spread: tuple[float, float]  # seconds, smallest and largest
    share: float  # of the run's wall seconds
    cpu: float  # processor seconds of all threads
    cores: float  # kept busy on average
    cause: str  # one word of verdict.Cause
    verdict: str  # the cause in words
    calls: int = 1
    device: float | None = None  # seconds between the device's own events
    bytes: float | None = None  # that the algorithm must read and write in main (device) memory
    operations: float | None = None  # floating-point, a multiplication and an addition count as two
    gb_per_s: float | None = None  # bytes / seconds / 1e9
    gflop_per_s: float | None = None  # operations / seconds / 1e9
    limit: str | None = None  # of this machine that the stage is nearest to
    share_of_limit: float | None = None
    to_device: float = 0.0  # bytes copied from the host
    to_host: float = 0.0  # bytes copied back
    first_call: float = 0.0  # seconds that the first run took more
    memory_peak: int = 0  # bytes resident at most while it was at work
    memory_growth: int = 0  # bytes by which that is more than at its beginning


@dataclass(frozen=True)
class Machine:
    """What the run ran on. `limits` are measured in the same run (``limits.Limits.as_dict``)."""

    facts: dict[str, str] = field(default_factory=dict)  # {"processor": ..., "memory": ..., "GPU": ...}
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measuring:
    """What the measuring itself costs."""

    spans: int  # begun and ended in one run
    seconds_per_span: float
    share: float  # of the run's wall seconds
    with_spans: float | None = None  # seconds of a run with the spans listened to
    without_spans: float | None = None  # and of one without


@dataclass(frozen=True)
class CompareRow:
    """The same work on one backend. A backend that cannot run here has a `reason` and no seconds."""

    backend: str
    seconds: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None  # seconds of the slowest row / seconds of this one
    extrapolated: str | None = None  # from how many images, rounds, classes; None: measured in full
    features_difference: float | None = (
        None  # largest absolute, from the features of the first that ran in full
    )
    label_agreement: float | None = None  # share of held-out images with the same predicted label
    accuracy: float | None = None
    reason: str | None = None  # why it did not run


@dataclass(frozen=True)
class Point:
    """One measurement of a sweep."""

    x: float
    label: str
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    spread: float = 0.0  # seconds by which the two runs of the point differ


@dataclass(frozen=True)
class Fit:
    """The law that the points of a sweep follow.

    The names in `values`, by kind, with t in seconds:

    "amdahl": t = seconds_one (serial + (1 - serial) / x)
    "power": t = fixed + factor x ** exponent; `fixed` may be absent
    "line": t = fixed + slope x
    "ratio": no curve; ratio = seconds of the last point / seconds of the first

    There may be others, such as the exponents of single stages.
    """

    kind: str
    values: dict[str, float]
    words: str  # the same for a person

    def at(self, x: float) -> float | None:
        """Return the seconds at `x`, or None for a law that is no curve."""
        v = self.values
        if self.kind == "amdahl":
            return v["seconds_one"] * (v["serial"] + (1.0 - v["serial"]) / x)
        if self.kind == "power":
            return v.get("fixed", 0.0) + v["factor"] * x ** v["exponent"]
        if self.kind == "line":
            return v["fixed"] + v["slope"] * x
        return None


@dataclass(frozen=True)
class Sweep:
    """How the cost changes with one setting."""

    name: str  # as in ``sweep=threads``
    x_label: str
    points: list[Point]
    fit: Fit | None = None


@dataclass(frozen=True)
class Advice:
    """Something to try, with the gain it should bring. Gains are seconds saved of the run's wall seconds."""

    title: str
    override: str  # exact, as typed after the command
    predicted_seconds: float  # of the run with it
    predicted_gain: float
    why: str
    model: str  # how it was predicted
    caveat: str | None = None  # what it changes besides the time
    measured_seconds: float | None = None  # of the run with it, if it was tried
    measured_gain: float | None = None
    predicted_memory: int | None = None  # bytes resident at most, where it is about memory
    measured_memory: int | None = None

    @property
    def base_seconds(self) -> float:
        """Seconds of the run without it: the same for all advice of a run."""
        return self.predicted_seconds + self.predicted_gain


@dataclass(frozen=True)
class Report:
    """A profile."""

    created: str  # ISO 8601 with the zone
    command: list[str]  # overrides, as typed
    total: Total
    stages: list[Stage]  # in the order in which they first began
    machine: Machine = field(default_factory=Machine)
    software: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    work: dict[str, Any] = field(
        default_factory=dict
    )  # the fields of work.Work, and n_features of its layout
    first_calls: dict[str, float] = field(
        default_factory=dict
    )  # seconds, once: {"import": ..., "compile": ...}
    measuring: Measuring | None = None
    compare: list[CompareRow] = field(default_factory=list)
    sweeps: list[Sweep] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)  # the best first
    gpu: str | None = None  # whether a GPU would help, in words; null for a run on one
    commands: dict[str, str] = field(default_factory=dict)  # {"nsys": command line, "ncu": command line}
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the report as what JSON knows: dicts, lists, strings, numbers, true, false, null.

        A number that is not finite becomes null: JSON has no other word for it.
        """
        plain: dict[str, Any] = {"version": self.version}
        plain.update((key, _plain(value)) for key, value in vars(self).items() if key != "version")
        return plain

    def write(self, path: str | Path) -> None:
        """Write ``profile.json``.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        from pipeline.files import atomic

        with atomic(path) as stream:
            # ASCII: the path of a file may hold bytes that are no UTF-8, and the file must stay readable
            json.dump(self.to_dict(), stream, indent=2, ensure_ascii=True, allow_nan=False)
            stream.write("\n")


def _plain(value: Any) -> Any:
    """Return `value` as what JSON knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return _atom(value)


def _atom(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if getattr(value, "shape", None) == ():  # a NumPy scalar
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
