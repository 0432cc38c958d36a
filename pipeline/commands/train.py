"""``train``: labelled images -> HoG features, reduced or not -> boosted classifier -> figures, plots, a model file."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline import backends, config, datasets, interrupts
from pipeline.boosting import LogitBoostClassifier
from pipeline.checkpoint import Keeper
from pipeline.commands import keeping, steps
from pipeline.errors import ConfigError
from pipeline.model import Model, save_model
from pipeline.reporting import plots, tables
from pipeline.reporting.metrics import Scores, confused, score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """What a training run leaves in memory."""

    model: Model
    scores: Scores  # of the held-out images
    content: dict[str, Any]  # of metrics.json
    images: datasets.Images
    features: Any  # (n, n_features) as boosting sees them, where the backend works: images fitted to, watched, held out


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
            )
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
        steps.write_predictions(
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
    steps.write_json(folder / "metrics.json", content)
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
        "test": steps.figures(scores),
        "train_loss": classifier.train_loss_[classifier.n_rounds_ - 1],
        "rounds": classifier.n_rounds_,
        "images": counts,
        "rejected": reading[0],
        "duplicates": twins,
        "features": model.extractor.layout_.n_features,
        **_components(model),
        "read_seconds": reading[1],
        "backend": model.extractor.backend,
        **steps.circumstances(stages),
    }


def _components(model: Model) -> dict[str, Any]:
    """Return what metrics.json and the model's summary tell about the reduction."""
    if model.reducer is None:
        return {}
    explained = float(model.reducer.explained_variance_ratio_.sum())
    return {"components": model.reducer.n_components_, "explained_variance": explained}


def _draw(scores: Scores, model: Model, folder: Path) -> None:
    plots.confusion_matrix(scores.confusion, model.class_names, folder / "confusion_matrix.png")
    plots.cell_importances(model.cell_importances(), folder / "cell_importance.png")
    fitted = model.classifier
    plots.learning_curve(
        fitted.train_loss_, fitted.validation_loss_ or [], fitted.n_rounds_, folder / "learning_curve.png"
    )


def fit(
    classifier: LogitBoostClassifier,
    X: Any,
    labels: np.ndarray,
    validation: tuple[Any, np.ndarray] | None,
    label: str = "boost",
    keeper: Keeper | None = None,
) -> LogitBoostClassifier:
    """Fit the classifier with a progress bar of its rounds; with a keeper it goes on from what that found."""
    return with_progress(
        lambda hooks: classifier.fit(X, labels, validation=validation, **hooks), classifier, label, keeper
    )


def with_progress(
    work: Callable[[dict[str, Any]], LogitBoostClassifier],
    classifier: LogitBoostClassifier,
    label: str = "boost",
    keeper: Keeper | None = None,
    beside: Callable[[], str] = str,
) -> LogitBoostClassifier:
    """Return work(hooks) with a progress bar of the rounds; `hooks` are arguments of the classifier's fit.

    `beside` tells what else to show beside the bar.

    Raises
    ------
    ConfigError
        If the fit refuses its data.
    """
    resumed: dict[str, Any] = {}
    done = 0
    if keeper is not None:
        resumed = {"on_state": keeper, "resume_from": keeper.state}
        done = keeper.done
    watching = nullcontext() if keeper is None else keeper.watching(classifier.n_rounds)
    with progress(label, "rounds", done) as advance, watching:

        def on_round(number: int, n_rounds: int, train_loss: float, validation_loss: float | None) -> None:
            interrupts.check()
            note = f"training {train_loss:.4f}"
            if validation_loss is not None:
                note += f"  validation {validation_loss:.4f}"
            advance(number, n_rounds, note + beside())

        try:
            return work({"on_round": on_round, **resumed})
        except ValueError as error:  # what the estimator refuses, and a system that cannot be solved
            raise ConfigError(f"the classifier cannot be fitted: {' '.join(str(error).split())}") from error


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
        fewer = f"; reduced to {content['components']} principal components, {share} of the variance"
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
