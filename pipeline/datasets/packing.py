"""Decode a set once and keep it as one uncompressed ``.npz``, which later runs map instead of decoding."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, NamedTuple

import numpy as np

from pipeline import config
from pipeline.datasets.images import Progress, Rejected
from pipeline.datasets.source import stream
from pipeline.errors import ConfigError, DataError, OutputError
from pipeline.files import expanded, expanded_new, remedy

_CHUNK = 1024  # pictures in memory at a time
_COPY = 1 << 20  # bytes


class PackReport(NamedTuple):
    """What was packed."""

    path: Path
    n: int
    class_names: tuple[str, ...]  # empty for a set without labels
    rejected: list[Rejected]
    seconds: float  # wall, all of it
    bytes: int  # size of the file
    empty: tuple[str, ...] = ()  # classes all of whose files were rejected


def pack(
    data: config.Data, image: config.Image, out: str | Path, progress: Progress | None = None
) -> PackReport:
    """Decode a folder in parallel and write ``out``: images, files and, where known, labels and classes.

    The file appears whole or not at all: it is written beside ``out`` under another name, flushed to the disk
    and renamed, so a file already there survives a full disk or an interrupt. Memory does not grow with the
    number of pictures; the disk holds them twice for the time of writing.

    Raises
    ------
    ConfigError, DataError
        As ``stream``; DataError also when every file was rejected.
    OutputError
        When ``out`` cannot be written.
    """
    out = expanded_new(out, "out")
    if out.suffix.lower() != ".npz":
        raise ConfigError(f"out={out}: a packed set ends in .npz")
    if out.is_dir() or not out.parent.is_dir():
        what = "is a folder" if out.is_dir() else f"{out.parent} is no folder"
        raise OutputError(f"out={out}: {what}; expected the name of a file in a folder that exists")
    out = Path(os.path.realpath(out))  # a link is followed: what it points to is replaced
    _check_old(out, data)
    begin = perf_counter()
    chunks = stream(data, image, _CHUNK, progress)
    try:
        with tempfile.TemporaryFile(
            dir=out.parent
        ) as raw:  # also shows, before any decoding, that we may write here
            files: list[str] = []
            labels: list[np.ndarray] = []
            rejected: list[Rejected] = []
            names: tuple[str, ...] = ()
            for images, refused, *_ in chunks:
                raw.write(images.pixels.data)
                files += images.paths
                rejected += refused
                names = images.class_names
                if images.labels is not None:
                    labels.append(images.labels.astype(np.int32))
            if not files:
                raise DataError(f"data.path={data.path}: every file was rejected; there is nothing to pack")
            arrays, empty = {"files": np.array(files)}, list[str]()
            if labels:
                counts = np.bincount(np.concatenate(labels), minlength=len(names))
                empty = [name for name, count in zip(names, counts, strict=True) if not count]
                arrays |= {"labels": np.concatenate(labels), "classes": np.array(names)}
            size = _write_npz(out, raw, (len(files), image.height, image.width), arrays)
    except OSError as error:
        why = error.strerror or error
        raise OutputError(f"out={out}: cannot be written: {why}; {remedy(error, 'out=...')}") from error
    return PackReport(out, len(files), names, rejected, perf_counter() - begin, size, tuple(empty))


def _check_old(out: Path, data: config.Data) -> None:
    """Refuse to replace the input, or a file that is no packed set, such as a trained model."""
    if not out.exists():
        return
    if data.path and expanded(data.path).exists() and out.samefile(expanded(data.path)):
        raise OutputError(f"out={out}: is data.path, which is read; give another name")
    if not out.is_file():
        raise OutputError(f"out={out}: a device or pipe; expected the name of a file")
    try:
        with zipfile.ZipFile(out) as archive:
            packed = "images.npy" in archive.namelist()
    except zipfile.BadZipFile:
        packed = out.stat().st_size == 0
    except OSError as error:
        raise OutputError(f"out={out}: cannot be read: {error.strerror or error}") from error
    if not packed:
        raise OutputError(
            f"out={out}: exists and is no packed set (it has no array images); give another name, or remove it"
        )


def _write_npz(out: Path, raw: BinaryIO, shape: tuple[int, int, int], arrays: dict[str, np.ndarray]) -> int:
    """Write the archive beside ``out`` and rename it; return its size in bytes."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                header = {"descr": np.dtype(np.uint8).str, "fortran_order": False, "shape": shape}
                with archive.open("images.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    raw.seek(0)
                    while block := raw.read(_COPY):
                        member.write(block)
                for key, array in arrays.items():
                    with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(part, out)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return size
