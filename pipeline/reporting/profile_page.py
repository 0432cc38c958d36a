"""``profile.html``: a profile as one page that needs nothing else, neither files nor a network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipeline.files import atomic
from pipeline.profiling.report import Report, Sweep
from pipeline.reporting import profile_axes, profile_bars, profile_roofline, profile_sweeps, units

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
    "components": "Principal components",
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
    "vector_one": ("Vector product in cache, one thread", "FLOP/s"),
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
        units.sentence,
        units.full,
        units.what_comes_first,
        units.times,
        units.difference,
        units.memory_words,
    ):
        environment.filters[getattr(function, "__name__")] = function  # noqa: B009  mypy: a union of callables
    return environment.get_template("profile.html.j2").render(
        report=report,
        total=report.total,
        verdict=headline(report.total.verdict),
        marks=Markup(profile_axes.MARKS),
        facts=profile_bars.facts(report),
        strip=profile_bars.strip(report.stages),
        bars=profile_bars.stages(report.stages),
        small=[stage for stage in report.stages if stage.share < profile_bars.SMALL],
        first=profile_bars.first_calls(report.first_calls),
        compare=profile_bars.backends(report.compare),
        compared=profile_bars.stages_of_backends(report.compare),
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
        if drawn is None:
            continue
        name = f"sweep_{file_name(sweep)}"
        while f"{name}.svg" in contents:
            name += "_"
        contents[f"{name}.svg"] = f"{drawn}\n"
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
            yield name, _plain(value)


def _plain(value: Any) -> str:
    """Return a setting as it is typed: enumerations by name, null and true as in YAML."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def work_rows(work: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return name and value of what was to be done."""
    for key, value in flattened({key: value for key, value in work.items() if value is not None}):
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
