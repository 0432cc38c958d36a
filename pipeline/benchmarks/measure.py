"""Run the rows of a suite: check first, then time them in turns.

Every row is run once and its result compared with the suite's reference; a row that is wrong, or that fails, is
not timed. The others take turns, so that whatever disturbs the machine disturbs all alike.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.benchmarks import needs, rates, registry, shares
from pipeline.benchmarks.registry import Case, Row, Setup, Work
from pipeline.benchmarks.results import RowResult, SuiteResult

log = logging.getLogger(__name__)

LEAST = 2e-3  # seconds of one timing: a shorter run is repeated inside it
MOST_REPEATS = 10_000

Tell = Callable[[int, int, str], None]


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
    limit: shares.Measure = rates.measure,
) -> SuiteResult:
    """Measure one suite.

    Parameters
    ----------
    name : one of :data:`pipeline.benchmarks.registry.NAMES`
    repeats : rounds at most
    seconds : no further round begins that would probably end later than this after the start; there is one at least
    tell : told (steps done, steps in all, row at work)
    limit : measures a limit of the machine; None if that is not known
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
    looks = [shares.look(results, limit, setup)]
    left = seconds - (time.perf_counter() - begin)
    rounds = _rounds(running, repeats, left, (len(suite.rows), steps, tell))
    # Looked at again: whatever else runs here may have disturbed the first look.
    looks.append(shares.look(results, limit, setup))
    limits = {one: max(look[one] for look in looks) for one in looks[0]}
    shares.compare(results, case, limits)
    tell(steps, steps, "")
    named = {f"{one.place} {one}": rate for one, rate in limits.items()}
    notes = [*case.notes, *shares.unknown(results, setup.device)]
    return SuiteResult(name, case.work, notes, rounds, results, named)


def _first(row: Row, case: Case) -> tuple[RowResult, Work | None]:
    """Run a row for the first time and judge its result; the work comes back if it is to be timed."""
    for need in row.needs:
        lack = needs.missing(need, case.setup.device)
        if lack is not None:
            return RowResult(row.name, "absent", lack.reason, lack.install), None
    try:
        result, right = _checked(row, case)
    except Exception as error:  # a row must not end the others: what it raised is in the table and in the log
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
    home = visit.result if work.get is None else work.get(visit.result)
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
        nbytes=case.nbytes if work.nbytes is None else work.nbytes,
        operations=case.operations if work.operations is None else work.operations,
        arithmetic=work.arithmetic or case.arithmetic,
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
    rates.rest()
    visit = _visit(one.work, one.inner)
    if calibrate and visit.run < LEAST:  # the first call that compiled nothing: now the length is known
        one.inner = min(MOST_REPEATS, math.ceil(LEAST / max(visit.run, 1e-8)))
        visit = _visit(one.work, one.inner)
    one.result.seconds.append(visit.run * one.work.scale)
    if one.work.put is not None:
        one.result.put.append(visit.put)
    if one.work.get is not None:
        begin = time.perf_counter()
        one.work.get(visit.result)
        one.result.get.append(time.perf_counter() - begin)
