"""GPU rows of benchmark under the double of CuPy."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from pipeline.benchmarks import bandwidth, registry
from tests.benchmarking import _ask_anew, first, tiny  # noqa: F401  a fixture


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
    assert all(row.on_device and row.get is not None for row in found.values())
    if name != "monte_carlo_pi":  # whose rows have no input
        assert all(len(row.put) == result.rounds for row in found.values())
        assert "device" in result.limits
    assert cupy_with_more.count["d2h"] >= len(wanted)


def test_serial_parallel_and_gpu_kernels_count_the_same_points(cupy_with_more):
    kernel, jit = (first("monte_carlo_pi", name) for name in ("CuPy, one kernel", "Numba jit"))
    assert kernel.error == jit.error


def test_a_copy_on_the_device_has_a_rate(cupy_with_more):
    assert bandwidth.copy_rate(True, 1, 1 << 20) > 0
