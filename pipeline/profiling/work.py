"""What a training run has to do, in numbers: the input of every count and forecast."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import backends, config
from pipeline.backends.hog_layout import HogLayout
from pipeline.errors import ConfigError
from pipeline.scale import memory

PROMOTED = 1 << 17  # as in boosting: smaller training sets are worked on in float64
PROGRAM = 300 << 20  # bytes that the program itself holds, where nobody has measured it


TOGETHER = 12  # classes that share products where registers are many, see gram_shape in backends/cpu/tiles.py


@dataclass(frozen=True)
class Work:
    """The size of a training run.

    Attributes
    ----------
    images, fit, watched, tested : images in all, fitted to, watched for early stopping, held out
    classes : J
    layout : HogLayout of one image
    preprocess : name of the preprocessing step
    feature_bytes : bytes of one feature
    number_bytes : bytes of one number in boosting
    backend : who computes
    threads : threads of the cpu and reference backends
    learner, rounds : the weak learner, and rounds run
    columns : features of a round: q of ``subspace`` and ``random_features``, else all that boosting sees
    source : "folder", "packed", "digits" or "synthetic"
    files, file_bytes : files read, and their bytes together (0 where nothing is read)
    plots : whether PNG files are drawn
    components : principal components that boosting sees in place of the HoG features; None: it sees those
    block_norm : of the features
    memory_limit : bytes of memory that training out of core keeps to; 0: the features lie in memory
    kept_number_bytes : bytes of a number of the cell histograms on disk
    at_once : classes whose Gram matrices are added up in one pass over the rows out of core; 0: all
    block_rows : rows of features that are in memory together out of core
    rough : whether Gram matrices are of numbers in bfloat16, of which the processor multiplies two in the time of one
        of float32, and fits are refined
    together : classes at most for which `cpu` works out a product of two columns once
    trimmed : whether rounds skip the images of least weight
    """

    images: int
    fit: int
    watched: int
    tested: int
    classes: int
    layout: HogLayout
    preprocess: str
    feature_bytes: int
    number_bytes: int
    backend: str
    threads: int
    learner: str
    rounds: int
    columns: int
    source: str
    files: int = 0
    file_bytes: int = 0
    plots: bool = True
    components: int | None = None
    block_norm: str = "L2-Hys"
    memory_limit: int = 0
    kept_number_bytes: int = 4
    at_once: int = 0
    block_rows: int = 0
    rough: bool = False
    together: int = TOGETHER
    trimmed: bool = False

    @property
    def features(self) -> int:
        """Features of an image, p."""
        return self.layout.n_features

    @property
    def inputs(self) -> int:
        """Features of an image that boosting sees."""
        return self.layout.n_features if self.components is None else self.components

    @property
    def pixels(self) -> int:
        """Pixels of an image, each a byte."""
        return self.layout.image_shape[0] * self.layout.image_shape[1]

    @property
    def fits(self) -> int:
        """Weighted least squares of a round: one per class, and one in all for two classes."""
        return 1 if self.classes == 2 else self.classes

    @property
    def kept_bytes(self) -> int:
        """Bytes of an image's cell histograms, which lie on disk out of core, and of the factors of its blocks."""
        cells, blocks = math.prod(self.layout.cells), math.prod(self.layout.blocks)
        factors = 2 if self.block_norm == "L2-Hys" else 1
        return (cells * self.layout.orientations + factors * blocks) * self.kept_number_bytes

    @property
    def passes(self) -> int:
        """Times that the training rows are expanded out of core.

        Once for the moments, once for the first sums, and once in each round; more often where a pass serves only
        some of the classes, and in float64, whose fits are refined.
        """
        if self.learner == "componentwise":
            return self.rounds + 2
        ranges = -(-self.fits // (self.at_once or self.fits))
        return 2 + self.rounds * ranges * (2 if self.number_bytes == 8 else 1)


def describe(
    cfg: config.Train,
    *,
    backend: str,
    threads: int,
    images: int,
    classes: int,
    rounds: int | None = None,
    files: tuple[int, int] = (0, 0),
    source: str | None = None,
    components: int | None = None,
) -> Work:
    """Return the work that settings mean for so many images.

    Parameters
    ----------
    rounds : rounds run, if fewer than asked for
    files : number and bytes of the files read
    source : kind of data, if ``cfg.data.name`` leaves it to the path
    components : principal components kept, if known; a share of the variance tells their number only after the fit,
        and until then they are taken to be as many as there can be
    """
    layout = _layout(cfg)
    tested = round(cfg.split.test * images)
    watched = round(cfg.split.validation * (images - tested)) if cfg.classifier.early_stopping else 0
    fit = images - tested - watched
    if cfg.reduce.name is not config.ReduceName.none:
        components = components or cfg.reduce.components or min(fit, layout.n_features)
    p = components or layout.n_features
    wide = fit * p <= PROMOTED or cfg.classifier.dtype.name == "float64"
    work = Work(
        images=images,
        fit=fit,
        watched=watched,
        tested=tested,
        classes=classes,
        layout=layout,
        preprocess=cfg.preprocess.name.name,
        feature_bytes=4 if cfg.hog.dtype.name == "float32" else 8,
        number_bytes=8 if wide else 4,
        backend=backend,
        threads=threads,
        learner=cfg.classifier.learner.name,
        rounds=rounds or cfg.classifier.n_rounds,
        columns=_columns(cfg, p),
        source=source or cfg.data.name.name,
        files=files[0],
        file_bytes=files[1],
        plots=cfg.plots,
        components=components,
        block_norm=cfg.hog.block_norm,
        kept_number_bytes=_kept_number_bytes(cfg),
        trimmed=cfg.classifier.trim > 0.0,
    )
    work = replace(work, rough=_rough(cfg, work))
    if backend == "cpu":
        work = replace(work, together=backends.get("cpu").wls.classes_together)
    if cfg.scale.name is not config.ScaleName.outofcore or backend != "cpu":
        return work
    return streamed(replace(work, memory_limit=config.size_in_bytes(cfg.scale.memory_limit or "") or 0))


def _layout(cfg: config.Train) -> HogLayout:
    return HogLayout(
        (cfg.image.height, cfg.image.width),
        cfg.hog.orientations,
        (cfg.hog.pixels_per_cell[0], cfg.hog.pixels_per_cell[1]),
        (cfg.hog.cells_per_block[0], cfg.hog.cells_per_block[1]),
    )


def _columns(cfg: config.Train, p: int) -> int:
    """Return the columns of a round, of p features that boosting sees."""
    drawn = {"subspace": min(cfg.classifier.subspace_size, p), "random_features": cfg.classifier.n_components}
    return drawn.get(cfg.classifier.learner.name, p)


def _kept_number_bytes(cfg: config.Train) -> int:
    bytes_stay = cfg.preprocess.name.name in ("none", "stretch") and not cfg.hog.transform_sqrt  # of pixels
    return 4 if bytes_stay and cfg.hog.dtype.name == "float32" else 8


def _rough(cfg: config.Train, work: Work) -> bool:
    """Tell whether fits begin with rough Gram matrices."""
    if cfg.scale.name is not config.ScaleName.local or work.backend != "cpu":
        return False
    if work.learner not in ("subspace", "random_features"):
        return False
    precision = "float64" if work.number_bytes == 8 else "float32"
    return backends.get("cpu").wls.rough.begins(
        work.fit, work.columns, work.fits, cfg.classifier.l2, precision
    )


def streamed(work: Work, used: int = PROGRAM) -> Work:
    """Return the work with the classes that one pass serves out of core.

    Parameters
    ----------
    used : bytes that the program holds when training begins
    """
    try:
        rows, spare = memory.division(
            memory.Budget(work.memory_limit, used), of_round(work), work.fit + work.watched
        )
    except ConfigError:  # the limit is too low for any block: a run says so, and which would do
        return replace(work, at_once=1, block_rows=0)
    once = 0 if work.learner == "componentwise" else min(work.fits, memory.classes(spare, work.columns))
    return replace(work, at_once=once, block_rows=min(rows, work.fit))


def of_round(work: Work) -> memory.Work:
    """Return what decides the memory of a round out of core."""
    return memory.Work(
        p=work.features,
        q=work.columns,
        classes=work.classes,
        fitted=work.fits,
        item=work.number_bytes,
        kept=work.kept_bytes,
        feature=work.feature_bytes,
        threads=work.threads,
        random=work.learner == "random_features",
        componentwise=work.learner == "componentwise",
    )


def files_of(cfg: config.Train, paths: list[str]) -> tuple[str, int, int]:
    """Return the kind of data, and the number and bytes of the files read; `paths` as of the images read."""
    name = cfg.data.name.name
    if cfg.data.path is None:
        return name, 0, 0
    root = Path(cfg.data.path).expanduser()
    if root.is_file():
        return "packed", 1, root.stat().st_size
    sizes = [(root / path).stat().st_size for path in paths if (root / path).exists()]
    return "folder", len(sizes), sum(sizes)


def of_trained(cfg: config.Train, trained: Any, threads: int) -> Work:
    """Return the work that a finished run did; `trained` is what ``commands.train.train`` returned."""
    source, files, size = files_of(cfg, trained.images.paths)
    return describe(
        cfg,
        backend=trained.content["backend"],
        threads=threads,
        images=len(trained.images),
        classes=len(trained.images.class_names),
        rounds=len(trained.model.classifier.train_loss_),
        files=(files, size),
        components=trained.model.reducer.n_components_ if trained.model.reducer is not None else None,
        source=source,
    )
