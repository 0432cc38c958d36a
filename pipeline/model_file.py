"""The file of a trained model.

It is an ``.npz`` archive of plain arrays. One of them, ``header``, is JSON text as bytes: format version, image size,
preprocessing, HoG parameters and layout, reduction, class names, the classifier's parameters, software versions and a
summary of the training. Nothing is pickled.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.archive import UNREADABLE, checksum, opened, reason
from pipeline.errors import ModelError
from pipeline.files import atomic

FORMAT = "hogboost-model"
REDUCE = "reduce."  # begins the names of the reduction's arrays
VERSION = 2  # 2 added the reduction; a model without one is written as 1, for programs that know no other
_REMEDY = "give the model.npz of a train run: model=runs/train/.../model.npz"


def write(path: str | Path, arrays: dict[str, np.ndarray], header: dict[str, Any], version: int) -> None:
    """Write a model file. An older file at `path` stays whole unless the new one is complete on the disk.

    Parameters
    ----------
    arrays : the classifier's under their own names, the reduction's under names that begin with ``REDUCE``
    header : JSON-able
    version : of the format, the lowest that describes the model

    Raises
    ------
    OutputError
        If the file cannot be written (disk full, no permission, ...).
    """
    header = {"format": FORMAT, "version": version, **header}
    header["sha256"] = checksum(arrays, header)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()  # a model is a few megabytes; in memory first, so that the file is one write
    members: dict[str, Any] = {
        name if name.startswith(REDUCE) else f"classifier.{name}": array for name, array in arrays.items()
    }
    np.savez(buffer, header=text, **members)
    with atomic(path, "wb") as stream:
        stream.write(buffer.getvalue())


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays, the classifier's without a prefix, and the header.

    Raises
    ------
    ModelError
        If the file is missing, is no model, is damaged, or has a newer format than this program knows.
    """
    arrays, header = _opened(path)
    if header.get("format") != FORMAT:
        raise ModelError(f"{path} is no model file of hogboost (it has no format mark); {_REMEDY}")
    version = header.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ModelError(
            f"{path} is damaged: its header has no format version (found {version!r}); copy or train it again"
        )
    if version > VERSION:
        raise ModelError(
            f"{path} has model format {version}, this program reads formats up to {VERSION}; update hogboost"
        )
    if header.pop("sha256", None) != checksum(arrays, header):
        raise ModelError(f"{path} is damaged: its checksum does not fit its content; copy or train it again")
    return arrays, header


def _opened(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return what the archive holds: arrays and header, neither checked."""
    if not path.exists():
        raise ModelError(f"{path} does not exist; {_REMEDY}")
    if path.is_dir():
        inside = path / "model.npz"
        hint = f"; did you mean {inside}?" if inside.exists() else f"; {_REMEDY}"
        raise ModelError(f"{path} is a folder, not a model file{hint}")
    if not path.is_file():
        raise ModelError(f"{path} is a device or pipe, not a model file; {_REMEDY}")
    if not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is no model file of hogboost, or was cut short; {_REMEDY}")
    try:
        with opened(path) as archive:
            if not hasattr(archive, "files") or "header" not in archive.files:
                raise ModelError(f"{path} is no model file of hogboost; {_REMEDY}")
            header = json.loads(archive["header"].tobytes())
            names = [name for name in archive.files if name != "header"]
            arrays = {name.removeprefix("classifier."): archive[name] for name in names}
    except UNREADABLE as error:
        raise ModelError(
            f"{path} cannot be read as a model ({reason(error)}); it is damaged or no model file"
        ) from error
    if not isinstance(header, dict):
        raise ModelError(f"{path} is no model file of hogboost; {_REMEDY}")
    return arrays, header
