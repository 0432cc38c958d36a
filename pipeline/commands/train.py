"""``train``: labelled images -> HoG features, reduced or not -> boosted classifier -> figures, plots, a model file."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import backends, config, datasets
from pipeline.checkpoint import Keeper
from pipeline.commands import keeping, steps
from pipeline.commands.results import Parts, Trained, finish
from pipeline.commands.rounds import fit
from pipeline.errors import ConfigError
from pipeline.model import Model
from pipeline.reporting import tables
from pipeline.reporting.metrics import Scores, confused, score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages

log = logging.getLogger(__name__)


def run(cfg: config.Train, stages: Stages | None = None) -> float:
    """Train, evaluate, save, and tell.

    Parameters
    ----------
    cfg : config.Train
        ``run_dir`` must exist; everything is written there. With config.TrainCommand checkpoints are, too, and
        ``resume`` goes on from one.
    stages : Stages, optional
        Where seconds are added up; the command line passes one that already knows the start-up time.

    Returns
    -------
    float
        Log-loss on the held-out images, smaller is better: what a sweep compares.
    """
    stages = stages or Stages()
    keeper, cfg = keeping.keeper(cfg)
    with nullcontext() if keeper is None else keeper.telling():
        trained = train(cfg, stages, keeper)
    if keeper is not None:
        keeper.close()
    _tell(cfg, trained.content, trained.scores, trained.model.class_names, stages)
    return trained.scores.log_loss


def train(cfg: config.Train, stages: Stages, keeper: Keeper | None = None) -> Trained:
    """Train, evaluate and save, without a word; parameters as :func:`run`, and who keeps checkpoints."""
    if cfg.split.folds:
        raise ConfigError(
            "split.folds is for cross-validation, which train does not do; leave split=folds and split.folds= "
            f"out, or use: python -m pipeline evaluate split.folds={cfg.split.folds}"
        )
    if cfg.scale.name is config.ScaleName.dask:
        from pipeline.commands import distributed

        return distributed.run(cfg, stages, keeper)

    with stages("start"):
        name = steps.choose_backend(cfg.backend, cfg.preprocess)
        backend = backends.get(name)
    folder = Path(cfg.run_dir)
    steps.check_layout(cfg.hog, cfg.image)
    hog = steps.extractor(cfg.hog, cfg.image, name)
    reducer = steps.reducer(cfg.reduce, hog)
    if cfg.scale.name is config.ScaleName.outofcore:
        from pipeline.commands import outofcore

        return outofcore.run(cfg, hog, stages, keeper)

    steps.check_made(cfg.data, cfg.image, hog, reducer is not None)
    with backend.threads(cfg.backend.threads):
        data = keeping.whereabouts(keeper, cfg.data)
        loaded = steps.read(data, cfg.image, cfg.run_dir, stages, keeping.stamps(keeper))
        images = loaded.images
        labels = steps.require_labels(images, cfg.data)
        with stages("split"):
            fitted, held_out = datasets.split(images, cfg.split)
            twins = steps.twins(images, [(fitted, held_out)], folder)
            watched = fitted[:0]
            if cfg.classifier.early_stopping:
                fitted, watched = datasets.validation_split(images, fitted, cfg.split)

        parts = [fitted, watched, held_out]
        order = np.concatenate(parts)
        if keeper is not None:
            keeping.check_split(keeper, parts)
            keeper.content = lambda: keeping.content(
                cfg, data.path, name, loaded.stamps or datasets.stamp_pictures(images), parts
            )
        with progress("features") as advance:
            X = steps.features(
                images.pixels,
                order,
                cfg.preprocess,
                hog,
                cfg.chunk,
                stages=stages,
                advance=advance,
                paths=images.paths,
                reduced=reducer is not None,
            )
        datasets.check_unchanged(loaded)
        steps.fit_reducer(reducer, X[: len(fitted)], stages)
        X = steps.reduced(reducer, X, stages)
        last = len(fitted) + len(watched)
        X_fit, X_watch, X_test = X[: len(fitted)], X[len(fitted) : last], X[last:]
        with stages("boost"):
            validation = (X_watch, labels[watched]) if len(watched) else None
            unfitted = steps.classifier(cfg.classifier, name)
            classifier = fit(unfitted, X_fit, labels[fitted], validation, keeper=keeper)

        model = Model(hog, classifier, images.class_names, cfg.image, cfg.preprocess, reducer=reducer)
        with stages("evaluate"):
            proba = model.proba_of_features(X_test)
            scores = score(labels[held_out], proba, images.class_names)

    return finish(
        cfg,
        stages,
        model,
        scores,
        proba,
        images,
        Parts(fitted, watched, held_out, len(twins)),
        loaded.rejected,
        loaded.native_seconds,
        X,
    )


def _tell(
    cfg: config.Train, content: dict[str, Any], scores: Scores, class_names: tuple[str, ...], stages: Stages
) -> None:
    log.info("accuracy %.4f, log-loss %.4f; %s", scores.accuracy, scores.log_loss, stages.seconds)
    counts = content["images"]
    parts = f"{counts['fit']} to fit, " + (
        f"{counts['validation']} to watch, " if counts["validation"] else ""
    )
    rejected = (
        f"; {tables.count(content['rejected'], 'file')} rejected, see rejected.csv"
        if content["rejected"]
        else ""
    )
    source = steps.source(cfg.data)
    mistakes = tables.mistakes(confused(scores, class_names))
    learner = cfg.classifier.learner.name
    rounds = f"{tables.count(content['rounds'], 'round')}, learner {learner}"
    memory = content["peak_memory_bytes"]
    fewer = ""
    if "components" in content:
        share = tables.percent(content["explained_variance"])
        fewer = f"; reduced to {tables.count(content['components'], 'principal component')}, {share} of the variance"
    if len(class_names) <= 20:
        tables.class_table(scores)
    tables.facts(
        f"Accuracy {tables.percent(scores.accuracy)} on {tables.count(counts['test'], 'held-out image')}",
        [
            ("balanced", f"{tables.percent(scores.balanced_accuracy)} (mean over the classes)"),
            ("log-loss", f"{scores.log_loss:.4f}"),
            ("most frequent mistakes", mistakes),
            (
                "images",
                f"{source}: {counts['all']} in {len(class_names)} classes; {parts}"
                f"{counts['test']} held out{rejected}",
            ),
            (
                "features",
                f"{content['features']} per image, HoG of {cfg.image.height}x{cfg.image.width} pixels{fewer}",
            ),
            ("boosting", f"{rounds}, training log-loss {content['train_loss']:.4f}"),
            ("time", tables.stage_line(stages.seconds)),
            (
                "memory",
                f"{tables.megabytes(memory)} at most, backend {content['backend']}"
                if memory
                else content["backend"],
            ),
            ("model", str(Path(cfg.run_dir) / "model.npz")),
            (
                "report",
                cfg.run_dir,
            ),
        ],
    )
