"""The short way to plain files in this process: ``plain``, and simplejpeg where it is installed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL
from PIL import Image, features

from pipeline import config
from pipeline.datasets import plain

log = logging.getLogger(__name__)
core: Any = Image.core


def read(path: str, size: int, image: config.Image | None, max_pixels: int) -> tuple[int, int, bytes] | None:
    """Return width, height and pixels of a plain file, None of any other; as :func:`plain.read`."""
    jpeg = None if _simplejpeg() is None else _by_simplejpeg
    try:
        return plain.read(path, size, max_pixels, None if image is None else target_of(image), jpeg)
    except (AttributeError, TypeError) as error:
        _tell_unfit(f"{type(error).__name__}: {error}")
        return None


def target_of(image: config.Image) -> plain.Target:
    """Return what ``plain`` is to bring pictures to."""
    return image.width, image.height, image.fit is config.Fit.pad


@functools.cache
def _tell_unfit(why: str) -> None:
    """Say once that the codecs inside Pillow are called otherwise than they were."""
    log.warning(
        "Pillow %s is unknown to the short way to plain files (%s): reading is slower", PIL.__version__, why
    )


@functools.cache
def _simplejpeg() -> Callable[..., np.ndarray] | None:
    """Return simplejpeg's decoder: libjpeg-turbo at half the overhead. Its pixels are Pillow's if that has it too."""
    if not features.check_feature("libjpeg_turbo"):
        return None
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return decode_jpeg


def _by_simplejpeg(content: bytes, mode: str, size: tuple[int, int]) -> Any:
    """Return a JPEG's pixels, None where simplejpeg finds anything to warn of."""
    decode_jpeg, (width, height) = _simplejpeg(), size
    assert decode_jpeg is not None
    try:
        pixels = decode_jpeg(content, "GRAY" if mode == "L" else mode, min_height=height, min_width=width)
    except ValueError:
        return None
    rows, columns, _ = pixels.shape
    picture = core.new(mode, (columns, rows))
    decoder = core.raw_decoder(mode, mode, 0, 1)
    decoder.setimage(picture, (0, 0, columns, rows))
    consumed, error = decoder.decode(pixels)  # a sixth of the time of Image.fromarray
    return picture if consumed < 0 and error == 0 else None
