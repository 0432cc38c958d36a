"""Dask workers that are killed, a scheduler that is lost, clusters that are not there; and predictions in parts."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline import checkpoint, files, installing
from pipeline.errors import ClusterError
from pipeline.scale import dask_cluster, dask_ways
from tests import dask_runs
from tests.programs import environment, started
from tests.test_resume import contents

pytest.importorskip("distributed")

WORDS = [
    "image.height=16", "image.width=16", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[2,2]", "plots=false",
    "backend.threads=1",
]  # fmt: skip
THREADS = ["scale=dask", "scale.processes=false", "scale.workers=2", "scale.wait=20"]
MADE = ["data=synthetic", "data.n=400", "data.classes=3", "data.difficulty=0.9", "classifier.n_rounds=8"]


def with_effect(words: list[str]) -> list[str]:
    """Return those of MADE and THREADS that have an effect beside `words`."""
    made = [word for word in MADE if "data=folder" not in words or not word.startswith("data")]
    given = any(word.startswith("scale.scheduler=") for word in words)
    return [*made, *(THREADS[:1] if given else THREADS)]


def told(err: str) -> list[str]:
    """Return the lines of the error stream that are no progress."""
    return [line for line in err.splitlines() if " rounds " not in line and " images " not in line]


# ---- workers that are killed ----


@pytest.fixture(params=["straight", pytest.param("by tasks", marks=pytest.mark.slow)])
def way(request, monkeypatch):
    """Orders go straight to few workers, or by tasks, as they do where workers are many."""
    if request.param == "by tasks":
        monkeypatch.setattr(dask_ways, "FEW", 0)
    return request.param


@pytest.mark.slow
def test_workers_killed_while_reading_and_in_a_round(monkeypatch, way):
    """Of three workers one dies in HoG, one in mid-round, and the third ends with the model of an undisturbed run."""
    cfg = dask_runs.settings("subspace", "float64", 600, 4)
    index = np.arange(600)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    with dask_runs.connected(1) as one:
        whole = dask_runs.Fitted(one, cfg, 4, *rows)
    from pipeline.scale.dask_crew import Crew

    with (
        dask_runs.processes(3) as workers,
        dask_cluster.connected(dask_runs.scale(scheduler=workers.address, wait=60.0), "cpu") as cluster,
    ):
        cluster.await_workers(3)
        asked, read, ask = 0, Crew.read, Crew._asked

        def reading(self):
            workers.kill(0)
            yield from read(self)

        def in_a_round(self, order, last):
            nonlocal asked
            asked += 1
            if asked == 6:
                threading.Timer(0.01, workers.kill, [0]).start()
            return ask(self, order, last)

        monkeypatch.setattr(Crew, "read", reading)
        monkeypatch.setattr(Crew, "_asked", in_a_round)
        found = dask_runs.Fitted(cluster, cfg, 4, *rows)
    assert len(workers.running) == 0
    assert sum("lost" in line for line in found.told) == 2
    np.testing.assert_array_equal(found.proba, whole.proba)
    np.testing.assert_array_equal(found.classifier.coef_, whole.classifier.coef_)


def test_pieces_that_a_worker_lacks_are_made_again(way):
    """A worker that comes back under its old address knows nothing: its pieces are read, and their rounds repeated."""
    cfg = dask_runs.settings("random_features", "float64", 400, 3)
    index = np.arange(400)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    with dask_runs.connected(2) as cluster:
        whole = dask_runs.Fitted(cluster, cfg, 3, *rows)
        crews = []

        def forget(number, n_rounds, train_loss, validation_loss):
            if number in (1, 3):
                crew = crews[0]
                crew.held[1] = crew._submit("hold", crew.owner[1], _empty, crew.pieces[1], crew.recipe)

        from pipeline.scale.dask_crew import Crew

        begin = Crew.__init__

        def remembered(self, *arguments, **more):
            begin(self, *arguments, **more)
            crews.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Crew, "__init__", remembered)
            found = dask_runs.Fitted(cluster, cfg, 3, *rows, hooks={"on_round": forget})
    np.testing.assert_array_equal(found.proba, whole.proba)


def _empty(piece, recipe):
    from pipeline.scale.held import Held

    return Held(1, piece, recipe)


def test_results_that_a_lost_connection_took_are_made_again(monkeypatch):
    """A client that connects anew has lost all its futures, though every worker is there."""
    from pipeline.scale.dask_crew import PATIENCE, Crew

    cfg = dask_runs.settings("subspace", "float64", 400, 3)
    index = np.arange(400)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    crews, begin = [], Crew.__init__

    def remembered(self, *arguments, **more):
        begin(self, *arguments, **more)
        crews.append(self)

    with dask_runs.connected(2) as cluster:
        whole = dask_runs.Fitted(cluster, cfg, 3, *rows)
        monkeypatch.setattr(Crew, "__init__", remembered)

        def lose(number, n_rounds, train_loss, validation_loss):
            if number == 2:
                cluster.client.cancel(crews[0].held)

        found = dask_runs.Fitted(cluster, cfg, 3, *rows, hooks={"on_round": lose})
        np.testing.assert_array_equal(found.proba, whole.proba)

        asked = []
        monkeypatch.setattr(Crew, "_asked", lambda self, order, last: asked.append(order))
        with pytest.raises(ClusterError, match=f"was lost {PATIENCE + 1} times in a row"):
            dask_runs.Fitted(cluster, cfg, 3, *rows)
        assert len(asked) == PATIENCE + 1


def test_few_workers_answer_straight_and_give_the_bits_of_the_tree(monkeypatch):
    """Two workers: their sums come home at once, and are what the tree gives. Out of reach, all goes by tasks."""
    from pipeline.scale.dask_crew import Crew

    cfg = dask_runs.settings("subspace", "float32", 2600, 3)
    index = np.arange(2600)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    graphs, graph = [], Crew._graph
    monkeypatch.setattr(Crew, "_graph", lambda self, order: graphs.append(order.what) or graph(self, order))
    with dask_runs.connected(2) as cluster:
        found = dask_runs.Fitted(cluster, cfg, 3, *rows)
        assert graphs == ["moments"]  # the first order shows the scheduler that somebody is at work
        crew = found.kept.crew
        assert crew.straight == 2 * (crew.exchanged[1] - 2 * 8 * 108)  # of each worker one message, no larger
        monkeypatch.setattr("pipeline.scale.dask_crew.reached", lambda cluster, workers: False)
        other = dask_runs.Fitted(cluster, cfg, 3, *rows)
    assert other.kept.crew.straight == 0
    assert other.kept.crew.exchanged == crew.exchanged
    assert len(graphs) == 1 + 1 + 1 + cfg.classifier.n_rounds
    np.testing.assert_array_equal(other.proba, found.proba)


def test_a_worker_that_does_not_answer_is_out_of_reach():
    with dask_runs.connected(1) as cluster:
        assert dask_ways.reached(cluster, list(cluster.threads()))
        assert not dask_ways.reached(cluster, ["tcp://127.0.0.1:1"])


@pytest.mark.parametrize(("classes", "q", "few"), [(10, 128, True), (10, 512, True), (1, 3240, False)])
def test_large_sums_are_added_by_the_workers(classes, q, few):
    """Two Gram matrices of 3240 columns, 42 MB each, are more than one process should take at once."""
    from pipeline.boosting.messages import Basis, Request
    from pipeline.scale.wire import Order, tree

    order = Order("train", "sums", (Request(Basis(0, q), slice(0, classes)),))
    assert dask_ways.few(tree(["a", "b"]), order) is few
    assert not dask_ways.few(tree(["a", "b", "c", "d", "e"]), order)


TRIED: list[int] = []


def _refused(piece):
    TRIED.append(1)
    raise PermissionError(13, "Permission denied", "somewhere")


def test_what_a_task_itself_meets_is_no_lost_worker():
    from pipeline.scale.dask_ways import Coming

    with dask_runs.connected(1) as cluster:
        coming = Coming(cluster, cluster.client.submit(_refused, 0, pure=False))
        with pytest.raises(PermissionError, match="somewhere"):
            coming.result()
    assert len(TRIED) == 1


def test_a_cluster_that_hangs_or_is_closed_is_told(monkeypatch):
    import asyncio

    async def hanging(*arguments, **more):
        await asyncio.sleep(60)

    with dask_cluster.connected(dask_runs.scale(workers=1, wait=0.5), "cpu") as cluster:
        with monkeypatch.context() as patch:
            patch.setattr(cluster.client, "_run", hanging)
            with pytest.raises(ClusterError, match=r"not told its versions for scale\.wait=0\.5 seconds"):
                cluster.check_versions()
        cluster.client.close()
        for ask in (cluster.memory, cluster.threads):
            with pytest.raises(ClusterError, match="was lost"):
                ask()

    def refused(**settings):
        raise RuntimeError("Nanny failed to start")

    monkeypatch.setattr("distributed.LocalCluster", refused)
    told = r"no workers can be started on this machine \(Nanny failed to start\)"
    with pytest.raises(ClusterError, match=told), dask_cluster.connected(dask_runs.scale(), "cpu"):
        pass


# ---- a scheduler that is lost; a run that goes on ----


@pytest.mark.slow
def test_a_lost_scheduler_ends_the_run_and_it_goes_on_to_the_same_model(call, monkeypatch, tmp_path, way):
    """Scheduler and workers are processes; the scheduler is killed while the fifth order is on its way."""
    from pipeline.scale.dask_crew import Crew

    words = ["train", *WORDS, *MADE, "scale=dask", "scale.partitions=3"]
    status, _, err = call(*words, "scale.processes=false", "scale.workers=1", "hydra.run.dir=whole")
    assert status == 0, err
    with (
        dask_runs.scheduler(tmp_path) as (running, address),
        dask_runs.started(address, 2),
    ):
        asked, ask = 0, Crew._asked

        def losing(self, order, last):
            nonlocal asked
            asked += 1
            if asked == 9:
                running.kill()
            return ask(self, order, last)

        with monkeypatch.context() as patch:
            patch.setattr(Crew, "_asked", losing)
            begin = time.monotonic()
            status, _, err = call(
                *words, f"scale.scheduler={address}", "checkpoint.rounds=1", "hydra.run.dir=run"
            )
    assert time.monotonic() - begin < 60
    assert status == 2
    lines = [
        line for line in err.splitlines() if " rounds " not in line and " images " not in line
    ]  # progress
    assert len(lines) == 1, err
    assert "the Dask scheduler " in err
    assert " was lost" in err
    assert f"with: {checkpoint.command('run')}" in err.replace(str(tmp_path) + "/", "")
    done = int(checkpoint.listed("run")[0].stem.removeprefix("round_"))
    assert 1 <= done < 8
    status, out, err = call(
        "train",
        "resume=run",
        "scale.scheduler=null",
        "scale.processes=false",
        "scale.workers=2",
        "scale.memory_limit=2GB",
    )
    assert (status, told(err)) == (0, [])
    assert f"resuming after round {done} of 8" in out
    assert contents("run/model.npz") == contents("whole/model.npz")


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_sigterm_ends_the_run_and_its_workers_in_one_line(tmp_path):
    import psutil

    words = [
        *WORDS,
        *MADE,
        "scale=dask",
        "scale.workers=1",
        "checkpoint.rounds=1",
        "classifier.n_rounds=100000",
    ]
    run = started("train", *words, "hydra.run.dir=run", cwd=tmp_path, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while not checkpoint.listed(tmp_path / "run"):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = psutil.Process(run.pid).children(recursive=True)
    assert workers
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    [line] = told(err)
    assert line.startswith("pipeline: ended by SIGTERM after round ")
    assert line.endswith(f"go on with: {checkpoint.command(tmp_path / 'run')}")
    assert not psutil.wait_procs(workers, timeout=10)[1]
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize("when", ["hog", pytest.param("predict", marks=pytest.mark.slow)])
def test_a_scheduler_lost_before_any_round_is_told_with_what_to_do(call, monkeypatch, tmp_path, when):
    """In HoG there is no checkpoint to go on from; predict has none ever."""
    from pipeline.scale import dask_predict
    from pipeline.scale.dask_crew import Crew

    if when == "predict":
        status, _, err = call("train", *WORDS, *MADE, "classifier.n_rounds=2", "hydra.run.dir=model")
        assert status == 0, err
    with dask_runs.scheduler(tmp_path) as (running, address), dask_runs.started(address, 1):
        read, label = Crew.read, dask_predict.label

        def losing(self):
            running.kill()
            yield from read(self)

        def losing_parts(cluster, *arguments):
            running.kill()
            yield from label(cluster, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Crew, "read", losing)
            patch.setattr(dask_predict, "label", losing_parts)
            here = ["scale=dask", f"scale.scheduler={address}", "scale.wait=20", "hydra.run.dir=run"]
            if when == "hog":
                status, _, err = call("train", *WORDS, *MADE, *here)
            else:
                status, _, err = call(
                    "predict", "model=model/model.npz", "data=synthetic", "data.n=400", *here
                )
    assert status == 2
    [line] = told(err)
    assert f"the Dask scheduler {address} was lost (" in line
    end = "; no checkpoint was written yet: give the same command again" if when == "hog" else ""
    assert line.endswith("); start it and its workers again" + end)


def test_a_worker_lost_while_it_tells_its_versions_is_no_lost_scheduler(monkeypatch):
    """Seen when workers were killed at random: the worker's connection closes, the scheduler is there."""
    with dask_runs.connected(2) as cluster:
        run = cluster.client._run

        async def lossy(*arguments, **more):
            found = await run(*arguments, **more)
            return {
                place: CommClosedError("Stream is closed") if i == 0 else one
                for i, (place, one) in enumerate(found.items())
            }

        async def ignorant(*arguments, **more):
            return dict.fromkeys(
                await run(*arguments, **more), ModuleNotFoundError("No module named 'pipeline'")
            )

        from distributed.comm import CommClosedError

        monkeypatch.setattr(cluster.client, "_run", lossy)
        assert cluster.check_versions() == []
        monkeypatch.setattr(cluster.client, "_run", ignorant)
        with pytest.raises(ClusterError, match="cannot import this program"):
            cluster.check_versions()


# ---- names that lead elsewhere ----


@pytest.mark.parametrize("scale", [["scale=outofcore"], THREADS], ids=["outofcore", "dask"])
def test_names_in_a_packed_set_lead_nowhere(call, tmp_path, monkeypatch, scale):
    """Names of pictures are words, not places: nothing is written outside of the run folder and out=."""
    cfg = dask_runs.settings("subspace", "float32", 60, 3)
    images = dask_runs.pictures(cfg)
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    names = [f"../../x{i}" for i in range(30)] + [str(tmp_path / f"y{i}") for i in range(30)]
    arrays = {"images": images.pixels, "labels": images.labels, "classes": np.array(images.class_names)}
    np.savez("set.npz", **arrays, files=np.array(names))
    size = ["image.height=16", "image.width=32", "hog.cells_per_block=[2,2]"]
    words = [*WORDS[4:], *scale, "data.path=set.npz"]
    status, _, err = call("train", *words, *size, "classifier.n_rounds=2", "hydra.run.dir=run")
    assert status == 0, err
    words = [word for word in scale if word != "scale=outofcore"] + ["data.path=set.npz"]
    status, _, err = call("predict", *words, "model=run/model.npz", "out=labels", "hydra.run.dir=told")
    assert status == 0, err
    assert os.listdir(tmp_path) == ["a"]
    assert os.listdir(tmp_path / "a") == ["b"]
    assert sorted(os.listdir(here)) == ["labels", "run", "set.npz", "told"]
    assert "../../x0" in "".join(
        path.read_text() for path in [*here.glob("labels/*"), here / "labels"] if path.is_file()
    )


# ---- mistakes ----


def test_without_dask_the_command_that_installs_it_is_told(call, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "dask" else find(name, *more)
    )
    status, _, err = call("train", *WORDS, "scale=dask", "data.path=nowhere")
    assert status == 2
    assert err.count("\n") == 1
    assert f"dask and distributed: {installing.command('hogboost[dask]')}; or leave scale=dask out" in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["scale.scheduler=tcp://127.0.0.1:1"], "no Dask scheduler can be reached there"),
        (["scale.scheduler=nonsense://somewhere"], "no Dask scheduler can be reached there"),
        (["scale.scheduler=foo"], "no host with a port of 1 to 65535; expected tcp://HOST:PORT, tls://"),
        (["scale.scheduler=tcp://127.0.0.1:99999"], "no host with a port of 1 to 65535"),
        (["scale.scheduler='tcp://a..b:1'"], "no Dask scheduler can be reached there"),
        (["scale.scheduler=http://127.0.0.1:1"], "addresses http:// cannot be used here"),
        (["scale.scheduler=inproc://x/1/1"], "inproc is for one process"),
        (["scale.scheduler=tls://127.0.0.1:1"], "tls:// needs certificates: give scale.tls_ca="),
        (
            [
                "scale.scheduler=tls://127.0.0.1:1",
                "scale.tls_ca=photos/a/00.png",
                "scale.tls_cert=photos/a/00.png",
            ],
            "scale.tls_ca=photos/a/00.png scale.tls_cert=photos/a/00.png: cannot be used to encrypt (",
        ),
        (["scale.tls_ca=missing.pem"], "scale.tls_ca=missing.pem: no such file"),
        (["scale.tls_ca=photos/a/00.png"], "is for a cluster that is there; give its scale.scheduler=tls://"),
        (["scale.scheduler=tls://127.0.0.1:1", "scale.tls_key=photos/a/00.png"], "give scale.tls_cert=, too"),
        (["classifier.trim=0.1"], "classifier.trim=0.1 needs the weights of all images"),
        (
            ["reduce=pca"],
            "reduce=pca finds its components in the features of all images at once, which scale=dask",
        ),
        (["backend=reference"], "scale=dask works with backend=cpu or gpu"),
        (["backend=gpu", "scale.processes=true"], installing.command("dask-cuda")),
        (["scale.memory_limit=400MB"], "limit is 400 MB; give"),
        (["data=folder", "data.path=nowhere"], "no such folder"),
    ],
)
def test_mistakes_are_told_in_one_line(call, photos, words, part):
    begin = time.monotonic()
    status, _, err = call("train", *WORDS, *with_effect(words), "scale.wait=1", *words)
    assert status == 2
    assert err.count("\n") == 1, err
    assert part in err
    assert time.monotonic() - begin < 20  # nobody waits for what is not there: scale.wait is a second


def test_a_scheme_whose_package_is_missing_is_told(call, photos):
    from distributed.comm import registry

    class Removed:
        def get_connector(self):
            raise TypeError("abstract")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.backends, "ucx", Removed())
        status, _, err = call("train", *WORDS, *MADE, *THREADS[:1], "scale.scheduler=ucx://127.0.0.1:3")
    assert status == 2
    assert err.count("\n") == 1, err
    assert "addresses ucx:// cannot be used here; expected tcp://HOST:PORT" in err


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "says",
    [
        b"",
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", marks=SLOW),
        pytest.param(bytes(4096), marks=SLOW),
        pytest.param(b"\1" + bytes(7), marks=SLOW),
    ],
)
def test_what_is_no_scheduler_is_given_up_after_the_wait_and_the_program_ends(photos, says):
    """A port that accepts connections and says nothing, or nothing that a scheduler says; in a program of its own."""
    heard = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed: the test is over
                return
            heard.append(connection)
            connection.sendall(says)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        address = f"scale.scheduler=tcp://127.0.0.1:{server.getsockname()[1]}"
        words = ["train", *WORDS, *MADE, "scale=dask", "scale.wait=1", address]
        command = [sys.executable, "-m", "pipeline", *words]
        run = subprocess.run(
            command, cwd=photos, check=False, capture_output=True, text=True, env=environment(), timeout=100
        )
        server.shutdown(socket.SHUT_RDWR)
    for connection in heard:
        connection.close()
    assert heard
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1, run.stderr
    assert f"{address}: no Dask scheduler can be reached there (" in run.stderr
    assert says or "nothing that a scheduler says within 1 s" in run.stderr


@pytest.mark.slow
def test_a_scheduler_that_does_not_know_this_program_is_told(tmp_path):
    with (
        dask_runs.scheduler(tmp_path, knows=False) as (_, address),
        dask_runs.started(address, 1),
        dask_cluster.connected(dask_runs.scale(scheduler=address, wait=60.0), "cpu") as cluster,
        pytest.raises(ClusterError, match="cannot import this program"),
    ):
        cluster.check_versions()


def test_a_cluster_without_workers_is_told():
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, processes=False, dashboard_address=None, silence_logs=50) as empty:
        settings = dask_runs.scale(scheduler=empty.scheduler_address, wait=0.5, workers=3)
        wanted = "has 0 workers of scale.workers=3 after"
        with pytest.raises(ClusterError, match=wanted), dask_cluster.connected(settings, "cpu"):
            pass
        settings = dask_runs.scale(scheduler=empty.scheduler_address, wait=0.5)
        with (
            pytest.raises(ClusterError, match=r"has 0 workers after scale\.wait=0\.5 seconds; start some"),
            dask_cluster.connected(settings, "cpu"),
        ):
            pass


# ---- the commands ----


def test_train_writes_what_local_writes_and_predict_labels_in_parts(call, photos, monkeypatch):
    from pyarrow import parquet

    from pipeline.scale import dask_predict

    label = dask_predict.label

    def leaving(cluster, found, labelling, number):
        """A worker is killed while it writes: its half file stays."""
        Path(labelling.out, ".part-00001.csv.abc.part").write_text("half")
        yield from label(cluster, found, labelling, number)

    (photos / "a" / "bad.png").write_bytes(b"no picture")
    (photos / "loose.png").write_bytes(b"beside the folders")
    words = ["train", *WORDS, "data.path=photos", "classifier.n_rounds=4", "classifier.early_stopping=true"]
    status, _, err = call(*words, "hydra.run.dir=local")
    assert status == 0, err
    status, out, err = call(*words, *THREADS, "scale.partitions=5", "hydra.run.dir=apart")
    assert (status, told(err)) == (0, [])
    assert "2 workers, dashboard http" in " ".join(out.split())
    then, now = (json.loads(Path(name, "metrics.json").read_text()) for name in ("local", "apart"))
    assert (then["images"], then["rejected"], then["duplicates"]) == (
        now["images"],
        now["rejected"],
        now["duplicates"],
    )
    assert then["test"]["log_loss"] == pytest.approx(now["test"]["log_loss"], abs=1e-9)
    assert Path("local/rejected.csv").read_text().split() == Path("apart/rejected.csv").read_text().split()
    assert sorted(os.listdir("local")) == sorted(os.listdir("apart"))

    words = ["predict", "model=local/model.npz", "data.path=photos"]
    status, _, err = call(*words, "out=labels.csv")
    assert status == 0, err
    Path("taken").mkdir()
    with files.occupied(Path("taken")):
        status, _, err = call(*words, *THREADS, "out=taken", "hydra.run.dir=second")
    assert (status, "another run is writing into" in err, "give another out=" in err) == (2, True, True)
    with monkeypatch.context() as patch:
        patch.setattr(dask_predict, "label", leaving)
        status, out, err = call(
            *words, *THREADS, "scale.partitions=3", "out=parts", "chunk=7", "hydra.run.dir=csv"
        )
    assert (status, told(err)) == (0, [])
    assert sorted(os.listdir("parts")) == [f"part-0000{i}.csv" for i in range(3)]
    with open("labels.csv") as stream:
        whole = list(csv.reader(stream))
    rows = []
    for path in sorted(Path("parts").iterdir()):
        with path.open() as stream:
            head, *more = csv.reader(stream)
        assert head == whole[0]
        rows += more
    assert rows == whole[1:]
    summary = json.loads(Path("csv/summary.json").read_text())
    assert (summary["images"], summary["rejected"], sum(summary["parts"].values())) == (48, 2, 48)
    status, _, err = call(*words, *THREADS, "format=parquet", "hydra.run.dir=pq")
    assert (status, told(err)) == (0, [])
    table = parquet.read_table("pq/predictions")
    assert sorted(zip(table["path"].to_pylist(), table["label"].to_pylist(), strict=True)) == sorted(
        (row[0], row[1]) for row in whole[1:]
    )
    status, _, err = call(*words, *THREADS, "out=parts")
    assert status == 2
    assert "the folder holds part-0000" in err


# ---- the same under fire ----


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("learner", "before"),
    [("subspace", "from pipeline.scale import dask_ways; dask_ways.FEW = 0"), ("random_features", "")],
    ids=["subspace, by tasks", "random_features, straight"],
)
def test_at_least_thirty_kills_leave_the_model_as_it_was(learner, before, tmp_path):
    """Workers and the main process are killed at random moments; every model that comes out is the undisturbed one.

    Few workers are asked straight; one of the chains goes by tasks and their tree, as with many workers.
    """
    rng = random.Random(6)
    given = [*WORDS, "data=synthetic", "data.n=6000", "data.classes=4", f"classifier={learner}", "scale=dask",
             "classifier.n_rounds=60", "scale.partitions=4", "checkpoint.rounds=5", "scale.wait=120"]  # fmt: skip
    given += ["classifier.n_components=64"] if learner == "random_features" else []

    def start(*more: str) -> subprocess.Popen:
        log = (tmp_path / "log.txt").open("a")
        return started("train", *more, cwd=tmp_path, before=before, stdout=log, stderr=log)

    kills = runs = 0
    with dask_runs.processes(3) as workers:
        here = f"scale.scheduler={workers.address}"
        assert start(*given, here, "hydra.run.dir=whole").wait(300) == 0
        while kills < 15:
            runs += 1
            folder = f"run{runs}"
            run = start(*given, here, f"hydra.run.dir={folder}")
            while run.poll() is None:
                time.sleep(rng.uniform(0.3, 4.0))
                if run.poll() is not None or kills >= 20:
                    continue
                kills += 1
                if rng.random() < 0.6:
                    workers.kill(rng.randrange(3))
                    workers.start()
                    continue
                run.send_signal(signal.SIGKILL)
                run.wait()
                begun = bool(checkpoint.listed(tmp_path / folder))
                if begun:
                    run = start(f"resume={folder}")
                else:
                    folder += "x"
                    run = start(*given, here, f"hydra.run.dir={folder}")
            assert run.returncode == 0, (tmp_path / "log.txt").read_text()[-3000:]
            assert contents(tmp_path / folder / "model.npz") == contents(tmp_path / "whole" / "model.npz")
    assert kills >= 15  # of each of the two learners
