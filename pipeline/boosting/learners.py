"""The weighted-least-squares learners: what one boosting round fits to the working responses.

Every learner asks the partitions for sums over rows and turns them into one function of x that is linear in a few
columns of x, or in random Fourier features of x.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pipeline.backends import fits
from pipeline.backends.protocol import Sums
from pipeline.boosting.checks import width_range
from pipeline.boosting.messages import Basis, Move, Request
from pipeline.boosting.steps import Step
from pipeline.boosting.team import Team
from pipeline.spans import part, span

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any


@dataclass(frozen=True)
class Design:
    """What every round needs to know of the training matrix.

    Attributes
    ----------
    backend : who solves
    n_features : number of columns p
    n_classes : J
    active : int (m,) the columns that vary
    total_variance : sum of the column variances
    seed : the seed from which every round's draws follow
    dtype : "float32" or "float64", of the rows
    """

    backend: Backend
    n_features: int
    n_classes: int
    active: np.ndarray
    total_variance: float
    seed: int
    dtype: str
    _draws: dict[tuple[int, int], np.ndarray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def drawn(self, index: int, size: int) -> np.ndarray:
        """Return the `size` active columns drawn for round `index`, rising."""
        found = self._draws.get((index, size))
        if found is None:
            found = np.sort(_generator(self, index).choice(self.active, size, replace=False))
            if len(self._draws) > 2:  # this round's, and one or two that are foretold: a draw takes .1 ms
                del self._draws[min(self._draws)]
            self._draws[index, size] = found
        return found

    @property
    def fitted_classes(self) -> int:
        """Number of regressions of a round: of two classes one serves both."""
        return 1 if self.n_classes == 2 else self.n_classes


class Fitted(NamedTuple):
    """What a round found, before the learning rate, and how its factorisations went."""

    basis: Basis
    coef: Array  # float64 (q, J), or (q, 1) for two classes
    intercept: Array  # float64 (J,) or (1,)
    rank: np.ndarray  # int (J,)
    ladder: np.ndarray  # int (J,)

    def move(self, factor: float, n_classes: int) -> Move:
        """Return what the rows add to their scores."""
        return Move(self.basis, self.coef, self.intercept, factor, n_classes == 2)

    def step(self, xp: Any, factor: float, n_classes: int) -> Step:
        """Return factor (f_j - mean_k f_k) as a function of x."""
        coef, intercept = self.coef, self.intercept
        if n_classes == 2:
            coef, intercept = xp.concat([-coef, coef], axis=1), xp.concat([-intercept, intercept])
        coef = factor * (coef - xp.mean(coef, axis=1, keepdims=True))
        intercept = factor * (intercept - xp.mean(intercept))
        return Step(coef, intercept, self.basis.index, self.basis.columns, self.basis.gamma)


class Learner(Protocol):
    """A rule that fits one step."""

    def foreseen(self, design: Design, index: int) -> Basis | None:
        """Return the columns of round `index` if they can be told before and rows must make them."""

    def request(self, design: Design, train: Team, index: int) -> Request:
        """Return the first sums that round `index` needs."""

    def fit(self, design: Design, train: Team, index: int, more: bool) -> Fitted:
        """Fit round `index` to the working responses at the scores of `train`; `more`: another round may follow."""


def _generator(design: Design, index: int) -> np.random.Generator:
    # A counter-based generator keyed by (seed, round): any round can be redrawn alone, on any backend.
    return np.random.Generator(np.random.Philox(key=[design.seed, index]))


@dataclass(frozen=True)
class _Asked:
    """The rows of all partitions, as :func:`pipeline.backends.fits.fit` asks for their sums."""

    train: Team
    request: Request
    n_classes: int
    precision: str
    rough: bool

    @property
    def n_columns(self) -> int:
        return self.request.basis.size

    @property
    def whole(self) -> bool:
        return self.request.basis.whole

    @property
    def at_once(self) -> int | None:
        return self.train.at_once(self.n_classes, self.n_columns)

    def sums(self, classes: slice, totals: bool, roughly: bool = False) -> Sums:
        return self.train.sums(replace(self.request, classes=classes, totals=totals, rough=roughly))

    def residual_sums(self, classes: slice, coef: Array, intercept: Array) -> tuple[Array, Array]:
        return self.train.residual_sums(replace(self.request, classes=classes), coef, intercept)

    def stage(self) -> AbstractContextManager[None]:
        return span("fit")


class _Regression:
    """Learners that fit J ridge regressions on the columns of one basis."""

    l2: float
    gram_precision: str

    def basis(self, design: Design, index: int) -> Basis:
        """Return the columns of round `index`."""
        raise NotImplementedError

    def foreseen(self, design: Design, index: int) -> Basis | None:
        """Return the columns of round `index`, unless they are all: drawn from the seed, they are known before."""
        basis = self.basis(design, index)
        return None if basis.whole else basis

    def request(self, design: Design, train: Team, index: int) -> Request:
        """Return the first sums that round `index` needs."""
        basis, J = self.basis(design, index), design.fitted_classes
        size = train.at_once(J, basis.size) or design.backend.wls.classes_at_once(J, basis.size, basis.whole)
        classes = slice(0, min(size, J) if basis.size else 0)
        return Request(basis, classes, gram_precision=self.gram_precision)

    def fit(self, design: Design, train: Team, index: int, more: bool) -> Fitted:
        """Fit J ridge regressions on the columns of round `index`."""
        basis = self.basis(design, index)
        after = self.foreseen(design, index + 1) if more and not train.ahead else None
        request = Request(basis, gram_precision=self.gram_precision, after=after)
        rough = train.rough(basis, design.fitted_classes, self.l2, design.dtype)
        rows = _Asked(train, request, design.fitted_classes, design.dtype, rough)
        found = fits.fit(design.backend.xp, design.backend.wls, rows, self.l2)
        return Fitted(basis, *found)


@dataclass(frozen=True)
class Ridge(_Regression):
    """All features, with penalty l2 on every coefficient; l2 = 0 is the learner ``full``."""

    l2: float
    gram_precision: str = "full"

    def basis(self, design: Design, index: int) -> Basis:
        """Return all columns."""
        return Basis(index, design.n_features)


@dataclass(frozen=True)
class Subspace(_Regression):
    """One random subset of `size` features per round, shared by the classes."""

    size: int
    l2: float
    gram_precision: str = "full"

    def basis(self, design: Design, index: int) -> Basis:
        """Return the columns drawn for round `index`."""
        size = min(self.size, design.active.size)
        return Basis(index, size, columns=design.drawn(index, size))


@dataclass(frozen=True)
class RandomFeatures(_Regression):
    """Random Fourier features of the Gaussian kernel, drawn anew in each round.

    The kernel's width is gamma = g / (sum of the column variances), g log-uniform in `width`, drawn per round.
    """

    n_components: int
    width: tuple[float, float]
    l2: float
    gram_precision: str = "full"

    def basis(self, design: Design, index: int) -> Basis:
        """Return the random features of round `index`."""
        low, high = np.log(self.width)
        width = float(np.exp(low + (high - low) * _generator(design, index).random()))
        gamma = width / design.total_variance if design.total_variance > 0.0 else 0.0
        return Basis(index, self.n_components, gamma=gamma)


@dataclass(frozen=True)
class Componentwise:
    """For each class the one feature with the least weighted squared error (the lowest index on ties)."""

    def foreseen(self, design: Design, index: int) -> Basis | None:
        """Return None: rows make no columns."""
        return None

    def request(self, design: Design, train: Team, index: int) -> Request:
        """Return the sums that round `index` needs."""
        return Request(Basis(index, design.n_features), componentwise=True)

    def fit(self, design: Design, train: Team, index: int, more: bool) -> Fitted:
        """Fit one simple weighted regression per class.

        With centred sums, feature k lowers the squared error of class j by num^2 / den, where
        num = sum w (x - mean) z and den = sum w (x - mean)^2, both weighted. Features whose den is rounding
        noise are skipped.
        """
        sums = train.sums(self.request(design, train, index))
        with span("fit"), part("solve"):
            basis, coef, offset = self._chosen(design, sums, index)
        flags = np.zeros(design.fitted_classes, dtype=np.intp)
        return Fitted(basis, coef, offset, flags + 1, flags)

    @staticmethod
    def _chosen(design: Design, sums: Sums, index: int) -> tuple[Basis, Array, Array]:
        """Return the best feature of each class, its coefficients (q, J) and the intercepts."""
        xp = design.backend.xp
        sw, sr = sums.sw, sums.sr
        safe = xp.where(sw > 0.0, sw, xp.ones_like(sw))
        num = sums.xr - sums.xw * (sr / safe)
        den = sums.xxw - sums.xw * (sums.xw / safe)
        eps = float(np.finfo(design.dtype).eps)
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
        return Basis(index, columns.size, columns=columns), design.backend.put(coef), offset


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
