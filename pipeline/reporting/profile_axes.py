"""Axes of the plots of a profile, as SVG that takes its colours from the page around it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.reporting.units import clean

FONT = 12.0  # px
WIDTH_OF_CHARACTER = 0.56 * FONT  # on average, in the sans serif fonts of browsers

# For a plot that stands alone; on a page the page's own rules apply.
STYLE = """
svg { --ink: #1b2126; --soft: #56616b; --line: #d5dade; --paper: #ffffff; --bar: #17697a; --mark: #b84a05;
  --other: #6a4fa3; background: var(--paper); font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e8ebee; --soft: #a3adb6; --line: #3a434b; --paper: #14181b;
  --bar: #5cb8c8; --mark: #f59a4d; --other: #b9a1ef; } }
"""
MARKS = """
.plot text { font-size: 12px; fill: var(--soft); }
.plot .name { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.plot .heading { fill: var(--ink); font-size: 14px; font-weight: 600; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .axis { stroke: var(--soft); stroke-width: 1; }
.plot .curve, .plot .roof { fill: none; stroke: var(--bar); stroke-width: 2; }
.plot .roof.other { stroke: var(--other); }
.plot .one { stroke-dasharray: 5 4; stroke-width: 1.5; }
.plot .point { fill: var(--bar); stroke: var(--paper); stroke-width: 1.5; }
.plot .point.other { fill: var(--other); }
.plot .point.longest { fill: var(--mark); }
.plot .measured { fill: var(--mark); stroke: var(--paper); stroke-width: 1.5; }
.plot .bar { fill: var(--bar); }
.plot .roof-name { fill: var(--bar); paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.plot .roof-name.other { fill: var(--other); }
"""


@dataclass(frozen=True)
class Scale:
    """From values to pixels, linear or logarithmic."""

    low: float
    high: float
    begin: float  # pixel of `low`
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; a value outside lands at the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self, most: int) -> list[float]:
        """Return at most about `most` round values of the range."""
        return _log_ticks(self.low, self.high, most) if self.log else _ticks(self.low, self.high, most)


def _ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most, 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    if len(powers) >= 2:
        every = math.ceil(len(powers) / most)
        return [10.0**k for k in powers if k % every == 0]
    decade = 10.0 ** math.floor(math.log10(low))
    return [v for v in (decade * k for k in (1, 2, 5, 10, 20, 50)) if low * 0.999 <= v <= high * 1.001]


def svg(
    width: float, height: float, ident: str, title: str, text: str, body: Iterable[Markup], alone: bool
) -> Markup:
    """Return a plot with a title and a description for those who do not see it.

    Parameters
    ----------
    ident : str
        Start of the ids; one per plot of a page.
    alone : bool
        Whether it becomes a file of its own, with its own rules for colours.
    """
    style = Markup("<style>{}</style>").format(Markup(STYLE + MARKS)) if alone else Markup("")
    size = Markup(' width="{}" height="{}"').format(_n(width), _n(height)) if alone else Markup("")
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {} {}"{} role="img" '
        'aria-labelledby="{}-title {}-text"><title id="{}-title">{}</title><desc id="{}-text">{}</desc>{}{}</svg>'
    ).format(
        _n(width), _n(height), size, ident, ident, ident, clean(title), ident, clean(text), style, Markup("").join(body)
    )  # fmt: skip


def grid(
    x: Scale, y: Scale, x_label: str, y_label: str, most: tuple[int, int], whole: bool = False
) -> list[Markup]:
    """Return lines, numbers and names of two axes; the vertical axis is named above it, to be read upright.

    Parameters
    ----------
    most : (int, int)
        About how many numbers the axes have.
    whole : bool
        Whether only whole numbers make sense along `x`.
    """
    drawn = []
    for value in y.ticks(most[1]):
        at = _n(y(value))
        drawn.append(line(x.begin, y(value), x.end, y(value), "grid"))
        drawn.append(text(x.begin - 7, float(at) + 4, axis_number(value, 5), anchor="end"))
    for value in x.ticks(most[0]):
        if whole and value != round(value):
            continue
        drawn.append(line(x(value), y.begin, x(value), y.begin + 4, "axis"))
        drawn.append(text(x(value), y.begin + 18, axis_number(value), anchor="middle"))
    drawn.append(line(x.begin, y.begin, x.end, y.begin, "axis"))
    drawn.append(text((x.begin + x.end) / 2, y.begin + 38, x_label, anchor="middle"))
    drawn.append(text(max(4.0, x.begin - 44), y.end - 14, y_label))
    return drawn


def axis_number(value: float, most: int = 9) -> str:
    """Return the number at a tick; one longer than `most` characters in thousands."""
    if value >= 1000 and len(f"{value:,.6g}") > most:
        return f"{value / 1000:,.6g}k"
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def line(x0: float, y0: float, x1: float, y1: float, kind: str) -> Markup:
    """Return a line of a CSS class."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(
        _n(x0), _n(y0), _n(x1), _n(y1), kind
    )


def path(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    """Return straight lines through points."""
    joined = " L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    return Markup('<path d="M{}" class="{}"/>').format(joined, kind)


def text(
    x: float, y: float, words: object, kind: str = "", anchor: str = "start", turn: float = 0.0
) -> Markup:
    """Return words; `turn` in degrees."""
    turned = Markup(' transform="rotate({} {} {})"').format(_n(turn), _n(x), _n(y)) if turn else Markup("")
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}"{}>{}</text>').format(
        _n(x), _n(y), kind, anchor, turned, clean(words)
    )


def circle(x: float, y: float, radius: float, kind: str, words: str) -> Markup:
    """Return a point that tells `words` to who points at it."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"><title>{}</title></circle>').format(
        _n(x), _n(y), _n(radius), kind, clean(words)
    )


def width_of(words: str) -> float:
    """Return about how many pixels a text is wide."""
    return WIDTH_OF_CHARACTER * len(words)


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
