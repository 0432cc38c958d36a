"""Principal components on the gpu backend, under the double of CuPy: they equal those of the cpu backend."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pipeline import PcaReducer, backends
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
    assert "found on the host" in caplog.text


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


# ---- the transformer and the commands ----


def test_the_transformer_leaves_on_the_device_what_is_there(machine, gpu):
    X = falling(400, 50)
    wanted = PcaReducer(variance=0.9, dtype="float64").fit(X)
    device = gpu.put(X)
    reducer = PcaReducer(variance=0.9, dtype="float64", backend="gpu").fit(device)
    np.testing.assert_allclose(reducer.components_, wanted.components_, atol=1e-9)
    scores = reducer.transform(device)
    assert gpu.holds(scores)
    np.testing.assert_allclose(gpu.get(scores), wanted.transform(X), atol=1e-9)
    assert isinstance(reducer.transform(X), np.ndarray)
    with pytest.raises(ValueError, match="X has 49 features, but PcaReducer is expecting 50"):
        reducer.transform(device[:, :49])
    with pytest.raises(ValueError, match=r"at least 2 rows.*float64 \(1, 50\)"):
        reducer.fit(device[:1])
    device[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in row 7"):
        reducer.transform(device)
    with pytest.raises(ValueError, match="too large to be squared"):
        reducer.fit(gpu.put(X * 1e200))


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(True, marks=pytest.mark.slow, id="on the device"),
        pytest.param(False, marks=pytest.mark.slow, id="streaming"),
    ],
)
def test_train_and_predict_with_fewer_features(machine, gpu, monkeypatch, tmp_path, room):
    from pipeline import config
    from pipeline.backends.gpu import memory, transfer
    from pipeline.backends.gpu.matrix import HostMatrix
    from pipeline.commands import train
    from pipeline.model import load_model

    cfg = config.Train(run_dir=str(tmp_path), plots=False, image=config.Image(16, 16))
    cfg.data = config.Data(name=config.DataName.synthetic, n=120, classes=4)
    cfg.hog = config.Hog(pixels_per_cell=[4, 4], cells_per_block=[2, 2])
    cfg.reduce = config.Reduce(config.ReduceName.pca, variance=0.9)
    cfg.classifier.n_rounds, cfg.classifier.early_stopping = 3, True
    figures = {}
    if not room:  # what has no room on the device is a HostMatrix
        monkeypatch.setattr(
            transfer, "empty_matrix", lambda n, p, dtype: HostMatrix(np.empty((n, p), dtype=dtype))
        )
        monkeypatch.setattr(memory, "chunk", lambda n, *_, **__: max(1, n // 3))
    for name in ("cpu", "gpu"):
        cfg.backend = config.Backend(name=config.BackendName[name])
        machine.forget()
        figures[name] = train.run(cfg)
    assert figures["gpu"] == pytest.approx(figures["cpu"], rel=1e-3)
    if room:
        components = load_model(tmp_path / "model.npz").reducer.components_
        assert machine.bytes["d2h"] < 2 * components.size * 8 + 100_000  # no feature matrix among it
    pixels = np.random.default_rng(0).integers(0, 256, (30, 16, 16), dtype=np.uint8)
    found = [load_model(tmp_path / "model.npz", name).predict_proba(pixels) for name in ("cpu", "gpu")]
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)
