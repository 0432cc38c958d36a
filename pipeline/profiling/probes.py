"""A cost model measured on samples: the seconds of a stage are linear in images and in rounds times images.

    seconds = fixed + per_image n + per_round r + per_image_round n r,   every coefficient at least 0.

The coefficients follow from runs of the program itself with few rounds and, where the data allow it, fewer images.
Settings that change the work of an image or a round (learner, layout, threads, precision) need runs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline import config
from pipeline.profiling.runs import Run, Runner

EXPAND = "expand"  # out of core: in every pass over the rows, two of which come before the rounds
PER_ROUND = "boost/"  # stages of the rounds; "boost/set-up" is once


@dataclass(frozen=True)
class StageModel:
    """The cost of one stage on one machine with one group of settings, in seconds."""

    fixed: float = 0.0
    per_image: float = 0.0
    per_round: float = 0.0
    per_image_round: float = 0.0

    def seconds(self, images: int, rounds: int) -> float:
        """Return the seconds for so many images and rounds."""
        return (
            self.fixed
            + self.per_image * images
            + self.per_round * rounds
            + self.per_image_round * images * rounds
        )


class Observation(tuple):
    """(images, rounds, {stage: seconds})."""

    def __new__(cls, images: int, rounds: int, seconds: dict[str, float]) -> Observation:
        """Make one."""
        return super().__new__(cls, (images, rounds, seconds))


def observed(run: Run) -> Observation:
    """Return what a run says of the model."""
    seconds = {stage: value for stage, value in run.seconds.items() if stage != "all"}
    return Observation(run.work.images, run.work.rounds, seconds)


def of_rounds(stage: str) -> bool:
    """Tell whether a stage happens in every round."""
    return (stage.startswith(PER_ROUND) and stage != "boost/set-up") or stage in ("boost", EXPAND)


def fitted(observations: Sequence[Observation]) -> dict[str, StageModel]:
    """Return the model of each stage that the observations show: least squares of the relative error.

    With one number of images the cost is taken as proportional to it (stages of rounds, and others above 20 us an
    image) or as fixed; with one number of rounds, as proportional to the rounds.
    """
    stages = list(dict.fromkeys(name for _, _, seconds in observations for name in seconds))
    return {stage: _one(stage, observations) for stage in stages}


def _one(stage: str, observations: Sequence[Observation]) -> StageModel:
    from scipy.optimize import nnls

    points = [(n, r, s.get(stage, 0.0)) for n, r, s in observations]
    several = len({n for n, _, _ in points}) > 1
    names = ["fixed", "per_image"]
    if of_rounds(stage):
        once = "per_image" if stage == EXPAND else "fixed"
        names = ["per_round", "per_image_round"] + ([once] if len({r for _, r, _ in points}) > 1 else [])
    if not several:
        typical = float(np.median([t / n for n, _, t in points]))
        dropped = "per_round" if of_rounds(stage) else "fixed" if typical > 2e-5 else "per_image"
        names.remove(dropped)
    terms = {
        "fixed": lambda n, r: 1.0,
        "per_image": lambda n, r: n,
        "per_round": lambda n, r: r,
        "per_image_round": lambda n, r: n * r,
    }
    rows = np.array([[terms[name](n, r) for name in names] for n, r, _ in points], dtype=float)
    times = np.array([t for _, _, t in points])
    weight = 1.0 / np.maximum(times, 1e-4)
    scale = np.maximum(np.abs(rows * weight[:, None]).max(axis=0), 1e-300)
    found = nnls(rows * weight[:, None] / scale, times * weight)[0] / scale
    return StageModel(**dict(zip(names, found.tolist(), strict=True)))


def predicted(models: dict[str, StageModel], images: int, rounds: int) -> dict[str, float]:
    """Return the seconds of each stage, and their sum under "all"."""
    seconds = {stage: model.seconds(images, rounds) for stage, model in models.items()}
    return {**seconds, "all": sum(seconds.values())}


def probe(runner: Runner, cfg: config.Train, rounds: Sequence[int], images: Sequence[int] = ()) -> list[Run]:
    """Run the settings with few rounds and, for synthetic data, with each number of images; return the runs.

    The first run of each is done twice and forgotten once: it pays for compiling and importing.
    """
    runs = []
    for position, n in enumerate(images or [cfg.data.n]):
        data = replace(cfg.data, n=n)
        for r in rounds:
            settings = replace(cfg, data=data, classifier=replace(cfg.classifier, n_rounds=r))
            if position == 0 and r == rounds[0]:
                runner(settings)
            runs.append(runner(settings))
    return runs
