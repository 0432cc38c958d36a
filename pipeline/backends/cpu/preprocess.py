"""Preprocessing of the whole batch: tables for 8-bit images, SciPy's filter, scikit-image for the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.backends import preprocess_rules
from pipeline.config import Preprocess, PreprocessName

CHUNK = 64  # images per step: work space of a few MB at most for small images


def require(step: Preprocess) -> None:
    """Return at once: every step runs with the packages that are always installed."""


def apply(pixels: np.ndarray, step: Preprocess) -> np.ndarray:
    """Apply one step to each image (n, h, w): see :class:`pipeline.backends.protocol.PreprocessModule`."""
    preprocess_rules.check(pixels, step)
    if step.name is PreprocessName.none:
        return pixels
    function = _FUNCTIONS[step.name]
    out = np.empty(pixels.shape, dtype=preprocess_rules.result_type(pixels.dtype, step))
    for first in range(0, len(pixels), CHUNK):
        part = slice(first, first + CHUNK)
        function(preprocess_rules.widen(pixels[part]), step, out[part])
    return out


def _stretch(images: np.ndarray, step: Preprocess, out: np.ndarray) -> None:
    from skimage.exposure import rescale_intensity

    if images.dtype != np.uint8 or not images.size:
        for image, target in zip(images, out, strict=True):
            low, high = np.percentile(image, step.percentiles)
            target[:] = rescale_intensity(image, in_range=(low, high), out_range="dtype")
        return
    counts = _count(images)
    low, high = (_percentile(counts, q) for q in step.percentiles)
    levels = np.clip(np.arange(256.0), low[:, None], high[:, None])
    flat = low == high
    span = np.where(flat, 1.0, high - low)[:, None]
    # in scikit-image's order of operations: the cut to whole numbers depends on the last bit
    tables = ((levels - low[:, None]) / span * 255.0).astype(np.uint8)
    tables[flat] = levels[flat].astype(np.uint8)
    _look_up(images, tables, out)


def _gaussian(images: np.ndarray, step: Preprocess, out: np.ndarray) -> None:
    from scipy.ndimage import gaussian_filter

    working = np.float32 if images.dtype.kind == "f" and images.dtype.itemsize <= 4 else np.float64
    sigma = (0.0, step.sigma, step.sigma)  # no smoothing from one image to the next
    out[:] = gaussian_filter(images.astype(working, copy=False), sigma, mode="nearest", truncate=4.0)


def _equalize(images: np.ndarray, step: Preprocess, out: np.ndarray) -> None:
    from skimage.exposure import equalize_hist

    if images.dtype != np.uint8 or not images.size:
        for image, target in zip(images, out, strict=True):
            target[:] = equalize_hist(image, nbins=step.nbins)
        return
    # one bin per level, as scikit-image does for integers: the new level is the share of pixels up to it
    shares = np.cumsum(_count(images), axis=1) / float(images[0].size)
    _look_up(images, shares.astype(np.float32), out)


def _clahe(images: np.ndarray, step: Preprocess, out: np.ndarray) -> None:
    from skimage.exposure import equalize_adapthist

    for image, target in zip(images, out, strict=True):
        target[:] = equalize_adapthist(
            image, kernel_size=step.kernel_size, clip_limit=step.clip_limit, nbins=step.nbins
        )


def _count(images: np.ndarray) -> np.ndarray:
    """Return how often each level occurs in each 8-bit image (n, h, w): int64 (n, 256)."""
    return np.stack([np.bincount(image.ravel(), minlength=256) for image in images])


def _percentile(counts: np.ndarray, q: float) -> np.ndarray:
    """Return the q-th percentile of each row's levels, linearly interpolated as NumPy does: float64 (n,)."""
    below = np.cumsum(counts, axis=1)
    position = q / 100.0 * (below[0, -1] - 1)
    share = position - np.floor(position)
    low, high = ((below > at).argmax(axis=1).astype(float) for at in (np.floor(position), np.ceil(position)))
    step = high - low
    return low + step * share if share < 0.5 else high - step * (1.0 - share)


def _look_up(images: np.ndarray, tables: np.ndarray, out: np.ndarray) -> None:
    """Write tables[i, images[i]] to out[i] for each image; tables (n, 256)."""
    for image, table, target in zip(images, tables, out, strict=True):
        np.take(table, image, out=target, mode="clip")


_FUNCTIONS: dict[PreprocessName, Callable[[np.ndarray, Preprocess, np.ndarray], None]] = {
    PreprocessName.stretch: _stretch,
    PreprocessName.gaussian: _gaussian,
    PreprocessName.equalize: _equalize,
    PreprocessName.clahe: _clahe,
}
