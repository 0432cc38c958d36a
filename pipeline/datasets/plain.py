"""Plain PNG and JPEG files, by far the most: read without Pillow's file objects, by the codecs that Pillow has.

Opening a small file with Pillow takes longer than decoding it, and keeps other threads waiting meanwhile. Here the file
is read in one piece, its headers are checked, and the pixels go through the same codec in one call, which lets other
threads run. Whatever is not entirely plain - EXIF, transparency, palettes, interlacing, CMYK, a wrong checksum, a file
that is cut short - is left to ``decode``, which knows the rules and the reasons: the pixels are the same either way.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, features

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
_PNG_MODES = {0: "L", 2: "RGB", 6: "RGBA"}  # colour type at 8 bits -> Pillow's mode
# Chunks that change no pixel here (no transparency, no EXIF, nothing compressed, which could be a bomb).
_HARMLESS = frozenset({b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"tIME", b"sBIT", b"tEXt"})
_JPEG_MODES = {1: "L", 3: "RGB"}  # components -> Pillow's mode
_SCAN = 0xDA
_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended sequential and progressive, Huffman-coded
# Tables, restarts, comments; JFIF, ICC profile and Adobe segments. EXIF and XMP (APP1) may turn the picture.
_PASSED = frozenset({0xC4, 0xDB, 0xDD, 0xE0, 0xE2, 0xEE, 0xFE})

LARGEST_FILE = 1 << 26  # bytes; the time of opening a larger file does not matter
LARGEST = 1 << 24  # pixels, likewise; below Pillow's own limit

Shrinking = Callable[
    [tuple[int, int]], int
]  # (width, height) -> 1, 2, 4 or 8: the part of it a JPEG is decoded at


class Shrunk(NamedTuple):
    """Of a picture that was shrunk while it was decoded: the size that it has in the file, and the divisor."""

    width: int
    height: int
    part: int


class Found(NamedTuple):
    """A picture, and how it was shrunk, if it was."""

    picture: Image.Image
    shrunk: Shrunk | None = None


def read(path: str | Path, max_pixels: int, shrinking: Shrinking) -> Found | None:
    """Return the picture, in Pillow's mode of the file; None where the file is not entirely plain.

    Parameters
    ----------
    path : of the file
    max_pixels : a header that announces more is left to ``decode``, which refuses it
    shrinking : asked for the number by which width and height of a JPEG are divided while it is decoded

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    content = _content(path)
    most = min(max_pixels, LARGEST)
    if content.startswith(PNG):
        return _png(content, most)
    if content.startswith(JPEG):
        return _jpeg(content, most, shrinking)
    return None


def _content(path: str | Path) -> bytes:
    """Return the whole file, nothing of one above LARGEST_FILE; takes half the time of Python's file objects."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        size = os.fstat(descriptor).st_size
        return os.read(descriptor, size) if size <= LARGEST_FILE else b""
    finally:
        os.close(descriptor)


def _png(content: bytes, max_pixels: int) -> Found | None:
    chunks = _png_chunks(content)
    if chunks is None or chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13:
        return None
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    plain = depth == 8 and colour in _PNG_MODES and not any(rest)  # not interlaced, PNG's own compression
    if not plain or not 0 < width * height <= max_pixels:
        return None
    data = [part for kind, part in chunks if kind == b"IDAT"]
    if chunks[-len(data) :] != [(b"IDAT", part) for part in data]:  # something lies between or behind
        return None
    mode = _PNG_MODES[colour]
    picture = _decoded(mode, (width, height), b"".join(data), "zip", mode, 0)
    return None if picture is None else Found(picture)


def _png_chunks(content: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return kind and data of the chunks before IEND (PNG, 3rd edition, section 5), if all are sound and plain."""
    chunks: list[tuple[bytes, bytes]] = []
    at = len(PNG)
    while at + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, at)
        data = content[at + 8 : at + 8 + length]
        stop = at + 8 + length
        if zlib.crc32(data, zlib.crc32(kind)).to_bytes(4, "big") != content[stop : stop + 4]:
            return None
        if kind == b"IEND":
            return chunks or None
        plain = kind in (b"IHDR", b"IDAT") or kind in _HARMLESS
        if not plain or data.startswith(b"Raw profile"):  # EXIF in text
            return None
        chunks.append((kind, data))
        at = stop + 4
    return None


def _jpeg(content: bytes, max_pixels: int, shrinking: Shrinking) -> Found | None:
    frame = _jpeg_frame(content)
    if frame is None:
        return None
    depth, height, width, components = struct.unpack_from(">BHHB", content, frame)
    if depth != 8 or components not in _JPEG_MODES or not 0 < width * height <= max_pixels:
        return None
    part = shrinking((width, height))
    size = -(-width // part), -(-height // part)
    # the next smaller scale must have other rows or columns, else simplejpeg would take that
    mode = _JPEG_MODES[components]
    picture = _by_simplejpeg(content, mode, size, part) if part == 1 or max(width, height) >= 8 else None
    if picture is None:
        picture = _decoded(mode, size, content, "jpeg", mode, "", part, 0)
    return None if picture is None else Found(picture, Shrunk(width, height, part) if part > 1 else None)


def _by_simplejpeg(content: bytes, mode: str, size: tuple[int, int], part: int) -> Image.Image | None:
    """Return a JPEG's pixels, None where simplejpeg is not installed or finds anything to warn of."""
    decode = _simplejpeg()
    if decode is None:
        return None
    width, height = size if part > 1 else (0, 0)  # 0: all of it
    try:
        pixels = decode(content, "GRAY" if mode == "L" else mode, min_height=height, min_width=width)
    except ValueError:
        return None
    picture = Image.fromarray(pixels[..., 0] if mode == "L" else pixels)
    return picture if picture.size == size else None


@functools.cache
def _simplejpeg() -> Callable[..., Any] | None:
    """Return simplejpeg's decoder: libjpeg-turbo at half the overhead. Its pixels are Pillow's if that has it too."""
    if not features.check_feature("libjpeg_turbo"):
        return None
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return decode_jpeg


def _jpeg_frame(content: bytes) -> int | None:
    """Return where the frame header lies (ITU-T T.81, annex B), if all before the first scan is plain."""
    frame, at = None, 2
    while at + 4 <= len(content):
        mark, kind, length = struct.unpack_from(">BBH", content, at)
        if mark != 0xFF or kind not in _PASSED | _FRAMES or content.startswith(b"MPF\0", at + 4):
            break
        if kind in _FRAMES:
            if frame is not None or length < 8 or at + 10 > len(content):
                break
            frame = at + 4
        at += 2 + length
    else:
        return None
    return frame if mark == 0xFF and kind == _SCAN else None


def _decoded(
    mode: str, size: tuple[int, int], data: bytes, codec: str, *settings: object
) -> Image.Image | None:
    """Return what Pillow's codec makes of the data, None where they are damaged or end too early."""
    try:
        return Image.frombytes(mode, size, data, codec, *settings)
    except (ValueError, OSError):  # ``decode`` finds the reason
        return None
