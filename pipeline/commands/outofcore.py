"""``train`` with ``scale=outofcore``: the same steps with the rows on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pipeline import backends, config
from pipeline.checkpoint import Keeper
from pipeline.commands import apart, keeping, results, rounds, steps
from pipeline.features import HogExtractor
from pipeline.model import Model
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from pipeline.scale import outofcore


def train_kept(
    cfg: config.Train, hog: HogExtractor, stages: Stages, chunks: Path, keeper: Keeper | None
) -> results.Trained:
    """Read the images into chunks, train on them, evaluate and save."""
    listed = Path(cfg.run_dir) / "rejected.csv"
    data = keeping.whereabouts(keeper, cfg.data)
    with progress("features") as advance, steps.rejected_kept(listed):
        reading = dataclasses.replace(cfg, data=data)
        kept = outofcore.keep(reading, hog, chunks, advance, stages, keeping.stamps(keeper))
    parts = apart.divide(cfg, kept, stages, keeper, data.path, hog.backend)
    with stages("boost"):
        fitted, watched = parts.fitted, parts.watched
        rows = outofcore.Rows(kept, cfg, len(fitted) + len(watched), keeping.noted(keeper, "division"))
        keeping.add(keeper, division=list(rows.division))
        unfitted = steps.classifier(cfg.classifier, hog.backend)
        validation = rows.parts(watched, 1) if len(watched) else None
        classifier = rounds.with_progress(
            lambda hooks: unfitted.fit_partitions(
                rows.parts(fitted, cfg.scale.partitions or 1), validation=validation, **hooks
            ),
            unfitted,
            keeper=keeper,
        )
    model = Model(hog, classifier, kept.images.class_names, cfg.image, cfg.preprocess)
    with stages("evaluate"):
        proba = outofcore.probabilities(rows, parts.held_out, model.proba_of_features)
    return apart.finish(cfg, stages, model, kept, parts, proba)


def run(
    cfg: config.Train, hog: HogExtractor, stages: Stages, keeper: Keeper | None = None
) -> results.Trained:
    """Train under ``scale.memory_limit``; chunks in the run folder are removed at the end."""
    outofcore.check(cfg, hog.backend)
    with backends.get(hog.backend).threads(cfg.backend.threads), outofcore.folder_of(cfg) as chunks:
        return train_kept(cfg, hog, stages, chunks, keeper)
