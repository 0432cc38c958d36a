"""The scripts that measure speed: how ratios, ranges and exponents are taken. Nothing is timed here."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import re
import sys

import numpy as np
import pytest

from tests.conftest import ROOT


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # which its dataclasses look up
    spec.loader.exec_module(module)
    return module


# ---- bench_boost ----


def test_ratios_to_statsmodels_and_to_the_floor_are_taken_within_a_pass(capsys):
    """In the passes 300, 100 and 100: the ratio of the medians is 150."""
    boost = script("bench_boost")
    options = argparse.Namespace(n=10, p=5, classes=3)
    times = {"a": [0.1, 0.2, 0.9], "timed once": [2.0, 4.0, 9.0], "left out": [1.0, 1.0, 1.0]}
    floors = {"a": [0.05, 0.1, 0.3], "timed once": [1.0, 1.0, 1.0], "left out": [0.5, 0.5, 0.5]}
    original = {"a": [30.0, 20.0, 90.0], "timed once": [100.0], "left out": []}
    boost.report(options, 2, times, floors, original)
    lines = {line[:28].strip(): line[28:] for line in capsys.readouterr().out.splitlines()}
    assert re.split(r"\s{2,}", lines["a"].strip()) == [
        "200.0 (100.0-900.0)", "100.0 (50.0-300.0)", "2.00 (2.00-3.00)", "30.00", "100 (100-300)",
    ]  # fmt: skip
    assert re.split(r"\s{2,}", lines["timed once"].strip())[-2:] == ["100.00", "50"]
    assert lines["left out"].split()[-1] == "-"


def test_blas_threads_are_at_rest_before_anything_is_timed(monkeypatch):
    boost, log = script("bench_boost"), []
    monkeypatch.setattr(boost.time, "sleep", log.append)
    assert boost.product_rate(16) > 0
    assert log == [boost.REST]  # after the product, for whoever comes next
    boost.rested(lambda: log.append("work"))
    assert log[1:] == [boost.REST, "work"]
    assert boost.REST >= 0.15  # the second thread looks for work for some 100 ms


def test_every_round_and_fit_begins_rested(monkeypatch, capsys):
    """In main, too: of a few rows, and work that is only noted down."""
    boost, log = script("bench_boost"), []
    monkeypatch.setattr(boost.time, "sleep", lambda seconds: log.append("rest"))
    monkeypatch.setattr(boost, "product_rate", lambda: log.append("rest") or 1e9)
    monkeypatch.setattr(boost, "read_rate", lambda X, threads: log.append("read") or 1e9)
    monkeypatch.setattr(boost, "run_rounds", lambda *given: log.append("fit"))
    monkeypatch.setattr(boost, "statsmodels_seconds", lambda *given: log.append("statsmodels") or 1.0)
    monkeypatch.setattr(
        sys, "argv", ["bench_boost", "--n", "40", "--p", "140", "--classes", "2", "--rounds", "2"]
    )
    boost.main()
    measured = log[3:]  # three calls compile
    assert measured.count("fit") == 8
    assert measured.count("statsmodels") == 7  # that of ridge once
    assert all(before == "rest" for before, what in itertools.pairwise(measured) if what != "rest")
    assert "componentwise, second floor" in capsys.readouterr().out


# ---- bench_hog ----


def test_the_gain_of_two_threads_has_a_range_and_stands_beside_the_control():
    hog = script("bench_hog")
    times = {
        ("hog", 1): [0.4e-6, 0.4e-6, 0.6e-6],
        ("control", 1): [0.4e-6, 0.4e-6, 0.5e-6],
        ("floor", 1): [0.1e-6, 0.3e-6, 0.1e-6],
        ("hog", 2): [0.2e-6, 0.4e-6, 0.2e-6],
        ("control", 2): [0.2e-6, 0.25e-6, 0.25e-6],
        ("floor", 2): [0.2e-6, 0.2e-6, 0.1e-6],
    }
    line = hog.told("a row", [1e-6, 2e-6, 1e-6], times, 3e-8)
    cells = [
        "a row",
        "1",
        "0.40",
        "2 (2-5)x",
        "0.20",
        "5 (5-5)x",
        "2.00 (1.00-3.00)",
        "2.00",
        "2.00 (1.60-2.00)",
    ]
    assert re.split(" {2,}", line) == [*cells, "0.10", "0.20", "3.0e-08"]


def test_hog_and_control_and_floor_are_timed_in_turns(monkeypatch):
    hog = script("bench_hog")
    threads, log = [0], []
    monkeypatch.setattr(hog, "seconds", lambda work: (work(), 1e-3)[1])
    monkeypatch.setattr(hog.numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.setattr(hog.numba, "set_num_threads", lambda count: threads.__setitem__(0, count))
    monkeypatch.setattr(
        hog, "works", lambda *given: {k: lambda k=k: log.append((k, threads[0])) for k in "hcf"}
    )
    monkeypatch.setattr(hog, "told", lambda name, loop, times, error: (name, len(loop), times, error))
    name, rounds, times, error = hog.measure(hog.ROWS[0], 4, 2, 3)
    assert (name, rounds) == (hog.ROWS[0][0], 3)
    assert error < 1e-6
    assert log == [(k, count) for _ in range(3) for count in (1, 2) for k in "hcf"]
    assert list(times) == log[:6]
    assert all(values == [1e-3 / 4] * 3 for values in times.values())


def test_the_control_lasts_as_long_as_hog_on_one_thread(monkeypatch):
    hog = script("bench_hog")
    sweeps, written = [], []
    seconds = iter([5e-3, 4e-3, 4e-3, 30e-3, 20e-3, 25e-3])  # the control with ten sweeps, HoG
    monkeypatch.setattr(hog, "seconds", lambda work: next(seconds))
    monkeypatch.setattr(hog.numba, "set_num_threads", lambda count: None)
    monkeypatch.setattr(hog, "arithmetic", lambda numbers, times: sweeps.append((numbers.nbytes, times)))
    images = hog.pictures(150, hog.DEFAULT, "uint8")
    timed = hog.works(hog.ROWS[0], images)
    timed["control"]()
    assert all(size == 16384 for size, _ in sweeps)
    assert sum(times for _, times in sweeps) == 150 * (
        1 + 50
    )  # one sweep an image to compile, then 10 * 20 / 4
    fill = hog.Writer.__call__
    monkeypatch.setattr(
        hog.Writer,
        "__call__",
        lambda self, source, out, parts: written.append(fill(self, source, out, parts) or out),
    )
    timed["floor"]()
    assert written[0].shape == (150, 3240)
    assert (written[0] == 1.0).all()


# ---- bench_growth ----


def test_exponents_are_those_of_the_larger_sizes_with_their_range():
    growth = script("bench_growth")
    sizes = np.array([1.0, 10.0, 100.0, 1000.0, 10_000.0])
    exact = np.array([50.0, 60.0, *(sizes[2:] ** 1.5)])  # small ones are ruled by something else
    steeper = np.array([50.0, 60.0, *(sizes[2:] ** 1.75)])
    text = growth.told("subspace", "n", sizes, np.array([exact, steeper, exact]))
    assert text.startswith("subspace, n: exponent from 100 on 1.5 (1.5-1.75), worst step ")
    assert "\n          1  5e+04 (5e+04-5e+04)" in text


def test_many_classes_are_compared_within_a_repeat():
    growth = script("bench_growth")
    sizes = np.array(growth.CLASSES, dtype=float)
    rows = np.array([factor * sizes for factor in (1.0, 3.0, 2.0)])  # the machine's speed changes
    rows[1, list(sizes).index(43.0)] *= 0.5
    lines = growth.told("ridge", "J", sizes, rows).splitlines()
    assert lines[-2:] == [
        "  43 classes against 43 / 10 times ten: 1 (0.5-1)",
        "  136 classes against 136 / 10 times ten: 1 (1-1)",
    ]


def test_growth_covers_every_learner_over_all_three_figures(monkeypatch, capsys):
    growth = script("bench_growth")
    seen = []

    def canned(learner, X, y):
        seen.append((learner, *X.shape, y.max() + 1))
        return 1e-3 * X.size * (y.max() + 1)

    monkeypatch.setattr(growth, "round_seconds", canned)
    monkeypatch.setattr(growth, "IMAGES", (20, 40, 80))
    monkeypatch.setattr(growth, "FEATURES", (3, 5, 8))
    monkeypatch.setattr(growth, "BASE", {"n": 200, "p": 4, "J": 10})
    monkeypatch.setattr(sys, "argv", ["bench_growth"])
    growth.main()
    out = capsys.readouterr().out
    for learner in ("subspace", "componentwise", "random_features"):
        for varied in "npJ":
            assert re.search(
                rf"^{learner}, {varied}: exponent from \d+ on 1 \(1-1\), worst step 1.00$", out, re.M
            )
        assert seen.count((learner, 200, 4, 136)) == 7  # repeats, if not told otherwise
    assert out.count("136 classes against 136 / 10 times ten: 1 (1-1)") == 3


def test_a_round_is_timed_without_the_first(monkeypatch):
    growth = script("bench_growth")
    clock = iter([100.0, 101.0, 104.0, 106.0, 107.0])
    monkeypatch.setattr(growth.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(growth.time, "sleep", lambda seconds: None)

    class Model:
        def __init__(self, learner, n_rounds, random_state):
            self.rounds = n_rounds

        def fit(self, X, y, on_round):
            for index in range(self.rounds):
                on_round(index + 1, self.rounds, 0.5, None)

    monkeypatch.setattr(growth, "LogitBoostClassifier", Model)
    assert growth.round_seconds("componentwise", None, None) == pytest.approx(7.0 / 4)


# ---- bench_decode ----


@pytest.mark.parametrize(("given", "large"), [([], 60), (["--large", "20"], 20)])
def test_there_are_as_many_large_files_as_small_ones_if_not_told_otherwise(monkeypatch, capsys, given, large):
    decode = script("bench_decode")
    counts = {}

    def canned(root, kind, threads, rounds):
        counts[kind] = sum(1 for path in root.rglob("*") if path.is_file())
        return {"one thread": np.ones((2, 1))}

    monkeypatch.setattr(decode, "measured", canned)
    monkeypatch.setattr(decode, "SIZES", ((50, 100), (60, 80)))
    monkeypatch.setattr(sys, "argv", ["bench_decode", "--n", "60", "--rounds", "1", *given])
    decode.main()
    assert counts == {"png 50x100": 60, "jpeg 50x100": 60, "png 60x80": large, "jpeg 60x80": large}
    assert "png 60x80 (" + str(large) in capsys.readouterr().out


# ---- check_plan ----


@pytest.mark.parametrize(
    ("only", "seconds", "memory", "status"),
    [
        ((), 1.1, 1.2, 0),
        ((), 1.3, 1.2, 1),
        ((), 1.1, 1.3, 1),
        ((), 1.1, 0.99, 1),  # a train that takes more than was forecast may be ended by the system
        (("--only", "memory"), 2.0, 1.2, 0),
        (("--only", "seconds"), 1.1, 0.9, 0),
    ],
)
def test_a_plan_is_held_against_the_seconds_and_the_memory_of_a_train(
    monkeypatch, capsys, only, seconds, memory, status
):
    check = script("check_plan")
    monkeypatch.setattr(check, "predicted", lambda *_: (3.0 * seconds, 4e8 * memory))
    monkeypatch.setattr(check, "trained", lambda *_: (3.0, 4e8))
    monkeypatch.setattr(sys, "argv", ["check_plan", "--images", "100", *only])
    assert check.main() == status
    out = capsys.readouterr().out
    assert f"{4e8 * memory / 1e6:,.0f} MB     400 MB   {memory:.2f}" in out
    assert ("more than was forecast" in out) == (memory < 1.0)


# ---- bench_train ----


def test_the_reference_is_extrapolated_from_the_difference_of_its_rounds(monkeypatch, capsys):
    """20 s of all but boosting, whose set-up takes 1 s and a round 2: 221 s for 100 rounds, of which ours takes 5."""
    train, log = script("bench_train"), []

    def once(words, threads):
        rounds = int(
            next(word.partition("=")[2] for word in words if word.startswith("classifier.n_rounds="))
        )
        log.append(rounds)
        process = 5.0 if "backend=cpu" in words else 21.0 + 2.0 * rounds
        return {"process": process, "hog": 8.0, "boost": 1.0 + 2.0 * rounds}

    monkeypatch.setattr(train, "once", once)
    monkeypatch.setattr(sys, "argv", ["bench_train.py", "--repeats", "2", "--threads", "2"])
    train.main()
    out = capsys.readouterr().out
    assert log == [100, 100, 1, 3, 100, 1, 3]  # the first compiles
    assert "reference: 221 (221-221) s" in out
    assert "its round: 2.00 (2.00-2.00) s" in out
    assert out.endswith("against ours: 44 (44-44)x\n")


@pytest.mark.slow
def test_a_train_is_timed_by_process_and_stages():
    train = script("bench_train")
    words = ["data=synthetic", "data.n=60", "data.classes=2", "classifier.n_rounds=2", "plots=false"]
    found = train.once(words, 1)
    assert 0 < found["start"] < found["process"]
    assert sum(found[name] for name in ("read", "hog", "boost", "save")) <= found["process"] - found["start"]
