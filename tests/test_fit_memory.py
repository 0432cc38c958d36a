"""What a fit takes beside its features: no second copy of them, in no learner."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline import backends
from pipeline.boosting import LogitBoostClassifier


@pytest.mark.parametrize(("learner", "n", "p", "classes"), [
    ("subspace", 10_000, 1296, 10), ("componentwise", 4000, 1296, 10), ("random_features", 10_000, 3240, 10),
    ("ridge", 10_000, 500, 10), ("ridge", 10_000, 700, 10), ("ridge", 10_000, 800, 10),
    *(pytest.param("ridge", 10_000, p, 3, marks=pytest.mark.slow) for p in (2000, 3240)),
    pytest.param("full", 10_000, 3240, 3, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_fit_takes_half_of_its_features_again_at_most(learner, n, p, classes):
    """Of `ridge` and `full` most is a triangle of sums, float64; its float32 factor lies within it."""
    rng = np.random.default_rng(0)
    X, y = rng.random((n, p), dtype=np.float32), rng.integers(0, classes, n)
    settings = {"learner": learner, "n_components": 512, "random_state": 0}
    rounds = 1 if learner in {"ridge", "full"} else 3
    with backends.get("cpu").threads(2):  # each has tiles of its own
        some = (
            n if learner in {"subspace", "random_features"} else 1000
        )  # fewer rows have sums of another kind
        LogitBoostClassifier(n_rounds=1, **settings).fit(X[:some, :800], y[:some])  # compiles, imports
        tracemalloc.start()
        try:
            LogitBoostClassifier(n_rounds=rounds, **settings).fit(X, y)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak <= 0.5 * X.nbytes
