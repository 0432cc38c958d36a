"""What the tests of scale=dask share: a cluster of threads, a fit on it, workers that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pipeline import config, datasets
from pipeline.commands import steps
from pipeline.datasets.pieces import inventory
from pipeline.scale import dask_cluster, dask_run
from tests.conftest import ROOT
from tests.programs import environment

SIZE = config.Image(height=16, width=32)


def scale(**more) -> config.Scale:
    """Return the settings of a cluster of threads in this process."""
    return config.Scale(
        **{"name": config.ScaleName.dask, "processes": False, "memory_limit": None,
           "workers": 0 if "scheduler" in more else 2, "partitions": None, "wait": 20.0, "timeout": 120.0, **more}
    )  # fmt: skip


def settings(learner: str, dtype: str, n: int, classes: int, **more) -> config.Train:
    """Return the settings of a small training."""
    return config.Train(
        data=config.Data(name=config.DataName.synthetic, n=n, classes=classes, difficulty=0.9, workers=1),
        image=SIZE,
        hog=config.Hog(cells_per_block=[2, 2], dtype=config.FloatType.float32),
        classifier=config.Classifier(
            learner=config.Learner[learner], n_rounds=4, subspace_size=20, n_components=32,
            dtype=config.FloatType[dtype], random_state=3, **more
        ),
    )  # fmt: skip


def pictures(cfg: config.Train) -> datasets.Images:
    """Return the pictures of a training."""
    return next(datasets.stream_labelled(cfg.data, cfg.image, cfg.data.n)[1]).images


class Fitted:
    """A fit on a cluster to some of the images, the probabilities of others, and what was sent."""

    def __init__(
        self, cluster, cfg, partitions, fitted, held_out, watched=None, hooks=None, backend="cpu"
    ) -> None:
        hog = steps.extractor(cfg.hog, cfg.image, "cpu")
        found = inventory(cfg.data, cfg.image, True)
        self.told: list[str] = []
        self.kept = dask_run.keep(
            cfg, hog, backend, cluster, found, partitions, lambda done, total: None, self.told.append
        )
        none = np.zeros(0, np.intp)
        try:
            self.classifier = dask_run.fit(
                steps.classifier(cfg.classifier, "cpu"), self.kept, fitted,
                none if watched is None else watched, held_out, hog.layout_.n_features, hooks or {},
            )  # fmt: skip
            self.proba = dask_run.probabilities(self.kept, self.classifier, held_out)
        finally:
            self.kept.crew.close()


def connected(workers: int):
    """Return the context of a cluster of threads."""
    return dask_cluster.connected(scale(workers=workers), "cpu")


class Workers:
    """Worker processes without a nanny, which nobody starts again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.running: list[subprocess.Popen] = []

    def start(self, count: int = 1) -> None:
        """Start some."""
        words = [sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--no-nanny", "--nthreads", "1",
                 "--no-dashboard", "--death-timeout", "60"]  # fmt: skip
        given = environment() | {"OMP_NUM_THREADS": "1"}
        for _ in range(count):
            self.running.append(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=given)
            )

    def kill(self, number: int) -> int:
        """Kill one; return its process number."""
        victim = self.running.pop(number % len(self.running))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        return victim.pid


@contextmanager
def processes(count: int):
    """Yield worker processes of a scheduler in this process."""
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=0, processes=True, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        started(cluster.scheduler_address, count) as workers,
    ):
        yield workers


@contextmanager
def started(address: str, count: int):
    """Yield worker processes of a scheduler."""
    workers = Workers(address)
    try:
        workers.start(count)
        yield workers
    finally:
        while workers.running:
            workers.kill(0)


@contextmanager
def scheduler(folder: Path, knows: bool = True):
    """Yield the process of a scheduler, and its address; `knows`: whether it can import this program."""
    place = folder / "scheduler.json"
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(place)]  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(ROOT)} if knows else {}
    running = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder
    )
    try:
        deadline = time.monotonic() + 60
        while not place.exists() or not place.read_text().rstrip().endswith("}"):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield running, json.loads(place.read_text())["address"]
    finally:
        running.kill()
        running.wait()
