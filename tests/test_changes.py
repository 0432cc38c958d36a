"""Sets and chunks that change while a run reads them, and what a run that has checkpoints then says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline import checkpoint, config, datasets
from pipeline.checkpoint import Keeper
from pipeline.config import DataName
from pipeline.datasets import check_unchanged, load, parallel, stream, stream_labelled
from pipeline.datasets.pieces import inventory, read_piece
from pipeline.errors import ChangedError, DataError
from pipeline.scale.store import Store
from tests.pictures import SIZE, folder_data, two_classes_in

SMALL = ["image.height=16", "image.width=16", "hog.pixels_per_cell=[4,4]", "hog.cells_per_block=[2,2]",
         "plots=false", "backend.threads=1"]  # fmt: skip
OUTOFCORE = ["scale=outofcore", "scale.memory_limit=4GB"]


def local(data):
    loaded = load(data, SIZE)
    assert float(loaded.images.pixels.mean()) > 0
    yield
    check_unchanged(loaded)


def outofcore(data):
    yield from stream_labelled(data, SIZE, 16)[1]


def dask(data):
    yield from read_piece(inventory(data, SIZE, True).pieces(1)[0], 16, 1)


WAYS = [local, outofcore, dask]


def overwritten(path: Path) -> None:
    """Write into the file, without another size."""
    content = path.read_bytes()
    path.write_bytes(
        content[:1000] + bytes(40) + content[1040:] if len(content) > 1040 else bytes(len(content))
    )
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 10**7))  # clocks of file systems tick in steps


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(40))


def vanished(path: Path) -> None:
    path.unlink()


CHANGES = {overwritten: "has changed since the set was listed: it is of ", longer: "bytes then, ",
           vanished: "has vanished since the set was listed"}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_packed_set_that_changes_while_it_is_read(tmp_path, way, change):
    path, rng = tmp_path / "set.npz", np.random.default_rng(0)
    np.savez(path, images=rng.integers(0, 256, (40, 8, 12), np.uint8), labels=np.arange(40) % 2)
    reading = way(config.Data(name=DataName.packed, path=str(path)))
    next(reading)
    change(path)
    with pytest.raises(ChangedError, match=f"set.npz .*{CHANGES[change].removeprefix('has ')}"):
        list(reading)
    if change is not vanished:
        assert len(list(way(config.Data(name=DataName.packed, path=str(path))))) > 0


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_a_folder_that_changes_between_listing_and_reading(tmp_path, monkeypatch, way, change):
    """It was taken for one that cannot be read: the run went on with one image fewer."""
    root = two_classes_in(tmp_path / "set")
    decode, victim = parallel.Decoder.decode, root / "b" / "07.png"

    def late(self, entries, *more):
        if victim.exists() and any(one.path == str(victim) for one in entries):
            change(victim)
        return decode(self, entries, *more)

    monkeypatch.setattr(parallel.Decoder, "decode", late)
    with pytest.raises(ChangedError, match=f"b/07.png .*{CHANGES[change].removeprefix('has ')}"):
        list(way(folder_data(root, max_rejected=0.0)))


def test_predict_reads_each_file_as_it_is_then_and_a_packed_set_as_one(tmp_path):
    root = two_classes_in(tmp_path / "set")
    chunks = stream(folder_data(root, max_rejected=0.1), SIZE, 20)
    next(chunks)
    (root / "b" / "07.png").unlink()
    assert [one.path for chunk in chunks for one in chunk.rejected] == ["b/07.png"]
    path = tmp_path / "set.npz"
    np.savez(path, images=np.zeros((40, 8, 12), np.uint8))
    chunks = stream(config.Data(name=DataName.packed, path=str(path)), SIZE, 20)
    next(chunks)
    overwritten(path)
    with pytest.raises(ChangedError, match=r"set\.npz has changed"):
        list(chunks)


@pytest.mark.parametrize("way", ["local", "outofcore", "evaluate"])
def test_a_packed_set_overwritten_in_a_run(call, photos, monkeypatch, way):
    """Such runs ended with an accuracy and no word."""
    words = [*SMALL, "data.path=set.npz", "classifier.n_rounds=2"]
    assert call("pack", "data.path=photos", "out=set.npz", *SMALL[:2])[0] == 0
    if way == "outofcore":
        append = Store.append
        monkeypatch.setattr(
            Store, "append", lambda self, rows: [overwritten(Path("set.npz")), append(self, rows)]
        )
        words += [*OUTOFCORE, "chunk=16"]
    else:
        written = datasets.write_rejected  # after the set was mapped, before its pixels are read

        def changed(*arguments):
            overwritten(Path("set.npz"))
            written(*arguments)

        monkeypatch.setattr(datasets, "write_rejected", changed)
    name = "evaluate" if way == "evaluate" else "train"
    words += ["split.folds=2"] if way == "evaluate" else []
    status, _, err = call(name, *words, "hydra.run.dir=run")
    assert status == 2
    [line] = [line for line in err.splitlines() if line.startswith("pipeline ")]
    assert "set.npz has changed since the set was listed: it is of " in line
    assert line.endswith("; start the run again when nobody writes there")
    assert not Path("run/metrics.json").exists()


# ---- what is said where there is a checkpoint ----


def test_a_chunk_damaged_in_mid_run_does_not_cost_the_rounds_before(call, photos, monkeypatch):
    words = ["train", *SMALL, *OUTOFCORE, "data.path=photos", "classifier.n_rounds=5"]
    keep = Keeper.__call__

    def damaging(self, rounds, take):
        keep(self, rounds, take)
        if rounds == 3:
            os.utime("run/chunks/cells-000000.bin", ns=(1, 1))

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "__call__", damaging)
        status, _, err = call(*words, "checkpoint.rounds=2", "hydra.run.dir=run")
    assert status == 2
    line = err.splitlines()[-1]
    assert "cells-000000.bin: a chunk of the training set is damaged: it was changed after" in line
    assert line.endswith(f"; go on after round 2 with: {checkpoint.command(Path('run').absolute())}")
    assert "start the run again" not in line
    status, out, err = call("train", "resume=run")
    assert status == 0, err
    assert "resuming after round 2 of 5" in out


def telling(tmp_path, error, kept, rounds):
    """Return what is told of an error that ends a run with or without a checkpoint, in its rounds or before."""
    found = (
        checkpoint.Found(tmp_path / "round_000004.npz", ({}, {"rounds": 4}), ({}, {}), []) if kept else None
    )
    keeper = Keeper(str(tmp_path), config.Checkpoint(), found)

    def end():
        with keeper.telling():
            if rounds:
                with keeper.watching(9):
                    raise error
            raise error

    with pytest.raises(DataError) as caught:
        end()
    return str(caught.value)


def test_data_that_end_a_run_are_told_with_the_way_on(tmp_path):
    way = f"go on after round 4 with: {checkpoint.command(tmp_path)}"
    changed = ChangedError("x has changed", "start the run again when nobody writes there", "bring it back")
    again = "x has changed; start the run again when nobody writes there"
    for rounds in (False, True):
        assert telling(tmp_path, changed, False, rounds) == again
        assert telling(tmp_path, changed, True, rounds) == f"x has changed; bring it back, then {way}"
        assert telling(tmp_path, ChangedError("x is damaged"), True, rounds) == f"x is damaged; {way}"
        assert telling(tmp_path, DataError("x cannot be read"), False, rounds) == "x cannot be read"
    assert telling(tmp_path, DataError("x; bring it back"), True, False) == "x; bring it back"
    assert telling(tmp_path, DataError("x: I/O error"), True, True) == f"x: I/O error; mend that, then {way}"


def test_what_has_changed_is_told_alike_by_a_worker():
    """A worker sends its errors home as pickles."""
    import pickle

    error = pickle.loads(pickle.dumps(ChangedError("x has changed", "start again", "bring it back")))
    assert (str(error), error.going_on("go on")) == (
        "x has changed; start again",
        "x has changed; bring it back, then go on",
    )
