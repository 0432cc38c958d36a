"""One plot per sweep: what was measured, and the law fitted to it."""

from __future__ import annotations

import re

from markupsafe import Markup

from pipeline.profiling.report import Point, Sweep
from pipeline.reporting import profile_axes as axes
from pipeline.reporting.units import clean, duration

WIDTH, HEIGHT = 330.0, 230.0
STEP = 50.0  # from bar to bar
STEPS = 80  # straight pieces of a fitted curve


def draw(sweep: Sweep, ident: str, alone: bool = False) -> Markup | None:
    """Return the plot of a sweep, or None if it has no point. Names on the axis become bars, numbers a curve."""
    if not sweep.points:
        return None
    names = _named(sweep)
    shift = 26.0 if alone else 0.0
    body = _bars(sweep, shift) if names else _curve(sweep, shift)
    if alone:
        body.append(axes.text(12, 20, f"Seconds over {sweep.x_label}", "heading"))
    title = f"Sweep of {sweep.name}"
    words = ", ".join(f"{point.label}: {duration(point.seconds)}" for point in sweep.points)
    if sweep.fit is not None:
        words += f". {sweep.fit.words}"
    height = 20 + STEP * len(sweep.points) if names else HEIGHT
    return axes.svg(WIDTH, height + shift, ident, title, words, body, alone)


def _named(sweep: Sweep) -> bool:
    """Tell whether the points have names, not numbers along an axis."""
    if len({point.x for point in sweep.points}) == 1:
        return True
    numbers = all(re.fullmatch(r"[\d.,]+", point.label) for point in sweep.points)
    return sweep.fit is not None and sweep.fit.kind == "ratio" and not numbers


def _bars(sweep: Sweep, shift: float) -> list[Markup]:
    longest = max(point.seconds for point in sweep.points) or 1.0
    drawn = []
    for k, point in enumerate(sweep.points):
        top = 14 + shift + k * STEP
        wide = max(1.0, point.seconds / longest * (WIDTH - 100))
        name = clean(point.label)
        drawn.append(axes.text(12, top + 10, name if len(name) <= 40 else name[:39] + "…", "name"))
        drawn.append(
            Markup('<rect x="12" y="{}" width="{:.1f}" height="{:.1f}" rx="2" class="bar"/>').format(
                top + 16, wide, STEP * 0.38
            )
        )
        drawn.append(axes.text(18 + wide, top + 16 + STEP * 0.19 + 4, duration(point.seconds), "name"))
    return drawn


def _curve(sweep: Sweep, shift: float) -> list[Markup]:
    points = sorted(sweep.points, key=lambda point: point.x)
    low, high = points[0].x, points[-1].x
    log = low > 0 and high / low >= 30
    x = axes.Scale(
        low / 1.3 if log else min(0.0, low), high * 1.3 if log else high * 1.06, 48, WIDTH - 14, log=log
    )
    curve: list[tuple[float, float]] = []
    if sweep.fit is not None:
        for k in range(STEPS + 1):
            at = low * (high / low) ** (k / STEPS) if log else low + (high - low) * k / STEPS
            seconds = sweep.fit.at(at)
            if seconds is not None:
                curve.append((at, seconds))
    top = max([point.seconds for point in points] + [s for _, s in curve]) or 1.0
    y = axes.Scale(0.0, top * 1.12, HEIGHT + shift - 46, 28 + shift)
    label = sweep.x_label + (" (logarithmic)" if log else "")
    drawn = axes.grid(
        x,
        y,
        label if len(label) <= 40 else label[:39] + "…",
        "seconds",
        (5, 4),
        all(p.x == round(p.x) for p in points),
    )
    if curve:
        drawn.append(axes.path([(x(a), y(s)) for a, s in curve], "curve"))
    else:
        drawn.append(axes.path([(x(p.x), y(p.seconds)) for p in points], "curve one"))
    drawn += [axes.circle(x(p.x), y(p.seconds), 5, "measured", _told(p)) for p in points]
    ends = points if len(points) <= 3 else (points[0], points[-1])
    for p in ends:
        at, anchor = x(p.x), "middle"
        if at > WIDTH - 60:
            anchor = "end"
        elif at < 80:
            at, anchor = at - 6, "start"
        drawn.append(axes.text(at, y(p.seconds) - 11, duration(p.seconds), "name", anchor))
    return drawn


def _told(point: Point) -> str:
    return f"{point.label}: {duration(point.seconds)}"
