"""``train`` with ``scale=outofcore``: the same steps with the rows on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline import backends, config, datasets
from pipeline.commands import steps, train
from pipeline.features import HogExtractor
from pipeline.model import Model
from pipeline.reporting.metrics import score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from pipeline.scale import outofcore


def train_kept(cfg: config.Train, hog: HogExtractor, stages: Stages, chunks: Path) -> train.Trained:
    """Read the images into chunks, train on them, evaluate and save."""
    folder, listed = Path(cfg.run_dir), Path(cfg.run_dir) / "rejected.csv"
    with progress("features") as advance, steps.rejected_kept(listed):
        kept = outofcore.keep(cfg, hog, chunks, advance, stages)
    datasets.write_rejected(listed, kept.rejected)
    images = kept.images
    labels = steps.require_labels(images, cfg.data)
    with stages("split"):
        fitted, held_out = datasets.split(images, cfg.split)
        twins = steps.tell_twins(outofcore.duplicates_across(kept, fitted, held_out), folder)
        watched = fitted[:0]
        if cfg.classifier.early_stopping:
            fitted, watched = datasets.validation_split(images, fitted, cfg.split)
    with stages("boost"):
        rows = outofcore.Rows(kept, cfg, len(fitted) + len(watched))
        unfitted = steps.classifier(cfg.classifier, hog.backend)
        validation = rows.parts(watched, 1) if len(watched) else None
        classifier = train.with_progress(
            lambda on_round: unfitted.fit_partitions(
                rows.parts(fitted, cfg.scale.partitions), validation=validation, on_round=on_round
            )
        )
    model = Model(hog, classifier, images.class_names, cfg.image, cfg.preprocess)
    with stages("evaluate"):
        proba = outofcore.probabilities(rows, held_out, model.proba_of_features)
        scores = score(labels[held_out], proba, images.class_names)
    parts = train.Parts(fitted, watched, held_out, len(twins))
    nothing = np.empty((0, kept.format.n_features), kept.format.dtype)  # the features never lie in memory
    return train.finish(
        cfg, stages, model, scores, proba, images, parts, kept.rejected, kept.seconds, nothing
    )


def run(cfg: config.Train, hog: HogExtractor, stages: Stages) -> train.Trained:
    """Train under ``scale.memory_limit``; chunks in the run folder are removed at the end."""
    outofcore.check(cfg, hog.backend)
    with backends.get(hog.backend).threads(cfg.backend.threads), outofcore.folder_of(cfg) as chunks:
        return train_kept(cfg, hog, stages, chunks)
