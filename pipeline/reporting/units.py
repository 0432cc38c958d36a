"""Numbers as a person reads them: three digits that count, and the unit that fits."""

from __future__ import annotations

import math
import re

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def digits(value: float, count: int = 3) -> str:
    """Return a number with `count` significant digits and thousands set apart, without an exponent."""
    if not math.isfinite(value):
        return "-"
    if value == 0.0:
        return "0"
    value = float(f"{value:.{count - 1}e}")  # 9.996 is 10.0, not 9.996
    places = count - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(places, 0), 12)}f}"


def duration(value: float | None) -> str:
    """Return seconds as us, ms, s, min or h."""
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 99.95:
        return ("-" if value < 0 else "") + _long(round(size))
    for least, factor, unit, count in (
        (0.9995, 1.0, "s", 3),
        (0.0995, 1e3, "ms", 3),
        (0.9995e-3, 1e3, "ms", 2),
    ):
        if size >= least:
            return f"{digits(value * factor, count)} {unit}"
    return "0 s" if size == 0.0 else f"{digits(value * 1e6, 2)} µs"


def _long(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def amount(value: float | None, unit: str) -> str:
    """Return `value` of a unit with a decimal prefix: ``amount(1.72e10, "B/s")`` is "17.2 GB/s"."""
    if value is None or not math.isfinite(value):
        return "-"
    for size, prefix in PREFIXES:
        if abs(value) >= 0.9995 * size:
            return f"{digits(value / size)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def share(value: float | None) -> str:
    """Return a share as percent: "24 %", "3.1 %", "< 0.1 %"."""
    if value is None or not math.isfinite(value):
        return "-"
    percent = 100.0 * value
    if 0.0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or percent == 0.0 else f"{percent:.1f} %"


def exact_share(value: float | None) -> str:
    """Return a share with two decimals of a percent, for figures close to 100 %."""
    return "-" if value is None or not math.isfinite(value) else f"{100.0 * value:.2f} %"


def clean(text: object) -> str:
    """Return `text` on one line, with characters that no page and no terminal should get as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def sentence(text: str) -> str:
    """Return `text` with a capital at its beginning, unless it begins with a name such as float32 or n_rounds=5."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.rstrip(",:;.").isalpha() else text


def full(text: str) -> str:
    """Return `text` with a capital at its beginning and a stop at its end."""
    text = sentence(text.strip())
    return text if not text or text[-1] in ".!?" else text + "."


def times(ratio: float | None) -> str:
    """Return a ratio as "250×"."""
    return "-" if ratio is None else "1×" if ratio == 1.0 else f"{digits(ratio)}×"


def difference(value: float | None) -> str:
    """Return a tiny number."""
    return "-" if value is None else f"{value:.1e}" if value else "0"


def what_comes_first(title: str) -> tuple[str, str]:
    """Split the title of advice such as "pack the images, first: python -m pipeline pack ...": title and command."""
    found = re.fullmatch(r"(.+?),? first: (python -m .+)", title)
    return (found[1], found[2]) if found else (title, "")


def memory_words(predicted: float, measured: float | None) -> str:
    """Return how much memory a run would have at most, and had."""
    words = f"predicted {amount(predicted, 'B')} of memory at most"
    return words if measured is None else f"{words}, measured {amount(measured, 'B')}"
