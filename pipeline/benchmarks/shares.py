"""How near the rows come to the limits of the machine, and to each other.

A piece of work that moves some bytes and does some operations takes at least the longer of the two times that these
take at the machine's limits (Williams, Waterman and Patterson 2009): that one binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from pipeline.benchmarks import needs, rates
from pipeline.benchmarks.rates import Limit
from pipeline.benchmarks.registry import Case, Setup
from pipeline.benchmarks.results import RowResult

Measure = Callable[[Limit, Setup], float | None]


def limits_of(result: RowResult) -> dict[Limit, float]:
    """Return the limits that may bind a row, and how much of each its work needs at least."""
    needed = {
        Limit("copy", "", result.on_device): float(result.nbytes),
        Limit(*result.arithmetic, result.on_device): result.operations,
    }
    return {limit: amount for limit, amount in needed.items() if amount}


def look(results: Sequence[RowResult], measure: Measure, setup: Setup) -> dict[Limit, float]:
    """Return the limits that may bind a row that is timed, those that can be measured here."""
    asked = dict.fromkeys(limit for row in results if row.status == "ok" for limit in limits_of(row))
    found = {}
    for limit in asked:
        rates.rest()
        rate = measure(limit, setup)
        if rate is not None:
            found[limit] = rate
    return found


def compare(results: Sequence[RowResult], case: Case, limits: dict[Limit, float]) -> None:
    """Fill in the rates, shares and speed-ups of rows that were timed."""
    bases: dict[str, list[float]] = {}
    for result in results:
        group = result.name.partition(":")[0] if ":" in result.name else ""
        base = bases.setdefault(group, result.seconds)
        if not result.seconds:
            continue
        _rate(result, case, limits)
        if base:
            result.faster = median(a / b for a, b in zip(base, result.seconds, strict=True))


def _rate(result: RowResult, case: Case, limits: dict[Limit, float]) -> None:
    needed, middle = limits_of(result), median(result.seconds)
    if not needed:
        return
    binding = list(needed)[-1]  # operations, if there are any
    if all(limit in limits for limit in needed):
        binding = max(needed, key=lambda limit: needed[limit] / limits[limit])
        result.limit = str(binding)
        result.share = needed[binding] / limits[binding] / middle
    count, pieces = case.pieces
    if binding.kind == "copy":
        result.rate, result.unit = result.nbytes / middle, "B"
    elif pieces:
        result.rate, result.unit = count / middle, pieces
    else:
        result.rate, result.unit = result.operations / middle, "FLOP"


def unknown(results: Sequence[RowResult], device: int) -> list[str]:
    """Return a note if rows on the GPU have no share, with the reason."""
    lack = needs.missing("cupy", device)
    if lack is None or not any(row.on_device and row.seconds and limits_of(row) for row in results):
        return []
    help_ = f": {lack.install}" if lack.install else ""
    return [f"rows on the GPU have no share of its limits, which CuPy measures: {lack.reason}{help_}"]
