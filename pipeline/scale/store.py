"""A folder of chunks: rows of one matrix on disk, written once, mapped one chunk at a time, each with a checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.errors import ChangedError, OutputError
from pipeline.files import atomic, occupied


class Chunk(NamedTuple):
    """One file, as it was when it was written."""

    path: Path
    first: int  # number of its first row
    rows: int
    size: int  # bytes
    changed: int  # nanoseconds of its last change
    digest: bytes  # BLAKE2b, 128 bits


class Store:
    """Rows of `width` numbers in files of about `chunk_rows` rows each.

    Parameters
    ----------
    folder : made if it is missing; files of this name that lie there are overwritten
    width : numbers in a row
    dtype : their type
    chunk_rows : rows from which a file is full
    """

    def __init__(self, folder: Path, width: int, dtype: np.dtype, chunk_rows: int) -> None:
        self.folder, self.width, self.dtype = folder, width, np.dtype(dtype)
        self.chunk_rows = max(1, chunk_rows)
        self.chunks: list[Chunk] = []
        self._waiting: list[np.ndarray] = []
        self._verified: set[Path] = set()

    def __len__(self) -> int:
        return sum(chunk.rows for chunk in self.chunks) + self._held

    @property
    def _held(self) -> int:
        return sum(len(rows) for rows in self._waiting)

    @property
    def nbytes(self) -> int:
        """Bytes on the disk."""
        return sum(chunk.size for chunk in self.chunks)

    def append(self, rows: np.ndarray) -> None:
        """Add rows (m, width) of the store's type; a full chunk goes to the disk.

        Raises
        ------
        OutputError
            If it cannot be written (disk full, no permission).
        """
        if rows.shape[1:] != (self.width,) or rows.dtype != self.dtype:
            raise ValueError(f"rows must be {self.dtype} (m, {self.width}), not {rows.dtype} {rows.shape}")
        if len(rows):
            self._waiting.append(rows)
        if self._held >= self.chunk_rows:
            self.flush()

    def flush(self) -> None:
        """Write the rows that still wait as a last, shorter chunk."""
        rows = self._held
        if not rows:
            return
        first = sum(chunk.rows for chunk in self.chunks)
        path = self.folder / f"cells-{len(self.chunks):06d}.bin"
        digest = hashlib.blake2b(digest_size=16)
        with atomic(path, "wb") as stream:
            for part in self._waiting:
                data = np.ascontiguousarray(part).data.cast("B")
                digest.update(data)
                stream.write(data)
        self._waiting = []
        status = path.stat()
        self.chunks.append(Chunk(path, first, rows, status.st_size, status.st_mtime_ns, digest.digest()))

    @contextmanager
    def opened(self, number: int) -> Iterator[np.ndarray]:
        """Map chunk `number`, read-only (rows, width), while the block runs.

        Raises
        ------
        ChangedError
            If the file is gone or is no longer what was written: by size and time at every opening, by checksum at
            the first.
        """
        chunk = self.chunks[number]
        self._check(chunk)
        try:
            rows = np.memmap(chunk.path, self.dtype, "r", shape=(chunk.rows, self.width))
        except (OSError, ValueError) as error:
            raise ChangedError(_damaged(chunk.path, f"it cannot be read ({error})")) from error
        if chunk.path not in self._verified:
            if hashlib.blake2b(np.asarray(rows).data, digest_size=16).digest() != chunk.digest:
                raise ChangedError(_damaged(chunk.path, "its checksum is not that of what was written"))
            self._verified.add(chunk.path)
        yield rows

    @staticmethod
    def _check(chunk: Chunk) -> None:
        try:
            status = os.stat(chunk.path)
        except OSError as error:
            raise ChangedError(_damaged(chunk.path, f"it cannot be read ({error.strerror})")) from error
        if status.st_size != chunk.size:
            raise ChangedError(
                _damaged(chunk.path, f"it has {status.st_size} bytes, {chunk.size} were written")
            )
        if status.st_mtime_ns != chunk.changed:
            raise ChangedError(_damaged(chunk.path, "it was changed after it was written"))


OWNER = ".hogboost-owner"  # names the run that fills the folder
OURS = "cells-" + 6 * "[0-9]" + ".bin"


@contextmanager
def store_folder(path: Path, setting: str, run_dir: Path) -> Iterator[Path]:
    """Make the folder of a store and keep it for this run while the block runs.

    Chunks that the same run left when it was killed are removed; nobody else's file is.

    Raises
    ------
    OutputError
        If it cannot be made, holds chunks of another run, or another run is writing into it.
    """
    run_dir = run_dir.resolve()
    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            if path.resolve() != run_dir:  # that one is kept already
                stack.enter_context(occupied(path, f"give another {setting}=..."))
            taken = next(path.glob(OURS), None)
            owner = path / OWNER
            if taken is not None and (not owner.is_file() or owner.read_text("utf-8") != str(run_dir)):
                raise OutputError(
                    f"{setting}={path}: {taken.name} lies there, a chunk of another run; "
                    "remove the chunks or give another folder"
                )
            _sweep(path)
            owner.write_text(str(run_dir), "utf-8")
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise OutputError(f"{setting}={path}: the folder cannot be made: {why}") from error
        yield path


def clear(folder: Path, made: bool = True) -> None:
    """Delete the chunks, and the folder, if it was made for them and nothing else is in it."""
    _sweep(folder)
    (folder / OWNER).unlink(missing_ok=True)
    if made:
        with suppress(OSError):  # somebody keeps other files there: they are not ours to judge
            folder.rmdir()


def _sweep(folder: Path) -> None:
    for path in [*folder.glob(OURS), *folder.glob(f".{OURS}.*.part")]:
        path.unlink(missing_ok=True)


def _damaged(path: Path, what: str) -> str:
    return f"{path}: a chunk of the training set is damaged: {what}"
