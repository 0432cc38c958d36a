"""Every setting of every command, as plain dataclasses with defaults and range checks.

Hydra composes the YAML files of ``conf/`` over these schemas; ``cli.py`` turns the result into these
dataclasses once, and nothing below the command line sees anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import get_type_hints

from pipeline.groups import (
    BLOCK_NORMS,
    Backend,
    BackendName,
    Classifier,
    Clip,
    Data,
    DataName,
    Fit,
    FloatType,
    Hog,
    Image,
    Learner,
    Preprocess,
    PreprocessName,
    Reduce,
    ReduceName,
    Split,
    whole,
)

__all__ = [
    "BLOCK_NORMS",
    "MISSING",
    "SCHEMAS",
    "Backend",
    "BackendName",
    "Classifier",
    "Clip",
    "Data",
    "DataName",
    "Doctor",
    "Evaluate",
    "Fit",
    "FloatType",
    "Hog",
    "Image",
    "Learner",
    "Pack",
    "Predict",
    "Preprocess",
    "PreprocessName",
    "Reduce",
    "ReduceName",
    "Split",
    "Train",
    "keys",
    "register",
]

MISSING = "???"  # OmegaConf's mark for "must be given"


@dataclass
class Train:
    """``python -m pipeline train``."""

    backend: Backend = field(default_factory=Backend)
    data: Data = field(default_factory=Data)
    image: Image = field(default_factory=Image)
    preprocess: Preprocess = field(default_factory=Preprocess)
    hog: Hog = field(default_factory=Hog)
    reduce: Reduce = field(default_factory=Reduce)
    classifier: Classifier = field(default_factory=Classifier)
    split: Split = field(default_factory=Split)
    run_dir: str = MISSING  # filled in by the command line
    plots: bool = True  # false: no PNG files


@dataclass
class Predict:
    """``python -m pipeline predict``; image size, preprocessing, HoG and reduction come from the model."""

    model: str = MISSING  # the model.npz of a train run
    out: str | None = None  # CSV file to write; null: predictions.csv in the run folder
    chunk: int = 1024  # images in memory at a time; fewer need less memory
    backend: Backend = field(default_factory=Backend)
    data: Data = field(default_factory=lambda: Data(name=DataName.auto))
    run_dir: str = MISSING

    def __post_init__(self) -> None:
        whole("chunk", self.chunk, 1, 10_000_000)


@dataclass
class Evaluate(Train):
    """``python -m pipeline evaluate``; with ``split.folds`` a cross-validation of these settings."""

    model: str | None = None  # a saved model.npz to score


@dataclass
class Pack:
    """``python -m pipeline pack``."""

    out: str = MISSING  # the packed set to write, .npz
    data: Data = field(default_factory=lambda: Data(name=DataName.folder))
    image: Image = field(default_factory=Image)
    run_dir: str = MISSING


@dataclass
class Doctor:
    """``python -m pipeline doctor``."""

    backend: Backend = field(default_factory=Backend)
    run_dir: str = MISSING


SCHEMAS: dict[str, type] = {
    "train": Train,
    "predict": Predict,
    "evaluate": Evaluate,
    "pack": Pack,
    "doctor": Doctor,
}


def keys(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the name of every setting of a schema; nested ones with dots, after the one they lie in."""
    for name, kind in get_type_hints(schema).items():
        yield prefix + name
        if isinstance(kind, type) and is_dataclass(kind):
            yield from keys(kind, f"{prefix}{name}.")


def register() -> None:
    """Tell Hydra the schemas, under the names that ``conf/COMMAND.yaml`` lists in its defaults."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for name, schema in SCHEMAS.items():
        store.store(name=f"{name}_schema", node=schema)
