"""The command line: what may be set, how mistakes are told, and whole runs in a process of their own."""

from __future__ import annotations

import importlib
import io
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipeline import cli, config, interrupts, overrides
from pipeline.commands import COMMANDS, steps
from pipeline.errors import DataError
from pipeline.reporting import help as texts
from tests.conftest import ROOT
from tests.programs import environment, python_m, started

OPTIONS = sorted(p for p in cli.CONF.rglob("*.yaml") if "hydra" not in p.parts and p.parent != cli.CONF)


@pytest.fixture
def fake(monkeypatch):
    """Replace the work of train by a function of the settings."""
    import pipeline.commands.train as command

    def install(work):
        monkeypatch.setattr(command, "run", lambda cfg, stages: work(cfg))

    return install


@pytest.fixture
def composed(register):
    """Return the settings of a command line, checked and composed as for a run: quicker than the command around it."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    def settings(name, *words):
        register(name)
        words = cli.bracketed(name, words)
        overrides.check(name, words, sweep=False, extra=None)
        # as the command line does: a path alone says that the images come from there
        alone = name != "predict" and any(word.startswith("data.path=") for word in words)
        added = ["data=auto"] if alone and not any(word.startswith("data=") for word in words) else []
        with initialize_config_dir(str(cli.CONF), version_base="1.3"):
            found = OmegaConf.to_object(compose(name, [*words, *added, "run_dir=x"]))
        overrides.refuse_unused(name, found, words, sweep=False)
        return found

    return settings


# ---- settings ----


@pytest.mark.parametrize("path", OPTIONS, ids=lambda p: f"{p.parent.name}={p.stem}")
def test_every_option_composes_and_names_a_command_line_that_works(composed, path):
    header = re.search(r"^# python -m pipeline (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert header, f"{path} lacks the comment with the command line that uses it"
    name, *arguments = shlex.split(header[1])
    wanted = f"{path.parent.name}={path.stem}"
    assert isinstance(composed(name, *arguments), config.SCHEMAS[name])
    if path.parent.name != "machine" and (name != "train" or wanted not in arguments):
        assert isinstance(composed("train", wanted), config.Train)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_examples_that_work(call, composed, name):
    status, out, _ = call(name, "--help")
    assert status == 0
    assert ("must hold no model yet" in out) == (name == "train")
    for key in config.keys(config.SCHEMAS[name]):
        if "." in key:
            shown = key.partition(".")[0] not in overrides.lacking(name)
            assert (f"\n  {key} " in out) is shown
    assert len(COMMANDS[name].examples) >= 3
    for example in COMMANDS[name].examples:
        assert f"python -m pipeline {name} {example}".rstrip() in out
        words = [word for word in shlex.split(example) if not word.startswith("-")]
        if "--multirun" not in example:
            assert composed(name, *words)


def test_defaults_of_the_files_are_those_of_the_schema(call, fake):
    seen = []
    fake(seen.append)
    call("train")
    found = seen[0]
    expected = config.TrainCommand(run_dir=found.run_dir)
    assert found == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_every_setting_has_a_description(name):
    rows = list(texts.settings(config.SCHEMAS[name], {}))
    assert [key for key, _, remark in rows if not re.sub(r"(; )?one of .*", "", remark)] == []


@pytest.mark.parametrize(
    ("words", "times"),
    [(["hydra.verbose=false"], 1), (["-m", "split.seed=1"], 3), (["hydra.mode=RUN"], 2)],
    ids=["run", "sweep", "mode named"],
)
def test_settings_are_composed_once_a_run_unless_a_mode_is_named(call, fake, monkeypatch, words, times):
    """A sweep composes its own settings once, and those of each job twice."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.hydra import Hydra

    composed, load, mode = [], ConfigLoaderImpl.load_configuration, Hydra.get_mode
    monkeypatch.setattr(
        ConfigLoaderImpl,
        "load_configuration",
        lambda self, *given, **more: composed.append(given) or load(self, *given, **more),
    )
    fake(lambda cfg: None)
    assert call("train", *words)[0] == 0
    assert len(composed) == times
    assert Hydra.get_mode is mode


def test_an_empty_setting_is_seen(call):
    assert re.search(r"\n  machine.source +'' +whose datasheet the figures", call("plan", "--help")[1])


def test_help_shows_the_composed_values(call):
    out = call("train", "--help", "classifier=ridge", "image.height=7")[1]
    assert re.search(r"classifier.learner +ridge", out)
    assert re.search(r"image.height +7", out)
    assert re.search(r"classifier +componentwise, full, random_features, ridge, subspace", out)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['pipeline', '--help']\n"
        "from pipeline.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n"
        "    heavy = 'hydra omegaconf numpy numba scipy sklearn skimage matplotlib rich PIL yaml'.split()\n"
        "    print(end.code, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 []\n")
    assert "usage: python -m pipeline COMMAND" in done.stdout


def test_settings_reach_the_command(call, fake, tmp_path):
    seen = []
    fake(seen.append)
    call(
        "train",
        "--multirun",
        "backend=reference",
        "backend.threads=2",
        "image.fit=pad",
        "classifier.l2=1e-3,2",
    )
    assert [cfg.classifier.l2 for cfg in seen] == [1e-3, 2.0]
    assert (seen[0].backend.name, seen[0].backend.threads) == (config.BackendName.reference, 2)
    assert seen[0].image.fit is config.Fit.pad
    run_dir = Path(seen[0].run_dir)
    assert run_dir.is_relative_to(tmp_path / "runs" / "train-sweep")
    assert "threads: 2" in (run_dir / "config.yaml").read_text()


def test_a_path_alone_means_that_the_images_come_from_there(call, fake):
    seen = []
    fake(seen.append)
    call("train", "data.path=photos")
    call("train", "data=packed", "data.path=photos.npz")
    assert [cfg.data.name.name for cfg in seen] == ["auto", "packed"]


@pytest.mark.parametrize(
    "value",
    [
        "photos (1)",
        "it's [here]",
        "a,b",
        "x=y",
        "größe 画像",
        "back\\slash",
        "end\\",
        "a\\'b",
        "50%",
        "{1}",
        "null x",
        "1",
        "@home",
    ],
)
def test_any_file_name_is_taken_as_it_is(call, fake, value):
    seen = []
    fake(seen.append)
    assert call("train", f"data.path={value}")[0] == 0
    assert seen[0].data.path == value


@pytest.mark.parametrize(
    "value", [r"^(.*)_[0-9]+\.ppm$", r"(\d{5})_\d{5}", "a|b", r"[^/]+\\", "(?P<track>x)"]
)
def test_any_regular_expression_is_taken_as_it_is(call, fake, value):
    seen = []
    fake(seen.append)
    assert call("train", f"split.group_by={value}")[0] == 0
    assert seen[0].split.group_by == value


# ---- mistakes ----

MISTAKES = {
    "trian": "no command 'trian'. Did you mean 'train'?",
    "train clasifier=ridge": "no setting 'clasifier'. Did you mean 'classifier'?",
    "train classifier.nrounds=3": "no setting 'classifier.nrounds'. Did you mean 'classifier.n_rounds'?",
    "train +bakend=gpu": "no setting 'bakend'. Did you mean 'backend'?",
    "train ++classifier.x=3": "no setting 'classifier.x'",
    "train ~clasifier": "no setting 'clasifier'",
    "train backend=gpus": "no option 'gpus' for backend; choose one of: auto, cpu, gpu, reference. Did you mean 'gpu'?",
    "train experiment=quik": "Did you mean 'quick'?",
    "train image=null": "no option 'null' for image",
    "train preprocess={name:clahe}": "no option '{'name': 'clahe'}' for preprocess",
    "train -m hog=dalal,dalla": "no option 'dalla' for hog",
    "train classifier.learner=foo": "classifier.learner: Invalid value 'foo', expected one of [full, ridge",
    "train classifier.n_rounds=abc": "classifier.n_rounds: Value 'abc'",
    "train classifier.n_rounds=0": "classifier.n_rounds must be at least 1, not 0",
    "train hog.block_norm=L3": "hog.block_norm must be one of L1, L1-sqrt, L2, L2-Hys, not 'L3'",
    "train hog.pixels_per_cell=8": "expected two numbers in brackets: write hog.pixels_per_cell=[8,8]",
    "train classifier.gamma=1": "write classifier.gamma=[0.1,1.0]",
    "train classifier.n_rounds=null": "classifier.n_rounds: null is not possible",
    "train classifier.n_rounds=1.5": "classifier.n_rounds: Value '1.5' is not a whole number",
    "train classifier.l2=much": "classifier.l2: Value 'much' is not a number",
    "train plots=perhaps": "plots: Value 'perhaps' is not true or false",
    "train classifier.class_weight={a:1}": "classifier.class_weight: expected a single value",
    "train classifier.l2=inf": "classifier.l2 must be from 0 to 1e12, not inf",
    "train classifier.z_max=inf": "classifier.z_max must be above 0 and at most 1e6, not inf",
    "train classifier.gamma=[1e308,1e308]": "classifier.gamma must be two numbers above 0 and at most 1e6",
    "train classifier.n_rounds=100000000": "classifier.n_rounds must be at most 1,000,000",
    "train classifier.n_components=10000000": "classifier.n_components must be at most 65,536",
    "train classifier.subspace_size=1000000000000": "classifier.subspace_size must be at most 65,536",
    "train hog.orientations=1000000": "hog.orientations must be at most 3,600",
    "train hog.cells_per_block=[1,100000]": "hog.cells_per_block must be two numbers of at least 1 and at most 16384",
    "train preprocess.sigma=1e9": "preprocess.sigma must be from 0 to 1000 pixels",
    "train preprocess.sigma=nan": "preprocess.sigma must be from 0 to 1000 pixels",
    "train data.n=1000000000000": "data.n must be at most 100,000,000",
    "train data.classes=100000": "data.classes must be at most 65,536",
    "train backend.threads=1000000": "backend.threads must be 0 (every core)",
    "train split=folds": "use: python -m pipeline evaluate split.folds=5",
    "train split.folds=3": "use: python -m pipeline evaluate split.folds=3",
    "train run_dir=x": "no setting 'run_dir'",
    "predict model=/dev/zero data=digits": "/dev/zero is a device or pipe, not a model file",
    "evaluate split.folds=2 data=packed data.path=/dev/zero": "/dev/zero",
    "predict model=m.npz data.path=x chunk=0": "chunk must be at least 1",
    "train hog.pixels_per_cell=[8,0]": "hog.pixels_per_cell must be two numbers of at least 1",
    "train classifier=ridge,full": "several values in 'classifier=ridge,full' need --multirun",
    "train +image.height=3": "image.height exists already; write it without the +",
    "train hydra.rn=x": "Key 'rn' not in 'HydraConf'",
    "train --data.path x": "no flag '--data.path'. Settings are key=value without dashes: data.path=...",
    "train --mutlirun": "no flag '--mutlirun'. Did you mean '--multirun'?",
    "train --cfg": "--cfg needs one of job, hydra, all",
    "train --cfg nope": "--cfg needs one of job, hydra, all, not 'nope'",
    "train -i x": "-i needs one of all, config, defaults",
    "train --config-dir": "--config-dir needs a value behind it",
    "train --resolve": "--resolve goes with --cfg",
    "train -r -m": "--run and --multirun exclude each other",
    "train --cfg job -m": "--cfg and --multirun exclude each other",
    "train hydra/launcher=nope": "Could not find 'hydra/launcher/nope'",
    "train ~plots": "'~plots': a setting cannot be taken away; give it another value: plots=...",
    "train ~classifier": "'~classifier': a setting cannot be taken away",
    "train +experiment=quick": "experiment exists already; write it without the +",
    "train hog.pixels_per_cell=(8,8)": "a list is written in square brackets: hog.pixels_per_cell=[8,8]",
    "train data.path=~nosuchuser/photos": "data.path=~nosuchuser/photos: no such file or folder",
    "train data=digits scale=outofcore scale.memory_limit=2GB scale.store=~nosuchuser/x": "~nosuchuser is no user",
    "predict model=~nosuchuser/m.npz data=digits": "~nosuchuser/m.npz does not exist",
    f"train data.path={'x' * 300}": "xxx...: cannot be read: File name too long",
    f"predict model={'x' * 300} data=digits": "xxx...: File name too long",
    f"predict model=m.npz data=digits out={'x' * 300}": "xxx...: File name too long",
    f"pack data=digits out={'x' * 300}.npz": "xxx...: File name too long",
    f"train hydra.run.dir={'x' * 300}": "xxx...: File name too long",
    "train digits": "'digits' is not of the form key=value: write data=digits.",
    "train my_folder": "'my_folder' is not of the form key=value: write data.path=my_folder if the images lie there.",
    "train none": "write preprocess=none or reduce=none.",
    "predict m.npz": "write data.path=m.npz if the images lie there, and model=m.npz if it is a model.",
    'train ""': "'' is not of the form key=value. See: ",
    'train "data.path=\'a"': "put such a value in two pairs of quotes: \"data.path='\\'a'\"",
    "train \"data.path='\\\\'a'\"": "data.path='a: no such file or folder",
    "doctor my_folder": "'my_folder' is not of the form key=value. See: ",
    "train data=some/photos": "data=some/photos: data= chooses among auto, digits, folder, packed, synthetic; where "
    "the images lie is said with data.path=some/photos",
    "train data=photos.npz": "is said with data.path=photos.npz",
    "train data=foldr": "no option 'foldr' for data; choose one of: auto, digits, folder, packed, synthetic. Did you",
    "train data=packed": "data=packed needs data.path: give the packed set, as in data.path=photos.npz",
    "profile data.path=nowhere advice=false": "data.path=nowhere: no such file or folder",
    "train data=synthetic data.n=12": "class 'class2' has 1 picture, split.test=0.2 needs at least 5 pictures of each "
    "class: give more with data.n=, fewer classes with data.classes=, or change the setting",
    "evaluate data=synthetic data.n=12 split.folds=5": "give more with data.n=, fewer classes with data.classes=, or",
    "train data=synthetic data.n=12 scale=outofcore": "give more with data.n=, fewer classes with data.classes=, or",
    "train data=synthetic data.n=30": "at least one picture of each class: give more with data.n= or change the share",
    "train split.test=0.001": "at least one picture of each class: change the share",
    "train classifier.l2=(3": "cannot read 'classifier.l2=(3'",
    "train data=folder": "data=folder needs data.path",
    "train data.path=nowhere": "data.path=nowhere: no such file or folder",
    "train data=digits data.path=x": "data=digits reads no files",
    "train data.path=${oc.env:NO_SUCH_NAME}": "NO_SUCH_NAME",
    "train image.height=4": "image and hog do not fit: images of 4 rows and 100 cols",
    "train hydra.run.dir=/dev/null/x": "the run folder cannot be written",
    "train -m hydra.sweep.dir=/dev/null/x image.height=1,2": "the run folder cannot be written",
    "predict hog=dalal": "predict has no group 'hog': the model fixes the HoG features; leave hog=dalal out",
    "predict image.height=40": "predict has no group 'image': the model fixes the size of the images; leave "
    "image.height=40 out",
    "predict +preprocess.name=clahe": "the model fixes the preprocessing; leave preprocess.name=clahe out",
    "predict split=folds": "predict has no group 'split': that is for train, evaluate, profile and plan; leave "
    "split=folds out",
    "evaluate scale=outofcore": "evaluate has no group 'scale': it works in memory, where train can do without "
    "(predict labels any number of images, chunk by chunk); leave scale=outofcore out",
    "evaluate +scale=outofcore": "chunk by chunk); leave scale=outofcore out",
    "evaluate ++scale=dask": "evaluate has no group 'scale'",
    "evaluate ~scale": "evaluate has no group 'scale'",
    "evaluate scale.workers=2": "evaluate has no group 'scale'",
    "train +machine=h200": "train has no group 'machine': that is for plan; leave machine=h200 out",
    "doctor data=digits": "doctor has no group 'data': that is for train, predict, evaluate, profile, pack and plan",
    "train learner=componentwise": "Did you mean 'classifier=componentwise' or 'classifier.learner'?",
    "train learner=boosted": "Did you mean 'classifier.learner'?",
    "train rounds=5": "Did you mean 'checkpoint.rounds' or 'classifier.n_rounds'?",
    "train seed=5": "Did you mean 'data.seed' or 'split.seed'?",
    "train classifier.height=5": "Did you mean 'image.height'?",
    "profile memory=1MB": "memory must be a size of at least 100MB, such as 800MB or 16GB, or null, not '1MB'",
    "train classifier.n_rounds=2.5e0": "classifier.n_rounds: Value '2.5' is not a whole number",
    "train classifier.n_rounds=1e30": "classifier.n_rounds: Value '1e+30' is not a whole number",
    "predict": "model must be given: model=...",
    "predict model=absent.npz data=digits": "absent.npz does not exist",
    "evaluate": "evaluate needs model=",
    "evaluate model=m.npz split.folds=3": "exclude each other",
    "evaluate split.folds=1": "split.folds must be 0 (off) or at least 2",
    "pack data.path=x": "out must be given",
    "doctor model=x": "no setting 'model'",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_in_one_line(told, line):
    assert MISTAKES[line] in told(*shlex.split(line))


def test_whole_numbers_may_have_exponents(call, fake):
    """Hydra makes 1e3 a float, which no count can be."""
    seen = []
    fake(seen.append)
    words = ["classifier.n_rounds=1e3", "data=synthetic", "data.n=2.5E+2", "chunk=64.0", "classifier.l2=1e1"]
    assert call("train", *words) == (0, "", "")
    found = seen[0]
    assert (found.classifier.n_rounds, found.data.n, found.chunk) == (1000, 250, 64)
    assert found.classifier.l2 == 10.0
    assert call("train", "-m", "classifier.n_rounds=1e1,20,3e1")[0] == 0
    assert [one.classifier.n_rounds for one in seen[1:]] == [10, 20, 30]


def test_help_shows_no_settings_of_a_group_that_the_command_lacks(call):
    assert "scale." in call("train", "--help")[1]
    assert "scale." not in call("evaluate", "--help")[1]


def test_a_fault_of_the_program_keeps_its_traceback(call, fake):
    def fault(_):
        raise ValueError("no user's mistake")

    fake(fault)
    with pytest.raises(ValueError, match="no user's mistake"):
        call("train")


def test_out_of_memory_is_one_line_with_the_settings_of_the_command(told, monkeypatch):
    def full(*_):
        raise MemoryError("Unable to allocate 12.1 GiB")

    for name, remedy in (("train", "hog=coarse"), ("predict", "chunk=128"), ("pack", "image.height")):
        monkeypatch.setattr(importlib.import_module(f"pipeline.commands.{name}"), "run", full)
        line = told(name, *(["model=m"] if name == "predict" else ["out=x"] if name == "pack" else []))
        assert "out of memory (Unable to allocate 12.1 GiB)" in line
        assert remedy in line
        assert ("chunk" in line) == (name == "predict")


def test_a_failed_job_does_not_end_the_sweep(call, fake):
    ran = []

    def work(cfg):
        ran.append(cfg.split.seed)
        if cfg.split.seed == 1:
            raise DataError("seed 1 is unlucky")
        return 0.5

    fake(work)
    status, out, err = call("train", "-m", "split.seed=0,1,2", "classifier.n_rounds=0,5", "hog=dalal")
    assert status == 2
    assert ran == [0, 1, 2]  # and the three with n_rounds=0 never began
    lines = [line for line in err.splitlines() if line.startswith("pipeline train: ")]
    assert lines.count("pipeline train: classifier.n_rounds must be at least 1, not 0") == 3
    assert lines.count("pipeline train: seed 1 is unlucky") == 1
    assert "FAILED: seed 1 is unlucky" in out
    assert "hog=dalal" not in out  # common to all jobs


def test_a_folder_of_settings_of_ones_own(call, fake, tmp_path):
    seen = []
    fake(seen.append)
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "ours.yaml").write_text(
        "# @package _global_\nclassifier: {n_rounds: 7}\n"
    )
    assert call("train", "--config-dir", "mine", "experiment=ours")[0] == 0
    assert seen[0].classifier.n_rounds == 7


def test_the_log_keeps_what_the_screen_does_not(call, fake):
    def work(cfg):
        logging.getLogger("pipeline.somewhere").info("a detail")
        logging.getLogger("numba.core").info("noise")
        logging.getLogger("pipeline.somewhere").warning("mind this")
        return cfg.run_dir

    seen = []
    fake(lambda cfg: seen.append(work(cfg)))
    _, out, err = call("train")
    log = (Path(seen[0]) / "train.log").read_text()
    assert "a detail" in log
    assert "mind this" in log
    assert "noise" not in log
    assert (out, err) == ("", "WARNING: mind this\n")


# ---- whole runs in a process of their own ----


def test_train_then_predict_from_another_folder(tmp_path):
    quick = ["experiment=quick", "classifier.n_rounds=10", "backend.threads=1"]
    done = python_m("train", *quick, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Accuracy 9\d\.\d\d % on 360 held-out images", done.stdout)
    for stage in ("start", "read", "split", "hog", "boost", "evaluate", "save"):
        assert re.search(rf"\b{stage} [0-9.]+ m?s", done.stdout)
    done = python_m(
        "predict", "model=run/model.npz", "data=digits", "out=labels.csv", "backend.threads=1", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 1798
    assert sorted(os.listdir(tmp_path)) == ["labels.csv", "run", "runs"]


def test_doctor_writes_nothing(tmp_path):
    done = python_m("doctor", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("cores", "memory", "blas", "numpy", "disk", "backend=gpu", "Advice"):
        assert word in done.stdout
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        # test_resume.py sends these two to a run with checkpoints
        pytest.param("SIGINT", "pipeline: interrupted", marks=pytest.mark.slow),
        pytest.param("SIGTERM", "pipeline: ended by SIGTERM", marks=pytest.mark.slow),
        ("SIGHUP", "pipeline: ended by SIGHUP"),
    ],
)
def test_a_signal_is_one_line_and_its_status(tmp_path, name, words):
    number = getattr(signal, name)
    with started(
        "train",
        "backend.threads=1",
        "classifier.n_rounds=100000",
        cwd=tmp_path,
        stdout=None,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # what nohup or a background job ignores
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not list(tmp_path.glob("runs/train/*/rejected.csv")):  # the command is at work
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()  # a test that failed must not leave it at work
    # CPython ends itself by the signal where the interrupt met generated code; a shell shows 130 for both
    assert process.returncode in (128 + number, -number)
    last = err.splitlines()[-1]
    assert last.startswith(words)
    assert "; go on" in last or last.endswith("; no checkpoint was written yet: give the same command again")
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.part"))


def test_half_made_objects_of_the_compiler_are_no_message_after_a_signal(monkeypatch):
    """A signal that met their making left a traceback of their finalizer behind the one line."""
    from llvmlite.binding.ffi import OutputString

    from pipeline import interrupts

    told, handlers = [], {}
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    monkeypatch.setattr(interrupts, "note", lambda number: False)
    monkeypatch.setattr(
        interrupts, "raised", interrupts.Stopped
    )  # leaves nothing for a later stage to raise again
    interrupts.catch_signals()
    problem = type("Problem", (), {"exc_type": AttributeError, "exc_value": AttributeError("_ptr"),
                                   "object": OutputString.__del__})  # fmt: skip
    own = type("Problem", (), {"exc_type": AttributeError, "exc_value": AttributeError("x"), "object": print})
    sys.unraisablehook(problem)
    assert told == [problem]  # no signal yet
    with pytest.raises(KeyboardInterrupt):
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    sys.unraisablehook(problem)
    sys.unraisablehook(own)
    assert told == [problem, own]


@pytest.mark.parametrize("swallow", ["stage", "round"])
def test_a_signal_that_a_library_swallowed_ends_the_run_all_the_same(monkeypatch, tmp_path, swallow):
    """Compilers and finalizers catch everything: what the handler raised is raised again at the next step."""
    from pipeline.commands import rounds
    from pipeline.reporting.stages import Stages

    monkeypatch.setattr(interrupts, "_raised", None)
    interrupts.check()
    interrupts.raised(signal.SIGTERM)  # and nobody saw it
    if swallow == "stage":
        with pytest.raises(interrupts.Stopped) as stopped, Stages()("hog"):
            pytest.fail("the stage has begun")
    else:
        classifier = steps.classifier(config.Classifier(n_rounds=50), "cpu")
        X = np.random.default_rng(0).random((40, 5))
        with pytest.raises(interrupts.Stopped) as stopped:
            rounds.fit(classifier, X, np.arange(40) % 2, None)
    assert stopped.value.number == signal.SIGTERM


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_a_signal_removes_what_is_half_written(tmp_path):
    """predict waits in the middle of its CSV: the temporary file goes, the older CSV stays."""
    (tmp_path / "old.csv").write_text("path,label\n")
    program = (
        "import os, signal; from pipeline import files, interrupts; interrupts.catch_signals()\n"
        "with files.atomic('old.csv') as stream:\n"
        "    stream.write('half'); os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Stopped" in done.stderr
    assert os.listdir(tmp_path) == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "path,label\n"


def test_a_signal_that_a_library_turns_into_another_error_still_ends(call, fake, monkeypatch):
    """OmegaConf, interrupted in a copy, raises an error of its own."""
    fake(lambda cfg: 0.0)
    monkeypatch.setattr(interrupts, "_raised", signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        call("train", "classifier.n_rounds=0")


@pytest.mark.skipif(sys.platform == "win32", reason="closes streams as a POSIX shell does")
@pytest.mark.parametrize(
    "closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "2>&-")), ">&- 2>&-"]
)
def test_closed_streams_end_nothing(tmp_path, closed):
    line = f"{shlex.quote(sys.executable)} -m pipeline pack data=synthetic data.n=20 out=d.npz {closed}"
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    with np.load(tmp_path / "d.npz") as archive:
        assert len(archive["images"]) == 20


def test_a_name_that_the_encoding_lacks_is_shown_as_an_escape(monkeypatch):
    found = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(found, encoding="ascii"))
    cli._prepare_streams()
    print("größe \udcff", flush=True)
    assert found.getvalue() == b"gr\\xf6\\xdfe \\udcff\n"


# ---- scripts and packaging ----


def test_scripts_say_which_python_they_need(tmp_path):
    script = f'source "{ROOT}/scripts/env.sh"; PATH="{tmp_path}"; find_python'
    environment = {k: v for k, v in os.environ.items() if k != "PYTHON"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Python 3.11, 3.12 or 3.13" in done.stderr


def test_scripts_are_executable_and_constraints_name_no_registry():
    for script in ("scripts/run", "scripts/test", ".ci/run"):
        assert os.access(ROOT / script, os.X_OK)
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|@ ", text)


@pytest.mark.slow
def test_a_wheel_works_without_the_checkout(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("hogboost-*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    assert (tmp_path / "site" / "pipeline" / "conf" / "train.yaml").is_file()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "train",
        "experiment=quick",
        "classifier.n_rounds=3",
        "hydra.run.dir=run",
    ]
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        command, cwd=tmp_path / "elsewhere", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere" / "run" / "model.npz").is_file()
