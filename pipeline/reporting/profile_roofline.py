"""The roofline plot: how fast each stage computes, beside what memory and arithmetic of the machine allow.

Williams, Waterman and Patterson 2009: a stage of I operations per byte reaches at most min(peak, I * bandwidth).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pipeline.profiling.report import Report, Stage
from pipeline.reporting import profile_axes as axes
from pipeline.reporting.units import amount, clean, digits, duration, share

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Roof:
    """Limits: bytes and operations per second."""

    name: str
    bandwidth: float
    peak: float
    kind: str  # CSS class


def on_device(stage: Stage) -> bool:
    """Tell whether the stage's seconds are the device's."""
    return stage.device is not None


def plotted(report: Report) -> list[Stage]:
    """Return the stages that do arithmetic at a known rate."""
    return [
        stage
        for stage in report.stages
        if stage.bytes and stage.operations and stage.gflop_per_s and math.isfinite(stage.gflop_per_s)
    ]


def roofs(report: Report) -> list[Roof]:
    """Return the measured limits that the plotted stages have: of all threads, of one thread, of the device."""
    limits = report.machine.limits
    precision = _precision(report)
    places = {on_device(stage) for stage in plotted(report)}
    wanted: list[tuple[bool, str, str, str, str]] = [
        (False in places, "all threads", "copy", "product", ""),
        (False in places and limits.get("cores", 1) > 1, "one thread", "copy_one", "product_one", "one"),
        (True in places, "GPU", "device_copy", "device_product", "other"),
    ]
    found = []
    for there, name, copy, product, kind in wanted:
        peak = _of(limits.get(product), precision)
        if there and limits.get(copy) and peak:
            found.append(Roof(name, float(limits[copy]), peak, kind))
    return found


def _precision(report: Report) -> str:
    return "float64" if report.work.get("number_bytes") == 8 else "float32"


def _of(value: Any, precision: str) -> float | None:
    return value.get(precision) if isinstance(value, dict) else value


def draw(report: Report, width: float, height: float, ident: str, alone: bool = False) -> Markup | None:
    """Return the plot, or None if no stage has both a count of operations and a rate, or no limit is known.

    Parameters
    ----------
    width, height : float
        Pixels; text has 12 pixels at any size, so a narrow page gets a plot of its own.
    ident : str
        Start of the ids in it.
    """
    stages, lines = plotted(report), roofs(report)
    if not stages or not lines:
        return None
    intensity = [float(stage.operations or 0) / float(stage.bytes or 1) for stage in stages]
    rate = [float(stage.gflop_per_s or 0) for stage in stages]
    ridges = [roof.peak / roof.bandwidth for roof in lines]
    x = axes.Scale(min(intensity + ridges) / 4, max(intensity + ridges) * 8, 52, width - 12, log=True)
    top = max(roof.peak for roof in lines) / 1e9
    y = axes.Scale(min(rate) / 3, top * 2.2, height - 46, 30, log=True)
    most = (max(3, int(width / 90)), 7)
    drawn = axes.grid(x, y, "operations per byte", "GFLOP/s (both axes logarithmic)", most)
    taken: list[Box] = []
    precision = _precision(report)
    for roof in lines:
        drawn += _roof(roof, precision if width > 500 else "", x, y, taken)
    places = [(x(i), y(r)) for i, r in zip(intensity, rate, strict=True)]
    drawn += _points(stages, places, (x.begin, y.end, x.end, y.begin), taken)
    words = "; ".join(
        f"{stage.label}: {digits(i, 2)} operations per byte, {digits(r)} GFLOP/s"
        for stage, i, r in zip(stages, intensity, rate, strict=True)
    )
    return axes.svg(width, height, ident, "Roofline: rate over operations per byte", words, drawn, alone)


def _roof(roof: Roof, precision: str, x: axes.Scale, y: axes.Scale, taken: list[Box]) -> list[Markup]:
    """Draw one roof; its slope enters the plot at the left or at the bottom."""
    ridge = roof.peak / roof.bandwidth
    begin = max(x.low, y.low * 1e9 / roof.bandwidth)
    corners = [(begin, begin * roof.bandwidth), (ridge, roof.peak), (x.high, roof.peak)]
    pixels = [(x(i), y(rate / 1e9)) for i, rate in corners]
    name = f"{roof.name}{', ' if precision else ''}{precision}: {amount(roof.peak, 'FLOP/s')}"
    if axes.width_of(name) > pixels[2][0] - pixels[1][0]:
        name = amount(roof.peak, "FLOP/s")
    below = 16.0 if roof.kind == "one" else -7.0
    drawn = [
        axes.path(pixels, f"roof {roof.kind}".strip()),
        axes.text(pixels[2][0], pixels[2][1] + below, name, f"roof-name {roof.kind}".strip(), "end"),
    ]
    taken.append(
        (
            pixels[2][0] - axes.width_of(name), pixels[2][1] + below - 11,
            pixels[2][0], pixels[2][1] + below + 4,
        )
    )  # fmt: skip
    (x0, y0), (x1, y1) = pixels[:2]
    for (ax, ay), (bx, by) in itertools.pairwise(pixels):  # names keep off the lines
        steps = max(1, int(math.hypot(bx - ax, by - ay) / 6))
        along = [(ax + (bx - ax) * k / steps, ay + (by - ay) * k / steps) for k in range(steps + 1)]
        taken += [(px - 2, py - 2, px + 2, py + 2) for px, py in along]
    words = f"memory {amount(roof.bandwidth, 'B/s')}"
    length = math.hypot(x1 - x0, y1 - y0)
    if roof.kind != "one" and length > axes.width_of(words) + 30:
        turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
        t = 0.5 - axes.width_of(words) / (2 * length)  # the words' middle at the middle of the slope
        up = 7.0
        at = (x0 + t * (x1 - x0) + up * (y1 - y0) / length, y0 + t * (y1 - y0) - up * (x1 - x0) / length)
        drawn.append(axes.text(*at, words, f"roof-name {roof.kind}".strip(), turn=turn))
    return drawn


def _points(
    stages: Sequence[Stage], places: Sequence[tuple[float, float]], frame: Box, taken: list[Box]
) -> list[Markup]:
    longest = max(stages, key=lambda stage: stage.share)
    radii = [4.0 + 10.0 * math.sqrt(min(max(stage.share, 0.0), 1.0)) for stage in stages]
    taken += [(px - r, py - r, px + r, py + r) for (px, py), r in zip(places, radii, strict=True)]
    circles, names = [], []
    for stage, (px, py), r in sorted(zip(stages, places, radii, strict=True), key=lambda one: -one[0].share):
        kind = "point longest" if stage is longest else "point other" if on_device(stage) else "point"
        told = (
            f"{stage.label}: {duration(stage.device if stage.device is not None else stage.wall)}, "
            f"{amount((stage.gflop_per_s or 0) * 1e9, 'FLOP/s')}, {share(stage.share)} of the time. {stage.verdict}"
        )
        circles.append(axes.circle(px, py, r, kind, told))
        name = clean(stage.label).removeprefix("Boosting: ")
        name = name if len(name) <= 26 else name[:25] + "…"
        left, base, box = _free(name, px, py, r, frame, taken)
        taken.append(box)
        names.append(axes.text(left, base, name, "name"))
    return circles + names


def _free(
    name: str, px: float, py: float, r: float, frame: Box, taken: Sequence[Box]
) -> tuple[float, float, Box]:
    """Return where a name goes beside its point so that it covers the least: left edge, base line, box."""
    wide = axes.width_of(name)
    middle, right, left = px - wide / 2, px + r, px - r - wide
    spots = [(right + 5, py + 4), (left - 5, py + 4), (middle, py - r - 6), (middle, py + r + 15)]
    spots += [(at, base) for at in (right, left) for base in (py - r - 4, py + r + 13)]
    best: tuple[float, float, float, Box] | None = None
    for wished, base in spots:
        left = min(max(wished, frame[0] + 2), frame[2] - wide)
        box = (left, base - 11, left + wide, base + 3)
        covered = sum(_overlap(box, other) for other in taken)
        if box[1] < frame[1] or box[3] > frame[3]:
            covered += 1000.0
        if best is None or covered < best[0]:
            best = (covered, left, base, box)
    assert best is not None
    return best[1:]


def _overlap(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
