"""Rows that come in blocks, whole or some columns of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipeline.boosting.messages import Basis

Array = Any


class RowBlocks(Protocol):
    """Rows that do not lie in memory at once."""

    shape: tuple[int, int]  # (n, p)

    def blocks(
        self, dtype: str, columns: Sequence[np.ndarray] | None = None
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield (begin, end, X[begin:end]) in order, where the backend works; each is valid until the next.

        With `columns`, sets of them, yield X[begin:end, set] for each set instead of all columns.
        """

    def classes_at_once(self, q: int) -> int:
        """Return for how many classes memory holds the Gram matrices of q columns."""


class Picked(NamedTuple):
    """The columns of some bases."""

    bases: tuple[Basis, ...]
    values: Sequence[Array]  # of each basis (m, q)

    def of(self, basis: Basis) -> Array:
        """Return the columns (m, q) of one of the bases."""
        return next(values for one, values in zip(self.bases, self.values, strict=True) if basis.same(one))


def picked(bases: tuple[Basis, ...]) -> tuple[Basis, ...]:
    """Return the bases whose columns are enough to look at, each once; none if one of the given ones needs all."""
    found: list[Basis] = []
    for basis in bases:
        if basis.columns is None:
            return ()
        if not any(basis.same(one) for one in found):
            found.append(basis)
    return tuple(found)
