"""Validation of the estimator's parameters and arguments: each message names what was found and expected."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import column_or_1d, validate_data

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend
    from pipeline.boosting.fitting import BaseLogitBoost
    from pipeline.boosting.loop import OnRound
    from pipeline.boosting.messages import Moments

LEARNERS = ("subspace", "full", "ridge", "componentwise", "random_features")


def _number(name: str, value: Any, kind: type, ok: bool, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not ok:
        raise ValueError(f"{name} must be {expected}, not {value!r}")


def _above(value: Any, low: float, high: float = np.inf, inclusive: bool = True) -> bool:
    if not isinstance(value, numbers.Real):
        return False
    number = float(value)
    return (low <= number if inclusive else low < number) and number <= high and math.isfinite(number)


def _truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def parameters(model: BaseLogitBoost) -> None:
    """Check every constructor parameter; raise ValueError naming the first that cannot be used."""
    choices = {
        "learner": LEARNERS,
        "clip": ("gradient", "paper"),
        "dtype": ("float32", "float64"),
        "gram_precision": ("full", "tf32"),
    }
    for name, allowed in choices.items():
        if getattr(model, name) not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(model, name)!r}")
    for name in ("n_rounds", "subspace_size", "n_components", "patience"):
        value = getattr(model, name)
        _number(name, value, numbers.Integral, _above(value, 1), "an integer of at least 1")
    verbose = int(model.verbose) if _truth(model.verbose) else model.verbose
    _number(
        "verbose", verbose, numbers.Integral, _above(verbose, 0), "an integer of at least 0, or True or False"
    )
    for name in ("early_stopping", "warm_start"):
        if not _truth(getattr(model, name)):
            raise ValueError(f"{name} must be True or False, not {getattr(model, name)!r}")
    rate, z_max, l2, trim = model.learning_rate, model.z_max, model.l2, model.trim
    share = model.validation_fraction
    _number("learning_rate", rate, numbers.Real, _above(rate, 0, 1, False), "above 0 and at most 1")
    _number("z_max", z_max, numbers.Real, _above(z_max, 0, inclusive=False), "a finite number above 0")
    _number("l2", l2, numbers.Real, _above(l2, 0), "a finite number of at least 0")
    _number("trim", trim, numbers.Real, _above(trim, 0, 1 - 1e-9), "from 0 to below 1")
    _number("validation_fraction", share, numbers.Real, _above(share, 0, 1 - 1e-9, False), "between 0 and 1")
    weights = model.class_weight
    named = isinstance(weights, str) and weights == "balanced"
    if not (weights is None or named or isinstance(weights, dict)):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict, not {weights!r}")
    width_range(model.gamma)


def width_range(gamma: Any) -> tuple[float, float]:
    """Return `gamma` as (smallest, largest) width."""
    pair = (gamma, gamma) if isinstance(gamma, numbers.Real) else tuple(gamma) if np.iterable(gamma) else ()
    if len(pair) != 2 or not all(_above(g, 0, 1e6, inclusive=False) for g in pair) or pair[0] > pair[1]:
        raise ValueError(
            f"gamma must be a number above 0 and at most 1e6, or a rising pair of them, not {gamma!r}"
        )
    return float(pair[0]), float(pair[1])


# Sums over rows hold weights, times 1e-7 (float32) or 4e-16 (float64) where a row is nearly certain: neither may leave
# the numbers that have all their digits.
WEIGHTS = {"float32": (1e-28, 1e30), "float64": (1e-280, 1e280)}


def sample_weight(weight: Any, class_weight: Any, y: np.ndarray, dtype: str) -> np.ndarray:
    """Return the weight of each row, float64 (n,): `weight` by position, times the weight of its class.

    `dtype` is the type in which rows are fitted; weights whose size does not suit it are refused.
    """
    if weight is None:
        s = np.ones(len(y))
    elif isinstance(weight, numbers.Real):
        s = np.full(len(y), float(weight))
    else:
        try:
            s = np.asarray(weight, dtype=np.float64)
        except (TypeError, ValueError) as error:  # text, lists of unequal lengths, complex numbers
            raise ValueError(
                f"sample_weight must be ({len(y)},) numbers, one weight a row: {error}"
            ) from error
    if s.shape != (len(y),):
        raise ValueError(f"sample_weight must be of shape ({len(y)},), one weight a row, not {s.shape}")
    if not np.isfinite(s).all():
        raise ValueError(f"sample_weight must be finite, but row {int(np.argmin(np.isfinite(s)))} is "
                         f"{s[np.argmin(np.isfinite(s))]}")  # fmt: skip
    if (s < 0).any():
        raise ValueError(f"sample_weight must be at least 0, but row {int(np.argmin(s))} is {s.min()}")
    if not (s > 0).any():
        raise ValueError("sample_weight is zero for every row: there is nothing to fit")
    if class_weight is not None:
        s = s * _class_weights(class_weight, y)
        if not (s > 0).any():
            raise ValueError("class_weight is zero for every row that counts: there is nothing to fit")
    (low, high), largest = WEIGHTS[dtype], float(s.max())
    if not low <= largest <= high:
        name = "sample_weight" if class_weight is None else "sample_weight times class_weight"
        size, remedy = "small" if largest < low else "large", "scale the weights, and l2 with them"
        remedy += "" if dtype == "float64" else ", or use dtype='float64'"
        raise ValueError(f"{name} is too {size} for dtype={dtype!r}: the largest is {largest:.3g}, expected {low:g} to "
                         f"{high:g}; {remedy}")  # fmt: skip
    return s


def _class_weights(class_weight: Any, y: np.ndarray) -> np.ndarray:
    if isinstance(class_weight, dict):
        for label, weight in class_weight.items():
            _number(
                f"class_weight[{label!r}]",
                weight,
                numbers.Real,
                _above(weight, 0),
                "a finite number of at least 0",
            )
    return compute_sample_weight(class_weight, y)


def continuation(model: BaseLogitBoost) -> None:
    """Check that a fit with warm_start can go on where the last one stopped."""
    steps = model._history.steps
    if len(steps) != model.n_rounds_:
        raise ValueError(
            "warm_start cannot continue a model from a file: it holds the sum of its rounds, not the rounds"
        )
    if model._fitted_learner != model.learner:
        raise ValueError(
            f"warm_start cannot continue {model._fitted_learner} rounds with learner={model.learner!r}"
        )
    if model.center_.size != model.n_features_in_:
        raise ValueError(
            f"warm_start: X has {model.n_features_in_} features, the rounds so far {model.center_.size}"
        )
    if len(steps) > model.n_rounds:
        raise ValueError(
            f"n_rounds={model.n_rounds} is below the {len(steps)} rounds fitted so far; warm_start can only add rounds"
        )


def magnitude(moments: Moments, dtype: str) -> None:
    """Raise ValueError if weighted sums of squares of the features would overflow `dtype`, or lose digits in it."""
    mean, variance, total, n = moments
    limit, least = float(np.finfo(dtype).max) / 16.0, 1e4 * float(np.finfo(dtype).tiny)
    remedy = "scale the features" + ("" if dtype == "float64" else " or use dtype='float64'")
    worst = int(np.argmax(variance))
    much = variance[worst] * max(n, total) > limit or np.abs(mean).max() > np.sqrt(limit)
    if not np.isfinite(variance).all() or much:
        raise ValueError(f"X is too large for dtype={dtype!r}: sums of squares would overflow (feature {worst} has "
                         f"variance {variance[worst]:.3g}); {remedy}")  # fmt: skip
    varies = variance > 0.0
    if (variance[varies] * min(1.0, total / n) < least).any():
        worst = int(np.argmin(np.where(varies, variance, np.inf)))
        raise ValueError(f"X is too small for dtype={dtype!r}: squares would lose their digits (feature {worst} has "
                         f"variance {variance[worst]:.3g}, expected at least {least:.3g}); {remedy}")  # fmt: skip


def features(model: BaseLogitBoost, backend: Backend, X: Any, dtype: Any, *, reset: bool) -> Any:
    """Return X (n, p), checked: finite numbers of one of the types `dtype`, as many columns as the model knows.

    An array that lies where the backend works is checked there and stays there; any other goes through
    scikit-learn's own check.
    """
    if not backend.holds(X):
        return validate_data(model, X, dtype=dtype, order="C", reset=reset)
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(
            f"X must be a matrix (rows, features) with at least one of each, not of shape {X.shape}"
        )
    allowed = [np.dtype(kind) for kind in (dtype if isinstance(dtype, list) else [dtype])]
    if X.dtype not in allowed:
        X = X.astype(allowed[0])
    bad = backend.first_not_finite(X)
    if bad is not None:
        raise ValueError(f"X holds NaN or infinity in row {bad}; remove the row or mend its features")
    if reset:
        model.n_features_in_ = X.shape[1]
    elif X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but LogitBoostClassifier is expecting {model.n_features_in_} "
            "features as input"
        )
    return X


def training_set(model: BaseLogitBoost, backend: Backend, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Return X (n, p) and y (n,), checked; see :func:`features`."""
    kinds = [np.float64, np.float32]
    if not backend.holds(X):
        return validate_data(model, X, y, dtype=kinds, order="C")
    X = features(model, backend, X, kinds, reset=True)
    y = column_or_1d(y, warn=True)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)}")
    return X, y


def validation_set(
    model: BaseLogitBoost, backend: Backend, validation: Any
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return (X, y, unit weights) of an explicit validation set, checked against the training classes."""
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise ValueError("validation must be a pair (X, y)")
    X = features(model, backend, validation[0], model.dtype_, reset=False)
    y = np.asarray(validation[1])
    if y.shape != (X.shape[0],):
        raise ValueError(f"validation: y must be of shape ({X.shape[0]},), not {y.shape}")
    unknown = np.setdiff1d(y, model.classes_)
    if unknown.size:
        raise ValueError(f"validation holds class {unknown.tolist()[0]!r}, which the training rows do not")
    return X, y, np.ones(len(y))


def apart(model: BaseLogitBoost, watched: bool) -> None:
    """Check that a fit to rows that lie apart needs nothing that only rows in memory have."""
    if model.trim > 0.0:
        raise ValueError(
            f"trim={model.trim} needs the weights of all rows at once; use trim=0, or fit rows in memory"
        )
    if model.warm_start:
        raise ValueError("warm_start is for rows in memory; partitions are fitted from the first round")
    if model.early_stopping and not watched:
        raise ValueError("early_stopping needs a validation set: none is cut from partitions")


def partitions(model: BaseLogitBoost, parts: Any, validation: Any) -> None:
    """Check what a fit to partitions is given."""
    parameters(model)
    apart(model, bool(validation))
    widths = set()
    for rows, y in [*parts, *(validation or ())]:
        if rows.shape[0] != len(y):
            raise ValueError(f"a partition has {rows.shape[0]} rows, but {len(y)} labels")
        widths.add(rows.shape[1])
    if len(widths) != 1:
        raise ValueError(f"partitions must have equally many features, not {sorted(widths)}")
    if validation:
        known = set(np.concatenate([np.asarray(y) for _, y in parts]).tolist())
        new = set(np.concatenate([np.asarray(y) for _, y in validation]).tolist()) - known
        if new:
            raise ValueError(f"the validation set holds classes that the training set lacks: {sorted(new)}")


def printer(verbose: int) -> OnRound | None:
    """Return a callback that prints the losses: about twenty lines for verbose=1, every round above."""
    if not verbose:
        return None

    def show(index: int, n_rounds: int, train: float, validation: float | None) -> None:
        if verbose > 1 or index in (1, n_rounds) or index % max(1, n_rounds // 20) == 0:
            watched = "" if validation is None else f"  validation {validation:.5f}"
            print(f"round {index:>{len(str(n_rounds))}}/{n_rounds}  train {train:.5f}{watched}")

    return show
