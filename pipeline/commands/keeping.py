"""Checkpoints of ``train``: what they hold about the run, and what must be the same for a run to go on."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import checkpoint, config, datasets
from pipeline.checkpoint import Keeper, State
from pipeline.commands import steps
from pipeline.errors import ConfigError, ResumeError
from pipeline.files import expanded
from pipeline.processor import usable_cores
from pipeline.profiling.settings import leaves
from pipeline.reporting import tables
from pipeline.scale.known import columns
from pipeline.software import software

log = logging.getLogger(__name__)


def keeper(cfg: config.Train) -> tuple[Keeper | None, config.Train]:
    """Return who keeps this run from being lost, and the settings; with ``resume`` those of the run that goes on.

    Raises
    ------
    ResumeError
        If there is no checkpoint, or config.yaml is not as it was when it was written.
    ConfigError
        If another backend is asked for.
    """
    if not isinstance(cfg, config.TrainCommand):
        return None, cfg
    if cfg.resume is None:
        begun = Keeper(cfg.run_dir, cfg.checkpoint)
        begun.sweep()  # a run that was killed here before its first checkpoint left half of one
        return begun, cfg
    found = checkpoint.newest(cfg.run_dir)
    header = found.content[1]
    _check_settings(cfg, header["settings"], found.path)
    for line in found.damaged:
        _say(f"{line}; the older one is used")
    _say(f"resuming after round {found.fit[1]['rounds']} of {cfg.classifier.n_rounds}, from {found.path}")
    _compare_versions(header["software"])
    asked = cfg.backend.name.name
    if asked not in ("auto", header["backend"]):
        raise ConfigError(
            f"backend={asked}, but the run to resume works with {header['backend']}, and other backends round "
            f"differently; leave it out, or give backend={header['backend']}"
        )
    backend = dataclasses.replace(cfg.backend, name=config.BackendName[header["backend"]])
    _compare_threads(cfg, header)
    kept = Keeper(cfg.run_dir, cfg.checkpoint, found)
    kept.sweep()
    return kept, dataclasses.replace(cfg, backend=backend)


def whereabouts(kept: Keeper | None, data: config.Data) -> config.Data:
    """Return the settings by which to read the images: a relative path is one from where the run began."""
    if kept is None or kept.found is None:
        return data
    header = kept.found.content[1]
    return dataclasses.replace(data, path=header["place"]) if data.path == header["path"] else data


def stamps(kept: Keeper | None) -> datasets.Stamps | None:
    """Return what the images were when the run began, if it is one that goes on."""
    if kept is None or kept.found is None:
        return None
    arrays = kept.found.content[0]
    return datasets.Stamps.from_arrays(
        {name.removeprefix("data."): array for name, array in arrays.items() if name.startswith("data.")}
    )


def content(
    cfg: config.Train,
    place: str | None,
    backend: str,
    known: datasets.Stamps,
    parts: list[np.ndarray],
    partitions: int | None = None,
) -> State:
    """Return what a checkpoint holds about the run.

    `place` is where the images were read from, `parts` are their numbers: to fit, to watch, to hold out; `partitions`
    is in how many parts their sums were added, if the run itself found that number.
    """
    arrays = {f"data.{name}": array for name, array in known.arrays().items()}
    header = {
        "settings": settings(cfg),
        "path": cfg.data.path,
        "place": str(expanded(place).absolute()) if place else None,
        "backend": backend,
        "split": _digest(parts),
        "software": software(),
        "threads": _threads(cfg),
        "partitions": partitions,
    }
    return arrays, header


def add(kept: Keeper | None, **more: Any) -> None:
    """Let checkpoints hold more about the run, which it found out by itself: see :func:`noted`."""
    if kept is None:
        return
    before = kept.content

    def content() -> State:
        arrays, header = before()
        return arrays, {**header, **more}

    kept.content = content


def noted(kept: Keeper | None, name: str) -> Any:
    """Return what :func:`add` was told when the run began, if it is one that goes on; else None."""
    return None if kept is None or kept.found is None else kept.found.content[1].get(name)


def partitions(kept: Keeper | None) -> int | None:
    """Return in how many parts the run that goes on had its sums added, so that they are added alike."""
    found: int | None = noted(kept, "partitions")
    return found


def check_split(kept: Keeper, parts: list[np.ndarray]) -> None:
    """Raise ResumeError unless the images were divided as when the run began."""
    if kept.found is not None and kept.found.content[1]["split"] != _digest(parts):
        raise ResumeError(
            f"{kept.found.path}: the images are divided otherwise than when the run began, by another version of a "
            "library; resume it with the versions that began it, or train anew"
        )


def settings(cfg: config.Train) -> dict[str, Any]:
    """Return the settings on which a model depends, by their names."""
    return {key: value for key, value in leaves(cfg) if not checkpoint.harmless(key, cfg.scale.name)}


def _check_settings(cfg: config.Train, then: dict[str, Any], path: Path) -> None:
    now = settings(cfg)
    for key in {**then, **now}:
        if then.get(key) != now.get(key) and not checkpoint.harmless(key, cfg.scale.name):
            raise ResumeError(
                f"{path} was written with {key}={then.get(key)}, but config.yaml of the run folder says "
                f"{key}={now.get(key)}; set it right there"
            )


def _compare_versions(then: dict[str, str]) -> None:
    changed = [
        f"{name} {then.get(name)} -> {now}" for name, now in software().items() if then.get(name) != now
    ]
    if changed:
        _say(
            f"other versions than the run began with ({', '.join(changed)}): the model may differ in its last digits"
        )


def _threads(cfg: config.Train) -> int:
    return cfg.backend.threads or usable_cores()


def _compare_threads(cfg: config.Train, header: dict[str, Any]) -> None:
    """Tell of another number of threads, if the model depends on it."""
    then, now = header.get("threads"), _threads(cfg)
    if then not in (None, now) and _by_threads(cfg, header["backend"]):
        _say(
            f"backend.threads={now}, {then} when the run began: the model may differ in its last digits; "
            f"backend.threads={then} gives the same bits"
        )


def _by_threads(cfg: config.Train, backend: str) -> bool:
    """Return whether bits depend on the number of threads: large factorisations and components do."""
    if backend != "cpu":
        return backend == "reference"
    from pipeline.backends.cpu.wls import SMALL_SYSTEM

    learner, p = cfg.classifier.learner.name, steps.check_layout(cfg.hog, cfg.image).n_features
    large = learner != "componentwise" and columns(cfg, p) > SMALL_SYSTEM
    return large or cfg.reduce.name is not config.ReduceName.none


def _digest(parts: list[np.ndarray]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{len(part)} ".encode() + np.asarray(part, dtype=np.int64).tobytes())
    return digest.hexdigest()


def _say(line: str) -> None:
    log.info(line)
    tables.say(f"  {line}")
