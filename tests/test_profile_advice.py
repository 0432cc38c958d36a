"""Advice of a profile: derived from the stages, predicted as the law behind the runs has it, exact to type."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import yaml
from PIL import Image

from pipeline import config
from pipeline.cli import CONF
from pipeline.commands.profile import measured
from pipeline.errors import BackendError, ConfigError
from pipeline.profiling import advice as module
from pipeline.profiling.advice import advise, verify
from pipeline.profiling.candidates import Measured, derived, stopped
from pipeline.profiling.changes import overridden
from pipeline.profiling.learner_costs import LEARNERS, operations
from pipeline.profiling.report import Advice
from pipeline.profiling.trials import PER_STEP
from tests.fake_runs import CORES, FakeRunner, settings

FLAT = [1.0] * 3  # losses that say nothing of fewer rounds


def law(cfg, work):
    """Return seconds of a program whose costs are known: linear in rounds, with a part that is done once."""
    n, p, q, r, threads = work.images, work.features, work.columns, work.rounds, work.threads
    seconds = {
        "read": 0.01,
        "hog": 1e-8 * n * p * work.feature_bytes / threads + 4e-3 * -(-n // cfg.chunk),
        "boost/set-up": 1e-9 * n * p * work.number_bytes,
        "boost/columns": 1e-8 * n * q * r,
        "boost/sums": 3e-12 * r * work.fits * work.fit * q * q * work.number_bytes / threads,
        "boost/solve": 1e-10 * r * work.fits * q**3,
        "boost": 0.07 + 1e-4 * r,
        "evaluate": 0.02 * (r if work.learner in PER_STEP else 1),
        "save": 0.1 + 0.8 * cfg.plots,
    }
    if cfg.classifier.early_stopping:
        seconds["boost/validation"] = 1e-4 * r
    if work.preprocess != "none":
        seconds["preprocess"] = 1e-4 * n
    if work.components is not None:
        seconds["reduce"] = 1e-11 * n * p * p
    return seconds


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: CORES)


def gain(cfg, override, runner):
    """Return what the law says of an override."""
    return runner(cfg).seconds["all"] - runner(overridden(cfg, override)).seconds["all"]


STARTS = {
    "float64": "hog.dtype=float64 classifier.dtype=float64",
    "one thread": "backend.threads=1",
    "ridge": "classifier.learner=ridge classifier.n_rounds=20",
    "random_features": "classifier.learner=random_features classifier.n_rounds=50",
    "wide": "classifier.subspace_size=200 preprocess.name=clahe chunk=64",
}
EXPECTED = {
    "float64": {"hog.dtype=float32 classifier.dtype=float32", "plots=false"},
    "one thread": {"backend.threads=0", "classifier.subspace_size=64"},
    "ridge": {
        "hog.pixels_per_cell=[10,10] hog.cells_per_block=[2,2]",
        "reduce.name=pca reduce.components=256",
    },
    "random_features": {"classifier.n_components=256"},
    "wide": {"classifier.subspace_size=100", "preprocess.name=none", "chunk=512"},
}


@pytest.mark.parametrize("start", STARTS)
def test_predicted_gains_are_those_of_the_law(tmp_path, start):
    runner = FakeRunner(law)
    cfg = overridden(settings(tmp_path), STARTS[start])
    found = advise([runner(cfg)], runner, losses=lambda run: FLAT)
    whole = runner(cfg).seconds["all"]
    assert len(found) >= 2
    assert {one.override for one in found} >= EXPECTED[start]
    for one in found:
        assert one.predicted_gain == pytest.approx(gain(cfg, one.override, runner), rel=0.02), one.override
        assert one.predicted_seconds == pytest.approx(whole - one.predicted_gain)
        assert one.predicted_gain >= 0.03 * whole
        assert "s of" in one.why or one.override == "backend.threads=0"
        assert one.model
    gains = [one.predicted_gain for one in found]
    assert gains == sorted(gains, reverse=True)


def test_another_learner_is_advised_where_boosting_dominates(tmp_path):
    runner = FakeRunner(law)
    cfg = overridden(settings(tmp_path), STARTS["ridge"])
    first = advise([runner(cfg)], runner, losses=lambda run: FLAT)[0]
    assert first.override.startswith("classifier.learner=")
    assert "accuracy" in first.caveat
    tried = {call.classifier.learner.name for call in runner.calls}
    assert tried == {"ridge", "subspace", "componentwise"}  # no learner that needs more operations


def test_nothing_is_tried_where_nothing_can_be_gained(tmp_path):
    def quick(cfg, work):
        return {"decode": 0.01, "hog": 0.02, "boost/sums": 0.01, "save": 0.02, "read": 0.01, "split": 5.0}

    runner = FakeRunner(quick)
    run = runner(overridden(settings(tmp_path), "hog.dtype=float64 backend.threads=1"))
    runner.calls.clear()
    assert advise([run], runner, losses=lambda run: FLAT) == []
    assert runner.calls == []


def test_without_time_the_most_promising_are_tried_first_and_the_rest_named(tmp_path, monkeypatch, caplog):
    clock = iter(range(0, 10_000, 50))
    monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    runner, told = FakeRunner(law), []
    run = runner(overridden(settings(tmp_path), STARTS["float64"]))
    with caplog.at_level("INFO"):
        advise([run], runner, 120.0, losses=lambda run: FLAT, tell=told.append)
    assert len(told) == 2
    assert "not tried for want of time: " in caplog.text


def test_medians_of_the_repeats_count(tmp_path):
    noise = iter([0.0, 9.0, 0.0])
    runner = FakeRunner(law)
    cfg = settings(tmp_path)
    runs = [FakeRunner(lambda c, w: {**law(c, w), "save": 0.9 + next(noise)})(cfg) for _ in range(3)]
    found = {one.override: one for one in advise(runs, runner, losses=lambda run: FLAT)}
    assert found["plots=false"].predicted_gain == pytest.approx(0.8)


def test_a_program_that_still_warmed_up_does_not_promise_too_much(tmp_path):
    cfg = settings(tmp_path)
    cold = FakeRunner(lambda c, w: {**law(c, w), "save": 3.0})(cfg)
    runner = FakeRunner(law)
    found = {one.override: one for one in advise([cold], runner, losses=lambda run: FLAT)}
    assert found["plots=false"].predicted_gain == pytest.approx(0.8)
    assert f"of {runner(cfg).seconds['all']:.2f} s" in found["plots=false"].why
    again = [call for call in runner.calls[:-1] if call == replace(cfg, run_dir=call.run_dir)]
    assert 2 <= len(again) <= 4  # run again between the candidates


# ---- rounds ----


def losses_of(run):
    """Return losses that fall until round 40 and rise after."""
    return [1.0 / r if r <= 40 else 1.0 / 40 + 1e-4 * (r - 40) for r in range(1, run.work.rounds + 1)]


def test_fewer_rounds_and_early_stopping_follow_from_the_losses(tmp_path):
    runner = FakeRunner(law)
    cfg = overridden(settings(tmp_path), "backend.threads=1")
    found = {one.override: one for one in advise([runner(cfg)], runner, losses=losses_of)}
    fewer = found["classifier.n_rounds=40"]
    assert fewer.predicted_gain == pytest.approx(gain(cfg, "classifier.n_rounds=40", runner), rel=0.01)
    assert "0.0250" in fewer.why
    stopping = found["classifier.early_stopping=true"]
    after = overridden(cfg, "classifier.early_stopping=true classifier.n_rounds=50")  # 40 and 10 of patience
    assert stopping.predicted_gain == pytest.approx(
        runner(cfg).seconds["all"] - runner(after).seconds["all"], rel=0.01
    )
    assert "about 50 of 100" in stopping.title


def test_patience_is_that_of_the_boosting_loop():
    assert stopped([3.0, 2.0, 1.0, 1.5, 1.2, 1.1], 3) == 6
    assert stopped([3.0, 2.0, 1.0, 1.5, 1.2], 3) is None
    assert stopped([1.0, 1.0, 1.0], 2) == 3  # a loss that stays has not improved


def test_early_stopping_is_not_advised_where_it_would_not_stop(tmp_path):
    cfg = settings(tmp_path)
    runner = FakeRunner(law)
    falling = [1.0 / r for r in range(1, 101)]
    found = advise([runner(cfg)], runner, losses=lambda run: falling)
    assert not [one for one in found if "early_stopping" in one.override or "n_rounds" in one.override]


# ---- what is typed ----


@pytest.fixture
def composed(register):
    """The settings that the command line makes of the words of two texts."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    def compose_both(base, text):
        cfg = compose("train", [*shlex.split(base), *shlex.split(text)])
        cfg.run_dir = "here"
        return OmegaConf.to_object(cfg)

    register("train")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield compose_both


def measured_as(cfg, **changes):
    work = replace(FakeRunner(law)(cfg).work, **changes)
    return Measured(cfg, work, {"all": 1.0}, CORES, losses_of(SimpleNamespace(work=work)))


@pytest.mark.parametrize(
    ("base", "source"),
    [
        ("hog.dtype=float64 classifier.dtype=float64 backend.threads=1 hog=dalal", "digits"),
        ("classifier=ridge data=folder data.path=photos data.workers=1 preprocess=clahe", "folder"),
        pytest.param(
            "classifier=random_features data=synthetic chunk=256", "synthetic", marks=pytest.mark.slow
        ),
        pytest.param("classifier=full data=auto 'data.path=my photos'", "folder", marks=pytest.mark.slow),
    ],
)
def test_overrides_mean_on_the_command_line_what_was_tried(composed, base, source):
    cfg = composed(base, "")
    candidates = list(derived(measured_as(cfg, source=source)))
    assert len(candidates) >= 5
    for one in candidates:
        after = overridden(cfg, one.override)
        assert after != cfg
        assert after == composed(base, one.override), one.override


def test_learners_are_those_of_the_configuration():
    for name, given in LEARNERS.items():
        there = yaml.safe_load((CONF / "classifier" / f"{name}.yaml").read_text())
        assert {"learner": name, **{key: float(value) for key, value in given.items()}} == there
    for name in ("hog.pixels_per_cell", "hog.cells_per_block"):
        coarse = yaml.safe_load((CONF / "hog" / "coarse.yaml").read_text())
        layout = next(
            one for one in derived(measured_as(config.Train())) if "pixels_per_cell" in one.override
        )
        assert getattr(overridden(config.Train(), layout.override).hog, name[4:]) == coarse[name[4:]]


def test_operations_order_the_learners(tmp_path):
    work = FakeRunner(law)(settings(tmp_path)).work
    cost = {name: operations(work, name, 128, 10) for name in ("subspace", "componentwise", "ridge")}
    assert cost["subspace"] < cost["ridge"] / 100
    assert cost["componentwise"] < cost["ridge"] / 100


def test_overrides_that_cannot_be_read_are_refused():
    cfg = config.Train()
    after = overridden(
        cfg, "split.group_by=null data.path='my photos' classifier.gamma=[0.5,1.5] plots=false"
    )
    assert (after.data.path, after.classifier.gamma, after.plots) == ("my photos", [0.5, 1.5], False)
    assert cfg == config.Train()  # untouched
    for text in ("hog.colour=1", "hog.dtype=float16", "chunk=many"):
        with pytest.raises(ConfigError, match=text.split("=")[0]):
            overridden(cfg, text)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        overridden(cfg, "chunk=0")


# ---- GPU, memory ----


def test_a_gpu_is_advised_if_its_forecast_pays(tmp_path):
    runner = FakeRunner(law)
    run = runner(settings(tmp_path))
    whole = run.seconds["all"]
    found = advise([run], runner, losses=lambda run: FLAT, forecast_gpu=lambda run: (0.1, "from a datasheet"))
    assert found[0].override == "backend.name=gpu"
    assert found[0].predicted_gain == pytest.approx(whole - 0.1)
    assert found[0].model == "from a datasheet"
    for slow in (lambda run: (whole, "as fast"), lambda run: None):
        found = advise([run], runner, losses=lambda run: FLAT, forecast_gpu=slow)
        assert "backend.name=gpu" not in {one.override for one in found}


def test_short_memory_comes_first_and_gains_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1 << 30))
    monkeypatch.setattr(module, "resident", lambda: 300_000_000)
    runner = FakeRunner(law)
    run = replace(runner(settings(tmp_path)), recording=SimpleNamespace(memory_peak=900 << 20))
    first, second = advise([run], runner, losses=lambda run: FLAT)[:2]
    assert first.override.startswith("scale.name=outofcore ")
    assert first.predicted_memory < 0.7 * (1 << 30)
    assert second.override.startswith("data.name=packed ")
    assert second.predicted_gain == 0.0
    assert second.title.startswith("memory is short: pack the images once")
    assert "at most 944 MB of 1.1 GB of memory were in use; the pixels are " in second.why
    assert re.search(r"images at work are held; counted, the run then still needs \d+ MB$", second.why)
    roomy = replace(run, recording=SimpleNamespace(memory_peak=100 << 20))
    assert "memory" not in advise([roomy], runner, losses=lambda run: FLAT)[0].title


def test_a_packed_set_comes_first_where_it_suffices(tmp_path, monkeypatch):
    """Pixels that are most of what is held need no run out of core, which takes longer."""
    monkeypatch.setattr(module, "resident", lambda: 200_000_000)
    image = {"pixels_per_cell": [50, 50], "cells_per_block": [2, 2]}
    cfg = replace(
        settings(tmp_path),
        data=config.Data(name=config.DataName.synthetic, n=20_000),
        image=config.Image(200, 200),
        hog=config.Hog(**image),
    )
    runner = FakeRunner(law)
    run = replace(runner(cfg), recording=SimpleNamespace(memory_peak=1_000_000_000))
    first, second = advise([run], runner, memory=1.3e9, losses=lambda run: FLAT)[:2]
    assert first.override.startswith("data.name=packed ")
    assert first.why.endswith("images at work are held")
    assert second.override.startswith("scale.name=outofcore ")


@pytest.mark.parametrize("here", [True, False])
def test_a_gpu_of_another_machine_is_said_to_be_one(tmp_path, monkeypatch, here):
    """It advised backend.name=gpu where there is none, in the words of a change of settings."""

    def choose(name):
        if not here:
            raise BackendError("no GPU")

    monkeypatch.setattr(module.backends, "choose", choose)
    runner = FakeRunner(law)
    run = runner(settings(tmp_path))
    first = advise([run], runner, losses=lambda run: FLAT, forecast_gpu=lambda run: (0.1, "a datasheet"))[0]
    assert first.override == "backend.name=gpu"
    other = "run it on another machine, one with a GPU: this one has none that can be used"
    assert first.title == ("compute on a GPU" if here else other)
    assert first.caveat == (
        "a forecast: nothing was run on a GPU"
        if here
        else "a forecast for that machine: it cannot be tried here"
    )


# ---- trying it ----


def advice(override):
    return Advice("title", override, 1.0, 1.0, "why", "model")


def test_verify_measures_pairs_and_compares_accuracy(tmp_path):
    drift = iter(range(100))  # the machine becomes slower run by run

    def slower(cfg, work):
        return {**law(cfg, work), "split": 0.01 * next(drift)}

    runner = FakeRunner(slower, lambda cfg: 0.95 if cfg.plots else 0.9)
    found = verify([advice("plots=false")], settings(tmp_path), runner)[0]
    assert found.measured_gain == pytest.approx(0.8 - 0.01)
    last = runner.calls[9]  # the fifth of the nine pairs that quick runs get
    assert found.measured_seconds == pytest.approx(sum(law(last, runner(last).work).values()) - 0.8 + 0.10)
    assert found.caveat == "tried: accuracy 90.00%, 95.00% without it"
    assert [call.plots for call in runner.calls[:3]] == [False, True, False]  # one to warm up, then in turn


def test_what_cannot_be_tried_says_why(tmp_path):
    def runner(cfg):
        raise BackendError("there is no GPU here")

    found = verify([advice("backend.name=gpu")], settings(tmp_path), runner)[0]
    assert found.measured_seconds is None
    assert found.caveat == "could not be tried here: there is no GPU here"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two class folders of 30 large pictures each: decoding is most of the work."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in ("dark", "light"):
        (root / name).mkdir()
        for i in range(30):
            picture = rng.integers(0, 120, (500, 500), dtype=np.uint8) + 100 * (name == "light")
            Image.fromarray(picture.astype(np.uint8)).save(root / name / f"{i:02d}.png")
    return root


def test_packing_a_real_folder_is_advised_and_can_be_followed(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(module, "MORE", 1)  # the seconds are given: one pair says what three would
    text = "image.height=32 image.width=32 classifier.n_rounds=4 classifier.subspace_size=16 data.workers=1 plots=false"
    cfg = overridden(config.Train(run_dir=str(tmp_path)), text)
    cfg = replace(cfg, data=replace(cfg.data, name=config.DataName.folder, path=str(folder)))

    def runner(cfg):  # a real run, with seconds that do not depend on the machine
        run = measured(cfg)
        decode = {} if run.work.source == "packed" else {"decode": 50.0}
        seconds = {"read": 1.0, **decode, "hog": 2.0, "boost/sums": 1.0}
        return replace(run, seconds={**seconds, "all": sum(seconds.values())})

    found = advise([runner(cfg)], runner)
    packing = next(one for one in found if "data.name=packed" in one.override)
    assert packing.override == f"data.name=packed data.path={folder.name}_32x32.npz"
    assert f"pack data.path={folder} out={folder.name}_32x32.npz image.height=32" in packing.title
    assert 0.0 < packing.predicted_gain <= 51.0  # of the 51 s remains what reading the packed pixels took
    assert "(94%)" in packing.why
    assert "60 images were packed and read" in packing.model
    tried = verify([packing], cfg, runner, 1)[0]
    assert (tried.measured_seconds, tried.measured_gain) == (4.0, 50.0)
    assert "accuracy" in tried.caveat
    assert list(tmp_path.glob(".trial-*")) == []


def test_the_losses_of_a_real_run_are_those_of_early_stopping(tmp_path):
    text = "data.name=synthetic data.n=200 data.classes=3 classifier.n_rounds=6 classifier.subspace_size=16 plots=false"
    cfg = overridden(config.Train(run_dir=str(tmp_path)), text)
    run = measured(cfg)
    found = module._measured([run], module.held_out.losses)
    assert len(found.losses) == 6
    assert found.losses[-1] == pytest.approx(run.trained.scores.log_loss, rel=1e-5)
    assert found.losses[0] > found.losses[-1]
