"""The groups of settings (``data``, ``hog``, ``classifier``, ...) as dataclasses with range checks.

The comment behind a field is what ``--help`` says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

BLOCK_NORMS = ("L1", "L1-sqrt", "L2", "L2-Hys")  # strings, not an Enum: "L2-Hys" is no Python name


def check(ok: bool, setting: str, found: object, expected: str) -> None:
    """Raise a ValueError that names the setting, unless `ok`; the command line tells it in one line."""
    if not ok:
        raise ValueError(f"{setting} must be {expected}, not {found!r}")


def whole(setting: str, found: int, low: int, high: int) -> None:
    """Check a whole number against its bounds."""
    check(found >= low, setting, found, f"at least {low}")
    check(found <= high, setting, found, f"at most {high:,}")


class BackendName(Enum):
    """The folder under ``pipeline/backends`` that does the numerical work; ``auto``: gpu if usable, else cpu."""

    reference = "reference"
    cpu = "cpu"
    gpu = "gpu"
    auto = "auto"


class DataName(Enum):
    """Where images come from; ``auto`` looks at ``data.path``."""

    auto = "auto"
    digits = "digits"
    folder = "folder"
    packed = "packed"
    synthetic = "synthetic"


class Size(Enum):
    """How large the work of a benchmark is."""

    small = "small"
    full = "full"


class Fit(Enum):
    """How a picture of another size is brought to ``image.height`` x ``image.width``."""

    stretch = "stretch"
    pad = "pad"


class PreprocessName(Enum):
    """The preprocessing step: a scikit-image function of the same meaning."""

    none = "none"
    stretch = "stretch"
    gaussian = "gaussian"
    equalize = "equalize"
    clahe = "clahe"


class ReduceName(Enum):
    """What stands between HoG and the classifier."""

    none = "none"
    pca = "pca"


class ScaleName(Enum):
    """Where the images lie: ``local`` in memory, ``outofcore`` in chunks on disk, ``dask`` with other processes."""

    local = "local"
    outofcore = "outofcore"
    dask = "dask"


class Learner(Enum):
    """The weighted-least-squares learner fitted in each boosting round."""

    full = "full"
    ridge = "ridge"
    componentwise = "componentwise"
    subspace = "subspace"
    random_features = "random_features"


class FloatType(Enum):
    """Precision of features and of the boosting sums."""

    float32 = "float32"
    float64 = "float64"


class Clip(Enum):
    """What happens to the weight where the working response is clipped."""

    gradient = "gradient"
    paper = "paper"


@dataclass
class Backend:
    """Group ``backend``."""

    name: BackendName = BackendName.cpu
    threads: int = 0  # 0: every core this process may use
    device: int = 0  # gpu: number of the GPU

    def __post_init__(self) -> None:
        check(0 <= self.device <= 1023, "backend.device", self.device, "the number of a GPU, from 0")
        check(
            0 <= self.threads <= 65_536,
            "backend.threads",
            self.threads,
            "0 (every core) or a number of threads up to 65,536",
        )


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


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30}


def size_in_bytes(text: str) -> int | None:
    """Return the bytes that a size such as "1.5GB" or "800 MB" says; None if it says none."""
    number = text.rstrip("BkMGTib").strip()
    unit = text[len(text.rstrip("BkMGTib")) :] or "B"
    try:
        value = float(number)
    except ValueError:
        return None
    return int(value * UNITS[unit]) if unit in UNITS and 0.0 < value < 1e15 else None


@dataclass
class Scale:
    """Group ``scale``: how far the work goes beyond the memory of one process, or beyond one machine."""

    name: ScaleName = ScaleName.local  # what scale=... chose
    store: str | None = None  # outofcore: folder for the chunks; null: in the run folder, removed at the end
    memory_limit: str | None = "2GB"  # outofcore: of this process; dask: of a worker, null: its share
    partitions: int | None = 1  # parts whose sums are added; dask: null: from the workers' memory
    scheduler: str | None = None  # dask: tcp://host:8786 or tls://host:8786; null: workers on this machine
    workers: int = 0  # dask: processes, 0: one per core or GPU; with scheduler: how many to wait for, 0: any
    threads: int = 1  # dask without scheduler: threads of each worker
    processes: bool = True  # dask without scheduler: false: workers are threads of this process, for tests
    wait: float = 60.0  # dask: seconds to wait for the scheduler to answer, and for a worker to come
    timeout: float = 3600.0  # dask: seconds without any answer after which the run stops
    tls_ca: str | None = None  # dask: file of the certificate authority, for tls://
    tls_cert: str | None = None  # dask: file of this program's certificate
    tls_key: str | None = None  # dask: file of its key

    def __post_init__(self) -> None:
        free = self.memory_limit is None and self.name is not ScaleName.outofcore
        found = None if self.memory_limit is None else size_in_bytes(self.memory_limit)
        check(
            free or (found is not None and found >= 10**8),
            "scale.memory_limit",
            self.memory_limit,
            "a size of at least 100MB, such as 800MB or 4GB",
        )
        if self.partitions is not None:
            whole("scale.partitions", self.partitions, 1, 100_000)
        whole("scale.workers", self.workers, 0, 100_000)
        whole("scale.threads", self.threads, 1, 65_536)
        check(0.1 <= self.wait <= 1e6, "scale.wait", self.wait, "seconds, at least 0.1")
        check(1.0 <= self.timeout <= 1e7, "scale.timeout", self.timeout, "seconds, at least 1")


@dataclass
class Checkpoint:
    """Section ``checkpoint``: what a run of ``train`` that is cut short leaves behind to go on from."""

    every: float = 60.0  # seconds of boosting between two checkpoints; 0: none by the clock
    rounds: int | None = None  # write one after every so many rounds, too

    def __post_init__(self) -> None:
        check(0.0 <= self.every <= 1e9, "checkpoint.every", self.every, "0 (off) or a number of seconds")
        check(
            self.rounds is None or self.rounds >= 1, "checkpoint.rounds", self.rounds, "at least 1, or null"
        )


@dataclass
class Preprocess:
    """Group ``preprocess``: one scikit-image function on the uniform batch, or none."""

    name: PreprocessName = PreprocessName.none
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

    name: ReduceName = ReduceName.none
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


@dataclass
class Classifier:
    """Group ``classifier``: the parameters of ``LogitBoostClassifier``."""

    learner: Learner = Learner.subspace  # what is fitted in each round
    n_rounds: int = 100  # boosting rounds
    learning_rate: float = 0.3  # share of each fit that is added
    z_max: float = 3.0  # largest working response
    clip: Clip = Clip.gradient  # weight where the response is cut: keep the gradient, or as in the paper
    l2: float = 1.0  # ridge penalty
    subspace_size: int = 128  # subspace: random features of a round
    n_components: int = 512  # random_features: cosines of a round
    gamma: list[float] = field(default_factory=lambda: [0.1, 0.1])  # random_features: kernel widths
    trim: float = 0.0  # share of the total weight whose lightest images a round may skip
    early_stopping: bool = False  # stop when the loss on watched images (split.validation) no longer falls
    patience: int = 10  # early_stopping: rounds without improvement
    class_weight: str | None = None  # balanced: each class counts the same
    dtype: FloatType = FloatType.float32  # precision of the boosting sums
    random_state: int = 0  # seed of everything random in boosting
    gram_precision: str = "full"  # gpu with float32: "tf32" builds the Gram matrices on tensor cores

    def __post_init__(self) -> None:
        check(
            self.gram_precision in ("full", "tf32"),
            "classifier.gram_precision",
            self.gram_precision,
            "full or tf32",
        )
        whole("classifier.n_rounds", self.n_rounds, 1, 1_000_000)
        check(
            0.0 < self.learning_rate <= 1.0,
            "classifier.learning_rate",
            self.learning_rate,
            "above 0 and at most 1",
        )
        check(0.0 < self.z_max <= 1e6, "classifier.z_max", self.z_max, "above 0 and at most 1e6")
        check(0.0 <= self.l2 <= 1e12, "classifier.l2", self.l2, "from 0 to 1e12")
        whole("classifier.subspace_size", self.subspace_size, 1, 65_536)
        whole("classifier.n_components", self.n_components, 1, 65_536)
        ok = len(self.gamma) == 2 and 0.0 < self.gamma[0] <= self.gamma[1] <= 1e6
        check(
            ok,
            "classifier.gamma",
            self.gamma,
            "two numbers above 0 and at most 1e6: [smallest, largest] width",
        )
        check(0.0 <= self.trim <= 0.999, "classifier.trim", self.trim, "from 0 to 0.999")
        whole("classifier.patience", self.patience, 1, 1_000_000)
        check(
            self.class_weight in (None, "balanced"),
            "classifier.class_weight",
            self.class_weight,
            "null or balanced",
        )
        check(
            0 <= self.random_state < 2**32,
            "classifier.random_state",
            self.random_state,
            "from 0 to 4294967295",
        )


class MachineKind(Enum):
    """What a machine of ``plan`` is: the one at work, or a datasheet of a GPU or of a processor."""

    this = "this"
    gpu = "gpu"
    cpu = "cpu"


@dataclass
class Machine:
    """Group ``machine``: a machine of ``plan``. Rates are peaks of the datasheet, 1e9 and 1e12 a second."""

    name: str = ""  # of the entry, as a person calls the machine
    kind: MachineKind = MachineKind.this  # this: measured here; gpu, cpu: from a datasheet, a forecast
    memory_gb: float | None = (
        None  # 1e9 bytes, of the GPU or the processor's machine; this: null: what is installed
    )
    bandwidth_gb_s: float | None = None  # of that memory
    fp32_tflops: float | None = None  # float32, without tensor cores
    fp64_tflops: float | None = None  # float64
    tensor_tflops: float | None = None  # gpu: TF32 on tensor cores, dense; 0: it has none
    link_gb_s: float | None = None  # gpu: host to device, one direction
    multiprocessors: int | None = None  # gpu: streaming multiprocessors
    cores: int | None = None  # cpu: cores that count (not the efficiency cores)
    clock_ghz: float | None = None  # highest clock of the datasheet
    power_watts: float | None = None  # of the board or the processor at full load
    year: int | None = None  # of the datasheet
    source: str = ""  # whose datasheet
    host_memory_gb: float | None = None  # gpu: memory of the machine around it; null: as here
    price_per_hour: float | None = None  # what an hour costs, in any currency
    sample: int = 6_000  # this: images of the largest measuring run
    refresh: bool = False  # this: measure again, although a measurement of these settings is kept

    def __post_init__(self) -> None:
        whole("machine.sample", self.sample, 100, 1_000_000)
        for name in POSITIVE:
            value = getattr(self, name)
            check(value is None or 0.0 < value < 1e9, f"machine.{name}", value, "above 0")
        if self.year is not None:
            whole("machine.year", self.year, *YEARS)
        for name in ("tensor_tflops", "price_per_hour"):
            value = getattr(self, name)
            check(value is None or 0.0 <= value < 1e9, f"machine.{name}", value, "at least 0")


YEARS = 1990, 2100  # of a datasheet
POSITIVE = (
    *("memory_gb", "bandwidth_gb_s", "fp32_tflops", "fp64_tflops", "link_gb_s", "multiprocessors"),
    *("cores", "clock_ghz", "power_watts", "host_memory_gb"),
)
