"""What a run would take with other settings: seconds of the stages that a candidate changes, from short runs.

A short run is a run of the program with the settings of the candidate, all images and few rounds. Two numbers of
rounds tell what a round takes and what is done once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from pipeline import config, datasets
from pipeline.profiling import subsets
from pipeline.profiling.candidates import Candidate, Measured
from pipeline.profiling.changes import overridden, with_rounds
from pipeline.profiling.probes import Observation, fitted, observed, of_rounds, predicted
from pipeline.profiling.runs import Runner

BOOSTED = 1.0  # seconds of boosting that the longer of two short runs should have
TIMES = 3  # short runs where one number of rounds is enough
PER_STEP = ("random_features",)  # learners whose models are evaluated round by round


@dataclass(frozen=True)
class Predicted:
    """Seconds of stages, and how they were predicted, in words."""

    seconds: dict[str, float]
    words: str


@dataclass(frozen=True)
class Predictor:
    """Predicts for one measured run.

    Attributes
    ----------
    run : as measured
    images : of the run, or a sample of them
    runner : trains
    folder : where it may write
    """

    run: Measured
    images: datasets.Images | None
    runner: Runner
    folder: Path

    def __call__(self, candidate: Candidate) -> Predicted:
        """Return the seconds of the stages of the candidate's settings; those it does not change may be missing."""
        if candidate.method == "packed":
            return self._packed()
        if candidate.method == "rounds":
            return self._fewer(candidate)
        return self._short_runs(candidate)

    def _settings(self, override: str = "") -> config.Train:
        return overridden(replace(self.run.cfg, run_dir=str(self.folder)), override)

    def _short_runs(self, candidate: Candidate) -> Predicted:
        cfg = self._settings(candidate.override)
        rounds = candidate.rounds or self._rounds(cfg)
        boosts = any(candidate.concerns(stage) for stage in ("boost", "boost/sums"))
        few = self._few(rounds) if boosts else [min(2, rounds)]
        self.runner(with_rounds(cfg, few[0]))  # pays for compiling and importing
        if len(few) == 1:  # cheap, and of stages that memory makes faster and slower: the median of some
            points = [_median([_observed(self.runner, with_rounds(cfg, few[0])) for _ in range(TIMES)])]
        else:
            points = [_observed(self.runner, with_rounds(cfg, r)) for r in few]
        seconds = _predict(points, rounds, cfg.classifier.learner.name)
        if len(few) == 1:
            return Predicted(seconds, f"measured in {TIMES} short runs with it")
        shown = f"two short runs with it, of {few[0]} and {few[1]} rounds, extrapolated to {rounds}"
        if candidate.method == "patience":
            shown += "; the last round by the rule of patience on the loss of the held-out images"
        return Predicted(seconds, shown)

    def _fewer(self, candidate: Candidate) -> Predicted:
        asked, rounds = self.run.work.rounds, candidate.rounds or 1
        few = max(1, rounds // 4)
        seconds = {stage: t for stage, t in self.run.seconds.items() if stage != "all"}
        learner = self.run.work.learner
        points = [
            _observed(self.runner, with_rounds(self._settings(), few)),
            Observation(self.run.work.images, asked, _by_step(seconds, learner)),
        ]
        words = f"the line through the rounds measured: {few} and {asked}"
        return Predicted(_predict(points, rounds, learner), words)

    def _rounds(self, cfg: config.Train) -> int:
        """Return the rounds that settings mean; where the measured run was stopped early, so will this one be."""
        asked, run = cfg.classifier.n_rounds, self.run
        if (
            run.work.rounds < run.cfg.classifier.n_rounds
            and cfg.classifier.learner is run.cfg.classifier.learner
        ):
            return min(asked, run.work.rounds)
        return asked

    def _few(self, rounds: int) -> list[int]:
        """Return two numbers of rounds to run: the larger boosts for about a second, as rounds are now."""
        each = sum(t for stage, t in self.run.seconds.items() if of_rounds(stage)) / self.run.work.rounds
        wanted = math.ceil(BOOSTED / each) if each > 0.0 else 40
        more = min(rounds, max(6, min(40, wanted)))
        return [max(1, more // 4), more] if more > 1 else [1]

    def _packed(self) -> Predicted:
        """Write images as a packed set, read them and touch every page; in proportion to their number."""
        images = self.images
        if images is None:
            raise ValueError(
                "the images of the run are needed to predict what reading them from a packed set takes"
            )
        path, whole = self.folder / "sample.npz", self.run.work.images
        subsets.write(path, images, images.pixels)
        data = subsets.from_packed(self.run.cfg.data, path)
        times = []
        for _ in range(3):
            begin = perf_counter()
            pixels = datasets.load(data, self.run.cfg.image).images.pixels
            _touch(pixels)
            first = perf_counter()
            _touch(pixels)  # what is in memory already costs the run nothing more
            times.append(first - begin - (perf_counter() - first))
        seconds = max(min(times), 0.0) * whole / len(images)
        words = f"{len(images)} images were packed and read: {seconds:.3f} s for {whole}"
        return Predicted({"read": seconds, "decode": 0.0}, words)


def _touch(pixels: np.ndarray) -> int:
    """Read a byte of every page of memory."""
    return int(pixels.reshape(-1)[::2048].max())


def _by_step(seconds: dict[str, float], learner: str) -> dict[str, float]:
    """Count evaluation among the stages of the rounds where it takes them one by one."""
    if learner not in PER_STEP:
        return seconds
    return {("boost/evaluate" if stage == "evaluate" else stage): t for stage, t in seconds.items()}


def _observed(runner: Runner, cfg: config.Train) -> Observation:
    images, rounds, seconds = observed(runner(cfg))
    return Observation(images, rounds, _by_step(seconds, cfg.classifier.learner.name))


def _median(points: Sequence[Observation]) -> Observation:
    images, rounds, _ = points[0]
    stages = dict.fromkeys(stage for _, _, seconds in points for stage in seconds)
    return Observation(
        images,
        rounds,
        {stage: median(seconds.get(stage, 0.0) for _, _, seconds in points) for stage in stages},
    )


def _predict(points: Sequence[Observation], rounds: int, learner: str) -> dict[str, float]:
    seconds = predicted(fitted(points), points[-1][0], rounds)
    del seconds["all"]
    if learner in PER_STEP:
        seconds["evaluate"] = seconds.pop("boost/evaluate", 0.0)
    return seconds
