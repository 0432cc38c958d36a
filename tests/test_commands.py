"""The commands, run in this process on small sets of drawn pictures."""

from __future__ import annotations

import csv
import json
import logging
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import config
from pipeline.commands import evaluate, pack, predict, train
from pipeline.errors import ConfigError, DataError, ModelError, OutputError
from pipeline.model import load_model
from tests.programs import environment

NAMES = ("across", "down", "slanted")


def draw(kind, rng, shape=(24, 40)):
    """Return a picture of noisy stripes, uint8."""
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    wave = {"across": rows, "down": cols, "slanted": rows + cols}[kind] * 0.8 + rng.uniform(0, 6)
    return (125 + 70 * np.sin(wave) + rng.normal(0, 25, shape)).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three class folders of 20 pictures in tracks of 4, and two files that are no pictures."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in NAMES:
        (root / name).mkdir()
        for track in range(5):
            for frame in range(4):
                Image.fromarray(draw(name, rng)).save(root / name / f"t{track}_{frame}.png")
    (root / "down" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    (root / "across" / "text.jpg").write_text("not a picture")
    return root


def settings(kind, run_dir, path=None, **groups):
    """Return small and fast settings of a command."""
    cfg = kind(run_dir=str(run_dir))
    if hasattr(cfg, "backend"):
        cfg.backend.threads = 1
    if path is not None:
        cfg.data = config.Data(name=config.DataName.auto, path=str(path))
    if hasattr(cfg, "image"):
        cfg.image = config.Image(height=24, width=40)
    if hasattr(cfg, "hog"):
        cfg.hog = config.Hog(cells_per_block=[2, 2])
        cfg.classifier = config.Classifier(n_rounds=8, subspace_size=24)
    for name, value in groups.items():
        setattr(cfg, name, value)
    run_dir.mkdir(exist_ok=True)
    return cfg


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """One run of train with early stopping; returns its folder and figure."""
    run_dir = tmp_path_factory.mktemp("run")
    stop = config.Classifier(n_rounds=8, subspace_size=24, early_stopping=True, patience=3)
    return run_dir, train.run(settings(config.Train, run_dir, folder, classifier=stop))


def rows(path):
    with Path(path).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_train_writes_everything(trained):
    run_dir, figure = trained
    written = {path.name for path in run_dir.iterdir()}
    expected = {
        "model.npz",
        "metrics.json",
        "predictions.csv",
        "confusion_matrix.png",
        "learning_curve.png",
        "cell_importance.png",
        "rejected.csv",
    }
    assert written == expected
    metrics = json.loads((run_dir / "metrics.json").read_text())
    test = metrics["test"]
    assert figure == test["log_loss"]
    assert test["accuracy"] >= 0.9
    assert set(test["per_class"]) == set(NAMES)
    assert set(test["per_class"]["down"]) == {"precision", "recall", "f1", "support"}
    assert {"read", "split", "preprocess", "hog", "boost", "evaluate", "save", "all"} <= set(
        metrics["seconds"]
    )
    assert metrics["images"] == {"all": 60, "fit": 43, "validation": 5, "test": 12}
    assert (metrics["rejected"], metrics["duplicates"], metrics["backend"]) == (2, 0, "cpu")
    assert metrics["peak_memory_bytes"] > 1e7
    assert metrics["software"]["numpy"] == np.__version__
    assert {row["path"] for row in rows(run_dir / "rejected.csv")} == {"down/bad.png", "across/text.jpg"}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory of a process")
def test_the_memory_told_is_not_that_of_who_started_the_process():
    """ru_maxrss of Linux is kept over exec: plan, with a set in memory, took its own for that of its measuring run."""
    child = "from pipeline.commands.output import peak_memory; print(peak_memory())"
    large = (
        "held = b'x' * 600_000_000; import subprocess, sys; "
        "sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", large, child],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert 1e7 < int(found.stdout) < 4e8


def test_predictions_agree_with_the_figures(trained):
    run_dir, figure = trained
    found = rows(run_dir / "predictions.csv")
    assert list(found[0]) == ["path", "label", "predicted", *[f"p_{name}" for name in NAMES]]
    assert len(found) == 12
    assert all(row["path"].startswith(row["label"] + "/") for row in found)
    loss = -np.mean([math.log(float(row["p_" + row["label"]])) for row in found])
    assert loss == pytest.approx(figure, rel=1e-4)
    for row in found:
        chances = {name: float(row[f"p_{name}"]) for name in NAMES}
        assert max(chances, key=chances.get) == row["predicted"]
        assert sum(chances.values()) == pytest.approx(1.0, abs=1e-4)


def test_the_saved_model_gives_the_probabilities_of_the_run(trained, folder):
    run_dir, _ = trained
    model = load_model(run_dir / "model.npz")
    for row in rows(run_dir / "predictions.csv")[:5]:
        pixels = np.asarray(Image.open(folder / row["path"]))
        proba = model.predict_proba(pixels[None])[0]
        np.testing.assert_allclose(proba, [float(row[f"p_{name}"]) for name in NAMES], atol=1e-5)


@pytest.mark.parametrize("name", list(config.PreprocessName))
def test_preprocessing_is_the_same_in_training_and_in_the_model(folder, tmp_path, name):
    cfg = settings(config.Train, tmp_path, folder, preprocess=config.Preprocess(name=name), plots=False)
    train.run(cfg)
    labelled = settings(
        config.Evaluate, tmp_path / "e", folder, model=str(tmp_path / "model.npz"), plots=False
    )
    evaluate.run(labelled)
    again = {row["path"]: row for row in rows(tmp_path / "e" / "predictions.csv")}
    for row in rows(tmp_path / "predictions.csv"):
        np.testing.assert_allclose(
            *[[float(r[f"p_{c}"]) for c in NAMES] for r in (row, again[row["path"]])], atol=1e-5
        )


def test_copies_on_both_sides_are_reported(tmp_path, caplog):
    rng = np.random.default_rng(1)
    for name in NAMES:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            Image.fromarray(draw(name, rng)).save(tmp_path / "photos" / name / f"{number}.png")
        copy = (tmp_path / "photos" / name / "0.png").read_bytes()
        for number in range(1, 5):
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(copy)
    with caplog.at_level(logging.WARNING):
        train.run(settings(config.Train, tmp_path / "run", tmp_path / "photos", split=config.Split(test=0.5)))
    pairs = rows(tmp_path / "run" / "duplicates.csv")
    assert pairs
    assert f"{len(pairs)} held-out images equal a training image" in caplog.text
    assert f"first: {pairs[0]['training']} = {pairs[0]['held_out']}" in caplog.text
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["duplicates"] == len(pairs)


def test_too_many_rejected_files_stop_the_run_and_are_listed(folder, tmp_path):
    cfg = settings(config.Train, tmp_path, folder)
    cfg.data.max_rejected = 0.01
    with pytest.raises(DataError, match=r"2 of 62 files rejected.*rejected\.csv"):
        train.run(cfg)
    assert len(rows(tmp_path / "rejected.csv")) == 2


def test_features_that_are_not_finite_stop_the_run(folder, tmp_path, monkeypatch):
    from pipeline.features import HogExtractor

    plain = HogExtractor.transform_into

    def broken(self, images, out):
        plain(self, images, out)
        out[3, 7] = np.nan

    monkeypatch.setattr(HogExtractor, "transform_into", broken)
    with pytest.raises(DataError, match=r"\.png: its HoG features are not finite"):
        train.run(settings(config.Train, tmp_path, folder))


def test_train_refuses_images_smaller_than_a_block_before_reading(tmp_path):
    cfg = settings(config.Train, tmp_path, tmp_path / "absent", image=config.Image(height=9, width=40))
    with pytest.raises(ConfigError, match="9 rows and 40 cols"):
        train.run(cfg)


@pytest.mark.parametrize("chunk", [7, 1000])
def test_predict_labels_a_folder_in_chunks(trained, folder, tmp_path, chunk):
    cfg = settings(config.Predict, tmp_path, folder, model=str(trained[0] / "model.npz"), chunk=chunk)
    cfg.out = str(tmp_path / "labels.csv")
    predict.run(cfg)
    found = rows(cfg.out)
    assert list(found[0]) == ["path", "label", *[f"p_{name}" for name in NAMES]]
    assert len(found) == 60
    right = np.mean([row["path"].startswith(row["label"] + "/") for row in found])
    assert right > 0.9
    assert len(rows(tmp_path / "rejected.csv")) == 2


def test_predict_labels_one_file(trained, folder, tmp_path, capsys):
    cfg = settings(
        config.Predict, tmp_path, folder / "down" / "t0_0.png", model=str(trained[0] / "model.npz")
    )
    predict.run(cfg)
    assert [row["path"] for row in rows(tmp_path / "predictions.csv")] == ["t0_0.png"]
    assert "1 image labelled" in capsys.readouterr().out


def test_predict_writes_all_or_nothing(trained, folder, tmp_path):
    cfg = settings(config.Predict, tmp_path, folder, model=str(trained[0] / "model.npz"), chunk=10)
    cfg.out = str(tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_text("path,label of old")
    cfg.data.max_rejected = 0.0
    with pytest.raises(DataError, match="rejected"):
        predict.run(cfg)
    assert (tmp_path / "labels.csv").read_text() == "path,label of old"
    assert len(rows(tmp_path / "rejected.csv")) >= 1
    assert {path.name for path in tmp_path.iterdir()} == {"labels.csv", "rejected.csv"}


def test_predict_finds_out_that_it_cannot_write_before_it_works(trained, folder, tmp_path):
    cfg = settings(config.Predict, tmp_path, folder, model=str(trained[0] / "model.npz"), out=str(tmp_path))
    with pytest.raises(OutputError, match="a folder of this name"):
        predict.run(cfg)


def test_training_from_a_pack_gives_the_same(folder, tmp_path, capsys):
    cfg = settings(config.Pack, tmp_path / "p", folder, out=str(tmp_path / "photos.npz"))
    pack.run(cfg)
    told = capsys.readouterr().out
    assert "60 images of 3 classes packed" in told
    size = (tmp_path / "photos.npz").stat().st_size
    assert 5e4 < size < 1e5  # which is no 0 MB
    assert f"24x40 pixels, {size / 1e3:.1f} kB\n" in told
    assert len(rows(tmp_path / "p" / "rejected.csv")) == 2
    packed, plain = tmp_path / "t1", tmp_path / "t2"
    figures = [
        train.run(settings(config.Train, run_dir, source))
        for run_dir, source in ((packed, tmp_path / "photos.npz"), (plain, folder))
    ]
    assert figures[0] == figures[1]
    assert (packed / "predictions.csv").read_bytes() == (plain / "predictions.csv").read_bytes()


def test_a_packed_set_of_another_size_is_refused(trained, folder, tmp_path):
    cfg = settings(
        config.Pack,
        tmp_path,
        folder,
        out=str(tmp_path / "small.npz"),
        image=config.Image(height=16, width=16),
    )
    pack.run(cfg)
    model = str(trained[0] / "model.npz")
    with pytest.raises((ModelError, DataError), match=r"16 rows x 16 columns.*24 x 40"):
        predict.run(settings(config.Predict, tmp_path, tmp_path / "small.npz", model=model))


def test_evaluate_matches_classes_by_name(trained, folder, tmp_path):
    # the pack knows only two of the classes, in the other order, so that equal numbers mean different classes
    pixels = np.stack([np.asarray(Image.open(folder / name / "t1_1.png")) for name in ("slanted", "across")])
    path = tmp_path / "two.npz"
    np.savez(path, images=pixels, labels=np.array([0, 1]), classes=np.array(["slanted", "across"]))
    cfg = settings(config.Evaluate, tmp_path, path, model=str(trained[0] / "model.npz"), hog=config.Hog())
    evaluate.run(cfg)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["test"]["accuracy"] == 1.0
    assert metrics["test"]["per_class"]["down"]["support"] == 0
    assert [row["label"] for row in rows(tmp_path / "predictions.csv")] == ["slanted", "across"]


def test_evaluate_takes_images_of_a_single_class_and_says_what_that_does_not_show(
    trained, folder, tmp_path, capsys
):
    """How well does it know a class? Whether it takes others for it, such images cannot tell."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "slanted").symlink_to(folder / "slanted", target_is_directory=True)
    labelled = settings(config.Evaluate, tmp_path, tmp_path / "photos", model=str(trained[0] / "model.npz"))
    figure = evaluate.run(labelled)
    test = json.loads((tmp_path / "metrics.json").read_text())["test"]
    found = rows(tmp_path / "predictions.csv")
    assert {row["label"] for row in found} == {"slanted"}
    right = sum(row["predicted"] == "slanted" for row in found)
    assert test["accuracy"] == test["balanced_accuracy"] == right / len(found)
    assert figure == pytest.approx(-np.mean([math.log(float(row["p_slanted"])) for row in found]), rel=1e-4)
    assert test["per_class"]["down"] == {"precision": None, "recall": None, "f1": None, "support": 0}
    assert "All images are of the class slanted: how often others are taken for it" in capsys.readouterr().out
    folds = settings(config.Evaluate, tmp_path, tmp_path / "photos", split=config.Split(folds=2))
    with pytest.raises(DataError, match="a single class"):
        evaluate.run(folds)


def test_evaluate_refuses_what_has_no_effect_or_is_unknown(trained, folder, tmp_path):
    model = str(trained[0] / "model.npz")
    with pytest.raises(ConfigError, match="hog comes from the model"):
        evaluate.run(settings(config.Evaluate, tmp_path, folder, model=model, hog=config.Hog(orientations=4)))
    (tmp_path / "photos").mkdir()
    for name in ("down", "zebra"):
        (tmp_path / "photos" / name).mkdir()
        Image.fromarray(draw("down", np.random.default_rng(0))).save(tmp_path / "photos" / name / "1.png")
    with pytest.raises(DataError, match="does not know the classes zebra; it knows: across, down, slanted"):
        evaluate.run(settings(config.Evaluate, tmp_path, tmp_path / "photos", model=model))


@pytest.mark.parametrize("group_by", [None, r"^(.*)_\d\.png$"])
def test_cross_validation(folder, tmp_path, capsys, group_by):
    split = config.Split(folds=3, group_by=group_by, validation=0.3)
    stop = config.Classifier(n_rounds=5, subspace_size=24, early_stopping=True)
    figure = evaluate.run(settings(config.Evaluate, tmp_path, folder, split=split, classifier=stop))
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    losses = [fold["log_loss"] for fold in metrics["folds"]]
    assert figure == metrics["test"]["log_loss"] == pytest.approx(np.mean(losses))
    assert metrics["standard_deviation"]["log_loss"] == pytest.approx(np.std(losses, ddof=1))
    assert sum(fold["images"] for fold in metrics["folds"]) == 60
    assert metrics["test"]["accuracy"] > 0.8
    out = capsys.readouterr().out
    assert ("3 folds, grouped" if group_by else "3 folds, stratified") in out
    assert "standard deviation" in out
