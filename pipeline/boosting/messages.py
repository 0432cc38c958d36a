"""What partitions are told and asked, and what they answer: all that goes between rows and the boosting loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pipeline.backends.protocol import Sums
from pipeline.boosting.steps import Step

Array = Any


@dataclass(frozen=True)
class Frame:
    """What every partition must know of the fit: told once, before the first round."""

    center: np.ndarray  # float64 (p,): the rounds see X - center
    n_classes: int
    seed: int
    dtype: str  # of features, working responses and scores
    z_max: float
    clip: str
    trim: float = 0.0


@dataclass(frozen=True)
class Basis:
    """The columns that a round fits: some of X, all of X, or random features drawn from (seed, index)."""

    index: int
    size: int  # number of columns q
    columns: np.ndarray | None = None
    gamma: float | None = None

    @property
    def whole(self) -> bool:
        """Whether the columns are all of X, as its rows lie."""
        return self.columns is None and self.gamma is None

    def same(self, other: Basis | None) -> bool:
        """Tell whether the columns are the same."""
        if other is None or (self.index, self.size, self.gamma) != (other.index, other.size, other.gamma):
            return False
        if self.columns is None or other.columns is None:
            return self.columns is other.columns
        return self.columns is other.columns or np.array_equal(self.columns, other.columns)


@dataclass(frozen=True)
class Request:
    """The sums that a round needs of the rows, at their scores."""

    basis: Basis
    classes: slice = field(default_factory=lambda: slice(0, 0))  # those whose Gram matrices are wanted
    totals: bool = True  # the sums that are of all classes, too
    componentwise: bool = False  # of single features: no Gram matrices
    gram_precision: str = "full"
    rough: bool = (
        False  # Gram matrices that only begin fits, of a backend that has such: never across machines
    )
    # The columns of the round after, if there is something to make of them: who has answered may do so meanwhile.
    after: Basis | None = None

    def looks_at(self) -> tuple[Basis, ...]:
        """Return whose columns the rows are looked at for."""
        return (replace(self.basis, columns=None),) if self.componentwise else (self.basis,)

    def same(self, other: Request) -> bool:
        """Tell whether the sums are the same."""
        return (
            (self.classes, self.totals, self.componentwise, self.gram_precision, self.rough)
            == (other.classes, other.totals, other.componentwise, other.gram_precision, other.rough)
        ) and self.basis.same(other.basis)


@dataclass(frozen=True)
class Move:
    """What a round adds to the scores: factor (f_j - mean_k f_k), with f = phi @ coef + intercept."""

    basis: Basis
    coef: Array  # float64 (q, J); (q, 1) if mirrored
    intercept: Array  # float64 (J,), or (1,)
    factor: float
    mirrored: bool = False  # two classes: f of the first is that of the second with the other sign

    @classmethod
    def of_step(cls, step: Step) -> Move:
        """Return a finished step, whose factor is in its coefficients, as a move."""
        basis = Basis(step.index, step.coef.shape[0], step.columns, step.gamma)
        return cls(basis, step.coef, step.intercept, 1.0)

    def scaled(self, share: float) -> Move:
        """Return a part of the move."""
        return replace(self, factor=self.factor * share)


class Report(NamedTuple):
    """What a partition tells of a move."""

    largest: float  # absolute score
    loss: float  # weighted sum of the log-losses
    sums: Sums | None  # that were asked for at the new scores; None for no rows


class Moments(NamedTuple):
    """Weighted moments of the columns, in host memory."""

    mean: np.ndarray  # float64 (p,)
    variance: np.ndarray  # float64 (p,), of the population
    total: float  # sum of the weights
    rows: int


def pooled(found: list[Moments]) -> Moments | None:
    """Return the moments of several sets of rows (Chan, Golub and LeVeque, The American Statistician 37, 1983).

    A column that holds one value in all of them keeps exactly that value as its mean, and 0 as its variance.
    """
    if len(found) < 2:
        return found[0] if found else None
    total = sum(one.total for one in found)
    shift = found[0].mean
    mean = shift + sum((one.total / total) * (one.mean - shift) for one in found)
    variance = sum((one.total / total) * (one.variance + (one.mean - mean) ** 2) for one in found)
    constant = np.all([(one.variance == 0.0) & (one.mean == shift) for one in found], axis=0)
    mean, variance = np.where(constant, shift, mean), np.where(constant, 0.0, variance)
    return Moments(mean, variance, total, sum(one.rows for one in found))
