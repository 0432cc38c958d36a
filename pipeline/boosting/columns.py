"""The columns of a round: what a basis, a subset of the features or random ones, makes of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.boosting.blocks import Picked
from pipeline.boosting.messages import Basis, Frame
from pipeline.spans import span

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

Array = Any


class Columns:
    """Columns (n, q) of a partition's rows: the last ones are kept, the next may be made before they are asked for.

    Parameters
    ----------
    backend : who works on the rows
    streams : whether the rows come in blocks; nothing is kept then
    """

    frame: Frame
    center: Array  # (p,), where the backend works

    def __init__(self, backend: Backend, streams: bool) -> None:
        self.backend, self.streams = backend, streams
        self._kept: tuple[Basis, Array, Array] | None = None
        self._next: tuple[Basis, Array, Array] | None = None
        self._begun: tuple[Basis, Callable[[], Array]] | None = None

    def begin(self, frame: Frame, center: Array) -> None:
        """Take up a fit; columns of an earlier one are forgotten."""
        self.frame, self.center = frame, center
        self._kept = self._next = self._begun = None

    def start(self, basis: Basis, X: Array) -> None:
        """Begin to make the columns of a basis to come on threads that are idle, where the backend has such."""
        begin = self.backend.gather_meanwhile
        if begin is not None and basis.columns is not None and not self.streams and self._begun is None:
            self._begun = basis, begin(X, basis.columns, self.center)

    def settle(self) -> None:
        """Wait for the columns that were begun."""
        if self._begun is not None:
            (basis, end), self._begun = self._begun, None
            with span("columns"):
                self._next = basis, end(), self.backend.xp.zeros(basis.size)

    def of(self, basis: Basis, X: Array, stage: str) -> tuple[Array, Array]:
        """Return the columns of a basis and what is still to be subtracted from them; made under span `stage`."""
        if self._kept is not None and basis.same(self._kept[0]):
            return self._kept[1:]
        self.settle()
        if self._next is not None and basis.same(self._next[0]):
            self._kept, self._next = self._next, None
            return self._kept[1:]
        wls, seed = self.backend.wls, self.frame.seed
        if basis.whole:
            return X, self.center
        if isinstance(X, Picked):  # whoever multiplies them subtracts the centre
            return X.of(basis), self.backend.put(self.frame.center[basis.columns])
        with span(stage):
            if basis.columns is not None:
                phi = wls.gather(X, basis.columns, self.center)
            else:
                phi = wls.random_features(X, self.center, basis.gamma or 0.0, basis.size, seed, basis.index)
        zero = self.backend.xp.zeros(basis.size)
        if not self.streams:
            self._kept = basis, phi, zero
        return phi, zero

    def prepare(self, basis: Basis, X: Array) -> None:
        """Make the columns of a basis to come, beside those that are kept."""
        kept, self._kept = self._kept, None
        self.of(basis, X, "columns")
        self._next, self._kept = self._kept, kept

    def forget(self) -> None:
        """Let go of the columns that are kept, not of those to come."""
        self._kept = None
