"""Threads and a resumed run: kills with two of them, and what is told when their number is another."""

from __future__ import annotations

import inspect
import random
import signal
import sys
import time
from functools import partial

import numpy as np
import pytest

from pipeline import backends, checkpoint, config
from pipeline.boosting import LogitBoostClassifier
from pipeline.commands import keeping
from tests import test_resume
from tests.programs import started
from tests.test_resume import DIGITS, contents, stop_at, survive

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
TOLD = "the model may differ in its last digits"


def settings(**more):
    return config.Train(**more)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, False),  # 3240 features, but 128 columns in a round
        ({"classifier": config.Classifier(learner=config.Learner.full)}, True),
        ({"classifier": config.Classifier(learner=config.Learner.ridge)}, True),
        ({"classifier": config.Classifier(learner=config.Learner.componentwise)}, False),
        ({"classifier": config.Classifier(learner=config.Learner.random_features)}, False),
        ({"classifier": config.Classifier(learner=config.Learner.random_features, n_components=800)}, True),
        ({"classifier": config.Classifier(learner=config.Learner.full), "image": config.Image(16, 32),
          "hog": config.Hog(cells_per_block=[2, 2])}, False),
        ({"reduce": config.Reduce(name=config.ReduceName.pca)}, True),
    ],
)  # fmt: skip
def test_who_depends_on_threads(changed, told):
    assert keeping._by_threads(settings(**changed), "cpu") is told
    assert keeping._by_threads(settings(**changed), "reference")
    assert not keeping._by_threads(settings(**changed), "gpu")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "learner",
    [
        "ridge",
        *(pytest.param(one, marks=SLOW) for one in ("subspace", "full", "componentwise", "random_features")),
    ],
)
def test_one_and_two_threads_give_the_same_bits_to_small_systems(learner):
    """At most 768 columns a round: whole fits in both types; what is told above says that no more are equal."""
    rng = np.random.default_rng(0)
    codes = np.arange(1500) % 4
    X = rng.normal(size=(1500, 120)) + 0.3 * codes[:, None] * (np.arange(120) % 4 == 0)
    given = {"learner": learner, "n_rounds": 3, "subspace_size": 40, "n_components": 96, "random_state": 0}
    for dtype in ("float32", "float64"):
        found = []
        for threads in (1, 2):
            with backends.get("cpu").threads(threads):
                model = LogitBoostClassifier(**given, dtype=dtype).fit(X.astype(dtype), codes)
            found.append((model.state()[0], model.train_loss_))
        assert found[0][1] == found[1][1]
        for name, array in found[0][0].items():
            np.testing.assert_array_equal(array, found[1][0][name])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_more_threads_hold_more_gram_matrices_and_give_the_same_bits(dtype, monkeypatch):
    """Of 257 to 768 features two threads hold two Gram matrices at a time, three threads three."""
    from pipeline.backends.cpu import wls_kernels

    rng = np.random.default_rng(1)
    codes = np.arange(800) % 4
    X = (rng.normal(size=(800, 300)) + 0.3 * codes[:, None] * (np.arange(300) % 4 == 0)).astype(dtype)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(wls_kernels, "threads", lambda threads=threads: threads)
        with backends.get("cpu").threads(min(threads, 2)):
            model = LogitBoostClassifier(learner="ridge", n_rounds=2, dtype=dtype).fit(X, codes)
        found.append((model.coef_, model.intercept_, model.train_loss_))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_classes_of_a_request_do_not_depend_on_threads(monkeypatch):
    from pipeline.backends.cpu import wls, wls_kernels

    wanted = [wls.classes_at_once(64, q) for q in (0, 1, 100, 512, 700, 768)]
    assert wanted[-1] >= 7
    monkeypatch.setattr(wls_kernels, "threads", lambda: 64)
    assert [wls.classes_at_once(64, q) for q in (0, 1, 100, 512, 700, 768)] == wanted


@pytest.mark.parametrize("then", [1, pytest.param(None, marks=pytest.mark.slow)], ids=["noted", "not noted"])
def test_another_number_of_threads_is_told_where_it_matters(call, photos, monkeypatch, capsys, then):
    from pipeline import interrupts

    words = ["image.height=36", "image.width=40", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[1,1]",
             "plots=false", "backend.threads=1", "data.path=photos", "classifier=ridge",
             "classifier.n_rounds=3"]  # fmt: skip
    if then is None:  # as written before threads were noted
        whole = keeping.content

        def without(*arguments):
            arrays, header = whole(*arguments)
            return arrays, {key: value for key, value in header.items() if key != "threads"}

        monkeypatch.setattr(keeping, "content", without)
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(interrupts.Stopped):
            call("train", *words, "checkpoint.rounds=1", "hydra.run.dir=run")
    capsys.readouterr()
    status, out, err = call("train", "resume=run", "backend.threads=2")
    assert status == 0, err
    line = f"backend.threads=2, 1 when the run began: {TOLD}; backend.threads=1 gives the same bits"
    assert (line in " ".join(out.split())) is (then is not None)


def test_a_run_out_of_core_goes_on_with_its_blocks(call, monkeypatch, capsys, tmp_path):
    """How long blocks are follows from the limit and what the process holds, which is never the same: it is noted."""
    from pipeline import interrupts
    from pipeline.scale import memory, outofcore

    words = ["image.height=16", "image.width=32", "hog.cells_per_block=[2,2]", "plots=false", "data=synthetic",
             "data.n=6000", "data.classes=3", "classifier.n_rounds=3", "scale=outofcore",
             "scale.memory_limit=4GB"]  # fmt: skip
    division, found = memory.division, []

    def divided(rows):
        def so(budget, work, n):
            return rows, division(budget, work, n)[1]

        return so

    begin = outofcore.Rows.__init__

    def seen(self, *arguments, **more):
        begin(self, *arguments, **more)
        found.append(self.buffers.rows)

    monkeypatch.setattr(outofcore.Rows, "__init__", seen)
    monkeypatch.setattr(memory, "division", divided(1000))
    status, _, err = call("train", *words, "hydra.run.dir=whole")
    assert status == 0, err
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(interrupts.Stopped):
            call("train", *words, "checkpoint.rounds=1", "hydra.run.dir=run")
    capsys.readouterr()
    monkeypatch.setattr(memory, "division", divided(777))  # this process holds more
    status, _, err = call("train", "resume=run")
    assert (status, err) == (0, "")
    assert found == [1000, 1000, 1000]
    assert contents("run/model.npz") == contents("whole/model.npz")
    status, _, err = call("train", *words, "hydra.run.dir=other")
    assert status == 0, err
    assert contents("other/model.npz") != contents("whole/model.npz")  # it would show


@pytest.mark.parametrize("free", [60, 150, 300, 900])
def test_blocks_are_of_round_numbers(free):
    """A little more or less in the process leaves the length of a block, and the bits of sums, as they are."""
    from pipeline.scale import memory

    work = memory.Work(**{
        **dict.fromkeys(inspect.signature(memory.Work).parameters, 0),
        "p": 3240, "q": 128, "classes": 10, "fitted": 10, "item": 4, "kept": 2880, "feature": 4,
        "random": False, "componentwise": False,
    })  # fmt: skip
    found = {
        memory.division(memory.Budget(10**9, 10**9 - memory.MARGIN - free * 10**6 - more), work, 10_000)[0]
        for more in range(0, 10**6, 10**5)
    }
    assert len(found) == 1
    assert found.pop().bit_count() <= 2


# Chunks of 300 images, as under a limit that leaves little; blocks are as long as they get, in every process.
CHUNKED = "from pipeline.scale import memory; memory.chunk_rows = lambda free, kept: 300"
CHUNKS = ["image.height=50", "image.width=100", "data=synthetic", "data.n=4000", "data.classes=3",
          "data.difficulty=0.9", "scale=outofcore", "scale.memory_limit=1GB", "backend.threads=2", "chunk=100",
          "classifier.n_rounds=60", "classifier.subspace_size=64"]  # fmt: skip
LARGE = ["image.height=36", "image.width=40", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[1,1]",
         "data=synthetic", "data.n=1500", "data.classes=2", "data.difficulty=0.9", "classifier=full",
         "backend.threads=2", "classifier.n_rounds=30"]  # fmt: skip


def plan(seed):
    rng = random.Random(seed)
    moments = ["writing", "boosting", "boosting", "any time", "any time"]
    rng.shuffle(moments)
    return [(moment, rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])) for moment in moments]


@needs_signals
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_out_of_core_with_two_threads_and_many_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(test_resume, "started", partial(started, before=CHUNKED))
    process, most = test_resume.started("train", *DIGITS, *CHUNKS, "hydra.run.dir=first", cwd=tmp_path), 0
    while process.poll() is None:
        most = max(most, len(list((tmp_path / "first").glob("chunks/cells-*.bin"))))
        time.sleep(0.02)
    assert process.returncode == 0, process.communicate()[1]
    assert most == 14
    survive(CHUNKS, tmp_path, 1, plan(1))
    assert contents(tmp_path / "first" / "model.npz") == contents(tmp_path / "whole" / "model.npz")


@needs_signals
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_large_systems_on_two_threads(tmp_path):
    """More than 768 columns: factorised on both threads. With the same number the bits are the same."""
    survive(LARGE, tmp_path, 2, plan(2))


def test_the_number_of_threads_may_be_given_to_a_resumed_run():
    assert checkpoint.harmless("backend.threads", config.ScaleName.local)
