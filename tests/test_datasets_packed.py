"""Packed sets: reading, mapping, refusing, and packing a folder."""

from __future__ import annotations

import os
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image

from pipeline import archive, config
from pipeline.config import DataName
from pipeline.datasets import TooManyRejected, load, pack, stream
from pipeline.errors import ConfigError, DataError, OutputError
from tests.conftest import shared_data

SIZE = config.Image(8, 12)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 12), np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2], np.int16)
CLASSES = np.array(["x", "y", "größe"])
FILES = np.array([f"f/{i}.png" for i in range(6)])
WHOLE = {"images": PIXELS, "labels": LABELS, "classes": CLASSES, "files": FILES}


def packed(path, **options) -> config.Data:
    return config.Data(name=DataName.packed, path=str(path), **options)


def mapped(pixels: np.ndarray) -> bool:
    """Whether the pixels lie in a memory map, below any number of views."""
    base: object = pixels
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


@pytest.fixture
def two_classes(tmp_path):
    root = tmp_path / "set"
    for i in range(30):
        path = root / "ab"[i % 2] / f"{i:02d} ü.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((5, 6), i, np.uint8)).save(path)
    return root


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_everything(tmp_path, save):
    save(tmp_path / "p.npz", **WHOLE, extra=np.zeros(3))
    images = load(packed(tmp_path / "p.npz"), SIZE).images
    assert mapped(images.pixels) == (save is np.savez)
    assert np.array_equal(images.pixels, PIXELS)
    assert images.labels.dtype == np.intp
    assert images.labels.tolist() == LABELS.tolist()
    assert images.class_names == ("x", "y", "größe")
    assert images.paths == FILES.tolist()


def test_a_map_cannot_be_written_through(tmp_path):
    np.savez(tmp_path / "p.npz", **WHOLE)
    with pytest.raises(ValueError, match="read-only"):
        load(packed(tmp_path / "p.npz"), SIZE).images.pixels[0] = 0


def test_fortran_order_and_old_zip_extra_fields(tmp_path):
    np.savez(tmp_path / "p.npz", images=np.asfortranarray(PIXELS), labels=LABELS)
    images = load(packed(tmp_path / "p.npz"), SIZE).images
    assert np.array_equal(images.pixels, PIXELS)
    assert images.pixels.flags.c_contiguous
    info = zipfile.ZipInfo("images.npy")
    info.extra = struct.pack("<HH", 0x7075, 9) + b"123456789"
    np.save(tmp_path / "raw.npy", PIXELS)
    with zipfile.ZipFile(tmp_path / "q.npz", "w") as archive:
        archive.writestr("first.txt", "something in front")
        archive.writestr(info, (tmp_path / "raw.npy").read_bytes())
    (part,) = stream(packed(tmp_path / "q.npz"), SIZE, 10)
    assert np.array_equal(part.images.pixels, PIXELS)


def test_npy_has_pixels_only(tmp_path):
    np.save(tmp_path / "p.npy", PIXELS)
    with pytest.raises(DataError, match="no labels"):
        load(packed(tmp_path / "p.npy"), SIZE)
    parts = list(stream(packed(tmp_path / "p.npy"), SIZE, 4))
    assert [len(part.images) for part in parts] == [4, 2]
    assert parts[1].images.labels is None
    assert parts[1].images.paths == ["p.npy[4]", "p.npy[5]"]
    assert np.array_equal(parts[1].images.pixels, PIXELS[4:])


def test_labels_as_text_or_without_names(tmp_path):
    np.savez(tmp_path / "t.npz", images=PIXELS, labels=np.array(list("bcabca")))
    images = load(packed(tmp_path / "t.npz"), SIZE).images
    assert (images.class_names, images.labels.tolist()) == (("a", "b", "c"), [1, 2, 0, 1, 2, 0])
    np.savez(tmp_path / "n.npz", images=PIXELS, labels=np.array([3, 5, 3, 5, 5, 0]))
    images = load(packed(tmp_path / "n.npz"), SIZE).images
    assert (images.class_names, images.labels.tolist()) == (("0", "3", "5"), [1, 2, 1, 2, 2, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": PIXELS.astype(np.float32)}, "images is float32"),
        ({"images": PIXELS[0]}, r"images is uint8 \(8, 12\)"),
        ({"images": PIXELS[..., None]}, "expected uint8"),
        ({"images": PIXELS[:0], "labels": LABELS[:0], "files": FILES[:0]}, "none of them 0"),
        ({"labels": LABELS[:5]}, "labels is int16"),
        ({"labels": LABELS.astype(float)}, "labels is float64"),
        ({"labels": LABELS + 1}, "labels from 1 to 3 for 3 classes"),
        ({"labels": LABELS - 1}, "labels from -1 to 1"),
        ({"classes": np.array(["x", "x", "y"])}, "distinct"),
        ({"classes": CLASSES[None]}, "classes is"),
        ({"files": FILES[:2]}, "files is"),
        ({"files": np.arange(6)}, "files is int64"),
        ({"classes": np.array(["x"]), "labels": LABELS * 0}, "single class"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, change, words):
    np.savez(tmp_path / "p.npz", **(WHOLE | change))
    with pytest.raises(DataError, match=words) as caught:
        load(packed(tmp_path / "p.npz"), SIZE)
    assert "\n" not in str(caught.value)
    assert "p.npz" in str(caught.value)


@pytest.mark.parametrize("key", ["images", "labels", "classes", "files"])
def test_python_objects_are_never_read(tmp_path, key):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    np.savez(tmp_path / "p.npz", **(WHOLE | {key: np.array([Trap()] * 6, dtype=object)}))
    np.save(tmp_path / "p.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    for name in ("p.npz", "p.npy"):
        with pytest.raises(DataError):
            load(packed(tmp_path / name), SIZE)
    assert not (tmp_path / "sprung").exists()


def test_another_size_names_the_override(tmp_path):
    np.savez(tmp_path / "p.npz", **WHOLE)
    with pytest.raises(DataError, match=r"8 rows x 12 columns, but 50 x 100.*image.height=8 image.width=12"):
        load(packed(tmp_path / "p.npz"), config.Image())


def test_a_checkpoint_is_no_set(tmp_path):
    archive.write(tmp_path / "round_5.npz", {"fit.scores": PIXELS}, {"format": "any"})
    with pytest.raises(DataError, match=r"round_5.npz: a checkpoint of a training run.*resume=RUN_FOLDER"):
        load(packed(tmp_path / "round_5.npz"), SIZE)


def test_missing_images_key_and_damaged_files(tmp_path):
    np.savez(tmp_path / "k.npz", pixels=PIXELS)
    with pytest.raises(
        DataError, match=r"no packed set: .*no array named images \(found: pixels\).*pipeline pack"
    ):
        load(packed(tmp_path / "k.npz"), SIZE)
    np.savez(tmp_path / "p.npz", **WHOLE)
    np.savez_compressed(tmp_path / "c.npz", **WHOLE)
    np.save(tmp_path / "p.npy", PIXELS)
    for name in ("p.npz", "c.npz", "p.npy"):
        sound = (tmp_path / name).read_bytes()
        for end in (0, 1, 20, len(sound) // 2, len(sound) - 5):
            (tmp_path / name).write_bytes(sound[:end])
            with pytest.raises(DataError):
                load(packed(tmp_path / name), SIZE)
    (tmp_path / "c.npz").write_bytes(b"hello world, this is no archive")
    with pytest.raises(DataError, match=r"cut short or not an \.npz"):
        load(packed(tmp_path / "c.npz"), SIZE)


def test_a_header_that_promises_more_than_the_file_holds(tmp_path):
    np.save(tmp_path / "raw.npy", PIXELS)
    lie = (tmp_path / "raw.npy").read_bytes().replace(b"(6, 8, 12)", b"(9, 8, 12)")
    with zipfile.ZipFile(tmp_path / "p.npz", "w") as archive:
        archive.writestr("images.npy", lie)
    with pytest.raises(DataError, match="truncated"):
        load(packed(tmp_path / "p.npz"), SIZE)


def test_bytes_flipped_anywhere_in_the_directory(tmp_path):
    np.savez(tmp_path / "p.npz", **WHOLE)
    sound = (tmp_path / "p.npz").read_bytes()
    rng = np.random.default_rng(0)
    errors = 0
    for _ in range(200):
        content = bytearray(sound)
        for position in rng.integers(0, len(sound), 8):
            content[position] ^= int(rng.integers(1, 256))
        (tmp_path / "p.npz").write_bytes(content)
        try:
            load(packed(tmp_path / "p.npz"), SIZE)
        except DataError:
            errors += 1
    assert errors > 50


def test_pack_of_a_folder_reads_back_equal(two_classes, tmp_path):
    (two_classes / "a" / "zero.png").write_bytes(b"")
    data = config.Data(name=DataName.folder, path=str(two_classes))
    seen = []
    report = pack(data, SIZE, tmp_path / "out.npz", lambda done, total: seen.append((done, total)))
    whole = load(data, SIZE)
    again = load(packed(tmp_path / "out.npz"), SIZE)
    assert np.array_equal(again.images.pixels, whole.images.pixels)
    assert mapped(again.images.pixels)
    assert np.array_equal(again.images.labels, whole.images.labels)
    assert again.images.class_names == whole.images.class_names
    assert again.images.paths == whole.images.paths
    assert (report.n, report.class_names, report.rejected) == (30, ("a", "b"), whole.rejected)
    assert report.bytes == (tmp_path / "out.npz").stat().st_size
    assert report.seconds > 0
    assert seen[-1] == (31, 31)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as plain:
        assert sorted(plain.files) == ["classes", "files", "images", "labels"]
        assert np.array_equal(plain["images"], whole.images.pixels)
    assert zipfile.ZipFile(tmp_path / "out.npz").testzip() is None


def test_pack_of_a_flat_folder_has_no_labels(two_classes, tmp_path):
    data = config.Data(name=DataName.folder, path=str(two_classes / "a"))
    assert pack(data, SIZE, tmp_path / "out.npz").class_names == ()
    (part,) = stream(packed(tmp_path / "out.npz"), SIZE, 100)
    assert part.images.labels is None
    assert len(part.images) == 15


def test_pack_into_the_folder_it_reads(two_classes):
    data = config.Data(name=DataName.folder, path=str(two_classes), max_rejected=0.0)
    for _ in range(2):
        assert pack(data, SIZE, two_classes / "out.npz").n == 30


def test_pack_says_where_it_cannot_write(two_classes, tmp_path):
    data = config.Data(name=DataName.folder, path=str(two_classes))
    (tmp_path / "dir.npz").mkdir()
    for out, error, words in (
        (tmp_path / "gone" / "out.npz", OutputError, "no folder"),
        (tmp_path / "dir.npz", OutputError, "is a folder"),
        (tmp_path / "out.zip", ConfigError, "ends in .npz"),
    ):
        with pytest.raises(error, match=words):
            pack(data, SIZE, out)


def test_a_full_disk_leaves_the_old_file_whole(two_classes, tmp_path, monkeypatch):
    data = config.Data(name=DataName.folder, path=str(two_classes))
    out = tmp_path / "out.npz"
    np.savez(out, **WHOLE)
    old = out.read_bytes()
    before = sorted(path.name for path in tmp_path.iterdir())

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            pack(data, SIZE, out)
    (two_classes / "a" / "00 ü.png").write_bytes(b"")
    data.max_rejected = 0.0
    with pytest.raises(TooManyRejected):
        pack(data, SIZE, out)
    assert out.read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_handed_over_arrays_load():
    path = shared_data("data", "trafficlights3_100x50.npz")
    images = load(packed(path), config.Image(100, 50)).images
    assert images.class_names == ("green", "red", "yellow")
    assert images.counts().tolist() == [429, 723, 35]
