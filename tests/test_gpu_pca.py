"""Principal components on the gpu backend, under the double of CuPy: they equal those of the cpu backend."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pipeline import backends
from tests.test_pca import SETS, falling


def same(got, wanted, atol=1e-7):
    np.testing.assert_allclose(got.mean, wanted.mean, rtol=1e-12)
    np.testing.assert_allclose(got.variances, wanted.variances, rtol=1e-8)
    np.testing.assert_allclose(got.components, wanted.components, atol=atol)
    np.testing.assert_allclose(got.total, wanted.total, rtol=1e-10)
    assert all(isinstance(part, np.ndarray) for part in got[:3])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SETS)
def test_components_equal_the_cpu_backend(gpu, name, dtype):
    X = SETS[name].astype(dtype)
    k = min(*X.shape, 8)
    cpu = backends.get("cpu").pca
    wanted, got = cpu.fit(X, k, None), gpu.pca.fit(gpu.put(X), k, None)
    same(got, wanted)
    same(gpu.pca.fit(gpu.put(X), None, 0.9), cpu.fit(X, None, 0.9))
    scores = gpu.pca.transform(*map(gpu.put, (X, wanted.mean, wanted.components)))
    assert gpu.holds(scores)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    wanted_scores = cpu.transform(X, wanted.mean, wanted.components)
    np.testing.assert_allclose(gpu.get(scores), wanted_scores, rtol=tolerance, atol=tolerance)
    out = gpu.xp.empty(wanted_scores.shape, dtype=dtype)
    assert gpu.pca.transform(*map(gpu.put, (X, wanted.mean, wanted.components)), out) is out
    np.testing.assert_array_equal(gpu.get(out), gpu.get(scores))


def test_many_columns_are_multiplied_in_panels(gpu, monkeypatch):
    from pipeline.backends.gpu import blas

    X = SETS["tall"]
    monkeypatch.setattr(blas, "PANELLED", 8)
    same(gpu.pca.fit(gpu.put(X), 5, None), backends.get("cpu").pca.fit(X, 5, None))


@pytest.mark.parametrize("shape", [(500, 60), (60, 500)])
def test_a_matrix_without_room_streams_through_the_device(machine, gpu, monkeypatch, shape):
    from pipeline.backends.gpu import memory
    from pipeline.backends.gpu.matrix import HostMatrix

    X = falling(*shape)
    wanted = backends.get("cpu").pca.fit(X, 6, None)
    monkeypatch.setattr(memory, "chunk", lambda n, *_, **__: max(1, n // 7))
    got = gpu.pca.fit(HostMatrix(X), 6, None)
    same(got, wanted)
    assert machine.bytes["h2d"] >= 2 * X.nbytes
    scores = gpu.pca.transform(HostMatrix(X), *map(gpu.put, (got.mean, got.components)))
    np.testing.assert_allclose(
        gpu.get(scores), backends.get("cpu").pca.transform(X, got.mean, got.components), atol=1e-9
    )


@pytest.mark.parametrize("shape", [(3000, 40), (40, 3000)])
def test_chunks_that_find_no_room_are_taken_in_halves(machine, gpu, monkeypatch, shape):
    """The plan is wrong on purpose: everything at once, in a pool that holds X and little beside it."""
    from pipeline.backends.gpu import memory

    X = falling(*shape)
    wanted = backends.get("cpu").pca.fit(X, 6, None)
    device = gpu.put(X)
    monkeypatch.setattr(memory, "chunk", lambda n, *_, **__: n)
    machine.limit = machine.used + X.nbytes // 2
    same(gpu.pca.fit(device, 6, None), wanted)
    assert machine.count["emptied"] > 0


@pytest.mark.parametrize("fault", ["no room", "no convergence"])
def test_the_host_finds_the_eigenvectors_that_the_device_cannot(machine, gpu, monkeypatch, caplog, fault):
    X = falling(300, 120)
    wanted = backends.get("cpu").pca.fit(X, 6, None)
    device = gpu.put(X)
    if fault == "no room":
        machine.limit = machine.used + 3 * 8 * 120 * 120
    else:
        monkeypatch.setattr(machine, "failed_eigh", True)
    with caplog.at_level(logging.WARNING):
        same(gpu.pca.fit(device, 6, None), wanted)
    assert "LAPACK" in caplog.text


def test_only_components_come_home(machine, gpu):
    X = falling(400, 50)
    device = gpu.put(X)
    machine.forget()
    got = gpu.pca.fit(device, 3, None)
    assert machine.bytes["d2h"] <= got.components.nbytes + 4 * 8 * 50
    assert machine.count["eigh"] == 1
    machine.forget()
    gpu.pca.transform(device, *map(gpu.put, (got.mean, got.components)))
    assert machine.count["d2h"] == 0
