"""What the bars and the figures at the top of a profile's page show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.profiling.report import CompareRow, Report, Stage, label
from pipeline.reporting import units

SMALL = 0.01  # stages with less of the time share one line


@dataclass(frozen=True)
class Bar:
    """A horizontal bar; `begin` and `width` as percent of the room there is."""

    name: str
    value: str
    width: float
    note: str = ""
    part: str = ""  # share of the whole
    kind: str = ""  # CSS class
    low: float | None = None  # percent: where the spread begins and ends
    high: float | None = None


def facts(report: Report) -> list[tuple[str, str, str]]:
    """Return the figures at the top: name, value, remark."""
    total, images = report.total, report.work.get("images")
    low, high = total.spread
    repeats = (
        f"median of {total.repeats}, {units.digits(low)} to {units.digits(high)} s"
        if total.repeats > 1
        else "one run"
    )
    found = [("Time", units.duration(total.wall), repeats)]
    if isinstance(images, int) and total.wall > 0:
        found.append(("Images a second", units.digits(images / total.wall, 3), f"{images:,} images"))
    found.append(
        (
            "First run",
            units.duration(total.first),
            f"{units.duration(max(0.0, total.first - total.wall))} more, once",
        )
    )
    cores = report.machine.limits.get("cores")
    busy = f"{total.cpu / total.wall:.1f}" if total.wall > 0 else "-"
    found.append(("Cores busy", busy, f"of {cores}, on average" if cores else "on average"))
    found.append(("Memory", units.amount(total.memory_peak, "B"), "at most, on the host"))
    if total.device_memory is not None:
        found.append(("GPU memory", units.amount(total.device_memory, "B"), "at most"))
    if total.accuracy is not None:
        loss = (
            f"log-loss {total.log_loss:.4f}"
            if total.log_loss is not None and math.isfinite(total.log_loss)
            else "held-out images"
        )
        found.append(("Accuracy", units.exact_share(total.accuracy), loss))
    return found  # fmt: skip


def _longest(stages: Sequence[Stage]) -> Stage | None:
    return max(stages, key=lambda stage: stage.wall, default=None)


def strip(stages: Sequence[Stage]) -> list[Bar]:
    """Return the run as one band, in the order of the stages."""
    whole = sum(stage.wall for stage in stages) or 1.0
    longest = _longest(stages)
    return [
        Bar(
            stage.label,
            units.duration(stage.wall),
            100.0 * stage.wall / whole,
            _inside(stage.label, stage.wall / whole),
            units.share(stage.share),
            "longest" if stage is longest else "",
        )
        for stage in stages
        if stage.wall > 0.0
    ]


def _inside(name: str, share: float) -> str:
    """Return the name of a stage if it has room in the band of a wide page."""
    name = units.sentence(name.removeprefix("Boosting: "))
    return name if share * 1040.0 >= 8.0 * len(name) + 18.0 else ""


def stages(stages: Sequence[Stage]) -> list[Bar]:
    """Return the stages worth a line, the longest first."""
    shown = sorted((s for s in stages if s.share >= SMALL), key=lambda stage: -stage.wall)
    scale = max((max(s.wall, s.spread[1]) for s in shown), default=0.0) or 1.0
    return [
        Bar(
            stage.label,
            units.duration(stage.wall),
            100.0 * stage.wall / scale,
            _note(stage),
            units.share(stage.share),
            "longest" if stage is shown[0] else "",
            100.0 * stage.spread[0] / scale,
            100.0 * stage.spread[1] / scale,
        )
        for stage in shown
    ]


def _note(stage: Stage) -> str:
    """Return the verdict, and what of the time is the device's."""
    if stage.device is None:
        return stage.verdict
    return f"{stage.verdict.rstrip('.')}. {units.duration(stage.device)} on the GPU."


def first_calls(costs: Mapping[str, float]) -> list[Bar]:
    """Return what the first run alone paid for, the most first."""
    scale = max(costs.values(), default=0.0) or 1.0
    ordered = sorted(costs.items(), key=lambda one: -one[1])
    return [
        Bar(units.sentence(label(name)), units.duration(s), 100.0 * max(s, 0.0) / scale)
        for name, s in ordered
    ]


def backends(rows: Sequence[CompareRow]) -> list[Bar]:
    """Return the backends in their order; one that did not run has no bar, and its reason."""
    scale = max((row.seconds for row in rows if row.seconds is not None), default=0.0) or 1.0
    bars = []
    for row in rows:
        if row.seconds is None:
            bars.append(Bar(row.backend, "not run", 0.0, row.reason or "no reason given", kind="absent"))
            continue
        note = f"extrapolated: {row.extrapolated}" if row.extrapolated else ""
        kind = "extrapolated" if row.extrapolated else ""
        bars.append(
            Bar(
                row.backend,
                units.duration(row.seconds),
                100.0 * row.seconds / scale,
                note,
                units.times(row.ratio),
                kind,
            )
        )
    return bars


def stages_of_backends(rows: Sequence[CompareRow]) -> list[tuple[str, list[str]]]:
    """Return each stage with its seconds on each backend that ran."""
    ran = [row for row in rows if row.seconds is not None]
    names = dict.fromkeys(name for row in ran for name in row.stages)
    return [(name, [units.duration(row.stages.get(name)) for row in ran]) for name in names]
