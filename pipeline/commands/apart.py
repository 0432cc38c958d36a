"""What ``train`` does alike, whether features lie on disk or with workers: divide the images, and finish."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from pipeline import config, datasets
from pipeline.checkpoint import Keeper
from pipeline.commands import keeping, results, steps
from pipeline.model import Model
from pipeline.reporting.metrics import score
from pipeline.reporting.stages import Stages
from pipeline.scale.known import Known, duplicates_across


def divide(
    cfg: config.Train,
    known: Known,
    stages: Stages,
    keeper: Keeper | None,
    place: str | None,
    backend: str,
    partitions: int | None = None,
) -> results.Parts:
    """Write who was rejected, divide the images, and tell the keeper what a checkpoint holds about the run.

    Parameters
    ----------
    place : where the images were read from
    partitions : in how many parts their sums are added, if the run itself found that number

    Raises
    ------
    DataError, ResumeError
    """
    folder, images = Path(cfg.run_dir), known.images
    datasets.write_rejected(folder / "rejected.csv", known.rejected)
    steps.require_labels(images, cfg.data)
    with stages("split"):
        fitted, held_out = datasets.split(images, cfg.split)
        twins = steps.tell_twins(duplicates_across(known.digests, images.paths, fitted, held_out), folder)
        watched = fitted[:0]
        if cfg.classifier.early_stopping:
            fitted, watched = datasets.validation_split(images, fitted, cfg.split)
    if keeper is not None:
        parts = [fitted, watched, held_out]
        keeping.check_split(keeper, parts)
        keeper.content = partial(keeping.content, cfg, place, backend, known.stamps, parts, partitions)
    return results.Parts(fitted, watched, held_out, len(twins))


def finish(
    cfg: config.Train,
    stages: Stages,
    model: Model,
    known: Known,
    parts: results.Parts,
    proba: np.ndarray,
) -> results.Trained:
    """Judge the probabilities of the images held out, and write everything into the run folder."""
    images, extractor = known.images, model.extractor
    with stages("evaluate"):
        scores = score(steps.require_labels(images, cfg.data)[parts.held_out], proba, images.class_names)
    nothing = np.empty((0, extractor.layout_.n_features), extractor.dtype)  # the features are not here
    return results.finish(
        cfg, stages, model, scores, proba, images, parts, known.rejected, known.seconds, nothing
    )
