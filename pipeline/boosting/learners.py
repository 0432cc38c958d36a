"""The weighted-least-squares learners: what one boosting round fits to the working responses.

Every learner turns weights W and weighted responses R = W Z, both (n, J), into one :class:`Step`: a function of x
that is linear in a few columns of x, or in random Fourier features of x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pipeline.boosting.checks import width_range
from pipeline.spans import part, span

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any


@dataclass(frozen=True)
class Design:
    """The training matrix and what every round needs to know of it.

    Attributes
    ----------
    X : (n, p) features where the backend works
    center : float64 (p,) column means; learners see X - center
    active : int (m,) the columns that vary
    total_variance : sum of the column variances
    seed : the seed from which every round's draws follow
    """

    backend: Backend
    X: Array
    center: Array
    active: np.ndarray
    total_variance: float
    seed: int

    @property
    def n_features(self) -> int:
        """Number of columns p."""
        return self.X.shape[1]


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


class Fitted(NamedTuple):
    """A step, its values on the training rows, and how its factorisations went."""

    step: Step
    values: Array  # (n, J), dtype of X
    rank: Array  # int (J,), in host memory
    ladder: Array  # int (J,), in host memory


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


class Learner(Protocol):
    """A rule that fits one step."""

    def fit(self, design: Design, W: Array, R: Array, index: int) -> Fitted:
        """Fit the step of round `index` to weights W and weighted responses R, both (n, J)."""


def _generator(design: Design, index: int) -> np.random.Generator:
    # A counter-based generator keyed by (seed, round): any round can be redrawn alone, on any backend.
    return np.random.Generator(np.random.Philox(key=[design.seed, index]))


@dataclass(frozen=True)
class Ridge:
    """All features, with penalty l2 on every coefficient; l2 = 0 is the learner ``full``."""

    l2: float
    gram_precision: str = "full"

    def fit(self, design: Design, W: Array, R: Array, index: int) -> Fitted:
        """Fit J ridge regressions on all columns."""
        wls = design.backend.wls
        with span("fit"):
            found = wls.fit(design.X, design.center, W, R, self.l2, self.gram_precision)
        step = Step(found.coef, found.intercept, index)
        with span("update"):
            values = wls.apply(design.X, design.center, *found[:2])
        return Fitted(step, values, found.rank, found.ladder)


@dataclass(frozen=True)
class Subspace:
    """One random subset of `size` features per round, shared by the classes."""

    size: int
    l2: float
    gram_precision: str = "full"

    def fit(self, design: Design, W: Array, R: Array, index: int) -> Fitted:
        """Fit J ridge regressions on the columns drawn for round `index`."""
        wls, xp = design.backend.wls, design.backend.xp
        size = min(self.size, design.active.size)
        columns = np.sort(_generator(design, index).choice(design.active, size, replace=False))
        with span("columns"):
            Xs = wls.gather(design.X, columns, design.center)
        zero = xp.zeros(size)
        with span("fit"):
            found = wls.fit(Xs, zero, W, R, self.l2, self.gram_precision)
        step = Step(found.coef, found.intercept, index, columns=columns)
        with span("update"):
            values = wls.apply(Xs, zero, *found[:2])
        return Fitted(step, values, found.rank, found.ladder)


@dataclass(frozen=True)
class RandomFeatures:
    """Random Fourier features of the Gaussian kernel, drawn anew in each round.

    The kernel's width is gamma = g / (sum of the column variances), g log-uniform in `width`, drawn per round.
    """

    n_components: int
    width: tuple[float, float]
    l2: float
    gram_precision: str = "full"

    def fit(self, design: Design, W: Array, R: Array, index: int) -> Fitted:
        """Fit J ridge regressions on the random features of round `index`."""
        wls, xp = design.backend.wls, design.backend.xp
        low, high = np.log(self.width)
        width = float(np.exp(low + (high - low) * _generator(design, index).random()))
        gamma = width / design.total_variance if design.total_variance > 0.0 else 0.0
        with span("columns"):
            phi = wls.random_features(design.X, design.center, gamma, self.n_components, design.seed, index)
        zero = xp.zeros(self.n_components)
        with span("fit"):
            found = wls.fit(phi, zero, W, R, self.l2, self.gram_precision)
        step = Step(found.coef, found.intercept, index, gamma=gamma)
        with span("update"):
            values = wls.apply(phi, zero, *found[:2])
        return Fitted(step, values, found.rank, found.ladder)


@dataclass(frozen=True)
class Componentwise:
    """For each class the one feature with the least weighted squared error (the lowest index on ties)."""

    def fit(self, design: Design, W: Array, R: Array, index: int) -> Fitted:
        """Fit one simple weighted regression per class.

        With centred sums, feature k lowers the squared error of class j by num^2 / den, where
        num = sum w (x - mean) z and den = sum w (x - mean)^2, both weighted. Features whose den is rounding
        noise are skipped.
        """
        with span("fit"):
            with part("sums"):
                sums = design.backend.wls.componentwise_sums(design.X, design.center, W, R)
            with part("solve"):
                step = self._chosen(design, sums, W, R, index)
        with span("update"):
            values = evaluate(design.backend, step, design.X, design.center, design.seed)
        flags = np.zeros(W.shape[1], dtype=np.intp)
        return Fitted(step, values, flags + 1, flags)

    @staticmethod
    def _chosen(design: Design, sums: Any, W: Array, R: Array, index: int) -> Step:
        """Return the step of the best feature of each class."""
        xp = design.backend.xp
        sw = xp.sum(xp.astype(W, xp.float64), axis=0)
        sr = xp.sum(xp.astype(R, xp.float64), axis=0)
        safe = xp.where(sw > 0.0, sw, xp.ones_like(sw))
        num = sums.xr - sums.xw * (sr / safe)
        den = sums.xxw - sums.xw * (sums.xw / safe)
        eps = float(xp.finfo(W.dtype).eps)
        usable = den > 64.0 * eps * sums.xxw
        one = xp.ones_like(den)
        slope = xp.where(usable, num / xp.where(usable, den, one), xp.zeros_like(den))
        gain = num * slope
        # Features that tie in exact arithmetic differ by rounding: the lowest index among the equals wins.
        equal = gain >= xp.max(gain, axis=0, keepdims=True) * (1.0 - 64.0 * eps)
        best = xp.argmax(xp.astype(equal, xp.int8), axis=0)
        picked = xp.take_along_axis(slope, best[None, :], axis=0)[0, :]
        offset = (sr - xp.take_along_axis(sums.xw, best[None, :], axis=0)[0, :] * picked) / safe
        # one small transfer; feature numbers are exact in float64
        home = np.asarray(design.backend.get(xp.stack([xp.astype(best, xp.float64), picked])))
        chosen = home[0].astype(np.intp)
        columns, slot = np.unique(chosen, return_inverse=True)
        classes = np.arange(chosen.size)
        coef = np.zeros((columns.size, chosen.size))
        coef[slot, classes] = home[1]
        return Step(design.backend.put(coef), offset, index, columns=columns)


def make_learner(params: dict[str, Any]) -> Learner:
    """Return the learner that the estimator's parameters name."""
    name, l2, precision = params["learner"], float(params["l2"]), params["gram_precision"]
    if name == "full":
        return Ridge(0.0, precision)
    if name == "ridge":
        return Ridge(l2, precision)
    if name == "subspace":
        return Subspace(int(params["subspace_size"]), l2, precision)
    if name == "random_features":
        low, high = width_range(params["gamma"])
        return RandomFeatures(int(params["n_components"]), (low, high), l2, precision)
    return Componentwise()
