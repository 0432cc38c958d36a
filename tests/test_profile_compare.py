"""Comparison of backends: real runs of reference and cpu, and what is said of those that cannot run."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from pipeline import backends, config
from pipeline.commands.profile import measured
from pipeline.errors import BackendError, ConfigError
from pipeline.profiling import compare as module
from pipeline.profiling import original
from pipeline.profiling.changes import overridden
from pipeline.profiling.compare import check, compare
from pipeline.profiling.held_out import losses, parts, row_order


def settings(run_dir, text=""):
    """Return small settings: 120 images of 3 classes, 4 rounds."""
    small = (
        "data.name=synthetic data.n=120 data.classes=3 classifier.n_rounds=4 classifier.subspace_size=12 "
        "plots=false backend.threads=1 image.height=32 image.width=32 hog.cells_per_block=[2,2]"
    )
    return overridden(config.Train(run_dir=str(run_dir)), f"{small} {text}")


@pytest.fixture
def no_gpu(monkeypatch):
    """Let the gpu backend be absent, whatever this machine has."""
    choose = backends.choose

    def refuse(name, *rest):
        if name == "gpu":
            raise BackendError("there is no GPU in this test; use backend=cpu")
        return choose(name, *rest)

    monkeypatch.setattr(backends, "choose", refuse)


def test_reference_in_full_agrees_with_cpu(tmp_path, no_gpu):
    told = []
    rows = compare(settings(tmp_path), ["reference", "cpu", "gpu"], measured, 60.0, told.append)
    reference, cpu, gpu = rows
    assert [row.backend for row in rows] == ["reference", "cpu", "gpu"]
    assert reference.extrapolated == "reading and saving as measured once"
    assert reference.features_difference < 1e-5
    assert reference.label_agreement == 1.0
    assert reference.accuracy == pytest.approx(
        cpu.accuracy
    )  # all rounds of all classes: the figure is its own
    assert reference.seconds == pytest.approx(sum(reference.stages.values()))
    assert {"hog", "boost/solve", "boost/set-up", "evaluate", "save"} <= set(reference.stages)
    slowest = max(reference.seconds, cpu.seconds)
    assert [reference.ratio, cpu.ratio] == pytest.approx([slowest / reference.seconds, slowest / cpu.seconds])
    assert cpu.extrapolated is None
    assert (gpu.seconds, gpu.ratio, gpu.reason) == (
        None,
        None,
        "there is no GPU in this test; use backend=cpu",
    )
    assert told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("classes", [2, 3])
def test_without_time_one_class_and_one_round_are_scaled(tmp_path, classes):
    row = compare(settings(tmp_path, f"data.classes={classes}"), ["reference"], measured, 0.0)[0]
    assert row.extrapolated == (
        "features from 64 of 120 images; boosting from 1 of 4 rounds of 1 class against the rest, all images; "
        "labels compared after as many on cpu; reading and saving as measured once"
    )
    assert row.accuracy is None  # not that of the whole task
    assert 0.0 <= row.label_agreement <= 1.0
    assert row.features_difference < 1e-5
    assert row.ratio == 1.0


def test_scaling_multiplies_fits_by_classes_and_rounds():
    classifier = type("Any", (), {"learner": "ridge"})()
    fitted = original._Fitted(
        classifier, {"boost/set-up": 1.0, "boost": 0.5}, {"boost": 0.25, "boost/solve": 2.0}, 0.125
    )
    assert fitted.scaled(10, 7) == {
        "boost/set-up": 1.0,
        "boost": 3.0,
        "boost/solve": 140.0,
        "evaluate": 0.125,
    }
    classifier.learner = "random_features"  # evaluated round by round
    assert fitted.scaled(10, 7)["evaluate"] == 1.25


def test_features_in_part_are_scaled_by_images(tmp_path, monkeypatch):
    run = measured(settings(tmp_path))
    clock = iter(np.arange(1000.0))  # a second passes between two looks
    monkeypatch.setattr(original, "perf_counter", lambda: float(next(clock)))
    done, seconds, difference = original._features(run, 1.5)
    assert done == 64
    assert seconds == {"preprocess": 120 / 64, "hog": 120 / 64}
    assert difference < 1e-5


def test_a_wrong_feature_and_a_wrong_label_are_seen(tmp_path):
    run = measured(settings(tmp_path))
    first, base = module._row(run, None)
    assert first.features_difference is None
    spoiled = base.features.copy()
    spoiled[70, 3] += 0.75
    predicted = base.predicted.copy()
    predicted[0] = (predicted[0] + 1) % 3
    row, _ = module._row(run, replace(base, features=spoiled, predicted=predicted))
    assert row.features_difference == pytest.approx(0.75)
    assert row.label_agreement == pytest.approx(1.0 - 1.0 / len(predicted))


def test_the_held_out_images_are_those_of_the_run(tmp_path):
    run = measured(settings(tmp_path, "classifier.early_stopping=true"))
    held = parts(run)
    assert len(held.X_test) == len(held.y_test) == run.work.tested
    assert len(row_order(run)) == 120
    assert losses(run)[-1] == pytest.approx(run.trained.scores.log_loss, rel=1e-5)
    again = run.trained.model.features(run.trained.images.pixels[row_order(run)])
    np.testing.assert_array_equal(again, run.trained.features)


def test_mistakes_are_told_in_one_line(tmp_path, no_gpu):
    with pytest.raises(
        ConfigError, match=r"no backend 'cpuu'\. Did you mean 'cpu'\? Choose among: reference, cpu, gpu"
    ):
        compare(settings(tmp_path), ["reference", "cpuu"], measured)
    with pytest.raises(ConfigError, match="names no backend"):
        check([])
    text = re.escape("can run none of these backends (gpu: there is no GPU in this test; use backend=cpu)")
    with pytest.raises(ConfigError, match=text):
        compare(settings(tmp_path), ["gpu"], measured)
