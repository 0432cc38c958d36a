"""A folder of chunks: rows of one matrix on disk, written once, read one chunk at a time, each with a checksum."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from pipeline.errors import ChangedError, OutputError
from pipeline.files import atomic, occupied, remedy


class Chunk(NamedTuple):
    """One file, as it was when it was written."""

    path: Path
    first: int  # number of its first row
    rows: int
    size: int  # bytes
    changed: int  # nanoseconds of its last change
    digest: bytes  # BLAKE2b, 128 bits


class Opened:
    """A chunk that is being read, by several threads if need be: each has a file of its own."""

    def __init__(self, chunk: Chunk, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.chunk, self.shape, self.dtype = chunk, shape, dtype
        self._each = math.prod(shape[1:]) * dtype.itemsize
        self._mine = threading.local()
        self._files: list[BinaryIO] = []

    def read(self, begin: int, end: int, out: np.ndarray) -> np.ndarray:
        """Return `out`, of the shape (end - begin, ...), filled with the groups from `begin` to `end`.

        Raises
        ------
        ChangedError
            If the file does not hold them any more.
        """
        try:
            if not hasattr(self._mine, "file"):
                self._mine.file = open(self.chunk.path, "rb", buffering=0)  # noqa: SIM115  closed by close
                self._files.append(self._mine.file)
            self._mine.file.seek(begin * self._each)
            got, memory = 0, out.data.cast("B")
            while got < len(memory):
                more = self._mine.file.readinto(memory[got:])
                if not more:
                    raise ChangedError(_damaged(self.chunk.path, "it ends before its last image"))
                got += more
        except OSError as error:
            raise ChangedError(_damaged(self.chunk.path, f"it cannot be read ({error.strerror})")) from error
        return out

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class Store:
    """Rows of `width` numbers in files of about `chunk_rows` rows each.

    Parameters
    ----------
    folder : made if it is missing; files of this name that lie there are overwritten
    width : numbers in a row
    dtype : their type
    chunk_rows : rows from which a file is full
    lanes : rows that lie together in a file as a group
    grouped : makes of rows (m, width) what a file holds of them, groups (m / lanes, ...); None: rows as they are
    """

    def __init__(
        self,
        folder: Path,
        width: int,
        dtype: np.dtype,
        chunk_rows: int,
        lanes: int = 1,
        grouped: Callable[[np.ndarray], np.ndarray] = np.ascontiguousarray,
    ) -> None:
        self.folder, self.width, self.dtype = folder, width, np.dtype(dtype)
        self.chunk_rows, self.lanes, self._grouped = max(1, chunk_rows), lanes, grouped
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
            for part in self._in_groups():
                data = self._grouped(part).data.cast("B")
                digest.update(data)
                stream.write(data)
        self._waiting = []
        status = path.stat()
        self.chunks.append(Chunk(path, first, rows, status.st_size, status.st_mtime_ns, digest.digest()))

    def _in_groups(self) -> Iterator[np.ndarray]:
        """Yield the rows that wait, in whole groups; what is left over in one piece begins the next."""
        rest: np.ndarray | None = None
        for rows in self._waiting:
            part = rows if rest is None else np.concatenate([rest, rows])
            whole = len(part) // self.lanes * self.lanes
            if whole:
                yield part[:whole]
            rest = part[whole:] if whole < len(part) else None
        if rest is not None:
            yield rest

    @contextmanager
    def opened(self, number: int) -> Iterator[Opened]:
        """Open chunk `number` for reading, (groups, width, lanes), while the block runs.

        Raises
        ------
        ChangedError
            If the file is gone or is no longer what was written: by size and time at every opening, by checksum at
            the first.
        """
        chunk = self.chunks[number]
        self._check(chunk)
        opened = Opened(chunk, (-(-chunk.rows // self.lanes), self.width, self.lanes), self.dtype)
        try:
            if chunk.path not in self._verified:
                if _digest(opened) != chunk.digest:
                    raise ChangedError(_damaged(chunk.path, "its checksum is not that of what was written"))
                self._verified.add(chunk.path)
            yield opened
        finally:
            opened.close()

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


def _digest(opened: Opened) -> bytes:
    """Return the checksum of a chunk, of which 1 MB or a group is in memory."""
    groups, width, lanes = opened.shape
    step = max(1, (1 << 20) // (width * lanes * opened.dtype.itemsize))
    found, buffer = hashlib.blake2b(digest_size=16), np.empty((step, width, lanes), opened.dtype)
    for begin in range(0, groups, step):
        end = min(groups, begin + step)
        found.update(opened.read(begin, end, buffer[: end - begin]).data)
    return found.digest()


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
            path.mkdir(exist_ok=True)
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
            what = f"; {remedy(error, f'{setting}=...')}" if isinstance(error, OSError) else ""
            raise OutputError(f"{setting}={path}: the folder cannot be made: {why}{what}") from error
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
