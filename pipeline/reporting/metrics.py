"""Figures of a classifier on labelled images, all from the confusion matrix and the probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Scores(NamedTuple):
    """How well probabilities fit labels.

    Attributes
    ----------
    accuracy : float
        Share of images whose most probable class is theirs.
    balanced_accuracy : float
        Mean recall over the classes that occur among the labels.
    log_loss : float
        Mean of -log p(true class), in nats; a probability of 0 counts as the smallest float64 step above it.
    per_class : dict
        Class name -> precision, recall, f1 (None where undefined: nothing predicted or no such
        image), support.
    confusion : ndarray of int, shape (n_classes, n_classes)
        Images of class i (row) labelled as class j (column).
    """

    accuracy: float
    balanced_accuracy: float
    log_loss: float
    per_class: dict[str, dict[str, Any]]
    confusion: np.ndarray


def score(labels: np.ndarray, proba: np.ndarray, class_names: tuple[str, ...]) -> Scores:
    """Compare probabilities (n, n_classes) with labels (n,), indices into `class_names`.

    Raises
    ------
    FloatingPointError
        If a probability is not finite: no figure would mean anything.
    """
    if not np.isfinite(proba).all():
        raise FloatingPointError(
            f"{int((~np.isfinite(proba)).any(axis=1).sum())} images got probabilities that are not finite"
        )
    n_classes = len(class_names)
    confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(confusion, (labels, proba.argmax(axis=1)), 1)
    hits, support, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    own = proba[np.arange(len(labels)), labels].astype(np.float64)
    per_class = {
        name: {
            "precision": _ratio(hits[k], predicted[k]),
            "recall": _ratio(hits[k], support[k]),
            "f1": _ratio(2 * hits[k], predicted[k] + support[k]),
            "support": int(support[k]),
        }
        for k, name in enumerate(class_names)
    }
    return Scores(
        accuracy=float(hits.sum() / support.sum()),
        balanced_accuracy=float((hits[support > 0] / support[support > 0]).mean()),
        log_loss=float(-np.log(np.maximum(own, np.finfo(np.float64).eps)).mean()),
        per_class=per_class,
        confusion=confusion,
    )


def _ratio(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def confused(scores: Scores, class_names: tuple[str, ...], most: int = 3) -> list[tuple[int, str, str]]:
    """Return the most frequent mistakes as (count, true class, predicted class)."""
    wrong = scores.confusion - np.diag(scores.confusion.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [np.unravel_index(k, wrong.shape) for k in order]
    return [(int(wrong[i, j]), class_names[i], class_names[j]) for i, j in pairs if wrong[i, j]]
