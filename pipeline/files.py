"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipeline.errors import OutputError

# The disk, the quota or the limit on files is used up.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def expanded(path: str | Path) -> Path:
    """Return `path` with a leading ``~`` or ``~user`` as the home folder; where there is none, as it stands."""
    if not str(path).startswith("~"):  # ./~user is no home folder, and Path makes ~user of it
        return Path(path)
    try:
        return Path(path).expanduser()
    except RuntimeError:  # no such user, or a file whose name begins with a tilde
        return Path(path)


def expanded_new(path: str | Path, setting: str, folder: bool = False) -> Path:
    """Return what :func:`expanded` does of a file or `folder` to make: none named ``~user``, in a folder that exists.

    Raises
    ------
    OutputError
        If `path` begins with a ``~`` that stands for no home folder, and there is no folder of this name; or if there
        is nothing where it is to lie: a misspelt folder is not made.
    """
    found = expanded(path)
    first = found.parts[0] if str(path).startswith("~") else ""
    if first.startswith("~") and (folder or len(found.parts) > 1) and not Path(first).is_dir():
        raise OutputError(
            f"{setting}={path}: {first} is no user of this machine; give the folder in full, or ./{first} for one "
            "of this name"
        )
    what = "a folder" if folder else "a file"
    try:
        there = found.parent.exists()
    except OSError as error:  # the name is too long, or a folder on the way may not be entered
        raise OutputError(
            f"{setting}={path}: {found.parent} cannot be looked at ({error.strerror}); give {what} in a folder that can"
        ) from error
    if not there:
        raise OutputError(
            f"{setting}={path}: there is no folder {found.parent}; give {what} in one that exists, or make it first"
        )
    return found


@contextmanager
def occupied(folder: Path, advice: str = "give another hydra.run.dir=...") -> Iterator[None]:
    """Keep a folder for this process while the block runs; the system frees it when the process ends, however.

    `advice` is what the message says to do if another process keeps it.

    Raises
    ------
    OutputError
        If another process keeps it. Where the system has no such locks, nothing is kept.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(f"another run is writing into {folder} at this moment; {advice}") from error
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.EBADF, errno.EINVAL):
                raise  # some network file systems have no locks, or none for folders
        yield
    finally:
        os.close(descriptor)


def settle(folder: str | Path) -> None:
    """Make a folder survive a power failure, and those above it: another's code made them, and flushed none.

    Raises
    ------
    OutputError
        If the disk refuses.
    """
    try:
        for above in Path(folder).absolute().parents:
            if not os.access(above, os.W_OK):  # nothing was made there
                return
            _sync_folder(above)
    except OSError as error:
        raise OutputError(f"{folder} cannot be flushed to the disk: {error.strerror or error}") from error


def remedy(error: OSError, another: str = "") -> str:
    """Return what to do about a file that could not be written; `another` says how to give another folder."""
    elsewhere = f", or give another folder with {another}" if another else ""
    if error.errno == errno.EFBIG:
        return f"raise the limit on the size of files (ulimit -f){elsewhere}"
    if error.errno in FULL:
        return f"make room there{elsewhere}"
    return f"look at its rights and at the disk{elsewhere}"


@contextmanager
def written(path: str | Path, another: str = "hydra.run.dir=...") -> Iterator[None]:
    """Say which file it is that the block fails to write, and what to do; see :func:`remedy`.

    Raises
    ------
    OutputError
        In place of an OSError of the block.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}; {remedy(error, another)}"
        ) from error


@contextmanager
def atomic(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file that becomes `path` when the block ends well, and vanishes when it does not.

    The temporary file lies in the folder of `path`, so the last step is a rename, and an old file at `path`
    stays whole until then. Data, rename and new folders are flushed to the disk. A link is followed: what it points
    to is replaced, not the link. A device or pipe is written straight into, since a rename would replace it.

    Parameters
    ----------
    path : str or Path
        Missing parent folders are made.
    mode : {"w", "wb"}
        Text is UTF-8; file names that are not UTF-8 keep their bytes.

    Raises
    ------
    OutputError
        If the file cannot be written (no permission, disk full, ...): then an older one is unchanged, unless the
        message says that the new one is there and may not be on the disk yet.
    """
    path = Path(path)
    straight = path.exists() and not path.is_dir() and (not path.is_file() or path.parts[:2] == ("/", "dev"))
    if path.is_symlink() and not straight:
        path = Path(os.path.realpath(path))
    text: dict[str, Any] = {}
    if "b" not in mode:
        text = {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}
    temporary, replaced = None, False
    try:
        _check_place(path)
        if straight:
            with path.open(mode, **text) as stream:
                yield stream
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        temporary = Path(name)
        with os.fdopen(handle, mode, **text) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        temporary, replaced = None, True
        _sync_folder(path.parent)
    except OSError as error:
        raise _not_written(path, error, replaced) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError, replaced: bool) -> OutputError:
    why = error.strerror or error
    if not replaced:
        what = f"; {remedy(error)}" if error.errno in FULL else ""
        older = "; the older file there is unchanged" if path.is_file() else ""
        return OutputError(f"{path} cannot be written: {why}{what}{older}")
    return OutputError(
        f"{path} is written, but its folder cannot be flushed to the disk: {why}; a power failure may take it: look at "
        "the disk, and copy it elsewhere"
    )


def _check_place(path: Path) -> None:
    """Make the folder of `path`, and find out now, not after the work, that the file cannot be written."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "there is a folder of this name")
    blocking = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
    if blocking is not None:
        raise NotADirectoryError(errno.ENOTDIR, f"{blocking} is not a folder")
    new = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in new:  # the name of each lies in the one above
        _sync_folder(folder.parent)


def _told_mask() -> int | None:
    """Return the mask for new files where the system tells it without its being set."""
    try:
        with open("/proc/self/status", "rb") as stream:  # Linux
            found = re.search(rb"^Umask:\s*([0-7]+)$", stream.read(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1], 8)


def _set_mask() -> int:
    mask = os.umask(0o077)  # should anybody make a file at this moment, others cannot read it
    os.umask(mask)
    return mask


# Elsewhere it is set to be read: once, when this is imported, since later other threads make files, too.
_FIRST_MASK = _set_mask() if _told_mask() is None else 0o077


def _umask() -> int:
    found = _told_mask()
    return _FIRST_MASK if found is None else found


def _sync_folder(folder: Path) -> None:
    """Make what was renamed or made in a folder survive a power failure.

    Windows cannot open a folder and needs no such step. A folder that may be written and not read cannot be asked for
    it, and some file systems know none.
    """
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)
