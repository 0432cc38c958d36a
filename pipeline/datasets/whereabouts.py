"""What the settings ``data`` name: which kind of source it is, where it lies, and the pictures of a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.folder import Listing, scan
from pipeline.datasets.images import Rejected
from pipeline.errors import ConfigError, DataError
from pipeline.files import expanded

PACKED_SUFFIXES = (".npz", ".npy")
NEEDED = {
    DataName.auto: "a folder of pictures or a packed set, as in data.path=photos",
    DataName.folder: "the folder of the pictures, as in data.path=photos",
    DataName.packed: "the packed set, as in data.path=photos.npz (python -m pipeline pack makes one of a folder)",
}


def resolve(data: config.Data) -> tuple[DataName | None, Path | None]:
    """Return the kind of source, None for a single picture file, and the path."""
    reads_files = data.name in (DataName.auto, DataName.folder, DataName.packed)
    if not reads_files:
        if data.path is not None:
            raise ConfigError(
                f"data.path={data.path} is given, but data={data.name.value} reads no files: "
                "add data=folder or data=packed"
            )
        return data.name, None
    if not data.path:
        raise ConfigError(f"data={data.name.value} needs data.path: give {NEEDED[data.name]}")
    _refuse_address(data.path)
    path = expanded(data.path)
    packed = path.suffix.lower() in PACKED_SUFFIXES and not path.is_dir()
    if data.name is DataName.packed:
        if path.is_dir():
            raise ConfigError(f"data.path={path} is a folder, but data=packed reads a file: add data=folder")
        if not packed:
            raise ConfigError(f"data.path={path}: a packed set ends in .npz or .npy")
        return DataName.packed, path
    if data.name is DataName.folder:
        if packed and path.is_file():
            raise ConfigError(f"data.path={path} is a packed set: add data=packed")
        return DataName.folder, path
    if not path.exists():
        raise DataError(f"data.path={path}: no such file or folder")
    if path.is_dir():
        return DataName.folder, path
    if not path.is_file():
        raise DataError(f"data.path={path}: a device or pipe; expected a folder, a packed set or a picture")
    return (DataName.packed, path) if packed else (None, path)


def _refuse_address(path: str) -> None:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) and not os.path.exists(path):
        remedy = "download them first"
        if path.lower().startswith("file://"):
            remedy = f"give the path alone, data.path={path[7:]}"
        raise DataError(f"data.path={path} is an address; pictures are read from disk: {remedy}")


def labelled_listing(path: Path) -> Listing:
    """Return the pictures in class folders, and as rejected what lies beside them."""
    listing = scan(path, labelled=True)
    if not listing.class_names:
        raise DataError(
            f"data.path={path}: {len(listing.entries)} files but no class folders; "
            "expected data.path/CLASS/picture"
        )
    entries = [entry for entry in listing.entries if entry.label >= 0]
    filled = {entry.label for entry in entries}
    empty = [name for label, name in enumerate(listing.class_names) if label not in filled]
    if entries and empty:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"data.path={path}: the class folder {empty[0]} holds no pictures{more}; add some, or remove it"
        )
    rejected = list(listing.rejected)
    rejected += [Rejected(entry.name, "lies beside the class folders: no class") for entry in listing.loose]
    return replace(listing, entries=entries, rejected=rejected)


@contextmanager
def reading(data: config.Data) -> Iterator[None]:
    """Say of what the system refuses that it is the set, not the file that is being written meanwhile."""
    try:
        yield
    except OSError as error:
        path = str(data.path)
        path = path if len(path) <= 100 else path[:100] + "..."
        raise DataError(f"data.path={path}: cannot be read: {error.strerror or error}") from error
