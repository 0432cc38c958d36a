"""``profile.html``: a profile as one page that needs nothing else, neither files nor a network."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.files import atomic
from pipeline.profiling.report import CompareRow, Report, Stage, Sweep, label
from pipeline.reporting import profile_axes, profile_roofline, profile_sweeps, units

SMALL = 0.01  # stages with less of the time share one line
SECTIONS = (
    "summary",
    "stages",
    "first-calls",
    "advice",
    "compare",
    "sweeps",
    "roofline",
    "machine",
    "method",
)
WORK = {
    "images": "Images",
    "fit": "Fitted to",
    "watched": "Watched, to stop early",
    "tested": "Held out",
    "classes": "Classes",
    "n_features": "Features of an image",
    "rounds": "Rounds",
    "columns": "Features of a round",
    "learner": "Learner",
    "backend": "Backend",
    "threads": "Threads",
    "source": "Data",
    "files": "Files",
    "file_bytes": "Size of the files",
    "preprocess": "Preprocessing",
    "feature_bytes": "Bytes of a feature",
    "number_bytes": "Bytes of a number in boosting",
    "plots": "Pictures drawn",
}
# Names and units of what limits.Limits measures; another key is shown as it stands.
LIMITS = {
    "copy": ("Memory, copying, all threads", "B/s"),
    "copy_one": ("Memory, copying, one thread", "B/s"),
    "product": ("Matrix product, all threads", "FLOP/s"),
    "product_one": ("Matrix product, one thread", "FLOP/s"),
    "disk_read": ("Reading a file for the first time", "B/s"),
    "python_call": ("A call in Python", "s"),
    "device_copy": ("GPU memory, copying", "B/s"),
    "device_product": ("GPU matrix product", "FLOP/s"),
    "to_device": ("Host to GPU", "B/s"),
    "to_host": ("GPU to host", "B/s"),
    "launch": ("Launching a kernel", "s"),
    "cores": ("Cores", ""),
    "threads": ("Threads that measured", ""),
    "disk_read_is": ("Read that file", ""),
    "cached_read": ("Reading a file again", "B/s"),
}


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


def render(report: Report) -> str:
    """Return the page.

    Parameters
    ----------
    report : Report
        Texts in it may come from anywhere: they are escaped, and control characters are spelt out.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else units.clean(value),
    )
    for function in (
        units.duration,
        units.amount,
        units.share,
        units.exact_share,
        units.digits,
        sentence,
        times,
        difference,
    ):
        environment.filters[getattr(function, "__name__")] = function  # noqa: B009  mypy: a union of callables
    return environment.get_template("profile.html.j2").render(
        report=report,
        total=report.total,
        verdict=headline(report.total.verdict),
        marks=Markup(profile_axes.MARKS),
        facts=_facts(report),
        strip=_strip(report.stages),
        bars=_stage_bars(report.stages),
        small=[stage for stage in report.stages if stage.share < SMALL],
        first=_first_bars(report.first_calls),
        compare=_compare_bars(report.compare),
        compared=_compared_stages(report.compare),
        sweeps=[(sweep, _unique("sweep", k), profile_sweeps.draw(sweep, _unique("sweep", k)))
                for k, sweep in enumerate(report.sweeps)],
        roofline=[(kind, profile_roofline.draw(report, *size, f"roofline-{kind}"))
                  for kind, size in (("wide", (1040.0, 470.0)), ("narrow", (350.0, 400.0)))],
        flat=[stage for stage in report.stages if stage not in profile_roofline.plotted(report) and stage.gb_per_s],
        limits=list(limit_rows(report.machine.limits)),
        facts_of_machine=[(units.sentence(name), value) for name, value in report.machine.facts.items()],
        settings=list(flattened(report.settings)),
        work=list(work_rows(report.work)),
    )  # fmt: skip


def write(report: Report, folder: str | Path) -> list[Path]:
    """Write ``profile.html`` and a plot ``sweep_NAME.svg`` of each sweep.

    Returns
    -------
    list of Path
        The files, the page first.

    Raises
    ------
    OutputError
        If a file cannot be written.
    """
    folder = Path(folder)
    contents = {"profile.html": render(report)}
    for sweep in report.sweeps:
        drawn = profile_sweeps.draw(sweep, "sweep", alone=True)
        if drawn is not None:
            contents[f"sweep_{file_name(sweep)}.svg"] = str(drawn) + "\n"
    for name, content in contents.items():
        with atomic(folder / name) as stream:
            stream.write(content)
    return [folder / name for name in contents]


def file_name(sweep: Sweep) -> str:
    """Return a sweep's name fit for a file."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", sweep.name)[:60] or "unnamed"


def headline(verdict: str) -> tuple[str, str]:
    """Return the first sentence of a verdict and the rest."""
    first, stop, rest = verdict.partition(". ")
    return (first + ".", rest) if stop else (verdict, "")


def flattened(tree: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """Return (``group.key``, value) of nested settings."""
    for key, value in tree.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{name}.")
        else:
            yield name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def work_rows(work: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return name and value of what was to be done."""
    for key, value in flattened(work):
        name = WORK.get(key, key)
        yield name, units.amount(work[key], "B") if key == "file_bytes" else value


def limit_rows(limits: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return name and value with unit of each measured limit."""
    for key, value in limits.items():
        if value is None:  # no such device
            continue
        name, unit = LIMITS.get(key, (key, ""))
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, one in parts:
            yield f"{name}, {part}" if part else name, _with_unit(one, unit)


def _with_unit(value: Any, unit: str) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if unit == "s":
        return units.duration(value) if value >= 1e-6 else f"{units.digits(value * 1e9, 2)} ns"
    return units.amount(value, unit) if unit else f"{value:,}"


def _unique(start: str, number: int) -> str:
    return f"{start}-{number}"


def _facts(report: Report) -> list[tuple[str, str, str]]:
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


def _strip(stages: Sequence[Stage]) -> list[Bar]:
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


def _stage_bars(stages: Sequence[Stage]) -> list[Bar]:
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


def _first_bars(costs: Mapping[str, float]) -> list[Bar]:
    scale = max(costs.values(), default=0.0) or 1.0
    ordered = sorted(costs.items(), key=lambda one: -one[1])
    return [
        Bar(units.sentence(label(name)), units.duration(s), 100.0 * max(s, 0.0) / scale)
        for name, s in ordered
    ]


def _compare_bars(rows: Sequence[CompareRow]) -> list[Bar]:
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


def _compared_stages(rows: Sequence[CompareRow]) -> list[tuple[str, list[str]]]:
    """Return each stage with its seconds on each backend that ran."""
    ran = [row for row in rows if row.seconds is not None]
    names = dict.fromkeys(name for row in ran for name in row.stages)
    return [(name, [units.duration(row.stages.get(name)) for row in ran]) for name in names]
