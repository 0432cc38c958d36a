"""The partitions of a set of rows on Dask workers, as the boosting loop asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.boosting.messages import Frame, Move
from pipeline.boosting.steps import Step
from pipeline.boosting.team import Team
from pipeline.scale import held
from pipeline.scale.dask_crew import Crew
from pipeline.scale.wire import Begun, Order, unpacked

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend


class DaskTeam(Team):
    """A team whose partitions lie on workers; this process adds nothing and solves everything.

    A move that is kept is kept by the partitions when they are asked next: a round is one exchange.

    Parameters
    ----------
    backend : who solves, here
    crew : who holds the rows
    name : of the team
    sizes : rows of each piece
    total : sum of the sample weights
    gram_bytes : memory of a worker for Gram matrices, of a piece
    """

    def __init__(
        self, backend: Backend, crew: Crew, name: str, sizes: list[int], total: float, gram_bytes: int
    ) -> None:
        self.backend, self.crew, self.name, self.sizes = backend, crew, name, sizes
        self.total, self.gram_bytes, self.ahead, self.prepares = total, gram_bytes, True, True
        self._ready = None
        self._begun = self._last = self._number = 0
        self._tried: tuple[int, Move] | None = None
        self._moves: list[tuple[int, Move]] = []

    def __len__(self) -> int:
        return sum(self.sizes)

    def begin(self, frame: Frame, steps: list[Step], scores: np.ndarray | None = None) -> None:
        """Tell every partition what the fit is, and the steps it has taken or the scores (n, J) they gave."""
        self._ready, self._tried, self._moves, self._last = None, None, [], 0
        self._begun += 1
        steps = list(steps)  # the loop's own list grows
        begun = self.crew.begun[self.name] = Begun(self._begun, frame, steps, self._moves)
        cuts = np.cumsum(self.sizes)[:-1]
        own = [None] * len(self.sizes) if scores is None else np.split(scores, cuts)
        for past, part in zip(self.crew.past, own, strict=True):
            past.scores.pop(self.name, None)
            if part is not None:
                past.scores[self.name] = part
        fresh = Begun(begun.number, frame, steps)
        for _ in self.crew.each("begin", held.begin, lambda i: (self.name, fresh, own[i])):
            pass

    def at_once(self, n_classes: int, q: int) -> int | None:
        """Return how many classes to ask for at a time: as many as the workers' memory holds Gram matrices of."""
        return max(1, min(n_classes, self.gram_bytes // (8 * max(q, 1) ** 2)))

    def keep(self) -> None:
        """Make the scores of the last move every partition's own: they hear of it with the next order."""
        if self._tried is None:
            raise RuntimeError("there is no move to keep")
        self._moves.append(self._tried)
        self._last, self._tried = self._tried[0], None

    def _order(self, what: str, arguments: tuple[Any, ...]) -> Order:
        self._number += 1
        if what == "advance":
            self._tried = self._number, arguments[0]
        return Order(self.name, what, arguments, self._begun, len(self._moves), self._last, self._number)

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        """Return what the partitions answer together, as the answer of one."""
        order = self._order(what, arguments)
        if what == "scores":
            found = {i: answer.value for i, answer in self.crew.each(what, held.ask_one, lambda i: (order,))}
            return [found[i] for i in range(len(self.sizes))]
        value, panels = self.crew.ask(order), self.backend.name == "cpu"
        if what == "sums":
            value = unpacked(value, panels)
        elif what == "advance":
            value = value._replace(sums=unpacked(value.sums, panels))
        elif what == "residual_sums" and value is None:
            value = (None, None)
        return [value]
