"""The sum of linear steps as one matrix, and what a fitted model says about its features."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.boosting.steps import Step

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any

SOME = 512  # rows of a matrix of random features that are squared at a time


class LinearModel(NamedTuple):
    """F(x) = (x - center) @ coef + intercept, the whole ensemble of linear steps.

    Attributes
    ----------
    coef : float64 (p, J)
    intercept : float64 (J,)
    """

    coef: np.ndarray
    intercept: np.ndarray

    @classmethod
    def from_steps(cls, steps: list[Step], p: int, n_classes: int) -> LinearModel:
        """Add up the steps: prediction is one matrix product whatever the number of rounds."""
        coef, intercept = np.zeros((p, n_classes)), np.zeros(n_classes)
        for step in steps:
            rows = slice(None) if step.columns is None else step.columns
            coef[rows] += step.coef
            intercept += step.intercept
        return cls(coef, intercept)

    def public(self, center: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and intercepts in scikit-learn's shapes, for features that are not centred."""
        coef, intercept = self.coef.T, self.intercept
        if center is not None:
            intercept = intercept - center @ self.coef
        if len(intercept) == 2:
            return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return coef, intercept


def importances(
    backend: Backend,
    linear: LinearModel | None,
    steps: list[Step],
    variance: np.ndarray,
    seed: int,
    dtype: str,
) -> np.ndarray:
    """Return the importance of each feature, float64 (p,), summing to 1 (or all 0 for a constant model).

    A feature's importance is its standard deviation times the size of the score's derivative by it: the mean of
    |coef| over classes for a linear model. For random features phi = cos(x'R + b) the root mean square of the
    derivative, -sum_c coef_c R_kc sin(.), is taken over classes and independent uniform phases: that of the mean over
    classes of sum_c coef_c^2 R_kc^2 / 2.

    Parameters
    ----------
    backend : draws the matrices R of random features again, in `dtype`: NumPy took .16 s for each
    steps : in host memory
    """
    if linear is not None:
        slope = np.abs(linear.coef).mean(axis=1)
    else:
        square = np.asarray(backend.get(_squares(backend, steps, variance.size, seed, dtype)))
        slope = np.sqrt(square)
    value = slope * np.sqrt(variance)
    total = value.sum()
    return value / total if total > 0.0 else value


def _squares(backend: Backend, steps: list[Step], p: int, seed: int, dtype: str) -> Array:
    """Return sum_c w_c R_kc^2 / 2, w_c the mean of coef_c^2 over classes, added over the steps: float64 (p,).

    R (p, components) is a step's matrix.
    """
    xp, total = backend.xp, backend.xp.zeros(p)
    if not steps:
        return total
    sizes = [step.coef.shape[0] for step in steps]
    weights = backend.put(np.concatenate([(step.coef**2).mean(axis=1) / 2.0 for step in steps]))

    def work(step: Step, weight: Array) -> Array:
        R = backend.wls.frequencies(p, weight.size, step.gamma or 0.0, seed, step.index, np.dtype(dtype))
        found = [xp.zeros(0)]
        for first in range(
            0, p, SOME
        ):  # R itself takes a twentieth of the features, and nothing else as much
            rows = xp.astype(R[first : first + SOME, :], xp.float64)
            found.append(xp.matmul(rows * rows, weight))
        return xp.concat(found)

    for step, end in zip(steps, itertools.accumulate(sizes), strict=True):
        one = functools.partial(work, step, weights[end - step.coef.shape[0] : end])
        total = total + backend.in_room(one, f"the importances of {p} features")
    return total
