"""What a training leaves: the model file, predictions, plots and figures in the run folder, and all of it in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline import config, datasets
from pipeline.commands import output, steps
from pipeline.model import Model, save_model
from pipeline.reporting import plots
from pipeline.reporting.metrics import Scores
from pipeline.reporting.stages import Stages


class Trained(NamedTuple):
    """What a training run leaves in memory."""

    model: Model
    scores: Scores  # of the held-out images
    content: dict[str, Any]  # of metrics.json
    images: datasets.Images
    features: Any  # (n, n_features) as boosting sees them, where the backend works: images fitted to, watched, held out


class Parts(NamedTuple):
    """Numbers of the images of each part, and how many held-out ones equal a training image."""

    fitted: np.ndarray
    watched: np.ndarray
    held_out: np.ndarray
    twins: int


def finish(
    cfg: config.Train,
    stages: Stages,
    model: Model,
    scores: Scores,
    proba: np.ndarray,
    images: datasets.Images,
    parts: Parts,
    rejected: list[datasets.Rejected],
    native_seconds: dict[str, float],
    X: Any,
) -> Trained:
    """Write the model, the predictions, the plots and the figures into the run folder."""
    folder, held_out = Path(cfg.run_dir), parts.held_out
    labels = steps.require_labels(images, cfg.data)
    with stages("save"):
        model.summary = _summary(cfg, len(parts.fitted), len(held_out), scores, model)
        save_model(folder / "model.npz", model)
        paths = [images.paths[i] for i in held_out]
        output.write_predictions(
            folder / "predictions.csv", paths, labels[held_out], proba, images.class_names
        )
        if cfg.plots:
            _draw(scores, model, folder)
    counts = {
        "all": len(images),
        "fit": len(parts.fitted),
        "validation": len(parts.watched),
        "test": len(held_out),
    }
    content = _figures(model, scores, counts, parts.twins, (len(rejected), native_seconds), stages)
    output.write_json(folder / "metrics.json", content)
    return Trained(model, scores, content, images, X)


def _figures(
    model: Model,
    scores: Scores,
    counts: dict[str, int],
    twins: int,
    reading: tuple[int, dict[str, float]],  # rejected files, seconds
    stages: Stages,
) -> dict[str, Any]:
    """Return the content of metrics.json."""
    classifier = model.classifier
    return {
        "test": output.figures(scores),
        "train_loss": classifier.train_loss_[classifier.n_rounds_ - 1],
        "rounds": classifier.n_rounds_,
        "images": counts,
        "rejected": reading[0],
        "duplicates": twins,
        "features": model.extractor.layout_.n_features,
        **_components(model),
        "read_seconds": reading[1],
        "backend": model.extractor.backend,
        **output.circumstances(stages),
    }


def _components(model: Model) -> dict[str, Any]:
    """Return what metrics.json and the model's summary tell about the reduction."""
    if model.reducer is None:
        return {}
    explained = float(model.reducer.explained_variance_ratio_.sum())
    return {"components": model.reducer.n_components_, "explained_variance": explained}


def _summary(cfg: config.Train, n_fit: int, n_test: int, scores: Scores, model: Model) -> dict[str, Any]:
    import datetime

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "data": steps.source(cfg.data),
        "images_fit": n_fit,
        "images_test": n_test,
        **_components(model),
        "rounds": model.classifier.n_rounds_,
        "test_accuracy": scores.accuracy,
        "test_balanced_accuracy": scores.balanced_accuracy,
        "test_log_loss": scores.log_loss,
    }


def _draw(scores: Scores, model: Model, folder: Path) -> None:
    plots.confusion_matrix(scores.confusion, model.class_names, folder / "confusion_matrix.png")
    plots.cell_importances(model.cell_importances(), folder / "cell_importance.png")
    fitted = model.classifier
    plots.learning_curve(
        fitted.train_loss_, fitted.validation_loss_ or [], fitted.n_rounds_, folder / "learning_curve.png"
    )
