"""``predict scale=dask`` when a worker is killed and when the disk is full."""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests import dask_runs
from tests.test_dask_faults import THREADS, WORDS, told

pytest.importorskip("distributed")

SET = ["data=synthetic", "data.classes=3", "data.difficulty=0.9"]


@pytest.fixture
def model(call):
    """A model of the pictures, in the folder in which commands are run."""
    status, _, err = call("train", *WORDS, *SET, "data.n=400", "classifier.n_rounds=4", "hydra.run.dir=model")
    assert status == 0, err
    return "model=model/model.npz"


def rows_of(paths):
    """Return the rows of several files of labels, and their first line, which is the same."""
    heads, rows = set(), []
    for path in paths:
        with path.open() as stream:
            head, *more = csv.reader(stream)
        heads.add(tuple(head))
        rows += more
    assert len(heads) == 1
    return heads.pop(), rows


@pytest.mark.slow
def test_a_killed_worker_costs_no_row(call, model, monkeypatch):
    """Of two workers one is killed after the third of 12 parts; every picture is labelled once, as in memory."""
    from pipeline.scale import dask_predict

    label, words = dask_predict.label, [*SET, "data.n=24000", model]
    status, _, err = call("predict", *words, "out=whole.csv", "hydra.run.dir=whole")
    assert status == 0, err
    with dask_runs.processes(2) as workers:
        there = []

        def losing(*arguments):
            for count, one in enumerate(label(*arguments)):
                if count == 2:
                    workers.kill(0)
                    there.extend(Path("parts").glob("part-*.csv"))
                yield one

        monkeypatch.setattr(dask_predict, "label", losing)
        address = [f"scale.scheduler={workers.address}", "scale.workers=2", "scale.wait=60"]
        status, _, err = call(
            "predict",
            *words,
            "scale=dask",
            *address,
            "scale.partitions=12",
            "out=parts",
            "hydra.run.dir=told",
        )
    assert (status, told(err)) == (0, [])
    assert 3 <= len(there) < 12  # it was killed in mid-work
    assert len(workers.running) == 0
    assert sorted(os.listdir("parts")) == [f"part-{i:05d}.csv" for i in range(12)]
    assert rows_of(sorted(Path("parts").iterdir())) == rows_of([Path("whole.csv")])
    summary = json.loads(Path("told/summary.json").read_text())
    assert (summary["images"], set(summary["parts"].values())) == (24_000, {2000})


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of processes")
@pytest.mark.parametrize("format", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_full_disk_is_told_and_leaves_whole_parts_only(call, model, format):
    """The system refuses the end of a part, as it would on a full disk."""
    import resource

    words = [*SET, *THREADS, "scale.workers=1", model, f"format={format}", "scale.partitions=3"]
    status, _, err = call("predict", *words, "data.n=3000", "out=whole", "hydra.run.dir=first")
    assert status == 0, err
    sizes = [path.stat().st_size for path in sorted(Path("whole").iterdir())]
    limit = min(sizes) - 1000
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        status, _, err = call("predict", *words, "data.n=3000", "out=parts", "hydra.run.dir=second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert status == 2
    [line] = told(err)
    assert f".{format} cannot be written: File too large" in line
    assert f"{Path('parts').absolute()}/part-0000" in line
    assert not list(Path("parts").iterdir())
    assert not Path("second/summary.json").exists()
    status, _, err = call("predict", *words, "data.n=3000", "out=parts", "hydra.run.dir=third")
    assert status == 0, err  # with room the same command, into the same folder
    assert [path.stat().st_size for path in sorted(Path("parts").iterdir())] == sizes
