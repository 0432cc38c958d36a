"""The same work on each backend that this machine can run: seconds, and whether the results agree."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline import backends, config
from pipeline.errors import BackendError, ConfigError
from pipeline.profiling.changes import Tell, quiet, scratch
from pipeline.profiling.held_out import parts
from pipeline.profiling.original import on_sample
from pipeline.profiling.report import CompareRow
from pipeline.profiling.runs import Run, Runner

ROWS = 4096  # compared at a time


def check(names: Sequence[str]) -> None:
    """Raise ConfigError unless each is the name of a backend; at once, before anything is measured."""
    if not names:
        raise ConfigError(f"compare=[] names no backend; choose among: {', '.join(backends.NAMES)}")
    for name in names:
        if name not in backends.NAMES:
            near = difflib.get_close_matches(name, backends.NAMES, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(
                f"compare: no backend '{name}'.{hint} Choose among: {', '.join(backends.NAMES)}"
            )


def compare(
    cfg: config.Train,
    names: Sequence[str],
    runner: Runner,
    budget_seconds: float = 120.0,
    tell: Tell = quiet,
) -> list[CompareRow]:
    """Run the settings on each backend in turn and compare.

    Parameters
    ----------
    cfg : ``run_dir`` must exist; a folder is made in it and removed
    names : of backends, in the order of the rows
    budget_seconds : for ``reference``, which runs on a sample that is scaled (see :mod:`.original`)
    tell : told what is measured

    Returns
    -------
    list of CompareRow
        `ratio` is how many times as fast as the slowest row. Features, labels and accuracy are compared with the first
        backend that ran in full (``cpu`` for ``reference``), each time on what both computed.

    Raises
    ------
    ConfigError
        If a name is unknown, or this machine can run none of them.
    """
    names = list(dict.fromkeys(names))
    reasons = absent(cfg, names)
    found: dict[str, CompareRow] = {name: CompareRow(name, reason=why) for name, why in reasons.items()}
    with scratch(cfg) as folder:
        base: _Full | None = None
        for name in sorted(set(names) - set(reasons) - {"reference"}, key=("cpu", "gpu").index):
            run = _warm(replace(cfg, run_dir=folder), name, runner, tell)
            row, full = _row(run, base)
            found[name], base = row, base or full
            del run
        if "reference" in names and "reference" not in reasons:
            run = base.run if base is not None else _warm(replace(cfg, run_dir=folder), "cpu", runner, tell)
            found["reference"] = on_sample(run, budget_seconds, tell)
    slowest = max(row.seconds or 0.0 for row in found.values())
    rows = (found[name] for name in names)
    return [replace(row, ratio=slowest / row.seconds) if row.seconds else row for row in rows]


@dataclass(frozen=True)
class _Full:
    """A run on all images, to compare others with; its results are in host memory."""

    run: Run
    features: np.ndarray
    predicted: np.ndarray


def absent(cfg: config.Train, names: Sequence[str]) -> dict[str, str]:
    """Return why this machine cannot run some of these backends; before anything is measured.

    Raises
    ------
    ConfigError
        If a name is unknown, or none of them can run.
    """
    check(names)
    reasons = {name: reason for name in names if (reason := _absent(cfg, name)) is not None}
    if len(reasons) == len(set(names)):
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise ConfigError(
            f"compare: this machine can run none of these backends ({why}); compare=[cpu] always runs"
        )
    return reasons


def _absent(cfg: config.Train, name: str) -> str | None:
    """Return why this machine cannot run a backend, or None."""
    try:
        backends.choose(name, cfg.backend.device)
        backends.get(name).preprocess.require(cfg.preprocess)
    except BackendError as error:
        return str(error)
    return None


def _warm(cfg: config.Train, name: str, runner: Runner, tell: Tell) -> Run:
    """Return the second of two runs; the first pays for compiling."""
    tell(f"backend={name}")
    settings = replace(cfg, backend=replace(cfg.backend, name=config.BackendName[name]))
    runner(settings)
    return runner(settings)


def _row(run: Run, base: _Full | None) -> tuple[CompareRow, _Full]:
    backend = backends.get(run.work.backend)
    features: Any = np.asarray(backend.get(run.trained.features))
    predicted = run.trained.model.classifier.predict(parts(run).X_test)
    row = CompareRow(
        run.work.backend,
        run.seconds["all"],
        {stage: seconds for stage, seconds in run.seconds.items() if stage != "all"},
        accuracy=float(run.trained.scores.accuracy),
    )
    if base is not None:
        row = replace(
            row,
            features_difference=largest_difference(features, base.features),
            label_agreement=float((predicted == base.predicted).mean()),
        )
    return row, _Full(run, features, predicted)


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest absolute difference of two matrices of one shape, without a copy of either."""
    steps = range(0, len(a), ROWS)
    return max(float(np.abs(a[i : i + ROWS] - b[i : i + ROWS]).max()) for i in steps)
