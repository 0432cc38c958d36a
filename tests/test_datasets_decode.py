"""One file to one picture: the rules of decode.py, real odd files, and files made here to be odd."""

from __future__ import annotations

import csv
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import config
from pipeline.datasets.decode import decode, decode_to, quiet
from pipeline.datasets.reasons import DecodeError
from tests.conftest import DATA, shared_data

LOCAL = {  # rows, columns, mean; or the words that must be in the reason
    "basn4a08.png": (32, 32, 127.0),  # gray and alpha: alpha dropped
    "png_content_named.jpg": (32, 32, 127.0),  # a PNG named .jpg
    "basn0g01.png": (32, 32, 124.5),  # 1 bit: 0 and 255
    "s01i3p01.png": (1, 1, 29.0),  # one pixel
    "xcsn0g01.png": (32, 32, 124.5),  # wrong checksum of intact pixels
    "16_bit_noise.tif": (32, 32, 1.0),  # 106 to 285 of 65535: black, not white
    "g4_orientation_6.tif": (88, 590, 226.7),  # stored upright as 590 x 88
    "orientation_rectangle.jpg": (2, 1, 76.0),
    "Blue Lace 16.bmp": (48, 48, 19.9),
    "xdtn0g01.png": "corrupt",
    "x_issue#214.png": "corrupt PNG",
    "decompression_bomb.gif": "decompression bomb",
    "badwidth.bmp": "decompression bomb",
    "shortfile.bmp": "truncated",
    "zero_width.gif": "GIF",
}
# No symmetry: every turn of it is another picture.
RAMP = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40 + 10
# EXIF 2.32, table of the Orientation tag: how the stored rows and columns lie in the upright picture.
UPRIGHT = {
    1: RAMP,
    2: RAMP[:, ::-1],
    3: RAMP[::-1, ::-1],
    4: RAMP[::-1],
    5: RAMP.T,
    6: RAMP[::-1].T,
    7: RAMP[::-1, ::-1].T,
    8: RAMP[:, ::-1].T,
}


def check(path: Path, expected: tuple[int, int, float] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(DecodeError, match=expected) as caught:
            decode(path)
        assert len(str(caught.value)) < 200
        assert "\n" not in str(caught.value)
    else:
        rows, cols, mean = expected
        picture = decode(path)
        assert picture.dtype == np.uint8
        assert picture.shape == (rows, cols)
        assert picture.mean() == pytest.approx(mean, abs=0.06)


@pytest.mark.parametrize("name", LOCAL)
def test_small_odd_file(name):
    with quiet():
        check(DATA / "nasty" / name, LOCAL[name])


def test_every_file_of_the_index_is_handled_as_it_says():
    folder = shared_data("data", "nasty")
    rule = {  # where our stated rule is not Pillow's plain convert("L"), and orientations
        "16_bit_noise.tif": (32, 32, 1.0),
        "hopper_16bit.pgm": (128, 128, 84.2),
        "12bit.cropped.tif": (100, 100, 0.1),
        "10ct_32bit_128.tiff": "values from -3.1",
        "flower-minisblack-12.tif": "12-bit unsigned",
        "flower-minisblack-32.tif": "32-bit unsigned",
        "floatingpoint-64bit.tif": "64-bit floating",
        "lab.tif": (10, 10, 255.0),  # the L* channel as stored
        "Portrait_6.jpg": (1800, 1200, 153.2),
        # ImageWidth is 88, ImageLength 590 and the orientation 6, so upright it is 88 high and 590 wide (its
        # text then reads from left to right); the index has the two exchanged.
        "g4_orientation_6.tif": (88, 590, 226.7),
        "orientation_rectangle.jpg": (2, 1, 76.0),
        "git_lfs_pointer_1.jpg": "Git LFS pointer",
        "zero_bytes_00015_00004.ppm": "empty file",
        "hopper.heif": "HEIF is not supported",
        "truncated_image.png": "truncated",
        "shortfile.bmp": "truncated",
    }
    seen = 0
    with quiet(), (folder / "index.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            path = folder / "files" / row["file"]
            found = re.match(r"\S+ (\d+)x(\d+) frames=\d+ L-mean=([\d.]+)", row["pillow_13"])
            if row["file"] in rule:
                check(path, rule[row["file"]])
            elif row["verdict"] == "reject":
                check(path, ".")
            elif row["verdict"] == "decode" or found:
                assert found, row["file"]
                if (
                    row["file"] == "truncated_end_chunk.png"
                ):  # either is allowed: Pillow's load() finds it cut
                    check(path, "truncated")
                else:
                    check(path, (int(found[1]), int(found[2]), float(found[3])))
            else:
                check(path, ".")
            seen += 1
    assert seen >= 50


def test_mirrored_portrait_by_its_pixels():
    path = shared_data("data", "nasty", "files", "portrait_2.jpg")
    with Image.open(path) as stored:
        assert np.array_equal(decode(path), np.asarray(stored.convert("L"))[:, ::-1])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif", "webp", "jpg"])
def test_orientation_is_applied(tmp_path, suffix, orientation):
    path = tmp_path / f"turned.{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(RAMP.repeat(16, 0).repeat(16, 1))  # blocks of JPEG's 16 x 16 keep their gray
    options = {"webp": {"lossless": True}, "jpg": {"quality": 100}}.get(suffix, {})
    stored.save(path, exif=exif, **options)
    upright = UPRIGHT[orientation].repeat(16, 0).repeat(16, 1).astype(int)
    assert np.abs(decode(path) - upright).max() <= 1


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_meaningless_orientation_is_passed_over(tmp_path, value):
    exif = Image.Exif()
    exif[0x0112] = value
    Image.fromarray(RAMP).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(decode(tmp_path / "a.png"), RAMP)


@pytest.mark.parametrize(
    "block",
    [b"garbage", b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff"],
)
def test_broken_exif_does_not_fail_a_sound_picture(tmp_path, block):
    big = Image.fromarray(RAMP.repeat(16, 0).repeat(16, 1))
    big.save(tmp_path / "a.jpg", exif=block, quality=100)
    big.save(tmp_path / "a.png", exif=block)
    with quiet():
        assert decode(tmp_path / "a.jpg").shape == (32, 48)
        assert np.array_equal(decode(tmp_path / "a.png"), np.asarray(big))


def tiff(
    values: bytes, width: int, bits: int, *, photometric: int = 1, kind: int = 1, order: str = "<"
) -> bytes:
    """Return an uncompressed one-row gray TIFF 6.0."""
    tags = [(256, 4, width), (257, 4, 1), (258, 3, bits), (259, 3, 1), (262, 3, photometric), (273, 4, 8)]
    tags += [(277, 3, 1), (278, 4, 1), (279, 4, len(values)), (339, 3, kind)]
    directory = struct.pack(order + "H", len(tags))
    for tag, size, value in tags:
        field = struct.pack(order + "I", value) if size == 4 else struct.pack(order + "HH", value, 0)
        directory += struct.pack(order + "HHI", tag, size, 1) + field
    mark = b"II" if order == "<" else b"MM"
    start = 8 + len(values) + len(values) % 2
    head = mark + struct.pack(order + "HI", 42, start)
    return head + values + b"\0" * (len(values) % 2) + directory + struct.pack(order + "I", 0)


SIXTEEN = np.array([0, 128, 129, 256, 257, 386, 32768, 65406, 65407, 65535], np.uint16)


@pytest.mark.parametrize("kind", ["png", "pgm", "tif little", "tif big", "tif white is zero"])
def test_16_bits_are_scaled_by_the_range_of_the_type(tmp_path, kind):
    path = tmp_path / "a"
    expected = np.rint(SIXTEEN / 257.0).astype(np.uint8)[None]
    if kind == "png":
        Image.fromarray(SIXTEEN[None]).save(path, "PNG")
    elif kind == "pgm":
        path.write_bytes(b"P5 10 1 65535\n" + SIXTEEN.astype(">u2").tobytes())
    elif kind == "tif little":
        path.write_bytes(tiff(SIXTEEN.tobytes(), 10, 16))
    elif kind == "tif big":
        path.write_bytes(tiff(SIXTEEN.astype(">u2").tobytes(), 10, 16, order=">"))
    else:
        path.write_bytes(tiff(SIXTEEN.tobytes(), 10, 16, photometric=0))
        expected = 255 - expected
    assert np.array_equal(decode(path), expected)


def test_every_16_bit_value(tmp_path):
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert np.array_equal(decode(tmp_path / "a.png"), np.rint(values / 257.0))


def test_12_bit_tiff_is_scaled_by_4095(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiff(bytes([0xFF, 0xF0, 0x08]), 2, 12))  # 4095, 8
    (tmp_path / "b.tif").write_bytes(tiff(bytes([0x80, 0x00, 0x09]), 2, 12))  # 2048, 9
    assert decode(tmp_path / "a.tif").tolist() == [[255, 0]]
    assert decode(tmp_path / "b.tif").tolist() == [[128, 1]]


def test_floats_from_0_to_1_are_scaled_and_others_rejected(tmp_path):
    def write(values, **options):
        data = np.array(values, np.float32).tobytes()
        (tmp_path / "f.tif").write_bytes(tiff(data, len(values), 32, kind=3, **options))
        return decode(tmp_path / "f.tif")

    assert write([0.0, 0.5, 1.0]).tolist() == [[0, 128, 255]]
    assert write([0.0, 1.0], photometric=0).tolist() == [[255, 0]]
    for values, words in (
        ([0.0, 1.001], "1.001"),
        ([-0.1, 1.0], "-0.1"),
        ([0, np.nan], "NaN"),
        ([0, np.inf], "inf"),
    ):
        with pytest.raises(DecodeError, match=rf"floating-point.*{re.escape(words)}"):
            write(values)


@pytest.mark.parametrize(
    ("bits", "kind", "words"),
    [(32, 2, "32-bit or signed"), (16, 2, "32-bit or signed"), (64, 3, "64-bit floating")],
)
def test_types_without_a_scale_are_named(tmp_path, bits, kind, words):
    (tmp_path / "a.tif").write_bytes(tiff(bytes(bits // 8), 1, bits, kind=kind))
    with pytest.raises(DecodeError, match=words):
        decode(tmp_path / "a.tif")


def test_alpha_is_dropped(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGBA", (3, 2), (200, 200, 200, 0)).save(path)
    assert (decode(path) == 200).all()
    Image.new("LA", (3, 2), (90, 1)).save(path)
    assert (decode(path) == 90).all()
    palette = Image.new("P", (3, 2), 1)
    palette.putpalette([0, 0, 0, 77, 77, 77])
    palette.save(path, transparency=1)
    assert (decode(path) == 77).all()
    Image.new("L", (3, 2), 50).save(path, transparency=50)
    assert (decode(path) == 50).all()


def test_colour_spaces(tmp_path):
    Image.new("CMYK", (4, 4), (0, 0, 0, 255)).save(tmp_path / "k.tif")
    assert decode(tmp_path / "k.tif").max() == 0
    Image.new("LAB", (4, 4), (180, 128, 128)).save(tmp_path / "lab.tif")
    assert (decode(tmp_path / "lab.tif") == 180).all()
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "b.png")
    assert decode(tmp_path / "b.png").tolist() == [[255, 0]]
    Image.new("RGB", (4, 4), (255, 0, 0)).save(tmp_path / "r.png")
    assert (decode(tmp_path / "r.png") == 76).all()  # 0.299 * 255


@pytest.mark.parametrize("suffix", ["gif", "tif", "png", "webp"])
def test_first_frame(tmp_path, suffix):
    frames = [Image.new("L", (6, 5), gray) for gray in (40, 90, 200)]
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], **options)
    assert (decode(tmp_path / f"a.{suffix}") == 40).all()


def test_stretch_is_pillows_antialiased_bilinear(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (73, 91), np.uint8)
    Image.fromarray(values).save(tmp_path / "a.png")
    got = decode_to(tmp_path / "a.png", config.Image(20, 31))
    expected = np.asarray(Image.fromarray(values).resize((31, 20), Image.Resampling.BILINEAR))
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(
    ("stored", "size", "corner", "inner"),
    [
        ((10, 10), (50, 100), (0, 25), (50, 50)),
        ((10, 40), (50, 100), (12, 0), (25, 100)),
        ((7, 7), (8, 9), (0, 0), (8, 8)),
        ((1, 1000), (50, 100), (24, 0), (1, 100)),
        ((1000, 1), (50, 100), (0, 49), (50, 1)),
        ((1, 1), (5, 5), (0, 0), (5, 5)),
    ],
)
def test_pad_keeps_the_aspect_ratio_and_centres(tmp_path, stored, size, corner, inner):
    values = np.random.default_rng(1).integers(0, 256, stored, np.uint8)
    Image.fromarray(values).save(tmp_path / "a.png")
    got = decode_to(tmp_path / "a.png", config.Image(*size, config.Fit.pad))
    small = np.asarray(Image.fromarray(values).resize(inner[::-1], Image.Resampling.BILINEAR))
    window = (slice(corner[0], corner[0] + inner[0]), slice(corner[1], corner[1] + inner[1]))
    assert got.shape == size
    assert np.array_equal(got[window], small)
    border = np.ones(got.shape, bool)
    border[window] = False
    assert (got[border] == int(small.mean() + 0.5)).all()
