"""Settings that can have no effect: refused where they were typed, and nowhere else."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from pipeline import config
from pipeline import overrides as module_of_words
from pipeline.errors import ConfigError
from pipeline.groups import unused as module
from pipeline.groups.choices import DataName, Learner, MachineKind, PreprocessName, ScaleName
from pipeline.overrides import refuse_unused
from pipeline.profiling.settings import overrides

REFUSED = {
    "benchmark device=5 suite=layout": "device=5 has no effect with suite=layout: device belongs to suites with rows",
    "train data.n=500": "data.n=500 has no effect with data=digits: data.n belongs to data=synthetic",
    "train data.path=x data.classes=4": "data.classes=4 has no effect with data.path=x: data.classes belongs to",
    "pack data.path=x out=x.npz data.difficulty=1": "data.difficulty=1 has no effect with data=folder",
    "predict model=m data.path=x data.seed=1": "data.seed=1 has no effect with data.path=x",
    "evaluate model=m data.n=500": "data.n=500 has no effect with data=digits",
    "plan data.n=500 images=1000": "data.n=500 has no effect with images=1000",
    "train data=packed data.path=x.npz data.max_rejected=0": "data.max_rejected belongs to data=folder",
    "train data=synthetic data.max_pixels=9": "data.max_pixels belongs to data=folder",
    "train data.workers=2": "data.workers belongs to data=folder and data=synthetic",
    "train data=synthetic image.fit=pad": "image.fit belongs to data=folder and data=digits",
    "train preprocess.sigma=2": "preprocess.sigma=2 has no effect with preprocess=none: preprocess.sigma belongs to "
    "preprocess=gaussian",
    "train preprocess=gaussian preprocess.nbins=9": "belongs to preprocess=equalize and preprocess=clahe",
    "train preprocess=clahe preprocess.percentiles=[1,9]": "belongs to preprocess=stretch",
    "train classifier=ridge classifier.subspace_size=9": "belongs to classifier=subspace",
    "train classifier.n_components=9": "belongs to classifier=random_features",
    "train classifier.gamma=[1,2]": "belongs to classifier=random_features",
    "train classifier=full classifier.l2=3": "belongs to classifier=ridge, subspace and random_features",
    "train classifier=componentwise classifier.l2=3": "classifier.l2=3 has no effect with classifier=componentwise",
    "train classifier.patience=3": "belongs to classifier.early_stopping=true",
    "train split.validation=0.3": "belongs to classifier.early_stopping=true",
    "train classifier.gram_precision=tf32": "has no effect with backend=cpu: classifier.gram_precision belongs to",
    "plan classifier.gram_precision=tf32 classifier.dtype=float64": "belongs to classifier.dtype=float32",
    "train backend.device=1": "backend.device=1 has no effect with backend=cpu",
    "train scale.memory_limit=1GB": "scale.memory_limit=1GB has no effect with scale=local: scale.memory_limit "
    "belongs to scale=outofcore and scale=dask",
    "train scale.partitions=3": "belongs to scale=outofcore and scale=dask",
    "train scale.store=x": "belongs to scale=outofcore",
    "train scale=dask scale.store=x": "scale.store=x has no effect with scale=dask",
    "train scale=outofcore scale.workers=3": "scale.workers=3 has no effect with scale=outofcore",
    "predict model=m data.path=x scale.scheduler=tcp://h:1": "belongs to scale=dask",
    "train scale=dask scale.scheduler=tcp://h:1 scale.threads=3": "belongs to scale=dask without scale.scheduler",
    "predict model=m data.path=x scale=dask backend.threads=1": "has no effect with scale=dask, whose workers have",
    "plan machine=h200 backend=gpu backend.device=3": "backend.device=3 has no effect with machines of a datasheet",
    "profile backend=gpu gpu=t4": "gpu=t4 has no effect with backend=gpu, which is measured",
    "profile scale=outofcore gpu=t4": "gpu=t4 has no effect with scale=outofcore: gpu belongs to scale=local",
    "profile advice=false memory=8GB": "memory=8GB has no effect with advice=false",
    "profile advice=false budget=9": "budget belongs to advice=true, sweep= and compare=",
    "plan machine.bandwidth_gb_s=9": "has no effect with machine=this, which is measured",
    "plan machine=server_amd machine.link_gb_s=9": "machine.link_gb_s belongs to machines that are a GPU",
    "plan machine=[t4,l4] machine.cores=9": "machine.cores=9 has no effect with machines=[t4,l4]",
}

# typed, and of effect, or no mistake of whoever typed it
TAKEN = (
    "train data.n=10000 scale.memory_limit=2GB classifier.gamma=[0.1,0.1]",  # the defaults
    "train scale.memory_limit=null",
    "train data=synthetic data.n=500 data.workers=1",
    "train data.name=synthetic data.n=500",
    "train experiment=accurate classifier.patience=3 classifier.n_components=9",
    "train experiment=accurate classifier.early_stopping=false",  # its patience=15 was not typed
    "train classifier=full classifier.l2=0 split.seed=3 classifier.random_state=7",
    "train classifier.early_stopping=true split.validation=0.3",
    "train backend=auto backend.device=1 classifier.gram_precision=tf32",
    "train data=digits image=pad",
    "train image.fit=pad data.path=x.npz",  # what the path is, the command finds out
    "train scale=dask scale.threads=3 scale.partitions=2",
)


@pytest.mark.parametrize("line", REFUSED)
def test_a_setting_without_effect_is_refused(line, register):
    name, *words = shlex.split(line.replace("machine=[", "machines=["))
    added = ["data=auto"] if any(word.startswith("data.path=") for word in words) and name == "train" else []
    register(name)
    with initialize_config_dir(str(config.CONF), version_base="1.3"):  # quicker than the command line
        cfg = OmegaConf.to_object(compose(name, [*added, *words, "run_dir=x"]))
    with pytest.raises(ConfigError) as refused:
        refuse_unused(name, cfg, words, sweep=False)
    assert REFUSED[line] in str(refused.value)


def test_the_command_line_refuses_it_before_any_work(told):
    assert told("train", "scale.memory_limit=1GB") == (
        "pipeline train: scale.memory_limit=1GB has no effect with scale=local: scale.memory_limit belongs to "
        "scale=outofcore and scale=dask; leave it out, or choose what it belongs to"
    )
    assert REFUSED["train data.path=x data.classes=4"] in told("train", "data.path=x", "data.classes=4")
    assert (
        "evaluate: classifier.n_rounds=7 has no effect with model=m.npz, which fixes the classifier"
        in told(
            "evaluate",
            "model=m.npz",
            "classifier.n_rounds=7",  # it was ignored
        )
    )
    assert told("evaluate", "model=m.npz", "hog.dtype=float64").endswith(
        "; leave it out, or give up model=m.npz"
    )
    assert told("evaluate", "model=m.npz", "split.test=0.3").endswith("belongs to train; leave it out")
    for word in ("hog=default", "experiment=quick", "split=holdout"):
        assert f"{word} has no effect with model=m.npz, which" in told("evaluate", "model=m.npz", word)
    assert "with machines=[t4,l4]: machine.cores" in told("plan", "machine=[t4,l4]", "machine.cores=9")


@pytest.mark.parametrize("line", TAKEN)
def test_what_has_an_effect_or_was_not_typed_is_taken(call, monkeypatch, line):
    import pipeline.commands.train as command

    seen = []
    monkeypatch.setattr(command, "run", lambda cfg, stages: seen.append(cfg))
    status, _, err = call(*shlex.split(line))
    assert (status, err) == (0, "")
    assert len(seen) == 1


def test_a_path_alone_that_is_a_packed_set_is_one(tmp_path):
    """image.fit=pad, data.max_rejected= and data.workers= were ignored."""
    path = tmp_path / "photos.NPZ"
    path.touch()
    settings = config.Train(data=config.Data(name=DataName.auto, path=str(path)))
    for text in ("image.fit=pad", "data.max_rejected=0.5", "data.workers=3"):
        key, value = text.split("=")
        kind = {"image.fit": config.Fit, "data.workers": int, "data.max_rejected": float}[key]
        group, name = key.split(".")
        setattr(getattr(settings, group), name, kind[value] if key == "image.fit" else kind(value))
        with pytest.raises(ConfigError, match=re.escape(f"{text} has no effect with data.path={path}")):
            refuse_unused("train", settings, [text], sweep=False)
    settings.data.path = str(tmp_path)
    assert {"image.fit", "data.workers", "data.max_rejected"}.isdisjoint(module.unused(settings, "train"))


def test_doctor_and_compare_look_at_the_gpu_whatever_computes():
    assert module.unused(config.Doctor(), "doctor") == {}
    assert "backend.device" in module.unused(config.Profile(), "profile")
    assert "backend.device" not in module.unused(config.Profile(compare=["cpu", "gpu"]), "profile")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "classifier.n_rounds=7",
            "fixes the classifier: classifier.n_rounds belongs to evaluate split.folds=5",
        ),
        ("classifier.n_rounds=100", "fixes the classifier"),  # the default, but the model may have another
        ("classifier.gamma=[1,2]", "fixes the classifier"),
        ("classifier=ridge", "fixes the classifier"),
        ("image.height=50", "fixes the size of the images"),
        ("image=square", "fixes the size of the images"),
        ("preprocess.sigma=2", "fixes the preprocessing"),
        ("hog.orientations=9", "fixes the HoG features"),
        ("reduce=pca", "fixes the reduction"),
        ("reduce.components=null", "fixes the reduction"),
        ("split=grouped", "is scored on all images"),
        ("split.seed=4", "is scored on all images"),
        ("split.test=0.2", "is scored on all images: split.test belongs to train"),
        ("experiment=quick", "fixes what experiments choose"),
    ],
)
def test_evaluate_refuses_what_a_saved_model_fixes(text, why):
    """classifier.n_rounds=7 was ignored, and so were those of the split and values that are the defaults."""
    with pytest.raises(ConfigError) as refused:
        refuse_unused("evaluate", config.Evaluate(model="m.npz"), ["data.path=x", text], sweep=False)
    assert str(refused.value).startswith(f"{text} has no effect with model=m.npz, which {why}")
    folds = config.Evaluate(split=config.Split(folds=5))
    refuse_unused("evaluate", folds, [] if "gamma" in text else [text], sweep=False)


def test_a_cross_validation_holds_out_no_share():
    folds = config.Evaluate(split=config.Split(folds=5, test=0.3))
    with pytest.raises(ConfigError, match=r"split\.test=0\.3 has no effect with split\.folds=5: each"):
        refuse_unused("evaluate", folds, ["split.test=0.3"], sweep=False)


def test_a_model_and_folds_are_told_to_exclude_each_other(told):
    assert "model= and split.folds= exclude each other" in told("evaluate", "model=m.npz", "split=folds")


def test_in_a_sweep_whose_other_jobs_may_use_it_a_setting_is_warned_of(call, monkeypatch):
    import pipeline.commands.train as command

    seen = []
    monkeypatch.setattr(command, "run", lambda cfg, stages: seen.append(cfg.classifier.learner))
    status, _, err = call("train", "-m", "classifier=subspace,ridge", "classifier.subspace_size=64")
    assert (status, seen) == (0, [Learner.subspace, Learner.ridge])
    warnings = [line for line in err.splitlines() if line.startswith("WARNING: ")]
    assert warnings == [
        "WARNING: classifier.subspace_size=64 has no effect with classifier=ridge: "
        "classifier.subspace_size belongs to classifier=subspace"
    ]


def test_the_rules_name_settings_that_exist():
    for name, schema in config.SCHEMAS.items():
        known = set(config.keys(schema))
        for data in DataName:
            for other in (None, *Learner, *PreprocessName, *ScaleName, *MachineKind):
                settings = schema()
                if hasattr(settings, "data"):
                    settings.data.name = data
                for group, kind, key in (
                    ("classifier", Learner, "learner"),
                    ("preprocess", PreprocessName, "name"),
                    ("scale", ScaleName, "name"),
                    ("machine", MachineKind, "kind"),
                ):
                    if hasattr(settings, group) and isinstance(other, kind):
                        setattr(getattr(settings, group), key, other)
                assert set(module.unused(settings, name)) <= known


def test_the_words_of_a_measuring_run_are_all_of_effect(call, monkeypatch):
    """plan gives every setting to train: those of a preset, too, which nobody typed."""
    import pipeline.commands.train as command

    cfg = config.Train(
        classifier=config.Classifier(learner=Learner.ridge, patience=15, gamma=[0.2, 0.3], l2=2.0),
        data=config.Data(path=None, seed=3),
    )
    seen = []
    monkeypatch.setattr(command, "run", lambda found, stages: seen.append(found))
    status, _, err = call("train", *overrides(cfg))
    assert (status, err) == (0, "")
    assert (seen[0].classifier.l2, seen[0].classifier.patience, seen[0].data.seed) == (2.0, 10, 0)
    words = " ".join(overrides(cfg))
    assert not re.search(r"classifier\.patience|data\.seed|run_dir", words)


# ---- threads ----


def test_more_threads_than_cores_are_warned_of_once(call, monkeypatch):
    monkeypatch.setattr(module_of_words, "usable_cores", lambda: 2)
    small = "data=synthetic data.n=40 data.classes=2 image.height=24 image.width=24 plots=false classifier.n_rounds=2"
    status, _, err = call("train", *small.split(), "backend.threads=3")
    assert status == 0
    assert [
        line for line in err.splitlines() if "WARNING" in line
    ] == [  # if kernels are compiled, progress is told
        "WARNING: backend.threads=3 is more than the 2 cores that this process may use: more threads than that gain "
        "nothing; leave it out for one each"
    ]
    status, _, err = call("train", *small.split(), "backend.threads=2")
    assert (status, "WARNING" in err) == (0, False)


def test_threads_of_workers_elsewhere_are_not_judged_here(caplog, monkeypatch):
    monkeypatch.setattr(module_of_words, "usable_cores", lambda: 1)
    module_of_words.warn_of_threads(
        config.Train(backend=config.Backend(threads=9), scale=config.Scale(ScaleName.dask))
    )
    module_of_words.warn_of_threads(config.Pack())
    assert not caplog.records
    module_of_words.warn_of_threads(config.Benchmark(threads=2))
    assert caplog.messages[0].startswith("threads=2 is more than the 1 core that this process may use: ")


def test_every_setting_that_a_message_names_exists():
    """A hint named run_dir=, which is none."""
    known = {key for schema in config.SCHEMAS.values() for key in config.keys(schema)} - {"run_dir"}
    wrong = []
    for path in Path(config.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for key in re.findall(r"(?<![\w.-])([a-z_]+(?:\.[a-z_]+)*)=(?!=)", node.value):
                    dotted = "." in key and not key.startswith("hydra.") and key != "group.setting"
                    if key not in known and (dotted or key == "run_dir"):
                        wrong.append((path.name, key))
    assert wrong == []
