"""The complete state of a fit between two rounds as plain arrays and a JSON header, and back.

What is not in it follows from the data and the parameters: features, labels, weights, and the draws of every round,
which depend on the seed and the number of the round only. The scores are kept as they are: adding the steps up again
would round differently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.boosting.learners import Design
from pipeline.boosting.loop import History
from pipeline.boosting.loop import OnState as Between
from pipeline.boosting.state import SKIPPED, to_host
from pipeline.boosting.steps import Step
from pipeline.boosting.team import Team

State = tuple[dict[str, np.ndarray], dict[str, Any]]
OnState = Callable[[int, Callable[[], State]], None]
FREE = {*SKIPPED, "n_rounds"}  # parameters that may differ in the fit that goes on


@dataclass
class Restored:
    """A state, read back; see :func:`restored`."""

    history: History
    center: np.ndarray  # float64 (p,)
    variance: np.ndarray  # float64 (p,)
    F: np.ndarray  # (n, J)
    F_validation: np.ndarray | None
    dtype: str
    seed: int


def offered(
    on_state: OnState, design: Design, moments: tuple[np.ndarray, np.ndarray], params: dict[str, Any]
) -> Between:
    """Return what the loop calls after each round: `on_state`, with a function that takes the state if asked to.

    `moments` are the centre and the variances of the columns.
    """

    def between(history: History, train: Team, validation: Team | None) -> None:
        def take() -> State:
            return _taken(design, moments, params, history, train, validation)

        on_state(len(history.steps), take)

    return between


def _taken(
    design: Design,
    moments: tuple[np.ndarray, np.ndarray],
    params: dict[str, Any],
    history: History,
    train: Team,
    validation: Team | None,
) -> State:
    # each step comes home once, however often the state is taken
    history.steps = to_host(design.backend, history.steps)
    arrays = {
        "center": np.asarray(moments[0]),
        "variance": np.asarray(moments[1]),
        "F": train.scores(),
        "train_loss": np.asarray(history.train_loss, dtype=np.float64),
        "validation_loss": np.asarray(history.validation_loss, dtype=np.float64),
        "rank": np.asarray(history.rank, dtype=np.intp),
        "ladder": np.asarray(history.ladder, dtype=np.intp),
        **_packed(history.steps),
    }
    if validation is not None:
        arrays["F_validation"] = validation.scores()
    header = {
        "params": _plain(params),
        "dtype": design.dtype,
        "seed": design.seed,
        "rounds": len(history.steps),
        "start": history.start,
        "stopped": history.stopped,
    }
    return arrays, header


def restored(arrays: dict[str, np.ndarray], header: dict[str, Any], params: dict[str, Any]) -> Restored:
    """Return the state that `arrays` and `header` describe.

    Raises
    ------
    KeyError
        If an array or entry is missing.
    ValueError
        If the state was taken with other parameters than `params`.
    """
    for name, then in header["params"].items():
        now = _plain(params).get(name)
        if now != then:
            raise ValueError(
                f"{name}={now!r}, but the fit to go on with has {name}={then!r}; give it the same"
            )
    if header["rounds"] > params["n_rounds"]:
        raise ValueError(
            f"n_rounds={params['n_rounds']}, but the fit to go on with has done {header['rounds']} rounds; "
            "give it at least as many"
        )
    history = History(
        steps=_unpacked(arrays),
        train_loss=arrays["train_loss"].tolist(),
        validation_loss=arrays["validation_loss"].tolist(),
        rank=list(arrays["rank"]),
        ladder=list(arrays["ladder"]),
        stopped=header["stopped"],
        start=int(header["start"]),
        interrupted=True,
    )
    return Restored(
        history,
        arrays["center"],
        arrays["variance"],
        arrays["F"],
        arrays.get("F_validation"),
        header["dtype"],
        int(header["seed"]),
    )


def check_sizes(found: Restored, shape: tuple[int, int], n_classes: int, watched: int | None) -> None:
    """Raise ValueError if a state does not fit X of `shape`, `n_classes` and `watched` validation rows."""
    then = None if found.F_validation is None else len(found.F_validation)
    kept = (len(found.F), found.center.size, found.F.shape[1], then)
    if kept != (*shape, n_classes, watched):
        raise ValueError(
            "the fit to go on with had (rows, features, classes, validation rows) = "
            f"{kept}, this one has {(*shape, n_classes, watched)}; give it the same data"
        )


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that shape a fit, as JSON would give them back."""
    kept = {key: value for key, value in params.items() if key not in FREE}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}


def _packed(steps: list[Step]) -> dict[str, np.ndarray]:
    """Return steps of any sizes end to end: coefficients and columns flat, beside their lengths."""
    columns = [step.columns for step in steps if step.columns is not None]
    return {
        "step_coef": np.concatenate([step.coef.reshape(-1) for step in steps]),
        "step_rows": np.array([step.coef.shape[0] for step in steps], dtype=np.int64),
        "step_intercept": np.stack([step.intercept for step in steps]),
        "step_index": np.array([step.index for step in steps], dtype=np.int64),
        "step_columns": np.concatenate([np.zeros(0, np.int64), *columns]),
        "step_n_columns": np.array([-1 if s.columns is None else s.columns.size for s in steps], np.int64),
        "step_gamma": np.array([np.nan if s.gamma is None else s.gamma for s in steps], np.float64),
    }


def _unpacked(arrays: dict[str, np.ndarray]) -> list[Step]:
    intercept, index, gamma = (arrays[f"step_{name}"] for name in ("intercept", "index", "gamma"))
    J = intercept.shape[1]
    rows, wide = arrays["step_rows"], arrays["step_n_columns"]
    coefs = np.split(arrays["step_coef"], np.cumsum(rows * J)[:-1])
    columns = np.split(arrays["step_columns"], np.cumsum(np.maximum(wide, 0))[:-1])
    return [
        Step(
            coefs[i].reshape(int(rows[i]), J),
            intercept[i],
            int(index[i]),
            columns[i].astype(np.intp) if wide[i] >= 0 else None,
            None if np.isnan(gamma[i]) else float(gamma[i]),
        )
        for i in range(len(rows))
    ]
