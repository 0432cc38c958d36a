"""GPU rows of benchmark under the double of CuPy."""

from __future__ import annotations

import dataclasses
import sys
import types

import numpy as np
import pytest

from pipeline.benchmarks import gpus, measure, needs, rates, registry
from pipeline.benchmarks.rates import Limit
from tests.benchmarking import TINY, _ask_anew, first, tiny  # noqa: F401  a fixture


@pytest.fixture
def cupy_with_more(machine, monkeypatch):
    """The double of CuPy, with the functions that only rows of benchmarks use; SciPy and NumPy do their work."""
    from scipy import ndimage

    cupy, lifted = sys.modules["cupy"], types.ModuleType("cupyx.scipy.ndimage")

    def lift(function):
        return lambda *given, **named: cupy.asarray(
            np.asarray(function(*[getattr(a, "host", a) for a in given], **named))
        )

    for name in ("correlate1d", "uniform_filter"):
        setattr(lifted, name, lift(getattr(ndimage, name)))
    scipy = types.ModuleType("cupyx.scipy")
    scipy.ndimage = lifted
    monkeypatch.setitem(sys.modules, "cupyx.scipy", scipy)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.ndimage", lifted)

    class Spectrum:  # complex numbers, which the double does not know
        def __init__(self, values):
            self.values = values

        def __mul__(self, other):
            return Spectrum(self.values * other.host)

    cupy.fft = types.SimpleNamespace(
        rfft2=lambda image: Spectrum(np.fft.rfft2(image.host)),
        irfft2=lambda spectrum, s: cupy.asarray(np.fft.irfft2(spectrum.values, s).astype(np.float32)),
    )
    cupy.random = types.SimpleNamespace(
        default_rng=lambda seed: types.SimpleNamespace(
            random=lambda shape: cupy.asarray(np.random.default_rng(seed).random(shape))
        )
    )
    machine.forget()
    return machine


@pytest.mark.parametrize("name", ["add_two", "monte_carlo_pi", "filter", "hog", "wls"])
def test_rows_of_cupy_are_right_under_the_double(cupy_with_more, name):
    wanted = [row.name for row in registry.get(name).rows if row.needs == ("cupy",)]
    result = tiny(name)
    found = {row.name: row for row in result.rows if row.name in wanted}
    assert {row.name: (row.status, row.reason) for row in found.values()} == dict.fromkeys(wanted, ("ok", ""))
    assert all(row.on_device and len(row.get) == result.rounds for row in found.values())
    if name != "monte_carlo_pi":  # whose rows have no input
        assert all(len(row.put) == result.rounds for row in found.values())
        assert "GPU copy" in result.limits
    assert cupy_with_more.count["d2h"] >= len(wanted)


def test_serial_parallel_and_gpu_kernels_count_the_same_points(cupy_with_more):
    kernel, jit = (first("monte_carlo_pi", name) for name in ("CuPy, one kernel", "Numba jit"))
    assert kernel.error == jit.error


DEVICE_LIMITS = [
    Limit("copy", on_device=True),
    Limit("product", "float64", on_device=True),
    Limit("vector", "float64", on_device=True),
    Limit("vector", "float32", on_device=True),
]


@pytest.fixture
def few(monkeypatch):
    """Limits of the device are measured with little work."""
    monkeypatch.setattr(rates, "ON_DEVICE", {"float32": 16, "float64": 8})
    monkeypatch.setattr(rates, "BLOCKS", 2)
    monkeypatch.setattr(rates, "STEPS", 2)


@pytest.mark.parametrize("limit", DEVICE_LIMITS, ids=str)
def test_the_device_has_limits(cupy_with_more, few, limit):
    assert rates.measure(limit, TINY, 1 << 20) > 0


@pytest.fixture
def places(cupy_with_more, monkeypatch):
    """Two GPUs; the set of those on which anything happened."""
    seen, note = set(), cupy_with_more.note

    def noted(kind, nbytes=0):
        seen.add(cupy_with_more.current)
        note(kind, nbytes)

    monkeypatch.setattr(cupy_with_more, "devices", 2)
    monkeypatch.setattr(cupy_with_more, "note", noted)
    yield seen
    gpus.cupy(0)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("add_two", 1),
        ("hog", 1),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *(("add_two", 0), ("monte_carlo_pi", 1), ("filter", 1), ("wls", 1)),
                *(("monte_carlo_pi", 0), ("filter", 0), ("hog", 0), ("wls", 0)),
            )
        ),
    ],
)
def test_everything_happens_on_the_gpu_that_was_asked_for(cupy_with_more, few, places, name, device):
    """Limits are measured before rows are timed; and what was chosen before, or by others, counts for nothing."""
    setup = dataclasses.replace(TINY, device=device)
    assert needs.missing("cupy", device) is None  # asked before: the answer is kept
    cupy_with_more.current = 1 - device
    result = measure.run(name, setup, 2, 1e6, limit=_limit)
    assert {row.status for row in result.rows if row.on_device} == {"ok"}
    assert places == {device}
    assert any(limit.startswith("GPU") for limit in result.limits)


def _limit(limit, setup):
    return rates.measure(limit, setup, 1 << 12) if limit.on_device else 1e10


def test_a_gpu_that_is_not_there_is_absent_with_the_reason(cupy_with_more, monkeypatch):
    monkeypatch.setattr(cupy_with_more, "devices", 2)
    row = next(
        row for row in tiny("wls", dataclasses.replace(TINY, device=2)).rows if row.name == "gpu backend"
    )
    reason = "device=2 but this machine shows 2 GPUs: choose device=0 to 1, or look at CUDA_VISIBLE_DEVICES"
    assert (row.status, row.reason, row.install) == ("absent", reason, "")
