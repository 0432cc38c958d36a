"""A picture of any mode to 8-bit gray, after the rules of :mod:`pipeline.datasets.decode`."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pipeline.datasets.reasons import DecodeError

_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262


def to_gray(picture: Image.Image) -> Image.Image:
    """Return a loaded picture of any mode as mode L.

    Raises
    ------
    DecodeError
        If no scale of its values to 8 bits is agreed on.
    """
    mode = picture.mode
    if mode == "L":
        return picture
    if mode == "LAB":
        return picture.getchannel("L")
    if mode == "I" and picture.format not in ("PPM", "PNG"):  # of these two Pillow gives 16 bits in 32
        raise DecodeError("32-bit or signed integer picture: no agreed scale to 8 bits")
    if mode == "I" or mode.startswith("I;16"):
        return Image.fromarray(_scale_integers(np.asarray(picture), picture))
    if mode == "F":
        return Image.fromarray(_scale_floats(np.asarray(picture), picture))
    if mode in ("La", "RGBa"):  # colours multiplied by alpha: Pillow has no direct way from here to L
        return picture.convert("LA" if mode == "La" else "RGBA").convert("L")
    return picture.convert("L")


def _scale_integers(values: np.ndarray, picture: Image.Image) -> np.ndarray:
    top = 2 ** _tiff_bits(picture) - 1
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > top:
        raise DecodeError(f"values from {low} to {high} outside the range 0 to {top} of its type")
    scaled = ((values.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)
    return 255 - scaled if _white_is_zero(picture) else scaled


def _scale_floats(values: np.ndarray, picture: Image.Image) -> np.ndarray:
    low, high = float(values.min()), float(values.max())  # NaN anywhere makes both NaN
    if not (low >= 0.0 and high <= 1.0):
        found = "NaN" if np.isnan(low) else f"values from {low:.4g} to {high:.4g}"
        raise DecodeError(f"floating-point picture with {found}: every value must lie within 0 to 1")
    scaled = (values * 255.0 + 0.5).astype(np.uint8)
    return 255 - scaled if _white_is_zero(picture) else scaled


def _tiff_bits(picture: Image.Image) -> int:
    tags = getattr(picture, "tag_v2", None)
    bits = 16 if tags is None else int(tags.get(_BITS_PER_SAMPLE, (16,))[0])
    return bits if 9 <= bits <= 16 else 16


def _white_is_zero(picture: Image.Image) -> bool:
    """Pillow inverts 8-bit TIFFs whose zero is white, but not deeper ones."""
    tags = getattr(picture, "tag_v2", None)
    return tags is not None and tags.get(_PHOTOMETRIC) == 0
