"""Rows of benchmark that are wrong, fail or are absent, and how time is taken."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

from pipeline import installing
from pipeline.benchmarks import bandwidth, measure, needs, registry
from pipeline.benchmarks.registry import NAMES, Row, Work
from tests.benchmarking import RIGHT, TINY, _ask_anew, toy_suite  # noqa: F401  fixtures
from tests.conftest import ROOT

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
    assert row.install.startswith(installing.command("x").removesuffix("x"))
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
        installing.command("torch"),
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
    assert needs.missing("torch-gpu", 0) == (
        "this PyTorch is built without CUDA",
        installing.command("torch"),
    )
    assert needs.missing("opencv-hog", 0) is None
    del fake.HOGDescriptor
    needs.missing.cache_clear()
    assert needs.missing("opencv-hog", 0).install == installing.command("opencv-python-headless<5")


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


def test_the_limit_is_the_better_of_two_looks_before_and_after(toy, clock):
    rates = iter([3e9, 5e9])
    suite = toy(("a", Work(clock.work(1.0)), ()), nbytes=10**9)
    assert suite  # the register is in place
    result = measure.run("toy", TINY, 2, 1e6, copy=lambda on_device, threads: next(rates))
    assert result.limits == {"host": 5e9}
    assert result.rows[0].share == pytest.approx(0.2)


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
