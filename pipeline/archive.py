"""Arrays and a JSON header in one ``.npz`` file with a checksum; nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.files import atomic

# What NumPy, zipfile and zlib raise for a file that is damaged, cut short or something else. NumPy reads the header of
# an array, a line of Python's syntax, before the checksum of the archive is looked at.
UNREADABLE = (
    OSError,
    SyntaxError,
    tokenize.TokenError,
    OverflowError,
    RecursionError,
    EOFError,
    ValueError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


DAMAGED = "the description of an array in it is damaged"
_quiet = threading.RLock()


@contextmanager
def quiet() -> Iterator[None]:
    """Let NumPy make no remarks on the headers of old or damaged files.

    One thread at a time: what Python keeps of its warnings is the process's.
    """
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def opened(file: Any) -> Iterator[Any]:
    """Let NumPy read an archive whose arrays are no larger than their members.

    Else a damaged number in a header would ask for more memory than there is.
    """
    with quiet(), np.load(file, allow_pickle=False) as archive:
        for info in archive.zip.infolist() if hasattr(archive, "zip") else ():
            with archive.zip.open(info) as member:
                _check_size(member, info.file_size)
        yield archive


def _check_size(member: Any, size: int) -> None:
    if np.lib.format.read_magic(member) == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > size:
        raise ValueError(DAMAGED)


def damaged(error: BaseException) -> bool:
    """Tell whether the header of an array could not be understood."""
    odd = isinstance(error, SyntaxError | tokenize.TokenError | OverflowError | RecursionError)
    return odd or "Cannot parse header" in str(error)


def reason(error: BaseException) -> str:
    """Return in one short line why a file cannot be read; NumPy would advise to unpickle it."""
    text = " ".join(str(error).split())
    if damaged(error):
        return DAMAGED
    return "it holds Python objects, which are never read" if "pickle" in text else text[:120]


def checksum(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    """Return the SHA-256 of all arrays (name, type, shape, values) and of the header, in hexadecimal."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        text = array.dtype.kind in "US"  # whose elements may be of no bytes at all
        digest.update(array.tobytes() if text else array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write the arrays and the header; an older file at `path` stays whole unless the new one is complete.

    Raises
    ------
    OutputError
        If the file cannot be written (disk full, no permission, ...).
    """
    header = {**header, "sha256": checksum(arrays, header)}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    members: dict[str, Any] = {f"array.{name}": array for name, array in arrays.items()}
    with atomic(path, "wb") as stream:
        try:
            np.savez(stream, header=text, **members)
        except ValueError as error:  # zipfile, when it closes what it could not write to its end
            raise _system_error(error) or error from error


def _system_error(error: BaseException | None) -> OSError | None:
    """Return the error of the system in whose handling `error` came up, if there is one."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the header of a file that :func:`write` wrote.

    Raises
    ------
    One of UNREADABLE
        If the file is damaged, cut short, something else, or its checksum does not fit its content.
    """
    with opened(path) as archive:
        header = json.loads(archive["header"].tobytes())
        arrays = {name.removeprefix("array."): archive[name] for name in archive.files if name != "header"}
    if not isinstance(header, dict) or header.pop("sha256", None) != checksum(arrays, header):
        raise ValueError("its checksum does not fit its content")
    return arrays, header
