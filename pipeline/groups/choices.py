"""The settings that are one word out of a few."""

from __future__ import annotations

from enum import Enum

BLOCK_NORMS = ("L1", "L1-sqrt", "L2", "L2-Hys")  # strings, not an Enum: "L2-Hys" is no Python name


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


class MachineKind(Enum):
    """What a machine of ``plan`` is: the one at work, or a datasheet of a GPU or of a processor."""

    this = "this"
    gpu = "gpu"
    cpu = "cpu"
