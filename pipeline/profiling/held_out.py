"""The images that a finished run held out: their features and labels, and the loss on them round by round."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline import backends, datasets
from pipeline.profiling.runs import Run


class Parts(NamedTuple):
    """The training part and the held-out part of a run."""

    X_fit: Any  # (fit, p) where the backend works
    y_fit: np.ndarray  # intp, index into the class names
    X_test: Any  # (tested, p)
    y_test: np.ndarray


def _split(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices fitted to, watched and held out; the split is drawn again, which gives the same."""
    images, cfg = run.trained.images, run.settings
    fitted, tested = datasets.split(images, cfg.split)
    watched = fitted[:0]
    if cfg.classifier.early_stopping:
        fitted, watched = datasets.validation_split(images, fitted, cfg.split)
    return fitted, watched, tested


def row_order(run: Run) -> np.ndarray:
    """Return the number of the image behind each row of the run's features, intp."""
    return np.concatenate(_split(run))


def parts(run: Run) -> Parts:
    """Return what was fitted to and what was held out."""
    fitted, watched, tested = _split(run)
    X, labels = run.trained.features, run.trained.images.labels
    return Parts(X[: len(fitted)], labels[fitted], X[len(fitted) + len(watched) :], labels[tested])


def losses(run: Run) -> list[float]:
    """Return the mean log-loss on the held-out images after each round that the model kept.

    Out of core the features are gone when the run ends: the list is empty, and nothing follows from it.
    """
    if run.work.memory_limit:
        return []
    held = parts(run)
    classifier = run.trained.model.classifier
    known = np.isin(held.y_test, classifier.classes_)
    place = np.searchsorted(classifier.classes_, held.y_test[known])
    rows = np.arange(len(known))[known]
    found = []
    with backends.get(run.work.backend).threads(run.settings.backend.threads):
        for proba in classifier.staged_predict_proba(held.X_test):
            chance = np.maximum(proba[rows, place], np.finfo(proba.dtype).tiny)
            found.append(float(-np.log(chance).mean()))
    return found
