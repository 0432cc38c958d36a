"""Runs of train that are cut short, by every means, and go on with ``train resume=FOLDER`` to the same model."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline import checkpoint, config, files, interrupts
from pipeline.checkpoint import Keeper
from pipeline.commands import output, train
from tests.programs import started

SMALL = ["image.height=16", "image.width=16", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[2,2]"]
QUIETLY = ["plots=false", "backend.threads=1"]


def contents(path):
    """Return what a model file holds, without the date and the sum over it."""
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    del header["sha256"], header["summary"]["date"]
    return header, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


# ---- in this process ----


def stop_at(monkeypatch, round_number, number=signal.SIGTERM):
    """Let the signal arrive while the given round is at work."""
    original = Keeper.__call__

    def between(self, rounds, take):
        if rounds == round_number:
            assert interrupts.note(number)
        original(self, rounds, take)

    monkeypatch.setattr(Keeper, "__call__", between)


@pytest.fixture
def cut(call, monkeypatch, photos, tmp_path, capsys):
    """Train one model undisturbed in ``whole``, another until a signal comes in round 4 of 6 in ``run``."""

    def make(*settings):
        words = [*SMALL, *QUIETLY, "classifier.n_rounds=6", "data.path=photos", *settings]
        status, _, err = call("train", *words, "hydra.run.dir=whole")
        assert status == 0, err
        with monkeypatch.context() as patch:
            stop_at(patch, 4)
            with pytest.raises(interrupts.Stopped) as told:
                call("train", *words, "checkpoint.rounds=2", "hydra.run.dir=run")
        capsys.readouterr()
        command = checkpoint.command(tmp_path / "run")
        assert told.value.advice == f"after round 4 of 6; go on with: {command}"
        assert [path.stem for path in checkpoint.listed("run")] == ["round_000004", "round_000002"]
        return tmp_path / "run"

    return make


@pytest.fixture
def refused(call):
    """Run a command line that must fail by one line on the error stream; return the line."""

    def run(*arguments):
        status, _, err = call("train", *arguments)
        assert status == 2
        assert err.count("\n") == 1
        return err.rstrip()

    return run


def test_a_run_goes_on_to_the_same_model_and_leaves_nothing_behind(cut, call):
    cut()
    status, out, err = call("train", "resume=run", "backend.threads=2", "chunk=7", "checkpoint.every=0")
    assert (status, err) == (0, "")
    assert "resuming after round 4 of 6, from " in out
    assert contents("run/model.npz") == contents("whole/model.npz")
    same = "predictions.csv", "rejected.csv"
    assert all(Path("run", name).read_bytes() == Path("whole", name).read_bytes() for name in same)
    assert sorted(set(os.listdir("run"))) == sorted(os.listdir("whole"))
    then, now = (json.loads(Path(name, "metrics.json").read_text()) for name in ("whole", "run"))
    assert (then["test"], then["train_loss"]) == (now["test"], now["train_loss"])
    assert "resuming after round 4 of 6" in Path("run/train.log").read_text()
    assert "checkpoint:\n  every: 60.0\n  rounds: 2\n" in Path("run/config.yaml").read_text()  # as it began


@pytest.mark.parametrize(
    "settings",
    [
        ("classifier=random_features", "classifier.n_components=16", "classifier.gamma=[0.1,1.0]"),
        ("classifier=ridge", "classifier.early_stopping=true", "classifier.patience=1"),
        ("classifier=componentwise", "preprocess=stretch", "classifier.class_weight=balanced"),
        ("data=synthetic", "data.path=null", "data.n=90", "data.classes=2"),
        pytest.param(("data=digits", "data.path=null"), marks=pytest.mark.slow),
        ("scale=outofcore", "scale.memory_limit=4GB"),
    ],
    ids=lambda settings: settings[0],
)
def test_other_learners_and_data(cut, call, settings, monkeypatch):
    if "classifier.early_stopping=true" in settings:  # let its last round be the one that is cut
        settings = (*settings, "classifier.learning_rate=0.02")
    cut(*settings)
    status, _, err = call("train", "resume=run")
    assert (status, err) == (0, "")
    assert contents("run/model.npz") == contents("whole/model.npz")


def test_memory_may_be_another_where_the_model_does_not_depend_on_it():
    scales = {name: checkpoint.harmless("scale.memory_limit", name) for name in config.ScaleName}
    assert scales == {name: name is config.ScaleName.dask for name in config.ScaleName}
    assert checkpoint.harmless("scale.store", config.ScaleName.outofcore)


def test_from_any_folder_and_with_the_images_moved(cut, call, photos, tmp_path, monkeypatch):
    run = cut()
    shutil.copytree(run, tmp_path / "my copy (1)")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # data.path=photos is no path from here
    status, _, err = call("train", f"resume={run}")
    assert (status, err) == (0, "")
    assert contents(run / "model.npz")[1] == contents(tmp_path / "whole" / "model.npz")[1]
    shutil.move(photos, tmp_path / "moved")
    status, _, err = call("train", "resume=../my copy (1)", "data.path=../moved")
    assert (status, err) == (0, "")
    assert contents("../my copy (1)/model.npz")[1] == contents("../whole/model.npz")[1]
    assert not Path("runs").exists()


def test_cut_again_and_again(cut, call, monkeypatch):
    cut()
    for k in (5, 6):
        with monkeypatch.context() as patch:
            stop_at(patch, k)
            with pytest.raises(interrupts.Stopped, match=str(int(signal.SIGTERM))):
                call("train", "resume=run")
    assert call("train", "resume=run")[0] == 0
    assert contents("run/model.npz") == contents("whole/model.npz")


def test_killed_between_the_model_and_its_figures(cut, call, monkeypatch):
    cut()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(output, "write_predictions", killed)
        with pytest.raises(KeyboardInterrupt):
            call("train", "resume=run")
    assert contents("run/model.npz") == contents("whole/model.npz")
    assert call("train", "resume=run")[0] == 0
    assert Path("run/metrics.json").exists()
    assert not Path("run/checkpoints").exists()


OVERRIDES = {
    "classifier.l2=3": "classifier.l2=3.0 would change the model: the run to resume has classifier.l2=1.0",
    "classifier=ridge": "classifier.learner=ridge would change the model",
    "split.seed=1": "split.seed=1 would change the model: the run to resume has split.seed=0",
    "classifier.n_rounds=9": "classifier.n_rounds=9 would change the model",
    "data=digits": "data.name=digits would change the model",
    "hog.pixels_per_cell=[8,8]": "hog.pixels_per_cell=[8, 8] would change the model",
    "experiment=quick": "experiment=quick is a bundle of settings",
    "backend=reference": "backend=reference, but the run to resume works with cpu",
    "hydra.run.dir=other": "a resumed run stays in its folder run; leave hydra.run.dir= out",
    "--multirun": "resume= goes on with one run; leave --multirun out",
    "checkpoint.every=-1": "checkpoint.every must be 0 (off) or a number of seconds",
    "checkpoint.rounds=0": "checkpoint.rounds must be at least 1, or null",
}


def test_what_would_change_the_model_is_refused(cut, refused, call):
    cut()
    for word, words in OVERRIDES.items():
        assert words in refused("resume=run", word), word
    assert not Path("other").exists()
    status, _, err = call("train", "resume=run", "classifier.n_rounds=6", "backend=cpu", "split=holdout")
    assert (status, err) == (0, "")  # what is as it was may be said again
    assert contents("run/model.npz") == contents("whole/model.npz")


def test_folders_that_hold_nothing_to_go_on_from(cut, refused, tmp_path, call):
    run = cut()
    assert "no such folder; give the run folder" in refused("resume=nowhere")
    assert "a file, not a folder" in refused("resume=run/config.yaml")
    assert "holds no config.yaml, so it is no run folder of train" in refused("resume=photos")
    assert f"resume=whole: this run is finished; its model is {Path('whole/model.npz')}" in refused(
        "resume=whole"
    )
    assert "resume= needs a folder" in refused("resume=")
    with files.occupied(run):
        assert "another run is writing into run at this moment" in refused("resume=run")
    assert "already holds model.npz" in refused("hydra.run.dir=whole")
    told = refused("hydra.run.dir=run")
    assert (
        "the run folder run holds checkpoints of a run that was cut short; go on with it: python -m" in told
    )
    kept = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(kept.replace("l2: 1.0", "l2: 2.0"))
    told = refused("resume=run")
    assert (
        "was written with classifier.l2=1.0, but config.yaml of the run folder says classifier.l2=2.0" in told
    )
    for text, words in (("[", ""), ("model: m.npz", "'model'"), ("hog: {orientations: x}", "'x'")):
        (run / "config.yaml").write_text(text)
        told = refused("resume=run")
        assert f"{run / 'config.yaml'} holds no settings of train" in told
        assert words in told
    (run / "config.yaml").write_text(kept)
    shutil.rmtree(run / "checkpoints")
    assert (
        "resume=run: no checkpoint exists yet, the run ended before its first; give its command again"
        in refused("resume=run")
    )
    assert call("train", "--help", "resume=nowhere")[0] == 0


def test_half_a_checkpoint_of_a_run_that_was_killed_before_its_first_is_removed(call, tmp_path):
    half = tmp_path / "run" / checkpoint.FOLDER / ".round_000001.npz.abc.part"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    call("train", "data=digits", "classifier.n_rounds=2", "plots=false", "hydra.run.dir=run")
    assert (tmp_path / "run" / "model.npz").exists()
    assert not half.exists()


def test_evaluate_and_profile_know_nothing_of_it(call):
    for name in ("evaluate", "profile", "plan"):
        status, _, err = call(name, "resume=x")
        assert status == 2
        assert "no setting 'resume'" in err


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "packed"])
def test_images_that_changed_are_named(cut, refused, photos, call, packed):
    if packed:
        height_width = ["image.height=16", "image.width=16"]
        assert call("pack", "data.path=photos", "out=set.npz", *height_width)[0] == 0
        path, where, settings = Path("set.npz"), "set.npz", ("data.path=set.npz",)
    else:
        path, where, settings = photos / "b" / "03.png", "b/03.png", ()
    cut(*settings)
    content, status = path.read_bytes(), path.stat()

    def restore():
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    assert f"{where} has changed since the run began: it is of" in refused("resume=run")
    restore()
    path.write_bytes(content + b" ")
    assert f"{where} has changed since the run began: {len(content)} bytes then" in refused("resume=run")
    path.unlink()
    told = refused("resume=run")
    assert (
        f"{path.absolute()}: no such file" if packed else f"{where} has vanished since the run began"
    ) in told
    restore()
    if not packed:
        (photos / "b" / "new.png").write_bytes(content)
        assert "b/new.png is new since the run began; bring the files back" in refused("resume=run")
        (photos / "b" / "04.png").unlink()
        told = refused("resume=run")
        assert "b/04.png has vanished since the run began (and 1 more)" in told
        return
    assert call("train", "resume=run")[0] == 0
    assert contents("run/model.npz") == contents("whole/model.npz")


def test_pictures_made_otherwise_are_noticed(cut, refused, monkeypatch):
    cut("data=synthetic", "data.path=null", "data.n=90")
    from pipeline.datasets import synthetic

    monkeypatch.setattr(synthetic, "_PATCHES", 7)  # as another version of the program might draw
    assert "data=synthetic: the pictures are not those that the run began with" in refused("resume=run")


def test_another_split_and_other_versions_are_noticed(cut, refused, call, monkeypatch):
    run = cut()
    from pipeline import datasets
    from pipeline.commands import keeping

    monkeypatch.setattr(
        keeping, "software", lambda: {**keeping.checkpoint.newest(run).content[1]["software"], "numpy": "9"}
    )
    with monkeypatch.context() as patch:
        original = datasets.split
        patch.setattr(datasets, "split", lambda *a: datasets.Split(*(part[::-1] for part in original(*a))))
        assert "the images are divided otherwise than when the run began" in refused("resume=run")
    status, out, _ = call("train", "resume=run")
    assert status == 0
    assert f"other versions than the run began with (numpy {np.__version__} -> 9)" in " ".join(out.split())


def test_a_damaged_checkpoint_is_named_and_the_older_one_used(cut, call, refused):
    run = cut()
    new, old = checkpoint.listed(run)
    content = new.read_bytes()
    new.write_bytes(content[:-100])
    shutil.copytree(run, "both")
    status, out, err = call("train", "resume=run")
    assert (status, err) == (0, "")
    flat = " ".join(out.split())
    assert f"the checkpoint {new} is damaged" in flat
    assert "the older one is used" in flat
    assert "resuming after round 2 of 6" in flat
    assert contents("run/model.npz") == contents("whole/model.npz")
    Path("both/checkpoints", old.name).write_bytes(b"")
    told = refused("resume=both")
    assert "round_000004.npz is damaged" in told
    assert "round_000002.npz is damaged" in told
    assert "no other is left to go on from: train anew" in told


def test_a_folder_that_cannot_be_written(cut, refused, call):
    run = cut()
    if os.geteuid() == 0:
        bind = ["mount", "--bind", str(run), str(run)]
        lock = ["mount", "-o", "remount,ro,bind", str(run)]
        if subprocess.run(bind, capture_output=True, check=False).returncode:
            pytest.skip("root writes everywhere, and may not mount a read-only folder here")
        try:
            subprocess.run(lock, capture_output=True, check=True)
            told = refused("resume=run")
        finally:
            subprocess.run(["umount", str(run)], check=True)
    else:
        run.chmod(0o555)
        told = refused("resume=run")
        run.chmod(0o755)
    assert "resume=run: the folder cannot be written (" in told
    assert "resume a copy of it that you may write" in told
    assert call("train", "resume=run")[0] == 0


def test_auto_goes_on_with_the_backend_that_began(cut, call, refused):
    cut("backend=auto")
    status, out, err = call("train", "resume=run")
    assert (status, err) == (0, "")
    assert "backend=auto picked" not in out
    assert contents("run/model.npz") == contents("whole/model.npz")


def test_train_on_a_gpu_goes_on(machine, monkeypatch, tmp_path):
    def settings(name, **more):
        (tmp_path / name).mkdir(exist_ok=True)
        return config.TrainCommand(
            backend=config.Backend(name=config.BackendName.gpu),
            data=config.Data(name=config.DataName.synthetic, n=240, classes=4),
            image=config.Image(16, 16),
            hog=config.Hog(pixels_per_cell=[4, 4], cells_per_block=[2, 2]),
            classifier=config.Classifier(n_rounds=6, early_stopping=True),
            run_dir=str(tmp_path / name),
            plots=False,
            **more,
        )

    train.run(settings("whole"))
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(interrupts.Stopped):
            train.run(settings("run"))
    train.run(settings("run", resume="run"))
    assert contents(tmp_path / "run" / "model.npz") == contents(tmp_path / "whole" / "model.npz")


# ---- processes that are killed ----

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
DIGITS = ["image.height=32", "image.width=32", "hog.cells_per_block=[2,2]", "checkpoint.rounds=1", *QUIETLY]
CHAINS = {
    "subspace": ["classifier.n_rounds=250", "classifier.subspace_size=64"],
    "componentwise": ["classifier=componentwise", "classifier.n_rounds=250"],
    "ridge": ["classifier=ridge", "classifier.n_rounds=60"],
    "full": ["classifier=full", "classifier.n_rounds=60", "classifier.dtype=float64"],
    "random_features": [
        "classifier=random_features",
        "classifier.n_components=96",
        "classifier.n_rounds=150",
    ],
    "out of core": ["scale=outofcore", "classifier.n_rounds=100", "classifier.subspace_size=64"],
    "early stopping": [
        *("classifier=random_features", "classifier.n_components=96", "classifier.n_rounds=400"),
        *("classifier.early_stopping=true", "classifier.patience=20", "classifier.learning_rate=0.5"),
    ],
}


def completed(arguments, cwd):
    process = started("train", *arguments, cwd=cwd)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def await_moment(process, run_dir, moment, delay):
    """Wait for the moment to strike; return False if the process ended before."""
    before = checkpoint.listed(run_dir)[:1]
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() - begin < 120:
        if moment == "writing" and any((run_dir / checkpoint.FOLDER).glob(".*.part")):
            return True
        if moment == "boosting" and checkpoint.listed(run_dir)[:1] != before:
            time.sleep(delay / 8)
            return True
        if moment == "any time" and time.monotonic() - begin > delay:
            return True
        time.sleep(0.0005)
    return False


def killed_until_it_ends(settings, tmp_path, rng, plan, run_dir, longest):
    """Start the run, kill it as planned, each time resume it as a user would; return the number of kills."""
    arguments = [*DIGITS, *settings, f"hydra.run.dir={run_dir}"]
    fresh, kills = list(arguments), 0
    while True:
        process = started("train", *arguments, cwd=tmp_path)
        if kills < len(plan):
            moment, number = plan[kills]
            if await_moment(process, run_dir, moment, rng.uniform(0.5, longest)):
                process.send_signal(number)
                kills += 1
        _, err = process.communicate(timeout=200)
        assert "Traceback" not in err, err
        assert "damaged" not in err
        if process.returncode == 0:
            return kills
        # a signal before the program has taken hold of it, or within generated code, ends Python by itself
        assert process.returncode in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM), err
        told = err.strip().splitlines()[-1] if process.returncode == 128 + signal.SIGTERM else ""
        if (run_dir / "metrics.json").exists():
            return kills
        if checkpoint.listed(run_dir):
            arguments = [f"resume={run_dir}"]
            if (
                told and moment == "boosting"
            ):  # before, the program may not know yet of what it could go on from
                assert told.endswith(f"with: {checkpoint.command(run_dir)}"), told
        elif (run_dir / "config.yaml").exists():
            status, _, words = completed([f"resume={run_dir}"], tmp_path)
            assert status == 2
            assert "no checkpoint exists yet" in words
            arguments = fresh


def survive(settings, tmp_path, seed, plan, longest=6.0):
    """Assert that runs killed as planned, in all, end with the model of an undisturbed one.

    Between start and a kill at any time are at most `longest` seconds.
    """
    whole = tmp_path / "whole"
    status, _, err = completed([*DIGITS, *settings, f"hydra.run.dir={whole}"], tmp_path)
    assert status == 0, err
    rng, left, i = random.Random(seed), list(plan), 0
    while left:
        run_dir = tmp_path / f"run{i}"
        kills = killed_until_it_ends(settings, tmp_path, rng, left, run_dir, longest)
        left, i = left[kills:], i + 1
        assert contents(run_dir / "model.npz") == contents(whole / "model.npz")
        assert not list(run_dir.rglob("*.part"))
        assert not (run_dir / "checkpoints").exists() or kills  # of a run killed while it tidied up
        assert i < 2 * len(plan) + 2  # each run is hit more or less once at least


@needs_signals
@pytest.mark.slow  # 12 s
def test_three_kills(tmp_path):
    plan = [("writing", signal.SIGKILL), ("boosting", signal.SIGTERM), ("any time", signal.SIGKILL)]
    rounds = ["classifier.n_rounds=80", "classifier.subspace_size=64"]  # as many as outlast the first two
    survive(rounds, tmp_path, 0, plan, 3.0)


@needs_signals
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("learner", CHAINS)
def test_kills_at_random_moments(tmp_path, learner):
    """Seven learners and rules, seven kills each: 49."""
    rng = random.Random(learner)
    moments = ["writing", "writing", "boosting", "boosting", "any time", "any time", "any time"]
    rng.shuffle(moments)
    plan = [(moment, rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])) for moment in moments]
    survive(CHAINS[learner], tmp_path, learner, plan)


@needs_signals
@pytest.mark.parametrize(
    ("name", "words"), [("SIGINT", "pipeline: interrupted"), ("SIGTERM", "pipeline: ended by SIGTERM")]
)
def test_a_signal_is_one_line_with_the_command_that_goes_on(tmp_path, name, words):
    number = getattr(signal, name)
    run_dir = tmp_path / "a run"
    settings = [
        *DIGITS,
        "classifier.n_rounds=100000",
        f"hydra.run.dir='{run_dir}'",
        "data=synthetic",
        "data.n=400",
    ]
    reset = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    process = started("train", *settings, cwd=tmp_path, preexec_fn=reset)
    assert await_moment(process, run_dir, "boosting", 0.0)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    last = int(checkpoint.listed(run_dir)[0].stem.removeprefix("round_"))
    told = [line for line in err.splitlines() if not line.startswith("boost ")]
    assert told == [f"{words} after round {last} of 100000; go on with: {checkpoint.command(run_dir)}"]
    assert not list(tmp_path.rglob("*.part"))


@needs_signals
@pytest.mark.slow
def test_a_file_too_large_for_the_disk(tmp_path):
    """Checkpoints fit, the model does not: the system refuses it as a full disk would, and the run goes on later."""
    import resource

    settings = [*DIGITS[:-1], "backend.threads=1", "classifier=componentwise", "classifier.n_rounds=3"]
    settings += [
        "image.width=64",
        "hog.pixels_per_cell=[4,4]",
        "data=synthetic",
        "data.n=200",
        "classifier.dtype=float64",
    ]
    status, _, err = completed([*settings, f"hydra.run.dir={tmp_path / 'whole'}"], tmp_path)
    assert status == 0, err
    size = (tmp_path / "whole" / "model.npz").stat().st_size
    limit = size - 1000
    run_dir = tmp_path / "run"
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))  # noqa: E731
    process = started("train", *settings, f"hydra.run.dir={run_dir}", cwd=tmp_path, preexec_fn=limited)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 2
    told = [line for line in err.splitlines() if line.startswith("pipeline")]
    assert len(told) == 1
    assert f"{run_dir / 'model.npz'} cannot be written: File too large" in told[0]
    assert told[0].endswith(f"then go on after round 3 with: {checkpoint.command(run_dir)}")
    assert not (run_dir / "model.npz").exists()
    assert not list(run_dir.rglob("*.part"))
    status, _, err = completed([f"resume={run_dir}"], tmp_path)
    assert status == 0, err
    assert contents(run_dir / "model.npz") == contents(tmp_path / "whole" / "model.npz")


@pytest.mark.slow
@needs_signals
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system as Linux does")
def test_a_disk_that_is_full(tmp_path):
    """A real one of 700 kB: the checkpoint that does not fit leaves those before it; with more room the run goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(
            "this user may not mount a file system; the same with a limit on file sizes is tested above"
        )
    settings = [
        *DIGITS,
        "classifier.n_rounds=60",
        "data=synthetic",
        "data.n=300",
        "classifier.subspace_size=64",
    ]
    try:
        run_dir = disk / "run"
        status, _, err = completed([*settings, f"hydra.run.dir={run_dir}"], tmp_path)
        assert status == 2
        assert "Traceback" not in err
        assert "Logging error" not in err
        kept = checkpoint.listed(run_dir)
        assert len(kept) == 2
        last = int(kept[0].stem.removeprefix("round_"))
        told = [line for line in err.splitlines() if line.startswith("pipeline")]
        assert len(told) == 1
        assert (
            f"{run_dir}/checkpoints/round_{last + 1:06d}.npz cannot be written: No space left on device"
            in told[0]
        )
        assert told[0].endswith(f"then go on after round {last} with: {checkpoint.command(run_dir)}")
        assert checkpoint.newest(run_dir).damaged == []
        subprocess.run(["mount", "-o", "remount,size=30m", str(disk)], check=True)
        status, _, err = completed([f"resume={run_dir}"], tmp_path)
        assert status == 0, err
        found = contents(run_dir / "model.npz")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    status, _, err = completed([*settings, f"hydra.run.dir={tmp_path / 'whole'}"], tmp_path)
    assert status == 0, err
    assert found == contents(tmp_path / "whole" / "model.npz")
