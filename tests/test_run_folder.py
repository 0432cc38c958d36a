"""A folder in which a run is at work, or was: who is refused there has changed nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipeline import files, messages
from pipeline.errors import OutputError

QUICK = ["image.height=16", "image.width=16", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[2,2]",
         "data=synthetic", "data.n=40", "data.classes=2", "classifier.n_rounds=2", "plots=false"]  # fmt: skip


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return contents and times of all files."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_hydras_notes_are_those_it_would_write(call):
    status, _, err = call("train", *QUICK, "hydra.run.dir=run")
    assert status == 0, err
    notes = {path.name: path.read_text() for path in Path("run/.hydra").iterdir()}
    assert sorted(notes) == ["config.yaml", "hydra.yaml", "overrides.yaml"]
    assert notes["overrides.yaml"].splitlines() == [f"- {word}" for word in QUICK]
    assert "n_rounds: 2\n" in notes["config.yaml"]
    assert "output_subdir: .hydra\n" in notes["hydra.yaml"]
    assert "output_subdir=null" not in notes["hydra.yaml"]
    for word, found in (("notes", ["config.yaml", "notes"]), ("null", [])):
        folder = Path(f"with-{word}")
        status, _, err = call("train", *QUICK, f"hydra.output_subdir={word}", f"hydra.run.dir={folder}")
        assert status == 0, err
        there = sorted(path.name for path in folder.iterdir())
        assert [name for name in there if name in ("config.yaml", "notes", ".hydra")] == found


FAULTS = {
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or give another folder with hydra.run.dir=...",
    errno.ENOSPC: "make room there, or give another folder with hydra.run.dir=...",
    errno.ENXIO: "look at its rights and at the disk, or give another folder with hydra.run.dir=...",
}


@pytest.mark.parametrize(
    ("name", "line", "number"),
    [
        *(("train", QUICK, number) for number in FAULTS),
        ("plan", [], errno.EFBIG),
        ("benchmark", [], errno.EFBIG),
        ("evaluate", ["split.folds=2"], errno.ENOSPC),
    ],
)
def test_notes_that_cannot_be_written_are_named_with_what_to_do(told, monkeypatch, name, line, number):
    """`ulimit -f 1` gave a traceback of Hydra's, a full disk a line without a file."""

    def full(path, *_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", full)
    words = told(name, *line, "hydra.run.dir=here")
    assert words == (
        f"pipeline {name}: {Path('here/.hydra/config.yaml').absolute()} cannot be written: {os.strerror(number)}; "
        f"{FAULTS[number]}"
    )


def test_a_sweep_that_cannot_be_written_is_told_its_own_setting(told):
    Path("file").write_text("")
    words = told("train", "-m", *QUICK, "split.seed=0,1", "hydra.sweep.dir=file/x")
    assert words.endswith("or give another with hydra.sweep.dir=...")


def test_a_library_that_meets_a_limit_on_files_makes_no_traceback():
    for number in files.FULL:
        error = OSError(number, os.strerror(number))
        assert messages.is_users(error)
        assert messages.one_line(error) == f"a file of this run: {error.strerror}; {files.remedy(error)}"


@pytest.mark.parametrize("older", [False, True])
def test_an_older_file_is_spoken_of_where_there_is_one(tmp_path, monkeypatch, older):
    """It said that an older file was unchanged where there never had been one."""
    if older:
        (tmp_path / "x").write_text("old")

    def full(descriptor):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError) as caught, files.atomic(tmp_path / "x") as stream:
        stream.write("new")
    end = "; the older file there is unchanged" if older else ""
    assert str(caught.value) == (
        f"{tmp_path / 'x'} cannot be written: File too large; raise the limit on the size of files (ulimit -f){end}"
    )
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"] * older


@pytest.mark.parametrize(
    "when", ["at work", "at work, with checkpoints", "finished", "finished, named otherwise", "a sweep"]
)
def test_a_run_that_is_refused_changes_nothing_in_the_folder_of_another(call, monkeypatch, when):
    if when == "a sweep":
        first = [*QUICK, "--multirun", "split.seed=0,1", "hydra.sweep.dir=run"]
        second = [*QUICK, "--multirun", "split.seed=2,3", "hydra.sweep.dir=run"]
    else:
        first, second = [*QUICK, "hydra.run.dir=run"], [*QUICK, "split.seed=2", "hydra.run.dir=run"]
    assert call("train", *first)[0] == 0
    if when.startswith("at work"):  # it has no model yet
        Path("run/model.npz").unlink()
    if when == "at work, with checkpoints":
        Path("run/checkpoints").mkdir(exist_ok=True)
        Path("run/checkpoints/round_000001.npz").write_bytes(b"")
    if when == "finished, named otherwise":  # what it is called is known only when Hydra is at work
        second[-1] = "hydra.run.dir=${oc.env:HERE}"
        monkeypatch.setenv("HERE", "run")
    before = everything(Path("run"))
    if when.startswith("finished"):
        status, _, err = call("train", *second)
        assert "run already holds model.npz of another run" in err
    else:
        with files.occupied(Path("run")):
            status, _, err = call("train", *second)
        assert "another run is writing into" in err
    assert status == 2
    assert everything(Path("run")) == before
    assert before


def test_a_store_is_free_for_the_next_run(call):
    """Chunks stayed there, of use to nobody, and the next run was refused for them."""
    words = [*QUICK, "scale=outofcore", "scale.memory_limit=4GB"]
    Path("there").mkdir()
    Path("there/notes.txt").write_text("mine")
    for number in (1, 2):
        status, _, err = call("train", *words, "scale.store=there", f"hydra.run.dir=run{number}")
        assert status == 0, err
        assert [path.name for path in Path("there").iterdir()] == ["notes.txt"]
    Path("there/notes.txt").unlink()
    assert call("train", *words, "scale.store=there", "hydra.run.dir=run3")[0] == 0
    assert list(Path("there").iterdir()) == []  # the folder is the user's
    assert call("train", *words, "scale.store=made", "hydra.run.dir=run4")[0] == 0
    assert not Path("made").exists()
