"""The table of docs/scale.md: seconds of a round for 10^8 images on 100 machines of 8 GPUs, as markdown.

    python scripts/model_on_paper.py

Nothing is measured. The bytes are those that ``pipeline/scale/wire.py`` gives for a message, which tests compare with
what is sent; rates are assumptions, named below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.scale import wire

IMAGES, CLASSES, FEATURES = 10**8, 10, 3240
MACHINES, GPUS = 100, 8  # a worker for each GPU; those of a machine share its network card
CARD = 12.5e9  # bytes/s of a machine's network card, each way: 100 Gbit/s
GPU = 20e12  # operations/s of a GPU in matrix products of float32
HERE = 100e9  # operations/s of the process that solves
TASK = 0.5e-3  # seconds of Dask's scheduler for a task
HOME = 2  # messages by which the root's sums come here: to the scheduler, and from it


@dataclass(frozen=True)
class Learner:
    """What a round of a learner fits, in float32.

    Attributes
    ----------
    q : columns
    columns : whether they are some of all, and so named in messages
    drawn : whether they are random features, which each worker makes of all features
    refined : whether its systems are delicate, so that each fit is refined by a second exchange
    """

    name: str
    q: int
    columns: bool
    drawn: bool
    refined: bool

    @property
    def exchanges(self) -> int:
        """Exchanges of a round."""
        return 2 if self.refined else 1

    @property
    def down(self) -> tuple[int, int]:
        """Bytes to each worker: with the step, and for the refinement."""
        second = wire.numbers_refined(self.q, CLASSES, self.columns)[0] if self.refined else 0
        return 8 * wire.numbers_down(self.q, CLASSES, self.columns), 8 * second

    @property
    def up(self) -> tuple[int, int]:
        """Bytes of an answer: the sums, and those of the refinement."""
        second = wire.numbers_refined(self.q, CLASSES, self.columns)[1] if self.refined else 0
        return 8 * wire.numbers_up(self.q, CLASSES, CLASSES), 8 * second


LEARNERS = (
    Learner("subspace", 128, columns=True, drawn=False, refined=False),
    Learner("random_features", 512, columns=False, drawn=True, refined=True),
    Learner("full", FEATURES, columns=False, drawn=False, refined=True),
)


def grams(one: Learner, workers: int) -> float:
    """Return the seconds of the Gram matrices: multiplications and additions of one triangle."""
    return IMAGES * CLASSES * one.q**2 / (workers * GPU)


def projection(one: Learner, workers: int) -> float:
    """Return the seconds in which random features are made."""
    return 2 * IMAGES * FEATURES * one.q / (workers * GPU) if one.drawn else 0.0


def residuals(one: Learner, workers: int) -> float:
    """Return the seconds of the sums that refine a fit."""
    return 4 * IMAGES * one.q * CLASSES / (workers * GPU) if one.refined else 0.0


def down(one: Learner, workers: int) -> float:
    """Return the seconds in which the orders leave here, by one card."""
    return workers * sum(one.down) / CARD


def up_to_one(one: Learner, workers: int) -> float:
    """Return the seconds in which every worker's answers come here, by one card."""
    return workers * sum(one.up) / CARD


def hops(workers: int) -> int:
    """Return how many messages follow one another through the busiest card, if workers add in a tree.

    Of the workers of a machine all but one send theirs through the card they share, or by memory, which is no slower.
    Then machines add in pairs, each with its card to itself, and the root's sums come here.
    """
    inside = min(GPUS, workers)
    return inside - 1 + math.ceil(math.log2(-(-workers // GPUS))) + HOME


def up_in_a_tree(one: Learner, workers: int) -> float:
    """Return the seconds in which the sums come here by a tree."""
    return hops(workers) * sum(one.up) / CARD


def solving(one: Learner, workers: int) -> float:
    """Return the seconds of the factorisations, here."""
    return CLASSES * one.q**3 / 3 / HERE


def tasks_of_a_tree(one: Learner, workers: int) -> float:
    """Return the scheduler's seconds: a task for each worker, and one for each addition."""
    return one.exchanges * 2 * workers * TASK


def tasks_of_one(one: Learner, workers: int) -> float:
    """Return the scheduler's seconds, if nothing is added on the way."""
    return one.exchanges * workers * TASK


Part = Callable[[Learner, int], float]
WORK: tuple[Part, ...] = (grams, projection, residuals)
TREE: dict[Part, str] = {
    grams: "Gram matrices",
    projection: "random features",
    residuals: "residuals",
    down: "down",
    up_in_a_tree: "up",
    solving: "solving",
    tasks_of_a_tree: "scheduler",
}


def with_the_tree(one: Learner, workers: int) -> float:
    """Return the seconds of a round in which workers add."""
    return sum(part(one, workers) for part in TREE)


def with_one_reducer(one: Learner, workers: int) -> float:
    """Return the seconds of a round in which all is added here."""
    parts: tuple[Part, ...] = (*WORK, down, up_to_one, solving, tasks_of_one)
    return sum(part(one, workers) for part in parts)


def what_binds(one: Learner, workers: int) -> str:
    """Return the longest part of a round with the tree."""
    return TREE[max(TREE, key=lambda part: part(one, workers))]


def reducer_as_long_as_work(one: Learner) -> int:
    """Return the workers at which the network of one reducer takes as long as the work of a worker."""
    work = sum(part(one, 1) for part in WORK)
    return round(math.sqrt(work / up_to_one(one, 1)))


def best(total: Part, one: Learner) -> int:
    """Return the number of workers with which a round takes the least time."""
    return min(range(1, 2000), key=lambda workers: total(one, workers))


def seconds(value: float) -> str:
    """Return seconds in two digits."""
    if value == 0.0:
        return ""
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}"


def size(value: int) -> str:
    """Return bytes in three digits."""
    if value == 0:
        return ""
    unit, name = next((unit, name) for unit, name in ((1e6, "MB"), (1e3, "kB")) if value >= unit)
    number = value / unit
    return f"{number:.{max(0, 2 - math.floor(math.log10(number)))}f} {name}"


def timed(name: str, formula: str, part: Part) -> tuple[str, str, Callable[[Learner], str]]:
    """Return a row of seconds."""
    return name, formula, lambda one: seconds(part(one, MACHINES * GPUS))


ROWS: tuple[tuple[str, str, Callable[[Learner], str]], ...] = (
    ("up, with the sums: M1", "`numbers_up` 8", lambda one: size(one.up[0])),
    ("up, to refine: M2", "`numbers_refined` 8", lambda one: size(one.up[1])),
    ("down, with the step: D1", "`numbers_down` 8", lambda one: size(one.down[0])),
    ("down, to refine: D2", "`numbers_refined` 8", lambda one: size(one.down[1])),
    timed("Gram matrices", "N J q^2 / (W F)", grams),
    timed("random features", "2 N p q / (W F)", projection),
    timed("residuals", "4 N q J / (W F)", residuals),
    timed("down, to all", "W (D1 + D2) / B", down),
    timed("up, all to one", "W (M1 + M2) / B", up_to_one),
    timed("up, in a tree", "h (M1 + M2) / B", up_in_a_tree),
    timed("solving here", "J q^3 / (3 S)", solving),
    timed("scheduler, with the tree", "2 W e T", tasks_of_a_tree),
    timed("scheduler, one reducer", "W e T", tasks_of_one),
    timed("**round, with the tree**", "sum", with_the_tree),
    ("what binds there", "largest", lambda one: what_binds(one, MACHINES * GPUS)),
    timed("round, one reducer", "sum", with_one_reducer),
    (
        "workers at which one reducer's network takes as long as the work",
        "up, all to one = work",
        lambda one: str(reducer_as_long_as_work(one)),
    ),
    ("best number of workers, one reducer", "least sum", lambda one: str(best(with_one_reducer, one))),
    ("best number of workers, with the tree", "least sum", lambda one: str(best(with_the_tree, one))),
    ("a round with as many", "sum", lambda one: seconds(with_the_tree(one, best(with_the_tree, one)))),
)


def table() -> str:
    """Return the table as markdown."""
    head = [f"`{one.name}`, {'p' if one.q == FEATURES else 'q'} = {one.q}" for one in LEARNERS]
    lines = ["", "formula", *head], ["---"] * (2 + len(LEARNERS))
    rows = [[name, formula, *(cell(one) for one in LEARNERS)] for name, formula, cell in ROWS]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in [*lines, *rows])


if __name__ == "__main__":
    print(table())
