"""Plain PNG and JPEG files, by far the most: read by the codecs inside Pillow, without Pillow's objects.

Opening a small file with Pillow takes longer than decoding it, and keeps other threads waiting meanwhile. Here the file
is read in one piece, its headers are checked, and the pixels go through the same codec in one call, which lets other
threads run. Whatever is not entirely plain - EXIF, transparency, palettes, interlacing, CMYK, a wrong checksum, a file
that is cut short - is left to ``decode``, which knows the rules and the reasons: the pixels are the same either way.

A process that helps to read runs this file alone, see ``helper``: it imports neither NumPy nor ``PIL.Image`` nor
anything of this package.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from operator import mul

from PIL import _imaging

TYPE_CHECKING = False  # importing typing takes as long as importing the codecs
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Target = tuple[int, int, bool]  # width, height, and whether the aspect ratio is kept ("pad")
    # (content, mode, size or (0, 0) for all of it) -> the core's image, as Pillow's codec would give it, or None
    JpegDecoder = Callable[[bytes, str, tuple[int, int]], Any]

_core: Any = _imaging
PNG = b"\x89PNG\r\n\x1a\n"
_FIRST = b"\0\0\0\rIHDR"  # 13 bytes of header
JPEG = b"\xff\xd8\xff"
_PNG_MODES = {0: "L", 2: "RGB", 6: "RGBA"}  # colour type at 8 bits -> Pillow's mode
# Chunks that change no pixel here (no transparency, no EXIF, nothing compressed, which could be a bomb).
_HARMLESS = frozenset({b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"tIME", b"sBIT", b"tEXt"})
_JPEG_MODES = {1: "L", 3: "RGB"}  # components -> Pillow's mode
_SCAN = 0xDA
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended sequential and progressive, Huffman-coded
# Tables, restarts, comments; JFIF, ICC profile and Adobe segments. EXIF and XMP (APP1) may turn the picture.
_PASSED = frozenset({0xC4, 0xDB, 0xDD, 0xE0, 0xE2, 0xEE, 0xFE})
_KNOWN = _PASSED | _FRAMES
_CHUNK = struct.Struct(">I4s").unpack_from
_HEADER = struct.Struct(">IIBBBBB").unpack_from
_SUM = struct.Struct(">I").unpack_from
_SEGMENT = struct.Struct(">BBH").unpack_from
_FRAME = struct.Struct(">BHHB").unpack_from
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
# A pipe that has come into the place of a file since it was listed must not be waited for.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_BILINEAR = 2  # PIL.Image.Resampling.BILINEAR
_DITHER = 3  # PIL.Image.Dither.FLOYDSTEINBERG, what convert() passes on; gray has no use for it

GAP = 2  # a JPEG is not shrunk while decoding below this many times the size it is brought to
LARGEST_FILE = 1 << 26  # bytes; the time of opening a larger file does not matter
LARGEST = 1 << 24  # pixels, likewise; below Pillow's own limit


def read(
    path: str | bytes, size: int, most: int, target: Target | None, jpeg: JpegDecoder | None = None
) -> tuple[int, int, bytes] | None:
    """Return width, height and gray pixels of a file, row by row; None where it is not entirely plain.

    Parameters
    ----------
    path : of the file
    size : its bytes as far as known, or 0
    most : pixels; a header that announces more is left to ``decode``, which refuses it
    target : what to bring the picture to; None for its own size
    jpeg : decodes JPEG in the place of Pillow's codec, to the same pixels

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    content = _content(path, size)
    most = min(most, LARGEST)
    try:
        if content.startswith(PNG):
            gray = _png(content, most, target)
        elif content.startswith(JPEG):
            gray = _jpeg(content, most, target, jpeg)
        else:
            return None
        if gray is None:
            return None
        width, height = gray.size
        encoder = _core.raw_encoder("L", "L")
        encoder.setimage(gray, (0, 0, width, height))
        length = width * height
        _, state, pixels = encoder.encode(length)
    except (ValueError, OSError, MemoryError):  # ``decode`` finds the reason
        return None
    return (width, height, pixels) if state == 1 and len(pixels) == length else None


def opener(path: str | bytes, flags: int) -> int:
    """Open a regular file, as the `opener` of Python's ``open``, too.

    Raises
    ------
    OSError
        If it cannot be opened, or is a pipe, a device, a socket or a folder.
    """
    descriptor = os.open(path, flags | _AT_ONCE)
    try:
        _size(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _size(descriptor: int, path: str | bytes) -> int:
    """Return the bytes of an open file, if it is a regular one."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        number, what = (
            (errno.EISDIR, "a folder, not a file") if folder else (errno.EINVAL, "not a regular file")
        )
        raise OSError(number, what, path)
    return status.st_size


def _content(path: str | bytes, size: int) -> bytes:
    """Return the whole file, nothing of one above LARGEST_FILE; takes half the time of Python's file objects."""
    descriptor = os.open(path, _READ | _AT_ONCE)
    try:
        if 0 < size <= LARGEST_FILE:
            try:  # asking each file what it is takes longer than this
                content = os.read(descriptor, size + 1)
            except BlockingIOError:  # a pipe
                content = b""
            if len(content) == size:  # else it has changed since it was listed
                return content
        size = _size(descriptor, path)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, size) if size <= LARGEST_FILE else b""
    finally:
        os.close(descriptor)


# ---- sizes ----


def inner(size: tuple[int, int], target: Target) -> tuple[int, int]:
    """Return the (width, height) that a picture of this size takes up of the uniform one."""
    width, height, padded = target
    if not padded:
        return width, height
    scale = min(width / size[0], height / size[1])
    return min(width, max(1, round(size[0] * scale))), min(height, max(1, round(size[1] * scale)))


def shrinking(size: tuple[int, int], target: Target | None) -> int:
    """Return the number by which width and height of a JPEG are divided while it is decoded: 1, 2, 4 or 8."""
    if target is None:
        return 1
    width, height = inner(size, target)
    most = min(size[0] // (GAP * width), size[1] // (GAP * height))
    return 8 if most >= 8 else 4 if most >= 4 else 2 if most >= 2 else 1


def _fitted(gray: Any, target: Target, whole: tuple[int, int], part: int) -> Any:
    """Bring a picture to the uniform size as ``decode.fit`` does; decoded at a part of its size it was `whole`."""
    width, height, _ = target
    if part == 1 and gray.size == (width, height):
        return gray
    columns, rows = inner(whole, target)
    small = gray.resize((columns, rows), _BILINEAR, (0.0, 0.0, whole[0] / part, whole[1] / part))
    if (columns, rows) == (width, height):
        return small
    total = sum(map(mul, range(256), small.histogram()))
    canvas = _core.fill("L", (width, height), int(total / (columns * rows) + 0.5))
    left, upper = (width - columns) // 2, (height - rows) // 2
    canvas.paste(small, (left, upper, left + columns, upper + rows))
    return canvas


# ---- PNG ----


def _png(content: bytes, most: int, target: Target | None) -> Any:
    data = _png_data(content)
    if data is None:
        return None
    width, height, depth, colour, packing, filtering, interlacing = _HEADER(content, 16)
    plain = depth == 8 and colour in _PNG_MODES and not (packing or filtering or interlacing)
    if not plain or not 0 < width * height <= most:
        return None
    mode = _PNG_MODES[colour]
    gray = _decoded(mode, (width, height), data, _core.zip_decoder(mode, mode, 0))
    return gray if gray is None or target is None else _fitted(gray, target, (width, height), 1)


def _png_data(content: bytes) -> bytes | memoryview | None:
    """Return the compressed pixels (PNG, 3rd edition, section 5), if all chunks are sound and plain.

    The header comes first and the data in one row, with nothing between or behind.
    """
    view, end, at = memoryview(content), len(content) - 12, len(PNG)
    data: list[memoryview] = []
    if not content.startswith(_FIRST, at):
        return None
    while at <= end:
        length, kind = _CHUNK(content, at)
        stop = at + 8 + length
        if stop > end + 8 or zlib.crc32(view[at + 4 : stop]) != _SUM(content, stop)[0]:
            return None
        if kind == b"IDAT":
            data.append(view[at + 8 : stop])
        elif kind == b"IEND":
            return data[0] if len(data) == 1 else b"".join(data) if data else None
        elif data:
            return None
        elif at > len(PNG) and (kind not in _HARMLESS or content.startswith(b"Raw profile", at + 8)):
            return None  # the latter is EXIF in text
        at = stop + 4
    return None


# ---- JPEG ----


def _jpeg(content: bytes, most: int, target: Target | None, other: JpegDecoder | None) -> Any:
    frame = _jpeg_frame(content)
    if frame is None:
        return None
    depth, height, width, components = _FRAME(content, frame)
    if depth != 8 or components not in _JPEG_MODES or not 0 < width * height <= most:
        return None
    part = shrinking((width, height), target)
    size = -(-width // part), -(-height // part)
    mode = _JPEG_MODES[components]
    gray = None
    # the next smaller scale must have other rows or columns, else another decoder would take that
    if other is not None and (part == 1 or max(width, height) >= 8):
        gray = other(content, mode, size if part > 1 else (0, 0))
        gray = _to_gray(gray, mode) if gray is not None and gray.size == size else None
    if gray is None:
        gray = _decoded(mode, size, content, _core.jpeg_decoder(mode, mode, "", part, 0))
    return gray if gray is None or target is None else _fitted(gray, target, (width, height), part)


def _jpeg_frame(content: bytes) -> int | None:
    """Return where the frame header lies (ITU-T T.81, annex B), if all before the first scan is plain."""
    frame, at, end = None, 2, len(content) - 4
    while at <= end:
        mark, kind, length = _SEGMENT(content, at)
        if mark != 0xFF or kind not in _KNOWN:
            return frame if mark == 0xFF and kind == _SCAN else None
        if kind in _FRAMES:
            if frame is not None or length < 8 or at + 10 > len(content):
                return None
            frame = at + 4
        elif kind == 0xE2 and content.startswith(b"MPF\0", at + 4):  # several pictures
            return None
        at += 2 + length
    return None


# ---- both ----


def _decoded(mode: str, size: tuple[int, int], data: bytes | memoryview, decoder: Any) -> Any:
    """Return in gray what Pillow's codec makes of the data, None where they are damaged or end too early."""
    picture = _core.new(mode, size)
    decoder.setimage(picture, (0, 0, *size))
    consumed, error = decoder.decode(data)
    return _to_gray(picture, mode) if consumed < 0 and error == 0 else None


def _to_gray(picture: Any, mode: str) -> Any:
    return picture if mode == "L" else picture.convert("L", _DITHER)
