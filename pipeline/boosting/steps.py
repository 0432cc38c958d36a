"""What a round adds to the model: a function of x, and its values on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any


@dataclass(frozen=True)
class Step:
    """One round's function: f(x) = phi(x) @ coef + intercept, one column per class.

    phi(x) is (x - center)[columns], or all of x - center if columns is None, or random features of index
    `index` and width `gamma` if gamma is not None.
    """

    coef: Array  # float64 (q, J)
    intercept: Array  # float64 (J,)
    index: int
    columns: np.ndarray | None = None
    gamma: float | None = None

    def scaled(self, factor: float) -> Step:
        """Return the step multiplied by `factor`."""
        return Step(self.coef * factor, self.intercept * factor, self.index, self.columns, self.gamma)

    def placed(self, backend: Backend) -> Step:
        """Return the step with its arrays where the backend works."""
        return Step(backend.put(self.coef), backend.put(self.intercept), self.index, self.columns, self.gamma)


def evaluate(backend: Backend, step: Step, X: Array, center: Array, seed: int) -> Array:
    """Return the values (n, J) of a step on the rows of X, in the dtype of X."""
    wls = backend.wls
    if step.gamma is not None:
        phi = wls.random_features(X, center, step.gamma, step.coef.shape[0], seed, step.index)
    elif step.columns is not None:
        phi = wls.gather(X, step.columns, center)
    else:
        return wls.apply(X, center, step.coef, step.intercept)
    return wls.apply(phi, backend.xp.zeros(phi.shape[1]), step.coef, step.intercept)
