"""Fits whose results are kept in tests/data/boosting_before.npz: made by the loop as it was before it had partitions.

    python -m tests.boosting_before tests/data/boosting_before.npz

writes the file anew, which is right only where results are meant to change.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from pipeline.boosting import LogitBoostClassifier

LEARNERS = ("subspace", "full", "ridge", "componentwise", "random_features")


def problem(n: int, p: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of overlapping classes, always the same."""
    rng = np.random.default_rng(n + p)
    X = rng.random((n, p)) * 0.3
    y = (X @ rng.normal(size=(p, n_classes)) + 0.3 * rng.gumbel(size=(n, n_classes))).argmax(axis=1)
    return X, y


def cases() -> dict[str, tuple[tuple[int, int, int], dict[str, Any]]]:
    """Return the shape of the problem and the classifier's parameters of each case."""
    found = {}
    for learner, J, dtype in itertools.product(LEARNERS, (2, 10), ("float32", "float64")):
        shape = (4200, 40, J) if dtype == "float32" else (900, 24, J)
        found[f"{learner}-{J}-{dtype}"] = (shape, {"learner": learner, "dtype": dtype})
    more = {"learner": "subspace", "dtype": "float64"}
    found["trim"] = ((900, 24, 3), {**more, "trim": 0.1})
    found["stopping"] = ((900, 24, 3), {**more, "early_stopping": True, "patience": 2, "n_rounds": 40})
    found["balanced"] = ((900, 24, 3), {**more, "class_weight": "balanced"})
    found["separable"] = ((60, 80, 3), {"learner": "full", "n_rounds": 60, "learning_rate": 1.0})
    found["large-float32"] = ((300, 800, 3), {"learner": "ridge", "n_rounds": 3})
    found["large-float64"] = ((300, 800, 3), {"learner": "ridge", "n_rounds": 3, "dtype": "float64"})
    return found


def fitted(shape: tuple[int, int, int], params: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of the first 50 rows and the training losses."""
    X, y = problem(*shape)
    settings = {"n_rounds": 8, "subspace_size": 12, "n_components": 48, "random_state": 5, **params}
    model = LogitBoostClassifier(**settings).fit(X, y)
    return model.predict_proba(X[:50]), np.array(model.train_loss_)


if __name__ == "__main__":
    arrays = {}
    for name, (shape, params) in cases().items():
        arrays[f"{name}/proba"], arrays[f"{name}/loss"] = fitted(shape, params)
    np.savez_compressed(sys.argv[1], **arrays)
