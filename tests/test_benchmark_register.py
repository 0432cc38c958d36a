"""Rows and suites of one's own: the decorators, and the example of the documentation as it stands there."""

from __future__ import annotations

import re
import sys
import types

import numpy as np
import pytest

from pipeline.benchmarks import add_two, measure, needs, registry
from pipeline.benchmarks.registry import Case, Work, row, suite
from pipeline.groups import unused
from tests.benchmarking import TINY, _ask_anew, tiny  # noqa: F401  a fixture
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """Nothing that a test registers stays."""
    kept = {name: list(registry.get(name).rows) for name in registry.NAMES}
    monkeypatch.setattr(registry, "_SUITES", dict(registry._SUITES))
    yield
    for name, rows in kept.items():
        registry._SUITES[name].rows[:] = rows


def test_the_suites_without_rows_of_a_gpu():
    """In which device= has no effect, and is refused."""
    gpu = {"cupy", "numba-cuda", "pycuda", "torch-gpu", "jax-gpu"}
    without = {
        name for name in registry.NAMES if not any(gpu & set(row.needs) for row in registry.get(name).rows)
    }
    assert without == unused.WITHOUT_DEVICE


def test_a_suite_and_its_rows_are_functions_with_a_decorator(monkeypatch):
    @suite("count", share=0.25)
    def case(setup):
        def error(found):
            return abs(found - 10.0)

        return Case(types.SimpleNamespace(n=5), error, 0.0, 0, "difference", "0 + 1 + ... + 4", setup)

    @row("count", "sum")
    def by_sum(case):
        return Work(lambda: sum(range(case.data.n)), note="built in")

    @row("count", "off", needs=("numpy",))
    def off(case):
        return Work(lambda: int(np.arange(case.data.n + 1).sum()))

    @row("count", "gone", needs=["no_such_package"])
    def gone(case):
        raise AssertionError("a row that lacks a package must not be made")

    assert (case(TINY).work, by_sum.__name__) == (
        "0 + 1 + ... + 4",
        "by_sum",
    )  # the functions stay what they are
    monkeypatch.setitem(sys.modules, "pipeline.benchmarks.count", types.ModuleType("count"))
    found = registry.get("count")
    assert (found.name, found.share, [one.name for one in found.rows]) == (
        "count",
        0.25,
        ["sum", "off", "gone"],
    )
    assert [one.needs for one in found.rows] == [(), ("numpy",), ("no_such_package",)]
    rows = measure.run("count", TINY, 2, 1e6).rows
    assert [one.status for one in rows] == ["ok", "wrong", "absent"]
    assert (rows[0].note, len(rows[0].seconds)) == ("built in", 2)
    assert rows[1].reason == "its result is off by 5, and at most 0 is right"


def example():
    """Return the code of the documentation."""
    text = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text.partition("## A row of your own")[2], re.S)
    return code


def test_the_row_of_the_documentation_works_as_it_stands_there(monkeypatch):
    """It is all that a row needs: no entry elsewhere names it or its package."""
    exec(compile(example(), "docs/benchmark.md", "exec"), vars(add_two).copy())
    rows = registry.get("add_two").rows
    name = rows[-1].name
    rows[:] = [rows[0], rows[-1]]  # those between are another test's
    found = tiny("add_two").rows[-1]
    assert (found.name, found.status, found.reason) == (name, "ok", "")
    assert found.share is not None
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda module: None)
    needs.missing.cache_clear()
    absent = tiny("add_two").rows[-1]
    assert absent.status == "absent"
    assert absent.install.endswith(f"pip install {registry.get('add_two').rows[-1].needs[0]}")
