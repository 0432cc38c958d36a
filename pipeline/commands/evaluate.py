"""``evaluate``: figures of a saved model on labelled images, or a cross-validation of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline import backends, config, datasets
from pipeline.commands import output, steps
from pipeline.commands.rounds import fit
from pipeline.errors import ConfigError, DataError
from pipeline.features import HogExtractor
from pipeline.files import expanded
from pipeline.model import Model, load_model
from pipeline.reporting import plots, tables
from pipeline.reporting.metrics import Scores, confused, score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages


def run(cfg: config.Evaluate, stages: Stages | None = None) -> float:
    """Score a saved model (``model=``), or cross-validate the settings (``split.folds=``).

    Returns
    -------
    float
        Log-loss, over the folds their mean; smaller is better.
    """
    steps.only_local(cfg, "evaluate")
    stages = stages or Stages()
    if cfg.model and cfg.split.folds:
        raise ConfigError(
            "model= and split.folds= exclude each other: score a model, or cross-validate the settings"
        )
    if not cfg.model and not cfg.split.folds:
        raise ConfigError(
            "evaluate needs model=... (score a saved model) or split.folds=5 (cross-validate the settings)"
        )
    model = None
    if cfg.model:
        with stages("load model"):
            model = load_model(expanded(cfg.model))
    with stages("start"):
        name = steps.choose_backend(cfg.backend, cfg.preprocess if model is None else model.preprocess)
        backend = backends.get(name)
    with backend.threads(cfg.backend.threads):
        if model is None:
            return _cross_validation(cfg, name, stages)
        model.backend = name
        return _saved_model(cfg, model, stages)


def _saved_model(cfg: config.Evaluate, model: Model, stages: Stages) -> float:
    _check_unused(cfg, model)
    loaded = steps.read(cfg.data, model.image, cfg.run_dir, stages, classes=1)
    images = loaded.images
    labels = _labels_of_model(images, steps.require_labels(images, cfg.data), model.class_names)
    proba = np.empty((len(labels), len(model.class_names)))
    with progress("label") as advance:
        for begin in range(0, len(labels), cfg.chunk):
            part = slice(begin, begin + cfg.chunk)
            with stages("label"):
                proba[part] = model.predict_proba(images.pixels[part])
            advance(min(begin + cfg.chunk, len(labels)), len(labels))
    datasets.check_unchanged(loaded)
    scores = score(labels, proba, model.class_names)
    folder = Path(cfg.run_dir)
    with stages("save"):
        output.write_predictions(folder / "predictions.csv", images.paths, labels, proba, model.class_names)
        if cfg.plots:
            plots.confusion_matrix(scores.confusion, model.class_names, folder / "confusion_matrix.png")
    content = {
        "test": output.figures(scores),
        "model": str(cfg.model),
        "images": len(labels),
        "rejected": len(loaded.rejected),
        **output.circumstances(stages),
    }
    output.write_json(folder / "metrics.json", content)
    _tell(cfg, scores, model.class_names, len(loaded.rejected), stages)
    return scores.log_loss


def _tell(
    cfg: config.Evaluate, scores: Scores, class_names: tuple[str, ...], rejected: int, stages: Stages
) -> None:
    mistakes = tables.mistakes(confused(scores, class_names))
    if len(class_names) <= 20:
        tables.class_table(scores)
    tables.facts(
        f"Accuracy {tables.percent(scores.accuracy)} on {tables.count(scores.confusion.sum(), 'image')}",
        [
            ("balanced", f"{tables.percent(scores.balanced_accuracy)} (mean over the classes)"),
            ("log-loss", f"{scores.log_loss:.4f}"),
            ("most frequent mistakes", mistakes),
            ("rejected", f"{tables.count(rejected, 'file')}, see rejected.csv" if rejected else "none"),
            ("time", tables.stage_line(stages.seconds)),
            ("report", cfg.run_dir),
        ],
    )
    tables.say("  Images that the model was trained on make these figures look better than they are.")
    shown = np.flatnonzero(scores.confusion.sum(axis=1))
    if len(shown) == 1:
        tables.say(
            f"  All images are of the class {tables.shown(class_names[shown[0]])}: how often others are taken for it "
            "does not show, and its precision means nothing."
        )


def _check_unused(cfg: config.Evaluate, model: Model) -> None:
    """Refuse settings that would have no effect: size, preprocessing, HoG and reduction come from the model."""
    hog = steps.extractor(cfg.hog, model.image, model.backend).get_params()
    given = {
        "image": (cfg.image, config.Image(), model.image),
        "preprocess": (cfg.preprocess, config.Preprocess(), model.preprocess),
        "hog": (
            hog,
            steps.extractor(config.Hog(), model.image, model.backend).get_params(),
            model.extractor.get_params(),
        ),
        "reduce": (cfg.reduce, config.Reduce(), _reduction(model)),
    }
    for group, (found, default, of_model) in given.items():
        if found not in (default, of_model):
            raise ConfigError(
                f"{group} comes from the model and differs from the one given; leave the {group} settings out"
            )


def _reduction(model: Model) -> config.Reduce:
    """Return the settings of the model's reduction."""
    if model.reducer is None:
        return config.Reduce()
    return config.Reduce(config.ReduceName.pca, model.reducer.components, model.reducer.variance)


def _labels_of_model(images: datasets.Images, labels: np.ndarray, of_model: tuple[str, ...]) -> np.ndarray:
    """Return the labels as indices into the classes of the model, matched by name."""
    names = images.class_names
    unknown = [name for name in names if name not in of_model]
    if unknown:
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        known = ", ".join(of_model[:10]) + (", ..." if len(of_model) > 10 else "")
        remedy = "remove or rename those images"
        if images.made in (config.DataName.digits, config.DataName.synthetic):
            remedy = f"data={images.made.name} has others: give images with data.path=..."
        raise DataError(f"the model does not know the classes {shown}; it knows: {known}; {remedy}")
    place = np.array([of_model.index(name) for name in names], dtype=np.intp)
    return place[labels]


def _cross_validation(cfg: config.Evaluate, name: str, stages: Stages) -> float:
    steps.check_layout(cfg.hog, cfg.image)
    hog = steps.extractor(cfg.hog, cfg.image, name)
    reduced = steps.reducer(cfg.reduce, hog) is not None  # refused before any image is read
    steps.check_made(cfg.data, cfg.image, hog, reduced)
    loaded = steps.read(cfg.data, cfg.image, cfg.run_dir, stages)
    images = loaded.images
    labels = steps.require_labels(images, cfg.data)
    parts = list(datasets.folds(images, cfg.split))
    found = steps.twins(images, parts, Path(cfg.run_dir))
    with progress("features") as advance:
        everything = np.arange(len(labels))
        X = steps.features(
            images.pixels,
            everything,
            cfg.preprocess,
            hog,
            cfg.chunk,
            stages=stages,
            advance=advance,
            paths=images.paths,
            reduced=reduced,
        )
    datasets.check_unchanged(loaded)
    folds: list[Scores] = []
    for number, part in enumerate(parts, start=1):
        label = f"fold {number}/{len(parts)}"
        folds.append(_fold(cfg, hog, images, labels, X, part, label, stages))
    return _tell_folds(
        cfg, folds, parts, {"rejected": len(loaded.rejected), "duplicates": len(found)}, stages
    )


def _fold(
    cfg: config.Evaluate,
    hog: HogExtractor,
    images: datasets.Images,
    labels: np.ndarray,
    X: Any,
    part: datasets.Split,
    label: str,
    stages: Stages,
) -> Scores:
    """Return the figures of one fold. What is learned is learned from its training images, the reduction too."""
    backend, (train, test) = backends.get(hog.backend), part
    watched = train[:0]
    if cfg.classifier.early_stopping:
        train, watched = datasets.validation_split(images, train, cfg.split)
    reducer, X_fit = steps.reducer(cfg.reduce, hog), backend.resident(backend.rows(X, train))
    steps.fit_reducer(reducer, X_fit, stages)
    X_fit = steps.reduced(reducer, X_fit, stages)
    validation = None
    if len(watched):
        validation = (
            steps.reduced(reducer, backend.resident(backend.rows(X, watched)), stages),
            labels[watched],
        )
    with stages("boost"):
        classifier = fit(
            steps.classifier(cfg.classifier, hog.backend), X_fit, labels[train], validation, label
        )
    X_test = steps.reduced(reducer, backend.resident(backend.rows(X, test)), stages)
    with stages("evaluate"):
        model = Model(hog, classifier, images.class_names, cfg.image, cfg.preprocess, reducer=reducer)
        return score(labels[test], model.proba_of_features(X_test), images.class_names)


def _tell_folds(
    cfg: config.Evaluate,
    folds: list[Scores],
    parts: list[datasets.Split],
    counts: dict[str, int],
    stages: Stages,
) -> float:
    values = np.array([(fold.accuracy, fold.balanced_accuracy, fold.log_loss) for fold in folds])
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    names = ("accuracy", "balanced_accuracy", "log_loss")
    content = {
        "folds": [
            {**output.figures(fold), "images": len(test)}
            for fold, (_, test) in zip(folds, parts, strict=True)
        ],
        "test": dict(zip(names, mean.tolist(), strict=True)),
        "standard_deviation": dict(zip(names, spread.tolist(), strict=True)),
        "grouped_by": cfg.split.group_by,
        **counts,
        **output.circumstances(stages),
    }
    output.write_json(Path(cfg.run_dir) / "metrics.json", content)
    rows = [
        (str(i), len(test), *map(float, row))
        for i, ((_, test), row) in enumerate(zip(parts, values, strict=True), 1)
    ]
    rows += [("mean", None, *map(float, mean)), ("standard deviation", None, *map(float, spread))]
    kind = "grouped" if cfg.split.group_by else "stratified"
    tables.table(f"{len(folds)} folds, {kind}", ("fold", "images", "accuracy", "balanced", "log-loss"), rows)
    tables.facts(
        f"Accuracy {tables.percent(mean[0])} +- {tables.percent(spread[0])} over {len(folds)} folds",
        [("time", tables.stage_line(stages.seconds)), ("report", cfg.run_dir)],
    )
    return float(mean[2])
