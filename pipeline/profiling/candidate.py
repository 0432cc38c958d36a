"""What might be tried, and what is known of the measured run when it is looked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline import config
from pipeline.profiling.report import label
from pipeline.profiling.work import PROGRAM, Work

LEARNING = ("boost", "expand", "evaluate")
AFTER_PIXELS = ("hog", *LEARNING)


@dataclass(frozen=True)
class Candidate:
    """A change of settings that may pay.

    Attributes
    ----------
    title, override : what to do, for a person and exactly as typed
    changes : beginnings of the keys of the stages that it can change
    most : largest share of these stages that it can save
    why : the measured figures that speak for it
    caveat : what it changes besides the time
    method : how it is predicted: "run" (short runs with it), "rounds" (fewer of the rounds measured), "packed"
        (reading a packed set), "patience" (short runs with it, as many rounds as patience would leave)
    rounds : rounds that it would run, if they follow from the measured run
    memory : bytes that the run would have resident at most; None: as now
    needed : whether it is about memory, whatever it gains or costs in seconds
    """

    title: str
    override: str
    changes: tuple[str, ...]
    most: float
    why: str
    caveat: str | None = None
    method: str = "run"
    rounds: int | None = None
    memory: float | None = None
    needed: bool = False

    def concerns(self, stage: str) -> bool:
        """Tell whether it can change a stage."""
        return any(stage == key or stage.startswith(f"{key}/") for key in self.changes)

    def bound(self, seconds: Mapping[str, float]) -> float:
        """Return the most seconds that it can save."""
        return self.most * sum(t for stage, t in seconds.items() if stage != "all" and self.concerns(stage))


@dataclass(frozen=True)
class Measured:
    """The measured run, as the candidates need it.

    Attributes
    ----------
    cfg : settings
    work : what was done
    seconds : median of each stage, and "all"
    cores : that this process may use
    losses : log-loss on the held-out images after each round
    peak : bytes resident at most in the run; 0: unknown
    base : bytes resident before it
    memory : bytes of the machine
    """

    cfg: config.Train
    work: Work
    seconds: Mapping[str, float]
    cores: int
    losses: list[float]
    peak: int = 0
    base: int = PROGRAM
    memory: float = math.inf

    def of(self, *keys: str) -> float:
        """Return the seconds of these stages and those inside them."""
        return sum(
            t for s, t in self.seconds.items() if s in keys or s.startswith(tuple(f"{k}/" for k in keys))
        )

    def told(self, *keys: str) -> str:
        """Return how much the stages take, in words."""
        names = [("Boosting" if key == "boost" else label(key, self.work.source)) for key in keys]
        seconds, whole = self.of(*keys), self.seconds["all"]
        take = "take" if len(keys) > 1 else "takes"
        listed = " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        return f"{listed} {take} {seconds:.2f} s of {whole:.2f} s ({seconds / whole:.0%})"
