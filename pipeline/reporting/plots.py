"""Pictures of a run as PNG files, drawn without pyplot's global state."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.files import atomic
from pipeline.reporting.benchmark_tables import duration
from pipeline.reporting.tables import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipeline.benchmarks.results import RowResult, SuiteResult

BAR_COLOURS = {
    "ok": "#1f5fa8",
    "device": "#4c9a2a",
    "extrapolated": "#9db7d5",
    "absent": "0.6",
    "wrong": "#b00020",
}
# matplotlib is imported by the functions that draw: it takes as long as reading ten thousand images
LONGEST_NAME = 18  # characters of a class name that a plot shows


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _save(figure: Figure, path: str | Path, grow: bool = False) -> None:
    """Write the figure; `grow` lets it grow where long names would be cut."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    with atomic(path, "wb") as stream, warnings.catch_warnings():
        # A class name in a script that the font lacks is drawn as boxes; the tables name it.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(stream, format="png", dpi=130, bbox_inches="tight" if grow else None)


def _short(name: str) -> str:
    # "$" would start mathematics in matplotlib
    return shown(name, LONGEST_NAME).replace("$", r"\$")


def confusion_matrix(confusion: np.ndarray, class_names: Sequence[str], path: str | Path) -> None:
    """Draw the confusion matrix: colour is the share of the row's images, numbers are images.

    Parameters
    ----------
    confusion : ndarray of int, shape (n_classes, n_classes)
        Rows are true classes, columns predicted ones.
    class_names : sequence of str
    path : str or Path
        PNG file to write.
    """
    n = len(class_names)
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    side = min(max(4.2, 1.8 + 0.36 * n), 18.0)
    size = float(np.clip(11 - 0.11 * n, 5.5, 9.5))
    figure = _figure(side + 0.9, side)
    axes = figure.add_subplot()
    picture = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    for i, j in zip(*np.nonzero(confusion), strict=True):
        colour = "white" if share[i, j] > 0.45 else "black" if i == j else "#b00020"
        axes.text(j, i, str(confusion[i, j]), ha="center", va="center", fontsize=size * 0.85, color=colour)
    names = [_short(name) for name in class_names]
    upright = n <= 12 and max(map(len, names)) * n <= 48
    axes.set_xticks(range(n), names, rotation=0 if upright else 90, fontsize=size)
    axes.set_yticks(range(n), names, fontsize=size)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    right = int(confusion.trace())
    axes.set_title(f"{right} of {int(confusion.sum())} right", fontsize=11)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="share of the true class")
    _save(figure, path, grow=True)


def learning_curve(train: Sequence[float], validation: Sequence[float], kept: int, path: str | Path) -> None:
    """Draw the log-loss after each boosting round.

    Parameters
    ----------
    train, validation : sequence of float
        Log-loss in nats after rounds 1, 2, ...; `validation` may be empty.
    kept : int
        Number of rounds in the model (fewer than trained if boosting stopped early).
    path : str or Path
        PNG file to write.
    """
    figure = _figure(6.4, 4.0)
    axes = figure.add_subplot()
    marker = "o" if len(train) < 20 else None  # a single round is a point, not a line
    axes.plot(range(1, len(train) + 1), train, label="training", color="#1f5fa8", marker=marker, ms=3)
    if len(validation):
        axes.plot(
            range(1, len(validation) + 1),
            validation,
            label="validation",
            color="#d1661b",
            marker=marker,
            ms=3,
        )
    if kept < len(train):
        axes.axvline(kept, color="0.4", linestyle=":", label=f"kept: {kept} rounds")
    values = [value for value in (*train, *validation) if value > 0.0]
    if values and max(values) > 20 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0.0)
    _whole_numbers(axes.xaxis)
    axes.set_xlabel("boosting round")
    axes.set_ylabel("log-loss (nats)")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, path)


def cell_importances(importances: np.ndarray, path: str | Path) -> None:
    """Draw which places of the image the classifier goes by.

    Parameters
    ----------
    importances : ndarray of float, shape (cell rows, cell columns)
        Share of each HoG cell; the whole sums to 1.
    path : str or Path
        PNG file to write.
    """
    rows, cols = importances.shape
    width = float(np.clip(0.55 * cols, 4.0, 12.0))
    figure = _figure(width + 1.2, float(np.clip(width * rows / cols, 2.2, 12.0)) + 0.9)
    axes = figure.add_subplot()
    picture = axes.imshow(100.0 * importances, cmap="viridis", vmin=0.0)
    axes.set_xlabel("cell column")
    axes.set_ylabel("cell row")
    _whole_numbers(axes.xaxis)
    _whole_numbers(axes.yaxis)
    axes.set_title("Importance of each cell", fontsize=11)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="percent of the whole")
    _save(figure, path)


def benchmark_bars(suites: Sequence[SuiteResult], path: str | Path) -> None:
    """Draw a bar for the median seconds of each row, on a logarithmic axis; a suite to a panel.

    Parameters
    ----------
    suites : sequence of SuiteResult
        What was measured.
    path : str or Path
        PNG file to write.
    """
    counts = [len(suite.rows) for suite in suites]
    figure = _figure(9.0, 0.24 * sum(counts) + 0.95 * len(suites) + 0.3)
    panels = figure.subplots(len(suites), 1, squeeze=False, height_ratios=[n + 1 for n in counts])[:, 0]
    for axes, suite in zip(panels, suites, strict=True):
        _bar_panel(axes, suite)
    figure.supxlabel(
        "seconds, median (line: fastest to slowest round); light: extrapolated, green: on the GPU", fontsize=8
    )
    _save(figure, path)


def _bar_panel(axes: Any, suite: SuiteResult) -> None:
    seconds = [value for row in suite.rows for value in row.seconds]
    left = min(seconds) / 3 if seconds else 0.1
    right = max(seconds) * 6 if seconds else 10.0
    for place, row in enumerate(suite.rows):
        middle = row.median
        if middle is None:
            text = {"absent": "absent", "wrong": "wrong result", "failed": "failed"}[row.status]
            colour = BAR_COLOURS["absent" if row.status == "absent" else "wrong"]
            axes.text(left * 1.1, place, text, va="center", fontsize=7, color=colour)
            continue
        axes.barh(place, middle - left, left=left, color=_bar_colour(row), height=0.7)
        axes.plot([min(row.seconds), max(row.seconds)], [place, place], color="black", linewidth=1)
        axes.text(max(row.seconds) * 1.1, place, duration(middle), va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(len(suite.rows) - 0.4, -0.6)  # the first row on top
    axes.set_yticks(range(len(suite.rows)), [row.name for row in suite.rows], fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(f"{suite.name}: {suite.work}", fontsize=8, loc="left")
    axes.grid(axis="x", alpha=0.3)


def _bar_colour(row: RowResult) -> str:
    return BAR_COLOURS["extrapolated" if row.scale != 1.0 else "device" if row.on_device else "ok"]
