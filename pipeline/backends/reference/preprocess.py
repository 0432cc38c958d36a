"""Preprocessing by scikit-image, one image at a time: the truth the other backends are held to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.backends import preprocess_rules
from pipeline.config import Preprocess, PreprocessName


def require(step: Preprocess) -> None:
    """Return at once: every step runs with the packages that are always installed."""


def apply(pixels: np.ndarray, step: Preprocess) -> np.ndarray:
    """Apply one step to each image (n, h, w): see :class:`pipeline.backends.protocol.PreprocessModule`."""
    preprocess_rules.check(pixels, step)
    if step.name is PreprocessName.none:
        return pixels
    function = _FUNCTIONS[step.name]
    out = np.empty(pixels.shape, dtype=preprocess_rules.result_type(pixels.dtype, step))
    for image, target in zip(pixels, out, strict=True):
        target[:] = function(preprocess_rules.widen(image), step)
    return out


def _stretch(image: np.ndarray, step: Preprocess) -> np.ndarray:
    from skimage.exposure import rescale_intensity

    low, high = np.percentile(image, step.percentiles)
    return rescale_intensity(image, in_range=(low, high), out_range="dtype")


def _gaussian(image: np.ndarray, step: Preprocess) -> np.ndarray:
    from skimage.filters import gaussian

    return gaussian(image, sigma=step.sigma, preserve_range=True)


def _equalize(image: np.ndarray, step: Preprocess) -> np.ndarray:
    from skimage.exposure import equalize_hist

    return equalize_hist(image, nbins=step.nbins)


def _clahe(image: np.ndarray, step: Preprocess) -> np.ndarray:
    from skimage.exposure import equalize_adapthist

    return equalize_adapthist(
        image, kernel_size=step.kernel_size, clip_limit=step.clip_limit, nbins=step.nbins
    )


_FUNCTIONS: dict[PreprocessName, Callable[[np.ndarray, Preprocess], np.ndarray]] = {
    PreprocessName.stretch: _stretch,
    PreprocessName.gaussian: _gaussian,
    PreprocessName.equalize: _equalize,
    PreprocessName.clahe: _clahe,
}
