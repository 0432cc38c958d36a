"""The register of suites and rows, and what a row hands to the one who measures it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.benchmarks.needs import Need

# Suites in the order in which they run, each the name of its file.
NAMES = ("add_two", "monte_carlo_pi", "layout", "filter", "hog", "wls")


@dataclass(frozen=True)
class Setup:
    """What the suites are asked for."""

    size: str = "full"  # full, small or, for tests, tiny
    threads: int = 1
    device: int = 0
    seed: int = 0
    memory: int = 1 << 62  # bytes that may be used

    def choose(self, full: Any, small: Any, tiny: Any) -> Any:
        """Return the value that belongs to the size."""
        return {"full": full, "small": small, "tiny": tiny}[self.size]


@dataclass
class Case:
    """What all rows of a suite work on, and how their results are judged.

    Attributes
    ----------
    data : arrays and numbers that the rows read
    error : tells how far a result, in host memory, is from the suite's reference; may be NaN or infinite
    tolerance : largest error of a right result
    nbytes : bytes that must move through memory at least
    measure : what the error is, in words
    work : what is done, in words
    setup : what was asked for
    notes : what else a reader must know
    operations : that must be done at least
    arithmetic : the kind of the operations, see `pipeline.benchmarks.rates.Limit`: "product" or "vector", and the type
    pieces : what is counted in place of operations, how many and of what; (0, "") for operations
    """

    data: SimpleNamespace
    error: Callable[[Any], float]
    tolerance: float
    nbytes: int
    measure: str
    work: str
    setup: Setup
    notes: list[str] = field(default_factory=list)
    operations: float = 0.0
    arithmetic: tuple[str, str] = ("vector", "float32")
    pieces: tuple[int, str] = (0, "")


class Work(NamedTuple):
    """One way to do the work of a suite.

    Attributes
    ----------
    run : does it; gets what `put` returned, if there is a `put`
    put : copies the inputs to where `run` wants them; timed on its own
    get : brings a result to host memory; timed on its own
    wait : returns when the result is complete; called before the clock is read
    restore : undoes what an earlier run did to its own input; not timed
    scale : the whole work is this many times what `run` does; above 1 the seconds are extrapolated
    on_device : shares refer to the limits of the GPU
    note : what a reader must know of this row
    error, tolerance, nbytes, operations, arithmetic, measure : those of this row where they are not the suite's
    """

    run: Callable[..., Any]
    put: Callable[[], Any] | None = None
    get: Callable[[Any], Any] | None = None
    wait: Callable[[Any], Any] | None = None
    restore: Callable[[], None] | None = None
    scale: float = 1.0
    on_device: bool = False
    note: str = ""
    error: Callable[[Any], float] | None = None
    tolerance: float | None = None
    nbytes: int | None = None
    operations: float | None = None
    arithmetic: tuple[str, str] | None = None
    measure: str | None = None


class Row(NamedTuple):
    """A registered row."""

    name: str
    make: Callable[[Case], Work]
    needs: tuple[str | Need, ...]  # see pipeline.benchmarks.needs


@dataclass
class Suite:
    """A registered suite. The first row, or the first of a group, is what the speed of others is compared with."""

    name: str
    make: Callable[[Setup], Case]
    share: float  # of the seconds that all suites may take
    rows: list[Row] = field(default_factory=list)


_SUITES: dict[str, Suite] = {}


def suite(name: str, share: float) -> Callable[[Callable[[Setup], Case]], Callable[[Setup], Case]]:
    """Register the decorated function, which makes the case, as suite `name`."""

    def register(make: Callable[[Setup], Case]) -> Callable[[Setup], Case]:
        _SUITES[name] = Suite(name, make, share)
        return make

    return register


def row(
    suite_name: str, name: str, needs: Sequence[str | Need] = ()
) -> Callable[[Callable[[Case], Work]], Callable[[Case], Work]]:
    """Register the decorated function, which prepares the work, as a row of a suite.

    Parameters
    ----------
    suite_name : the suite
    name : of the row; "group: what" puts it into a group, whose first row its speed is compared with
    needs : packages by their names, or the :class:`pipeline.benchmarks.needs.Need` of a package that is imported by
        another name than it is installed by, or names in the table there
    """

    def register(make: Callable[[Case], Work]) -> Callable[[Case], Work]:
        _SUITES[suite_name].rows.append(Row(name, make, tuple(needs)))
        return make

    return register


def get(name: str) -> Suite:
    """Return a suite by name."""
    importlib.import_module(f"pipeline.benchmarks.{name}")
    return _SUITES[name]


def chosen(names: Sequence[str]) -> list[str]:
    """Return the suites that are meant, in the order of NAMES.

    Raises
    ------
    ConfigError
        If one is unknown: one line with the nearest name.
    """
    if "all" in names:
        names = [*NAMES, *names]
    for name in names:
        if name not in (*NAMES, "all"):
            near = difflib.get_close_matches(name, (*NAMES, "all"), 1)
            advice = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"no suite '{name}'; choose from: {', '.join(NAMES)}, or all.{advice}")
    return [name for name in NAMES if name in names]


def largest_difference(wanted: Any) -> Callable[[Any], float]:
    """Return an error function: the largest absolute difference to `wanted`; infinite if the shapes differ."""

    def error(found: Any) -> float:
        array = np.asarray(found)
        if array.shape != np.shape(wanted):
            return float("inf")
        return float(np.abs(array.astype(np.float64) - wanted).max())

    return error
