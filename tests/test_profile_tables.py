"""The tables of a profile on terminals of several widths."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from pipeline.reporting import profile_tables, units
from tests import profile_sample

PACK = "python -m pipeline pack data.path=photos out=photos.npz"


def shown(name: str, width: int) -> str:
    stream = io.StringIO()
    profile_tables.show(getattr(profile_sample, name)(), Console(file=stream, width=width, highlight=False))
    return stream.getvalue()


def joined(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", ["digits", "gpu"])
def test_tables_fit_the_terminal_and_cut_nothing(name, width):
    text = shown(name, width)
    report = getattr(profile_sample, name)()
    exact = [one.override for one in report.advice] + list(report.commands.values())
    exact += [f"first, once: {PACK}"] if name == "digits" else []
    for line in text.splitlines():
        assert len(line) <= width or line.strip() in exact
    assert "…" not in text
    for override in exact:  # to be copied: never broken
        assert re.search(rf"^ +{re.escape(override)}$", text, flags=re.MULTILINE)
    assert joined(report.total.verdict) in joined(text)
    for stage in report.stages:
        if stage.share >= profile_tables.SMALL:
            row = re.search(
                rf"^{re.escape(stage.label)} +█*.*{units.duration(stage.wall)} ", text, flags=re.M
            )
            assert row, stage.label
    flat = joined(text)
    assert "Below 1 % each: Start and imports 20 ms" in flat
    assert "extrapolated, HoG from 500 images" in flat


def test_a_wide_terminal_gets_rates_and_limits():
    assert re.search(r"Boosting: sums of products .* 179 GFLOP/s +94 %  arithmetic", shown("digits", 160))
    assert "Why" in shown("digits", 80)
    assert re.search(r"^cpu +7\.62 s +250× +2\.4e-07 +100\.00 % +98\.89 %", shown("digits", 80), flags=re.M)


def test_parts_that_are_missing_are_not_announced():
    text = shown("bare", 80)
    for heading in ("Sweep", "What to try", "each backend", "Paid once", "NVIDIA"):
        assert heading not in text
    assert "Nothing stands out" in text


def test_hostile_texts_neither_colour_nor_break_the_terminal():
    for width in (40, 80, 160):
        text = shown("hostile", width)
        assert "\x1b" not in text
        assert "[red]" in joined(text).replace(" ", "")
        assert "\\x1b[31m" in text.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize(
    ("part", "drawn"),
    [
        (0.0, ""),
        (1.0, "████"),
        (0.5, "██"),
        (1e-9, "▏"),
        (2.0, "████"),
        (float("nan"), ""),
        (-1.0, ""),
        (0.28125, "█▏"),
    ],
)
def test_bars_to_an_eighth_of_a_character(part, drawn):
    assert profile_tables.bar(part, 4) == drawn


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.0, "0 s"), (5.2e-8, "0.052 µs"), (4.6e-5, "46 µs"), (0.0021, "2.1 ms"), (0.58, "580 ms"),
     (0.99949, "999 ms"), (0.9996, "1.00 s"), (7.62, "7.62 s"), (99.9, "99.9 s"), (99.96, "1 min 40 s"),
     (1904.0, "31 min 44 s"), (19040.0, "5 h 17 min"), (-2.0, "-2.00 s"), (float("nan"), "-")],
)  # fmt: skip
def test_durations(seconds, words):
    assert units.duration(seconds) == words


def test_amounts_shares_and_ratios():
    assert units.amount(1.72e10, "B/s") == "17.2 GB/s"
    assert units.amount(999.6e9, "B/s") == "1.00 TB/s"
    assert units.amount(12.0, "B") == "12.0 B"
    assert units.amount(float("inf"), "B") == "-"
    assert [units.share(v) for v in (0.0, 0.0004, 0.031, 0.0996, 0.24, None)] == [
        "0 %",
        "< 0.1 %",
        "3.1 %",
        "10 %",
        "24 %",
        "-",
    ]
    assert [units.times(v) for v in (1.0, 249.9, 3121.3, None)] == ["1×", "250×", "3,120×", "-"]
    assert units.full("float64 takes longer") == "float64 takes longer."
    assert units.full("one core busy: 38 %") == "One core busy: 38 %."
    assert units.clean("a\x1b[1m\n\udcff é") == "a\\x1b[1m\\n\\udcff é"
