"""Fits by the loop over partitions against those of the loop before it had them."""

from __future__ import annotations

import numpy as np
import pytest

from tests import boosting_before
from tests.conftest import DATA

KEPT = DATA / "boosting_before.npz"


# Two classes take other kernels, which other tests compile and run, too: of them the default learner alone.
LATER = [name for name in boosting_before.cases() if "-2-" in name and not name.startswith("subspace")]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LATER else name
        for name in boosting_before.cases()
    ],
)
def test_results_are_what_they_were(name):
    """Up to the order in which BLAS and the kernels add."""
    shape, params = boosting_before.cases()[name]
    proba, loss = boosting_before.fitted(shape, params)
    kept = np.load(KEPT, allow_pickle=False)
    atol = 2e-5 if name.endswith("float32") else 1e-10
    np.testing.assert_allclose(proba, kept[f"{name}/proba"], rtol=0, atol=atol)
    np.testing.assert_allclose(loss, kept[f"{name}/loss"], rtol=0, atol=atol)
