"""Preprocessing by scikit-image, one image at a time: the truth the other backends are held to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.backends import preprocess_rules
from pipeline.config import Preprocess, PreprocessName


def require(step: Preprocess) -> None:
    """Return at once: every step runs with the packages that are always installed."""


def apply(pixels: np.ndarray, step: Preprocess) -> np.ndarray:
    """Apply one preprocessing step to each image of a batch.

    Parameters
    ----------
    pixels : ndarray, shape (n, h, w)
        Grayscale images: finite real numbers.
    step : Preprocess
        Which step, and its parameters.

    Returns
    -------
    ndarray, shape (n, h, w)
        The values scikit-image's function of that name gives:

        - none: `pixels` itself;
        - stretch (``rescale_intensity``): the input's dtype; the two percentiles of each image become the
          ends of the dtype's range (0 to 255 for uint8; 0 to 1 for floats, -1 to 1 where the lower percentile
          is negative);
        - gaussian (``preserve_range=True``, edges repeated): float32, in the input's own range;
        - equalize (``equalize_hist``) and clahe (``equalize_adapthist``): float32 from 0 to 1, whatever the
          input. HoG normalises by block, so the range itself hardly matters to it.

        A constant image gives finite values. float16 is computed in float32.

    Raises
    ------
    ValueError
        If the batch is not (n, h, w), not real, not finite, or (clahe) holds floats outside -1 to 1.
    """
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
