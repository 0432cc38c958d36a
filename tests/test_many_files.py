"""What grows with the number of files: it is compared and searched by arrays, and counted under the limit."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from pipeline import config, datasets
from pipeline.datasets.stamps import Stamps
from pipeline.errors import DataError
from pipeline.scale import known, memory
from pipeline.scale import outofcore as on_disk

MANY = 50_000


@contextmanager
def at_most(size):
    """Let the block take no more memory of Python's than `size` bytes at a time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= size


def stamps(n=MANY):
    return Stamps([f"class_{i % 7}/{i:07d}.png" for i in range(n)], np.arange(n) + 1000, np.arange(n) * 10**9)


def test_files_that_are_the_same_are_compared_without_tables():
    """Tables took 350 bytes a file."""
    then, now = stamps(), stamps()
    with at_most(4 * MANY):
        then.compare(now, "here")


def test_a_change_among_many_is_named():
    then, now = stamps(1000), stamps(1000)
    now.times[500] += 1
    with pytest.raises(DataError, match=r"class_3/0000500\.png has changed since the run began: it is of"):
        then.compare(now, "here")
    now = stamps(1000)
    now.sizes[[3, 4]] += 1
    with pytest.raises(
        DataError, match=r"class_3/0000003\.png has changed .*: 1003 bytes then, 1004 now \(and 1 more\)"
    ):
        then.compare(now, "here")
    order = np.random.default_rng(0).permutation(1000)
    then.compare(Stamps([now.names[i] for i in order], then.sizes[order], then.times[order]), "here")
    with pytest.raises(DataError, match=r"class_0/0000000\.png has vanished"):
        then.compare(Stamps(then.names[1:], then.sizes[1:], then.times[1:]), "here")


@pytest.mark.parametrize("seed", range(4))
def test_twins_by_sorting_are_those_of_a_table(seed):
    rng = np.random.default_rng(seed)
    n = (0, 1, 200, 2000)[seed]
    kinds = rng.integers(0, 256, (max(1, n // 4), 16), dtype=np.uint8)
    kinds[: n // 8, 8:] = 0  # some that differ in one half only
    digests = np.ascontiguousarray(kinds[rng.integers(0, len(kinds), n)]).view("V16").reshape(-1)
    order, paths = rng.permutation(n), [f"{i}.png" for i in range(n)]
    train, test = order[: 2 * n // 3], order[2 * n // 3 :]
    table = {}
    for i in train:
        table.setdefault(digests[i].tobytes(), int(i))
    wanted = [(paths[table[digests[i].tobytes()]], paths[i]) for i in test if digests[i].tobytes() in table]
    assert known.duplicates_across(digests, paths, train, test) == wanted
    assert seed < 2 or len(wanted) > 10


def test_twins_among_many_take_little_memory():
    digests = np.frombuffer(np.random.default_rng(0).bytes(16 * MANY), "V16")
    index, paths = np.arange(MANY), [""] * MANY
    with at_most(100 * MANY):
        assert known.duplicates_across(digests, paths, index[: MANY // 2], index[MANY // 2 :]) == []


@pytest.mark.parametrize("kind", ["synthetic", "digits", "folder"])
def test_the_rows_read_at_a_time_are_asked_for_once_the_set_is_listed(kind, photos):
    data = config.Data(name=config.DataName[kind], n=70, path=str(photos) if kind == "folder" else None)
    asked = []

    def rows(total):
        asked.append(total)
        return 10

    _, chunks = datasets.stream_labelled(data, config.Image(16, 16), rows)
    assert asked == [{"synthetic": 70, "digits": 1797, "folder": 48}[kind]]
    assert len(next(chunks).images) == 10


def test_names_and_digests_are_counted_while_images_are_read(tmp_path, monkeypatch):
    """A million pictures leave 168 MB less for the reading."""
    from pipeline.commands import steps

    asked = []
    rows = memory.Budget.rows
    monkeypatch.setattr(
        memory.Budget, "rows", lambda self, fixed, *more: asked.append(fixed) or rows(self, fixed, *more)
    )
    cfg = config.Train(
        data=config.Data(name=config.DataName.synthetic, n=300), image=config.Image(16, 16),
        hog=config.Hog(cells_per_block=[2, 2]), run_dir=str(tmp_path),
        scale=config.Scale(name=config.ScaleName.outofcore, memory_limit="4GB"),
    )  # fmt: skip
    on_disk.keep(cfg, steps.extractor(cfg.hog, cfg.image, "cpu"), tmp_path)
    assert asked == [300 * memory.KNOWN]
    assert memory.KNOWN * 10**6 >= 123e6 + 40e6
