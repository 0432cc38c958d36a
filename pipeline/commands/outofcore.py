"""``train`` with ``scale=outofcore``: the same steps with the rows on disk."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from pipeline import backends, config, datasets
from pipeline.checkpoint import Keeper
from pipeline.commands import keeping, steps, train
from pipeline.features import HogExtractor
from pipeline.model import Model
from pipeline.reporting.metrics import score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from pipeline.scale import outofcore


def train_kept(
    cfg: config.Train, hog: HogExtractor, stages: Stages, chunks: Path, keeper: Keeper | None
) -> train.Trained:
    """Read the images into chunks, train on them, evaluate and save."""
    folder, listed = Path(cfg.run_dir), Path(cfg.run_dir) / "rejected.csv"
    data = keeping.whereabouts(keeper, cfg.data)
    with progress("features") as advance, steps.rejected_kept(listed):
        reading = dataclasses.replace(cfg, data=data)
        kept = outofcore.keep(reading, hog, chunks, advance, stages, keeping.stamps(keeper))
    datasets.write_rejected(listed, kept.rejected)
    images = kept.images
    labels = steps.require_labels(images, cfg.data)
    with stages("split"):
        fitted, held_out = datasets.split(images, cfg.split)
        twins = steps.tell_twins(
            outofcore.duplicates_across(kept.digests, images.paths, fitted, held_out), folder
        )
        watched = fitted[:0]
        if cfg.classifier.early_stopping:
            fitted, watched = datasets.validation_split(images, fitted, cfg.split)
    if keeper is not None:
        parts = [fitted, watched, held_out]
        keeping.check_split(keeper, parts)
        keeper.content = partial(keeping.content, cfg, data.path, hog.backend, kept.stamps, parts)
    with stages("boost"):
        rows = outofcore.Rows(kept, cfg, len(fitted) + len(watched))
        unfitted = steps.classifier(cfg.classifier, hog.backend)
        validation = rows.parts(watched, 1) if len(watched) else None
        classifier = train.with_progress(
            lambda hooks: unfitted.fit_partitions(
                rows.parts(fitted, cfg.scale.partitions or 1), validation=validation, **hooks
            ),
            unfitted,
            keeper=keeper,
        )
    model = Model(hog, classifier, images.class_names, cfg.image, cfg.preprocess)
    with stages("evaluate"):
        proba = outofcore.probabilities(rows, held_out, model.proba_of_features)
        scores = score(labels[held_out], proba, images.class_names)
    counted = train.Parts(fitted, watched, held_out, len(twins))
    nothing = np.empty((0, kept.format.n_features), kept.format.dtype)  # the features never lie in memory
    return train.finish(
        cfg, stages, model, scores, proba, images, counted, kept.rejected, kept.seconds, nothing
    )


def run(cfg: config.Train, hog: HogExtractor, stages: Stages, keeper: Keeper | None = None) -> train.Trained:
    """Train under ``scale.memory_limit``; chunks in the run folder are removed at the end."""
    outofcore.check(cfg, hog.backend)
    with backends.get(hog.backend).threads(cfg.backend.threads), outofcore.folder_of(cfg) as chunks:
        return train_kept(cfg, hog, stages, chunks, keeper)
