"""Groups of pictures and what becomes of them: ``data``, ``image``, ``split``, ``preprocess``, ``hog``, ``reduce``."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.groups.choices import BLOCK_NORMS, DataName, Fit, FloatType, PreprocessName, ReduceName
from pipeline.groups.ranges import check, whole


@dataclass
class Image:
    """Group ``image``: the uniform size every picture is brought to."""

    height: int = 50  # rows every image is brought to
    width: int = 100  # columns
    fit: Fit = Fit.stretch  # pad keeps the aspect ratio

    def __post_init__(self) -> None:
        check(1 <= self.height <= 16384, "image.height", self.height, "1 to 16384 rows")
        check(1 <= self.width <= 16384, "image.width", self.width, "1 to 16384 columns")


@dataclass
class Data:
    """Group ``data``: where the images come from."""

    name: DataName = DataName.digits  # what data=... chose; data.path alone means auto
    path: str | None = None  # a folder of class folders, a packed set or, for predict, one picture
    max_rejected: float = 0.1  # share of files that may be unreadable before the run stops
    max_pixels: int = 100_000_000  # a header that announces more is refused before decoding
    workers: int = 0  # decoding workers; 0: one per core
    n: int = 10_000  # synthetic only: number of images
    classes: int = 10  # synthetic only: number of classes
    difficulty: float = 0.5  # synthetic only: 0 easy, 1 hard
    seed: int = 0  # synthetic only: another seed, other images

    def __post_init__(self) -> None:
        check(0.0 <= self.max_rejected <= 1.0, "data.max_rejected", self.max_rejected, "a share from 0 to 1")
        whole("data.max_pixels", self.max_pixels, 1, 10**12)
        check(
            0 <= self.workers <= 4096,
            "data.workers",
            self.workers,
            "0 (one per core) or at most 4096 workers",
        )
        whole("data.n", self.n, 1, 100_000_000)
        whole("data.classes", self.classes, 2, 65_536)
        whole("data.seed", self.seed, 0, 2**32 - 1)
        check(0.0 <= self.difficulty <= 1.0, "data.difficulty", self.difficulty, "from 0 to 1")


@dataclass
class Split:
    """Group ``split``: which images are held out."""

    test: float = 0.2  # share of the images held out for the final figures
    validation: float = 0.1  # share of the remaining images watched during boosting when early_stopping is on
    seed: int = 0  # another seed, another split
    group_by: str | None = None  # regular expression on the path; equal matches stay on one side
    folds: int = 0  # evaluate only: 0 scores a saved model, k >= 2 cross-validates

    def __post_init__(self) -> None:
        check(0.0 < self.test < 1.0, "split.test", self.test, "a share between 0 and 1")
        check(0.0 < self.validation < 1.0, "split.validation", self.validation, "a share between 0 and 1")
        check(self.folds == 0 or self.folds >= 2, "split.folds", self.folds, "0 (off) or at least 2")
        check(0 <= self.seed < 2**32, "split.seed", self.seed, "from 0 to 4294967295")


@dataclass
class Preprocess:
    """Group ``preprocess``: one scikit-image function on the uniform batch, or none."""

    name: PreprocessName = PreprocessName.none  # what preprocess=... chose
    percentiles: list[float] = field(default_factory=lambda: [2.0, 98.0])  # stretch: these become 0 and 255
    sigma: float = 1.0  # gaussian: standard deviation in pixels
    nbins: int = 256  # equalize, clahe: bins of the histogram
    clip_limit: float = 0.01  # clahe: 0 to 1, more contrast the higher
    kernel_size: int | None = None  # clahe: pixels; null: 1/8 of height and width, as scikit-image

    def __post_init__(self) -> None:
        ok = len(self.percentiles) == 2 and 0.0 <= self.percentiles[0] < self.percentiles[1] <= 100.0
        check(ok, "preprocess.percentiles", self.percentiles, "two rising numbers from 0 to 100")
        check(0.0 <= self.sigma <= 1000.0, "preprocess.sigma", self.sigma, "from 0 to 1000 pixels")
        whole("preprocess.nbins", self.nbins, 2, 65_536)
        check(0.0 <= self.clip_limit <= 1.0, "preprocess.clip_limit", self.clip_limit, "from 0 to 1")
        check(
            self.kernel_size is None or 1 <= self.kernel_size <= 16384,
            "preprocess.kernel_size",
            self.kernel_size,
            "1 to 16384 pixels, or null",
        )


@dataclass
class Hog:
    """Group ``hog``: scikit-image's parameters of the descriptor."""

    orientations: int = 9  # bins of the histograms, from 0 to 180 degrees
    pixels_per_cell: list[int] = field(default_factory=lambda: [8, 8])  # size of a cell: [rows,cols]
    cells_per_block: list[int] = field(default_factory=lambda: [3, 3])  # cells of a block: [rows,cols]
    block_norm: str = "L2-Hys"  # how a block is normalised: L1, L1-sqrt, L2, L2-Hys
    transform_sqrt: bool = False  # take the square root of each pixel first
    dtype: FloatType = FloatType.float32  # precision of the features

    def __post_init__(self) -> None:
        whole("hog.orientations", self.orientations, 1, 3600)
        check(
            self.block_norm in BLOCK_NORMS,
            "hog.block_norm",
            self.block_norm,
            "one of " + ", ".join(BLOCK_NORMS),
        )
        for key in ("pixels_per_cell", "cells_per_block"):
            pair = getattr(self, key)
            check(
                len(pair) == 2 and min(pair) >= 1 and max(pair) <= 16384,
                f"hog.{key}",
                pair,
                "two numbers of at least 1 and at most 16384: [rows, cols]",
            )


@dataclass
class Reduce:
    """Group ``reduce``: fewer features, learned from the training images."""

    name: ReduceName = ReduceName.none  # what reduce=... chose
    components: int | None = None  # pca: number of principal components
    variance: float | None = None  # pca: or share of the variance they explain; neither given: 0.95

    def __post_init__(self) -> None:
        for key in ("components", "variance"):
            found = getattr(self, key)
            check(
                self.name is ReduceName.pca or found is None,
                f"reduce.{key}",
                found,
                "null without reduce=pca",
            )
        if self.components is not None:
            whole("reduce.components", self.components, 1, 1_000_000)
            expected = "null where reduce.components is given: one of the two decides"
            check(self.variance is None, "reduce.variance", self.variance, expected)
        elif self.variance is not None:
            expected = "a share above 0 and below 1"
            check(0.0 < self.variance < 1.0, "reduce.variance", self.variance, expected)
        elif self.name is ReduceName.pca:
            self.variance = 0.95
