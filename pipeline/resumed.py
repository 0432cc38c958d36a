"""``train resume=FOLDER`` on the command line: may the run in the folder go on, and with which settings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import checkpoint, config
from pipeline.errors import ConfigError, OutputError, ResumeError
from pipeline.files import expanded, occupied
from pipeline.messages import one_line
from pipeline.overrides import groups_of

FINISHED = "metrics.json"  # what train writes last


def folder(name: str, overrides: Sequence[str]) -> Path | None:
    """Return the run folder that the word ``resume=`` of a command line names, or None."""
    words = [override.lstrip("+") for override in overrides if override.lstrip("+").startswith("resume=")]
    if name != "train" or not words or words[-1] == "resume=null":
        return None
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(words[-1]).value()
    if not str(value).strip():
        raise ConfigError("resume= needs a folder: resume=runs/train/...")
    return expanded(str(value))


def prepared(run_dir: Path, given: Collection[str], sweep: bool) -> list[str]:
    """Return the words that let Hydra work in the run folder, after looking whether the run can go on.

    Raises
    ------
    ConfigError
        If the words of the command line do not go with ``resume=``.
    OutputError
        If the folder cannot be written, or another run is at work in it.
    ResumeError
        If it holds no run, a finished one, or one without a checkpoint.
    """
    if sweep:
        raise ConfigError("resume= goes on with one run; leave --multirun out")
    if "hydra.run.dir" in given:
        raise ConfigError(f"a resumed run stays in its folder {run_dir}; leave hydra.run.dir= out")
    _check_folder(run_dir)
    try:
        with tempfile.TemporaryFile(dir=run_dir):
            pass
    except OSError as error:
        raise OutputError(
            f"resume={run_dir}: the folder cannot be written ({error.strerror or error}); "
            "resume a copy of it that you may write"
        ) from error
    with occupied(run_dir):
        if not checkpoint.listed(run_dir):
            raise ResumeError(checkpoint.nothing_yet(run_dir))
    place = str(run_dir.absolute()).replace("\\'", "\\\\'").replace("'", "\\'")
    return [f"hydra.run.dir='{place}'", "hydra.output_subdir=null"]


def _check_folder(run_dir: Path) -> None:
    where = f"resume={run_dir}"
    if not run_dir.exists():
        raise ResumeError(
            f"{where}: no such folder; give the run folder of a train run: resume=runs/train/..."
        )
    if not run_dir.is_dir():
        raise ResumeError(f"{where}: a file, not a folder; give the run folder that it lies in")
    if not (run_dir / "config.yaml").is_file():
        raise ResumeError(
            f"{where}: holds no config.yaml, so it is no run folder of train; give one, or train anew"
        )
    if (run_dir / FINISHED).exists():
        raise ResumeError(f"{where}: this run is finished; its model is {run_dir / 'model.npz'}")


def settings(cfg: Any, overrides: Sequence[str]) -> Any:
    """Return the settings of the run folder, with what the command line may change.

    Parameters
    ----------
    cfg : DictConfig
        The settings that Hydra composed; ``run_dir`` and ``resume`` are of the run that goes on.
    overrides : sequence of str
        What was given.

    Raises
    ------
    ConfigError
        If an override would change the model.
    ResumeError
        If config.yaml of the run folder cannot be read.
    """
    from omegaconf import OmegaConf

    path = Path(cfg.run_dir) / "config.yaml"
    found = _read(path)
    harmless = partial(checkpoint.harmless, scale=found.scale.name)
    for key in _touched(overrides, harmless):
        asked, then = OmegaConf.select(cfg, key), OmegaConf.select(found, key)
        if asked == then:
            continue
        if not harmless(key):
            raise ConfigError(
                f"{key}={_shown(asked)} would change the model: the run to resume has {key}={_shown(then)} ({path}); "
                "leave it out"
            )
        OmegaConf.update(found, key, asked)
    OmegaConf.update(found, "run_dir", cfg.run_dir)
    OmegaConf.update(found, "resume", cfg.resume)
    return found


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    return "null" if value is None else str(value)


def _read(path: Path) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.merge(OmegaConf.structured(config.TrainCommand), OmegaConf.load(path))
    except (OmegaConfBaseException, YAMLError, OSError, ValueError, TypeError) as error:
        raise ResumeError(f"{path} holds no settings of train: {one_line(error)[:200]}") from None


def _touched(overrides: Sequence[str], harmless: Callable[[str], bool]) -> list[str]:
    """Return the settings that the command line gave, one by one or as an option of a group."""
    groups, known = groups_of("train"), list(config.keys(config.TrainCommand))
    touched: list[str] = []
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key == "experiment" and value != "null":
            raise ConfigError(f"{override} is a bundle of settings: a resumed run has its own; leave it out")
        if key in groups:
            inside = [one for one in known if one.startswith(f"{key}.")]
            touched += [one for one in inside if not harmless(one) or one == "backend.name"]
        elif key in known:
            touched.append(key)
    return touched
