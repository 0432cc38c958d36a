"""What might make a run faster, derived from its measured stages and its settings.

A candidate says which stages it can change and how much of them it can save at most. One that cannot save enough is
never tried.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline import config
from pipeline.backends.hog_layout import HogLayout
from pipeline.profiling.learner_costs import LEARNERS, operations
from pipeline.profiling.report import label
from pipeline.profiling.work import Work

LEARNING = ("boost", "evaluate")
AFTER_PIXELS = ("hog", *LEARNING)
COARSE = ([10, 10], [2, 2])  # pixels per cell and cells per block of hog=coarse


@dataclass(frozen=True)
class Candidate:
    """A change of settings that may pay.

    Attributes
    ----------
    title, override : what to do, for a person and exactly as typed
    changes : beginnings of the keys of the stages that it can change
    most : largest share of these stages that it can save
    why : the measured figures that speak for it
    caveat : what it changes besides the time
    method : how it is predicted: "run" (short runs with it), "rounds" (fewer of the rounds measured), "packed"
        (reading a packed set), "patience" (short runs with it, as many rounds as patience would leave)
    rounds : rounds that it would run, if they follow from the measured run
    """

    title: str
    override: str
    changes: tuple[str, ...]
    most: float
    why: str
    caveat: str | None = None
    method: str = "run"
    rounds: int | None = None

    def concerns(self, stage: str) -> bool:
        """Tell whether it can change a stage."""
        return any(stage == key or stage.startswith(f"{key}/") for key in self.changes)

    def bound(self, seconds: Mapping[str, float]) -> float:
        """Return the most seconds that it can save."""
        return self.most * sum(t for stage, t in seconds.items() if stage != "all" and self.concerns(stage))


@dataclass(frozen=True)
class Measured:
    """The measured run, as the candidates need it.

    Attributes
    ----------
    cfg : settings
    work : what was done
    seconds : median of each stage, and "all"
    cores : that this process may use
    losses : log-loss on the held-out images after each round
    """

    cfg: config.Train
    work: Work
    seconds: Mapping[str, float]
    cores: int
    losses: list[float]

    def of(self, *keys: str) -> float:
        """Return the seconds of these stages and those inside them."""
        return sum(
            t for s, t in self.seconds.items() if s in keys or s.startswith(tuple(f"{k}/" for k in keys))
        )

    def told(self, *keys: str) -> str:
        """Return how much the stages take, in words."""
        names = [("Boosting" if key == "boost" else label(key)) for key in keys]
        seconds, whole = self.of(*keys), self.seconds["all"]
        take = "take" if len(keys) > 1 else "takes"
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        return f"{listed} {take} {seconds:.2f} s of {whole:.2f} s ({seconds / whole:.0%})"


def derived(run: Measured) -> Iterator[Candidate]:
    """Yield every candidate that the settings leave room for."""
    reading, numbers = (_packed, _threads, _workers, _precision), (_layout, _preprocess, _plots, _chunk)
    for rule in (*reading, _learner, _columns, _rounds, _patience, *numbers):
        yield from rule(run)


def _packed(run: Measured) -> Iterator[Candidate]:
    if run.work.source == "packed":
        return
    data, image = run.cfg.data, run.cfg.image
    name = f"{Path(data.path).name if data.path else data.name.name}_{image.height}x{image.width}.npz"
    source = f"data={data.name.name}" if data.path is None else shlex.quote(f"data.path={data.path}")
    if run.work.source == "synthetic":
        source += f" data.n={data.n} data.classes={data.classes}"
        source += f" data.difficulty={data.difficulty} data.seed={data.seed}"
    out = shlex.quote(f"out={name}")
    size = f"image.height={image.height} image.width={image.width} image.fit={image.fit.name}"
    yield Candidate(
        f"pack the images once, first: python -m pipeline pack {source} {out} {size}",
        f"data.name=packed {shlex.quote(f'data.path={name}')}",
        ("read", "decode"),
        1.0,
        f"{run.told('read', 'decode')}; a packed set is mapped into memory without decoding",
        f"packing takes about {run.of('read', 'decode'):.2g} s once, and again when the images or their size change",
        "packed",
    )


def _threads(run: Measured) -> Iterator[Candidate]:
    threads, cores = run.work.threads, run.cores
    if run.work.backend == "gpu" or not 0 < threads < cores:
        return
    yield Candidate(
        f"compute on all {cores} cores instead of {threads}",
        "backend.threads=0",
        ("preprocess", "hog", "boost", "evaluate"),
        1.0 - threads / cores,
        f"{threads} of {cores} cores work; {run.told('preprocess', 'hog', 'boost')}",
    )


def _workers(run: Measured) -> Iterator[Candidate]:
    workers = run.cfg.data.workers
    if run.work.source not in ("folder", "synthetic") or not 0 < workers < run.cores:
        return
    yield Candidate(
        f"decode on all {run.cores} cores instead of {workers}",
        "data.workers=0",
        ("read", "decode"),
        1.0 - workers / run.cores,
        f"{workers} of {run.cores} cores decode; {run.told('read', 'decode')}",
    )


def _precision(run: Measured) -> Iterator[Candidate]:
    wide = [
        key
        for key, kind in (("hog.dtype", run.cfg.hog.dtype), ("classifier.dtype", run.cfg.classifier.dtype))
        if kind is config.FloatType.float64
    ]
    if wide:
        are = "are" if len(wide) > 1 else "is"
        yield Candidate(
            "compute in float32 instead of float64",
            " ".join(f"{key}=float32" for key in wide),
            AFTER_PIXELS,
            0.75,
            f"{' and '.join(wide)} {are} float64, twice the bytes; {run.told('hog', 'boost')}",
            "features and sums have 7 digits instead of 16; accuracy hardly ever depends on the rest",
        )


def _learner(run: Measured) -> Iterator[Candidate]:
    now = run.work.learner
    cost = operations(run.work, now, run.work.columns, run.work.rounds)
    cheaper = []
    for name, settings in LEARNERS.items():
        there = operations(run.work, name, int(settings.get("subspace_size", 0)), int(settings["n_rounds"]))
        if name != now and there < 0.5 * cost:
            cheaper.append((there, name, settings))
    for there, name, settings in sorted(cheaper, key=lambda one: one[0])[:2]:
        text = " ".join(f"classifier.{key}={value}" for key, value in settings.items())
        yield Candidate(
            f"boost with the learner {name} (classifier={name})",
            f"classifier.learner={name} {text}",
            LEARNING,
            1.0,
            f"{run.told('boost')}; {name} needs {there / cost:.1%} of the operations of {now}",
            "another model: compare the accuracy",
        )


def _columns(run: Measured) -> Iterator[Candidate]:
    key = {"subspace": "subspace_size", "random_features": "n_components"}.get(run.work.learner)
    half = run.work.columns // 2
    if key is None or half < 16:
        return
    yield Candidate(
        f"half as many columns in each round: {half} instead of {run.work.columns}",
        f"classifier.{key}={half}",
        LEARNING,
        0.75,
        f"{run.told('boost')}; the sums of a round grow with the square of {key}",
        "each round learns less: compare the accuracy, and allow more rounds if it falls",
    )


def _rounds(run: Measured) -> Iterator[Candidate]:
    rounds = run.work.rounds
    if len(run.losses) < 4:
        return
    best = min(run.losses)
    enough = next(r for r, loss in enumerate(run.losses, 1) if loss <= 1.02 * best)
    if enough > 0.9 * rounds:
        return
    yield Candidate(
        f"stop after {enough} rounds instead of {rounds}",
        f"classifier.n_rounds={enough}",
        LEARNING,
        1.0 - enough / rounds,
        f"{run.told('boost')}; after {enough} rounds the held-out log-loss, {run.losses[enough - 1]:.4f}, is within "
        f"2 % of the best of all rounds, {best:.4f}",
        "chosen by the images that also judge it; another split may need more rounds",
        "rounds",
        enough,
    )


def stopped(losses: list[float], patience: int) -> int | None:
    """Return the round after which patience ends on such losses, or None if it never does."""
    best = 0
    for index, loss in enumerate(losses):
        if loss < losses[best]:
            best = index
        if index - best >= patience:
            return index + 1
    return None


def _patience(run: Measured) -> Iterator[Candidate]:
    if run.cfg.classifier.early_stopping:
        return
    last = stopped(run.losses, run.cfg.classifier.patience)
    if last is None or last >= run.work.rounds:
        return
    yield Candidate(
        f"let early stopping end the rounds, at about {last} of {run.work.rounds}",
        "classifier.early_stopping=true",
        LEARNING,
        1.0,
        f"{run.told('boost')}; at round {last} the held-out log-loss has not fallen for "
        f"{run.cfg.classifier.patience} rounds",
        f"{run.cfg.split.validation:.0%} of the training images are watched instead of fitted to",
        "patience",
        last,
    )


def _layout(run: Measured) -> Iterator[Candidate]:
    cells, blocks = COARSE
    shape = run.work.layout.image_shape
    if shape[0] < cells[0] * blocks[0] or shape[1] < cells[1] * blocks[1]:
        return
    p = HogLayout(shape, run.cfg.hog.orientations, (cells[0], cells[1]), (blocks[0], blocks[1])).n_features
    if p > 0.8 * run.work.features:
        return
    yield Candidate(
        f"larger cells and smaller blocks (hog=coarse): {p} features instead of {run.work.features}",
        f"hog.pixels_per_cell=[{cells[0]},{cells[1]}] hog.cells_per_block=[{blocks[0]},{blocks[1]}]",
        AFTER_PIXELS,
        1.0 - (p / run.work.features) ** 2,
        f"{run.told('hog', 'boost')}, and both grow with the features",
        "coarser features: compare the accuracy",
    )


def _preprocess(run: Measured) -> Iterator[Candidate]:
    if run.work.preprocess == "none":
        return
    yield Candidate(
        f"leave preprocess={run.work.preprocess} out",
        "preprocess.name=none",
        ("preprocess", "hog"),
        1.0,
        run.told("preprocess"),
        "other features: compare the accuracy; HoG evens out contrast by itself",
    )


def _plots(run: Measured) -> Iterator[Candidate]:
    if run.cfg.plots:
        yield Candidate("draw no plots", "plots=false", ("save",), 1.0, run.told("save"), "no PNG files")


def _chunk(run: Measured) -> Iterator[Candidate]:
    now = run.cfg.chunk
    if run.work.backend == "gpu":  # it plans its own
        return
    for size in (now * 8, max(now // 8, 32)):
        if size < run.work.images and size != now:
            yield Candidate(
                f"{size} images at a time instead of {now}",
                f"chunk={size}",
                ("preprocess", "hog"),
                0.5,
                f"{run.told('preprocess', 'hog')}, in {-(-run.work.images // now)} batches",
            )
