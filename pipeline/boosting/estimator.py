"""LogitBoostClassifier: the scikit-learn face of boosting, its parameters and what is asked of a fitted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pipeline import backends
from pipeline.boosting import checks, state
from pipeline.boosting.fitting import BaseLogitBoost
from pipeline.boosting.linear import LinearModel
from pipeline.boosting.loop import start_scores
from pipeline.boosting.loss import softmax
from pipeline.boosting.steps import evaluate


class LogitBoostClassifier(ClassifierMixin, BaseLogitBoost):
    """Multiclass LogitBoost with weighted-least-squares learners.

    The model is an additive logistic regression fitted by Newton-like steps: each round forms the working
    responses of every class and fits them by weighted least squares (Friedman, Hastie and Tibshirani, Annals of
    Statistics 28, 2000, Algorithm 6). With the learners ``full``, ``ridge``, ``componentwise`` and ``subspace``
    the result is one linear model, whatever the number of rounds.

    Parameters
    ----------
    learner : {"subspace", "full", "ridge", "componentwise", "random_features"}
        What a round fits: all features (``full``; ``ridge`` with penalty `l2`), the single best feature of each
        class, one random subset of `subspace_size` features, or `n_components` random Fourier features
        (a nonlinear model).
    n_rounds : int
        Boosting rounds, at least 1.
    learning_rate : float
        Factor of every step, above 0 and at most 1.
    z_max : float
        Working responses are clipped to [-z_max, z_max].
    clip : {"gradient", "paper"}
        ``gradient`` recomputes the weight of a clipped response so that weight times response stays the gradient:
        boosting then converges to the maximum-likelihood fit. ``paper`` keeps the weight, as Algorithm 6 is
        printed, and does not.
    l2 : float
        Penalty on the coefficients of each step (not on intercepts); ignored by ``full`` and ``componentwise``.
    subspace_size, n_components : int
        Features of a round for ``subspace`` and ``random_features``.
    gamma : float or (float, float)
        ``random_features``: the kernel exp(-g |x - y|^2 / V), V the sum of the column variances, with g drawn
        log-uniformly from this range in every round.
    trim : float
        Share of the weight mass of each class that a round may leave out, smallest weights first.
    early_stopping : bool
        Stop when the validation log-loss has not improved for `patience` rounds; keep the best round.
    validation_fraction : float
        Share of the rows held out for early stopping, stratified, unless `fit` is given a validation set.
    patience : int
        Rounds without improvement before stopping.
    class_weight : None, "balanced" or dict
        Weights of the classes, as in scikit-learn.
    dtype : {"float32", "float64"}
        Precision of features, Gram matrices and scores; factorisations are in float64 always. A training set of
        at most 131,072 numbers is worked on in float64 whatever is asked (`dtype_` says which): it costs no
        time, and results then do not depend on the order of rows.
    random_state : int, RandomState or None
        Seed of subsets, random features and the validation split.
    warm_start : bool
        Continue from the rounds of the last `fit` up to `n_rounds`.
    backend : {"cpu", "gpu", "reference"}
        Who does the numerical work. With ``gpu``, X may be a CuPy array: it stays on the device.
    gram_precision : {"full", "tf32"}
        ``tf32``: a GPU builds float32 Gram matrices from inputs rounded to 10 bits, on its tensor cores; gradients
        and factorisations keep their precision. Other backends, and float64, take no notice.
    verbose : int
        1 prints about twenty lines per fit, 2 one line per round.

    Attributes
    ----------
    classes_ : (J,) the labels, sorted
    coef_ : (J, p), or (1, p) for two classes; linear learners only
    intercept_ : (J,) or (1,); linear learners only
    n_rounds_ : rounds kept
    train_loss_, validation_loss_ : lists of float
        Log-loss after each round that was run, also of those that early stopping dropped. Rounds of an earlier fit
        (`warm_start`) have no validation loss: NaN.
    rank_, ladder_ : int (n_rounds_, J)
        Numerical rank of each weighted, centred design (with a penalty: the number of columns that vary); and which
        rung its factorisation took: 0 Cholesky, 1 to 3 Cholesky with l2 raised tenfold that often, 4 the solution
        of least norm.
    feature_importances_ : (p,)
        Standard deviation of each feature times its mean absolute (``random_features``: root mean square)
        derivative over the classes, normalised to sum 1.
    stopped_ : {"n_rounds", "patience", "saturated"}
        Why boosting ended; ``saturated``: the scores of separable data reached their limit.
    dtype_ : {"float32", "float64"}
        The precision used.
    n_features_in_, feature_names_in_ : as in scikit-learn
    """

    def __init__(
        self,
        learner: str = "subspace",
        n_rounds: int = 100,
        learning_rate: float = 0.3,
        z_max: float = 3.0,
        clip: str = "gradient",
        l2: float = 1.0,
        subspace_size: int = 128,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        class_weight: str | dict | None = None,
        dtype: str = "float32",
        random_state: int | np.random.RandomState | None = None,
        backend: str = "cpu",
        verbose: int = 0,
        *,
        n_components: int = 512,
        gamma: float | tuple[float, float] = 0.1,
        trim: float = 0.0,
        warm_start: bool = False,
        gram_precision: str = "full",
    ) -> None:
        self.learner = learner
        self.n_rounds = n_rounds
        self.learning_rate = learning_rate
        self.z_max = z_max
        self.clip = clip
        self.l2 = l2
        self.subspace_size = subspace_size
        self.n_components = n_components
        self.gamma = gamma
        self.trim = trim
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.class_weight = class_weight
        self.dtype = dtype
        self.random_state = random_state
        self.warm_start = warm_start
        self.backend = backend
        self.gram_precision = gram_precision
        self.verbose = verbose

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores: (n, J), or for two classes the log-odds (n,) of the second."""
        F = self._raw_scores(X)
        return F[:, 1] - F[:, 0] if F.shape[1] == 2 else F

    def _raw_scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "n_rounds_")
        backend = backends.get(self.backend)
        X = checks.features(self, backend, X, self.dtype_, reset=False)
        rows, center = X if backend.holds(X) else backend.resident(X), backend.put(self.center_)

        def scores() -> Any:
            if self._linear is None:
                steps, J = self._history.steps, self.classes_.size
                return start_scores(backend, self.seed_, steps, rows, center, J)
            coef, intercept = backend.put(self._linear.coef), backend.put(self._linear.intercept)
            return backend.wls.apply(rows, center, coef, intercept)

        return backend.get(backend.in_room(scores, f"the scores of {len(rows)} rows"))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, J), columns in the order of `classes_`."""
        return softmax(np, self._raw_scores(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each row, (n,)."""
        best = np.argmax(self._raw_scores(X), axis=1)
        return self.classes_[best]

    def staged_predict_proba(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the probabilities (n, J) after each round; the last equals `predict_proba` up to rounding.

        Raises
        ------
        ValueError
            If the model was loaded from a file that holds only the sum of its rounds.
        """
        check_is_fitted(self, "n_rounds_")
        if len(self._history.steps) != self.n_rounds_:
            raise ValueError("this model was saved as one linear model without its rounds: staged predictions need "
                             "the fitted estimator itself")  # fmt: skip
        backend = backends.get(self.backend)
        X = checks.features(self, backend, X, self.dtype_, reset=False)
        device, center = backend.put(X), backend.put(self.center_)
        F = backend.xp.zeros((X.shape[0], self.classes_.size), dtype=X.dtype)
        for step in self._history.steps:
            F = F + evaluate(backend, step.placed(backend), device, center, self.seed_)
            yield softmax(np, backend.get(F))

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients (J, p) of the linear model, (1, p) for two classes."""
        return self._linear_model("coef_").public()[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts (J,) of the linear model, (1,) for two classes."""
        return self._linear_model("intercept_").public(self.center_)[1]

    def _linear_model(self, attribute: str) -> LinearModel:
        linear: LinearModel | None = getattr(self, "_linear", None)
        if linear is None:
            raise AttributeError(
                f"{attribute} exists only after fit with a linear learner, not {self.learner!r}"
            )
        return linear

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the fitted model as arrays and a JSON-able header, for a file without pickle."""
        check_is_fitted(self, "n_rounds_")
        return state.dump(self)

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> LogitBoostClassifier:
        """Return the fitted model that :meth:`state` described."""
        return state.load(cls, arrays, header)
