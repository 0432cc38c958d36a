"""Packed sets: ``.npz`` (images and, optionally, labels, classes, files) or ``.npy`` (pixels only).

``numpy.load`` reads a member of an ``.npz`` into memory even when it is stored uncompressed. Such a member
lies in one piece in the file, so its pixels are mapped instead: a set larger than memory opens at once.
"""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pipeline import config
from pipeline.archive import DAMAGED, damaged, quiet
from pipeline.datasets.images import Images
from pipeline.datasets.plain import opener
from pipeline.errors import DataError

_LOCAL_HEADER = 30  # bytes before the name in a zip member's local header (PKWARE APPNOTE 4.3.7)


def read_packed(path: Path, image: config.Image, resizable: bool = True) -> Images:
    """Open a packed set; pixels stay on disk where the file allows it.

    Parameters
    ----------
    path : path of an ``.npz`` or ``.npy`` file
    image : the size expected; ``image.fit`` plays no part
    resizable : whether the caller could take another size, which decides what the error advises

    Raises
    ------
    DataError
        When the file cannot be read, or its arrays do not have the stated shapes, types and ranges.
    """
    if not path.is_file():
        found = "not a regular file" if path.exists() else "no such file"
        raise DataError(f"data.path={path}: {found}; expected a packed set, .npz or .npy")
    # NumPy, zipfile and zlib have no common exception for a damaged file; nothing else happens in this call.
    try:
        with quiet():
            arrays = _read_arrays(path)
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(f"data.path={path}: too large for memory; pack it again to have it mapped") from error
    except Exception as error:
        reason = _reason(error)
        raise DataError(f"data.path={path}: cannot be read as a packed set: {reason}") from error
    images = _check(path, arrays)
    height, width = images.pixels.shape[1:]
    if (height, width) != (image.height, image.width):
        again = f"pack the pictures again with image.height={image.height} image.width={image.width}"
        remedy = (
            f"to train, add image.height={height} image.width={width}; or {again}" if resizable else again
        )
        raise DataError(
            f"data.path={path}: holds pictures of {height} rows x {width} columns, but "
            f"{image.height} x {image.width} is asked for: {remedy}"
        )
    return images


def _reason(error: Exception) -> str:
    """Return in our own words why a file cannot be read: NumPy would advise to unpickle it."""
    text = " ".join(str(error).split())
    if damaged(error):
        return f"{DAMAGED}; copy or pack it again"
    if "pickle" in text.lower() or "object arrays" in text.lower() or "python objects" in text.lower():
        return "it holds Python objects, which are never read; store arrays of numbers and text"
    short = ("mmap length", "EOF", "cut short", "reshape", "truncated", "No data left")
    if isinstance(error, EOFError) or any(word in text for word in short):
        return f"it is cut short ({text[:120]}); copy or pack it again"
    return text[:200]


def _check_start(path: Path, file: BinaryIO) -> None:
    """Refuse a file that does not begin as a packed set, before NumPy takes it for a pickle."""
    file.seek(0)
    head = file.read(6)
    if head == np.lib.format.MAGIC_PREFIX:
        return
    if head[:1] == b"\x80":
        raise DataError(f"data.path={path}: a Python pickle, which is never read; store it with numpy.savez")
    raise DataError(f"data.path={path}: cut short or not an .npz or .npy file; copy or pack it again")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    with open(path, "rb", opener=opener) as file:  # once: another file may come into its place
        if not zipfile.is_zipfile(file):
            _check_start(path, file)
            file.seek(0)
            return {"images": _map(path, file, os.fstat(file.fileno()).st_size)}
        return _read_archive(path, file)


def _read_archive(path: Path, file: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if "images" not in members:
        raise DataError(f"data.path={path}: {_something_else(set(members))}")
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        wanted = [key for key in ("labels", "classes", "files") if key in members]
        arrays: dict[str, np.ndarray] = {key: archive[key] for key in wanted}
        mapped = _map_member(path, file, members["images"])
        arrays["images"] = archive["images"] if mapped is None else mapped
    return arrays


def _something_else(members: set[str]) -> str:
    """Return what an archive without pixels is, and what to do."""
    if "header" in members:
        if any(name.startswith("classifier.") for name in members):
            return (
                "a model, not images: give it as model=... to predict or evaluate, and in data.path= the folder or "
                "packed set of the images"
            )
        if any(name.startswith("array.") for name in members):
            return (
                "a checkpoint of a training run, not images: resume=RUN_FOLDER goes on with that run; data.path= is "
                "for a folder of images or a packed set"
            )
    found = sorted(members)
    shown = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
    return (
        f"no packed set: it holds no array named images (found: {shown or 'nothing'}); "
        "python -m pipeline pack data.path=FOLDER out=set.npz makes one of a folder of images"
    )


def _map_member(path: Path, file: BinaryIO, member: zipfile.ZipInfo) -> np.ndarray | None:
    """Map an uncompressed ``.npy`` member of an ``.npz``; None where it is compressed."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:  # bit 0: encrypted
        return None
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    start = member.header_offset + _LOCAL_HEADER + name_length + extra_length
    file.seek(start)
    return _map(path, file, start + member.file_size)


def _map(path: Path, file: BinaryIO, stop: int) -> np.ndarray:
    """Map the array that begins where `file` stands and ends before byte `stop`."""
    begin = file.tell()
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(file)
    offset = file.tell()
    if dtype.hasobject:
        raise DataError(f"data.path={path}: images is an array of Python objects, which is never read")
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if offset + size > stop:
        raise DataError(
            f"data.path={path}: it is cut short (truncated): {stop - begin} bytes where images needs {size}; "
            "copy or pack it again"
        )
    if size == 0:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", offset, shape, "F" if fortran_order else "C")


def _check(path: Path, arrays: dict[str, np.ndarray]) -> Images:
    pixels = arrays["images"]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or 0 in pixels.shape:
        raise DataError(
            f"data.path={path}: images is {pixels.dtype} {pixels.shape}; "
            "expected uint8 (n, height, width), none of them 0"
        )
    n = len(pixels)
    if not pixels.flags.c_contiguous:
        pixels = np.ascontiguousarray(pixels)
    files = arrays.get("files")
    if files is None:
        paths = [f"{path.name}[{i}]" for i in range(n)]
    else:
        if files.shape != (n,) or files.dtype.kind not in "US":
            raise DataError(f"data.path={path}: files is {files.dtype} {files.shape}; expected text ({n},)")
        paths = [str(name) for name in files.astype(str)]
    labels, class_names = _check_labels(path, arrays, n)
    return Images(pixels, labels, class_names, paths, made=config.DataName.packed)


def _check_labels(
    path: Path, arrays: dict[str, np.ndarray], n: int
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    labels, classes = arrays.get("labels"), arrays.get("classes")
    text = labels is not None and labels.dtype.kind in "US"
    if labels is None:
        return None, ()
    if labels.shape != (n,) or labels.dtype.kind not in "iuUS":
        raise DataError(
            f"data.path={path}: labels is {labels.dtype} {labels.shape}; expected integers or text ({n},)"
        )
    if classes is None:
        if labels.dtype.kind in "iu" and int(labels.min()) < 0:
            raise DataError(
                f"data.path={path}: labels from {labels.min()}; expected 0 or more (leave pictures without a "
                "class out)"
            )
        found, codes = np.unique(labels.astype(str) if text else labels, return_inverse=True)
        return codes.astype(np.intp), _names(path, found)
    if not classes.size:
        raise DataError(f"data.path={path}: classes is empty; name the classes, or leave the array out")
    if classes.ndim != 1 or classes.dtype.kind not in "iuUS":
        raise DataError(
            f"data.path={path}: classes is {classes.dtype} {classes.shape}; expected text (classes,)"
        )
    names = _names(path, classes)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"data.path={path}: classes holds {twice!r} twice; expected distinct names")
    if text:
        place = {name: i for i, name in enumerate(names)}
        unknown = sorted(set(labels.astype(str).tolist()) - set(place))
        if unknown:
            raise DataError(
                f"data.path={path}: labels holds {unknown[0]!r}, which is not among classes "
                f"({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}); add it there"
            )
        return np.array([place[name] for name in labels.astype(str).tolist()], dtype=np.intp), names
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(names):
        raise DataError(
            f"data.path={path}: labels from {low} to {high} for {len(names)} classes; "
            f"expected 0 to {len(names) - 1}"
        )
    return labels.astype(np.intp), names


def _names(path: Path, found: np.ndarray) -> tuple[str, ...]:
    names = tuple(found.astype(str).tolist())  # bytes of ASCII become text, numbers too
    if not all(name.strip() for name in names):
        raise DataError(f"data.path={path}: a class has an empty name; name every class")
    return names
