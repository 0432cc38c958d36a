"""The boosting loop: J-class LogitBoost over any learner and any array namespace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.boosting.learners import Design, Fitted, Learner, Step, evaluate
from pipeline.boosting.loss import SCORE_LIMIT, WEIGHT_FLOOR, log_loss_sum, softmax, trim, working_response
from pipeline.spans import span

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any
OnRound = Callable[[int, int, float, float | None], None]


@dataclass(frozen=True)
class Rules:
    """What the loop does in each round, apart from the learner."""

    n_rounds: int
    learning_rate: float
    z_max: float
    clip: str
    trim: float
    patience: int | None  # None: no early stopping; else there is a validation set


@dataclass
class Scores:
    """A set of rows with their running scores: the training or the validation part."""

    X: Array
    F: Array  # (n, J)
    labels: Array  # (n, J) one-hot, or what the backend's scores module makes of class numbers
    weight: Array  # (n,)
    total: float

    def advance(self, backend: Backend, values: Array, factor: float) -> tuple[Array, float, float]:
        """Return F + factor (values - their row mean), its largest absolute value and its weighted log-loss.

        F itself stays. The two numbers come home together: one transfer and one wait for a device.
        """
        xp = backend.xp
        if backend.scores is not None:
            moved, pair = backend.scores.advance(self.F, values, factor, self.labels, self.weight)
        else:
            moved = self.F + factor * (values - xp.mean(values, axis=1, keepdims=True))
            pair = xp.stack([xp.max(xp.abs(moved)), log_loss_sum(xp, moved, self.labels, self.weight)])
        largest, loss = np.asarray(backend.get(pair)).tolist()
        return moved, largest, loss / self.total


@dataclass
class History:
    """What the rounds left: their steps (already times the learning rate) and their losses."""

    steps: list[Step] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    rank: list[np.ndarray] = field(default_factory=list)
    ladder: list[np.ndarray] = field(default_factory=list)
    stopped: str = "n_rounds"  # "n_rounds", "patience" or "saturated"
    best_round: int = 0  # rounds worth keeping
    start: int = 0  # rounds of earlier fits
    interrupted: bool = False  # these are the first rounds of a fit that has yet to end

    def keep(self, rounds: int) -> None:
        """Forget the steps after the first `rounds`; the losses still show why they were dropped."""
        for series in (self.steps, self.rank, self.ladder):
            del series[rounds:]

    def resume(self, watched: bool) -> int:
        """Prepare for more rounds after those kept; return how many there are of earlier fits.

        Validation losses of another fit say nothing of this one's validation set: they become NaN. A fit that
        was interrupted goes on with what it had.
        """
        if self.interrupted:
            self.interrupted = False
            return self.start
        rounds = len(self.steps)
        del self.train_loss[rounds:]
        self.validation_loss = [math.nan] * rounds if watched else []
        self.stopped = "n_rounds"
        self.start = rounds
        return rounds


OnState = Callable[[History, Scores, Scores | None], None]


def boost(
    design: Design,
    learner: Learner,
    rules: Rules,
    train: Scores,
    validation: Scores | None,
    history: History,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
) -> History:
    """Run rounds until `rules.n_rounds` steps are in `history`, patience ends, or the scores are saturated.

    After each round `on_state` is handed all that the rounds to come depend on, beside their data and rules.

    Each round (Friedman, Hastie and Tibshirani 2000, Algorithm 6): working responses of every class, one learner
    fit, symmetrisation f_j <- (J-1)/J (f_j - mean_k f_k), F <- F + learning_rate f.
    """
    xp = design.backend.xp
    start = history.resume(validation is not None)
    while len(history.steps) < rules.n_rounds and history.stopped == "n_rounds":
        index = len(history.steps)
        fitted = _fit_round(design, learner, rules, train, index)
        J = fitted.values.shape[1]
        factor = rules.learning_rate * (J - 1) / J
        step = _symmetrised(xp, fitted.step, factor)
        with span("update"):
            moved, largest, loss = train.advance(design.backend, fitted.values, factor)
        if largest > SCORE_LIMIT[_type_name(xp, train.F)]:
            room = _room(xp, train.F, fitted.values, factor)
            if room <= 0.0:
                history.stopped = "saturated"
                break
            step = step.scaled(room)
            moved, _, loss = train.advance(design.backend, fitted.values, factor * room)
        train.F = moved
        history.steps.append(step)
        history.rank.append(np.asarray(design.backend.get(fitted.rank)))
        history.ladder.append(np.asarray(design.backend.get(fitted.ladder)))
        history.train_loss.append(loss)
        if validation is not None:
            with span("validation"):
                values = evaluate(design.backend, step, validation.X, design.center, design.seed)
                validation.F, _, loss = validation.advance(design.backend, values, 1.0)
            history.validation_loss.append(loss)
        if on_round is not None:
            latest = history.validation_loss[-1] if history.validation_loss else None
            on_round(index + 1, rules.n_rounds, history.train_loss[-1], latest)
        if (
            rules.patience is not None
            and index - int(np.nanargmin(history.validation_loss)) >= rules.patience
        ):
            history.stopped = "patience"
        if on_state is not None:
            on_state(history, train, validation)
    history.best_round = len(history.steps)
    if rules.patience is not None and len(history.steps) > start:
        history.best_round = int(np.nanargmin(history.validation_loss)) + 1
    return history


def _fit_round(design: Design, learner: Learner, rules: Rules, train: Scores, index: int) -> Fitted:
    xp = design.backend.xp
    with span("update"):
        W, R = _targets(design, rules, train)
    if W.shape[1] > 2:
        return learner.fit(design, W, R, index)
    # Two classes have equal weights and opposite responses: one fit serves both.
    half = learner.fit(design, W[:, 1:], R[:, 1:], index)
    step = half.step
    mirrored = Step(
        xp.concat([-step.coef, step.coef], axis=1),
        xp.concat([-step.intercept, step.intercept]),
        step.index,
        step.columns,
        step.gamma,
    )
    values = xp.concat([-half.values, half.values], axis=1)
    rank, ladder = (np.tile(np.asarray(design.backend.get(a)), 2) for a in (half.rank, half.ladder))
    return Fitted(mirrored, values, rank, ladder)


def _targets(design: Design, rules: Rules, train: Scores) -> tuple[Array, Array]:
    """Return the weights and weighted responses (n, J) of the round that comes."""
    xp = design.backend.xp
    floor = WEIGHT_FLOOR[_type_name(xp, train.F)]
    if design.backend.scores is not None:
        W, R = design.backend.scores.working_response(
            train.F, train.labels, train.weight, rules.z_max, rules.clip, floor
        )
    else:
        P = softmax(xp, train.F)
        W, R = working_response(xp, train.labels, P, train.weight, rules.z_max, rules.clip, floor)
    return trim(xp, W, R, rules.trim)


def _symmetrised(xp: Any, step: Step, factor: float) -> Step:
    """Return factor (f_j - mean_k f_k), whose values on any rows are that of the values of f."""
    coef = factor * (step.coef - xp.mean(step.coef, axis=1, keepdims=True))
    intercept = factor * (step.intercept - xp.mean(step.intercept))
    return Step(coef, intercept, step.index, step.columns, step.gamma)


def _room(xp: Any, F: Array, values: Array, factor: float) -> float:
    """Return the largest share t < 1 of a step for which the scores stay within their limit.

    A step is shortened as a whole, never clipped element by element: what was fitted stays what is predicted.
    """
    limit = SCORE_LIMIT[_type_name(xp, F)]
    values = factor * (values - xp.mean(values, axis=1, keepdims=True))
    growing = xp.abs(F + values) > limit
    distance = xp.where(values > 0, limit - F, limit + F)
    size = xp.abs(values)
    share = xp.where(growing, distance / xp.where(growing, size, xp.ones_like(size)), xp.ones_like(size))
    return max(0.0, float(xp.min(share)) * (1.0 - 1e-6))


def _type_name(xp: Any, F: Array) -> str:
    return "float64" if F.dtype == xp.float64 else "float32"


def start_scores(
    backend: Backend, seed: int, steps: list[Step], X: Array, center: Array, n_classes: int
) -> Array:
    """Return the scores (n, J) of X after `steps`, in the dtype of X."""
    F = backend.xp.zeros((X.shape[0], n_classes), dtype=X.dtype)
    for step in steps:
        F = F + evaluate(backend, step.placed(backend), X, center, seed)
    return F
