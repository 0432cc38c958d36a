"""A profile on the terminal: where the time goes, and what to try. From 80 columns on; wider ones get more figures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.profiling.report import Advice, CompareRow, Report, Stage, Sweep
from pipeline.reporting.units import (
    amount,
    clean,
    difference,
    digits,
    duration,
    exact_share,
    full,
    memory_words,
    sentence,
    share,
    times,
    what_comes_first,
)

WIDE = 120  # columns from which verdicts stand beside the figures
OFF_TERMINAL = 100  # columns of a file or pipe
SMALL = 0.01  # stages with less of the time share one line
BLOCKS = " ▏▎▍▌▋▊▉█"


def show(report: Report, console: Console | None = None) -> None:
    """Print everything that was measured, the verdict first and the advice last, where the eye rests.

    Parameters
    ----------
    report : Report
    console : Console, optional
        Where to; else standard output, 100 columns wide if that is no terminal.
    """
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else OFF_TERMINAL)
    for block in blocks(report, console.width):
        console.print()
        for item in block:
            console.print(item, soft_wrap=isinstance(item, Exact))


class Exact(Text):
    """A line to copy: it is printed whole, however long it is."""


def blocks(report: Report, width: int) -> list[list[RenderableType]]:
    """Return what to print for so many columns, block by block."""
    found = [_summary(report), stages(report, width)]
    if report.first_calls:
        found.append(_first_calls(report))
    if report.compare:
        found.append(compare(report.compare))
    found += [sweep(one, width) for one in report.sweeps if one.points]
    if report.advice:
        found.append(advice(report.advice))
    if report.gpu:
        found.append([Text("Would a GPU help?", style="bold"), _text(full(report.gpu))])
    if report.commands:
        found.append(_commands(report.commands))
    return found


def bar(part: float, width: int) -> str:
    """Return a bar of `width` characters at most, to an eighth of a character; what is there is never invisible."""
    if not part > 0.0:
        return ""
    eighths = max(1, round(min(part, 1.0) * width * 8))
    return BLOCKS[8] * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")


def _summary(report: Report) -> list[RenderableType]:
    total = report.total
    low, high = total.spread
    took = f"{duration(total.wall)} in the steady state"
    if total.repeats > 1:
        took += f" (median of {total.repeats}, {digits(low)} to {digits(high)} s)"
    facts = [took, f"{duration(total.first)} the first time"]
    if total.wall > 0:
        facts.append(f"{total.cpu / total.wall:.1f} cores busy")
    facts.append(f"{amount(total.memory_peak, 'B')} of memory")
    if total.device_memory is not None:
        facts.append(f"{amount(total.device_memory, 'B')} of GPU memory")
    if total.accuracy is not None:
        facts.append(f"accuracy {exact_share(total.accuracy)}")
    return [Text(clean(total.verdict), style="bold"), Text(", ".join(facts))]


def stages(report: Report, width: int) -> list[RenderableType]:
    """Return the stages, the longest first, each with its verdict."""
    listed = sorted((s for s in report.stages if s.share >= SMALL), key=lambda stage: -stage.wall)
    small = [s for s in report.stages if s.share < SMALL]
    wide, device = width >= WIDE, _any_device(report)
    room = 20 if wide else 11 if device else 16
    table = _table("Where the time goes")
    table.add_column("stage", no_wrap=True, max_width=30)
    table.add_column("", no_wrap=True, width=room)
    for name in ("time", "share", "cores", *(("GPU",) if device else ())):
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("rate", justify="right", no_wrap=True)
        table.add_column("of limit", justify="right", no_wrap=True)
        table.add_column("why", ratio=1, overflow="fold")
    longest = max((s.wall for s in listed), default=0.0) or 1.0
    for stage in listed:
        table.add_row(*_stage_cells(stage, bar(stage.wall / longest, room), device, wide))
    rows: list[RenderableType] = [table]
    if not wide:
        rows.append(_why(listed))
    if small:
        words = ", ".join(f"{s.label} {duration(s.wall)}" for s in small)
        rows.append(Text(clean(f"Below 1 % each: {words}"), style="dim"))
    return rows


def _any_device(report: Report) -> bool:
    return any(stage.device is not None for stage in report.stages)


def _stage_cells(stage: Stage, drawn: str, device: bool, wide: bool) -> list[Text]:
    cells = [
        _text(stage.label, 30), Text(drawn, style="cyan"), Text(duration(stage.wall)),
        Text(share(stage.share)), Text(f"{stage.cores:.1f}"),
    ]  # fmt: skip
    if device:
        cells.append(Text(duration(stage.device)))
    if wide:
        cells += [Text(_rate(stage)), Text(share(stage.share_of_limit)), _text(stage.verdict)]
    return cells


def _rate(stage: Stage) -> str:
    """Return the rate that the stage's limit is measured in, or the one there is."""
    other = stage.limit is not None and not any(one in stage.limit for one in ("product", "arithmetic"))
    by_memory = stage.gflop_per_s is None or other
    if by_memory and stage.gb_per_s is not None:
        return amount(stage.gb_per_s * 1e9, "B/s")
    return amount(stage.gflop_per_s * 1e9, "FLOP/s") if stage.gflop_per_s is not None else "-"


def _why(listed: Sequence[Stage]) -> RenderableType:
    table = _table("Why")
    table.add_column("stage", no_wrap=True, max_width=30)
    table.add_column("why", ratio=1, overflow="fold")
    for stage in listed:
        table.add_row(_text(stage.label, 30), _text(stage.verdict))
    return Padding(table, (1, 0, 0, 0))


def _first_calls(report: Report) -> list[RenderableType]:
    costs = sorted(report.first_calls.items(), key=lambda one: -one[1])
    words = ", ".join(f"{name} {duration(seconds)}" for name, seconds in costs)
    return [Text("Paid once, by the first run", style="bold"), _text(words)]


def compare(rows: Sequence[CompareRow]) -> list[RenderableType]:
    """Return the backends, each with how far its results agree with the first."""
    table = _table("The same work on each backend")
    table.add_column("backend", max_width=16, overflow="fold")
    for name in ("time", "ratio", "features differ", "same label", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    notes: list[RenderableType] = []
    for row in rows:
        table.add_row(
            _text(row.backend), duration(row.seconds), times(row.ratio),
            difference(row.features_difference),
            exact_share(row.label_agreement), exact_share(row.accuracy),
        )  # fmt: skip
        if row.extrapolated:
            notes.append(_text(f"{row.backend}: extrapolated, {row.extrapolated}"))
        if row.seconds is None:
            notes.append(_text(f"{row.backend}: not run, {row.reason or 'no reason given'}"))
    return [table, *notes]


def sweep(one: Sweep, width: int) -> list[RenderableType]:
    """Return the points of a sweep with bars, and the law they follow."""
    table = _table(clean(f"Sweep of {one.name}"))
    names = max(len(clean(point.label)) for point in one.points)
    room = max(12, min(32 if width < WIDE else 48, width - min(names, 40) - 14))
    table.add_column(
        _text(one.x_label), justify="right", max_width=40, min_width=min(names, 40), overflow="fold"
    )
    table.add_column("", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    longest = max(point.seconds for point in one.points) or 1.0
    for point in one.points:
        drawn = Text(bar(point.seconds / longest, room), style="cyan")
        table.add_row(_text(point.label, 40), drawn, duration(point.seconds))
    return [table, *([_text(full(one.fit.words))] if one.fit is not None else [])]


def advice(listed: Sequence[Advice]) -> list[RenderableType]:
    """Return what to try, the best first: the gain, the override to type, and why."""
    rows: list[RenderableType] = [Text("What to try", style="bold")]
    for rank, one in enumerate(listed, 1):
        title, before = what_comes_first(one.title)
        gain = f"predicted {_gain(one.predicted_gain)}"
        if one.measured_gain is not None:
            gain += f", measured {_gain(one.measured_gain)}"
        body: list[RenderableType] = [Text(f"{gain}, of {duration(one.base_seconds)}")]
        if one.predicted_memory is not None:
            body.append(Text(memory_words(one.predicted_memory, one.measured_memory)))
        body.append(_text(full(one.why)))
        if one.caveat:
            body.append(_text(full(one.caveat)))
        body.append(Text(clean(f"How it was predicted: {full(one.model)}"), style="dim"))
        rows += [
            _text(f"{rank}. {sentence(title)}", style="bold"),
            *([Exact(f"   first, once: {clean(before)}", style="green")] if before else []),
            Exact(f"   {clean(one.override)}", style="green"),
            Padding(Group(*body), (0, 0, 1 if rank < len(listed) else 0, 3)),
        ]
    return rows


def _commands(commands: Mapping[str, str]) -> list[RenderableType]:
    title = Text("With NVIDIA's own profilers", style="bold")
    return [title, *(Exact(f"  {clean(command)}") for command in commands.values())]


def _gain(seconds: float) -> str:
    return "no gain" if seconds == 0.0 else f"{duration(abs(seconds))} {'less' if seconds > 0 else 'more'}"


def _table(title: str) -> Table:
    return Table(
        title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0),
        header_style="dim", collapse_padding=True,
    )  # fmt: skip


def _text(words: str, longest: int | None = None, style: str = "") -> Text:
    """Return text from outside as it stands: no markup, no control characters."""
    words = clean(words)
    if longest is not None and len(words) > longest:
        words = words[: longest - 1] + "…"
    return Text(words, overflow="fold", style=style)
