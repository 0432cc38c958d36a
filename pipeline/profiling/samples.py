"""A small part of a data set, as a data set of its own: what the measuring runs of ``plan`` read."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipeline import config, datasets
from pipeline.config import DataName
from pipeline.datasets.folder import scan
from pipeline.datasets.packed import read_packed
from pipeline.datasets.whereabouts import resolve
from pipeline.errors import DataError
from pipeline.files import written

FEWEST = 10  # images of a class in a sample, if it has so many: every class must be on both sides of a split


@dataclass(frozen=True)
class Source:
    """A data set before it is read.

    Attributes
    ----------
    kind : "folder", "packed", "digits" or "synthetic"
    images, classes : how many there are
    file_bytes : bytes of all files read
    """

    kind: str
    images: int
    classes: int
    file_bytes: int = 0


def look(data: config.Data, image: config.Image) -> Source:
    """Return what there is to read, without decoding anything."""
    if data.name is DataName.synthetic:
        return Source("synthetic", data.n, data.classes)
    kind, path = resolve(data)
    if path is None or kind is None:  # a single picture is refused there
        loaded = datasets.load(data, image)
        return Source("digits", len(loaded.images), len(loaded.images.class_names))
    if kind is DataName.folder:
        listing = scan(path, labelled=True)
        entries = [entry for entry in listing.entries if entry.label >= 0]
        size = sum(Path(entry.path).stat().st_size for entry in entries)
        return Source("folder", len(entries), len(listing.class_names), size)
    images = read_packed(path, image)
    return Source("packed", len(images), len(images.class_names), path.stat().st_size)


def take(data: config.Data, image: config.Image, count: int, folder: Path) -> config.Data:
    """Return settings of a part of about `count` images, spread evenly over the set; files go below `folder`.

    Parameters
    ----------
    folder : an empty folder of the caller; packed sets and folders of pictures are copied into it in part

    Raises
    ------
    DataError
        If the set has no labels.
    """
    if data.name is DataName.synthetic:
        return replace(data, n=count)
    if data.name is DataName.digits or data.path is None:
        return data
    path = Path(data.path).expanduser()
    return (_files if path.is_dir() else _packed)(path, data, image, count, folder)


def _spread(places: np.ndarray, count: int) -> np.ndarray:
    """Return `count` of the places, evenly spread, in order."""
    return places[np.linspace(0, len(places) - 1, min(count, len(places))).round().astype(int)]


def _chosen(labels: np.ndarray, count: int) -> np.ndarray:
    share = count / max(len(labels), 1)
    picked = [
        _spread(places, max(FEWEST, round(share * len(places))))
        for places in (np.flatnonzero(labels == label) for label in np.unique(labels))
    ]
    return np.sort(np.concatenate(picked))


def _files(path: Path, data: config.Data, image: config.Image, count: int, folder: Path) -> config.Data:
    entries = [entry for entry in scan(path).entries if entry.label >= 0]
    if not entries:
        raise DataError(f"data.path={path} has no labels; sort the images into one subfolder per class")
    if count >= len(entries):
        return data
    for i in _chosen(np.array([entry.label for entry in entries]), count):
        target = folder / entries[i].name
        with written(target, "TMPDIR"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(entries[i].path, target)
    return replace(data, path=str(folder))


def _packed(path: Path, data: config.Data, image: config.Image, count: int, folder: Path) -> config.Data:
    images = read_packed(path, image)
    if images.labels is None:
        raise DataError(f"data.path={path} has no labels; pack it again from one subfolder per class")
    if count >= len(images):
        return data
    index = _chosen(images.labels, count)
    target = folder / "sample.npz"
    arrays = {
        "images": images.pixels[index],
        "labels": images.labels[index],
        "classes": np.array(images.class_names),
        "files": np.array([images.paths[i] for i in index]),
    }
    with written(target, "TMPDIR"):
        np.savez(target, **arrays)
    return replace(data, path=str(target))
