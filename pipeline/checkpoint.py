"""Checkpoints of a boosting run: files with a checksum in the run folder, and when to write one.

A checkpoint is the state of the fit between two rounds (see ``boosting/snapshot.py``) and what shows on resuming that
everything else is as it was: the settings, the images, the split, the versions. The two newest are kept: the older
one serves if the newer is damaged, and is deleted only once a third is whole on the disk.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline import archive, config, interrupts
from pipeline.errors import (
    ChangedError,
    ClusterError,
    DataError,
    LimitError,
    OutputError,
    PipelineError,
    ResumeError,
)
from pipeline.files import FULL, settle

FOLDER = "checkpoints"
FORMAT = "hogboost-checkpoint"
VERSION = 1
KEPT = 2
AGAIN = "no checkpoint was written yet: give the same command again"
_NAME = re.compile(r"round_(\d+)\.npz")
# What a run writes whole or not at all, see files.atomic; a kill leaves it under a name that only this program gives.
WHOLE = (
    *("config.yaml", "model.npz", "metrics.json", "predictions.csv", "duplicates.csv"),
    *("confusion_matrix.png", "cell_importance.png", "learning_curve.png"),
)
_HALF = re.compile(rf"\.(?:{'|'.join(map(re.escape, WHOLE))}|{_NAME.pattern})\.[a-z0-9_]+\.part")
# Settings that a resumed run may change: the model does not depend on them, or the images prove that it does not.
HARMLESS = frozenset(
    {
        *("run_dir", "resume", "plots", "chunk", "checkpoint.every", "checkpoint.rounds"),
        *("backend.name", "backend.threads", "backend.device"),  # the backend's name is compared by itself
        *("data.path", "data.workers", "data.max_rejected"),
        *(f"scale.{name}" for name in ("scheduler", "workers", "threads", "processes", "wait", "timeout")),
        *("scale.tls_ca", "scale.tls_cert", "scale.tls_key", "scale.store"),
    }
)

State = tuple[dict[str, np.ndarray], dict[str, Any]]


class Found(NamedTuple):
    """A checkpoint that was read."""

    path: Path
    fit: State  # what the classifier's fit goes on from
    content: State  # what the run added: see Keeper
    damaged: list[str]  # of newer ones, in a line each, why they were passed over


def harmless(key: str, scale: config.ScaleName) -> bool:
    """Return whether a setting may be another when a run goes on: the model does not depend on it.

    ``scale.memory_limit`` decides out of core how long the blocks are whose sums are added; Dask's workers may have
    more or less memory than those before them.
    """
    return key in HARMLESS or (key == "scale.memory_limit" and scale is config.ScaleName.dask)


def command(run_dir: str | Path) -> str:
    """Return the command line that resumes a run, ready for a shell."""
    return f"python -m pipeline train {shlex.quote(f'resume={run_dir}')}"


def listed(run_dir: str | Path) -> list[Path]:
    """Return the checkpoints of a run folder, the newest first."""
    folder = Path(run_dir) / FOLDER
    found = [(int(match[1]), path) for path in folder.glob("*.npz") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def write(path: Path, fit: State, content: State) -> None:
    """Write a checkpoint whole, or not at all.

    Raises
    ------
    OutputError
        If it cannot be written; others are as they were.
    """
    arrays = {f"fit.{name}": array for name, array in fit[0].items()}
    arrays |= {f"run.{name}": array for name, array in content[0].items()}
    archive.write(path, arrays, {"format": FORMAT, "version": VERSION, "fit": fit[1], "run": content[1]})


def newest(run_dir: str | Path) -> Found:
    """Return the newest checkpoint that is whole.

    Raises
    ------
    ResumeError
        If there is none, or one is of a newer version of this program.
    """
    damaged: list[str] = []
    for path in listed(run_dir):
        try:
            arrays, header = archive.read(path)
            if header["format"] != FORMAT:
                raise ValueError("it is no checkpoint")
        except archive.UNREADABLE as error:
            damaged.append(f"the checkpoint {path} is damaged ({archive.reason(error)})")
            continue
        if header["version"] > VERSION:
            raise ResumeError(
                f"{path} has checkpoint format {header['version']}, this program reads formats up to {VERSION}; "
                "update hogboost"
            )
        fit = _part(arrays, "fit."), header["fit"]
        return Found(path, fit, (_part(arrays, "run."), header["run"]), damaged)
    if damaged:
        raise ResumeError(f"{'; '.join(damaged)}; no other is left to go on from: train anew")
    raise ResumeError(nothing_yet(run_dir))


def nothing_yet(run_dir: str | Path) -> str:
    """Return what is told of a run without a checkpoint."""
    whole = Path(run_dir) / "model.npz"
    instead = f"its model {whole} is complete: evaluate it" if whole.exists() else "give its command again"
    return f"resume={run_dir}: no checkpoint exists yet, the run ended before its first; {instead}"


def _part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


class Keeper:
    """Whoever keeps a run from being lost: it writes checkpoints when they are due, and when a signal ends the run.

    Parameters
    ----------
    run_dir : str
    settings : config.Checkpoint
    found : Found, optional
        The checkpoint that the run goes on from.

    Attributes
    ----------
    content : callable returning a State
        What to add to every checkpoint about the run; called once, when the first is written.
    begun : bool
        Whether workers of a cluster are at work: before, giving up loses nothing that would have to be told.
    """

    def __init__(self, run_dir: str, settings: config.Checkpoint, found: Found | None = None) -> None:
        self.run_dir, self.settings, self.found = run_dir, settings, found
        self.content: Callable[[], State] = lambda: ({}, {})
        self.begun = False
        self._content: State | None = None
        self._kept = [] if found is None else [found.path]
        self._last = time.monotonic()
        self._n_rounds = 0

    @property
    def state(self) -> State | None:
        """The state that the fit goes on from."""
        return None if self.found is None else self.found.fit

    @property
    def done(self) -> int:
        """The rounds that the fit goes on after."""
        return 0 if self.found is None else self.found.fit[1]["rounds"]

    @property
    def on(self) -> bool:
        """Whether checkpoints are asked for at all."""
        return self.settings.every > 0.0 or self.settings.rounds is not None

    @contextmanager
    def watching(self, n_rounds: int) -> Iterator[None]:
        """Keep the fit inside the ``with`` block, of at most `n_rounds` rounds; a signal waits for its round's end."""
        self._n_rounds, self._last = n_rounds, time.monotonic()
        with interrupts.deferred() if self.on else contextlib.nullcontext():
            yield

    def __call__(self, rounds: int, take: Callable[[], State]) -> None:
        """Hear that `rounds` rounds are done; `take` gives the state. The classifier's ``fit`` calls this.

        Raises
        ------
        Stopped
            When a signal has come; a checkpoint is written before.
        OutputError
            When a checkpoint cannot be written.
        """
        if not self.on:
            return
        if self._due(rounds) or interrupts.pending() is not None:
            self._save(rounds, take())
        number = interrupts.pending()
        if number is not None:
            raise interrupts.Stopped(
                number, f"after round {rounds} of {self._n_rounds}; go on with: {command(self.run_dir)}"
            )

    def _due(self, rounds: int) -> bool:
        every, some = self.settings.every, self.settings.rounds
        if some is not None and rounds % some == 0:
            return True
        return every > 0.0 and time.monotonic() - self._last >= every

    def _save(self, rounds: int, fit: State) -> None:
        if self._content is None:
            self._content = self.content()
            settle(self.run_dir)  # a checkpoint on the disk is of no use in a folder that is not
        path = Path(self.run_dir) / FOLDER / f"round_{rounds:06d}.npz"
        write(path, fit, self._content)
        self._kept = [*(one for one in self._kept if one != path), path][-KEPT:]
        self._remove(set(listed(self.run_dir)) - set(self._kept))
        self._last = time.monotonic()

    @staticmethod
    def _remove(paths: set[Path]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def sweep(self) -> None:
        """Remove what a killed run left half-written, by its names; nobody else may be at work in the folder."""
        for folder in (Path(self.run_dir), Path(self.run_dir) / FOLDER):
            self._remove({path for path in folder.glob(".*.part") if _HALF.fullmatch(path.name)})

    def close(self) -> None:
        """Remove the checkpoints: the run is complete."""
        self._remove(set(listed(self.run_dir)))
        with contextlib.suppress(OSError):  # something of the user's lies there, or it never existed
            (Path(self.run_dir) / FOLDER).rmdir()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Add how to go on to whatever ends the block and is no fault of the program, if there is a checkpoint."""
        try:
            yield
        except interrupts.Stopped as error:
            if not error.advice:
                error.advice = f"; {self._way_on() if self._kept else AGAIN}"
            raise
        except (PipelineError, OSError) as error:
            told = self._told_with_way_on(error) if self._kept else self._told_without(error)
            if told is None:
                raise
            raise told from error

    def _told_without(self, error: Exception) -> PipelineError | None:
        """Return what to tell of an error where there is no checkpoint; None: the error itself."""
        if isinstance(error, ClusterError) and self.begun:
            return ClusterError(f"{error}; {AGAIN}")
        return None

    def _told_with_way_on(self, error: Exception) -> PipelineError | None:
        """Return an error with the way to go on; None if it says itself what to do."""
        way = self._way_on()
        told: PipelineError | None = None
        if isinstance(error, ChangedError):
            told = DataError(error.going_on(way))
        elif (
            isinstance(error, DataError) and self._n_rounds
        ):  # before any round images are told with a remedy
            told = DataError(f"{error}; mend that, then {way}")
        elif isinstance(error, OutputError):
            told = OutputError(f"{error}; mend that, then {way}")
        elif isinstance(error, LimitError) and self.found is not None:
            told = LimitError(f"{error} (a resumed run keeps its limit: train anew)")
        elif isinstance(error, ClusterError):
            told = ClusterError(f"{error}; then {way}")
        elif (
            isinstance(error, OSError) and error.errno in FULL
        ):  # a library's: this program's are OutputError
            told = OutputError(f"{error.filename or self.run_dir}: {error.strerror}; make room, then {way}")
        return told

    def _way_on(self) -> str:
        match = _NAME.fullmatch(self._kept[-1].name)
        assert match is not None
        return f"go on after round {int(match[1])} with: {command(self.run_dir)}"
