"""What ``benchmark`` prints: one table for each suite."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from pipeline.reporting import tables

if TYPE_CHECKING:
    from pipeline.benchmarks.results import RowResult, SuiteResult

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
COLUMNS = (
    "row",
    "median",
    "fastest to slowest",
    "speed-up",
    "rate",
    "of limit",
    "first call",
    "copies",
    "error",
)


def duration(seconds: float | None) -> str:
    """Return a duration with three digits and its unit."""
    if seconds is None:
        return "-"
    scale, unit = next(((s, u) for s, u in UNITS if seconds >= s), UNITS[-1])
    value = seconds / scale
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def rate(amount: float, unit: str) -> str:
    """Return an amount a second: GB/s, GFLOP/s, or millions of what else is counted."""
    if unit in ("B", "FLOP"):
        return f"{_digits(amount / 1e9)} G{unit}/s"
    return f"{_digits(amount / 1e6)} M {unit}/s"


def _digits(value: float) -> str:
    """Return a number with three digits, or two if it is below 1."""
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}" if value >= 1.0 else f"{value:.2g}"


def show(suite: SuiteResult) -> None:
    """Print the rows that ran, the limits that their shares are of, then the rows that did not run, with the reason."""
    ran = [row for row in suite.rows if row.status == "ok"]
    title = f"{suite.name}: {suite.work}, median of {suite.rounds} round{'s' * (suite.rounds != 1)}"
    rows = [[*_cells(row), row.note] for row in ran]
    tables.table(title, (*COLUMNS, "what"), rows)
    if suite.limits:
        limits = ", ".join(f"{name} {_reached(name, value)}" for name, value in sorted(suite.limits.items()))
        tables.say(f"  of limit: {limits}, measured before and after these rounds")
    for note in suite.notes:
        tables.say(f"  {note}")
    rest = [row for row in suite.rows if row.status != "ok"]
    width = max((len(row.name) for row in rest), default=0)
    for row in rest:
        install = f": {row.install}" if row.install else ""
        label = {"absent": "absent", "wrong": "WRONG", "failed": "FAILED"}[row.status]
        tables.say(f"  {row.name:{width}}  {label}: {row.reason}{install}")


def legend(suites: Sequence[SuiteResult]) -> None:
    """Print what the columns mean, and the limits that were measured, anew in each suite."""
    limits: dict[str, list[tuple[str, float]]] = {}
    for suite in suites:
        for name, reached in suite.limits.items():
            limits.setdefault(name, []).append((suite.name, reached))
    lines = [
        (
            f"limit: {name}",
            ", ".join(_reached(name, value) + f" in {one}" * (len(found) > 1) for one, value in found),
        )
        for name, found in sorted(limits.items())
    ]
    lines += [
        ("rate", "bytes or operations that the work needs at least, whichever bind it, by the median"),
        (
            "of limit",
            "share of this machine's limit that binds the work, as measured in this suite: above 100 % of a copy where "
            "a cache holds the numbers or work is in place",
        ),
        ("speed-up", "over the first row of the suite or group, the median over the rounds"),
        ("first call", "compilation and loading included; copies are apart"),
        ("copies", "of the inputs to where the row works (GPU, a package's own memory) / of the result back"),
        ("*", "extrapolated from a part of the work"),
    ]
    lines += [("error", f"{suite.name}: {_measures(suite)}") for suite in suites]
    tables.facts("How to read this", lines)


def _reached(limit: str, value: float) -> str:
    return rate(value, "B" if limit.endswith("copy") else "FLOP")


def _measures(suite: SuiteResult) -> str:
    kinds = dict.fromkeys(row.measure for row in suite.rows if row.measure)
    return ", or ".join(kinds) or "no row ran"


def _cells(row: RowResult) -> list[str]:
    spread = f"{duration(min(row.seconds))} to {duration(max(row.seconds))}" if len(row.seconds) > 1 else "-"
    moved = "-"
    if row.put or row.get:
        moved = " / ".join(duration(median(copies) if copies else None) for copies in (row.put, row.get))
    return [
        row.name,
        duration(row.median) + (" *" if row.scale != 1.0 else ""),
        spread,
        "-" if row.faster is None else f"{row.faster:,.{2 if row.faster < 9.995 else 0}f}x",
        "-" if row.rate is None else rate(row.rate, row.unit),
        "-" if row.share is None else f"{100 * row.share:.{0 if row.share >= 0.0995 else 1}f} % {row.limit}",
        duration(row.first),
        moved,
        "0" if row.error == 0.0 else f"{row.error:.1e}",
    ]
