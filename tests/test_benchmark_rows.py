"""Rows of benchmark that are wrong or fail."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from pipeline.benchmarks import measure, registry
from pipeline.benchmarks.registry import Row, Work
from tests.benchmarking import RIGHT, TINY, _ask_anew, toy_suite  # noqa: F401  fixtures
from tests.conftest import ROOT


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
