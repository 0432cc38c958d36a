"""Files that are no picture: each becomes a reason, whatever Pillow raises, and costs no memory."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from pipeline import config
from pipeline.datasets import decode as decode_module
from pipeline.datasets.decode import decode, decode_to, quiet
from pipeline.datasets.reasons import DecodeError
from tests.conftest import DATA


def test_refusing_a_bomb_costs_no_memory():
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("decompression_bomb.gif", "badwidth.bmp"):
        with pytest.raises(DecodeError):
            decode(DATA / "nasty" / name)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_max_pixels_is_read_from_the_header(tmp_path, monkeypatch):
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    limit = Image.MAX_IMAGE_PIXELS
    assert decode(tmp_path / "a.png", max_pixels=100).shape == (10, 10)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded before the check"))
    with pytest.raises(DecodeError, match=r"10 rows x 10 columns, above data.max_pixels=99"):
        decode(tmp_path / "a.png", max_pixels=99)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_max_pixels_between_pillows_warning_and_its_error(tmp_path):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 10_000, 9_500, 8, 0, 0, 0, 0)  # 95 million pixels, no data
    path = tmp_path / "a.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet(), pytest.raises(DecodeError, match=r"above data\.max_pixels"):
            decode(path, max_pixels=90_000_000)
    assert heard == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        ("Grüße, kein Bild\n".encode(), "text"),
        (
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            "PostScript",
        ),  # never handed to an interpreter
        (b"%PDF-1.7\n", "PDF"),
        (b"PK\x03\x04", "zip"),
        (bytes(range(256)), "not a picture"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\xff\xd8\xff\xe0", "JPEG"),
        (b"II*\0", "TIFF"),
    ],
)
def test_what_is_no_picture(tmp_path, content, words):
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(DecodeError, match=words):
        decode(tmp_path / "a.jpg")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DecodeError, match="No such file"):
        decode(tmp_path / "gone.png")
    with pytest.raises(DecodeError):
        decode(tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        OSError("x"),
        ValueError("x"),
        SyntaxError("x"),
        IndexError("x"),
        KeyError("x"),
        EOFError(),
        TypeError("x"),
        struct.error("x"),
        zlib.error("x"),
        OverflowError("x"),
        ZeroDivisionError("x"),
        RuntimeError("x"),
        MemoryError(),
        AttributeError("x"),
        Image.DecompressionBombError("x"),
        AssertionError(),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("where", ["open", "load"])
def test_whatever_pillow_raises_becomes_a_reason(monkeypatch, error, where):
    def fail(*_args, **_options):
        raise error

    owner = Image if where == "open" else ImageFile.ImageFile
    monkeypatch.setattr(owner, where, fail)
    with pytest.raises(DecodeError) as caught:
        decode(DATA / "nasty" / "basn0g01.png")
    assert str(caught.value)


def test_interrupts_and_faults_of_ours_are_not_reasons(monkeypatch):
    path = DATA / "nasty" / "basn0g01.png"

    def interrupt(_self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ImageFile.ImageFile, "load", interrupt)
        with pytest.raises(KeyboardInterrupt):
            decode(path)

    def fault(_picture):
        raise TypeError("ours")

    monkeypatch.setattr(decode_module, "to_gray", fault)
    with pytest.raises(TypeError, match="ours"):
        decode(path)


SEEDS = {
    "PNG": {},
    "JPEG": {},
    "GIF": {},
    "BMP": {},
    "TIFF": {"compression": "tiff_lzw"},
    "WEBP": {},
    "PPM": {},
    "ICO": {},
    "JPEG2000": {},
    "SGI": {},
    "PCX": {},
}


def _seed(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).save(buffer, kind, **SEEDS[kind])
    return buffer.getvalue()


SOUND = {kind: _seed(kind) for kind in SEEDS}


@pytest.mark.parametrize("kind", SEEDS)
def test_sound_files_of_every_writable_format(tmp_path, kind):
    (tmp_path / "a").write_bytes(SOUND[kind])
    assert decode(tmp_path / "a").shape == (16, 16)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_give_a_picture_or_a_reason(tmp_path, data):
    content = bytearray(SOUND[data.draw(st.sampled_from(sorted(SOUND)))])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, 2 * len(content))) :]
    (tmp_path / "a").write_bytes(content)
    try:
        with quiet():
            picture = decode_to(tmp_path / "a", config.Image(5, 7), max_pixels=1_000_000)
        reason = ""
    except DecodeError as error:
        picture, reason = None, str(error)
    assert len(reason) < 200
    assert "\n" not in reason
    assert (picture is None) == bool(reason)
    assert picture is None or (picture.shape == (5, 7) and picture.dtype == np.uint8)
