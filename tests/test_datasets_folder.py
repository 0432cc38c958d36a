"""Folders: which files count, which class they have, what is rejected."""

from __future__ import annotations

import csv
import os
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pipeline import config
from pipeline.datasets import Rejected, TooManyRejected, folder, load, parallel, stream, write_rejected
from pipeline.errors import DataError, OutputError
from tests.conftest import DATA, shared_data
from tests.pictures import SIZE, folder_data, picture, two_classes_in


@pytest.fixture
def two_classes(tmp_path):
    return two_classes_in(tmp_path / "set")


def test_classes_names_and_order(tmp_path):
    root = tmp_path / "my set #1"
    names = ["a/Blue Lace (1).BMP", "a/größe 画像.JPG", "a/no_suffix", "a/sub/deep/er/x#1.Png", "b c/00.tif"]
    for i, name in enumerate(names):
        picture(root / name, 10 * i)
    loaded = load(folder_data(root), SIZE)
    assert loaded.rejected == []
    assert loaded.images.class_names == ("a", "b c")
    assert loaded.images.paths == names
    assert loaded.images.labels.tolist() == [0, 0, 0, 0, 1]
    assert loaded.images.labels.dtype == np.intp
    assert loaded.images.pixels.shape == (5, 8, 12)
    assert loaded.images.pixels[:, 0, 0].tolist() == [0, 10, 20, 30, 40]
    assert set(loaded.native_seconds) == {"read", "decode"}


def test_hidden_system_and_side_files_are_passed_over(two_classes):
    for name in (
        ".DS_Store",
        "a/.hidden.png",
        "a/Thumbs.db",
        "a/desktop.ini",
        "README.md",
        "b/notes.txt",
        "set.npz",
    ):
        (two_classes / name).write_bytes(b"x")
    picture(two_classes / "__MACOSX" / "x.png")
    picture(two_classes / ".git" / "x.png")
    loaded = load(folder_data(two_classes, max_rejected=0.0), SIZE)
    assert len(loaded.images) == 40
    assert loaded.images.class_names == ("a", "b")


@pytest.mark.parametrize("workers", [1, 3])
def test_rejected_files_leave_no_gap(two_classes, workers):
    (two_classes / "a" / "00.png").write_bytes(b"")
    (two_classes / "a" / "07 x.png").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (two_classes / "b" / "19.png").write_bytes(b"hello world")
    (two_classes / "b" / "link.png").symlink_to("nowhere.png")
    picture(two_classes / "loose.png")
    seen = []
    loaded = load(
        folder_data(two_classes, workers=workers, max_rejected=0.2),
        SIZE,
        lambda done, total: seen.append((done, total)),
    )
    assert sorted(path for path, _ in loaded.rejected) == [
        "a/00.png",
        "a/07 x.png",
        "b/19.png",
        "b/link.png",
        "loose.png",
    ]
    reasons = dict(loaded.rejected)
    assert reasons["a/00.png"] == "empty file (0 bytes)"
    assert "Git LFS" in reasons["a/07 x.png"]
    assert "link" in reasons["b/link.png"]
    assert "no class" in reasons["loose.png"]
    grays = [2 * int(Path(p).stem) + (p[0] == "a") for p in loaded.images.paths]
    assert loaded.images.pixels[:, 3, 3].tolist() == grays
    assert [loaded.images.class_names[k] for k in loaded.images.labels] == [p[0] for p in loaded.images.paths]
    assert len(loaded.images) == 38
    assert seen == sorted(seen)
    assert seen[-1] == (41, 41)


def test_too_many_rejected_names_count_share_first_and_keeps_the_list(two_classes):
    for i in range(5):
        (two_classes / "a" / f"{i:02d}.png").write_bytes(b"")
    assert len(load(folder_data(two_classes, max_rejected=0.125), SIZE).rejected) == 5
    with pytest.raises(
        TooManyRejected, match=r"5 of 40 files rejected \(12.5 %\).*0\.1.*a/00.png: empty file"
    ) as caught:
        load(folder_data(two_classes), SIZE)
    assert len(caught.value.rejected) == 5
    assert "\n" not in str(caught.value)


def test_nothing_left_is_an_error_even_when_all_may_be_rejected(tmp_path):
    for name in ("a/1.png", "b/1.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(TooManyRejected, match="2 of 2"):
        load(folder_data(tmp_path, max_rejected=1.0), SIZE)


def test_missing_empty_flat_single_class_and_file(tmp_path):
    (tmp_path / "empty").mkdir()
    picture(tmp_path / "flat" / "1.png")
    picture(tmp_path / "one" / "only" / "1.png")
    for name, words in (
        ("gone", "no such folder"),
        ("empty", "holds no pictures; expected one sub-folder of them for each class"),
        ("flat", "no class folders"),
        ("one", r"single class \(only\)"),
        ("flat/1.png", "a file, not a folder"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            load(folder_data(tmp_path / name), SIZE)
        assert str(tmp_path / name) in str(caught.value)


def test_a_set_without_classes_is_not_asked_for_any(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("gone", "no such folder; expected a folder of pictures"),
        ("empty", "holds no pictures; expected them in it or in sub-folders"),
    ):
        with pytest.raises(DataError, match=f"{words}$"):
            next(stream(folder_data(tmp_path / name), SIZE, 8))


def test_links_are_followed_but_not_in_circles(two_classes, tmp_path):
    elsewhere = picture(tmp_path / "elsewhere" / "x.png", 250).parent
    (two_classes / "c").symlink_to(elsewhere, target_is_directory=True)
    (two_classes / "a" / "loop").symlink_to("..", target_is_directory=True)
    (two_classes / "a" / "above").symlink_to("../..", target_is_directory=True)
    (two_classes / "a" / "self").symlink_to("self")
    (two_classes / "b" / "b").symlink_to(".", target_is_directory=True)
    loaded = load(folder_data(two_classes), SIZE)
    assert len(loaded.images) == 41
    assert loaded.images.paths[-1] == "c/x.png"
    assert loaded.rejected == [Rejected("a/self", "a link to nothing")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hang(two_classes):
    os.mkfifo(two_classes / "a" / "pipe.png")
    assert len(load(folder_data(two_classes), SIZE).images) == 40


def test_a_folder_that_cannot_be_listed_is_rejected(two_classes, monkeypatch):
    (two_classes / "b" / "shut").mkdir()
    honest = folder._list

    def refuse(path):
        if path.name == "shut":
            raise PermissionError(13, "Permission denied")
        return honest(path)

    monkeypatch.setattr(folder, "_list", refuse)
    loaded = load(folder_data(two_classes), SIZE)
    assert loaded.rejected == [Rejected("b/shut", "folder that cannot be listed: Permission denied")]


def test_names_that_are_no_utf8_can_be_reported(two_classes, tmp_path):
    name = os.fsencode(two_classes / "a") + b"/bad\xff.png"
    try:
        Path(os.fsdecode(name)).write_bytes(b"")
    except OSError:
        pytest.skip("this file system refuses names that are no UTF-8")
    loaded = load(folder_data(two_classes), SIZE)
    assert loaded.rejected[0].path == "a/bad\\udcff.png"
    write_rejected(tmp_path / "rejected.csv", loaded.rejected)


def test_a_fault_of_ours_in_a_worker_is_not_swallowed(two_classes, monkeypatch):
    def fault(*_args):
        raise AttributeError("ours")

    monkeypatch.setattr(parallel, "to_bytes", fault)
    with pytest.raises(AttributeError, match="ours"):
        load(folder_data(two_classes), SIZE)


def test_interrupt_in_the_progress_callback_ends_the_workers(two_classes):
    def interrupt(_done, _total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        load(folder_data(two_classes), SIZE, interrupt)
    assert threading.active_count() == before


def test_rejected_csv(tmp_path):
    rows = [Rejected('a, "b"\n#.png', "reason, with comma"), Rejected("größe.png", "x")]
    write_rejected(tmp_path / "r.csv", rows)
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["path", "reason"], *map(list, rows)]
    write_rejected(tmp_path / "r.csv", [])
    assert (tmp_path / "r.csv").read_text().split() == ["path,reason"]
    with pytest.raises(OutputError, match="gone"):
        write_rejected(tmp_path / "gone" / "r.csv", [])


def test_the_odd_files_as_one_run(tmp_path):
    for name in ("a", "b"):
        picture(tmp_path / name / "sound.png")
    for path in (DATA / "nasty").iterdir():
        (tmp_path / "a" / path.name).write_bytes(path.read_bytes())
    loaded = load(folder_data(tmp_path, max_rejected=0.5), config.Image())
    assert sorted(path for path, _ in loaded.rejected) == [
        "a/badwidth.bmp",
        "a/decompression_bomb.gif",
        "a/shortfile.bmp",
        "a/x_issue#214.png",
        "a/xdtn0g01.png",
        "a/zero_width.gif",
    ]
    assert len(loaded.images) == 11
    assert np.ptp(loaded.images.pixels[loaded.images.paths.index("a/s01i3p01.png")]) == 0


@pytest.mark.parametrize(
    ("archive", "name", "height", "width"),
    [
        ("vehicles6.zip", "vehicles6", 50, 100),
        ("trafficlights3.tar.gz", "trafficlights3", 50, 100),
        ("trafficlights3.tar.gz", "trafficlights3", 100, 50),
    ],
)
def test_equal_to_the_arrays_handed_over_with_the_archives(tmp_path, archive, name, height, width):
    source = shared_data("data", archive)
    if archive.endswith(".zip"):
        with zipfile.ZipFile(source) as file:
            file.extractall(tmp_path)
    else:
        with tarfile.open(source) as file:
            file.extractall(tmp_path, filter="data")
    loaded = load(folder_data(tmp_path / name, max_rejected=0.0), config.Image(height, width))
    with np.load(shared_data("data", f"{name}_{height}x{width}.npz"), allow_pickle=False) as expected:
        assert loaded.images.paths == expected["files"].tolist()
        assert list(loaded.images.class_names) == expected["classes"].tolist()
        assert np.array_equal(loaded.images.labels, expected["labels"])
        assert np.array_equal(loaded.images.pixels, expected["images"])
