"""The files that a profile leaves behind, without a browser: schema, trace, page, plots, Python stacks."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
import zipfile
from html.parser import HTMLParser

import pytest

from pipeline.errors import ConfigError, OutputError
from pipeline.profiling import report as schema
from pipeline.profiling import stacks, trace
from pipeline.profiling.record import Event, Recorder, Recording
from pipeline.reporting import profile_page, profile_roofline, profile_sweeps
from pipeline.spans import part, span
from tests import profile_sample
from tests.conftest import ROOT

SAMPLES = ("digits", "gpu", "bare", "hostile")
OBJECTS = {  # heading of docs/profile.md: what it describes
    "profile.json": schema.Report,
    "total": schema.Total,
    "stages": schema.Stage,
    "machine": schema.Machine,
    "measuring": schema.Measuring,
    "compare": schema.CompareRow,
    "sweeps": schema.Sweep,
    "advice": schema.Advice,
}


def sample(name: str) -> schema.Report:
    return getattr(profile_sample, name)()


# ---- profile.json ----


@pytest.mark.parametrize(("heading", "kind"), OBJECTS.items())
def test_the_manual_describes_every_key_and_no_other(heading, kind):
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    part = re.split(r"^#{2,3} ", text.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    table = part.split("\n\n| `kind`")[0]
    described = re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)
    assert sorted(described) == sorted(field.name for field in dataclasses.fields(kind))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_becomes_json_and_nothing_is_lost(name, tmp_path):
    sample(name).write(tmp_path / "profile.json")
    text = (tmp_path / "profile.json").read_bytes().decode("ascii")
    assert "NaN" not in text
    assert "Infinity" not in text
    content = json.loads(text)
    assert content == sample(name).to_dict()
    assert set(content) == {field.name for field in dataclasses.fields(schema.Report)}
    assert content["version"] == schema.VERSION == 1
    for stage in content["stages"]:
        assert set(stage) == {field.name for field in dataclasses.fields(schema.Stage)}


def test_values_that_json_does_not_know_become_what_it_knows(tmp_path):
    from enum import Enum
    from pathlib import Path

    import numpy as np

    kind = Enum("kind", "ridge")
    report = dataclasses.replace(
        sample("bare"),
        settings={
            "a": np.float32(0.5),
            "b": np.int64(3),
            "c": kind.ridge,
            "d": Path("x"),
            "e": (1, float("inf")),
            "f": np.float64("nan"),
            "g": np.True_,
        },
    )
    expected = {"a": 0.5, "b": 3, "c": "ridge", "d": "x", "e": [1, None], "f": None, "g": True}
    assert report.to_dict()["settings"] == expected
    (tmp_path / "profile.json").mkdir()
    with pytest.raises(OutputError, match=r"profile\.json cannot be written"):
        report.write(tmp_path / "profile.json")


def test_the_laws_of_sweeps():
    assert schema.Fit("amdahl", {"seconds_one": 10.0, "serial": 0.2}, "").at(4) == pytest.approx(4.0)
    assert schema.Fit("power", {"factor": 2.0, "exponent": 3.0}, "").at(2) == pytest.approx(16.0)
    assert schema.Fit("power", {"fixed": 1.0, "factor": 2.0, "exponent": 0.5}, "").at(9) == pytest.approx(7.0)
    assert schema.Fit("line", {"fixed": 1.0, "slope": 0.5}, "").at(4) == pytest.approx(3.0)
    assert schema.Fit("ratio", {"ratio": 2.0}, "").at(4) is None


# ---- trace.json ----


def check_trace(content):
    """Check what viewers of the format ask for: known phases, times that fit into each other, named threads."""
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    events = content["traceEvents"]
    assert {event["ph"] for event in events} <= {"X", "M", "C"}
    threads = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    open_until: dict[int, list[float]] = {}
    before = -1.0
    for event in (e for e in events if e["ph"] == "X"):
        assert isinstance(event["name"], str)
        assert event["pid"] == 1
        assert event["tid"] in threads
        assert event["ts"] >= before
        assert event["dur"] >= 0
        before = event["ts"]
        stack = open_until.setdefault(event["tid"], [])
        while stack and stack[-1] <= event["ts"] + 1e-3:
            stack.pop()
        assert not stack or event["ts"] + event["dur"] <= stack[-1] + 1e-3, "half in, half out"
        stack.append(event["ts"] + event["dur"])
    for event in (e for e in events if e["ph"] == "C"):
        assert list(event["args"]) == ["value"]
        assert event["ts"] >= 0
    return threads


def test_the_trace_of_a_real_recording(tmp_path):
    def helper(ready):
        with part("sums"):
            ready.set()
            time.sleep(0.05)

    with Recorder() as recorder, span("boost"):
        with span("hog"):
            pass
        ready = threading.Event()
        thread = threading.Thread(target=helper, args=(ready,))
        thread.start()
        ready.wait()
        with part("solve"):
            time.sleep(0.01)
        thread.join()
    trace.write(recorder.recording, tmp_path / "trace.json", {"bytes": [(0.0, 1.0), (0.01, 2.0)]})
    content = json.loads((tmp_path / "trace.json").read_text())
    assert check_trace(content) == {0: "program", 1: "thread 1"}
    found = {event["name"]: event for event in content["traceEvents"] if event["ph"] == "X"}
    assert set(found) == {"boost", "hog", "sums", "solve"}
    assert (found["boost"]["tid"], found["solve"]["tid"], found["sums"]["tid"]) == (0, 0, 1)
    counters = {event["name"] for event in content["traceEvents"] if event["ph"] == "C"}
    assert counters == {"threads at work", "resident memory, MB", "bytes"}
    busy = [e["args"]["value"] for e in content["traceEvents"] if e["name"] == "threads at work"]
    assert max(busy) == 2
    assert busy[-1] == 0
    assert content["otherData"]["spans"] == content["otherData"]["spans_kept"] == 4


def test_an_outer_stage_comes_before_the_inner_one_that_begins_with_it():
    events = [Event("inner", 1.0, 0.25, 0, 1), Event("outer", 1.0, 2.0, 0, 0), Event("same", 1.0, 2.0, 0, 1)]
    content = trace.trace(Recording({}, 3.0, 3.0, 0, events, 5))
    check_trace(content)
    names = [event["name"] for event in content["traceEvents"] if event["ph"] == "X"]
    assert names == ["outer", "same", "inner"]
    assert content["otherData"] == {"wall_seconds": 3.0, "spans": 5, "spans_kept": 3}
    check_trace(trace.trace(Recording({}, 0.0, 0.0, 0, [], 0)))


def test_memory_samples_of_a_long_run_are_thinned(monkeypatch):
    from pipeline.profiling import memory

    monkeypatch.setattr(memory, "EVERY", 0.0)
    monkeypatch.setattr(memory, "MOST_SAMPLES", 8)
    watch = memory.MemoryWatch()
    watch.start()
    while watch.highest == 0 or len(watch.samples) < 5:
        time.sleep(0.001)
    watch.stop()
    assert len(watch.samples) < 8
    assert watch.samples == sorted(watch.samples)


# ---- the page and the plots ----


class Page(HTMLParser):
    """What is in a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_has_every_section_once_and_needs_nothing_else(name):
    text = profile_page.render(sample(name))
    page = Page(text)
    assert set(profile_page.SECTIONS) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not {"iframe", "object", "embed", "img", "base"} & set(page.tags)
    fetching = [(k, v) for k, v in page.attributes if k in ("src", "href", "srcset", "data", "action")]
    assert all(value.startswith("#") or value == "data:," for _, value in fetching)
    style = text.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert page.tags.count("script") == 1
    referred = [value for key, value in page.attributes if key == "aria-labelledby"]
    assert set(" ".join(referred).split()) <= set(page.ids)
    assert page.tags.count("caption") == page.tags.count("table")
    assert page.tags.count("svg") == page.tags.count("desc")


def test_the_page_says_what_was_measured():
    text = "".join(Page(profile_page.render(sample("digits"))).texts)
    for words in ("One core busy: 38% of the time", "Decode images", "94 % of what a large float32 product", "250×",
                  "HoG from 500 images", "CuPy is not installed", "data.name=packed data.path=photos.npz",
                  "2.01 s less", "nsys profile",
                  "51,240 marks", "17.2 GB/s", "190 GFLOP/s", "AMD EPYC 7B13"):  # fmt: skip
        assert words in text, words
    text = "".join(Page(profile_page.render(sample("gpu"))).texts)
    for words in ("GPU memory", "280 ms on the GPU", "GPU, float32: 51.0 TFLOP/s", "51.0 GB/s"):
        assert words in text, words
    text = "".join(Page(profile_page.render(sample("bare"))).texts)
    for words in ("profile compare=", "profile sweep=threads", "Nothing found that would shorten"):
        assert words in text, words


def test_hostile_texts_do_nothing():
    text = profile_page.render(sample("hostile"))
    page = Page(text)
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", text)
    assert profile_sample.HOSTILE.replace("\x1b", "\\x1b").replace("\n", "\\n") in "".join(page.texts)


@pytest.mark.parametrize("name", SAMPLES)
def test_files_of_the_page(name, tmp_path):
    report = sample(name)
    files = profile_page.write(report, tmp_path)
    assert files[0].name == "profile.html"
    assert files[0].read_text(encoding="utf-8") == profile_page.render(report)
    assert sorted(files) == sorted(tmp_path.iterdir())
    assert len(files) == 1 + sum(1 for sweep in report.sweeps if sweep.points)
    for file in files[1:]:
        assert re.fullmatch(r"sweep_[A-Za-z0-9_-]+\.svg", file.name)
        root = ET.fromstring(file.read_bytes())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        assert "nan" not in file.read_text(encoding="utf-8").lower()


def test_two_sweeps_whose_names_make_the_same_file_keep_both(tmp_path):
    plain = sample("digits")
    twice = [dataclasses.replace(plain.sweeps[0], name=name) for name in ("a/b", "a:b")]
    files = profile_page.write(dataclasses.replace(plain, sweeps=twice), tmp_path)
    assert len(set(files)) == 3


def numbers(plot, tag, *names):
    root = ET.fromstring(str(plot))
    return [
        tuple(float(one.get(name)) for name in names)
        for one in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    ]


@pytest.mark.parametrize("size", [(1040.0, 470.0), (350.0, 400.0)])
def test_points_of_the_roofline_lie_where_their_figures_say(size):
    report = sample("digits")
    plot = profile_roofline.draw(report, *size, "r")
    stages = sorted(profile_roofline.plotted(report), key=lambda stage: -stage.share)
    places = numbers(plot, "circle", "cx", "cy", "r")
    assert [stage.name for stage in stages] == ["boost/sums", "boost/update", "hog", "boost/solve"]
    assert len(places) == len(stages)
    by_x = sorted(range(4), key=lambda k: places[k][0])
    assert by_x == sorted(range(4), key=lambda k: stages[k].operations / stages[k].bytes)
    by_y = sorted(range(4), key=lambda k: -places[k][1])
    assert by_y == sorted(range(4), key=lambda k: stages[k].gflop_per_s)
    radii = [r for _, _, r in places]
    assert radii == sorted(radii, reverse=True)
    for x, y, r in places:
        assert r <= x <= size[0] - r
        assert r <= y <= size[1] - r
    text = str(plot)
    assert text.count('class="roof"') == 1
    assert text.count('class="roof one"') == 1


def test_a_stage_on_the_memory_roof_is_drawn_on_it():
    plain = sample("digits")
    copy, peak = plain.machine.limits["copy"], plain.machine.limits["product"]["float32"]
    at = 2.0  # operations per byte, left of the ridge
    one = dataclasses.replace(plain.stages[8], bytes=1e9, operations=at * 1e9, gflop_per_s=at * copy / 1e9)
    two = dataclasses.replace(plain.stages[10], bytes=1e9, operations=1e12, gflop_per_s=peak / 1e9)
    plot = profile_roofline.draw(dataclasses.replace(plain, stages=[one, two]), 1040.0, 470.0, "r")
    corners = re.search(r'd="M([\d. ]+) L([\d. ]+) L([\d. ]+)" class="roof"', str(plot))
    (x0, y0), (x1, y1), (_, y2) = (tuple(map(float, group.split())) for group in corners.groups())
    (px, py, _), (_, qy, _) = numbers(plot, "circle", "cx", "cy", "r")
    assert py == pytest.approx(y0 + (px - x0) / (x1 - x0) * (y1 - y0), abs=0.3)
    assert y1 == y2 == pytest.approx(qy, abs=0.1)


def test_float64_work_is_held_against_the_float64_limit():
    plain = sample("digits")
    wide = dataclasses.replace(plain, work={**plain.work, "number_bytes": 8})
    assert [roof.peak for roof in profile_roofline.roofs(wide)] == [94e9, 49e9]
    assert [roof.peak for roof in profile_roofline.roofs(plain)] == [190e9, 101e9]
    assert [roof.peak for roof in profile_roofline.roofs(sample("gpu"))] == [51e12]
    assert profile_roofline.draw(sample("bare"), 700.0, 400.0, "r") is None


def test_a_fitted_curve_passes_through_points_that_follow_it():
    sweep = next(one for one in sample("digits").sweeps if one.name == "images")
    plot = profile_sweeps.draw(sweep, "s")
    curve = re.search(r'd="M([^"]+)" class="curve"', str(plot)).group(1)
    corners = [tuple(map(float, pair.split())) for pair in curve.split(" L")]
    for px, py in numbers(plot, "circle", "cx", "cy"):
        assert min(abs(px - x) + abs(py - y) for x, y in corners) < 4.0
    assert len(numbers(plot, "circle", "cx", "cy")) == len(sweep.points)


def test_a_sweep_of_names_has_bars_in_proportion():
    sweep = next(one for one in sample("digits").sweeps if one.name == "dtype")
    wide = [width for (width,) in numbers(profile_sweeps.draw(sweep, "s"), "rect", "width")]
    assert wide[0] / wide[1] == pytest.approx(7.62 / 11.9, rel=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(scheme):
    css = (ROOT / "pipeline" / "reporting" / "profile.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): #(\w{6})", blocks[("light", "dark").index(scheme)]))

    def luminance(name):
        parts = [int(colours[name][k : k + 2], 16) / 255 for k in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    # WCAG 2.2: 4.5 for text, 3 for graphics
    for ink, ground in (("ink", "paper"), ("soft", "paper"), ("bar", "paper"), ("bar", "well"), ("ink", "well"),
                        ("paper", "bar"), ("paper", "mark"), ("other", "paper")):  # fmt: skip
        assert contrast(ink, ground) >= 4.5, (ink, ground)
    assert contrast("mark", "paper") >= 3.0


def test_the_plots_that_stand_alone_have_the_colours_of_the_page():
    from pipeline.reporting.profile_axes import STYLE

    css = (ROOT / "pipeline" / "reporting" / "profile.css").read_text(encoding="utf-8")
    page = re.findall(r"--([\w-]+): (#\w{6})", css)
    alone = re.findall(r"--([\w-]+): (#\w{6})", STYLE)
    assert len(alone) == 14
    assert set(alone) <= set(page)


def test_the_template_is_in_the_wheel(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {f"pipeline/reporting/profile.{end}" for end in ("html.j2", "css")} <= set(names)


# ---- Python stacks ----


def busy_function():
    end = time.perf_counter() + 0.08
    while time.perf_counter() < end:
        sum(range(100))


def test_python_stacks_are_a_page_of_their_own(tmp_path):
    pytest.importorskip("pyinstrument")
    with stacks.sampled(tmp_path / "stacks.html"):
        busy_function()
    text = (tmp_path / "stacks.html").read_text(encoding="utf-8")
    assert "busy_function" in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.?https?:", text)


def test_python_stacks_are_written_when_the_run_fails(tmp_path):
    pytest.importorskip("pyinstrument")

    def run():
        with stacks.sampled(tmp_path / "stacks.html"):
            busy_function()
            raise ValueError("the run failed")

    with pytest.raises(ValueError, match="the run failed"):
        run()
    assert "busy_function" in (tmp_path / "stacks.html").read_text(encoding="utf-8")


def test_without_pyinstrument_one_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(ConfigError) as caught,
        stacks.sampled(tmp_path / "stacks.html", "profile.stacks=true"),
    ):
        pass
    message = str(caught.value)
    assert message.startswith("profile.stacks=true")
    assert "pip install 'hogboost[profile]'" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())
