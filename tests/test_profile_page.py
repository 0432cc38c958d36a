"""The page of a profile and its plots, without a browser: what they say, what they load, where the points lie."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from html.parser import HTMLParser

import pytest

from pipeline import config
from pipeline.profiling import report as schema
from pipeline.reporting import profile_page, profile_roofline, profile_sweeps
from tests import profile_sample
from tests.conftest import ROOT

SAMPLES = ("digits", "gpu", "bare", "hostile")


def sample(name: str) -> schema.Report:
    return getattr(profile_sample, name)()


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
                  "2.01 s less", "First, once:", "python -m pipeline pack data.path=photos out=photos.npz",
                  "nsys profile",
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


def test_settings_are_written_as_they_are_typed():
    cfg = dataclasses.asdict(config.Train(run_dir=""))
    rows = dict(profile_page.flattened(cfg))
    assert rows["backend.name"] == "cpu"
    assert rows["data.path"] == "null"
    assert rows["plots"] == "true"
    assert rows["data.max_pixels"] == "100,000,000"


def test_work_names_no_components_where_there_are_none():
    assert dict(profile_page.work_rows({"images": 1000, "components": None})) == {"Images": "1,000"}
    assert dict(profile_page.work_rows({"components": 40})) == {"Principal components": "40"}
