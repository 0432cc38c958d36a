"""Partitions that are read again on Dask workers, and workers that join a run: they must be what the first were."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager

import numpy as np
import pytest

from pipeline import config
from pipeline.commands import keeping
from pipeline.datasets import parallel
from pipeline.datasets.reasons import DecodeError
from pipeline.errors import ChangedError, ClusterError
from pipeline.scale import dask_cluster, held, parts
from pipeline.software import SOURCES, software, sources
from tests import dask_runs

pytest.importorskip("distributed")


@pytest.fixture
def cfg(tmp_path):
    """Settings of a training on 60 pictures in a folder."""
    from PIL import Image

    made = dask_runs.settings("subspace", "float32", 60, 3)
    images = dask_runs.pictures(made)
    for i, pixels in enumerate(images.pixels):
        path = tmp_path / "set" / images.class_names[images.labels[i]] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    folder = config.Data(config.DataName.folder, path=str(tmp_path / "set"), workers=1, max_rejected=0.1)
    return dataclasses.replace(made, data=folder)


def trained(cfg, n, lose):
    """Fit to pictures of which all partitions are lost in round 2; `lose` is called then."""
    crews = []

    def hook(number, n_rounds, train_loss, validation_loss):
        if number == 2:
            lose()
            crews[0].cluster.client.cancel(crews[0].held)

    from pipeline.scale.dask_crew import Crew

    begin, index = Crew.__init__, np.arange(n)

    def remembered(self, *arguments, **more):
        begin(self, *arguments, **more)
        crews.append(self)

    with pytest.MonkeyPatch.context() as patch, dask_runs.connected(1) as cluster:
        patch.setattr(Crew, "__init__", remembered)
        return dask_runs.Fitted(
            cluster, cfg, 2, index[index % 5 > 0], index[index % 5 == 0], hooks={"on_round": hook}
        )


@contextmanager
def files_are(monkeypatch, victim):
    """Yield what happens to a file's pixels: "rejected", "other", or nothing."""
    state, decode = {"now": ""}, parallel.to_bytes

    def read(path, *more):
        if str(path).endswith(victim):
            if state["now"] == "rejected":
                raise DecodeError("no permission")
            if state["now"] == "other":
                return bytes(512)
        return decode(path, *more)

    monkeypatch.setattr(parallel, "to_bytes", read)
    yield state


CASES = [
    ("rejected", "", r"\d+\.png can be read, which was rejected before"),
    ("", "rejected", r"\d+\.png cannot be read any more \(no permission\)"),
    ("", "other", r"\d+\.png has other pixels"),
]


@pytest.mark.parametrize(("first", "then", "words"), CASES, ids=["accepted", "rejected", "other pixels"])
def test_a_partition_that_is_not_what_it_was_is_named(cfg, monkeypatch, first, then, words):
    """Rows after the file were taken for others, with their labels: the run ended with a model and no word."""
    with files_are(monkeypatch, "007.png") as state:
        state["now"] = first
        with pytest.raises(ChangedError, match=words) as caught:
            trained(cfg, 59 if first else 60, lambda: state.update(now=then))
    assert "007.png" in str(caught.value)
    assert "was lost and read again, and is not what it was: " in str(caught.value)
    assert str(caught.value).startswith(f"data.path={cfg.data.path}: partition ")
    assert caught.value.going_on("go on") == (
        f"{caught.value.found}; see that all machines have the same files and the same versions of libraries, then "
        "go on"
    )


def test_a_partition_that_is_what_it_was_serves(cfg, monkeypatch):
    with files_are(monkeypatch, "007.png") as state:
        state["now"] = "rejected"  # both times
        found = trained(cfg, 59, lambda: None)
    assert [one.path.endswith("007.png") for one in found.kept.rejected] == [True]
    assert [first.digests.shape for first in found.kept.crew.first] == [
        (n, 16) for n in np.diff(found.kept.cuts)
    ]


def test_rows_beyond_a_piece_are_no_rows():
    """They were taken for the last one."""
    for wanted in ([np.arange(8), np.array([10])], [np.array([-1, 3])]):
        with pytest.raises(IndexError, match="are wanted of a piece of 10"):
            held.divided_in_place(np.zeros((10, 2)), wanted)


# ---- who joins ----


def test_a_worker_that_joins_later_is_asked_for_its_software(cfg, monkeypatch):
    with dask_runs.connected(1) as cluster:
        [first] = cluster.threads()
        index = np.arange(60)
        found = dask_runs.Fitted(cluster, cfg, 2, index[10:], index[:10])
        crew = found.kept.crew
        cluster.client.cluster.scale(2)
        [second] = set(cluster.await_workers(2)) - {first}
        crew.owner = ["tcp://gone:1", first]
        for name, message in (
            (SOURCES, f"{second} has {SOURCES} other, here it is "),
            ("hogboost", "has hogboost other"),
        ):
            monkeypatch.setattr(
                dask_cluster, "_software_there", lambda name=name: {**software(), name: "other"}
            )
            with pytest.raises(ClusterError, match=message):
                crew._taker(0)
            assert second not in cluster.known
        monkeypatch.setattr(dask_cluster, "_software_there", lambda: {**software(), "numpy": "1.0"})
        assert crew._taker(0) == second
        assert found.told == [f"other software: {second}: numpy 1.0, here {software()['numpy']}"]
        assert crew._taker(0) == second  # and is asked once
        assert len(found.told) == 1
        monkeypatch.setattr(dask_cluster, "_software_there", lambda: {**software(), SOURCES: "other"})
        crew.owner = [first, first]  # which is back under its address, as another process
        with pytest.raises(ClusterError, match=f"{first} has {SOURCES} other"):
            crew._recover([0])


def test_a_worker_of_other_sources_labels_nothing(tmp_path):
    labelling = parts.Labelling(np.zeros(1, np.uint8), str(tmp_path), "csv", (), "cpu", 0, 1, 8, "0" * 12)
    with pytest.raises(
        ClusterError, match=f"has {SOURCES} {software()[SOURCES]}, where the run began it is 000000000000"
    ):
        parts.label(labelling, 0, None)


# ---- what tells programs apart ----


def test_sources_tell_programs_of_one_version_apart(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_bytes(b"one\ntwo\n")
    (tmp_path / "k.cu").write_bytes(b"kernel")
    before = sources(tmp_path)
    assert len(before) == 12
    (tmp_path / "a" / "x.py").write_bytes(b"one\r\ntwo\r\n")  # as another system checks it out
    (tmp_path / "a" / "x.pyc").write_bytes(b"compiled")
    assert sources(tmp_path) == before
    found = {before}
    for name, content in (("a/x.py", b"one\ntwo"), ("k.cu", b"Kernel"), ("a/y.py", b"")):
        (tmp_path / name).write_bytes(content)
        found.add(sources(tmp_path))
    (tmp_path / "k.cu").rename(tmp_path / "l.cu")
    found.add(sources(tmp_path))
    assert len(found) == 5


def test_a_run_that_goes_on_with_other_sources_says_so(capsys):
    keeping._compare_versions(software())
    assert capsys.readouterr().out == ""
    keeping._compare_versions({**software(), SOURCES: "0" * 12, "simplejpeg": "0.1"})
    told = " ".join(capsys.readouterr().out.split())
    assert f"{SOURCES} 000000000000 -> {software()[SOURCES]}" in told
    assert "simplejpeg 0.1 -> " in told


def test_a_newcomer_that_is_lost_while_it_is_asked_is_no_fault_and_takes_nothing(cfg, monkeypatch):
    """Dask tries for 30 s to reach one that has died: that may be longer than anybody waits."""
    with dask_runs.connected(1) as cluster:
        index = np.arange(60)
        crew = dask_runs.Fitted(cluster, cfg, 2, index[10:], index[:10]).kept.crew
        [first] = cluster.threads()
        threads = cluster.threads
        monkeypatch.setattr(cluster, "threads", lambda: {**threads(), "tcp://late:1": 1})

        def silent(workers):
            monkeypatch.setattr(cluster, "threads", threads)  # the scheduler, too, has heard of it by now
            raise ClusterError("not told")

        monkeypatch.setattr(cluster, "_software", silent)
        assert list(crew._admitted()) == [first]
        monkeypatch.setattr(cluster, "_software", lambda workers: {})  # no answer, and there still
        cluster.known.clear()
        monkeypatch.setattr(cluster.settings, "wait", 0.3)
        with pytest.raises(ClusterError, match="none of 1 workers has told its versions"):
            crew._admitted()
