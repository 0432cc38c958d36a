"""A run on workers that goes on with others: with the memory for Gram matrices that it began with."""

from __future__ import annotations

import pytest

from pipeline import interrupts
from pipeline.commands import distributed
from pipeline.scale import dask_run
from tests.test_dask_faults import MADE, THREADS, WORDS, told
from tests.test_resume import contents, stop_at

pytest.importorskip("distributed")


@pytest.mark.parametrize(
    ("ours", "begun", "found"), [(100, None, 100), (100, 60, 60), (100, 200, 200), (100, 201, 100)]
)
def test_memory_for_sums_is_that_of_the_beginning_if_workers_have_it(ours, begun, found, monkeypatch):
    said = []
    monkeypatch.setattr(distributed, "say", said.append)
    assert distributed._gram_bytes(ours, begun) == found
    assert len(said) == (begun == 201)


@pytest.mark.slow
def test_workers_with_other_memory_go_on_to_the_same_bits(call, monkeypatch, capsys):
    """Three classes at a time or one: sums round differently, and a model's last bits with them."""
    words = [
        "train",
        *WORDS,
        *MADE,
        *THREADS,
        "data.n=3000",
        "classifier=ridge",
        "scale.partitions=2",
        "classifier.n_rounds=4",
        "hog.orientations=7",
    ]
    size = 8 * 252**2  # of a Gram matrix; of more than 256 columns classes are summed one by one anyway
    keep = dask_run.keep

    def holding(classes):
        def kept(*arguments):
            found = keep(*arguments)
            assert found.images.labels is not None
            found.gram_bytes = classes * size
            return found

        return kept

    for name, classes in (("all", 3), ("one", 1)):
        monkeypatch.setattr(dask_run, "keep", holding(classes))
        status, _, err = call(*words, f"hydra.run.dir={name}")
        assert (status, told(err)) == (0, [])
    assert contents("all/model.npz") != contents("one/model.npz")
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(interrupts.Stopped):
            call(*words, "checkpoint.rounds=1", "hydra.run.dir=run")
    capsys.readouterr()
    monkeypatch.setattr(dask_run, "keep", holding(3))
    status, _, err = call("train", "resume=run")
    assert (status, told(err)) == (0, [])
    assert contents("run/model.npz") == contents("one/model.npz")
