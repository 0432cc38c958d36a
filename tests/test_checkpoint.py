"""The state of a fit between two rounds, the file that holds it, and when such a file is written."""

from __future__ import annotations

import itertools
import json
import os
import signal
import types

import numpy as np
import pytest

from pipeline import archive, checkpoint, config, interrupts
from pipeline.boosting import LogitBoostClassifier, loop
from pipeline.boosting.fitting import PROMOTED
from pipeline.checkpoint import Keeper
from pipeline.errors import ClusterError, OutputError, ResumeError

LEARNERS = {
    "subspace": {"subspace_size": 9},
    "ridge": {"l2": 0.5},
    "full": {},
    "componentwise": {},
    "random_features": {"n_components": 24, "gamma": (0.1, 1.0)},
}


def labelled(n, p, J, seed=0, dtype=np.float32):
    """Return features and labels of J overlapping classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % J
    return (rng.normal(size=(J, p))[y] + 1.5 * rng.normal(size=(n, p))).astype(dtype), y


def equal(a, b):
    """Tell whether two fitted models are the same bit for bit."""
    (first, one), (second, other) = a.state(), b.state()
    assert one == other
    assert first.keys() == second.keys()
    for name in first:
        assert first[name].dtype == second[name].dtype
        assert first[name].tobytes() == second[name].tobytes(), name
    return True


def states(model, X, y, **arguments):
    """Fit the model; return its state after each round, as a file would give it back."""
    found = []

    def keep(rounds, take):
        arrays, header = take()
        assert rounds == header["rounds"] == len(found) + 1
        found.append(({name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(header))))

    model.fit(X, y, on_state=keep, **arguments)
    return found


# ---- the state of a fit ----


@pytest.mark.parametrize("J", [2, 10])
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_fit_that_goes_on_equals_the_undisturbed_one(learner, J):
    X, y = labelled(120, 17, J)
    settings = {"learner": learner, "n_rounds": 7, "random_state": 3, **LEARNERS[learner]}
    whole = LogitBoostClassifier(**settings).fit(X, y)
    watched = LogitBoostClassifier(**settings)
    found = states(watched, X, y)
    assert equal(whole, watched)  # to be looked at changes nothing
    assert len(found) == 7
    for state in found:  # the last one, too: no round is left, but the model must come out
        assert equal(whole, LogitBoostClassifier(**settings).fit(X, y, resume_from=state))


@pytest.mark.parametrize("learner", LEARNERS)
def test_in_single_precision_too(learner):
    """Scores are sums of rounded float32 steps: adding the steps up again would not give the same."""
    X, y = labelled(700, 200, 5)
    assert X.size > PROMOTED
    settings = {"learner": learner, "n_rounds": 5, "random_state": 1, **LEARNERS[learner]}
    whole = LogitBoostClassifier(**settings)
    found = states(whole, X, y)
    assert whole.dtype_ == "float32"
    assert found[2][0]["F"].dtype == np.float32
    assert equal(whole, LogitBoostClassifier(**settings).fit(X, y, resume_from=found[2]))


@pytest.mark.parametrize("given", [True, False], ids=["validation set", "cut from the rows"])
def test_early_stopping_ends_at_the_same_round(given):
    """Noise stops it early; the state after the very round that spent the patience must not run another."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(160, 12)), np.arange(160) % 4
    settings = {"learner": "ridge", "n_rounds": 50, "early_stopping": True, "patience": 3, "random_state": 0}
    arguments = {"validation": (X[:40], y[:40])} if given else {}
    rows = slice(40, None) if given else slice(None)
    whole = LogitBoostClassifier(**settings)
    found = states(whole, X[rows], y[rows], **arguments)
    assert whole.stopped_ == "patience"
    assert len(whole.validation_loss_) == len(found) < 50
    for state in found:
        again = LogitBoostClassifier(**settings).fit(X[rows], y[rows], resume_from=state, **arguments)
        assert equal(whole, again)


def test_saturated_scores_and_warm_starts_go_on(monkeypatch):
    monkeypatch.setitem(loop.SCORE_LIMIT, "float64", 12.0)  # 500 takes thousands of rounds
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    y = np.repeat([0, 1], 20)
    settings = {"learner": "full", "n_rounds": 300, "learning_rate": 0.5}
    whole, found = LogitBoostClassifier(**settings), []
    whole.fit(X, y, on_state=lambda k, take: found.append(take()) if k in (1, 6) else None)
    assert whole.stopped_ == "saturated"
    assert len(found) == 2
    for state in found:
        assert equal(whole, LogitBoostClassifier(**settings).fit(X, y, resume_from=state))

    X, y = labelled(90, 6, 3)
    settings = {"learner": "ridge", "warm_start": True, "early_stopping": True, "patience": 40}
    split = {"validation": (X[:30], y[:30])}
    first = LogitBoostClassifier(n_rounds=4, **settings).fit(X[30:], y[30:], **split)
    first.set_params(n_rounds=9)
    found = states_after_four(first, X, y, split)
    again = LogitBoostClassifier(n_rounds=9, **settings).fit(X[30:], y[30:], resume_from=found, **split)
    assert equal(first, again)


def states_after_four(model, X, y, split):
    found = []
    model.fit(X[30:], y[30:], on_state=lambda k, take: found.append(take()) if k == 6 else None, **split)
    return found[0]


def test_weights_and_more_rounds_than_were_planned():
    X, y = labelled(80, 6, 3)
    weight = np.random.default_rng(0).integers(0, 3, 80).astype(float)  # rows of weight 0 are left out
    settings = {"learner": "componentwise", "random_state": 0}
    found = states(LogitBoostClassifier(n_rounds=4, **settings), X, y, sample_weight=weight)
    whole = LogitBoostClassifier(n_rounds=6, **settings).fit(X, y, weight)
    again = LogitBoostClassifier(n_rounds=6, **settings).fit(X, y, weight, resume_from=found[-1])
    assert equal_but_for_params(whole, again)


def equal_but_for_params(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(a.state()[0].values(), b.state()[0].values(), strict=True)
    )


def test_a_state_that_does_not_fit_is_refused():
    X, y = labelled(60, 6, 3)
    state = states(LogitBoostClassifier(learner="ridge", n_rounds=3), X, y)[-1]
    for change, words in (
        ({"l2": 2.0}, "l2=2.0, but the fit to go on with has l2=1.0"),
        ({"n_rounds": 2}, "n_rounds=2, but the fit to go on with has done 3 rounds"),
    ):
        with pytest.raises(ValueError, match=words):
            LogitBoostClassifier(**{"learner": "ridge", "n_rounds": 3, **change}).fit(X, y, resume_from=state)
    model = LogitBoostClassifier(learner="ridge", n_rounds=3)
    with pytest.raises(ValueError, match=r"= \(60, 6, 3, None\), this one has \(59, 6, 3, None\)"):
        model.fit(X[1:], y[1:], resume_from=state)
    with pytest.raises(ValueError, match=r"this one has \(60, 6, 3, 6\)"):
        model.fit(X, y, resume_from=state, validation=(X[:6], y[:6]))


@pytest.mark.parametrize("learner", LEARNERS)
def test_on_a_gpu_the_state_goes_through_get_and_put(machine, gpu, learner):
    X, y = labelled(96, 17, 4)
    settings = {"learner": learner, "n_rounds": 5, "random_state": 3, "backend": "gpu", **LEARNERS[learner]}
    whole = LogitBoostClassifier(**settings)
    found = states(whole, X, y)
    assert all(isinstance(array, np.ndarray) for state in found for array in state[0].values())
    for state in found[1::2]:
        machine.forget()
        again = LogitBoostClassifier(**settings).fit(X, y, resume_from=state)
        assert machine.bytes["h2d"] >= state[0]["F"].nbytes
        assert equal(whole, again)
    on_cpu = LogitBoostClassifier(**{**settings, "backend": "cpu"}).fit(X, y, resume_from=found[1])
    np.testing.assert_allclose(on_cpu.predict_proba(X), whole.predict_proba(X), atol=1e-4)


# ---- the file ----


@pytest.fixture
def state():
    X, y = labelled(60, 6, 3)
    return states(LogitBoostClassifier(n_rounds=3), X, y)[-1]


def kept(tmp_path, **settings):
    keeper = Keeper(str(tmp_path), config.Checkpoint(**settings))
    keeper.content = lambda: ({"data.sizes": np.arange(3)}, {"backend": "cpu"})
    return keeper


def rounds_in(tmp_path):
    return [int(path.stem.removeprefix("round_")) for path in checkpoint.listed(tmp_path)]


def test_the_two_newest_are_kept_and_read_back(tmp_path, state):
    keeper = kept(tmp_path, every=0.0, rounds=10)
    with keeper.watching(100):
        for k in range(1, 46):
            keeper(k, lambda: state)
    assert rounds_in(tmp_path) == [40, 30]
    found = checkpoint.newest(tmp_path)
    assert (found.path.name, found.damaged) == ("round_000040.npz", [])
    assert found.fit[1] == state[1]
    assert all(found.fit[0][name].tobytes() == state[0][name].tobytes() for name in state[0])
    assert found.content[1] == {"backend": "cpu"}
    assert found.content[0]["data.sizes"].tolist() == [0, 1, 2]
    keeper.close()
    assert os.listdir(tmp_path) == []


def spoil(path, how):
    content = path.read_bytes()
    if how == "cut short":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "another file":
        np.savez(path, header=np.frombuffer(b"{}", np.uint8), x=np.zeros(3))
    elif how == "pickle":
        path.write_bytes(b"\x80\x04K\x01.")
    elif how == "checksum":  # a value changed by someone who also mended the archive's own sums
        with np.load(path) as found:
            arrays = dict(found)
        arrays["array.fit.F"][0, 0] += 1
        np.savez(path, **arrays)
    else:
        place = len(content) * int(how.removesuffix("%")) // 100
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


@pytest.mark.parametrize(
    "how", ["cut short", "empty", "another file", "pickle", "checksum", "20%", "50%", "80%"]
)
def test_a_damaged_checkpoint_is_named_and_the_older_one_serves(tmp_path, state, how):
    keeper = kept(tmp_path, every=0.0, rounds=1)
    with keeper.watching(9):
        keeper(1, lambda: state)
        keeper(2, lambda: state)
    spoil(tmp_path / "checkpoints" / "round_000002.npz", how)
    found = checkpoint.newest(tmp_path)
    assert found.path.name == "round_000001.npz"
    assert len(found.damaged) == 1
    assert f"{tmp_path / 'checkpoints' / 'round_000002.npz'} is damaged" in found.damaged[0]
    assert "pickle" not in found.damaged[0]
    again = Keeper(str(tmp_path), config.Checkpoint(every=0.0, rounds=1), found)
    with again.watching(9):
        again(3, lambda: state)
    assert rounds_in(tmp_path) == [3, 1]  # the damaged one is gone, the good one stays
    spoil(tmp_path / "checkpoints" / "round_000001.npz", how)
    spoil(tmp_path / "checkpoints" / "round_000003.npz", how)
    with pytest.raises(ResumeError, match=r"round_000003.*; the checkpoint .*round_000001.* train anew"):
        checkpoint.newest(tmp_path)


def test_every_single_flipped_bit_is_noticed(tmp_path):
    """Of a small file, in each byte: whatever the zip reader does not look at, the checksum covers.

    A bracket turned round in an array's header ended in a traceback: NumPy parses it before any checksum is compared.
    """
    path = tmp_path / "a.npz"
    archive.write(path, {"x": np.arange(3.0)}, {"format": "f"})
    content = path.read_bytes()
    arrays = {"x": np.arange(3.0)}
    unseen = 0
    for place, bit in itertools.product(range(len(content)), (0, 2, 5)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        try:
            found, header = archive.read(path)
        except archive.UNREADABLE:
            continue
        unseen += 1  # a date or a permission in the zip's directory
        assert header == {"format": "f"}
        assert found.keys() == arrays.keys()
        assert found["x"].tobytes() == arrays["x"].tobytes()
    assert unseen < len(content)


def test_a_newer_format_is_said_to_be_newer(tmp_path, state, monkeypatch):
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    keeper = kept(tmp_path, every=0.0, rounds=1)
    keeper(1, lambda: state)
    monkeypatch.undo()
    with pytest.raises(
        ResumeError, match="has checkpoint format 2, this program reads formats up to 1; update"
    ):
        checkpoint.newest(tmp_path)


class FullDisk:
    """A file on a disk with room for a few bytes more."""

    def __init__(self, stream, room):
        self.stream, self.room = stream, room

    def write(self, content):
        self.room -= len(content)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.stream.write(content)

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stream.close()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_disk_that_fills_up_leaves_the_older_ones(tmp_path, state, monkeypatch, share):
    keeper = kept(tmp_path, every=0.0, rounds=1)
    for k in (1, 2):
        keeper(k, lambda: state)
    before = {path: path.read_bytes() for path in checkpoint.listed(tmp_path)}
    room = share * min(map(len, before.values()))
    original = os.fdopen
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda *arguments, **more: FullDisk(original(*arguments, **more), room))
        with (
            pytest.raises(OutputError, match=r"round_000003.npz cannot be written: No space left") as told,
            keeper.telling(),
        ):
            keeper(3, lambda: state)
    assert "\n" not in str(told.value)
    assert str(told.value).endswith(f"then go on after round 2 with: {checkpoint.command(tmp_path)}")
    assert {path: path.read_bytes() for path in checkpoint.listed(tmp_path)} == before
    assert not list(tmp_path.rglob("*.part"))
    keeper(3, lambda: state)
    assert rounds_in(tmp_path) == [3, 2]


def test_a_full_disk_that_a_library_meets_is_told_with_the_way_on(tmp_path, state):
    keeper = kept(tmp_path, every=0.0, rounds=1)
    with pytest.raises(OSError, match="No space"), keeper.telling():
        raise OSError(28, "No space left on device", "x.png")
    keeper(4, lambda: state)
    with (
        pytest.raises(OutputError, match=r"x.png: No space left .* go on after round 4 with"),
        keeper.telling(),
    ):
        raise OSError(28, "No space left on device", "x.png")
    with pytest.raises(FileNotFoundError), keeper.telling():
        raise FileNotFoundError(2, "no such file", "y")


# ---- when one is written ----


def test_a_run_shorter_than_the_interval_writes_nothing_and_asks_for_nothing(tmp_path):
    keeper = kept(tmp_path)
    keeper.content = lambda: pytest.fail("the data were looked at")
    with keeper.watching(1000):
        for k in range(1000):
            keeper(k + 1, lambda: pytest.fail("the state was taken"))
    keeper.close()
    assert os.listdir(tmp_path) == []


def test_by_the_clock(tmp_path, state, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(checkpoint, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    keeper = kept(tmp_path, every=60.0)
    now[0] += 500  # reading and features take their time; only boosting counts
    wrote = []

    def take():
        wrote.append(now[0] - 1500)
        now[0] += 5  # writing takes time, too
        return state

    with keeper.watching(100):
        for k in range(1, 31):
            now[0] += 10
            keeper(k, take)
    assert wrote == [60, 125, 190, 255, 320]


def test_off_means_off(tmp_path):
    keeper = kept(tmp_path, every=0.0)
    with keeper.watching(10):
        assert not interrupts.note(signal.SIGTERM)  # nothing could be saved: end at once
        keeper(1, lambda: pytest.fail("the state was taken"))
    assert os.listdir(tmp_path) == []


def test_the_first_signal_waits_for_the_round_the_second_does_not(tmp_path, state):
    keeper = kept(tmp_path)

    def boost():
        with keeper.watching(50):
            assert interrupts.note(signal.SIGTERM)
            assert not interrupts.note(signal.SIGTERM)
            keeper(7, lambda: state)

    with pytest.raises(interrupts.Stopped) as told:
        boost()
    assert told.value.number == signal.SIGTERM
    assert told.value.advice == f"after round 7 of 50; go on with: {checkpoint.command(tmp_path)}"
    assert rounds_in(tmp_path) == [7]
    assert interrupts.pending() is None
    assert not interrupts.note(signal.SIGTERM)  # outside of boosting nothing waits


def test_a_signal_that_no_round_saw_is_not_lost(tmp_path, state):
    keeper = kept(tmp_path, every=0.0, rounds=1)

    def boost():
        with keeper.telling(), keeper.watching(50):
            keeper(7, lambda: state)
            assert interrupts.note(signal.SIGINT)

    with pytest.raises(interrupts.Stopped) as told:
        boost()
    assert told.value.number == signal.SIGINT
    assert told.value.advice == f"; go on after round 7 with: {checkpoint.command(tmp_path)}"


def test_half_written_files_of_a_killed_run_are_swept_away(tmp_path, state):
    keeper = kept(tmp_path, every=0.0, rounds=1)
    keeper(7, lambda: state)
    for name in (".model.npz.abc.part", "checkpoints/.round_000008.npz.xyz.part"):
        (tmp_path / name).write_bytes(b"half")
    keeper.sweep()
    assert not list(tmp_path.rglob("*.part"))
    assert rounds_in(tmp_path) == [7]


def test_the_command_is_fit_for_a_shell():
    assert checkpoint.command("runs/a") == "python -m pipeline train resume=runs/a"
    assert checkpoint.command("my runs/a") == "python -m pipeline train 'resume=my runs/a'"


def test_who_is_stopped_before_the_first_checkpoint_is_told_what_to_do(tmp_path):
    keeper = checkpoint.Keeper(str(tmp_path), config.Checkpoint())
    with pytest.raises(interrupts.Stopped) as caught, keeper.telling():
        raise interrupts.Stopped(15)
    assert caught.value.advice == "; no checkpoint was written yet: give the same command again"


def test_a_cluster_that_was_never_there_is_told_without_a_word_on_checkpoints(tmp_path):
    for begun, end in (
        (False, "nobody there"),
        (True, "nobody there; no checkpoint was written yet: give the same "),
    ):
        keeper = checkpoint.Keeper(str(tmp_path), config.Checkpoint())
        keeper.begun = begun
        with pytest.raises(ClusterError, match=f"^{end}{'command again' * begun}$"), keeper.telling():
            raise ClusterError("nobody there")
