"""The reference backend: the original program's scikit-image and statsmodels calls, one image and one fit at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from pipeline.backends.host import first_not_finite, get, holds, in_room, map_images, put, resident, rows
from pipeline.backends.reference import hog, pca, preprocess, wls

__all__ = [
    "clock",
    "first_not_finite",
    "gather_meanwhile",
    "get",
    "hog",
    "holds",
    "in_room",
    "map_images",
    "name",
    "pca",
    "preprocess",
    "put",
    "resident",
    "rows",
    "scores",
    "threads",
    "wls",
    "xp",
]

name = "reference"
xp = np
clock = None  # its work takes the time that passes here
scores = None  # the loop's own array code serves
gather_meanwhile = None  # one thread does everything


@contextlib.contextmanager
def threads(count: int) -> Iterator[int]:
    """Limit BLAS to `count` threads (0: as many as it likes); yields `count`."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=count or None):
        yield count
