"""How the cost changes with one setting: threads, precision, batch, number and size of the images."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline import config
from pipeline.backends.hog_layout import HogLayout
from pipeline.errors import ConfigError
from pipeline.processor import usable_cores
from pipeline.profiling import fits, subsets
from pipeline.profiling.changes import Tell, quiet, scratch, with_rounds
from pipeline.profiling.probes import of_rounds
from pipeline.profiling.report import Point, Sweep
from pipeline.profiling.runs import Run, Runner

IN_BATCHES = ("gather", "preprocess", "hog", "copy to device")
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the images
SIDES = (0.5, math.sqrt(0.5), 1.0, math.sqrt(2.0))  # of rows and columns: a quarter to twice the pixels
BATCHES = (16, 64, 256, 1024, 4096, 16384)
FEW = 2  # rounds of a run whose boosting is not looked at


def check(names: Sequence[str]) -> None:
    """Raise ConfigError for a sweep that does not exist; at once, before anything is measured."""
    for name in names:
        if name not in SWEEPS:
            near = difflib.get_close_matches(name, SWEEPS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"no sweep '{name}'.{hint} Choose among: {', '.join(SWEEPS)}")


def sweep(
    name: str, cfg: config.Train, runner: Runner, budget_seconds: float = 180.0, tell: Tell = quiet
) -> Sweep:
    """Run the settings with one of them varied, and fit the law of the cost.

    Parameters
    ----------
    name : one of SWEEPS
    cfg : ``run_dir`` must exist; a folder is made in it and removed
    budget_seconds : about how long; the boosting rounds of every point are cut to keep it
    tell : told what is measured

    Returns
    -------
    Sweep
        Points in ascending order, each the faster of two runs.

    Raises
    ------
    ConfigError
        If there is no such sweep, or it means nothing for these settings.
    """
    check([name])
    with scratch(cfg) as folder:
        bench = _bench(replace(cfg, run_dir=folder, plots=False), runner, tell)
        return SWEEPS[name](bench, budget_seconds)


@dataclass(frozen=True)
class _Bench:
    """What the sweeps work with: a first, short run has shown the images and what a round costs."""

    cfg: config.Train
    runner: Runner
    tell: Tell
    first: Run
    fixed: float  # seconds of a run apart from its rounds
    round: float  # seconds of a round

    def rounds(self, budget: float, weights: Sequence[float]) -> int:
        """Return the rounds of every point, at most those asked for, so that all points together keep the budget.

        `weights` are the costs of the points, as multiples of the settings' own.
        """
        asked = self.cfg.classifier.n_rounds
        runs = 2.0 * sum(weights)
        affordable = (budget / runs - self.fixed) / self.round if self.round > 0.0 else asked
        return max(min(asked, FEW), min(asked, int(affordable)))

    def timed(self, cfg: config.Train, x: float, label: str, warm: bool = True) -> tuple[Point, Run]:
        """Return the faster of two runs; `warm` is False where compiled code may have to be loaded first."""
        run, slower = self.twice(cfg, label, warm)
        stages = {stage: seconds for stage, seconds in run.seconds.items() if stage != "all"}
        whole = run.seconds["all"]
        return Point(x, label, whole, stages, slower["all"] - whole), run

    def twice(self, cfg: config.Train, label: str, warm: bool = True) -> tuple[Run, dict[str, float]]:
        """Return the faster of two runs, and the seconds of the slower."""
        self.tell(label)
        if not warm:
            self.runner(with_rounds(cfg, min(FEW, cfg.classifier.n_rounds)))
        run, slower = sorted((self.runner(cfg) for _ in range(2)), key=lambda one: one.seconds["all"])
        return run, slower.seconds


def _bench(cfg: config.Train, runner: Runner, tell: Tell) -> _Bench:
    few = min(FEW, cfg.classifier.n_rounds)
    runner(with_rounds(cfg, few))
    run = runner(with_rounds(cfg, few))
    each = sum(seconds for stage, seconds in run.seconds.items() if of_rounds(stage)) / few
    return _Bench(cfg, runner, tell, run, max(run.seconds["all"] - few * each, 0.0), each)


def _noted(words: str, rounds: int, asked: int) -> str:
    """Say so where fewer rounds were run than asked for."""
    return words if rounds == asked else f"{words} (Measured with {rounds} of {asked} rounds.)"


def _finished(
    name: str, x_label: str, points: list[Point], fit: fits.Fit, bench: _Bench, rounds: int
) -> Sweep:
    words = _noted(fit.words, rounds, bench.cfg.classifier.n_rounds)
    return Sweep(name, x_label, points, replace(fit, words=words))


# ---- the sweeps ----


def _threads(bench: _Bench, budget: float) -> Sweep:
    most = usable_cores()
    if bench.first.work.backend == "gpu":
        raise ConfigError(
            "sweep=threads is about the processor, and backend=gpu works elsewhere; leave it out"
        )
    if most < 2:
        raise ConfigError(
            "sweep=threads needs at least two cores, and this process may use one; leave it out"
        )
    counts = (
        list(range(1, most + 1))
        if most <= 8
        else [*(2**i for i in range(most.bit_length()) if 2**i < most), most]
    )
    rounds = bench.rounds(budget, [min(4.0, most / k) for k in counts])
    points = []
    for k in counts:
        cfg = with_rounds(bench.cfg, rounds)
        cfg = replace(cfg, backend=replace(cfg.backend, threads=k), data=replace(cfg.data, workers=k))
        points.append(bench.timed(cfg, k, f"{k} thread{'s' * (k > 1)}")[0])
    return _finished(
        "threads", "threads, of computing and decoding", points, fits.amdahl(points), bench, rounds
    )


def _dtype(bench: _Bench, budget: float) -> Sweep:
    kinds = [("float32", "float32"), ("float32", "float64"), ("float64", "float32"), ("float64", "float64")]
    rounds = bench.rounds(budget, [1.0, 2.0, 1.2, 2.0])
    points, accuracy = [], []
    for x, (hog, boosting) in enumerate(kinds):
        cfg = with_rounds(bench.cfg, rounds)
        cfg = replace(
            cfg,
            hog=replace(cfg.hog, dtype=config.FloatType[hog]),
            classifier=replace(cfg.classifier, dtype=config.FloatType[boosting]),
        )
        point, run = bench.timed(cfg, x, f"features {hog}, boosting {boosting}", warm=False)
        points.append(point)
        scores = getattr(run.trained, "scores", None)
        accuracy.append(None if scores is None else float(scores.accuracy))
    return _finished("dtype", "precision", points, fits.precision(points, accuracy), bench, rounds)


def _batch(bench: _Bench, budget: float) -> Sweep:
    if bench.first.work.backend == "gpu":
        raise ConfigError("sweep=batch: backend=gpu plans its batches by the free memory; leave it out")
    images, now = bench.first.work.images, bench.cfg.chunk
    sizes = sorted({min(size, images) for size in (*BATCHES, now, images)})
    points = []
    for size in sizes:
        cfg = replace(with_rounds(bench.cfg, min(FEW, bench.cfg.classifier.n_rounds)), chunk=size)
        label = f"{size} images at a time"
        points.append(_in_batches(size, label, *bench.twice(cfg, label)))
    return Sweep("batch", "images at a time (chunk)", points, fits.batches(points, images, now))


def _in_batches(size: int, label: str, run: Run, other: dict[str, float]) -> Point:
    """Return a point of the stages that work in batches, of the run in which these were faster."""
    found = [{key: one[key] for key in IN_BATCHES if key in one} for one in (run.seconds, other)]
    best, slower = sorted(found, key=lambda one: sum(one.values()))
    seconds = sum(best.values())
    return Point(size, label, seconds, best, sum(slower.values()) - seconds)


def _images(bench: _Bench, budget: float) -> Sweep:
    rounds = bench.rounds(budget, SHARES)
    base = with_rounds(bench.cfg, rounds)
    points = []
    drawn = bench.first.work.source == "synthetic"
    for share in SHARES:
        if drawn:
            count = max(round(share * base.data.n), 10 * base.data.classes)
            cfg = replace(base, data=replace(base.data, n=count))
        else:
            cfg = replace(base, data=_subset(bench, share))
        point, run = bench.timed(cfg, share, f"{share:.3g} of the images")
        points.append(replace(point, x=float(run.work.images), label=f"{run.work.images} images"))
    points = [point for i, point in enumerate(points) if i == 0 or point.x > points[i - 1].x]
    if len(points) < 2:
        raise ConfigError(
            f"sweep=images: {points[-1].x:.0f} images are too few to leave some out; use more images"
        )
    fit = fits.power(points, "images", bench.first.work.source)
    if not drawn:
        fit = replace(fit, words=f"{fit.words} Decoding is left out: the images were read once and packed.")
    return _finished("images", "images", points, fit, bench, rounds)


def _subset(bench: _Bench, share: float) -> config.Data:
    images = bench.first.trained.images
    chosen = images.subset(subsets.some(images, share))
    path = Path(bench.cfg.run_dir) / f"{len(chosen)}.npz"
    subsets.write(path, chosen, chosen.pixels)
    return subsets.from_packed(bench.cfg.data, path)


def _size(bench: _Bench, budget: float) -> Sweep:
    sizes = _sizes(bench.cfg)
    if len(sizes) < 2:
        shape = f"{bench.cfg.image.height}x{bench.cfg.image.width}"
        raise ConfigError(
            f"sweep=size: images of {shape} pixels hold no second size of whole blocks; use smaller cells"
        )
    area = bench.cfg.image.height * bench.cfg.image.width
    rounds = bench.rounds(budget, [_cost(bench.first, h * w / area) for h, w in sizes])
    points = []
    for height, width in sizes:
        cfg = with_rounds(bench.cfg, rounds)
        cfg = replace(cfg, image=replace(cfg.image, height=height, width=width))
        if bench.first.work.source == "packed":
            cfg = replace(cfg, data=_resized(bench, height, width))
        points.append(bench.timed(cfg, height * width, f"{height}x{width}")[0])
    fit = fits.power(points, "pixels", bench.first.work.source)
    return _finished("size", "pixels of an image", points, fit, bench, rounds)


def _cost(run: Run, ratio: float) -> float:
    """Return a guess at how the cost grows with the pixels: learners of all features pay for their square."""
    return ratio**2 if run.work.learner in ("ridge", "full") else max(ratio, 0.5)


def _sizes(cfg: config.Train) -> list[tuple[int, int]]:
    """Return the sizes, rising, that hold a block of the layout and give different numbers of features."""
    found: dict[int, tuple[int, int]] = {}
    for side in SIDES:
        shape = (round(side * cfg.image.height), round(side * cfg.image.width))
        cells, blocks = cfg.hog.pixels_per_cell, cfg.hog.cells_per_block
        if shape[0] < cells[0] * blocks[0] or shape[1] < cells[1] * blocks[1]:
            continue
        layout = HogLayout(shape, cfg.hog.orientations, (cells[0], cells[1]), (blocks[0], blocks[1]))
        if side == 1.0 or layout.n_features not in found:
            found[layout.n_features] = shape
    return sorted(found.values(), key=math.prod)


def _resized(bench: _Bench, height: int, width: int) -> config.Data:
    """Write the images at another size: a packed set holds one only."""
    from PIL import Image

    images = bench.first.trained.images
    pixels = np.stack(
        [np.asarray(Image.fromarray(one).resize((width, height))) for one in np.asarray(images.pixels)]
    )
    path = Path(bench.cfg.run_dir) / f"{height}x{width}.npz"
    subsets.write(path, images, pixels)
    return subsets.from_packed(bench.cfg.data, path)


SWEEPS: dict[str, Callable[[_Bench, float], Sweep]] = {
    "threads": _threads,
    "dtype": _dtype,
    "batch": _batch,
    "images": _images,
    "size": _size,
}
