"""What the commands print: short tables for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pipeline.reporting.metrics import Scores


def _console() -> Console:
    # Off a terminal rich assumes 80 columns and wraps paths, which nobody can paste: give it room.
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def say(text: str = "") -> None:
    """Print a line as it stands."""
    _console().print(text, markup=False)


def facts(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print a heading and lines of name and value."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    say()
    _console().print(title, style="bold", markup=False)
    for name, value in rows:
        say(f"  {name:{width}}  {value}")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; columns after the first are set to the right, except the last if it is named "what"."""
    grid = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for index, column in enumerate(columns):
        grid.add_column(
            column, justify="left" if index == 0 or column == "what" else "right", overflow="fold"
        )
    for row in rows:
        grid.add_row(*[_plain(cell) for cell in row])
    say()
    _console().print(grid)


def _plain(cell: Any) -> str:
    from rich.markup import escape

    return f"{cell:.4f}" if isinstance(cell, float) else "-" if cell is None else escape(str(cell))


def seconds(value: float) -> str:
    """Return a duration as a person writes it."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 99.5:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def count(n: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: 1 image, 2 images."""
    return f"{n} {singular if n == 1 else plural or singular + 's'}"


def megabytes(count: float) -> str:
    """Return a size in bytes as MB or GB (powers of ten)."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def percent(value: float) -> str:
    """Return a share as a percentage with two decimals."""
    return f"{100 * value:.2f} %"


def stage_line(stages: Mapping[str, float]) -> str:
    """Return all stages and their sum on one line."""
    parts = [f"{name} {seconds(value)}" for name, value in stages.items()]
    return ", ".join(parts) + f"; together {seconds(sum(stages.values()))}"


def shown(name: str, longest: int = 40) -> str:
    """Return a class name fit for one line: control characters as escapes, and not longer than `longest`."""
    name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return name if len(name) <= longest else name[: longest - 1] + "…"


def mistakes(confused: Iterable[tuple[int, str, str]]) -> str:
    """Return (count, true class, predicted class) in words."""
    return ", ".join(f"{shown(a)} taken for {shown(b)} ({count})" for count, a, b in confused) or "none"


def class_table(scores: Scores) -> None:
    """Print precision, recall, F1 and number of images of each class."""
    rows = [
        (shown(name), row["precision"], row["recall"], row["f1"], row["support"])
        for name, row in scores.per_class.items()
    ]
    table("Classes", ("class", "precision", "recall", "F1", "images"), rows)


def sweep_table(outcomes: Sequence[Any], figure: str = "log-loss") -> None:
    """Print how each job of a sweep ended: the settings in which it differs, and its figure, named `figure`."""
    common = set.intersection(*[set(job.overrides) for job in outcomes])
    rows = []
    for number, job in enumerate(outcomes):
        own = " ".join(text for text in job.overrides if text not in common)
        rows.append((str(number), job.figure, own + (f"  FAILED: {job.failure}" if job.failure else "")))
    if all(job.figure is None for job in outcomes):  # predict and pack have none
        table("Sweep", ("job", "what"), [(number, what) for number, _, what in rows])
    else:
        table("Sweep", ("job", figure, "what"), rows)
