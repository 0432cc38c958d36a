"""scale=dask with backend=gpu: the path from dask-cuda to the gpu backend, on the pretended machine, without a GPU."""

from __future__ import annotations

import dataclasses
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

from pipeline import config
from pipeline.commands import train
from pipeline.reporting.stages import Stages
from pipeline.scale import dask_cluster
from tests import dask_runs
from tests.cuda_on_host.build import need_compiler

pytest.importorskip("distributed")

from tests.cupy_double import cuda_cluster, on_worker


@pytest.fixture
def pretended(monkeypatch):
    """Let a cluster be what dask_cuda has."""

    def pretend(cluster) -> None:
        module = ModuleType("dask_cuda")
        module.__spec__ = ModuleSpec("dask_cuda", None)
        module.LocalCUDACluster = cluster  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "dask_cuda", module)

    return pretend


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"n_worker": 1}, TypeError),
        ({"threads_per_worker": 0}, ValueError),
        ({"n_workers": 0}, ValueError),
        ({"processes": False}, ValueError),
        ({"preload": "some.module"}, TypeError),
    ],
)
def test_the_pretended_cluster_refuses_what_the_real_one_refuses(given, error):
    with pytest.raises(error):
        cuda_cluster.LocalCUDACluster(**given)


@pytest.mark.slow
def test_two_workers_each_on_its_own_gpu_equal_local(pretended):
    """Worker processes with a pretended machine of two GPUs each, of which each worker sees another one first."""
    need_compiler()
    pretended(cuda_cluster.LocalCUDACluster)
    cfg = dask_runs.settings("subspace", "float64", 400, 3)
    index = np.arange(400)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    with dask_runs.connected(1) as one:
        wanted = dask_runs.Fitted(one, cfg, 2, *rows)
    settings = dask_runs.scale(processes=True, workers=0, wait=60.0)
    with dask_cluster.connected(settings, "gpu") as cluster:
        assert len(cluster.await_workers(2)) == 2
        found = dask_runs.Fitted(cluster, cfg, 2, *rows, backend="gpu")
        machines = list(cluster.client.run(on_worker.seen).values())
    assert sorted(one["visible"] for one in machines) == [["0", "1"], ["1", "0"]]
    for machine in machines:
        assert machine["places"].keys() == {0}  # the first that it sees
        assert machine["launches"] > 0
        assert machine["deaf"]  # what was to be preloaded was
    # features are float32, and each backend rounds them in its own way
    np.testing.assert_allclose(found.proba, wanted.proba, rtol=0, atol=1e-5)


def test_one_worker_for_each_gpu_trains_and_equals_local(gpu, tmp_path, pretended):
    """dask_cuda's cluster is one of a thread in this process, where the pretended GPU is, told how many to start."""
    from distributed import LocalCluster

    started: list[dict] = []

    def threads(**given):
        started.append(cuda_cluster.checked(given))
        del given["preload"]
        return LocalCluster(**{**given, "n_workers": 1, "processes": False})

    pretended(threads)
    cfg = dask_runs.settings("subspace", "float64", 240, 3)
    cfg = dataclasses.replace(cfg, plots=False, chunk=64)
    cfg.classifier.n_rounds = 2
    results = {}
    for name, backend, scale in (
        ("local", config.BackendName.cpu, config.Scale()),
        ("dask", config.BackendName.gpu, dask_runs.scale(processes=True, workers=0, partitions=2)),
    ):
        (tmp_path / name).mkdir()
        run = dataclasses.replace(
            cfg, run_dir=str(tmp_path / name), scale=scale, backend=config.Backend(name=backend)
        )
        results[name] = train.train(run, Stages())
    assert [one["threads_per_worker"] for one in started] == [1]
    assert started[0]["n_workers"] is None  # as many as there are GPUs
    found, wanted = results["dask"], results["local"]
    assert found.content["backend"] == "gpu"
    np.testing.assert_allclose(
        found.model.classifier.coef_, wanted.model.classifier.coef_, rtol=0, atol=1e-5
    )  # features are float32, and each backend rounds them in its own way
    np.testing.assert_allclose(found.scores.log_loss, wanted.scores.log_loss, rtol=0, atol=1e-6)
