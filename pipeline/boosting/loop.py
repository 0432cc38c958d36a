"""The boosting loop: J-class LogitBoost over any learner and any array namespace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.boosting.learners import Design, Learner
from pipeline.boosting.loss import SCORE_LIMIT
from pipeline.boosting.messages import Move, Request
from pipeline.boosting.steps import Step, evaluate
from pipeline.boosting.team import Team
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
    patience: int | None  # None: no early stopping; else there is a validation set


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


OnState = Callable[[History, Team, Team | None], None]


def boost(
    design: Design,
    learner: Learner,
    rules: Rules,
    train: Team,
    validation: Team | None,
    history: History,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
) -> History:
    """Run rounds until `rules.n_rounds` steps are in `history`, patience ends, or the scores are saturated.

    After each round `on_state` is handed all that the rounds to come depend on, beside their data and rules.

    Each round (Friedman, Hastie and Tibshirani 2000, Algorithm 6): working responses of every class, one learner
    fit, symmetrisation f_j <- (J-1)/J (f_j - mean_k f_k), F <- F + learning_rate f. The rows are asked for sums and
    told the step, in one pass if they stream; everything else happens here.
    """
    start = history.resume(validation is not None)
    J = design.n_classes
    while len(history.steps) < rules.n_rounds and history.stopped == "n_rounds":
        index = len(history.steps)
        fitted = learner.fit(design, train, index, index + 1 < rules.n_rounds)
        factor = rules.learning_rate * (J - 1) / J
        step, move = fitted.step(design.backend.xp, factor, J), fitted.move(factor, J)
        coming = _coming(design, learner, rules, train, index + 1)
        largest, loss = train.advance(move, coming)
        if largest > SCORE_LIMIT[design.dtype]:
            room = train.room(move)
            if room <= 0.0:
                history.stopped = "saturated"
                break
            step = step.scaled(room)
            _, loss = train.advance(move.scaled(room), coming)
        train.keep()
        history.steps.append(step)
        copies = 2 // design.fitted_classes if J == 2 else 1
        history.rank.append(np.tile(np.asarray(fitted.rank), copies))
        history.ladder.append(np.tile(np.asarray(fitted.ladder), copies))
        history.train_loss.append(loss)
        if validation is not None:
            with span("validation"):
                _, loss = validation.advance(Move.of_step(step))
                validation.keep()
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


def _coming(design: Design, learner: Learner, rules: Rules, train: Team, index: int) -> Request | None:
    """Return what round `index` will ask of rows that are asked together with the move of the round before."""
    if not train.ahead or index >= rules.n_rounds:
        return None
    request = learner.request(design, train, index)
    if train.prepares and index + 1 < rules.n_rounds:
        request = replace(request, after=learner.foreseen(design, index + 1))
    return request


def start_scores(
    backend: Backend, seed: int, steps: list[Step], X: Array, center: Array, n_classes: int
) -> Array:
    """Return the scores (n, J) of X after `steps`, in the dtype of X."""
    F = backend.xp.zeros((X.shape[0], n_classes), dtype=X.dtype)
    for step in steps:
        F = F + evaluate(backend, step.placed(backend), X, center, seed)
    return F
