"""The reference backend: the original program's scikit-image and statsmodels calls, one image and one fit at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from pipeline.backends.reference import hog, preprocess, wls

__all__ = ["get", "hog", "name", "preprocess", "put", "threads", "wls", "xp"]

name = "reference"
xp = np


def put(array: np.ndarray) -> np.ndarray:
    """Return `array`: host memory is where this backend works."""
    return array


def get(array: np.ndarray) -> np.ndarray:
    """Return `array`: host memory is where this backend works."""
    return array


@contextlib.contextmanager
def threads(count: int) -> Iterator[int]:
    """Limit BLAS to `count` threads (0: as many as it likes); yields `count`."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=count or None):
        yield count
