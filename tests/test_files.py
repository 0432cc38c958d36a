"""Files that are whole or not there: what is flushed, with which rights, and what is said when the disk refuses."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from pathlib import Path

import pytest

from pipeline import checkpoint, config, files
from pipeline.checkpoint import Keeper
from pipeline.errors import OutputError

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX folders and rights")


def write(path: Path, text: str = "new") -> None:
    with files.atomic(path) as stream:
        stream.write(text)


@pytest.fixture
def synced(monkeypatch):
    """Return the folders that were flushed, in order."""
    found, sync = [], files._sync_folder
    monkeypatch.setattr(files, "_sync_folder", lambda folder: found.append(folder) or sync(folder))
    return found


def test_new_folders_are_flushed_into_those_above(tmp_path, synced):
    write(tmp_path / "a" / "b" / "x")
    assert sorted(synced[:-1]) == [tmp_path, tmp_path / "a"]
    assert synced[-1] == tmp_path / "a" / "b"  # the rename, last
    synced.clear()
    write(tmp_path / "a" / "b" / "x")
    assert synced == [tmp_path / "a" / "b"]


@needs_posix
def test_the_first_checkpoint_flushes_the_run_folder_that_hydra_made(tmp_path, synced):
    run_dir = tmp_path / "runs" / "train"
    run_dir.mkdir(parents=True)
    keeper = Keeper(str(run_dir), config.Checkpoint(every=0.0, rounds=1))
    keeper(1, lambda: ({}, {}))
    assert synced[:2] == [tmp_path / "runs", tmp_path]
    synced.clear()
    keeper(2, lambda: ({}, {}))
    assert synced == [run_dir / checkpoint.FOLDER]


@needs_posix
def test_a_folder_that_cannot_be_flushed_after_the_rename_is_told_as_that(tmp_path, monkeypatch):
    """It said that an older file was unchanged, when the new one lay there."""
    fsync, path = os.fsync, tmp_path / "x"
    path.write_text("old")

    def failing(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir() or os.path.isdir(f"/dev/fd/{descriptor}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OutputError, match="x is written, but its folder cannot be flushed") as caught:
        write(path)
    assert "unchanged" not in str(caught.value)
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["x"]


@needs_posix
def test_a_file_system_that_knows_no_such_step_is_no_fault(tmp_path, monkeypatch):
    fsync = os.fsync

    def unknown(descriptor):
        if os.path.isdir(f"/dev/fd/{descriptor}"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", unknown)
    write(tmp_path / "a" / "x")
    assert (tmp_path / "a" / "x").read_text() == "new"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_mask_for_new_files_is_read_without_being_set(tmp_path, monkeypatch):
    """For a moment every other thread's new files were open to all."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda mask: pytest.fail("the mask was set"))
            write(tmp_path / "x")
        assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)
    monkeypatch.setattr(files, "_told_mask", lambda: None)  # another system: as it was at the start
    monkeypatch.setattr(files, "_FIRST_MASK", 0o077)
    write(tmp_path / "y")
    assert (tmp_path / "y").stat().st_mode & 0o777 == 0o600
    assert files._set_mask() == before
    assert os.umask(before) == before


# ---- what a run sweeps away ----

THEIRS = [".movie.mp4.part", ".download.part", ".model.npz.part", "model.npz.abc.part", ".x.npz.abcdefgh.part",
          ".round_000001.npz.part", ".round_x.npz.abcdefgh.part"]  # fmt: skip


def test_only_its_own_half_files_are_swept_away(tmp_path):
    keeper, folder = Keeper(str(tmp_path), config.Checkpoint()), tmp_path / checkpoint.FOLDER
    folder.mkdir()
    for name in THEIRS:
        (tmp_path / name).write_text("mine")
        (folder / name).write_text("mine")
    for half in (tmp_path / ".model.npz.a_c0efgh.part", folder / ".round_000001.npz.abcdefgh.part"):
        half.write_text("half")
    keeper.sweep()
    for place in (tmp_path, folder):
        assert sorted(one.name for one in place.iterdir() if one.is_file()) == sorted(THEIRS)


def test_whatever_a_run_writes_whole_is_swept_after_a_kill(call, photos, monkeypatch):
    for path in sorted(photos.glob("a/*.png")):
        (path.parent / f"twin{path.name}").write_bytes(path.read_bytes())  # for duplicates.csv
    made, mkstemp = [], tempfile.mkstemp

    def named(*arguments, **more):
        handle, name = mkstemp(*arguments, **more)
        made.append(Path(name).name)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", named)
    words = ["image.height=16", "image.width=16", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[2,2]"]
    words += ["data.path=photos", "classifier.n_rounds=2", "checkpoint.rounds=1", "hydra.run.dir=run"]
    assert call("train", *words)[0] == 0
    wholes = {name.removeprefix(".").rsplit(".", 2)[0] for name in made}
    assert wholes == {*checkpoint.WHOLE, "round_000001.npz", "round_000002.npz"}
    Path("again").mkdir()
    for name in made:
        Path("again", name).write_text("half")
    Keeper("again", config.Checkpoint()).sweep()
    assert os.listdir("again") == []
