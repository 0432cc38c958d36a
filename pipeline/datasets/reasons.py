"""Why a file is no picture, in words a person can act on."""

from __future__ import annotations

import codecs
import errno
import re
from typing import BinaryIO

from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from pipeline.errors import DataError

HEAD_BYTES = 512
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_REASON = 160
NO_MEMORY = "not enough memory to decode it"
_ROOM = 1 << 26  # bytes; where they are to be had, it was the file that asked for too much

# The first bytes of a file tell what it was meant to be, whatever its name says.
SIGNATURES = (
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"%PDF", "PDF"),
    (b"%!PS", "PostScript"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"8BPS", "Photoshop"),
    (b"\x93NUMPY", "NumPy array"),
)
HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1")
SAMPLE_FORMATS = {1: "unsigned integer", 2: "signed integer", 3: "floating-point"}


class DecodeError(Exception):
    """A file that is no usable picture; the message is the short reason for ``rejected.csv``."""


def of_content(head: bytes) -> str | None:
    """Return why a file that begins with ``head`` need not be decoded at all, or None."""
    if not head:
        return "empty file (0 bytes)"
    if head.startswith(LFS_POINTER):
        return "Git LFS pointer, not the picture itself: fetch it with `git lfs pull`"
    return None


def check_process(error: Exception) -> None:
    """Raise DataError if an exception speaks of this process and not of the file that it was met with.

    That are files, of which it has too many open, and memory, of which it has none left: the next file would fail,
    too. A file may also ask for more than any machine has; then there is memory.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        raise DataError(
            f"this process can open no more files{_limit()}: raise the limit, as in ulimit -n 4096, or use fewer "
            "data.workers"
        ) from error
    if number == errno.ENFILE:
        raise DataError(
            "this machine can open no more files (fs.file-max): end other programs, or have the limit raised"
        ) from error
    if (isinstance(error, MemoryError) or number == errno.ENOMEM) and not _has_room():
        raise DataError(
            "no memory is left to read pictures: use fewer data.workers, a smaller chunk or smaller images, end other "
            "programs, or raise the limit (ulimit -v)"
        ) from error


def _limit() -> str:
    try:
        import resource
    except ImportError:  # Windows
        return ""
    return f" than {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"


def _has_room() -> bool:
    try:
        bytearray(_ROOM)
    except MemoryError:
        return False
    return True


def of_error(error: Exception, head: bytes, content: BinaryIO | None = None) -> str:
    """Return one short line for an exception met while decoding.

    Parameters
    ----------
    error : Exception
        Whatever Pillow, or the system below it, raised.
    head : bytes
        The first bytes of the file.
    content : seekable binary file, optional
        Asked for the sample type of a TIFF that Pillow does not know.

    Raises
    ------
    DataError
        As :func:`check_process`.
    """
    check_process(error)
    if isinstance(error, UnidentifiedImageError):
        return _unidentified(head, content)
    if isinstance(error, Image.DecompressionBombError):
        count = re.search(r"\d+", str(error))
        return f"decompression bomb: its header announces {count.group() if count else 'too many'} pixels"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return NO_MEMORY
    if isinstance(error, OSError) and error.strerror:
        return _one_line(error.strerror)
    text = str(error)
    if "truncated" in text.lower():
        return "truncated: " + _one_line(text)
    return _one_line(f"corrupt: {text}" if text else f"corrupt ({type(error).__name__})")


def _unidentified(head: bytes, content: BinaryIO | None) -> str:
    if head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS:
        return "HEIF is not supported: convert it to PNG or JPEG"
    kind = next((name for signature, name in SIGNATURES if head.startswith(signature)), None)
    if kind == "TIFF" and content is not None:
        samples = _tiff_samples(content)
        if samples:
            return f"TIFF of a kind not supported: {samples}"
    if kind is not None:
        known = kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF")
        return f"corrupt {kind}, or of a kind not supported" if known else f"not a picture but a {kind}"
    return "not a picture but text" if _is_text(head) else "not a picture"


def _is_text(head: bytes) -> bool:
    if any(byte < 32 and byte not in b"\t\n\r\f" for byte in head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut in two
    except UnicodeDecodeError:
        return False
    return True


def _tiff_samples(content: BinaryIO) -> str | None:
    """Return for instance "12-bit unsigned integer gray", or None where the header does not say."""
    try:
        content.seek(0)
        tags = TiffImagePlugin.ImageFileDirectory_v2(content.read(8))
        content.seek(tags.next)
        tags.load(content)
        bits = tags.get(258, (1,))[0]
        channels = tags.get(277, 1)
        kind = SAMPLE_FORMATS.get(tags.get(339, (1,))[0], "unknown sample type")
    except Exception:  # a header so broken that Pillow cannot read the tags says nothing about the samples
        return None
    return f"{bits}-bit {kind}, {'gray' if channels == 1 else f'{channels} channels'}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 3] + "..."
