"""A folder of pictures: which files count, and which class each has.

A class is a sub-folder of ``data.path``; everything below it, at any depth, belongs to it. Names and
extensions do not matter: content decides. Passed over without a word are names that begin with a dot, system
files (``Thumbs.db``, ``desktop.ini``, the folder ``__MACOSX``) and notes that lie beside pictures
(``SIDE_SUFFIXES``). Linked folders are followed; a link back to a folder already read, or to one above
``data.path``, is not.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from pipeline.datasets.images import Rejected
from pipeline.datasets.reasons import check_process
from pipeline.errors import DataError

SYSTEM_NAMES = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
SIDE_SUFFIXES = frozenset(
    {
        ".txt",
        ".md",
        ".rst",
        ".csv",
        ".tsv",
        ".json",
        ".jsonl",
        ".xml",
        ".yml",
        ".yaml",
        ".toml",
        ".ini",
        ".cfg",
    }
    | {".html", ".htm", ".pdf", ".log", ".py", ".ipynb", ".sh", ".mat", ".npy", ".npz", ".zip", ".tar", ".gz"}
    | {".tgz", ".7z", ".rar"}
)


class Entry(NamedTuple):
    """A file that may be a picture."""

    name: str  # relative to the root, forward slashes, always encodable as UTF-8
    path: str
    label: int  # -1 for a file that lies in no class folder
    size: int = 0  # bytes, when the folder was listed
    time: int = 0  # of the last change, ns since 1970


@dataclass
class Listing:
    """What lies below a folder, in a fixed order: classes by name, files of a class by name."""

    class_names: tuple[str, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)  # broken links, folders that cannot be listed

    @property
    def loose(self) -> list[Entry]:
        """Files that lie beside the class folders."""
        return [entry for entry in self.entries if entry.label < 0]


def scan(root: Path, labelled: bool = False) -> Listing:
    """List the files below ``root``.

    Parameters
    ----------
    labelled : whether they are to be trained on or evaluated: the message says what is expected

    Raises
    ------
    DataError
        When there is no such folder, it cannot be listed, or nothing in it may be a picture.
    """
    if not root.is_dir():
        found = "a file, not a folder" if root.exists() else "no such folder"
        expected = "a folder with one sub-folder for each class" if labelled else "a folder of pictures"
        raise DataError(f"data.path={root}: {found}; expected {expected}")
    seen = {_identity(folder) for folder in (root.resolve(), *root.resolve().parents)}
    above = len(_start(root))
    try:
        folders, files, broken = _list(root)
    except OSError as error:
        check_process(error)
        raise DataError(f"data.path={root}: cannot be listed: {error.strerror or error}") from error
    listing = Listing(tuple(_clean(folder.name) for folder in folders))
    for label, folder in enumerate(folders):
        _walk(folder, root, label, set(seen), listing)
    listing.entries.extend(Entry(_relative(one.path, above), one.path, -1, *one[1:]) for one in files)
    listing.rejected.extend(Rejected(_relative(file, above), "a link to nothing") for file in broken)
    if not listing.entries and not listing.rejected:
        expected = "one sub-folder of them for each class" if labelled else "them in it or in sub-folders"
        raise DataError(f"data.path={root}: holds no pictures; expected {expected}")
    return listing


def count_up_to(enough: int, root: Path) -> int:
    """Return roughly how many files a labelled set has, or `enough` of them, soon; 0 if in doubt."""
    found = 0
    with suppress(OSError), os.scandir(root) as folders:  # ``scan`` finds the reason
        for folder in folders:
            if found >= enough:
                return enough
            found += len(os.listdir(folder)) if folder.is_dir() else 0
    return min(found, enough)


def _walk(folder: Path, root: Path, label: int, seen: set[tuple[int, int]], listing: Listing) -> None:
    """Add every file below a class folder; ``seen`` holds the folders that must not be entered (again)."""
    pending, above = [folder], len(_start(root))
    files: list[_File] = []
    broken: list[str] = []
    while pending:
        current = pending.pop()
        try:
            identity = _identity(current)
            if identity in seen:
                continue
            seen.add(identity)
            below, here, dangling = _list(current)
        except OSError as error:
            check_process(error)
            reason = f"folder that cannot be listed: {error.strerror or error}"
            listing.rejected.append(Rejected(_relative(current, above), reason))
            continue
        pending.extend(below)
        files.extend(here)
        broken.extend(dangling)
    listing.entries.extend(
        sorted(
            [Entry(_relative(path, above), path, label, size, time) for path, size, time in files],
            key=itemgetter(0),
        )
    )
    listing.rejected.extend(Rejected(_relative(file, above), "a link to nothing") for file in sorted(broken))


class _File(NamedTuple):
    path: str  # text: a Path takes longer to make than the file to look up
    size: int
    time: int


def _list(folder: Path) -> tuple[list[Path], list[_File], list[str]]:
    """Return the sub-folders, the files that may be pictures and the broken links, each sorted."""
    folders, files, broken = [], [], []
    start = _start(folder)
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        folded = name.lower()
        if folded[0] == "." or folded in SYSTEM_NAMES:
            continue
        path = start + name
        try:
            status = os.stat(path)
        except OSError as error:  # the target is gone, or the link points at itself
            check_process(error)
            broken.append(path)
            continue
        if stat.S_ISDIR(status.st_mode):
            folders.append(folder / name)
        # no pipes: reading one would hang
        elif stat.S_ISREG(status.st_mode) and folded[folded.rfind(".") :] not in SIDE_SUFFIXES:
            files.append(_File(path, status.st_size, status.st_mtime_ns))
    return folders, files, broken


def _start(folder: Path) -> str:
    """Return what the paths of files in a folder begin with, as pathlib would write them."""
    return "" if folder == Path() else os.path.join(folder, "")


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _relative(path: str | Path, above: int) -> str:
    """Return the path without its first `above` characters, with forward slashes."""
    name = str(path)[above:].replace(os.sep, "/")
    return name if name.isascii() else _clean(name)


def _clean(name: str) -> str:
    """Write bytes of a file name that are no UTF-8 as escapes, so that every report can be written."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
