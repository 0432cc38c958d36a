"""Every setting of every command, as plain dataclasses with defaults and range checks.

Hydra composes the YAML files of ``conf/`` over these schemas; ``cli.py`` turns the result into these
dataclasses once, and nothing below the command line sees anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from pipeline.errors import ConfigError
from pipeline.groups.choices import (
    BLOCK_NORMS,
    BackendName,
    Clip,
    DataName,
    Fit,
    FloatType,
    Learner,
    MachineKind,
    PreprocessName,
    ReduceName,
    ScaleName,
    Size,
)
from pipeline.groups.classifier import Classifier
from pipeline.groups.execution import Backend, Checkpoint, Machine, Scale
from pipeline.groups.images import Data, Hog, Image, Preprocess, Reduce, Split
from pipeline.groups.ranges import check, size_in_bytes, whole

__all__ = [
    "BLOCK_NORMS",
    "MISSING",
    "SCHEMAS",
    "Backend",
    "BackendName",
    "Benchmark",
    "Checkpoint",
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
    "Machine",
    "MachineKind",
    "Pack",
    "Plan",
    "Predict",
    "Preprocess",
    "PreprocessName",
    "Profile",
    "Reduce",
    "ReduceName",
    "Scale",
    "ScaleName",
    "Size",
    "Split",
    "Train",
    "TrainCommand",
    "keys",
    "register",
    "size_in_bytes",
]

HERE = Path(__file__).resolve().parent
CONF = next((folder for folder in (HERE / "conf", HERE.parent / "conf") if folder.is_dir()), HERE / "conf")
MISSING = "???"  # OmegaConf's mark for "must be given"


@dataclass
class Train:
    """A training: what ``train``, ``evaluate``, ``profile`` and ``plan`` have in common."""

    backend: Backend = field(default_factory=Backend)
    data: Data = field(default_factory=Data)
    image: Image = field(default_factory=Image)
    preprocess: Preprocess = field(default_factory=Preprocess)
    hog: Hog = field(default_factory=Hog)
    reduce: Reduce = field(default_factory=Reduce)
    classifier: Classifier = field(default_factory=Classifier)
    split: Split = field(default_factory=Split)
    scale: Scale = field(default_factory=Scale)
    run_dir: str = MISSING  # filled in by the command line
    plots: bool = True  # false: no PNG files
    chunk: int = 1024  # images in memory at a time, beside the features; fewer need less

    def __post_init__(self) -> None:
        whole("chunk", self.chunk, 1, 10_000_000)


@dataclass
class TrainCommand(Train):
    """``python -m pipeline train``: a training, and what is kept of one that is cut short."""

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    resume: str | None = None  # the run folder of a run that was cut short: it goes on


@dataclass
class Predict:
    """``python -m pipeline predict``; image size, preprocessing, HoG and reduction come from the model."""

    model: str = MISSING  # the model.npz of a train run
    out: str | None = None  # CSV file; null: predictions.csv in the run folder; scale=dask: a new folder
    format: str = "csv"  # scale=dask: csv or parquet, of the parts
    chunk: int = 1024  # images in memory at a time; fewer need less memory
    backend: Backend = field(default_factory=Backend)
    data: Data = field(default_factory=lambda: Data(name=DataName.auto))
    scale: Scale = field(default_factory=Scale)
    run_dir: str = MISSING

    def __post_init__(self) -> None:
        check(self.format in ("csv", "parquet"), "format", self.format, "csv or parquet")
        whole("chunk", self.chunk, 1, 10_000_000)


@dataclass
class Evaluate(Train):
    """``python -m pipeline evaluate``; with ``split.folds`` a cross-validation of these settings."""

    model: str | None = None  # a saved model.npz to score


@dataclass
class Profile(Train):
    """``python -m pipeline profile``: the settings of ``train``, and what to measure."""

    repeats: int = 3  # warm runs that are measured, after a first one
    compare: list[str] = field(default_factory=list)  # backends to run the same work: [reference,cpu,gpu]
    budget: float = 120.0  # seconds, about, for each of: the slow reference, a sweep, the search for advice
    sweep: list[str] = field(default_factory=list)  # threads, dtype, batch, images, size; one or [several]
    advice: bool = True  # look for what would shorten the run
    verify_advice: bool = False  # follow each piece of advice and measure it
    memory: str | None = None  # what advice takes the run to have, as in 8GB; null: all that is installed
    gpu: str = "l4"  # entry of the group machine: would such a GPU help?
    stacks: bool = False  # also sample Python's stacks (needs pyinstrument: the extra profile)

    def __post_init__(self) -> None:
        whole("repeats", self.repeats, 1, 1000)
        check(0.0 < self.budget <= 1e6, "budget", self.budget, "seconds above 0")
        enough = self.memory is None or (size_in_bytes(self.memory) or 0) >= 10**8
        check(enough, "memory", self.memory, "a size of at least 100MB, such as 800MB or 16GB, or null")


@dataclass
class Pack:
    """``python -m pipeline pack``."""

    out: str = MISSING  # the packed set to write, .npz
    data: Data = field(default_factory=lambda: Data(name=DataName.folder))
    image: Image = field(default_factory=Image)
    run_dir: str = MISSING


@dataclass
class Benchmark:
    """``python -m pipeline benchmark``."""

    suite: Any = "all"  # all, one or [several] of add_two, monte_carlo_pi, layout, filter, hog, wls
    size: Size = Size.full  # small: arrays that fit into any memory
    repeats: int = 5  # rounds of each suite, at most; fewer where seconds= ends
    seconds: float = 100.0  # that all suites together should take; there is one round at least
    threads: int = 0  # 0: every core this process may use
    device: int = 0  # number of the GPU
    seed: int = 0  # another seed, other numbers
    plots: bool = True  # false: no PNG file
    run_dir: str = MISSING

    def __post_init__(self) -> None:
        names = [self.suite] if isinstance(self.suite, str) else self.suite
        ok = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
        check(ok, "suite", self.suite, "a name, or names in brackets: suite=[hog,wls]")
        self.suite = names
        whole("repeats", self.repeats, 1, 1000)
        check(0.0 < self.seconds <= 1e6, "seconds", self.seconds, "above 0 and at most 1e6")
        check(0 <= self.threads <= 65_536, "threads", self.threads, "0 (every core) or a number of threads")
        check(0 <= self.device <= 1023, "device", self.device, "the number of a GPU, from 0")
        check(0 <= self.seed < 2**32, "seed", self.seed, "from 0 to 4294967295")


@dataclass
class Doctor:
    """``python -m pipeline doctor``."""

    backend: Backend = field(default_factory=Backend)
    run_dir: str = MISSING


@dataclass
class Plan(Train):
    """``python -m pipeline plan``: settings of ``train``, and the machine that would run them."""

    machine: Machine = field(default_factory=Machine)
    machines: list[str] = field(default_factory=list)  # entries of the group machine, compared in one table
    prices: dict[str, float] = field(default_factory=dict)  # of machines, for an hour: {l4: 0.8, this: 0.2}
    images: int | None = None  # number of images; null: data.n, or as many as data.path holds

    def __post_init__(self) -> None:
        check(
            self.images is None or 10 <= self.images <= 10**10,
            "images",
            self.images,
            "from 10 to 10000000000, or null",
        )
        for name, price in self.prices.items():
            check(0.0 <= price < 1e9, f"prices.{name}", price, "at least 0")
            known = [*self.machines, "this"] if self.machines else []
            check(name in known, "prices", name, f"among machines={self.machines}, or 'this'")
        priced = self.machines and self.machine.price_per_hour is not None
        check(
            not priced,
            "machine.price_per_hour",
            self.machine.price_per_hour,
            "left out with several machines, and each given its own: 'prices={"
            + ", ".join(f"{name}: 1.5" for name in self.machines)
            + "}'",
        )


SCHEMAS: dict[str, type] = {
    "train": TrainCommand,
    "predict": Predict,
    "evaluate": Evaluate,
    "profile": Profile,
    "pack": Pack,
    "plan": Plan,
    "benchmark": Benchmark,
    "doctor": Doctor,
}


def machine(name: str, setting: str = "machines") -> Machine:
    """Return the entry `name` of the group ``machine``; `setting` is what named it.

    Raises
    ------
    ConfigError
        If there is no such entry.
    """
    from omegaconf import OmegaConf

    path = CONF / "machine" / f"{name}.yaml"
    known = sorted(entry.stem for entry in path.parent.glob("*.yaml"))
    if name not in known:
        raise ConfigError(f"{setting}: no entry '{name}'; choose from: {', '.join(known)}")
    found: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Machine), OmegaConf.load(path)))
    return found


def keys(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the name of every setting of a schema; nested ones with dots, after the one they lie in."""
    for name, kind in get_type_hints(schema).items():
        yield prefix + name
        if isinstance(kind, type) and is_dataclass(kind):
            yield from keys(kind, f"{prefix}{name}.")


def register(*names: str) -> None:
    """Tell Hydra the schemas of the commands `names` (none: all), under the names that ``conf/COMMAND.yaml`` lists."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for name in names or SCHEMAS:
        store.store(name=f"{name}_schema", node=SCHEMAS[name])
