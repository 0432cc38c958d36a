"""One measured training run, as the parts of a profile pass it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline import config
from pipeline.profiling.record import Recording
from pipeline.profiling.work import Work


@dataclass(frozen=True)
class Run:
    """A training run and what it took.

    Attributes
    ----------
    settings : of the run
    seconds : wall seconds of each stage (see ``record.Recording.rows``), and their sum under "all"
    recording : everything measured; None for a run without listeners
    work : what was to be done
    trained : ``commands.results.Trained``: model, scores, images, features
    """

    settings: config.Train
    seconds: dict[str, float]
    recording: Recording | None
    work: Work
    trained: Any


# runner(settings) trains once in this process, quietly, and returns what it took. The second call with the same
# settings is warm: compiled kernels are loaded, modules imported, files in the page cache.
Runner = Callable[[config.Train], Run]
