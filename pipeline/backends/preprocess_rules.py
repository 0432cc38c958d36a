"""Rules that every backend's preprocessing shares: what input is refused and which type comes out."""

from __future__ import annotations

import numpy as np

from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import ConfigError


def check(pixels: np.ndarray, step: Preprocess) -> None:
    """Refuse a batch that the step is not defined for.

    Raises
    ------
    ValueError
        If `pixels` is not (n, h, w) of finite whole or real numbers, or (clahe) holds floats outside -1 to 1.
    ConfigError
        If clahe's kernel is larger than the images: scikit-image would pad them to it, at any cost.
    """
    if check_kind(pixels.shape, pixels.dtype, step):
        # NaN and infinities show in one of the two, without a mask of the batch
        check_range(pixels.min(), pixels.max(), step)


def check_kind(shape: tuple[int, ...], dtype: np.dtype, step: Preprocess) -> bool:
    """Apply the rules of ``check`` that need no pixel; return whether ``check_range`` is to follow.

    Raises
    ------
    ValueError
        If the shape is not (n, h, w), or the numbers are not whole or real.
    ConfigError
        If clahe's kernel is larger than the images.
    """
    if step.name is PreprocessName.none:
        return False
    name = f"preprocess={step.name.value}"
    if len(shape) != 3:
        raise ValueError(f"{name} works on grayscale batches (n, h, w), not on shape {shape}")
    largest = max(shape[1:])
    if step.name is PreprocessName.clahe and step.kernel_size is not None and step.kernel_size > largest:
        raise ConfigError(
            f"preprocess.kernel_size is {step.kernel_size} pixels, but images of {shape[1]} rows and "
            f"{shape[2]} cols allow 1 to {largest}; use a smaller kernel, or null for 1/8 of the image"
        )
    if dtype.kind not in "iuf":
        raise ValueError(f"{name} needs integer or real pixels, not {dtype}; convert them, e.g. to uint8")
    return dtype.kind == "f" and 0 not in shape


def check_range(low: np.floating, high: np.floating, step: Preprocess) -> None:
    """Apply the rules of ``check`` to the smallest and the largest of float pixels.

    Raises
    ------
    ValueError
        If one is not finite, or (clahe) outside -1 to 1.
    """
    name = f"preprocess={step.name.value}"
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(
            f"{name} needs finite pixels, but the batch holds NaN or infinity; remove those images"
        )
    if step.name is PreprocessName.clahe and (low < -1 or high > 1):
        raise ValueError(
            f"{name} needs float pixels from -1 to 1, found {low} to {high}; divide by the largest value"
        )


def result_type(dtype: np.dtype, step: Preprocess) -> np.dtype:
    """Return the type of a step's result: the input's for none and stretch, float32 for the others."""
    kept = step.name in (PreprocessName.none, PreprocessName.stretch)
    return np.dtype(dtype) if kept else np.dtype(np.float32)


def widen(pixels: np.ndarray) -> np.ndarray:
    """Return float16 pixels as float32, in which their histograms do not overflow; all others as they are."""
    return pixels.astype(np.float32) if pixels.dtype.kind == "f" and pixels.dtype.itemsize == 2 else pixels
