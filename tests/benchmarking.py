"""What the tests of benchmark share: tiny runs, and a suite of made-up rows."""

from __future__ import annotations

import types

import numpy as np
import pytest

from pipeline.benchmarks import measure, needs, registry
from pipeline.benchmarks.registry import Case, Row, Setup, Suite, Work, largest_difference

TINY = Setup(size="tiny", threads=2)


@pytest.fixture(autouse=True)
def _ask_anew():
    needs.missing.cache_clear()
    yield
    needs.missing.cache_clear()


def tiny(name, setup=TINY, repeats=1, seconds=0.0):
    return measure.run(name, setup, repeats, seconds, limit=lambda limit, setup: 1e10)


def first(name, row_name, setup=TINY):
    """Run one row once and judge it."""
    suite = registry.get(name)
    row = next(row for row in suite.rows if row.name == row_name)
    return measure._first(row, suite.make(setup))[0]


@pytest.fixture(name="toy")
def toy_suite(monkeypatch):
    """Register a suite of the given rows for this test; its work is to make [0, 1, 2]."""

    def install(*rows, wanted=(0.0, 1.0, 2.0), nbytes=24, **more):
        def make(setup):
            error, data = largest_difference(np.array(wanted)), types.SimpleNamespace()
            return Case(data, error, 1e-9, nbytes, "largest difference", "count", setup, **more)

        suite = Suite(
            "toy", make, 1.0, [Row(name, (lambda case, w=work: w), need) for name, work, need in rows]
        )
        monkeypatch.setattr(registry, "get", lambda name: suite)
        return lambda **options: tiny("toy", **options)

    return install


RIGHT = Work(lambda: np.arange(3.0))
