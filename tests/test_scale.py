"""Training out of core equals training in memory, whatever the partitioning, in the memory it was given."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from pipeline import config, datasets
from pipeline.boosting import LogitBoostClassifier
from pipeline.commands import train
from pipeline.config import BLOCK_NORMS, size_in_bytes
from pipeline.errors import ConfigError, DataError, OutputError
from pipeline.features import HogExtractor
from pipeline.reporting.stages import Stages
from pipeline.scale import memory
from pipeline.scale import outofcore as on_disk
from pipeline.scale.rows import Buffers, Cells, StoredRows
from pipeline.scale.store import OWNER, Store, clear, store_folder
from tests.conftest import ROOT

# Without a penalty, or with features that hardly differ, rounding of float32 Gram matrices would show: by 1e-5 after
# six rounds. Their fits are refined, and are compared with fits in float64, too.
ILL_CONDITIONED = ("full", "random_features")
LEARNERS = ("subspace", "full", "ridge", "componentwise", "random_features")
SIZE = config.Image(height=16, width=32)


def pictures(n: int, classes: int) -> datasets.Images:
    data = config.Data(name=config.DataName.synthetic, n=n, classes=classes, difficulty=0.9)
    return next(datasets.stream_labelled(data, SIZE, n)[1]).images


class Kept:
    """A data set in memory and on disk."""

    def __init__(self, folder: Path, n: int, classes: int, block: int, by_class: bool) -> None:
        images = pictures(n, classes)
        order = np.argsort(images.labels, kind="stable") if by_class else np.arange(n)
        self.y = images.labels[order]
        self.extractor = HogExtractor(cells_per_block=(2, 2)).fit(images.pixels)
        self.X = self.extractor.transform(images.pixels[order])
        self.format = Cells(self.extractor, images.pixels.dtype)
        self.store = self.format.store(folder, 150)
        for begin in range(0, n, 97):
            self.store.append(self.format.pack(images.pixels[order][begin : begin + 97]))
        self.store.flush()
        self.buffers = Buffers(self.format, block)

    def rows(self, index: np.ndarray, gram_bytes: int = 1 << 26) -> StoredRows:
        return StoredRows(self.store, self.format, index, self.buffers, gram_bytes)

    def parts(self, how: str) -> list[tuple[StoredRows, np.ndarray]]:
        everything = np.arange(len(self.y))
        cuts = {"one": [], "uneven": [7, 400], "empty": [200, 200, 450], "by class": [np.sum(self.y == 0)]}
        return [(self.rows(part), self.y[part]) for part in np.split(everything, cuts[how])]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    made: dict[tuple, Kept] = {}

    def get(n: int, classes: int) -> Kept:
        if (n, classes) not in made:
            made[n, classes] = Kept(tmp_path_factory.mktemp("chunks"), n, classes, 64, by_class=True)
        return made[n, classes]

    return get


def settings(learner: str, dtype: str, **more) -> dict:
    return {"learner": learner, "n_rounds": 6, "subspace_size": 20, "n_components": 32, "dtype": dtype,
            "random_state": 3, **more}  # fmt: skip


@pytest.fixture(scope="module")
def whole(kept):
    """Probabilities, losses, ranks and ladder of a fit to all rows in memory, once for each set of parameters."""
    made: dict[tuple, tuple[np.ndarray, ...]] = {}

    def get(n: int, classes: int, **given) -> tuple[np.ndarray, ...]:
        key = n, classes, *sorted(given.items())
        if key not in made:
            data = kept(n, classes)
            model = LogitBoostClassifier(**given).fit(data.X, data.y)
            assert model.dtype_ == given["dtype"]
            made[key] = model.predict_proba(data.X), model.train_loss_, model.rank_, model.ladder_
        return made[key]

    return get


# ---- equal to local ----


@pytest.mark.parametrize(
    ("J", "dtype", "how"),
    [
        *((10, "float64", "uneven"), (10, "float64", "by class"), (10, "float32", "empty")),
        *((2, "float64", "empty"), (2, "float32", "uneven")),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *((10, "float64", "one"), (10, "float64", "empty"), (10, "float32", "one")),
                *((10, "float32", "uneven"), (10, "float32", "by class"), (2, "float64", "one")),
                *((2, "float64", "uneven"), (2, "float64", "by class"), (2, "float32", "one")),
                *((2, "float32", "empty"), (2, "float32", "by class")),
            )
        ),
    ],
)
@pytest.mark.parametrize("learner", LEARNERS)
def test_partitions_equal_local(kept, whole, learner, J, dtype, how):
    """An empty partition, uneven ones, and a class that lies in one only (rows are sorted by class)."""
    n = 600 if dtype == "float64" else 1300
    data, given = kept(n, J), settings(learner, dtype)
    wanted, losses, rank, ladder = whole(n, J, **given)
    apart = LogitBoostClassifier(**given).fit_partitions(data.parts(how))
    assert apart.dtype_ == dtype
    tolerance = 1e-10 if dtype == "float64" else 1e-6
    found = apart.predict_proba(data.X)
    if dtype == "float32" and learner in ILL_CONDITIONED:
        exact, *_ = whole(n, J, **{**given, "dtype": "float64"})
        np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
    np.testing.assert_allclose(apart.train_loss_, losses, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(apart.rank_, rank)
    np.testing.assert_array_equal(apart.ladder_, ladder)


@pytest.mark.parametrize("learner", ["subspace", "random_features"])
def test_partitions_equal_local_whose_sums_begin_rough(kept, learner):
    """Rows that stream have exact sums; rows in memory, of enough columns, rough ones and steps of refinement."""
    data = kept(2100, 10)
    given = settings(learner, "float32", subspace_size=80, n_components=80)
    local = LogitBoostClassifier(**given).fit(data.X, data.y)
    apart = LogitBoostClassifier(**given).fit_partitions(data.parts("uneven"))
    wanted, found = local.predict_proba(data.X), apart.predict_proba(data.X)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(apart.rank_, local.rank_)
    np.testing.assert_array_equal(apart.ladder_, local.ladder_)


def test_features_equal_the_extractors_bit_for_bit(kept):
    data = kept(600, 10)
    index = np.flatnonzero(np.arange(600) % 7 < 5)
    rows = data.rows(index)
    found = np.concatenate([block.copy() for _, _, block in rows.blocks("float32")])
    assert rows.shape == found.shape
    np.testing.assert_array_equal(found, data.X[index])


def test_drawn_columns_are_those_of_scikit_image(kept):
    """Sets of columns of some rows, in blocks that go over the ends of files and of groups of images."""
    from skimage.feature import hog

    data = kept(600, 10)
    images = pictures(600, 10)
    order = np.argsort(images.labels, kind="stable")
    rng = np.random.default_rng(5)
    index = np.sort(rng.choice(600, 410, replace=False))
    sets = [np.sort(rng.choice(108, size, replace=False)) for size in (37, 3, 48)]
    wanted = np.stack([hog(one, cells_per_block=(2, 2)) for one in images.pixels[order[index]]])
    found: list[list[np.ndarray]] = [[] for _ in sets]
    for begin, end, blocks in data.rows(index).blocks("float64", sets):
        assert end - begin == min(64, len(index) - begin)
        for mine, block in zip(found, blocks, strict=True):
            assert block.dtype == np.float64
            mine.append(block.copy())
    for mine, columns in zip(found, sets, strict=True):
        np.testing.assert_allclose(np.concatenate(mine), wanted[:, columns], rtol=0, atol=1e-6)


def expanded(format: Cells, kept: np.ndarray, sets: list[np.ndarray | None]) -> list[np.ndarray]:
    """Return the features of sets of columns; images go to rows in the opposite order."""
    groups = format.grouped(kept)
    places = np.full(len(groups) * format.lanes, -1)
    places[: len(kept)] = np.arange(len(kept))[::-1]
    outs = [
        np.full((len(kept), format.n_features if one is None else len(one)), np.nan, format.dtype)
        for one in sets
    ]
    format.expand(lambda begin, end, buffer: groups[begin:end], places, outs, sets)
    return [out[::-1] for out in outs]


EXPANDED = [
    *(({}, norm) for norm in BLOCK_NORMS),
    *(({"dtype": "float64"}, "L2-Hys"), ({"transform_sqrt": True}, "L1"), ({"orientations": 8}, "L2")),
    *(({"pixels_per_cell": (4, 12)}, "L1-sqrt"), ({"pixels_per_cell": (16, 8)}, "L2-Hys")),
]
EVERY = [(more, norm) for more, _ in EXPANDED[4:] for norm in BLOCK_NORMS]


@pytest.mark.parametrize(
    ("more", "norm"),
    EXPANDED + [pytest.param(*one, marks=pytest.mark.slow) for one in EVERY if one not in EXPANDED],
    ids=str,
)
def test_every_setting_of_hog_expands_to_its_features(norm, more):
    images = pictures(150, 3).pixels
    for pixels in (images, images.astype(np.float32) / 255.0):
        given = {"cells_per_block": (1, 2), "block_norm": norm, **more}
        extractor = HogExtractor(**given).fit(pixels)
        format = Cells(extractor, pixels.dtype)
        kept = format.pack(pixels)
        assert kept.dtype == format.kept
        features = extractor.transform(pixels)
        np.testing.assert_array_equal(expanded(format, kept, [None])[0], features)
        drawn = np.random.default_rng(0).random((2, format.n_features)) < 0.1
        sets = [np.flatnonzero(one) for one in drawn]
        for found, columns in zip(expanded(format, kept, sets), sets, strict=True):
            np.testing.assert_array_equal(found, features[:, columns])


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_processors_with_shorter_registers_make_the_same_features(monkeypatch, size, dtype):
    from pipeline.backends.cpu import hog_columns

    images = pictures(150, 3).pixels
    extractor = HogExtractor(cells_per_block=(1, 2), dtype=dtype).fit(images)
    format = Cells(extractor, images.dtype)
    kept, features = format.pack(images), extractor.transform(images)
    monkeypatch.setattr(hog_columns, "tile", lambda dtype: (0,) * size)
    columns = np.arange(1, format.n_features, 3)
    for found in expanded(format, kept, [columns, columns[:1]]):
        np.testing.assert_array_equal(found, features[:, columns[: found.shape[1]]])


def test_early_stopping_and_class_weights(kept):
    data = kept(600, 10)
    held = np.arange(600) % 5 == 0
    train_rows, watched = np.flatnonzero(~held), np.flatnonzero(held)
    given = settings("full", "float64", early_stopping=True, patience=2, n_rounds=30, class_weight="balanced")
    X, y = data.X, data.y
    local = LogitBoostClassifier(**given).fit(X[~held], y[~held], validation=(X[held], y[held]))
    apart = LogitBoostClassifier(**given).fit_partitions(
        [(data.rows(part), y[part]) for part in np.array_split(train_rows, 3)],
        validation=[(data.rows(watched), y[watched])],
    )
    assert (
        (apart.stopped_, apart.n_rounds_)
        == (local.stopped_, local.n_rounds_)
        == ("patience", local.n_rounds_)
    )
    np.testing.assert_allclose(apart.validation_loss_, local.validation_loss_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(apart.predict_proba(X), local.predict_proba(X), rtol=0, atol=1e-10)


def test_scores_that_reach_their_limit(kept):
    """The sums that came with a step that was shortened are not used."""
    data = kept(600, 2)
    given = settings("full", "float64", n_rounds=60, learning_rate=1.0)
    local = LogitBoostClassifier(**given).fit(data.X[:, :], data.y)
    apart = LogitBoostClassifier(**given).fit_partitions(data.parts("uneven"))
    assert (apart.stopped_, apart.n_rounds_) == (local.stopped_, local.n_rounds_)
    np.testing.assert_allclose(apart.predict_proba(data.X), local.predict_proba(data.X), atol=1e-8)


@pytest.mark.parametrize(("gram_bytes", "passes"), [(1 << 26, 1), (2 * 8 * 108**2 * 4, 3)])
def test_a_round_takes_one_pass_if_memory_holds_its_sums(kept, monkeypatch, gram_bytes, passes):
    data = kept(1300, 10)
    assert data.X.shape[1] == 108
    rows, count = data.rows(np.arange(1300), gram_bytes), 0
    blocks = rows.blocks

    def counted(dtype, columns=None):
        nonlocal count
        count += 1
        return blocks(dtype, columns)

    monkeypatch.setattr(rows, "blocks", counted)
    model = LogitBoostClassifier(**settings("ridge", "float32")).fit_partitions([(rows, data.y)])
    assert model.dtype_ == "float32"
    # the moments, the first sums, and one pass a round that moves the scores and sums for the next
    assert count == 2 + 6 + (passes - 1) * 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trim": 0.1}, "trim=0.1"),
        ({"warm_start": True}, "warm_start"),
        ({"early_stopping": True}, "validation"),
    ],
)
def test_what_needs_all_rows_at_once_is_refused(kept, change, words):
    data = kept(600, 2)
    with pytest.raises(ValueError, match=words):
        LogitBoostClassifier(**settings("full", "float64", **change)).fit_partitions(data.parts("one"))


# ---- chunks ----


def written(folder: Path) -> Store:
    store = Store(folder, 3, np.dtype(np.float32), 4)
    store.append(np.arange(30, dtype=np.float32).reshape(10, 3))
    store.append(np.ones((2, 3), np.float32))
    store.flush()
    return store


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_groups_do_not_end_where_rows_were_appended(tmp_path, lanes):
    def grouped(rows: np.ndarray) -> np.ndarray:
        padded = np.pad(rows, ((0, -len(rows) % lanes), (0, 0)))
        return np.ascontiguousarray(padded.reshape(-1, lanes, 3).transpose(0, 2, 1))

    rows = np.random.default_rng(0).random((83, 3)).astype(np.float32)
    store = Store(tmp_path, 3, rows.dtype, 50, lanes, grouped)
    for begin, end in ((0, 7), (7, 8), (8, 35), (35, 60), (60, 83)):
        store.append(rows[begin:end])
    store.flush()
    assert [chunk.rows for chunk in store.chunks] == [60, 23]
    for number, wanted in enumerate((grouped(rows[:60]), grouped(rows[60:]))):
        with store.opened(number) as chunk:
            assert chunk.shape == wanted.shape
            for begin in range(len(wanted)):
                got = chunk.read(begin, len(wanted), np.zeros_like(wanted[begin:]))
                assert np.array_equal(got, wanted[begin:])


def test_grouped_images_lie_number_by_number(kept):
    format = kept(600, 10).format
    rows = np.random.default_rng(1).random((37, format.width)).astype(format.kept)
    groups = format.grouped(rows)
    assert groups.shape == (3, format.width, 16)
    back = groups.transpose(0, 2, 1).reshape(48, -1)
    assert np.array_equal(back[:37], rows)
    assert not back[37:].any()


def test_a_chunk_that_is_cut_short_while_it_is_read_is_named(kept, tmp_path):
    """By another thread's read, too: no process is ended, as it would be if the file were mapped."""
    data = kept(600, 10)
    store = data.format.store(tmp_path, 600)
    store.append(data.format.pack(pictures(600, 10).pixels))
    rows = StoredRows(store, data.format, np.arange(600), data.buffers, 1 << 20)
    blocks = rows.blocks("float32")
    next(blocks)
    expand = data.format.expand

    class Cut:
        def __getattr__(self, name):
            return getattr(data.format, name)

        def expand(self, *given):
            os.truncate(store.chunks[0].path, 70 * data.format.width * data.format.kept.itemsize)
            expand(*given)

    rows.format = Cut()
    with pytest.raises(DataError, match=r"cells-000000\.bin: .* damaged: it ends before its last image"):
        for _ in blocks:
            pass


def damage_bit(path: Path) -> None:
    data, status = bytearray(path.read_bytes()), path.stat()
    data[5] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time are as they were


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "119 bytes, 120 were written"),
        (lambda path: os.utime(path, ns=(1, 1)), "changed after"),
        (damage_bit, "checksum"),
    ],
)
def test_a_damaged_chunk_is_named(tmp_path, damage, words):
    store = written(tmp_path)
    assert [chunk.rows for chunk in store.chunks] == [10, 2]
    damage(store.chunks[0].path)
    with pytest.raises(DataError, match=words) as caught, store.opened(0):
        pass
    assert "cells-000000.bin" in str(caught.value)
    with store.opened(1) as chunk:
        assert np.array_equal(chunk.read(0, 2, np.zeros((2, 3, 1), np.float32)), np.ones((2, 3, 1)))


def test_chunks_of_another_run_are_not_overwritten(tmp_path):
    written(tmp_path)
    with (
        pytest.raises(OutputError, match="chunk of another run"),
        store_folder(tmp_path, "scale.store", tmp_path / "elsewhere"),
    ):
        pass


def test_a_store_keeps_what_is_not_its_own(tmp_path):
    """Chunks that the run itself left when it was killed go; files of the user's that look alike stay."""
    theirs = ["owner.txt", "cells-of-my-own.bin", ".cells-x.bin.part"]
    for name in theirs:
        (tmp_path / name).write_text("mine")
    for _ in range(2):
        with store_folder(tmp_path, "scale.store", tmp_path / "run") as folder:
            written(folder)
            (folder / ".cells-000002.bin.abc.part").write_bytes(b"left")
    with store_folder(tmp_path, "scale.store", tmp_path / "run"):
        assert sorted(os.listdir(tmp_path)) == sorted([*theirs, OWNER])
    clear(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(theirs)
    assert {(tmp_path / name).read_text() for name in theirs} == {"mine"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks of folders")
def test_two_runs_at_once_do_not_share_a_store(tmp_path):
    with (
        store_folder(tmp_path, "scale.store", tmp_path / "one"),
        pytest.raises(OutputError, match=r"another run is writing into .*; give another scale\.store="),
        store_folder(tmp_path, "scale.store", tmp_path / "two"),
    ):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of processes")
def test_a_full_disk_is_told_and_leaves_no_half_chunk(tmp_path):
    """The system refuses the second chunk, which is longer, as it would on a full disk."""
    import resource
    import signal

    store = Store(tmp_path, 3, np.dtype(np.float32), 4)
    store.append(np.zeros((4, 3), np.float32))
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OutputError, match=r"cells-000001\.bin cannot be written: File too large"):
            store.append(np.zeros((1000, 3), np.float32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert os.listdir(tmp_path) == ["cells-000000.bin"]
    store.flush()  # the rows still wait: with more room they are written
    assert [chunk.rows for chunk in store.chunks] == [4, 1000]


def test_no_space_left_is_told(tmp_path, monkeypatch):
    import errno

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cells-000000\.bin cannot be written: No space left on device"):
        written(tmp_path)
    assert os.listdir(tmp_path) == []


# ---- the command ----


def configured(folder: Path, **more) -> config.Train:
    folder.mkdir(exist_ok=True)
    data = config.Data(name=config.DataName.synthetic, n=700, classes=5, difficulty=0.9)
    given = {"data": data, "image": config.Image(height=24, width=32), "run_dir": str(folder), "plots": False,
             "chunk": 100, "classifier": config.Classifier(n_rounds=10, subspace_size=30)}  # fmt: skip
    return config.Train(**{**given, **more})


def outofcore(limit: str = "4GB", **more) -> config.Scale:
    return config.Scale(name=config.ScaleName.outofcore, memory_limit=limit, **more)


@pytest.mark.parametrize("stopping", [False, True])
def test_train_writes_what_local_writes(tmp_path, stopping):
    given = {"classifier": config.Classifier(n_rounds=10, subspace_size=30, early_stopping=stopping)}
    local = train.train(configured(tmp_path / "local", **given), Stages())
    apart = train.train(configured(tmp_path / "apart", scale=outofcore(partitions=3), **given), Stages())
    assert local.content["images"] == apart.content["images"]
    assert local.content["duplicates"] == apart.content["duplicates"]
    np.testing.assert_allclose(apart.scores.log_loss, local.scores.log_loss, rtol=0, atol=1e-6)
    assert [line.split(",")[0] for line in (tmp_path / "apart" / "predictions.csv").open()] == [
        line.split(",")[0] for line in (tmp_path / "local" / "predictions.csv").open()
    ]
    assert not (tmp_path / "apart" / "chunks").exists()


def test_a_folder_with_rejected_files_streams(tmp_path):
    from PIL import Image

    images = pictures(60, 3)
    for i, pixels in enumerate(images.pixels):
        path = tmp_path / "set" / images.class_names[images.labels[i]] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "set" / images.class_names[0] / "bad.png").write_bytes(b"no picture")
    (tmp_path / "set" / "loose.png").write_bytes(b"beside the folders")
    data = config.Data(name=config.DataName.folder, path=str(tmp_path / "set"))
    given = {"data": data, "image": SIZE, "chunk": 7, "hog": config.Hog(cells_per_block=[2, 2])}
    local = train.train(configured(tmp_path / "local", **given), Stages())
    apart = train.train(configured(tmp_path / "apart", scale=outofcore(), **given), Stages())
    assert apart.content["rejected"] == local.content["rejected"] == 2
    rejected = [
        sorted((tmp_path / run / "rejected.csv").read_text().splitlines()) for run in ("local", "apart")
    ]
    assert rejected[0] == rejected[1]
    np.testing.assert_allclose(apart.scores.log_loss, local.scores.log_loss, rtol=0, atol=1e-9)


def test_settings_that_do_not_go_together(tmp_path):
    with pytest.raises(ConfigError, match="backend=cpu, not reference"):
        train.train(
            configured(tmp_path, scale=outofcore(), backend=config.Backend(config.BackendName.reference)),
            Stages(),
        )
    with pytest.raises(ConfigError, match="trim"):
        train.train(configured(tmp_path, scale=outofcore(), classifier=config.Classifier(trim=0.1)), Stages())
    pca = config.Reduce(name=config.ReduceName.pca, variance=0.9)
    with pytest.raises(ConfigError, match="reduce=pca"):
        train.train(configured(tmp_path, scale=outofcore(), reduce=pca), Stages())
    with pytest.raises(ConfigError, match=r"give at least scale\.memory_limit="):
        train.train(configured(tmp_path, scale=outofcore("100MB")), Stages())
    assert not (tmp_path / "chunks").exists()


SIZES = {"1GB": 10**9, "800 MB": 8 * 10**8, "1.5GiB": 1610612736, "5000": 5000, "many": None, "-1GB": None,
         "1XB": None}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), SIZES.items())
def test_sizes(text, found):
    assert size_in_bytes(text) == found


def test_only_a_resumed_run_is_told_that_it_keeps_its_limit(tmp_path):
    from pipeline import checkpoint

    found = checkpoint.Found(tmp_path / "round_000001.npz", ({}, {"rounds": 1}), ({}, {}), [])
    for begun in (None, found):
        kept = checkpoint.Keeper(str(tmp_path), config.Checkpoint(), begun)
        with pytest.raises(ConfigError) as caught, kept.telling():
            memory.Budget(3 * 10**8, 2 * 10**8).rows(10**8, 10**5, "training")
        assert ("a resumed run keeps its limit: train anew" in str(caught.value)) == (begun is found)


def test_rows_that_fit_under_a_limit():
    assert memory.Budget(10**9, 2 * 10**8).rows(10**8, 10**5, "training") == 6748
    with pytest.raises(ConfigError, match=r"give at least scale\.memory_limit=339MB"):
        memory.Budget(3 * 10**8, 2 * 10**8).rows(10**8, 10**5, "training")


@pytest.mark.parametrize(
    ("rows", "q", "found"), [(8192, 128, 16384), (512, 128, 3840), (512, 3000, 256), (130, 3000, 72)]
)
def test_blocks_of_drawn_columns_take_no_more_memory(rows, q, found):
    work = memory.Work(p=3240, q=q, classes=10, fitted=10, item=4, kept=2912, feature=4, threads=2,
                       random=False, componentwise=False)  # fmt: skip
    drawn = memory.drawn(rows, work)
    assert drawn == found
    assert drawn * (2 * q * 4 + 14 * 10 * 4 + 240) <= rows * (3240 * 4 + 14 * 10 * 4 + 240)


CHILD = """
    import os, resource, sys
    from pathlib import Path
    from pipeline import config, backends
    from pipeline.commands import train
    from pipeline.reporting.stages import Stages
    from pipeline.scale.memory import resident

    def status(key):
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
        return int(line.split()[1]) * 1024

    folder, scale, n = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    folder.mkdir()
    limit = 500 * 10**6
    def settings(name, n):
        return config.Train(data=config.Data(name=config.DataName.synthetic, n=n, classes=4, workers=2), plots=False,
            run_dir=str(folder), classifier=config.Classifier(n_rounds=3),
            scale=config.Scale(name=config.ScaleName[name], memory_limit="500MB"))
    with backends.get("cpu").threads(2):
        train.train(settings("local", 300), Stages())  # imports, compiles and starts the threads
        # What the process may still map: its limit, less what it holds. The stacks and heaps of threads are
        # reserved, not used: they count here, but not as memory.
        room = limit - resident() + 160 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + room,) * 2)
        trained = train.train(settings(scale, n), Stages())
    print(status("VmHWM"), trained.content["test"]["accuracy"])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and sets RLIMIT_AS")
def test_memory_stays_under_the_limit(tmp_path):
    """36,000 images: 470 MB of features and 180 MB of pixels, in a process of 500 MB that may not map more."""
    child = [sys.executable, "-c", textwrap.dedent(CHILD)]
    # One heap: each thread that meets another at it would reserve 64 MB more of what may be mapped.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    run = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 240, "env": environment}
    done = subprocess.run([*child, str(tmp_path / "a"), "outofcore", "36000"], check=False, **run)
    assert done.returncode == 0, done.stderr[-2000:]
    peak, accuracy = done.stdout.split()[-2:]
    assert int(peak) <= 500 * 10**6
    assert float(accuracy) > 0.9
    local = subprocess.run([*child, str(tmp_path / "b"), "local", "36000"], check=False, **run)
    assert local.returncode != 0  # the limit is a real one: in memory the same set does not fit
    assert "MemoryError" in local.stderr or "Unable to allocate" in local.stderr or "memory" in local.stderr


def test_a_store_below_the_home_of_nobody_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cfg = config.Train(
        scale=config.Scale(name=config.ScaleName.outofcore, store="~nosuchuser/x"), run_dir="run"
    )
    for given in ("~nosuchuser/x", "~nosuchuser"):
        cfg.scale.store = given
        with (
            pytest.raises(
                OutputError, match=r"scale\.store=~nosuchuser.*~nosuchuser is no user of this machine"
            ),
            on_disk.folder_of(cfg),
        ):
            pass
    assert list(tmp_path.iterdir()) == []
    cfg.scale.store = "./~nosuchuser/x"
    with pytest.raises(OutputError, match=r"there is no folder ~nosuchuser;"), on_disk.folder_of(cfg):
        pass
    (tmp_path / "~nosuchuser").mkdir()
    with on_disk.folder_of(cfg):
        assert (tmp_path / "~nosuchuser" / "x").is_dir()
    cfg.scale.store = "~nosuchuser/y"  # a folder of this name that is there is meant
    with on_disk.folder_of(cfg):
        assert (tmp_path / "~nosuchuser" / "y").is_dir()
