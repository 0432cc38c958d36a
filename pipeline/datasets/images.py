"""What a data set is inside the program, and the list of files that did not make it in."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.stamps import Stamps
from pipeline.errors import DataError, OutputError
from pipeline.files import remedy

Progress = Callable[[int, int], Any]  # progress(done, total), called in the caller's thread


class Rejected(NamedTuple):
    """A file that could not become a picture."""

    path: str  # relative to data.path, with forward slashes
    reason: str  # short, one line


class TooManyRejected(DataError):  # noqa: N818
    """More files were rejected than ``data.max_rejected`` allows.

    Attributes
    ----------
    rejected : list of Rejected
        Every file rejected so far, for ``rejected.csv``.
    """

    def __init__(self, message: str, rejected: list[Rejected]) -> None:
        super().__init__(message)
        self.rejected = rejected


def too_many(path: Path, rejected: list[Rejected], total: int, data: config.Data) -> TooManyRejected:
    """Return the error of a set of `total` files of which too many were rejected."""
    first = rejected[0]
    share = 100 * len(rejected) / total
    remedy = "mend or remove the files, or raise data.max_rejected"
    if len(rejected) == total:
        remedy = "nothing is left: mend the files, or give others"
    return TooManyRejected(
        f"data.path={path}: {len(rejected)} of {total} files rejected ({share:.1f} %), data.max_rejected is "
        f"{data.max_rejected:g}; first: {first.path}: {first.reason}; "
        f"{remedy}",
        rejected,
    )


@dataclass(frozen=True)
class Images:
    """Uniform grayscale pictures and what is known about each.

    Attributes
    ----------
    pixels : ndarray of uint8, shape (n, height, width)
        May be a read-only memory map.
    labels : ndarray of intp, shape (n,), or None
        Index into ``class_names``; None where the classes are not known.
    class_names : tuple of str
    paths : list of str
        One for each picture, relative to ``data.path``, with forward slashes.
    groups : ndarray of intp, shape (n,), or None
        Pictures of one group stay on one side of a split; see ``split.with_groups``.
    made : DataName or None
        Of a set that comes with the program or is packed: where there are too few pictures, none can be added.

    Raises
    ------
    ValueError
        When the lengths or types above disagree: a fault of the program, not of the data.
    """

    pixels: np.ndarray
    labels: np.ndarray | None
    class_names: tuple[str, ...]
    paths: list[str]
    groups: np.ndarray | None = None
    made: DataName | None = None

    def __post_init__(self) -> None:
        n = len(self.pixels)
        if self.pixels.ndim != 3 or self.pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8 (n, h, w), not {self.pixels.dtype} {self.pixels.shape}")
        if len(self.paths) != n:
            raise ValueError(f"{len(self.paths)} paths for {n} pictures")
        for name, values in (("labels", self.labels), ("groups", self.groups)):
            if values is not None and (values.shape != (n,) or values.dtype != np.intp):
                raise ValueError(f"{name} must be intp ({n},), not {values.dtype} {values.shape}")

    def __len__(self) -> int:
        return len(self.pixels)

    def subset(self, index: np.ndarray | Sequence[int] | slice) -> Images:
        """Return the pictures that ``index`` selects: integers or booleans (a copy), or a slice (a view)."""
        if not isinstance(index, slice):
            index = np.asarray(index)
            index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.intp)
        where = np.arange(len(self))[index]
        return replace(
            self,
            pixels=self.pixels[index],
            labels=None if self.labels is None else self.labels[index],
            paths=[self.paths[i] for i in where],
            groups=None if self.groups is None else self.groups[index],
        )

    def counts(self) -> np.ndarray:
        """Return the number of pictures of each class, intp (classes,)."""
        if self.labels is None:
            raise ValueError("the classes of these pictures are not known")
        return np.bincount(self.labels, minlength=len(self.class_names))


class Loaded(NamedTuple):
    """Pictures, the files that were rejected, and the wall time of getting them."""

    images: Images
    rejected: list[Rejected]
    native_seconds: dict[str, float]  # "read": finding files or opening a pack; "decode": files to uint8
    stamps: Stamps | None = None  # of the files, before they were read; None for pictures that are made
    mapped: Path | None = None  # the packed set whose pixels are read only when they are asked for


def allocate(n: int, image: config.Image) -> np.ndarray:
    """Return room for n pictures, uint8 (n, height, width), or raise DataError where there is none."""
    try:
        return np.empty((n, image.height, image.width), np.uint8)
    except MemoryError as error:
        size = n * image.height * image.width / 2**30
        raise DataError(
            f"{n} pictures of {image.height} x {image.width} need {size:.1f} GiB of memory: "
            "lower image.height, image.width"
        ) from error


def write_rejected(path: str | Path, rejected: Sequence[Rejected]) -> None:
    """Write ``rejected.csv``: columns path and reason, UTF-8, the header even when nothing was rejected.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    try:
        with Path(path).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            writer = csv.writer(file)
            writer.writerow(Rejected._fields)
            writer.writerows(rejected)
    except OSError as error:
        why = error.strerror or error
        raise OutputError(
            f"{path}: cannot be written: {why}; {remedy(error, 'hydra.run.dir=...')}"
        ) from error


def duplicates_across(images: Images, train: np.ndarray, test: np.ndarray) -> list[tuple[str, str]]:
    """Find held-out pictures whose pixels also lie in the training part.

    Parameters
    ----------
    images : Images
    train, test : ndarray of int
        Indices of the two sides.

    Returns
    -------
    list of (training path, held-out path)
        At most one pair for each held-out picture: its first equal in the training part. Pictures are
        compared at their uniform size, by a 128-bit BLAKE2b digest of the pixels.
    """
    first: dict[bytes, int] = {}
    for i in train:
        first.setdefault(_digest(images.pixels[i]), int(i))
    pairs = ((first.get(_digest(images.pixels[i])), int(i)) for i in test)
    return [(images.paths[a], images.paths[b]) for a, b in pairs if a is not None]


def _digest(picture: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(picture).data, digest_size=16).digest()
