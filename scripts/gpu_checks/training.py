"""Section of check_gpu.py: every learner trained on both backends, features, coefficients and labels compared.

When may the chosen features differ?
------------------------------------
The columns of ``subspace`` are drawn from the seed: never. ``componentwise`` chooses for each class the feature of the
largest gain, num^2 / den, where num = sum w (x - mean) z and den = sum w (x - mean)^2, and takes gains within 64 eps
of each other for equal. Float sums are rounded, so in the first round with another choice the gains are computed in
float64, for each backend from the model that it had before that round. The rounding of num is at most u times the sum
of the sizes of its terms, that of den likewise, with u = 128 eps: 64 eps are four standard deviations of a float sum
of 1,000 terms, more than either backend adds up in float (Higham and Mary, SIAM J. Sci. Comput. 41, 2019), and 64 eps
are left to the scores and their exponentials. So a gain lies between two numbers, and a feature *may be chosen* if its
upper one reaches (1 - 64 eps) times the largest of the lower ones. Another choice is put down to rounding only if each
backend chose, for every class, features that may be chosen and no others. Anything else fails, in float32 too. (That
the choice belongs to the right class is left to the coefficients.)

Where rounding did decide, the models differ from that round on: the set is put aside and another one drawn, three at
most. So what passes has been compared over all of its rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_checks import common
from pipeline.boosting import LogitBoostClassifier, loss

# Largest coefficient difference allowed, relative to the largest coefficient; and share of equal labels.
BOUNDS = {"float64": 1e-7, "float32": 2e-2}
LABELS = 0.999
SETS = 3  # sets of data in which rounding may decide, one after the other
EQUAL = 64.0  # eps within which the learner takes gains for equal
ROUNDING = 128.0  # eps of the terms of a sum: see above


@dataclass
class Compared:
    """What the training of one learner on both backends showed.

    Attributes
    ----------
    found : for the report
    wrong : what fails
    rounding : the first round (from 1) in which rounding alone decided between features; None: none did
    """

    found: dict[str, Any]
    wrong: list[str] = field(default_factory=list)
    rounding: int | None = None


def training_parity(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Train every learner on both backends: same features chosen, coefficients and labels within bounds."""
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for dtype in ("float64", "float32"):
        for J in (2, sizes.classes):
            shape = (sizes.training_rows, sizes.training_columns, J, dtype)
            first = common.make_classes(random, *shape)
            for learner in common.LEARNERS:
                name, put_aside = f"{learner} J={J} {dtype}", []
                result = compare(learner, *first, dtype, sizes.rounds)
                while result.rounding is not None and len(put_aside) + 1 < SETS:
                    put_aside.append(result.rounding)
                    result = compare(learner, *common.make_classes(random, *shape), dtype, sizes.rounds)
                if result.rounding is not None:
                    result.wrong.append(f"rounding decided between features in each of {SETS} sets of data")
                found[name] = {**result.found, "rounding decided in rounds": put_aside}
                wrong += [f"{name}: {line}" for line in result.wrong]
    return {**found, "failed": wrong}


def compare(learner: str, X: np.ndarray, y: np.ndarray, dtype: str, rounds: int) -> Compared:
    """Train a learner on both backends and compare."""
    params = dict(
        learner=learner, n_rounds=rounds, subspace_size=min(64, X.shape[1]), n_components=64, random_state=1,
        dtype=dtype,
    )  # fmt: skip
    gpu = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
    cpu = LogitBoostClassifier(**params).fit(X, y)
    ours, theirs = gpu._history.steps, cpu._history.steps
    if len(ours) != len(theirs):
        return Compared({}, [f"{len(ours)} rounds, on the cpu {len(theirs)}"])
    if learner == "random_features":
        a, b = (np.concatenate([s.coef for s in steps]) for steps in (ours, theirs))
    else:
        a, b = gpu._linear.coef, cpu._linear.coef
    off = float(np.abs(a - b).max() / np.abs(b).max())
    same = float((gpu.predict(X) == cpu.predict(X)).mean())
    index = first_difference(ours, theirs)
    result = Compared(
        {"same features": index is None, "coefficients": off, "labels": same, "type": cpu.dtype_}
    )
    if (
        index is not None
        and learner == "componentwise"
        and all(explained(m, X, y, index) for m in (gpu, cpu))
    ):
        result.rounding = index + 1
        return result
    if index is not None:
        result.wrong.append(
            f"in round {index + 1} features {ours[index].columns.tolist()} were chosen, on the cpu "
            f"{theirs[index].columns.tolist()}, and rounding does not explain it"
        )
    elif not off <= BOUNDS[cpu.dtype_]:
        result.wrong.append(f"coefficients off by {off:.2g}, allowed {BOUNDS[cpu.dtype_]:.1g}")
    if same < LABELS:
        result.wrong.append(f"{same:.4%} of the labels agree, must be {LABELS:.1%}")
    return result


def first_difference(ours: Any, theirs: Any) -> int | None:
    """Return the first round, from 0, whose steps have other columns; None if there is none."""
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((i for i, (a, b) in pairs if not np.array_equal(a.columns, b.columns)), None)


def explained(model: LogitBoostClassifier, X: np.ndarray, y: np.ndarray, index: int) -> bool:
    """Tell whether round `index` of a componentwise model chose what may be chosen, after the rounds before it."""
    x = X.astype(np.float64) - model.center_
    F = np.zeros((len(x), model.classes_.size))
    for step in model._history.steps[:index]:
        F += x[:, step.columns] @ step.coef + step.intercept
    Y = (np.asarray(y)[:, None] == model.classes_[None, :]).astype(np.float64)
    floor = loss.WEIGHT_FLOOR[model.dtype_]
    W, R = loss.working_response(np, Y, loss.softmax(np, F), np.ones(len(x)), model.z_max, model.clip, floor)
    if model.classes_.size == 2:  # one fit serves both
        W, R = W[:, 1:], R[:, 1:]
    chosen = may_be_chosen(x, W, R, float(np.finfo(model.dtype_).eps))[model._history.steps[index].columns]
    return bool(chosen.any(axis=1).all() and chosen.any(axis=0).all())


def may_be_chosen(x: np.ndarray, W: np.ndarray, R: np.ndarray, eps: float) -> np.ndarray:
    """Return for each feature and class whether its gain may be the largest, but for rounding: bool (p, J).

    Parameters
    ----------
    x : float64 (n, p), centred
    W, R : float64 (n, J), weights and weighted responses
    eps : of the type in which the sums were formed
    """
    size, sw, sr = np.abs(x), W.sum(axis=0), R.sum(axis=0)
    xw, xr, xxw, many = x.T @ W, x.T @ R, (x * x).T @ W, size.T @ W
    num, den = np.abs(xr - xw * (sr / sw)), xxw - xw * (xw / sw)
    of_num = ROUNDING * eps * (size.T @ np.abs(R) + many * (np.abs(R).sum(axis=0) / sw))
    of_den = ROUNDING * eps * (xxw + many * (many / sw))
    usable = den > of_den
    low = np.where(usable, np.maximum(num - of_num, 0.0) ** 2 / (den + of_den), 0.0)
    high = np.where(usable, (num + of_num) ** 2 / np.where(usable, den - of_den, 1.0), 0.0)
    return high >= (1.0 - EQUAL * eps) * low.max(axis=0)
