"""What a data set was when it was read: names, sizes and times of its files, so that a later run can tell a change."""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import ChangedError, DataError

if TYPE_CHECKING:
    from pipeline.datasets.folder import Entry
    from pipeline.datasets.images import Images

_ROWS = 1024  # pictures that are hashed together


@dataclass(frozen=True)
class Stamps:
    """Files, or the digest of pictures that are made.

    Attributes
    ----------
    names : list of str, each encodable as UTF-8
    sizes : int64 (n,), bytes
    times : int64 (n,), of the last change, ns since 1970
    digest : str
        BLAKE2b of pixels and labels where there are no files, else empty.
    """

    names: list[str]
    sizes: np.ndarray
    times: np.ndarray
    digest: str = ""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the stamps as arrays of numbers."""
        text = "\0".join(self.names).encode()
        return {
            "names": np.frombuffer(text, np.uint8),
            "sizes": self.sizes,
            "times": self.times,
            "digest": np.frombuffer(self.digest.encode(), np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Stamps:
        """Return the stamps that :meth:`arrays` described."""
        text, sizes = arrays["names"].tobytes().decode(), arrays["sizes"]
        names = text.split("\0") if len(sizes) else []
        return cls(names, sizes, arrays["times"], arrays["digest"].tobytes().decode())

    @classmethod
    def of_digests(cls, digests: Sequence[bytes], labels: np.ndarray) -> Stamps:
        """Return the stamp of made pictures of which each has its digest."""
        digest = hashlib.blake2b(b"".join(digests), digest_size=16)
        digest.update(labels.astype(np.int64).tobytes())
        nothing = np.zeros(0, dtype=np.int64)
        return cls([], nothing, nothing, digest.hexdigest())

    def compare(self, found: Stamps | None, where: str) -> None:
        """Raise DataError, naming a file, unless `found` is the same; `where` says in words where the data are."""
        if found is None:
            raise DataError(f"{where}: the file has vanished since the run began; bring it back{_REMEDY}")
        if self.digest != found.digest:
            raise DataError(
                f"{where}: the pictures are not those that the run began with; resume it with the versions of this "
                "program and its libraries that began it, or train anew"
            )
        if self._same(found):
            return
        then, now = self._table(), found._table()
        if then == now:  # in another order
            return
        told = [_difference(name, then.get(name), now.get(name)) for name in {**then, **now}]
        changes = [one for one in told if one]
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise DataError(f"{where}: {changes[0]}{more}; bring the files back as they were{_REMEDY}")

    def _same(self, found: Stamps) -> bool:
        """Return whether nothing has changed, by arrays: tables of a million files would take 350 MB."""
        alike = np.array_equal(self.sizes, found.sizes) and np.array_equal(self.times, found.times)
        return alike and self.names == found.names

    def _table(self) -> dict[str, tuple[int, int]]:
        return dict(zip(self.names, zip(self.sizes.tolist(), self.times.tolist(), strict=True), strict=True))


_REMEDY = ", or train anew: a resumed run needs the same images"


def _difference(name: str, then: tuple[int, int] | None, now: tuple[int, int] | None) -> str:
    if now == then:
        return ""
    if now is None:
        return f"{name} has vanished since the run began"
    if then is None:
        return f"{name} is new since the run began"
    if now[0] != then[0]:
        return f"{name} has changed since the run began: {then[0]} bytes then, {now[0]} now"
    return f"{name} has changed since the run began: it is of {_date(then[1])} then, of {_date(now[1])} now"


def _date(nanoseconds: int) -> str:
    return datetime.datetime.fromtimestamp(nanoseconds / 1e9, datetime.UTC).isoformat(" ", "milliseconds")


def stamp_entries(entries: Sequence[Entry]) -> Stamps:
    """Return the stamps of the files of a listing; nothing is asked of the disk again."""
    sizes = np.array([entry.size for entry in entries], dtype=np.int64)
    times = np.array([entry.time for entry in entries], dtype=np.int64)
    return Stamps([entry.name for entry in entries], sizes, times)


def stamp_file(path: Path) -> Stamps:
    """Return the stamp of a single file, a packed set."""
    status = path.stat()
    return Stamps([_name(path)], np.array([status.st_size]), np.array([status.st_mtime_ns]))


def check_same(path: str | Path, size: int, time: int, elsewhere: bool = False) -> None:
    """Find out whether a file is what it was when the set was listed; asked once more when it has been read.

    Parameters
    ----------
    size, time : bytes, and ns since 1970 of the last change, when it was listed
    elsewhere : whether it may have been listed on another machine

    Raises
    ------
    ChangedError
        If it is gone, or of another size or time.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        found, again = f"{path} has vanished since the set was listed", "start the run again"
        if elsewhere:
            found += ", or a worker's machine does not have it"
            again = "all machines need the same files under the same path"
        raise ChangedError(found, again, "bring it back") from error
    if (status.st_size, status.st_mtime_ns) == (size, time):
        return
    then, now = f"{size} bytes then", f"{status.st_size} now"
    if status.st_size == size:
        then, now = f"it is of {_date(time)} then", f"of {_date(status.st_mtime_ns)} now"
    raise ChangedError(
        f"{path} has changed since the set was listed: {then}, {now}",
        "start the run again when nobody writes there",
        "bring it back as it was",
    )


def check_entries(entries: Iterable[Entry], elsewhere: bool = False) -> None:
    """Find out whether all files of a listing are what they were, as :func:`check_same`."""
    for entry in entries:
        check_same(entry.path, entry.size, entry.time, elsewhere)


def check_packed(path: Path, stamps: Stamps | None, elsewhere: bool = False) -> None:
    """Find out whether a packed set is the file that was stamped, as :func:`check_same`."""
    if stamps is not None:
        check_same(path, int(stamps.sizes[0]), int(stamps.times[0]), elsewhere)


def _name(path: Path) -> str:
    return path.name.encode("utf-8", "backslashreplace").decode("utf-8")


def stamp_pictures(images: Images) -> Stamps:
    """Return the digest of made pictures and their labels."""
    digest: Any = hashlib.blake2b(digest_size=16)
    for begin in range(0, len(images), _ROWS):
        digest.update(np.ascontiguousarray(images.pixels[begin : begin + _ROWS]).data)
    if images.labels is not None:
        digest.update(images.labels.astype(np.int64).tobytes())
    nothing = np.zeros(0, dtype=np.int64)
    return Stamps([], nothing, nothing, digest.hexdigest())
