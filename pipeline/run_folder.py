"""The folder of a run on the command line: refused where it is another's, and filled only once it is this one's.

Hydra writes its notes (``.hydra/``) before it calls the command, and so into the folder of a run that is at work there.
They are written here instead, when the folder is locked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pipeline.errors import OutputError
from pipeline.files import occupied, written

_SUBDIR = "hydra.output_subdir"
_NO_NOTES = f"{_SUBDIR}=null"


def refuse_used(folder: Path, kept: bool) -> None:
    """Refuse a run folder that holds a model or checkpoints: its files belong to the run that wrote them.

    Parameters
    ----------
    folder : as given
    kept : whether this process keeps the folder already; else checkpoints may be those of a run that is at work

    Raises
    ------
    OutputError
    """
    from pipeline import checkpoint

    if (folder / "model.npz").exists():
        raise OutputError(
            f"the run folder {folder} already holds model.npz of another run, which this one would overwrite; "
            "give another hydra.run.dir=..., leave it out, or move that folder"
        )
    if checkpoint.listed(folder):
        with nullcontext() if kept else occupied(folder):
            raise OutputError(
                f"the run folder {folder} holds checkpoints of a run that was cut short; go on with it: "
                f"{checkpoint.command(folder)}, or give another hydra.run.dir=..."
            )


def taken_over(name: str, overrides: Sequence[str]) -> tuple[list[str], str | None]:
    """Return words by which Hydra writes no notes, and the sub-folder for them; None for no notes."""
    words = [word for word in overrides if word.startswith(f"{_SUBDIR}=")]
    others = [word for word in overrides if word not in words]
    asked = words[-1].partition("=")[2].strip("'\"") if words else ".hydra"
    notes = None if asked in ("", "null") or name == "doctor" else asked
    return [*others, _NO_NOTES], notes


def write_notes(cfg: Any, place: Path) -> None:
    """Write what Hydra would have written: the settings as they were composed, its own, and the words given."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, read_write

    own: Any = copy.deepcopy(HydraConfig.instance().cfg)
    with read_write(own.hydra):  # as if it had not been told to write nothing
        own.hydra.output_subdir = place.name
        own.hydra.overrides.hydra = [word for word in own.hydra.overrides.hydra if word != _NO_NOTES]
    with written(place):
        place.mkdir(parents=True, exist_ok=True)
    notes = {"config": cfg, "hydra": own, "overrides": own.hydra.overrides.task}
    for name, content in notes.items():
        path = place / f"{name}.yaml"
        with written(path):
            path.write_text(OmegaConf.to_yaml(content), encoding="utf-8")


def sweep_kept(overrides: Sequence[str]) -> AbstractContextManager[None]:
    """Return a context that keeps the folder of a sweep: Hydra writes ``multirun.yaml`` there before any job.

    Only a folder that was there before can be another's, and only one that the user named. Jobs have theirs within,
    unless told otherwise; then they find out themselves.
    """
    given = dict(word.lstrip("+").partition("=")[::2] for word in overrides)
    folder = Path(given.get("hydra.sweep.dir", "$").strip("'\""))
    if "$" in str(folder) or "hydra.sweep.subdir" in given or not folder.is_dir():
        return nullcontext()
    return occupied(folder, "give another hydra.sweep.dir=...")
