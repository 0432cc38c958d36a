"""The command benchmark: what it shows and writes, and how mistakes are told."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from pipeline import cli, config
from pipeline.benchmarks import measure, registry
from pipeline.benchmarks.registry import NAMES
from pipeline.benchmarks.results import RowResult, SuiteResult
from pipeline.commands import benchmark
from pipeline.errors import BackendError, ConfigError

# ---- the command ----


def canned(name, setup, repeats, seconds, tell):
    tell(1, 1, "")
    good = RowResult(
        "fast [way]", "ok", note="into a new array", error=0.0, tolerance=0.0, measure="largest difference",
        first=1.5, seconds=[0.25, 0.5, 0.25], put=[0.1, 0.1, 0.1], get=[0.2, 0.3, 0.2], nbytes=10**9, rate=4e9,
        unit="B", limit="copy", share=0.4, faster=1.0, on_device=True,
    )  # fmt: skip
    by_operations = RowResult(
        "product", "ok", error=0.0, tolerance=0.0, seconds=[0.5], rate=4.5e10, unit="FLOP", limit="float32 product",
        share=0.9, faster=0.5,
    )  # fmt: skip
    by_points = RowResult(
        "points", "ok", error=0.0, tolerance=0.0, seconds=[0.5], rate=3e6, unit="points", faster=0.5
    )
    wrong = RowResult("bad", "wrong", "its result is off by inf", error=float("inf"), tolerance=0.0)
    absent = RowResult("gone", "absent", "gone is not installed", "pip install 'gone[all]'")
    rows = [good, absent, *([wrong] if name == "wls" else []), by_operations, by_points]
    limits = {"GPU copy": 1e10, "host float32 product": 5e10}
    return SuiteResult(name, "some work", ["a note"], 3, rows, limits)


def settings(tmp_path, **given):
    return config.Benchmark(run_dir=str(tmp_path), **given)


def test_the_command_shows_and_writes_what_was_measured(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(measure, "run", canned)
    benchmark.run(settings(tmp_path, suite=["hog"]))
    out = capsys.readouterr().out
    assert "hog: some work, median of 3 rounds" in out
    line = next(line for line in out.splitlines() if line.startswith("fast [way]"))
    for text in (
        "250 ms",
        "250 ms to 500 ms",
        "1.00x",
        "4.00 GB/s",
        "40 % copy",
        "1.50 s",
        "100 ms / 200 ms",
        "into a new array",
    ):
        assert text in line
    assert "gone  absent: gone is not installed: pip install 'gone[all]'" in out
    assert "a note" in out
    assert re.search(r"\nproduct .* 45.0 GFLOP/s +90 % float32 product ", out)
    assert re.search(r"\npoints .* 3.00 M points/s +- ", out)
    assert re.search(r"limit: GPU copy +10.0 GB/s\n", out)
    assert re.search(r"limit: host float32 product +50.0 GFLOP/s\n", out)
    report = json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8"))
    assert report["settings"]["suite"] == ["hog"]
    assert report["suites"][0]["rows"][0]["median"] == 0.25
    assert report["suites"][0]["rows"][1]["install"] == "pip install 'gone[all]'"
    assert (tmp_path / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_each_suite_shows_the_limit_that_its_shares_are_of(monkeypatch, tmp_path, capsys):
    """Limits are measured anew in each: one number for all did not fit the shares in the tables."""

    def measured(name, *given):
        found = canned(name, *given)
        return dataclasses.replace(found, limits={"host copy": {"hog": 4e10, "filter": 3e10}[name]})

    monkeypatch.setattr(measure, "run", measured)
    benchmark.run(settings(tmp_path, suite=["hog", "filter"], plots=False))
    out = capsys.readouterr().out
    tables = re.split(r"\n(?=hog: |filter: |How to read)", out)
    shown = [re.findall(r"  of limit: (.*)", table) for table in tables]
    told = "measured before and after these rounds"
    by_name = {"hog": [f"host copy 40.0 GB/s, {told}"], "filter": [f"host copy 30.0 GB/s, {told}"]}
    for table, lines in zip(tables, shown, strict=True):
        assert lines == by_name.get(table.partition(":")[0], [])
    assert re.search(r"limit: host copy +(40.0 GB/s in hog, 30.0|30.0 GB/s in filter, 40.0) GB/s in ", out)


def test_a_wrong_row_ends_the_command_with_an_error_after_everything_was_written(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(measure, "run", canned)
    with pytest.raises(BackendError, match=r"1 of the rows gave a wrong result or failed.*wls: bad"):
        benchmark.run(settings(tmp_path, suite=["hog", "wls"], plots=False))
    assert "bad   WRONG: its result is off by inf" in capsys.readouterr().out
    report = json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8"))
    assert [suite["name"] for suite in report["suites"]] == ["hog", "wls"]
    assert report["suites"][1]["rows"][2]["error"] == "inf"
    assert not (tmp_path / "benchmark.png").exists()


def test_one_suite_for_real(call, tmp_path):
    status, out, err = call("benchmark", "suite=layout", "size=small", "repeats=1", "hydra.run.dir=run")
    assert status == 0, err
    assert "layout: tasks on a matrix of 1,024 x 1,024 float64 (8 MB), median of 1 round\n" in out
    report = json.loads((tmp_path / "run" / "benchmark.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in report["suites"][0]["rows"]} == {"ok"}
    assert (tmp_path / "run" / "benchmark.png").exists()


def test_suites_may_be_one_name_several_or_all(call, monkeypatch):
    seen = []
    monkeypatch.setattr(benchmark, "run", lambda cfg, stages: seen.append(cfg.suite))
    for given in ([], ["suite=hog"], ["suite=[wls,hog]"]):
        assert call("benchmark", *given)[0] == 0
    assert call("benchmark", "-m", "suite=hog,wls")[0] == 0
    assert seen == [["all"], ["hog"], ["wls", "hog"], ["hog"], ["wls"]]
    assert registry.chosen(["wls", "hog", "wls"]) == ["hog", "wls"]
    assert registry.chosen(["all"]) == list(NAMES)


def test_an_unknown_suite_is_one_line_with_the_nearest_name(told):
    line = told("benchmark", "suite=monte_carlo")
    assert line == (
        "pipeline benchmark: no suite 'monte_carlo'; choose from: add_two, monte_carlo_pi, layout, filter, hog, wls, "
        "or all. Did you mean 'monte_carlo_pi'?"
    )
    with pytest.raises(ConfigError, match="no suite 'x'; choose from"):
        registry.chosen(["hog", "x"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("repeats=0", "repeats must be at least 1, not 0"),
        ("seconds=0", "seconds must be above 0"),
        ("size=huge", "size"),
        ("suite=3", "suite must be a name, or names in brackets: suite=\\[hog,wls\\], not 3"),
        ("suite=[]", "suite must be a name"),
        ("seed=-1", "seed must be from 0"),
    ],
)
def test_settings_out_of_range_are_one_line(told, given, words):
    assert re.search(words, told("benchmark", given))


def test_the_settings_of_the_file_are_those_of_the_schema(call, monkeypatch):
    seen = []
    monkeypatch.setattr(benchmark, "run", lambda cfg, stages: seen.append(cfg))
    call("benchmark")
    assert seen == [config.Benchmark(run_dir=seen[0].run_dir)]
    assert cli.COMMANDS["benchmark"].examples


def test_a_suite_that_takes_long_leaves_fewer_seconds_to_the_others():
    names = list(registry.NAMES)
    shares = [registry.get(name).share for name in names]
    assert benchmark._seconds(100.0, names, 0.0) == pytest.approx(100.0 * shares[0])
    # on time: every suite gets its share of the whole
    assert benchmark._seconds(100.0, names[1:], 100.0 * shares[0]) == pytest.approx(100.0 * shares[1])
    late = benchmark._seconds(100.0, names[1:], 60.0)
    assert late == pytest.approx(40.0 * shares[1] / sum(shares[1:]))
    assert benchmark._seconds(100.0, names[1:], 0.0) == pytest.approx(
        100.0 * shares[1]
    )  # not more for being early
    assert benchmark._seconds(100.0, names[-1:], 130.0) == benchmark.MIN_SECONDS
    assert benchmark._seconds(100.0, ["hog"], 0.0) == pytest.approx(100.0 * registry.get("hog").share)
