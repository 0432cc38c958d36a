"""The rounds of boosting under a progress bar, with checkpoints where they are kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from pipeline import interrupts
from pipeline.boosting import LogitBoostClassifier
from pipeline.checkpoint import Keeper
from pipeline.errors import ConfigError
from pipeline.reporting.progress import progress


def fit(
    classifier: LogitBoostClassifier,
    X: Any,
    labels: np.ndarray,
    validation: tuple[Any, np.ndarray] | None,
    label: str = "boost",
    keeper: Keeper | None = None,
) -> LogitBoostClassifier:
    """Fit the classifier with a progress bar of its rounds; with a keeper it goes on from what that found."""
    return with_progress(
        lambda hooks: classifier.fit(X, labels, validation=validation, **hooks), classifier, label, keeper
    )


def with_progress(
    work: Callable[[dict[str, Any]], LogitBoostClassifier],
    classifier: LogitBoostClassifier,
    label: str = "boost",
    keeper: Keeper | None = None,
    beside: Callable[[], str] = str,
) -> LogitBoostClassifier:
    """Return work(hooks) with a progress bar of the rounds; `hooks` are arguments of the classifier's fit.

    `beside` tells what else to show beside the bar.

    Raises
    ------
    ConfigError
        If the fit refuses its data.
    """
    resumed: dict[str, Any] = {}
    done = 0
    if keeper is not None:
        resumed = {"on_state": keeper, "resume_from": keeper.state}
        done = keeper.done
    watching = nullcontext() if keeper is None else keeper.watching(classifier.n_rounds)
    with progress(label, "rounds", done) as advance, watching:

        def on_round(number: int, n_rounds: int, train_loss: float, validation_loss: float | None) -> None:
            interrupts.check()
            note = f"training {train_loss:.4f}"
            if validation_loss is not None:
                note += f"  validation {validation_loss:.4f}"
            advance(number, n_rounds, note + beside())

        try:
            return work({"on_round": on_round, **resumed})
        except ValueError as error:  # what the estimator refuses, and a system that cannot be solved
            raise ConfigError(f"the classifier cannot be fitted: {' '.join(str(error).split())}") from error
