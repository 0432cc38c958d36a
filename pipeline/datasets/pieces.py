"""A set in pieces that other processes read: listed once here, opened, decoded and checked there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.chunks import packed, parts, stream_files
from pipeline.datasets.digits import count_digits, read_digits
from pipeline.datasets.folder import Entry, Listing, scan
from pipeline.datasets.images import Loaded, Rejected, TooManyRejected, too_many
from pipeline.datasets.packed import read_packed
from pipeline.datasets.stamps import Stamps, check_packed, stamp_entries, stamp_file
from pipeline.datasets.synthetic import make_synthetic
from pipeline.datasets.whereabouts import labelled_listing, reading, resolve
from pipeline.errors import DataError


class Piece(NamedTuple):
    """Pictures `begin` to `end` of a set; small enough to be sent."""

    data: config.Data  # with an absolute path
    image: config.Image
    kind: DataName
    begin: int
    end: int
    class_names: tuple[str, ...]
    entries: tuple[Entry, ...] = ()  # of a folder
    stamps: Stamps | None = None  # of a packed set


@dataclass(frozen=True)
class Inventory:
    """What a set holds, before its pictures are read.

    Attributes
    ----------
    total : files or pictures
    class_names : empty where the classes are not known
    rejected : found while listing
    stamps : of the files; None for pictures that are made
    """

    data: config.Data
    image: config.Image
    kind: DataName
    total: int
    class_names: tuple[str, ...]
    rejected: list[Rejected]
    stamps: Stamps | None
    entries: tuple[Entry, ...] = ()

    def pieces(self, count: int) -> list[Piece]:
        """Return the set in `count` pieces of neighbours, about equally long; some are empty if it is small."""
        bounds = [self.total * i // count for i in range(count + 1)]
        stamps = self.stamps if self.kind is DataName.packed else None
        return [
            Piece(self.data, self.image, self.kind, a, b, self.class_names, self.entries[a:b], stamps)
            for a, b in itertools.pairwise(bounds)
        ]

    def check_rejected(self, rejected: list[Rejected]) -> None:
        """Raise TooManyRejected if these, among all files of the set, are more than ``data.max_rejected`` allows."""
        total = self.total + len(self.rejected)
        if len(rejected) > self.data.max_rejected * total:
            raise too_many(Path(str(self.data.path)), rejected, total, self.data)


def inventory(
    data: config.Data, image: config.Image, labelled: bool, expected: Stamps | None = None
) -> Inventory:
    """List a set.

    Parameters
    ----------
    data, image : settings
    labelled : whether every picture must have a class, as for :func:`pipeline.datasets.load`; else the set is one
        for :func:`pipeline.datasets.stream`
    expected : what the files were when they were listed before; they must be the same still

    Raises
    ------
    ConfigError, DataError
        As those functions do.
    """
    with reading(data):
        kind, path = resolve(data)
        if path is not None:
            path = path.absolute()
            data = replace(data, path=str(path))
        if labelled and kind is None:
            raise DataError(
                f"data.path={path}: one file is no labelled set; expected a folder or a packed set"
            )
        found = _inventory(kind, path, data, image, labelled)
        if expected is not None and path is not None:
            expected.compare(found.stamps, f"data.path={path}")
        if labelled and len(found.class_names) < 2:
            where = f"data.path={path}" if path else f"data={data.name.value}"
            names = ", ".join(found.class_names) or "none"
            raise DataError(f"{where}: expected two classes at least, found: {names}")
        return found


def _inventory(
    kind: DataName | None, path: Path | None, data: config.Data, image: config.Image, labelled: bool
) -> Inventory:
    if kind is DataName.synthetic:
        names = make_synthetic(data, image, 0, 1).class_names
        return Inventory(data, image, kind, data.n, names, [], None)
    if kind is DataName.digits:
        return Inventory(data, image, kind, count_digits(), read_digits(image, 0, 1).class_names, [], None)
    assert path is not None  # every other kind reads files
    if kind is DataName.packed:
        stamps = stamp_file(path) if path.is_file() else None
        images = read_packed(path, image, resizable=labelled)
        if labelled and images.labels is None:
            raise DataError(
                f"data.path={path}: holds no labels; training needs a class for each picture: add an array 'labels'"
            )
        return Inventory(data, image, kind, len(images), images.class_names, [], stamps)
    if kind is None:
        status = path.stat()
        listing = Listing(entries=[Entry(path.name, str(path), -1, status.st_size, status.st_mtime_ns)])
    else:
        listing = labelled_listing(path) if labelled else scan(path)
    known = bool(listing.class_names) and not listing.loose
    return Inventory(
        data,
        image,
        DataName.folder,
        len(listing.entries),
        listing.class_names if known else (),
        listing.rejected,
        stamp_entries(listing.entries),
        tuple(listing.entries),
    )


def read_piece(piece: Piece, chunk: int, workers: int) -> Iterator[Loaded]:
    """Yield the pictures of a piece, `chunk` at a time, decoded by `workers` threads.

    Raises
    ------
    ChangedError
        If a file is gone, or is not of the size and time with which it was listed, when it has been read.
    """
    data = replace(piece.data, workers=workers, max_rejected=1.0)  # who listed the set judges the whole
    with reading(data):
        yield from _chunks(piece, data, chunk)


def _chunks(piece: Piece, data: config.Data, chunk: int) -> Iterator[Loaded]:
    image, begin = piece.image, piece.begin
    if piece.kind is DataName.folder:
        root, listing = Path(str(data.path)), Listing(piece.class_names, list(piece.entries))
        yield from stream_files(
            root, listing, data, image, chunk=chunk, progress=None, same=True, elsewhere=True
        )
    elif piece.kind is DataName.packed:
        path = Path(str(data.path))
        check_packed(path, piece.stamps, elsewhere=True)
        images = read_packed(path, image, resizable=False).subset(slice(begin, piece.end))
        yield from packed(path, images, chunk, None, piece.stamps, elsewhere=True)
    elif piece.kind is DataName.digits:
        yield from parts(
            piece.end - begin, chunk, None, lambda a, b: read_digits(image, begin + a, begin + b)
        )
    else:
        yield from parts(
            piece.end - begin, chunk, None, lambda a, b: make_synthetic(data, image, begin + a, begin + b)
        )


__all__ = ["Inventory", "Piece", "TooManyRejected", "inventory", "read_piece"]
