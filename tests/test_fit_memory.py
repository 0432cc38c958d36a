"""What a fit takes beside its features: no second copy of them, in no learner."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline.boosting import LogitBoostClassifier


@pytest.mark.parametrize(("learner", "n", "p", "classes"), [
    ("subspace", 4000, 1296, 10), ("componentwise", 4000, 1296, 10), ("random_features", 4000, 1296, 10),
    ("ridge", 3000, 2600, 3), ("full", 3000, 2600, 3),
])  # fmt: skip
def test_a_fit_takes_half_of_its_features_again_at_most(learner, n, p, classes):
    """Beside the one Gram matrix of all columns, float64, where a learner needs it; its factor lies within it."""
    rng = np.random.default_rng(0)
    X, y = rng.random((n, p), dtype=np.float32), rng.integers(0, classes, n)
    settings = {"learner": learner, "n_components": 128, "random_state": 0}
    LogitBoostClassifier(n_rounds=1, **settings).fit(X[:300], y[:300])  # compiles, imports
    tracemalloc.start()
    try:
        LogitBoostClassifier(n_rounds=3 if classes > 3 else 1, **settings).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    whole = 8 * p * p if learner in {"ridge", "full"} else 0
    assert peak <= 0.5 * X.nbytes + whole
