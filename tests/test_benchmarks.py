"""benchmark: every suite at a tiny size, what is wrong, absent or failing, how time is taken, what is written."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import types

import numpy as np
import pytest

from pipeline import cli, config
from pipeline.benchmarks import bandwidth, measure, needs, registry
from pipeline.benchmarks.registry import NAMES, Case, Row, Setup, Suite, Work, largest_difference
from pipeline.commands import benchmark
from pipeline.errors import BackendError, ConfigError
from tests.conftest import ROOT
from tests.test_cli import call, told  # noqa: F401  fixtures

OWN = {
    "add_two": 9,
    "monte_carlo_pi": 5,
    "layout": 14,
    "filter": 5,
    "hog": 2,
    "wls": 4,
}  # rows that need nothing
TINY = Setup(size="tiny", threads=2)


@pytest.fixture(autouse=True)
def _ask_anew():
    needs.missing.cache_clear()
    yield
    needs.missing.cache_clear()


def tiny(name, setup=TINY, repeats=1, seconds=0.0):
    return measure.run(name, setup, repeats, seconds, copy=lambda on_device, threads: 1e10)


def first(name, row_name, setup=TINY):
    """Run one row once and judge it."""
    suite = registry.get(name)
    row = next(row for row in suite.rows if row.name == row_name)
    return measure._first(row, suite.make(setup))[0]


@pytest.fixture
def toy(monkeypatch):
    """Register a suite of the given rows for this test; its work is to make [0, 1, 2]."""

    def install(*rows, wanted=(0.0, 1.0, 2.0), nbytes=24):
        def make(setup):
            case_error = largest_difference(np.array(wanted))
            return Case(
                types.SimpleNamespace(), case_error, 1e-9, nbytes, "largest difference", "count", setup
            )

        suite = Suite(
            "toy", make, 1.0, [Row(name, (lambda case, w=work: w), need) for name, work, need in rows]
        )
        monkeypatch.setattr(registry, "get", lambda name: suite)
        return lambda **options: tiny("toy", **options)

    return install


RIGHT = Work(lambda: np.arange(3.0))


# ---- the suites ----


@pytest.mark.parametrize("name", NAMES)
def test_every_row_that_can_run_here_is_right(name):
    result = tiny(name)
    states = {row.name: (row.status, row.reason) for row in result.rows}
    assert {state for state, _ in states.values()} <= {"ok", "absent"}, states
    own = [row for row in registry.get(name).rows if not row.needs]
    assert len(own) == OWN[name]
    assert all(states[row.name] == ("ok", "") for row in own)
    for row in result.rows:
        if row.status == "ok":
            assert row.error <= row.tolerance
            assert len(row.seconds) == result.rounds == 1
            assert row.median > 0
            assert row.faster is not None
            assert row.measure
            assert (row.rate is None) == (row.nbytes == 0)
        else:
            assert row.reason
            assert row.seconds == []


def test_suites_have_different_names_for_their_rows():
    for name in NAMES:
        names = [row.name for row in registry.get(name).rows]
        assert len(names) == len(set(names))


def test_the_shares_of_the_suites_are_the_whole():
    assert sum(registry.get(name).share for name in NAMES) == pytest.approx(1.0)


def test_add_two_follows_the_closed_form_to_the_last_number():
    case = registry.get("add_two").make(TINY)
    size = case.data.source.size
    right = ((np.arange(size) % 1024) + 2.0).astype(np.float32).reshape(case.data.source.shape)
    assert case.error(right) == 0.0
    for change in (1.0, np.nan):
        wrong = right.copy()
        wrong.flat[-1] += change
        assert not case.error(wrong) <= case.tolerance
    assert case.error(right.astype(np.float64)) == np.inf  # twice the bytes is not the same work
    assert case.error(right.ravel()) == np.inf
    assert not case.error(case.data.source) <= case.tolerance


def test_an_array_that_does_not_fit_is_made_smaller_with_a_line():
    full = Setup(size="tiny", memory=1 << 40)
    assert registry.get("add_two").make(full).notes == []
    nbytes = registry.get("add_two").make(full).data.source.nbytes
    case = registry.get("add_two").make(dataclasses.replace(full, memory=2 * nbytes))
    assert case.data.source.shape == (2, 32, 32)
    assert case.notes == [
        "the array is 2 x 32 x 32 instead of 8 x 32 x 32: 4 of the larger ones do not fit into 0.0 GB of free memory"
    ]
    assert {row.status for row in tiny("add_two", case.setup).rows} <= {"ok", "absent"}


def test_rows_of_monte_carlo_pi_with_one_generator_count_the_same_points():
    jit, prange = (first("monte_carlo_pi", name) for name in ("Numba jit", "Numba prange"))
    assert jit.error == prange.error
    other = first("monte_carlo_pi", "Numba jit", dataclasses.replace(TINY, seed=1))
    assert other.error != jit.error
    assert other.status == "ok"


def test_an_estimate_of_pi_is_judged_by_its_standard_error():
    error = registry.get("monte_carlo_pi").make(TINY).error
    one = np.sqrt(np.pi * (4 - np.pi) / 20_000)
    assert error(np.pi + 3 * one) == pytest.approx(3.0)
    assert error(np.pi - 6 * one) > registry.get("monte_carlo_pi").make(TINY).tolerance


def test_the_matrix_of_layout_has_the_closed_forms_that_rows_are_judged_by():
    A = registry.get("layout").make(TINY).data.matrix
    assert all(A[i, j] == (7 * i + 3 * j) % 16 for i in range(32) for j in range(32))
    assert (A.sum(axis=0) == 7.5 * 32).all()
    assert (A.sum(axis=1) == 7.5 * 32).all()


def test_the_reference_of_filter_multiplies_waves_by_the_kernels_transform():
    from pipeline.benchmarks.filter import box_widths, circulant, gaussian

    taps, n = gaussian(2.0), 48
    place = np.arange(n)
    k = np.arange(taps.size) - taps.size // 2
    for cycles in (0, 1, 5, 24):
        wave = np.cos(2 * np.pi * cycles * place / n + 0.3)
        gain = (taps * np.cos(2 * np.pi * cycles * k / n)).sum()
        np.testing.assert_allclose(circulant(taps, n) @ wave, gain * wave, atol=1e-14)
    for sigma in (2.0, 8.0, 12.0):  # odd widths, of which no other choice comes nearer
        widths = box_widths(sigma)
        assert all(width % 2 for width in widths)
        choices = [[w] * k + [w + 2] * (3 - k) for w in range(1, 31, 2) for k in range(3)]
        nearest = min(abs(sum((w**2 - 1) / 12 for w in choice) - sigma**2) for choice in choices)
        assert abs(sum((w**2 - 1) / 12 for w in widths) - sigma**2) == pytest.approx(nearest)


def test_three_boxes_are_near_and_no_more():
    exact, boxes = (first("filter", name) for name in ("separable", "three boxes"))
    assert exact.error < 1e-6 < boxes.error < 0.05


def test_descriptors_of_another_order_are_alike_and_others_are_not():
    from pipeline.benchmarks.hog import ALIKE, unlike

    rng = np.random.default_rng(0)
    X = rng.random((8, 30))
    assert unlike(X, 3 * X[:, rng.permutation(30)]) == pytest.approx(0.0, abs=1e-12)
    assert unlike(X, rng.random((8, 30))) > ALIKE
    assert unlike(X, X[:5]) == np.inf
    assert np.isnan(unlike(X, np.ones((8, 30))))


def test_the_last_image_is_among_those_that_hog_is_judged_by():
    case = registry.get("hog").make(TINY)
    from pipeline import backends

    right = backends.get("cpu").hog.hog(case.data.pixels, case.data.layout, "L2-Hys", False, "float32")
    assert case.error(right) <= case.tolerance
    right[-1] += 1e-4
    assert case.error(right) > case.tolerance
    assert case.error(right[:4]) == np.inf


# ---- rows that are wrong, fail or are absent ----


def test_a_wrong_row_is_caught_and_not_timed(toy):
    runs = []

    def off():
        runs.append(1)
        return np.array([0.0, 1.0, 2.001])

    nan = np.array([0.0, np.nan, 2.0])
    rows = [("right", RIGHT, ()), ("off", Work(off), ()), ("nan", Work(lambda: nan), ())]
    result = toy(*rows, ("shape", Work(lambda: np.arange(4.0)), ()))(repeats=3, seconds=100)
    assert [row.status for row in result.rows] == ["ok", "wrong", "wrong", "wrong"]
    assert len(runs) == 1
    assert len(result.rows[0].seconds) == 3
    assert result.rows[1].reason == "its result is off by 0.001, and at most 1e-09 is right"
    assert all(row.seconds == [] and row.faster is None for row in result.rows[1:])


def test_a_wrong_first_row_leaves_the_others_without_a_comparison(toy):
    result = toy(("off", Work(lambda: np.zeros(3)), ()), ("right", RIGHT, ()))()
    assert [(row.status, row.faster) for row in result.rows] == [("wrong", None), ("ok", None)]


def test_a_row_that_raises_stands_in_the_table_and_the_log(toy, caplog):
    def fail():
        raise RuntimeError("no\nkernel")

    def full():
        raise MemoryError("2 GiB")

    result = toy(("fails", Work(fail), ()), ("full", Work(full), ()), ("right", RIGHT, ()))()
    assert [row.status for row in result.rows] == ["failed", "failed", "ok"]
    assert [row.reason for row in result.rows[:2]] == ["RuntimeError: no kernel", "MemoryError: 2 GiB"]
    assert "fails failed" in caplog.text


def test_a_stale_result_in_a_shared_array_does_not_pass():
    for suite_row in registry.get("add_two").rows:
        if suite_row.needs:
            continue
        case = registry.get("add_two").make(TINY)
        case.data.target[...] = case.data.source + np.float32(2)  # as the row before leaves it
        work = suite_row.make(case)
        idle = work._replace(run=lambda case=case: case.data.target, error=None)
        if work.restore is not None:
            result, _ = measure._checked(Row("idle", lambda case, idle=idle: idle, ()), case)
            assert result.status == "wrong", suite_row.name


@pytest.mark.parametrize("need", needs.NEEDS)
def test_an_absent_package_leaves_its_row_with_the_command_that_installs_it(toy, monkeypatch, need):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    result = toy(("right", RIGHT, ()), ("row", RIGHT, (need,)))()
    row = result.rows[1]
    assert (row.status, row.seconds) == ("absent", [])
    assert row.reason == f"{needs.NEEDS[need].module.partition('.')[0]} is not installed"
    assert row.install.startswith("pip install ")
    assert result.rows[0].status == "ok"


def test_every_need_of_a_row_is_known():
    asked = {need for name in NAMES for row in registry.get(name).rows for need in row.needs}
    assert asked <= set(needs.NEEDS)


def test_a_broken_package_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())

    def broken(name):
        raise OSError("libcudart.so.12:\ncannot open")

    monkeypatch.setattr(needs.importlib, "import_module", broken)
    found = needs.missing("torch", 0)
    assert found == (
        "torch is installed but cannot be used (libcudart.so.12: cannot open)",
        "pip install torch",
    )


def test_a_gpu_that_is_not_there_is_not_installed_by_pip(monkeypatch):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())
    cuda = types.SimpleNamespace(is_available=lambda: False)
    fake = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(cuda="12.8"), HOGDescriptor=0)
    monkeypatch.setattr(needs.importlib, "import_module", lambda name: fake)
    assert needs.missing("torch-gpu", 0) == ("PyTorch finds no GPU", "")
    assert needs.missing("torch", 0) is None
    fake.version.cuda = None
    needs.missing.cache_clear()
    assert needs.missing("torch-gpu", 0) == ("this PyTorch is built without CUDA", "pip install torch")
    assert needs.missing("opencv-hog", 0) is None
    del fake.HOGDescriptor
    needs.missing.cache_clear()
    assert needs.missing("opencv-hog", 0).install == "pip install 'opencv-python-headless<5'"


def test_importing_the_suites_imports_no_package_that_only_rows_need():
    code = (
        "import sys, importlib\n"
        "from pipeline.benchmarks import NAMES\n"
        "[importlib.import_module(f'pipeline.benchmarks.{name}') for name in NAMES]\n"
        "heavy = 'numba dask torch jax cupy pycuda cv2 hogpp xgboost statsmodels skimage matplotlib'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- how time is taken ----


class Clock:
    """A clock that moves only when work says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)

    def work(self, seconds, log=None, name=""):
        def run(*arguments):
            self.now += seconds
            if log is not None:
                log.append(name)
            return np.arange(3.0)

        return run


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_rows_take_turns_and_who_begins_changes(toy, clock):
    log = []
    rows = [(name, Work(clock.work(1.0, log, name)), ()) for name in "abc"]
    result = toy(*rows)(repeats=3, seconds=1e6)
    assert "".join(log) == "abc" + "abc" + "bca" + "cab"
    assert result.rounds == 3


def test_no_round_begins_that_would_end_too_late_and_there_is_one_at_least(toy, clock):
    run = toy(("a", Work(clock.work(1.0)), ()), ("b", Work(clock.work(3.0)), ()))
    assert run(repeats=9, seconds=13.0).rounds == 2  # 4 s of first calls, 4 s a round
    assert run(repeats=9, seconds=0.0).rounds == 1
    assert run(repeats=2, seconds=1e6).rounds == 2


def test_rate_share_and_speed_are_those_of_the_median(toy, clock):
    slow, fast = Work(clock.work(4.0)), Work(clock.work(0.5))
    result = toy(
        ("slow", slow, ()), ("fast", fast, ()), ("part", slow._replace(scale=10.0), ()), nbytes=10**10
    )(repeats=3, seconds=1e6)
    found = [(row.median, row.rate, row.share, row.faster, row.first) for row in result.rows]
    assert found == [
        (4.0, 2.5e9, 0.25, 1.0, 4.0),
        (0.5, 2e10, 2.0, 8.0, 0.5),
        (40.0, 2.5e8, 0.025, 0.1, None),
    ]


def test_rows_of_a_group_are_compared_with_its_first(toy, clock):
    times = {"x: a": 6.0, "x: b": 3.0, "y: a": 8.0, "y: b": 2.0}
    result = toy(*[(name, Work(clock.work(t)), ()) for name, t in times.items()])(repeats=2, seconds=1e6)
    assert [row.faster for row in result.rows] == [1.0, 2.0, 1.0, 4.0]


def test_copies_are_apart_and_the_device_is_idle_when_the_clock_is_read(toy, clock):
    log = []

    def step(name, seconds):
        return clock.work(seconds, log, name)

    def wait(_):
        clock.now += 0.25
        log.append("wait")

    work = Work(step("run", 1.0), put=step("put", 7.0), get=step("get", 5.0), wait=wait, on_device=True)
    result = toy(("gpu", work, ()))(repeats=2, seconds=1e6)
    row = result.rows[0]
    assert log == ["put", "wait", "run", "wait", "get"] + 2 * ["put", "wait", "run", "wait"]
    assert (row.first, row.seconds, row.put, row.get) == (1.25, [1.25, 1.25], [7.25, 7.25], 5.0)
    assert result.limits == {"device": 1e10}


def test_compilation_stays_in_the_first_call(toy, clock):
    later = []

    def run():
        clock.now += 1.0 if later else 30.0
        later.append(1)
        return np.arange(3.0)

    row = toy(("jit", Work(run), ()))(repeats=2, seconds=1e6).rows[0]
    assert (row.first, row.seconds) == (30.0, [1.0, 1.0])


def test_short_work_is_repeated_within_a_timing(toy, clock):
    log = []
    row = toy(("short", Work(clock.work(1e-4, log)), ()))(repeats=3, seconds=1e6).rows[0]
    assert row.seconds == pytest.approx([1e-4] * 3)
    assert len(log) == 1 + 1 + 3 * 20  # the check, the look at the length, 2 ms in each round


def test_a_copy_in_host_memory_has_a_rate():
    assert 1e6 < bandwidth.copy_rate(False, 2, 1 << 20) < 1e13


# ---- GPU rows; those of CuPy are in test_gpu_benchmarks.py ----


@pytest.mark.parametrize("name", ["add_two", pytest.param("monte_carlo_pi", marks=pytest.mark.slow)])
def test_rows_of_numba_cuda_are_right_under_numbas_simulator(name):
    code = (
        "import sys\n"
        "from pipeline.benchmarks import measure, registry\n"
        "suite = registry.get(sys.argv[1])\n"
        "row = next(row for row in suite.rows if row.name == 'Numba CUDA')\n"
        "result = measure._first(row, suite.make(registry.Setup('tiny')))[0]\n"
        "print(result.status, result.reason)"
    )
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-W", "ignore", "-c", code, name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ok"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["add_two", "monte_carlo_pi", "filter", "hog", "wls"])
def test_rows_are_right_on_a_gpu(name):
    assert {row.status for row in tiny(name).rows} <= {"ok", "absent"}


# ---- the command ----


def canned(name, setup, repeats, seconds, tell):
    tell(1, 1, "")
    good = measure.RowResult(
        "fast [way]", "ok", note="into a new array", error=0.0, tolerance=0.0, measure="largest difference",
        first=1.5, seconds=[0.25, 0.5, 0.25], put=[0.1, 0.1, 0.1], get=0.2, nbytes=10**9, rate=4e9, share=0.4,
        faster=1.0, on_device=True,
    )  # fmt: skip
    wrong = measure.RowResult("bad", "wrong", "its result is off by inf", error=float("inf"), tolerance=0.0)
    absent = measure.RowResult("gone", "absent", "gone is not installed", "pip install 'gone[all]'")
    rows = [good, absent, *([wrong] if name == "wls" else [])]
    return measure.SuiteResult(name, "some work", ["a note"], 3, rows, {"device": 1e10})


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
        "40 %",
        "1.50 s",
        "100 ms / 200 ms",
        "into a new array",
    ):
        assert text in line
    assert "gone  absent: gone is not installed: pip install 'gone[all]'" in out
    assert "a note" in out
    assert "copy, GPU memory  10.0 GB/s" in out
    report = json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8"))
    assert report["settings"]["suite"] == ["hog"]
    assert report["suites"][0]["rows"][0]["median"] == 0.25
    assert report["suites"][0]["rows"][1]["install"] == "pip install 'gone[all]'"
    assert (tmp_path / "benchmark.png").read_bytes().startswith(b"\x89PNG")


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


def test_one_suite_for_real(call, tmp_path):  # noqa: F811
    status, out, err = call("benchmark", "suite=layout", "size=small", "repeats=1", "hydra.run.dir=run")
    assert status == 0, err
    assert "layout: tasks on a matrix of 1,024 x 1,024 float64 (8 MB), median of 1 round\n" in out
    report = json.loads((tmp_path / "run" / "benchmark.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in report["suites"][0]["rows"]} == {"ok"}
    assert (tmp_path / "run" / "benchmark.png").exists()


def test_suites_may_be_one_name_several_or_all(call, monkeypatch):  # noqa: F811
    seen = []
    monkeypatch.setattr(benchmark, "run", lambda cfg, stages: seen.append(cfg.suite))
    for given in ([], ["suite=hog"], ["suite=[wls,hog]"]):
        assert call("benchmark", *given)[0] == 0
    assert call("benchmark", "-m", "suite=hog,wls")[0] == 0
    assert seen == [["all"], ["hog"], ["wls", "hog"], ["hog"], ["wls"]]
    assert registry.chosen(["wls", "hog", "wls"]) == ["hog", "wls"]
    assert registry.chosen(["all"]) == list(NAMES)


def test_an_unknown_suite_is_one_line_with_the_nearest_name(told):  # noqa: F811
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
def test_settings_out_of_range_are_one_line(told, given, words):  # noqa: F811
    assert re.search(words, told("benchmark", given))


def test_the_settings_of_the_file_are_those_of_the_schema(call, monkeypatch):  # noqa: F811
    seen = []
    monkeypatch.setattr(benchmark, "run", lambda cfg, stages: seen.append(cfg))
    call("benchmark")
    assert seen == [config.Benchmark(run_dir=seen[0].run_dir)]
    assert cli.COMMANDS["benchmark"].examples
