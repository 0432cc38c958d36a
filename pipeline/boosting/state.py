"""A fitted classifier as plain arrays and a JSON header, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.boosting.linear import LinearModel
from pipeline.boosting.loop import History
from pipeline.boosting.steps import Step

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend
    from pipeline.boosting.estimator import LogitBoostClassifier

SKIPPED = (
    "random_state",
    "backend",
    "verbose",
    "warm_start",
    "class_weight",
    "gram_precision",
)  # not part of the fitted function


def to_host(backend: Backend, steps: list[Step]) -> list[Step]:
    """Return the steps with NumPy's arrays: one transfer for all of them."""
    away = [i for i, step in enumerate(steps) if not isinstance(step.coef, np.ndarray)]
    if not away:
        return steps
    xp = backend.xp
    parts = [xp.reshape(array, (-1,)) for i in away for array in (steps[i].coef, steps[i].intercept)]
    home = backend.get(xp.concat(parts))
    found, begin = list(steps), 0
    for i in away:
        step = steps[i]
        q, J = step.coef.shape
        coef = home[begin : begin + q * J].reshape(q, J)
        intercept = home[begin + q * J : begin + q * J + J]
        found[i] = Step(coef, intercept, step.index, step.columns, step.gamma)
        begin += q * J + J
    return found


def dump(model: LogitBoostClassifier) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and header of a fitted model; the header holds its parameters and counts."""
    classes = model.classes_
    if classes.dtype == object:
        classes = np.asarray(classes.tolist())  # strings of one type: an array that needs no pickle
        if classes.dtype == object:
            raise ValueError(f"classes of mixed types cannot be saved: {model.classes_!r}")
    arrays = {
        "classes": classes,
        "center": model.center_,
        "feature_importances": model.feature_importances_,
        "train_loss": np.asarray(model.train_loss_, dtype=np.float64),
        "validation_loss": np.asarray(model.validation_loss_, dtype=np.float64),
        "rank": model.rank_,
        "ladder": model.ladder_,
    }
    if model._linear is not None:
        arrays["coef"], arrays["intercept"] = model._linear
    else:
        steps = model._history.steps
        arrays["step_coef"] = np.stack([s.coef for s in steps])
        arrays["step_intercept"] = np.stack([s.intercept for s in steps])
        arrays["step_gamma"] = np.array([s.gamma for s in steps])
        arrays["step_index"] = np.array([s.index for s in steps])
    params = {k: v for k, v in model.get_params().items() if k not in SKIPPED}
    header = {
        "params": {k: _plain(v) for k, v in params.items()},
        "dtype": model.dtype_,
        "seed": model.seed_,
        "n_rounds": model.n_rounds_,
        "n_features": int(model.n_features_in_),
        "stopped": model.stopped_,
    }
    return arrays, header


def _plain(value: Any) -> Any:
    """Return a parameter as JSON knows it: NumPy's numbers and truth values are Python's."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def load(cls: type, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> LogitBoostClassifier:
    """Return the fitted model described by `arrays` and `header`.

    Raises
    ------
    KeyError, TypeError, ValueError
        If one is missing, or an array has another type or shape than the others ask for: what computes the
        scores does not look at the bounds of its arrays.
    """
    _check(arrays, int(header["n_features"]))
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in header["params"].items()}
    model = cls(**params)
    model.dtype_ = header["dtype"]
    model.seed_, model.n_rounds_ = int(header["seed"]), int(header["n_rounds"])
    model.n_features_in_, model.stopped_ = int(header["n_features"]), header["stopped"]
    model.classes_, model.center_ = arrays["classes"], arrays["center"]
    model.feature_importances_ = arrays["feature_importances"]
    model.train_loss_ = arrays["train_loss"].tolist()
    model.validation_loss_ = arrays["validation_loss"].tolist()
    model.rank_, model.ladder_ = arrays["rank"], arrays["ladder"]
    model._history, model._linear, model._fitted_learner = History(), None, model.learner
    if "coef" in arrays:
        model._linear = LinearModel(arrays["coef"], arrays["intercept"])
    else:
        rows = zip(*(arrays[f"step_{k}"] for k in ("coef", "intercept", "index", "gamma")), strict=True)
        model._history.steps = [Step(c, b, int(i), None, float(g)) for c, b, i, g in rows]
    return model


def _check(arrays: dict[str, np.ndarray], p: int) -> None:
    """Refuse arrays that do not fit each other: `p` features, J classes, R rounds of q components."""
    J = arrays["classes"].size
    shapes: dict[str, tuple[int | None, ...]] = {
        "classes": (J,),
        "center": (p,),
        "feature_importances": (p,),
        "train_loss": (None,),
        "validation_loss": (None,),
        "rank": (None, None),
        "ladder": (None, None),
    }
    if "coef" in arrays:
        shapes |= {"coef": (p, J), "intercept": (J,)}
    else:
        R, q, _ = (*arrays["step_coef"].shape, 0, 0, 0)[:3]
        shapes |= {"step_coef": (R, q, J), "step_intercept": (R, J), "step_gamma": (R,), "step_index": (R,)}
    for name, shape in shapes.items():
        array = arrays[name]
        kinds = "iu" if name in ("rank", "ladder", "step_index") else "biufUS" if name == "classes" else "f"
        fits = len(array.shape) == len(shape) and all(
            wanted in (None, n) for n, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits or array.dtype.kind not in kinds:
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise ValueError(f"{name}: it is {array.dtype} {array.shape}, the rest asks for ({wanted})")
