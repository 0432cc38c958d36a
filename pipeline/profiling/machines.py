"""What ``plan`` knows of machines: datasheet entries, and this machine measured on samples and kept.

Measuring itself is in :mod:`pipeline.profiling.measuring`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import config, processor
from pipeline.config import MachineKind
from pipeline.errors import ConfigError
from pipeline.files import atomic
from pipeline.profiling import samples
from pipeline.profiling.probes import StageModel
from pipeline.profiling.settings import leaves

FORMAT = 2  # of the file that keeps a measurement
NEEDED = {
    MachineKind.gpu: {
        "memory_gb": "the memory of the GPU in GB",
        "bandwidth_gb_s": "its memory bandwidth in GB/s",
        "fp32_tflops": "its float32 rate in TFLOP/s, without tensor cores",
        "fp64_tflops": "its float64 rate in TFLOP/s",
        "tensor_tflops": "its dense TF32 rate on tensor cores in TFLOP/s, 0 if it has none",
        "link_gb_s": "the rate from host to device in GB/s, one direction",
        "multiprocessors": "its number of streaming multiprocessors",
        "clock_ghz": "its highest clock in GHz",
        "year": "the year of the datasheet",
        "source": "the name of the datasheet",
    },
    MachineKind.cpu: {
        "memory_gb": "the memory of the machine in GB",
        "bandwidth_gb_s": "its memory bandwidth in GB/s: channels times their rate",
        "fp32_tflops": "its float32 rate in TFLOP/s: cores x clock x operations a cycle",
        "fp64_tflops": "its float64 rate in TFLOP/s",
        "cores": "its number of cores",
        "clock_ghz": "its highest clock in GHz",
        "year": "the year of the datasheet",
        "source": "the name of the datasheet",
    },
    MachineKind.this: {},
}


def require(machine: config.Machine, entry: str = "") -> None:
    """Refuse a machine that lacks a field which a forecast needs.

    Raises
    ------
    ConfigError
        Naming the field, the entry and what to add.
    """
    shown = machine.name or entry or "without a name"
    if not machine.name:
        raise ConfigError(
            "machine.name: the entry has no name; add a line 'name: ...' to its file in machine/, "
            "or give machine.name=..."
        )
    for name, meaning in NEEDED[machine.kind].items():
        if getattr(machine, name) in (None, ""):
            raise ConfigError(
                f"machine.{name}: the {machine.kind.name} entry '{shown}' lacks it; add a line '{name}: ...' with "
                f"{meaning} to its file in machine/, or give machine.{name}=..."
            )


@dataclass(frozen=True)
class Measured:
    """What one group of settings costs on this machine.

    Attributes
    ----------
    models : cost of each stage
    once : seconds that every process pays besides: start, imports, kernels, first calls
    cores : cores that each stage kept busy
    base_memory : most bytes resident in a run of next to no images
    memory : bytes of the machine
    processor, usable_cores, clock_ghz : of the machine (see :func:`clock`)
    classes, source, file_bytes_per_image : of the data
    images, rounds : of the measuring runs
    limits : this machine's own limits, as ``limits.Limits.as_dict()`` gives them
    created : date of the measurement
    components : principal components that the largest run kept, if it reduced
    """

    models: dict[str, StageModel]
    once: float
    cores: dict[str, float]
    base_memory: int
    memory: int
    processor: str
    usable_cores: int
    clock_ghz: float
    classes: int
    source: str
    file_bytes_per_image: float
    images: tuple[int, ...]
    rounds: tuple[int, ...]
    limits: dict[str, Any] = field(default_factory=dict)
    created: str = ""
    components: int | None = None

    def seconds(self, images: int, rounds: int) -> dict[str, float]:
        """Return the seconds of every stage of a ``train`` in a process of its own, "start" first."""
        found = {"start": self.once}
        for stage, model in self.models.items():
            found[stage] = found.get(stage, 0.0) + model.seconds(images, rounds)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Measured:
        """Return what :meth:`as_dict` gave."""
        models = {stage: StageModel(**model) for stage, model in values["models"].items()}
        lists = {name: tuple(values[name]) for name in ("images", "rounds")}
        return cls(**{**values, **lists, "models": models})


# ---- keeping measurements ----


def cache_folder() -> Path:
    """Return the user's cache folder of this program, by the rule of the platform."""
    given = os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given) / "hogboost"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hogboost"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "hogboost" / "Cache"
    return Path.home() / ".cache" / "hogboost"


def key_of(cfg: config.Train, sample: int, source: samples.Source) -> dict[str, Any]:
    """Return everything on which a measurement depends."""
    from pipeline.software import software

    settings = dict(leaves(cfg))
    for name in ("classifier.n_rounds", "run_dir", "data.n", "data.seed", "split.seed"):
        settings.pop(name)
    return {
        "format": FORMAT,
        "settings": settings,
        "sample": sample,
        "classes": source.classes,
        "set": 0 if source.kind == "synthetic" else (source.images, source.file_bytes),
        "software": software(),
        "machine": [
            platform.node(),
            platform.machine(),
            processor.name(platform.machine()),
            processor.usable_cores(),
        ],
    }


def _place(key: dict[str, Any]) -> Path:
    text = json.dumps(key, sort_keys=True).encode()
    return cache_folder() / "plan" / f"{hashlib.sha256(text).hexdigest()[:24]}.json"


def kept(key: dict[str, Any]) -> Measured | None:
    """Return the measurement kept under `key`; None if there is none that can be read."""
    try:
        content = json.loads(_place(key).read_text(encoding="utf-8"))
        return Measured.from_dict(content["measured"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, damaged or of another version: measure again


def keep(key: dict[str, Any], measured: Measured) -> Path:
    """Write a measurement to the user's cache folder; return the file."""
    path = _place(key)
    with atomic(path) as stream:
        json.dump({"key": key, "measured": measured.as_dict()}, stream, indent=1)
    return path


# ---- this machine ----


def memory() -> int:
    """Return the bytes of memory of the machine."""
    import psutil

    return int(psutil.virtual_memory().total)


def clock(product_one: float | None = None) -> float:
    """Return the clock of a core in GHz.

    Virtual machines tell the base clock, which their cores exceed. A matrix product on one core does 64, 32 or
    16 float32 operations a cycle, next to no fewer: the clock that follows counts if it lies above the one told.

    Parameters
    ----------
    product_one : float32 operations a second of a matrix product on one core, as measured
    """
    import psutil

    try:
        found = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):  # not told in some containers
        found = None
    told = max(found.max, found.current) / 1e3 if found is not None and found.current > 0 else 2.5
    follows = [(product_one or 0.0) / operations / 1e9 for operations in (64, 32, 16)]
    return max([told, *(value for value in follows if told < value < 1.8 * told)])
