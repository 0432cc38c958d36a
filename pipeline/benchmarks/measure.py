"""Run the rows of a suite: check first, then time them in turns.

Every row is run once and its result compared with the suite's reference; a row that is wrong, or that fails, is
not timed. The others take turns, so that whatever disturbs the machine disturbs all alike.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from pipeline.benchmarks import needs, registry

# The one place that says what this machine's copies can reach.
from pipeline.benchmarks.bandwidth import copy_rate
from pipeline.benchmarks.registry import Case, Row, Setup, Work

log = logging.getLogger(__name__)

LEAST = 2e-3  # seconds of one timing: a shorter run is repeated inside it
MOST_REPEATS = 10_000

Tell = Callable[[int, int, str], None]


@dataclass
class RowResult:
    """What is known of a row.

    Attributes
    ----------
    status : "ok", "wrong" (its result), "failed" (it raised) or "absent" (this machine lacks what it needs)
    reason, install : why it was not timed, and the command that helps
    first : seconds of the first call, with what is compiled in it
    seconds : of the whole work in each round; extrapolated if `scale` is above 1
    put, get : seconds of the copies to (each round) and from (once) where the row works
    rate : bytes per second, by the bytes the work must move at least; None where that is no measure
    share : `rate` by the measured rate of a copy in the same memory
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
    get: float | None = None
    nbytes: int = 0
    rate: float | None = None
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
    limits: dict[str, float]  # "host", "device": bytes per second of a copy


class _Visit(NamedTuple):
    put: float
    run: float
    result: Any


@dataclass
class _Running:
    """A row that is right, and is timed."""

    work: Work
    result: RowResult
    inner: int = 1


def run(
    name: str,
    setup: Setup,
    repeats: int,
    seconds: float,
    tell: Tell = lambda done, total, note: None,
    copy: Callable[[bool, int], float | None] = copy_rate,
) -> SuiteResult:
    """Measure one suite.

    Parameters
    ----------
    name : one of :data:`pipeline.benchmarks.registry.NAMES`
    repeats : rounds at most
    seconds : no further round begins that would probably end later than this after the start; there is one at least
    tell : told (steps done, steps in all, row at work)
    copy : bytes per second of a copy, from (on the device, threads); None if that is not known
    """
    begin = time.perf_counter()
    suite = registry.get(name)
    case = suite.make(setup)
    steps = len(suite.rows) * (1 + repeats)
    results, running = [], []
    for number, row in enumerate(suite.rows):
        tell(number, steps, row.name)
        result, work = _first(row, case)
        results.append(result)
        if work is not None:
            running.append(_Running(work, result))
    places = sorted({one.result.on_device for one in running if one.result.nbytes})
    looks = [[copy(where, setup.threads) for where in places]]
    left = seconds - (time.perf_counter() - begin)
    rounds = _rounds(running, repeats, left, (len(suite.rows), steps, tell))
    # Looked at again: whatever else runs here may have disturbed the first look.
    looks.append([copy(where, setup.threads) for where in places])
    pairs = zip(places, *looks, strict=True)
    limits = {where: max(a, b) for where, a, b in pairs if a is not None and b is not None}
    _compare(results, limits)
    tell(steps, steps, "")
    named = {"device" if where else "host": rate for where, rate in limits.items()}
    return SuiteResult(name, case.work, case.notes, rounds, results, named)


def _first(row: Row, case: Case) -> tuple[RowResult, Work | None]:
    """Run a row for the first time and judge its result; the work comes back if it is to be timed."""
    for need in row.needs:
        lack = needs.missing(need, case.setup.device)
        if lack is not None:
            return RowResult(row.name, "absent", lack.reason, lack.install), None
    try:
        result, right = _checked(row, case)
    except (
        Exception
    ) as error:  # a row must not end the others; what it raised stands in the table and in the log
        log.warning("%s failed", row.name, exc_info=error)
        text = " ".join(str(error).split())
        return RowResult(row.name, "failed", f"{type(error).__name__}: {text}"), None
    return result, right


def _checked(row: Row, case: Case) -> tuple[RowResult, Work | None]:
    work = row.make(case)
    tolerance = case.tolerance if work.tolerance is None else work.tolerance
    if work.restore is not None:
        work.restore()
    visit = _visit(work)
    begin = time.perf_counter()
    home = visit.result if work.get is None else work.get(visit.result)
    back = time.perf_counter() - begin
    error = float((work.error or case.error)(home))
    right = error <= tolerance  # NaN is not
    result = RowResult(
        row.name,
        "ok" if right else "wrong",
        "" if right else f"its result is off by {error:.3g}, and at most {tolerance:.3g} is right",
        note=work.note,
        scale=work.scale,
        on_device=work.on_device,
        error=error,
        tolerance=tolerance,
        measure=work.measure or case.measure,
        first=visit.run * work.scale if work.scale == 1.0 else None,
        get=None if work.get is None else back,
        nbytes=case.nbytes if work.nbytes is None else work.nbytes,
    )
    return result, work if right else None


def _visit(work: Work, inner: int = 1) -> _Visit:
    """Copy the inputs, run, wait; the device is idle whenever the clock is read."""
    arguments: tuple[Any, ...] = ()
    put = 0.0
    if work.put is not None:
        begin = time.perf_counter()
        arguments = (work.put(),)
        if work.wait is not None:
            work.wait(arguments[0])
        put = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(inner):
        result = work.run(*arguments)
    if work.wait is not None:
        work.wait(result)
    return _Visit(put, (time.perf_counter() - begin) / inner, result)


def _rounds(running: list[_Running], repeats: int, seconds: float, progress: tuple[int, int, Tell]) -> int:
    """Time all rows in turns; return the number of rounds."""
    done, steps, tell = progress
    begin = last = time.perf_counter()
    for index in range(repeats):
        now = time.perf_counter()
        if index and now - begin + (now - last) > seconds:
            return index
        last = now
        first = index % max(len(running), 1)  # who goes first changes, and with it who follows whom
        for number, one in enumerate([*running[first:], *running[:first]]):
            tell(done + index * done + number, steps, one.result.name)
            _time(one, calibrate=index == 0)
    return repeats


def _time(one: _Running, calibrate: bool) -> None:
    gc.collect(0)
    visit = _visit(one.work, one.inner)
    if (
        calibrate and visit.run < LEAST
    ):  # this was the first call that compiled nothing: now the length is known
        one.inner = min(MOST_REPEATS, math.ceil(LEAST / max(visit.run, 1e-8)))
        visit = _visit(one.work, one.inner)
    one.result.seconds.append(visit.run * one.work.scale)
    if one.work.put is not None:
        one.result.put.append(visit.put)


def _compare(results: Sequence[RowResult], limits: dict[bool, float]) -> None:
    bases: dict[str, list[float]] = {}
    for result in results:
        group = result.name.partition(":")[0] if ":" in result.name else ""
        base = bases.setdefault(group, result.seconds)
        middle = result.median
        if middle is None:
            continue
        if result.nbytes:
            result.rate = result.nbytes / middle
            limit = limits.get(result.on_device)
            result.share = None if limit is None else result.rate / limit
        if base:
            result.faster = median(a / b for a, b in zip(base, result.seconds, strict=True))
