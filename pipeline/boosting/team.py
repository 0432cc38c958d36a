"""All partitions of a set of rows: asked together, their sums added in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.backends import fits
from pipeline.backends.protocol import Sums
from pipeline.boosting.messages import Basis, Frame, Moments, Move, Report, Request, pooled
from pipeline.boosting.partition import Partition
from pipeline.boosting.steps import Step

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any


class Team:
    """The partitions of one set of rows. A single one in memory is the local case.

    Attributes
    ----------
    backend : who adds and solves
    total : sum of the sample weights
    ahead : whether the sums of a round are asked for together with the move of the round before: where rows stream,
        that saves a pass
    prepares : whether partitions make the columns of a round while the round before is solved
    """

    def __init__(self, backend: Backend, partitions: Sequence[Partition]) -> None:
        self.backend, self.partitions = backend, list(partitions)
        self.total = sum(one.total for one in self.partitions)
        self.ahead = any(one.streams for one in self.partitions)
        self.prepares = False
        self._ready: tuple[Request, Sums] | None = None

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        """Return what each partition answers, in their order: the one place that talks to them."""
        return [getattr(one, what)(*arguments) for one in self.partitions]

    def moments(self, dtype: str) -> Moments:
        """Return the moments of the columns over all rows."""
        found = pooled([one for one in self._ask("moments", dtype) if one is not None])
        if found is None:
            raise ValueError("there are no rows to fit")
        return found

    def __len__(self) -> int:
        return sum(len(one) for one in self.partitions)

    def begin(self, frame: Frame, steps: list[Step], scores: np.ndarray | None = None) -> None:
        """Tell every partition what the fit is, and the steps it has taken or the scores (n, J) they gave."""
        self._ready = None
        if scores is None:
            self._ask("begin", frame, steps)
            return
        cuts = np.cumsum([len(one) for one in self.partitions])[:-1]
        for one, own in zip(self.partitions, np.split(scores, cuts), strict=True):
            one.begin(frame, steps, own)

    def scores(self) -> np.ndarray:
        """Return the scores (n, J) of all rows, in host memory."""
        found = self._ask("scores")
        return found[0] if len(found) == 1 else np.concatenate(found)

    def at_once(self, n_classes: int, q: int) -> int | None:
        """Return how many classes to ask for at a time, None if the backend is to say it."""
        bounds = [one.rows.classes_at_once(q) for one in self.partitions if one.streams]
        return min([n_classes, *bounds]) if bounds else None

    def rough(self, basis: Basis, n_classes: int, l2: float, dtype: str) -> bool:
        """Tell whether fits to the columns of a basis begin with rough sums: of rows in one place, where they lie."""
        if self.ahead or len(self.partitions) > 1 or (basis.columns is None and basis.gamma is None):
            return False
        rough = self.backend.wls.rough
        return rough is not None and rough.begins(len(self), basis.size, n_classes, l2, dtype)

    def sums(self, request: Request) -> Sums:
        """Return the sums over all rows; those that came with the last move need no pass."""
        if self._ready is not None and self._ready[0].same(request):
            sums, self._ready = self._ready[1], None
            return sums
        return self._added(self._ask("sums", request))

    @staticmethod
    def _added(parts: list[Sums | None]) -> Sums:
        total = None
        for sums in parts:
            total = fits.add(total, sums)
        assert total is not None  # some partition has rows
        return total

    def residual_sums(self, request: Request, coef: Array, intercept: Array) -> tuple[Array, Array]:
        """Return the sums that refine fits, over all rows."""
        found = [pair for pair in self._ask("residual_sums", request, coef, intercept) if pair[0] is not None]
        xr, sr = found[0]
        for more in found[1:]:
            xr, sr = xr + more[0], sr + more[1]
        return xr, sr

    def advance(self, move: Move, request: Request | None = None) -> tuple[float, float]:
        """Work out the scores after a move; return the largest absolute score and the mean log-loss."""
        reports: list[Report] = self._ask("advance", move, request)
        self._ready = None if request is None else (request, self._added([one.sums for one in reports]))
        return max(one.largest for one in reports), sum(one.loss for one in reports) / self.total

    def room(self, move: Move) -> float:
        """Return the largest share t < 1 of a move for which the scores stay within their limit."""
        return max(0.0, min(self._ask("room", move)) * (1.0 - 1e-6))

    def keep(self) -> None:
        """Make the scores of the last move every partition's own."""
        self._ask("keep")
