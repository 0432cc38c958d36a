"""Some of the images of a run, as a packed set: for runs on fewer images, whatever they were read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline import config, datasets
from pipeline.files import written

SAMPLE_BYTES = 1 << 28  # of pixels written to time the reading of a packed set


def some(images: datasets.Images, share: float, least: int = 10) -> np.ndarray:
    """Return the indices of about `share` of the images of each class, evenly spaced, intp, ascending.

    Neighbours are often of one group (frames of a track); even spacing keeps every group and thins it out. A class
    keeps `least` images if it has them, so that it can still be divided.
    """
    labels = images.labels
    if labels is None:
        raise ValueError("the classes of these images are not known")
    kept = []
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        count = min(mine.size, max(round(share * mine.size), least))
        kept.append(mine[np.arange(count) * mine.size // count])
    return np.sort(np.concatenate(kept))


def sample(images: datasets.Images | None) -> datasets.Images | None:
    """Return the images, or as many evenly spaced ones as SAMPLE_BYTES of pixels hold."""
    if images is None or images.pixels.size <= SAMPLE_BYTES:
        return images
    return images.subset(some(images, SAMPLE_BYTES / images.pixels.size))


def write(path: Path, images: datasets.Images, pixels: np.ndarray) -> None:
    """Write `pixels` uint8 (n, h, w), with the labels and names of `images`, as the ``pack`` command would."""
    labels = images.labels
    if labels is None:
        raise ValueError("the classes of these images are not known")
    classes, files = np.array(images.class_names), np.array(images.paths)
    with written(path):
        np.savez(path, images=pixels, labels=labels.astype(np.int32), classes=classes, files=files)


def from_packed(data: config.Data, path: Path) -> config.Data:
    """Return the data settings with a packed set as the source."""
    return config.Data(
        name=config.DataName.packed,
        path=str(path),
        max_rejected=data.max_rejected,
        max_pixels=data.max_pixels,
        workers=data.workers,
    )
