"""Preprocessing on the device: cuCIM's filters and histograms, tables for 8-bit images.

cuCIM works on one image at a time and answers questions of size and range on the host. For 8-bit images, all the
pipeline reads, a whole chunk goes together instead: stretch and equalize by a table per image, a dozen launches, and
clahe by ``clahe.py``. They need no cuCIM. gaussian smooths a whole chunk in one call of it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from pipeline import installing
from pipeline.backends import preprocess_rules
from pipeline.backends.gpu import clahe, memory
from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import BackendError

PIXEL_BYTES = 40  # work space per pixel: float64 copies, their filtered forms, indices of the tables
_CUCIM = {
    "cucim.skimage.exposure": ("rescale_intensity", "equalize_hist", "equalize_adapthist"),
    "cucim.skimage.filters": ("gaussian",),
}
NEEDS_CUCIM = (PreprocessName.gaussian,)  # for 8-bit images


def require(step: Preprocess) -> None:
    """Raise BackendError if the step needs cuCIM for 8-bit images and it cannot be used."""
    if step.name in NEEDS_CUCIM:
        _check_cucim(step)


def _check_cucim(step: Preprocess) -> None:
    if importlib.util.find_spec("cucim") is None:
        major = int(cp.cuda.runtime.runtimeGetVersion()) // 1000
        raise BackendError(
            f"preprocess={step.name.value} on backend=gpu needs cuCIM, which is not installed: "
            f"{installing.command(f'cucim-cu{major}')}; or use preprocess=none or backend=cpu"
        )
    try:
        for module, names in _CUCIM.items():
            found = importlib.import_module(module)
            for name in names:
                getattr(found, name)  # cuCIM loads its parts when they are asked for
    except Exception as error:  # whatever a broken installation raises, the user is told in one line
        raise BackendError(
            f"preprocess={step.name.value} on backend=gpu needs cuCIM, which is installed but cannot be imported "
            f"({' '.join(str(error).split())}): reinstall it; or use preprocess=none or backend=cpu"
        ) from error


def apply(pixels: Any, step: Preprocess) -> Any:
    """Apply one preprocessing step to each image of a batch on the device.

    Parameters
    ----------
    pixels : cupy.ndarray, shape (n, h, w)
        Grayscale images: finite real numbers.
    step : Preprocess
        Which step, and its parameters.

    Returns
    -------
    cupy.ndarray, shape (n, h, w)
        The values and types of :meth:`pipeline.backends.protocol.PreprocessModule.apply`, to 1e-5 of their range.

    Raises
    ------
    ValueError
        If the batch is not (n, h, w), not real, not finite, or (clahe) holds floats outside -1 to 1.
    ConfigError
        If clahe's kernel is larger than the images.
    BackendError
        If cuCIM is needed and missing.
    """
    _check(pixels, step)
    if step.name is PreprocessName.none:
        return pixels
    together = pixels.dtype == np.uint8 and step.name in _TOGETHER
    if not together and pixels.size:
        _check_cucim(step)
    out = cp.empty(pixels.shape, dtype=preprocess_rules.result_type(pixels.dtype, step))
    if not out.size:
        return out

    def work(part: slice) -> None:
        images = preprocess_rules.widen(pixels[part])
        out[part] = _TOGETHER[step.name](images, step) if together else _FILTERS[step.name](images, step)

    per_image = PIXEL_BYTES * out[0].size
    if together and step.name is PreprocessName.clahe:
        per_image = 2 * per_image + clahe.bytes_needed(pixels.shape[1:], step)
    memory.in_chunks(len(pixels), per_image, work, "images")
    return out


def _check(pixels: Any, step: Preprocess) -> None:
    """Apply the rules of every backend. Of the pixels they need only the range: two numbers come home."""
    if preprocess_rules.check_kind(pixels.shape, pixels.dtype, step):
        low, high = cp.asnumpy(cp.stack([pixels.min(), pixels.max()]))
        preprocess_rules.check_range(low, high, step)


# ---- tables for 8-bit images ----


def _count(images: Any) -> Any:
    """Return how often each level occurs in each 8-bit image: int64 (n, 256). Whole numbers: order is no matter."""
    n = len(images)
    image = cp.arange(n, dtype=cp.int64)[:, None] * 256
    levels = image + images.reshape(n, -1).astype(cp.int64)
    return cp.bincount(levels.reshape(-1), minlength=256 * n).reshape(n, 256)


def _percentile(below: Any, pixels: int, q: float) -> Any:
    """Return the q-th percentile of each image, interpolated as NumPy does: float64 (n, 1).

    `below` (n, 256) counts the pixels up to each level, of `pixels` in all.
    """
    position = q / 100.0 * (pixels - 1)
    share = float(position - np.floor(position))
    low, high = (
        (below <= int(at)).sum(axis=1, keepdims=True).astype(cp.float64)
        for at in (np.floor(position), np.ceil(position))
    )
    step = high - low
    return low + step * share if share < 0.5 else high - step * (1.0 - share)


def _look_up(images: Any, tables: Any) -> Any:
    """Return tables[i, images[i]] for each image; tables (n, 256)."""
    n = len(images)
    levels = cp.arange(n, dtype=cp.int64)[:, None] * 256 + images.reshape(n, -1).astype(cp.int64)
    return cp.take(tables.reshape(-1), levels).reshape(images.shape)


def _stretch_table(images: Any, step: Preprocess) -> Any:
    below = cp.cumsum(_count(images), axis=1)
    low, high = (_percentile(below, images[0].size, q) for q in step.percentiles)
    levels = cp.minimum(cp.maximum(cp.arange(256, dtype=cp.float64)[None, :], low), high)
    flat = low == high
    span = cp.where(flat, 1.0, high - low)
    # in scikit-image's order of operations: the cut to whole numbers depends on the last bit
    stretched = (levels - low) / span * 255.0
    return _look_up(images, cp.where(flat, levels, stretched).astype(cp.uint8))


def _equalize_table(images: Any, step: Preprocess) -> Any:
    shares = cp.cumsum(_count(images), axis=1) / float(images[0].size)
    return _look_up(images, shares.astype(cp.float32))


# ---- cuCIM ----


def _stretch(images: Any, step: Preprocess) -> Any:
    from cucim.skimage.exposure import rescale_intensity

    def one(image: Any) -> Any:
        low, high = cp.asnumpy(cp.percentile(image.astype(cp.float64), cp.asarray(step.percentiles))).tolist()
        return rescale_intensity(image, in_range=(low, high), out_range="dtype")

    return _each(images, one)


def _gaussian(images: Any, step: Preprocess) -> Any:
    from cucim.skimage.filters import gaussian

    sigma = (0.0, step.sigma, step.sigma)  # no smoothing from one image to the next
    return gaussian(images, sigma=sigma, mode="nearest", preserve_range=True, truncate=4.0)


def _equalize(images: Any, step: Preprocess) -> Any:
    from cucim.skimage.exposure import equalize_hist

    return _each(images, lambda image: equalize_hist(image, nbins=step.nbins))


def _clahe(images: Any, step: Preprocess) -> Any:
    from cucim.skimage.exposure import equalize_adapthist

    return _each(
        images,
        lambda image: equalize_adapthist(
            image, kernel_size=step.kernel_size, clip_limit=step.clip_limit, nbins=step.nbins
        ),
    )


def _each(images: Any, function: Callable[[Any], Any]) -> Any:
    return cp.stack([function(images[i]) for i in range(len(images))])


Function = Callable[[Any, Preprocess], Any]
_TOGETHER: dict[PreprocessName, Function] = {  # of 8-bit images
    PreprocessName.stretch: _stretch_table,
    PreprocessName.equalize: _equalize_table,
    PreprocessName.clahe: clahe.equalize_adapthist,
}
_FILTERS: dict[PreprocessName, Function] = {
    PreprocessName.stretch: _stretch,
    PreprocessName.gaussian: _gaussian,
    PreprocessName.equalize: _equalize,
    PreprocessName.clahe: _clahe,
}
