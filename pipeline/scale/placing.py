"""How many pieces a set is read in, and which worker takes which: from the workers' memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError

USED = 0.7  # of a worker's memory: the rest is for what is not counted
PROGRAM = 300 << 20  # bytes of a worker before it holds anything
MOST = 16  # pieces of a worker, if the user does not say


@dataclass(frozen=True)
class Load:
    """What images cost a worker.

    Attributes
    ----------
    image : bytes of an image for as long as training lasts
    piece : bytes more of an image of the piece that is being divided
    fixed : bytes whatever the number of images: the sums of a round
    """

    image: int
    piece: int
    fixed: int

    def bytes(self, images: int, largest: int) -> int:
        """Return the memory of a worker with so many images, the largest piece of them with `largest`."""
        return PROGRAM + self.fixed + images * self.image + largest * self.piece


def pieces(total: int, limits: Sequence[int], load: Load, asked: int | None) -> int:
    """Return in how many pieces to read `total` images.

    Parameters
    ----------
    limits : bytes of each worker; 0 where none is known
    asked : the number that the user wants, or None

    Raises
    ------
    ConfigError
        If the workers cannot hold the images: it says how many could.
    """
    workers, known = len(limits), [limit for limit in limits if limit]
    least = min(known, default=0) * USED
    share = -(-total // workers)
    each = MOST if asked is None else -(-asked // workers)
    if known and load.bytes(share, -(-share // each)) > least:
        room = least - PROGRAM - load.fixed
        per_image = load.image + load.piece / MOST
        enough = (
            f"{int(-(-total * per_image // room))} workers of this size" if room > 0 else "larger workers"
        )
        needed = load.bytes(share, -(-share // MOST)) / USED
        more = f"{-(-needed // 10**6) + 1:.0f}MB"
        raise ConfigError(
            f"{total} images need {needed / 1e6:.0f} MB in each of {workers} workers, whose limit is "
            f"{min(known) / 1e6:.0f} MB; give {enough}, or scale.memory_limit={more} (dask worker "
            f"--memory-limit {more}, if you start them)"
        )
    if asked is not None:
        return asked
    count = 1
    while known and load.bytes(share, -(-share // count)) > least and count < MOST:
        count *= 2
    return workers * count


def neighbours(count: int, workers: Sequence[str]) -> list[str]:
    """Return the owner of each of `count` pieces: neighbours lie together, so that they are added where they are."""
    return [workers[i * len(workers) // count] for i in range(count)]


def taker(
    images: int, held: Mapping[str, int], largest: int, limits: Mapping[str, int], load: Load
) -> str | None:
    """Return the worker that takes over a piece: the one with the fewest images; None if none has room.

    Parameters
    ----------
    images : in the piece
    held : images of each worker that is there
    largest : images of the largest piece of all
    """
    for worker in sorted(held, key=lambda one: (held[one], one)):
        limit = limits.get(worker, 0)
        if not limit or load.bytes(held[worker] + images, largest) <= limit * (USED + 0.1):
            return worker
    return None
