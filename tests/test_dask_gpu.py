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
from tests import dask_runs

pytest.importorskip("distributed")


def test_one_worker_for_each_gpu_trains_and_equals_local(gpu, tmp_path, monkeypatch):
    """dask_cuda is pretended, too: its cluster is one of a thread, told how many workers to start."""
    from distributed import LocalCluster

    started: list[dict] = []

    def cuda_cluster(**given):
        started.append(dict(given))
        del given["preload"]
        return LocalCluster(**{**given, "n_workers": 1, "processes": False})

    pretended = ModuleType("dask_cuda")
    pretended.__spec__ = ModuleSpec("dask_cuda", None)
    pretended.LocalCUDACluster = cuda_cluster  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_cuda", pretended)
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
