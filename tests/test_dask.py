"""Training on Dask workers equals training in memory, whatever the partitions, the workers, and their fate."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pipeline import config, datasets
from pipeline.commands import steps
from pipeline.datasets.pieces import inventory, read_piece
from pipeline.errors import ConfigError, DataError
from pipeline.scale import held, placing, wire
from pipeline.scale.wire import Answer, Leaf, Pair
from tests import dask_runs

distributed = pytest.importorskip("distributed")

LEARNERS = ("subspace", "full", "ridge", "componentwise", "random_features")


@pytest.fixture(scope="module")
def cluster():
    """Clusters of 1, 2 and 4 workers, each a thread, made when they are asked for."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        made = {}

        def get(workers: int):
            if workers not in made:
                made[workers] = stack.enter_context(dask_runs.connected(workers))
            return made[workers]

        yield get


def divided(n: int, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers to fit and to hold out: of 4 pieces one has one class only, one is empty, all are uneven."""
    index = np.arange(n)
    held_out = index % 7 == 3
    quarter = n // 4
    fit = ~held_out & ((index >= quarter) | (codes == 0)) & ((index < 2 * quarter) | (index >= 3 * quarter))
    return index[fit], index[held_out]


def local(cfg: config.Train, fitted: np.ndarray, held_out: np.ndarray):
    images = dask_runs.pictures(cfg)
    hog = steps.extractor(cfg.hog, cfg.image, "cpu")
    X = hog.transform(images.pixels)
    model = steps.classifier(cfg.classifier, "cpu")
    model.fit(X[fitted], images.labels[fitted])
    return model, model.predict_proba(X[held_out])


# ---- equal to local ----


def compare(cluster, learner, J, dtype, workers):
    n = 800 if dtype == "float64" else 3600
    cfg = dask_runs.settings(learner, dtype, n, J)
    rows = divided(n, np.arange(n) % J)
    wanted, proba = local(cfg, *rows)
    found = [dask_runs.Fitted(cluster(w), cfg, 4, *rows) for w in workers]
    assert found[0].classifier.dtype_ == wanted.dtype_ == dtype
    tolerance = 1e-10 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(found[0].proba, proba, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found[0].classifier.train_loss_, wanted.train_loss_, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(found[0].classifier.rank_, wanted.rank_)
    for other in found[1:]:  # the tree does not depend on who adds
        np.testing.assert_array_equal(other.proba, found[0].proba)


@pytest.mark.parametrize("J", [2, 10])
@pytest.mark.parametrize("learner", LEARNERS)
def test_two_workers_equal_local(cluster, learner, J):
    """Four partitions: one of one class only, one without a row, all of other sizes."""
    compare(cluster, learner, J, "float64", [2])


def test_float32_and_other_numbers_of_workers(cluster):
    compare(cluster, "subspace", 10, "float32", [4, 1])


def test_more_partitions_than_images(cluster):
    """40 images in 64 pieces: 24 of them have none at all, and a worker reads nothing for them."""
    cfg = dask_runs.settings("subspace", "float64", 40, 3)
    index = np.arange(40)
    rows = index[index % 4 > 0], index[index % 4 == 0]
    sizes = [piece.end - piece.begin for piece in inventory(cfg.data, cfg.image, True).pieces(64)]
    assert (sizes.count(0), sizes.count(1)) == (24, 40)
    wanted, proba = local(cfg, *rows)
    found = dask_runs.Fitted(cluster(2), cfg, 64, *rows)
    np.testing.assert_allclose(found.proba, proba, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.classifier.train_loss_, wanted.train_loss_, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("J", [2, 10])
@pytest.mark.parametrize("learner", LEARNERS)
def test_one_two_and_four_workers_equal_local(cluster, learner, J, dtype):
    compare(cluster, learner, J, dtype, [1, 2, 4])


def test_early_stopping_and_class_weights(cluster):
    cfg = dask_runs.settings(
        "full", "float64", 600, 5, early_stopping=True, patience=2, class_weight="balanced"
    )
    cfg.classifier.n_rounds = 30
    index = np.arange(600)
    fitted, watched, held_out = (index[index % 4 > 1], index[index % 4 == 0], index[index % 4 == 1])
    images = dask_runs.pictures(cfg)
    X, y = steps.extractor(cfg.hog, cfg.image, "cpu").transform(images.pixels), images.labels
    wanted = steps.classifier(cfg.classifier, "cpu").fit(
        X[fitted], y[fitted], validation=(X[watched], y[watched])
    )
    found = dask_runs.Fitted(cluster(2), cfg, 3, fitted, held_out, watched)
    assert (found.classifier.stopped_, found.classifier.n_rounds_) == ("patience", wanted.n_rounds_)
    np.testing.assert_allclose(found.classifier.validation_loss_, wanted.validation_loss_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.proba, wanted.predict_proba(X[held_out]), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_scores_that_reach_their_limit(cluster):
    """A step that goes too far is asked for its share, and taken again, shorter."""
    cfg = dask_runs.settings("full", "float64", 600, 2)
    cfg.classifier.n_rounds, cfg.classifier.learning_rate = 60, 1.0
    index = np.arange(600)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    wanted, proba = local(cfg, *rows)
    found = dask_runs.Fitted(cluster(2), cfg, 2, *rows)
    assert (found.classifier.stopped_, found.classifier.n_rounds_) == (wanted.stopped_, wanted.n_rounds_)
    np.testing.assert_allclose(found.proba, proba, rtol=0, atol=1e-8)


# ---- the tree, and what is sent ----


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_the_tree_is_the_same_whoever_adds(count):
    rng = np.random.default_rng(0)
    numbers = 10.0 ** rng.uniform(-12, 12, count)
    answers = [Answer(value) for value in numbers]
    wanted = wire.folded(answers).value

    def walked(node):
        if isinstance(node, Leaf):
            assert {owners[i] for i in range(node.first, node.stop)} == {node.worker}
            return wire.folded(answers[node.first : node.stop])
        assert isinstance(node, Pair)
        return wire.added(walked(node.left), walked(node.right))

    for _ in range(20):
        owners = [f"worker{k}" for k in rng.integers(0, 3, count)]
        assert walked(wire.tree(owners)).value == wanted  # to the last bit
    assert wire.tree(["one"] * count) == Leaf(0, count, "one")


def counted(cluster, learner, J, rounds, dtype="float32"):
    """Return the bytes down and up of a fit."""
    n = 2600 if dtype == "float32" else 400  # few rows would be fitted in float64 anyway
    cfg = dask_runs.settings(learner, dtype, n, J)
    cfg.classifier.n_rounds = rounds
    index = np.arange(n)
    found = dask_runs.Fitted(cluster(2), cfg, 2, index, index[:10])
    return np.array(found.kept.crew.exchanged)


@pytest.mark.parametrize("learner", ["subspace", "ridge", "componentwise"])
def test_bytes_of_a_round_are_those_on_paper(cluster, learner):
    """Float32: one exchange a round; of three rounds more, the bytes are three times the formula.

    A message to each worker, and one from each: whether their sums are added on the way or here.
    """
    J, p = 5, 108
    more = counted(cluster, learner, J, 5) - counted(cluster, learner, J, 2)
    q = {"subspace": 20, "random_features": 32}.get(learner, p)
    up = wire.numbers_up(q, J, J, learner == "componentwise")
    assert more[1] == 3 * 8 * up
    if learner == "componentwise":  # the columns of the step are as many as the classes chose: J at most
        assert 3 * 8 * (1 + J + 1) <= more[0] <= 3 * 8 * (J * J + J + J)
    else:
        assert more[0] == 3 * 8 * wire.numbers_down(q, J, learner == "subspace")


REFINED = [
    ("subspace", "float64"), ("full", "float64"), ("full", "float32"), ("random_features", "float32"),
]  # fmt: skip


@pytest.mark.parametrize(("learner", "dtype"), REFINED)
def test_refinement_takes_a_second_exchange(cluster, learner, dtype):
    """The solution goes down once more, for the sums of its residuals; in float32 that of delicate systems."""
    J, p = 5, 108
    more = counted(cluster, learner, J, 4, dtype) - counted(cluster, learner, J, 2, dtype)
    q = {"subspace": 20, "random_features": 32}.get(learner, p)
    columns = learner == "subspace"
    down, up = wire.numbers_refined(q, J, columns)
    assert more[1] == 2 * 8 * (wire.numbers_up(q, J, J) + up)
    assert more[0] == 2 * 8 * (wire.numbers_down(q, J, columns) + down)


@pytest.mark.parametrize("componentwise", [False, True])
def test_what_is_around_the_numbers_is_small(componentwise):
    """The serialised sums are the numbers on paper, and less than 2 kB."""
    from distributed.protocol import dumps, to_serialize

    from pipeline.backends.protocol import Sums

    q, J = 128, 10
    rng = np.random.default_rng(0)  # what is like noise is not compressed on the way
    gram = None if componentwise else rng.normal(size=(J, q, q))
    xxw = rng.normal(size=(q, J)) if componentwise else None
    sums = Sums(*(rng.normal(size=shape) for shape in ((q, J), (q, J), J, J)), gram, xxw)
    sent = Answer(wire.packed(sums, lambda one: one))
    size = sum(memoryview(frame).nbytes for frame in dumps({"data": to_serialize(sent)}))
    numbers = wire.numbers_up(q, J, J, componentwise)
    assert wire.payload(sent.value) == 8 * numbers
    assert 8 * numbers <= size < 8 * numbers + 2000


@pytest.mark.parametrize("lower", [False, True])
def test_triangles_come_back(lower):
    from pipeline.backends.protocol import Sums

    whole = np.arange(2 * 5 * 5, dtype=float).reshape(2, 5, 5)
    given = whole.transpose(0, 2, 1) if lower else whole
    sums = Sums(None, None, None, None, given)
    back = wire.unpacked(wire.packed(sums, lambda one: one, lower))
    np.testing.assert_array_equal(back.gram, np.triu(whole))


def test_panels_of_many_columns_are_sent_as_triangles():
    """Workers with a GPU give squares, the others panels: what travels, and what arrives, is the same."""
    from pipeline.backends import triangle
    from pipeline.backends.protocol import Sums

    q = triangle.SQUARE + 300
    whole = np.random.default_rng(0).normal(size=(2, q, q))
    panels = np.zeros((2, triangle.size(q)))
    for one, flat in zip(whole, panels, strict=True):
        for (a, b), panel in zip(triangle.edges(q), triangle.panels(flat, q), strict=True):
            panel[:] = np.triu(one[a:b, a:])
    sent = [wire.packed(Sums(None, None, None, None, gram), lambda one: one) for gram in (whole, panels)]
    np.testing.assert_array_equal(sent[0].gram, sent[1].gram)
    assert sent[1].gram.shape == (2, q * (q + 1) // 2)
    np.testing.assert_array_equal(wire.unpacked(sent[1]).gram, np.triu(whole))
    np.testing.assert_array_equal(wire.unpacked(sent[1], panels=True).gram, panels)


# ---- while answers travel ----


@pytest.mark.parametrize("learner", ["subspace", "random_features"])
def test_columns_made_beforehand_are_those_of_the_round(monkeypatch, learner):
    """A partition that was told of the round after makes its columns before it is asked; the sums are the same."""
    from pipeline import backends
    from pipeline.boosting.messages import Basis, Frame, Move, Request
    from pipeline.boosting.partition import Partition

    rng, n, p, q, J = np.random.default_rng(1), 300, 40, 8, 3
    X, codes = rng.normal(size=(n, p)), np.arange(n) % J
    named = learner == "subspace"
    bases = [
        Basis(i, q, np.sort(rng.choice(p, q, replace=False)) if named else None, None if named else 0.02)
        for i in range(4)
    ]
    backend, made = backends.get("cpu"), []
    for name in ("gather", "random_features"):
        make = getattr(backend.wls, name)
        monkeypatch.setattr(
            backend.wls, name, lambda *given, make=make: made.append(given[1]) or make(*given)
        )

    def rounds(prepares: bool) -> list:
        part = Partition(backend, X, codes, np.ones(n))
        part.begin(Frame(X.mean(axis=0), J, 5, "float64", 3.0, "gradient"), [])
        reports, counts = [part.sums(Request(bases[0], slice(0, J)))], []
        for i in range(3):
            coef = np.full((q, J), 0.01) * np.arange(J)
            after = bases[i + 2] if i < 2 else None
            made.clear()
            reports.append(
                part.advance(
                    Move(bases[i], coef, np.zeros(J), 0.3), Request(bases[i + 1], slice(0, J), after=after)
                )
            )
            counts.append(len(made))
            part.keep()
            if prepares:
                part.prepare()
                part.prepare()  # there is nothing more to make
        assert counts == ([1, 0, 0] if prepares else [1, 1, 1])
        return reports

    for one, other in zip(rounds(True), rounds(False), strict=True):
        pair = [getattr(sums, "sums", sums) for sums in (one, other)]
        for mine, theirs in zip(*pair, strict=True):
            if mine is None:
                continue
            np.testing.assert_array_equal(mine, theirs)


def test_a_fit_foretells_its_columns(cluster, monkeypatch):
    """All rounds but the first and the second find their columns made; the model has the same bits without that."""
    from pipeline.boosting.partition import Partition
    from pipeline.scale.dask_team import DaskTeam

    cfg = dask_runs.settings("subspace", "float32", 2600, 3)
    index = np.arange(2600)
    rows = index[index % 5 > 0], index[index % 5 == 0]
    prepare, found = Partition.prepare, []

    def preparing(self):
        prepare(self)
        found.append(self.columns._next is not None)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "prepare", preparing)
        one = dask_runs.Fitted(cluster(2), cfg, 2, *rows)
        held._MEANWHILE.submit(int).result()  # those before it are done
    assert len(found) == 2 * cfg.classifier.n_rounds  # of each partition
    assert sum(found) <= 2 * (cfg.classifier.n_rounds - 2)  # the last two rounds are followed by none
    assert sum(found) > 0
    begin = DaskTeam.begin

    def beginning(self, *arguments):
        self.prepares = False
        begin(self, *arguments)

    monkeypatch.setattr(DaskTeam, "begin", beginning)
    np.testing.assert_array_equal(dask_runs.Fitted(cluster(2), cfg, 2, *rows).proba, one.proba)


# ---- pieces ----


@pytest.mark.parametrize("name", ["synthetic", "digits"])
def test_pieces_are_the_set(name):
    data, image = config.Data(name=config.DataName[name], n=700), dask_runs.SIZE
    whole = datasets.load(data, image).images
    pieces = inventory(data, image, True).pieces(3)
    read = [loaded.images for piece in pieces for loaded in read_piece(piece, 100, 1)]
    np.testing.assert_array_equal(np.concatenate([one.pixels for one in read]), whole.pixels)
    np.testing.assert_array_equal(np.concatenate([one.labels for one in read]), whole.labels)
    assert [path for one in read for path in one.paths] == whole.paths


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    cfg = dask_runs.settings("subspace", "float32", 60, 3)
    images = dask_runs.pictures(cfg)
    for i, pixels in enumerate(images.pixels):
        path = tmp_path / "set" / images.class_names[images.labels[i]] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "set"


def test_a_file_that_changes_or_vanishes_is_named(photos):
    data = config.Data(name=config.DataName.folder, path=str(photos))
    pieces = inventory(data, dask_runs.SIZE, True).pieces(2)
    victim = next(iter(sorted(photos.rglob("*.png"))))
    victim.write_bytes(victim.read_bytes() + b"more")
    with pytest.raises(DataError, match=f"{victim.name} has changed since the set was listed"):
        list(read_piece(pieces[0], 7, 1))
    pieces = inventory(data, dask_runs.SIZE, True).pieces(2)
    reading = read_piece(pieces[0], 100, 1)
    next(reading)
    victim.write_bytes(victim.read_bytes() + b"more")  # while the piece is at work
    with pytest.raises(DataError, match=f"{victim.name} has changed since the set was listed"):
        next(reading)
    victim.unlink()
    with pytest.raises(DataError, match=f"{victim.name} has vanished since the set was listed"):
        list(read_piece(pieces[0], 7, 1))
    assert sum(len(one.images) for one in read_piece(pieces[1], 7, 1)) == 30


def test_rows_are_never_sent():
    cfg = dask_runs.settings("subspace", "float32", 60, 3)
    hog = steps.extractor(cfg.hog, cfg.image, "cpu")
    from pipeline.scale import dask_run

    [piece] = inventory(cfg.data, cfg.image, True).pieces(1)
    one = held.hold(0, piece, dask_run.recipe_of(cfg, hog, "cpu"), held.Past())
    with pytest.raises(TypeError, match="stay where they are"):
        pickle.dumps(one)
    # a question that the piece cannot answer, since it is another's: it says so
    assert one.answer(wire.Order("train", "sums", kept=3)) == Answer(None, (0,))


@pytest.mark.parametrize("seed", range(4))
def test_rows_change_places(seed):
    """Rows to fit, to watch and to hold out lie together afterwards, in the memory in which they lay."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(301, 3))
    order = rng.permutation(301)
    cuts = [(0, 301, 301), (200, 250, 301), (170, 170, 260), (0, 0, 0)][seed]
    wanted = [np.sort(order[a:b]).astype(np.int32) for a, b in zip((0, *cuts), cuts, strict=False)]
    before, memory = X.copy(), X
    found = held.divided_in_place(X, wanted)
    for rows, numbers in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(rows, before[numbers])
        assert not len(rows) or np.shares_memory(rows, memory)
    assert held.divided_in_place(X, [np.arange(4), np.arange(3, 5)]) is None  # a row in two


# ---- memory ----


def test_partitions_follow_from_memory():
    load = placing.Load(image=10_000, piece=10_000, fixed=10**8)
    assert placing.pieces(10**6, [0, 0], load, None) == 2  # no limit is known
    assert placing.pieces(10**5, [8 * 10**9] * 4, load, None) == 4
    assert placing.pieces(10**6, [10**10] * 2, load, None) == 8  # a piece is there twice while it is divided
    with pytest.raises(
        ConfigError, match=r"limit is 2000 MB; give 11 workers of this size, or scale\.memory_limit="
    ):
        placing.pieces(10**6, [2 * 10**9] * 2, load, None)
    assert placing.pieces(10**6, [2 * 10**9] * 11, load, None) == 176
    assert placing.neighbours(5, ["a", "b"]) == ["a", "a", "a", "b", "b"]
    assert placing.taker(10, {"a": 50, "b": 40}, 10, {}, load) == "b"
    assert placing.taker(10, {"a": 50}, 10, {"a": 10**8}, load) is None
