"""What the driver hears of a piece, and whether a worker that reads it once more finds the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline import datasets
from pipeline.datasets.pieces import Piece
from pipeline.errors import ChangedError

_MEND = "see that all machines have the same files and the same versions of libraries"


class Told(NamedTuple):
    """What the driver hears of a piece."""

    labels: np.ndarray  # int32 (n,)
    paths: list[str]
    digests: np.ndarray  # uint8 (n, 16), of the pixels
    rejected: list[datasets.Rejected]
    seconds: dict[str, float]


class First(NamedTuple):
    """What was told of a piece first: row numbers, labels and scores count on it."""

    digests: np.ndarray  # uint8 (n, 16)
    rejected: tuple[str, ...]  # paths

    @classmethod
    def of(cls, told: Told) -> First:
        """Return what must be found again."""
        return cls(told.digests, tuple(one.path for one in told.rejected))

    def check(self, number: int, piece: Piece, now: Told) -> None:
        """Find out whether the piece, read once more, has the same images in the same order.

        Raises
        ------
        ChangedError
            If not, naming the file, or the piece if no file differs more than others.
        """
        rejected = {one.path: one.reason for one in now.rejected}
        differs = [path for path in rejected if path not in self.rejected]
        returned = [path for path in self.rejected if path not in rejected]
        if differs:
            what = f"{differs[0]} cannot be read any more ({rejected[differs[0]]})"
        elif returned:
            what = f"{returned[0]} can be read, which was rejected before"
        elif len(now.digests) != len(self.digests):
            what = f"it has {len(now.digests)} images, it had {len(self.digests)}"
        else:
            other = np.flatnonzero((now.digests != self.digests).any(axis=1))
            if not len(other):
                return
            what = f"{now.paths[other[0]]} has other pixels"
        more = max(len(differs) + len(returned), 1) - 1
        where = f"data.path={piece.data.path}" if piece.data.path else f"data={piece.kind.value}"
        raise ChangedError(
            f"{where}: partition {number} was lost and read again, and is not what it was: {what}"
            f"{f' (and {more} more)' if more else ''}",
            f"{_MEND}, and start the run again",
            _MEND,
        )
