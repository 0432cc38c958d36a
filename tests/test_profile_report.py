"""The files that a profile leaves behind, without a browser: schema, trace, Python stacks."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import threading
import time

import pytest

from pipeline import installing
from pipeline.errors import ConfigError, OutputError
from pipeline.profiling import report as schema
from pipeline.profiling import stacks, trace
from pipeline.profiling.record import Event, Recorder, Recording
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
    assert installing.command("hogboost[profile]") in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())
