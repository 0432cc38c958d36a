"""The suites of benchmark at a tiny size, and the references by which their rows are judged."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import types

import numpy as np
import pytest

from pipeline.benchmarks import registry
from pipeline.benchmarks.registry import NAMES, Setup
from tests.benchmarking import TINY, _ask_anew, first, tiny  # noqa: F401  a fixture
from tests.conftest import ROOT

FILTERS = {"copy", "float32 vector", "float64 vector", "float32 product"}
LIMITS = {  # that may bind
    "add_two": {"copy"},
    "monte_carlo_pi": {"float64 product"},
    "layout": {"copy"},
    "filter": FILTERS,
    "hog": {"copy", "float32 vector"},
    "wls": {"float32 product", "float64 product"},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_that_can_run_here_is_right(name):
    result = tiny(name)
    states = {row.name: (row.status, row.reason) for row in result.rows}
    assert {state for state, _ in states.values()} <= {"ok", "absent"}, states
    own = [row for row in registry.get(name).rows if not row.needs]
    assert len(own) >= 2  # one to compare with another
    assert all(states[row.name] == ("ok", "") for row in own)
    for row in result.rows:
        if row.status == "ok":
            assert row.error <= row.tolerance
            assert len(row.seconds) == result.rounds == 1
            assert row.median > 0
            assert row.faster is not None
            assert row.measure
            assert (row.share is None) == (row.name == "half: a view of every second row")  # touches nothing
            assert (row.rate is None) == (row.share is None)
            assert row.limit in LIMITS[name] | {""}
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
        "the array is 2 x 32 x 32 instead of 8 x 32 x 32: 5 of the larger ones do not fit into 0.0 GB of free memory"
    ]
    assert {row.status for row in tiny("add_two", case.setup).rows} <= {"ok", "absent"}


def test_rows_of_monte_carlo_pi_with_one_generator_count_the_same_points():
    jit, prange = (first("monte_carlo_pi", name) for name in ("Numba jit", "Numba prange"))
    assert jit.error == prange.error
    other = first("monte_carlo_pi", "Numba jit", dataclasses.replace(TINY, seed=1))
    assert other.error != jit.error
    assert other.status == "ok"


def test_monte_carlo_pi_counts_points():
    result = tiny("monte_carlo_pi")
    row = next(row for row in result.rows if row.status == "ok")
    assert row.rate == pytest.approx(20_000 / row.median)
    assert row.unit == "points"
    assert row.share == pytest.approx(31 * 20_000 / 1e10 / row.median)
    assert "31 operations a point" in result.notes[0]


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


def test_the_operations_of_each_filter_are_counted():
    """By hand, of 4 x 8 pixels and five taps."""
    from pipeline.benchmarks.filter import _operations

    assert _operations((4, 8), 5) == {
        "direct": 32 * 25 * 2,
        "separable": 32 * 2 * (2 + 3 + 2),  # two pairs are added, three products, two sums
        "products": 4 * 8 * 2 * 4 + 4 * 8 * 2 * 8,
        "FFT": 2 * 2.5 * 32 * 5 + 32,
        "boxes": 32 * 18,
    }


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


def test_rows_of_wls_are_given_the_same_and_prepare_it_while_they_are_timed(monkeypatch):
    """No row may have converted or centred the numbers, or built its package's table, before the clock starts."""
    from pipeline.benchmarks import wls

    def early(*given, **named):
        raise AssertionError("prepared outside the timed part")

    moved = []
    tensor = types.SimpleNamespace(to=moved.append)
    arrays = []
    torch = types.ModuleType("torch")
    torch.set_num_threads = lambda count: None
    torch.from_numpy = lambda array: arrays.append(array) or tensor
    xgboost = types.ModuleType("xgboost")
    xgboost.DMatrix = early
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "xgboost", xgboost)
    monkeypatch.setattr(wls, "_float64", early)
    case = registry.get("wls").make(TINY)
    works = {row.name: row.make(case) for row in registry.get("wls").rows if "cupy" not in row.needs}
    assert {name for name, work in works.items() if work.put is not None} == {"PyTorch, GPU"}
    assert arrays == []
    works["PyTorch, GPU"].put()  # the copy, and nothing but a copy
    given = (case.data.X, case.data.center, case.data.W, case.data.R)
    assert moved == ["cuda:0"] * 4
    assert all(np.array_equal(a, b.astype(np.float32)) for a, b in zip(arrays, given, strict=True))
    for name in ("NumPy", "scikit-learn Ridge", "XGBoost gblinear"):
        with pytest.raises(AssertionError, match="timed part"):
            works[name].run()


def test_sums_say_where_an_interpreters_loop_is_compared_with_one_call():
    notes = {row.name: row.note for row in tiny("layout").rows if row.name.startswith("sums")}
    loops = [name for name, note in notes.items() if "a Python loop of 32 calls" in note]
    assert loops == ["sums: row-major, one by one", "sums: column-major, one by one"]
    assert all("one call" in note for name, note in notes.items() if name not in loops)


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
