"""How a worker makes features of images, and probabilities of features: with all its threads, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import backends, config
from pipeline.boosting import LogitBoostClassifier
from pipeline.features import HogExtractor
from pipeline.model import Model, fitted_extractor

_AT_WORK = threading.RLock()  # one task at a time in a process: its kernels use all the threads it was given


@dataclass(frozen=True)
class Recipe:
    """How images become features, and with how many threads."""

    hog: dict[str, Any]  # parameters of the extractor, its backend among them
    image: config.Image
    preprocess: config.Preprocess
    chunk: int
    threads: int
    device: int = 0


@contextmanager
def backend_at_work(name: str, threads: int, device: int) -> Iterator[Any]:
    """Let nobody else work in this process; yield the backend, limited to so many threads."""
    with _AT_WORK:
        if name == "gpu":
            backends.choose(name, device)
        backend = backends.get(name)
        with backend.threads(threads):
            yield backend


def extractor(recipe: Recipe) -> HogExtractor:
    """Return the fitted extractor of a recipe."""
    return fitted_extractor(HogExtractor(**recipe.hog), recipe.image)


def probabilities(
    given: HogExtractor,
    X: Any,
    recipe: Recipe,
    state: tuple[dict[str, np.ndarray], dict[str, Any]],
    class_names: tuple[str, ...],
) -> np.ndarray:
    """Return the probabilities (n, classes) of features, by the classifier that arrays and a header describe."""
    if not len(X):
        return np.zeros((0, len(class_names)), dtype=state[1]["dtype"])
    classifier = LogitBoostClassifier.from_state(*state)
    classifier.set_params(backend=recipe.hog["backend"])
    return Model(given, classifier, class_names, recipe.image, recipe.preprocess).proba_of_features(X)
