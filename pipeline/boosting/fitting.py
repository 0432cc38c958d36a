"""Fitting a boosted classifier: to rows in memory, to partitions, or to rows that somebody else holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_random_state

from pipeline import backends
from pipeline.boosting import checks, snapshot, state
from pipeline.boosting.blocks import RowBlocks
from pipeline.boosting.learners import Design, make_learner
from pipeline.boosting.linear import LinearModel, importances
from pipeline.boosting.loop import History, OnRound, Rules, boost
from pipeline.boosting.messages import Frame
from pipeline.boosting.partition import Partition
from pipeline.boosting.team import Team
from pipeline.spans import span

PROMOTED = 1 << 17  # numbers in X up to which float64 is used always: below a millisecond a round


class BaseLogitBoost(BaseEstimator):
    """The fits of LogitBoostClassifier, which says what the parameters and the fitted attributes are."""

    learner: str
    n_rounds: int
    learning_rate: float
    z_max: float
    clip: str
    l2: float
    subspace_size: int
    n_components: int
    gamma: float | tuple[float, float]
    trim: float
    early_stopping: bool
    validation_fraction: float
    patience: int
    class_weight: str | dict | None
    dtype: str
    random_state: int | np.random.RandomState | None
    warm_start: bool
    backend: str
    gram_precision: str
    verbose: int

    classes_: np.ndarray
    center_: np.ndarray
    _linear: LinearModel | None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation: tuple[Any, Any] | None = None,
        on_round: OnRound | None = None,
        on_state: snapshot.OnState | None = None,
        resume_from: snapshot.State | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : (n, p) array-like
        y : (n,) labels of any sortable type
        sample_weight : (n,) weights of at least 0; a weight of 2 counts as two equal rows, 0 as no row, and a
            class of such rows alone as none
        validation : (X, y) whose log-loss is followed and decides early stopping; none is cut from X then
        on_round : called after each round with (round from 1, n_rounds, training loss, validation loss or None)
        on_state : called after each round with (rounds so far, take); take() returns the complete state of this fit
            as (arrays in host memory, JSON-able header). An exception from `on_state` ends the fit.
        resume_from : what take() returned in a fit to the same data with the same parameters (n_rounds may be larger):
            boosting goes on from there, to the model that an undisturbed fit gives

        Raises
        ------
        ValueError
            Naming the parameter or argument that cannot be used and why.
        """
        checks.parameters(self)
        backend = backends.get(self.backend)
        X, y = checks.training_set(self, backend, X, y)
        check_classification_targets(y)
        weight = checks.sample_weight(sample_weight, self.class_weight, y, self.dtype)
        warm = self.warm_start and hasattr(self, "n_rounds_")
        if warm:
            checks.continuation(self)
        else:
            self.__dict__.pop("n_rounds_", None)  # a fit that fails leaves no half-fitted model
        if (weight == 0.0).any():
            X = backend.resident(backend.rows(X, np.flatnonzero(weight > 0.0)))
            y, weight = y[weight > 0.0], weight[weight > 0.0]
        self._set_classes(y)
        if not warm:
            self._start_anew(X.size)
        found = self._restored(resume_from)
        X = X.astype(self.dtype_, copy=False)
        held_out = None
        if validation is not None:
            held_out = checks.validation_set(self, backend, validation)
        elif self.early_stopping:
            X, held_out, y, weight = self._cut_validation(backend, X, y, weight)
        watched = None if held_out is None else self._in_memory(backend, *held_out)
        train = self._in_memory(backend, X, y, weight)
        self._boost(backend, train, watched, (on_round, on_state), found)
        return self

    def fit_partitions(
        self,
        parts: Sequence[tuple[RowBlocks, Any]],
        *,
        validation: Sequence[tuple[RowBlocks, Any]] | None = None,
        on_round: OnRound | None = None,
        on_state: snapshot.OnState | None = None,
        resume_from: snapshot.State | None = None,
    ) -> Self:
        """Fit the model to rows that do not lie in memory; the result is that of :meth:`fit` up to rounding.

        Parameters
        ----------
        parts : partitions of the training set, each its rows and their labels; one may be empty
        validation : the same of the rows whose log-loss is followed
        on_round, on_state, resume_from : as for :meth:`fit`

        Raises
        ------
        ValueError
            As :meth:`fit`; and for early stopping without a validation set, for `trim`, which needs the weights of
            all rows at once, and for `warm_start`.
        """
        checks.partitions(self, parts, validation)
        given = {"train": list(parts), "watch": list(validation or ())}

        def team(name: str, codes: np.ndarray, weight: np.ndarray) -> Team:
            cuts = np.cumsum([len(y) for _, y in given[name]])[:-1]
            pieces = zip(given[name], np.split(codes, cuts), np.split(weight, cuts), strict=True)
            return Team(backend, [Partition(backend, one[0], own, s) for one, own, s in pieces])

        backend = backends.get(self.backend)
        labels = [
            np.concatenate([np.asarray(y) for _, y in some]) if some else None for some in given.values()
        ]
        return self.fit_teams(
            team,
            parts[0][0].shape[1],
            labels[0],
            labels[1],
            on_round=on_round,
            on_state=on_state,
            resume_from=resume_from,
        )

    def fit_teams(
        self,
        team: Callable[[str, np.ndarray, np.ndarray], Team],
        n_features: int,
        y: Any,
        y_validation: Any = None,
        *,
        on_round: OnRound | None = None,
        on_state: snapshot.OnState | None = None,
        resume_from: snapshot.State | None = None,
    ) -> Self:
        """Fit the model to rows that somebody else holds; see :meth:`fit_partitions`.

        Parameters
        ----------
        team : team(name, codes, weight) returns who holds the rows called "train" or "watch", in the order of their
            labels, given their class numbers (n,) and sample weights (n,). `dtype_` says in which type they are fitted.
        n_features : columns of the rows
        y, y_validation : labels of the rows
        """
        checks.parameters(self)
        checks.apart(self, y_validation is not None)
        backend = backends.get(self.backend)
        self.__dict__.pop("n_rounds_", None)
        y = np.asarray(y)
        self._set_classes(y)
        weight = checks.sample_weight(None, self.class_weight, y, self.dtype)
        self.n_features_in_ = n_features
        self._start_anew(len(y) * n_features)
        found = self._restored(resume_from)
        train, watched = team("train", self._codes(y), weight), None
        if y_validation is not None:
            watched = team("watch", self._codes(y_validation), np.ones(len(y_validation)))
        self._boost(backend, train, watched, (on_round, on_state), found)
        return self

    def _set_classes(self, y: np.ndarray) -> None:
        classes = np.unique(y)
        if classes.size < 2:
            raise ValueError(
                f"y holds one class only ({classes.tolist()[0]!r}); at least 2 are needed: check the labels"
            )
        if self.warm_start and hasattr(self, "n_rounds_") and not np.array_equal(self.classes_, classes):
            raise ValueError(
                "warm_start: y holds other classes than the model fitted so far; fit a new model"
            )
        self.classes_ = classes

    def _cut_validation(self, backend, X, y, weight):
        from sklearn.model_selection import (
            train_test_split,  # half a second, which most fits need not wait for
        )

        size = max(round(self.validation_fraction * len(y)), self.classes_.size)
        try:
            kept, held = train_test_split(
                np.arange(len(y)), test_size=size, stratify=y, random_state=self.seed_
            )
        except ValueError as error:
            raise ValueError(
                f"early_stopping cannot cut a stratified validation_fraction={self.validation_fraction} "
                f"from {len(y)} rows ({error}); give fit a validation set or turn early_stopping off"
            ) from error
        fitted, watched = (backend.resident(backend.rows(X, part)) for part in (kept, held))
        return fitted, (watched, y[held], weight[held]), y[kept], weight[kept]

    def _start_anew(self, size: int) -> None:
        """Forget earlier rounds; `size` is the number of numbers in X."""
        self.dtype_ = "float64" if size <= PROMOTED else self.dtype
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._history = History()

    def _restored(self, resume_from: snapshot.State | None) -> snapshot.Restored | None:
        """Take up what a fit that was cut short left."""
        if resume_from is None:
            return None
        found = snapshot.restored(*resume_from, self.get_params())
        self.dtype_, self.seed_, self._history = found.dtype, found.seed, found.history
        return found

    def _in_memory(self, backend, X, y, weight) -> Team:
        """Return rows that lie in memory as one partition. A device array is the caller's, and stays where it is."""
        rows = X if backend.holds(X) else backend.resident(X)
        return Team(backend, [Partition(backend, rows, self._codes(y), weight)])

    def _codes(self, y) -> np.ndarray:
        return np.searchsorted(self.classes_, y)

    def _boost(self, backend, train: Team, watched: Team | None, hooks, found) -> None:
        with span("set-up"):
            design, variance = self._set_up(backend, train, watched, found)
        patience = self.patience if self.early_stopping else None
        rules = Rules(self.n_rounds, self.learning_rate, patience)
        learner = make_learner(self.get_params())
        on_round, on_state = hooks
        if on_state is not None:
            on_state = snapshot.offered(on_state, design, (self.center_, variance), self.get_params())
        on_round = on_round or checks.printer(self.verbose)
        history = boost(design, learner, rules, train, watched, self._history, on_round, on_state)
        self.stopped_ = history.stopped
        history.keep(history.best_round)
        self._finish(backend, history, variance)

    def _set_up(self, backend, train: Team, watched: Team | None, found) -> tuple[Design, np.ndarray]:
        """Prepare the partitions for the rounds; return what the rounds need to know, and the variances."""
        p, J = self.n_features_in_, self.classes_.size
        steps = self._history.steps
        if found is not None:
            snapshot.check_sizes(found, (len(train), p), J, None if watched is None else len(watched))
            self.center_, variance = found.center, found.variance
        else:
            moments = train.moments(self.dtype_)
            variance = moments.variance
            checks.magnitude(moments, self.dtype_)
            if not steps:  # rounds that go on keep their centre
                self.center_ = moments.mean
        frame = Frame(self.center_, J, self.seed_, self.dtype_, self.z_max, self.clip, self.trim)
        train.begin(frame, steps, None if found is None else found.F)
        if watched is not None:
            watched.begin(frame, steps, None if found is None else found.F_validation)
        active = np.flatnonzero(variance > 0.0)
        return Design(backend, p, J, active, float(variance.sum()), self.seed_, self.dtype_), variance

    def _finish(self, backend, history: History, variance: np.ndarray) -> None:
        """Bring the model home and set the fitted attributes."""
        history.steps = state.to_host(backend, history.steps)
        self.n_rounds_, self._fitted_learner = len(history.steps), self.learner
        self.train_loss_ = list(history.train_loss)
        self.validation_loss_ = list(history.validation_loss)
        self.rank_ = np.array(history.rank, dtype=np.intp).reshape(self.n_rounds_, -1)
        self.ladder_ = np.array(history.ladder, dtype=np.intp).reshape(self.n_rounds_, -1)
        p, J = self.n_features_in_, self.classes_.size
        self._linear = None
        if self.learner != "random_features":
            self._linear = LinearModel.from_steps(history.steps, p, J)
        self.feature_importances_ = importances(
            backend, self._linear, history.steps, variance, self.seed_, self.dtype_
        )
