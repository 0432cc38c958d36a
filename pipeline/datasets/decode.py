"""One picture file to one uint8 array, by content, whatever the file is called.

Rules
-----
- Format: recognised by content among ``FORMATS``. PostScript and the like are never opened: they would run a
  program.
- Size: refused by the header, before pixels are allocated, above ``data.max_pixels``.
- Frames: the first frame or page of a file with several.
- Colour: Pillow's ``convert("L")``, that is ITU-R 601-2 luma, (299 R + 587 G + 114 B) / 1000. CMYK goes
  through RGB; of CIELAB the L* channel is taken as it is stored.
- Alpha: dropped. The colour stored under a transparent pixel counts, also for palettes with a transparent
  entry.
- 1 bit: 0 and 255. 2 and 4 bits: scaled to 0..255.
- 9 to 16 bits, unsigned integer gray: v * 255 / (2**bits - 1), rounded to nearest; 65535 becomes 255, and so
  does 4095 in 12 bits. 16-bit colour: the high byte of each channel.
- Floating point: every value must lie within 0 to 1 and becomes v * 255, rounded to nearest; any other value,
  NaN included, rejects the file with the range found.
- 32-bit and signed integers: rejected, since no scale is agreed on.
- Orientation: the EXIF orientation is applied, mirrored ones too. A broken EXIF block is passed over.
- Large JPEG: decoded at 1/2, 1/4 or 1/8 of its size, the smallest that still has at least ``GAP`` times the rows and
  columns it is brought to. The inverse cosine transform of fewer coefficients does the halving.
- Fit: see ``fit``.

Plain PNG and JPEG files take a shorter way to the same pixels, see ``plain``.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageFile

from pipeline import config
from pipeline.datasets import plain, reasons, short
from pipeline.datasets.gray import to_gray
from pipeline.datasets.reasons import DecodeError

FORMATS = ("PNG", "JPEG", "PPM", "TIFF", "BMP", "GIF", "WEBP", "AVIF", "JPEG2000", "PCX", "SGI", "ICO")
GAP = plain.GAP  # a JPEG is not shrunk while decoding below this many times the size it is brought to
_ORIENTATION = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Orientations for which the first stored column becomes the right edge, or the first stored row the lower one, or,
# turned by 90 degrees, the first row the right edge, the first column the lower one.
_FROM_RIGHT, _FROM_BELOW = (2, 3, 6, 7), (3, 4, 7, 8)


def decode(path: str | Path, max_pixels: int = config.Data.max_pixels) -> np.ndarray:
    """Decode a file at its own size.

    Parameters
    ----------
    path : path of a file
    max_pixels : int
        A header that announces more is refused before decoding.

    Returns
    -------
    ndarray of uint8, shape (height, width)

    Raises
    ------
    DecodeError
        With the reason, whatever is wrong with the file.
    DataError
        If this process can open no more files or has no memory left, which is no fault of the file.
    """
    found = _plain(path, 0, None, max_pixels)
    if found is not None:
        width, height, pixels = found
        return np.frombuffer(bytearray(pixels), np.uint8).reshape(height, width)
    return np.array(_read_gray(path, max_pixels).picture)


def decode_to(path: str | Path, image: config.Image, max_pixels: int = config.Data.max_pixels) -> np.ndarray:
    """Decode a file and bring it to ``image.height`` x ``image.width``; as ``decode`` otherwise."""
    return np.frombuffer(to_bytes(path, 0, image, max_pixels), np.uint8).reshape(image.height, image.width)


def to_bytes(path: str | Path, size: int, image: config.Image, max_pixels: int) -> bytes:
    """Return the pixels that ``decode_to`` gives, row by row; `size` is the file's, in bytes, or 0."""
    found = _plain(path, size, image, max_pixels)
    if found is not None:
        return found[2]
    gray = _read_gray(path, max_pixels, image)
    try:
        return fit(gray.picture, image, gray.whole, gray.box).tobytes()
    except MemoryError as error:
        raise DecodeError(reasons.of_error(error, b"")) from error


def _plain(
    path: str | Path, size: int, image: config.Image | None, max_pixels: int
) -> tuple[int, int, bytes] | None:
    try:
        return short.read(str(path), size, image, max_pixels)
    except (OSError, MemoryError) as error:
        raise DecodeError(reasons.of_error(error, b"")) from error


def fit(
    gray: Image.Image,
    image: config.Image,
    whole: tuple[int, int] | None = None,
    box: tuple[float, float, float, float] | None = None,
) -> Image.Image:
    """Bring a gray picture to ``image.height`` x ``image.width`` with an antialiased bilinear filter.

    ``stretch`` squashes the whole picture to the size. ``pad`` keeps the aspect ratio, centres the picture
    (an odd pixel goes right or below) and fills the rest with the picture's own mean gray, rounded, so that
    the seam adds as little gradient as one value can. Of a picture that was shrunk while it was decoded, `whole` is
    the (width, height) it had, and `box` (left, upper, right, lower) where it lies in `gray`.
    """
    width, height = plain.inner(whole or gray.size, short.target_of(image))
    if gray.size == (image.width, image.height) and box is None:
        return gray
    small = gray.resize((width, height), Image.Resampling.BILINEAR, box)
    if (width, height) == (image.width, image.height):
        return small
    mean = int(np.asarray(small).mean() + 0.5)
    canvas = Image.new("L", (image.width, image.height), mean)
    canvas.paste(small, ((image.width - width) // 2, (image.height - height) // 2))
    return canvas


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings and log about odd files.

    Enter it once, in the thread that starts the workers: both belong to the process, and entering this in
    each worker would race. What matters of an odd file is its reason.
    """
    pillows = logging.getLogger("PIL")
    level = pillows.level
    pillows.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL(\.|$)")
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # data.max_pixels decides
            yield
    finally:
        pillows.setLevel(level)


class _Shrunk(NamedTuple):
    """Of a picture that was shrunk while it was decoded: the size that it has in the file, and the divisor."""

    width: int
    height: int
    part: int


class _Gray(NamedTuple):
    """An upright picture of mode L, and if it was shrunk `whole` and `box` as :func:`fit` takes them."""

    picture: Image.Image
    whole: tuple[int, int] | None = None
    box: tuple[float, float, float, float] | None = None


def _read_gray(path: str | Path, max_pixels: int, image: config.Image | None = None) -> _Gray:
    """Return a loaded picture; it may be shrunk if it is to be brought to `image`."""
    try:
        with open(path, "rb", opener=plain.opener) as file:
            picture, shrunk = _open(file, max_pixels, image)
            orientation = _orientation(picture)
            return _upright(to_gray(picture), shrunk, orientation)
    except (OSError, ValueError, MemoryError) as error:  # the file is gone, or a conversion that Pillow lacks
        raise DecodeError(reasons.of_error(error, b"")) from error


def _upright(gray: Image.Image, shrunk: _Shrunk | None, orientation: int) -> _Gray:
    """Turn a picture as its orientation says.

    The last row and column of a shrunken one may lie in it but in part: a picture of 9 columns halved has 4.5.
    """
    turn = _TRANSPOSE.get(orientation)
    if turn is not None:
        gray = gray.transpose(turn)
    if shrunk is None:
        return _Gray(gray)
    whole = (shrunk.width, shrunk.height) if orientation < 5 else (shrunk.height, shrunk.width)
    width, height = whole[0] / shrunk.part, whole[1] / shrunk.part
    left = gray.width - width if orientation in _FROM_RIGHT else 0.0
    upper = gray.height - height if orientation in _FROM_BELOW else 0.0
    return _Gray(gray, whole, (left, upper, left + width, upper + height))


def _open(
    file: BinaryIO, max_pixels: int, image: config.Image | None
) -> tuple[ImageFile.ImageFile, _Shrunk | None]:
    """Open and load the first frame; what Pillow raises becomes a reason."""
    head = file.read(reasons.HEAD_BYTES)
    reason = reasons.of_content(head)
    if reason:
        raise DecodeError(reason)
    # Pillow's plug-ins raise OSError, ValueError, SyntaxError, struct.error, IndexError, KeyError, EOFError,
    # ZeroDivisionError, OverflowError, zlib.error, DecompressionBombError, MemoryError and more on a bad
    # file:
    # here, and only here, any of them speaks of the file.
    try:
        picture = Image.open(file, formats=FORMATS)
    except Exception as error:
        raise DecodeError(reasons.of_error(error, head, file)) from error
    _check_size(picture, max_pixels)
    try:
        shrunk = _draft(picture, image)
        picture.load()  # never again after a failure: a second load returns a half-decoded picture
    except Exception as error:
        raise DecodeError(reasons.of_error(error, head)) from error
    _check_size(picture, max_pixels)  # an icon learns its size only now
    return picture, shrunk


def _draft(picture: ImageFile.ImageFile, image: config.Image | None) -> _Shrunk | None:
    """Have a large JPEG shrunk when it is loaded."""
    if picture.format not in ("JPEG", "MPO"):
        return None
    width, height = picture.size
    if image is None:
        return None
    upright = (width, height) if _orientation(picture) < 5 else (height, width)
    part = plain.shrinking(upright, short.target_of(image))
    if part == 1:
        return None
    picture.draft(None, (width // part, height // part))
    return _Shrunk(width, height, part)


def _check_size(picture: Image.Image, max_pixels: int) -> None:
    width, height = picture.size
    if width < 1 or height < 1:
        raise DecodeError(f"empty picture ({height} rows x {width} columns)")
    if width * height > max_pixels:
        raise DecodeError(
            f"its header announces {height} rows x {width} columns, above data.max_pixels={max_pixels}"
        )


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation, 1 where there is none, it is broken or Pillow has applied it (TIFF)."""
    try:
        value = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # the pixels are sound: a broken EXIF block is no reason to lose the picture
        return 1
    return value if isinstance(value, int) else 1
