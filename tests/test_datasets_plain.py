"""The short way for plain PNG and JPEG files: the same pixels and the same reasons as by Pillow's file objects."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin

from pipeline import config
from pipeline.datasets import decode as rules
from pipeline.datasets import plain, short
from pipeline.datasets.decode import decode, decode_to, quiet
from pipeline.datasets.reasons import DecodeError
from tests.conftest import DATA

ANY = 10**9
SMALL = config.Image(10, 12)


def noise(rows: int, cols: int, mode: str) -> Image.Image:
    """Return smooth colours and some noise, so that JPEG has work at every frequency."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:rows, :cols]
    waves = [128 + 90 * np.sin(x / (5 + k) + k) * np.cos(y / (9 - k)) for k in range(len(mode))]
    values = np.stack(waves, 2) + rng.normal(0, 12, (rows, cols, len(mode)))
    values = np.clip(values, 0, 255).astype(np.uint8)
    return Image.fromarray(values[..., 0] if mode == "L" else values)


def stored(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def taken(path, content: bytes, max_pixels: int = ANY, size: int = 0) -> np.ndarray | None:
    path.write_bytes(content)
    found = plain.read(str(path), size, max_pixels, None)
    if found is None:
        return None
    width, height, pixels = found
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 1), (7, 13), (50, 100)])
@pytest.mark.parametrize("level", [0, 6, 9])
def test_plain_png_has_the_pixels_that_were_stored(tmp_path, mode, size, level):
    picture = noise(*size, mode)
    found = taken(tmp_path / "a.png", stored(picture, "PNG", compress_level=level, dpi=(72, 72)))
    assert found is not None
    assert np.array_equal(found, np.asarray(picture.convert("L")))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", [(1, 1), (7, 13), (50, 100), (131, 67)])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0, "quality": 97, "icc_profile": b"x"}]
)
def test_plain_jpeg_has_the_pixels_of_pillows_file_object(tmp_path, mode, size, options):
    content = stored(noise(*size, mode), "JPEG", **options)
    found = taken(tmp_path / "a.jpg", content)
    assert found is not None
    with Image.open(io.BytesIO(content)) as picture:
        assert np.array_equal(found, np.asarray(picture.convert("L")))


def oriented() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def texts(**entries: str) -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    for name, text in entries.items():
        info.add_text(name.replace("_", " "), text)
    return info


RGB = noise(9, 14, "RGB")
XMP = b'<x:xmpmeta tiff:Orientation="6"/>'
ODD = {
    "PNG with EXIF": stored(RGB, "PNG", exif=oriented()),
    "PNG with a transparent colour": stored(RGB, "PNG", transparency=(0, 0, 0)),
    "PNG with EXIF in text": stored(RGB, "PNG", pnginfo=texts(Raw_profile_type_exif="\n\n\n00")),
    "PNG with a palette": stored(RGB.convert("P"), "PNG"),
    "PNG of 1 bit": stored(RGB.convert("1"), "PNG"),
    "PNG of 16 bits": stored(Image.new("I;16", (3, 3)), "PNG"),
    "PNG, interlaced": (DATA / "nasty" / "s01i3p01.png").read_bytes(),
    "PNG with a wrong checksum": (DATA / "nasty" / "xcsn0g01.png").read_bytes(),
    "JPEG with EXIF": stored(RGB, "JPEG", exif=oriented()),
    "JPEG with XMP": stored(RGB, "JPEG", xmp=XMP),
    "JPEG of CMYK": stored(RGB.convert("CMYK"), "JPEG"),
    "several JPEGs in one file": stored(RGB, "MPO", save_all=True, append_images=[RGB]),
    "BMP": stored(RGB, "BMP"),
    "nothing": b"",
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_not_plain_is_left_to_the_rules(tmp_path, what):
    assert taken(tmp_path / "a", ODD[what]) is None


def test_compressed_text_is_left_to_pillow_which_limits_its_size(tmp_path):
    info = PngImagePlugin.PngInfo()
    info.add_text("a", "x", zip=True)
    assert taken(tmp_path / "a", stored(RGB, "PNG", pnginfo=info)) is None
    assert taken(tmp_path / "a", stored(RGB, "PNG", pnginfo=texts(a="x"))) is not None


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_more_pixels_than_allowed_are_left_to_the_rules(tmp_path, kind):
    content = stored(RGB, kind)
    assert taken(tmp_path / "a", content, 9 * 14) is not None
    assert taken(tmp_path / "a", content, 9 * 14 - 1) is None
    with pytest.raises(DecodeError, match="announces 9 rows x 14 columns"):
        decode(tmp_path / "a", 9 * 14 - 1)


def outcome(path) -> object:
    try:
        return decode_to(path, SMALL).tobytes()
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_damaged_files_end_as_they_do_without_the_short_way(tmp_path, monkeypatch, kind):
    content = stored(noise(24, 30, "L"), kind)
    rng = np.random.default_rng(1)
    damaged = [content[:length] for length in range(0, len(content), 9)]
    for place in rng.integers(0, len(content), 150):
        bad = bytearray(content)
        bad[place] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(bad))
    paths = [tmp_path / str(i) for i in range(len(damaged))]
    for path, one in zip(paths, damaged, strict=True):
        path.write_bytes(one)
    with quiet():
        shortly = [outcome(path) for path in paths]
        monkeypatch.setattr(plain, "read", lambda *_: None)
        assert shortly == [outcome(path) for path in paths]
    assert any(isinstance(one, str) for one in shortly)


def sizes_loaded(monkeypatch, general: bool) -> list[tuple[int, int]]:
    """Note the size at which each JPEG is decoded; `general` takes the long way."""
    seen: list[tuple[int, int]] = []
    load, decoded = ImageFile.ImageFile.load, plain._decoded

    def loaded(picture):
        result = load(picture)
        if isinstance(picture, JpegImagePlugin.JpegImageFile):
            seen.append(picture.size)
        return result

    def directly(mode, size, *rest):
        seen.append(size)
        return decoded(mode, size, *rest)

    monkeypatch.setattr(ImageFile.ImageFile, "load", loaded)
    monkeypatch.setattr(plain, "_decoded", directly)
    monkeypatch.setattr(short, "_simplejpeg", lambda: None)
    if general:
        monkeypatch.setattr(plain, "read", lambda *_: None)
    return seen


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize(
    ("size", "scaled"),  # (rows, columns) for pictures of 10 x 12: at least 20 x 24 must be left
    [
        ((39, 400), (39, 400)),
        ((400, 47), (400, 47)),
        ((40, 48), (20, 24)),
        ((79, 95), (40, 48)),
        ((80, 96), (20, 24)),
        ((163, 197), (21, 25)),
        ((500, 600), (63, 75)),
    ],
)
def test_how_far_a_jpeg_is_shrunk_while_it_is_decoded(tmp_path, monkeypatch, size, scaled, general):
    (tmp_path / "a.jpg").write_bytes(stored(noise(*size, "L"), "JPEG"))
    seen = sizes_loaded(monkeypatch, general)
    assert decode_to(tmp_path / "a.jpg", SMALL).shape == (10, 12)
    assert set(seen) == {scaled[::-1]}
    assert decode(tmp_path / "a.jpg").shape == size  # without a size to go to, all of it


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_shrunken_jpeg_is_near_the_whole_one_resized(tmp_path, mode):
    picture = noise(163, 197, mode)
    (tmp_path / "a.jpg").write_bytes(stored(picture, "JPEG", quality=95))
    (tmp_path / "a.png").write_bytes(stored(picture, "PNG"))  # never shrunk
    image = config.Image(20, 24)
    difference = decode_to(tmp_path / "a.jpg", image).astype(int) - decode_to(tmp_path / "a.png", image)
    assert np.abs(difference).max() <= 6
    assert np.abs(difference).mean() <= 1.2


@pytest.mark.parametrize("size", [(163, 197), (401, 90)])
@pytest.mark.parametrize("fit", list(config.Fit))
def test_an_orientation_in_the_header_changes_no_pixel_of_a_shrunken_jpeg(tmp_path, fit, size):
    picture = noise(*size, "RGB")
    exif = Image.Exif()
    exif[0x0112] = 1
    (tmp_path / "short.jpg").write_bytes(stored(picture, "JPEG"))
    (tmp_path / "long.jpg").write_bytes(stored(picture, "JPEG", exif=exif))
    image = config.Image(20, 24, fit)
    assert np.array_equal(decode_to(tmp_path / "short.jpg", image), decode_to(tmp_path / "long.jpg", image))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(97, 401), (167, 201)])
def test_a_shrunken_jpeg_is_turned_to_the_pixel(tmp_path, monkeypatch, size, orientation):
    picture = noise(*size, "L")  # neither side is a multiple of what it is divided by
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a.jpg").write_bytes(stored(picture, "JPEG", quality=98, exif=exif))
    (tmp_path / "a.png").write_bytes(stored(picture, "PNG", exif=exif))  # never shrunk
    seen = sizes_loaded(monkeypatch, True)
    difference = decode_to(tmp_path / "a.jpg", SMALL).astype(int) - decode_to(tmp_path / "a.png", SMALL)
    assert seen[0] != size[::-1]
    assert np.abs(difference).max() <= 6  # 20 and more where the box is that of another orientation
    assert np.abs(difference).mean() <= 2


def test_padding_goes_by_the_size_of_the_whole_picture(tmp_path):
    # 121 x 95, to 10 x 12: scale 10 / 121, so 95 columns become 7.85, that is 8. Of the 31 x 24 that a quarter leaves
    # it would be 24 * 10 / 31 = 7.74, also 8; of 385 x 95: 2.47 and, of a quarter's 97 x 24, 2.474: 2 in both.
    for size in ((121, 95), (385, 97), (333, 83)):
        (tmp_path / "a.jpg").write_bytes(stored(noise(*size, "L"), "JPEG"))
        columns = max(1, round(size[1] * 10 / size[0]))
        rows = decode_to(tmp_path / "a.jpg", config.Image(10, 12, config.Fit.pad))
        left = (12 - columns) // 2
        border = np.delete(rows, np.s_[left : left + columns], axis=1)
        assert (border == border[0, 0]).all()
        assert not (rows[:, left] == border[0, 0]).all()
        assert not (rows[:, left + columns - 1] == border[0, 0]).all()


def test_large_files_take_the_long_way(tmp_path, monkeypatch):
    content = stored(RGB, "PNG")
    monkeypatch.setattr(plain, "LARGEST_FILE", len(content))
    assert taken(tmp_path / "a", content) is not None
    monkeypatch.setattr(plain, "LARGEST_FILE", len(content) - 1)
    assert taken(tmp_path / "a", content) is None
    assert np.array_equal(decode(tmp_path / "a"), np.asarray(RGB.convert("L")))
    assert rules.GAP == 2


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"keep_rgb": True}])
def test_simplejpeg_gives_pillows_pixels(tmp_path, monkeypatch, options):
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed: pip install 'hogboost[decode]'")
    used = []
    honest = short._by_simplejpeg
    monkeypatch.setattr(short, "_by_simplejpeg", lambda *rest: used.append(honest(*rest)) or used[-1])
    rng = np.random.default_rng(0)
    for trial in range(40):
        rows, cols = rng.integers(1, 250, 2)
        mode = "RGB" if options or trial % 2 else "L"
        vivid = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8)).resize((cols, rows))
        content = stored(vivid.convert(mode), "JPEG", quality=int(rng.integers(30, 100)), **options)
        (tmp_path / "a.jpg").write_bytes(content)
        quick = decode_to(tmp_path / "a.jpg", SMALL)
        with monkeypatch.context() as without:
            without.setattr(short, "_simplejpeg", lambda: None)
            assert np.array_equal(quick, decode_to(tmp_path / "a.jpg", SMALL))
    assert sum(picture is not None for picture in used) >= 35
