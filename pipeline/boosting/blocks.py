"""Rows that come in blocks, whole or some columns of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipeline.boosting.messages import Basis

Array = Any


class RowBlocks(Protocol):
    """Rows that do not lie in memory at once."""

    shape: tuple[int, int]  # (n, p)

    def blocks(self, dtype: str, columns: np.ndarray | None = None) -> Iterator[tuple[int, int, Array]]:
        """Yield (begin, end, X[begin:end]) in order, where the backend works; each is valid until the next.

        With `columns`, rising, only those: X[begin:end, columns].
        """

    def classes_at_once(self, q: int) -> int:
        """Return for how many classes memory holds the Gram matrices of q columns."""


class Picked(NamedTuple):
    """Some columns of rows."""

    values: Array  # (m, u)
    columns: np.ndarray  # (u,), rising


def picked_columns(bases: tuple[Basis, ...]) -> np.ndarray | None:
    """Return the columns of several bases together; None if one of them needs all."""
    if not bases or any(one.columns is None for one in bases):
        return None
    return np.unique(np.concatenate([one.columns for one in bases if one.columns is not None]))
