"""What the gpu backend moves between host and device, and what it does when memory runs out; under the double."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline import backends
from pipeline.boosting import LogitBoostClassifier
from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import BackendError
from pipeline.features import HogExtractor
from tests.test_wls import random_problem

LEARNERS = ("subspace", "ridge", "full", "componentwise", "random_features")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


# ---- what is moved ----


@pytest.mark.parametrize(("learner", "up", "down"), [
    ("subspace", 1, 2), ("ridge", 0, 2), ("full", 0, 2), ("componentwise", 2, 2), ("random_features", 1, 2),
])  # fmt: skip
@pytest.mark.parametrize("J", [2, 10])
def test_only_a_few_numbers_come_home_in_a_round(machine, gpu, digits, learner, up, down, J):
    """Down: flags of the factorisations, or the chosen features; largest score and loss. Never a row's worth."""
    X, y = digits
    y = y if J == 10 else (y > 4).astype(int)
    counts = {}
    for n_rounds in (2, 6):
        model = LogitBoostClassifier(
            learner, n_rounds=n_rounds, subspace_size=8, n_components=16, backend="gpu", random_state=0
        )
        machine.forget()
        model.fit(X, y)
        counts[n_rounds] = (machine.count["h2d"], machine.count["d2h"], machine.bytes["d2h"])
    per_round = [(b - a) / 4 for a, b in zip(counts[2], counts[6], strict=True)]
    assert per_round[:2] == [up, down]
    model_bytes = 8 * J * ({"subspace": 8, "random_features": 16, "componentwise": J}.get(learner, 64) + 1)
    assert per_round[2] <= model_bytes + 16 * J + 16
    assert counts[2][1] <= 2 * down + 8


def test_pixels_go_up_once_and_as_bytes(machine, gpu):
    from pipeline.model import features

    pixels = np.random.default_rng(0).integers(0, 256, (300, 40, 48), dtype=np.uint8)
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    extractor.transform(pixels[:2])  # tables of the kernel
    machine.forget()
    X = features(pixels, np.arange(299, -1, -1), Preprocess(), extractor, 64)
    assert machine.bytes["h2d"] == pixels.nbytes
    assert machine.count["d2h"] == 0
    wanted = HogExtractor().fit_transform(pixels[::-1])
    np.testing.assert_allclose(gpu.get(X), wanted, atol=1e-6)


# ---- memory ----


def test_images_are_taken_in_halves_when_memory_runs_out(machine, gpu, caplog, monkeypatch):
    """The plan is wrong on purpose: chunks are ten times too large for the pool."""
    from pipeline.backends.gpu import memory
    from pipeline.model import features

    pixels = np.random.default_rng(0).integers(0, 256, (200, 40, 48), dtype=np.uint8)
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    wanted = HogExtractor().fit_transform(pixels)
    machine.limit = machine.used + 2 * wanted.nbytes + 200_000
    monkeypatch.setattr(memory, "chunk", lambda n, *_, **__: n)
    done = []
    with caplog.at_level(logging.WARNING):
        X = features(
            pixels, None, Preprocess(PreprocessName.gaussian), extractor, 64, lambda a, b: done.append(a)
        )
    assert "images at a time: trying" in caplog.text
    assert machine.count["emptied"] >= 1
    assert done == sorted(done)
    assert done[-1] == 200
    machine.limit = 0
    smooth = backends.get("cpu").preprocess.apply(pixels, Preprocess(PreprocessName.gaussian))
    np.testing.assert_allclose(gpu.get(X), HogExtractor().fit_transform(smooth), atol=1e-5)


def test_not_even_one_image_fits(machine, gpu):
    pixels = np.zeros((3, 400, 400), dtype=np.uint8)
    extractor = HogExtractor(backend="gpu").fit(pixels)
    machine.limit = machine.used + 2000
    with pytest.raises(BackendError, match="too few for a single one of the images"):
        extractor.transform(pixels)


def test_page_locked_memory_may_run_out_too(machine, gpu, caplog, monkeypatch):
    """It is not from CuPy's pool, and CuPy raises another error."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 40, 48), dtype=np.uint8)
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    monkeypatch.setattr(machine, "page_locked", pixels[:10].nbytes)
    found = extractor.transform(pixels)
    assert "out of GPU memory with 50 images at a time: trying 25" in caplog.text
    np.testing.assert_allclose(found, HogExtractor().fit_transform(pixels), atol=1e-6)


@pytest.mark.parametrize(("status", "told"), [(3, "taken again"), (13, "raised")])
def test_a_library_without_room_for_its_work_space(machine, gpu, monkeypatch, status, told):
    """cuBLAS allocates outside the pool. Other faults of it are no reason to try again."""
    from pipeline.backends.gpu import blas

    class CUBLASError(RuntimeError):
        def __init__(self) -> None:
            self.status = status

    X, W, R = random_problem(800, 8, 3, 5)
    device = [gpu.put(a) for a in (X, np.zeros(8), W, R)]
    grams, calls = blas.grams, []

    def fails_at_second_call(*arguments):
        calls.append(arguments[0].shape)
        if len(calls) == 2:
            raise CUBLASError
        return grams(*arguments)

    monkeypatch.setattr(blas, "grams", fails_at_second_call)
    if told == "raised":
        with pytest.raises(CUBLASError):
            gpu.wls.fit(*device, 0.1)
        return
    wanted = backends.get("cpu").wls.fit(X, np.zeros(8), W, R, 0.1)
    np.testing.assert_allclose(gpu.get(gpu.wls.fit(*device, 0.1).coef), wanted.coef, rtol=1e-9, atol=1e-9)
    assert len(calls) > 3


def test_chunks_cover_everything(machine, gpu):
    from pipeline.backends.gpu import memory

    machine.limit = machine.used + 100_000
    parts = list(memory.chunks(1000, 500))
    assert len(parts) == 10
    assert [p.start for p in parts] == [0, *(p.stop for p in parts[:-1])]
    assert min(parts[-1].stop, 1000) == 1000
    assert memory.chunk(10, 10**12) == 1


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_matrix_too_large_for_the_device_streams_through_it(
    machine, gpu, monkeypatch, caplog, digits, learner
):
    from pipeline.backends.gpu import transfer
    from pipeline.backends.gpu.matrix import HostMatrix

    X, y = digits
    params = dict(
        learner=learner, n_rounds=3, subspace_size=8, n_components=8, random_state=0, dtype="float64"
    )
    wanted = LogitBoostClassifier(**params).fit(X, y)
    monkeypatch.setattr(transfer, "STAGED", 1 << 14)
    machine.limit = machine.used + (X.nbytes * 15) // 8
    with caplog.at_level(logging.WARNING):
        found = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
        streamed = gpu.put(X)
    assert isinstance(streamed, HostMatrix)
    assert "streams through the GPU" in caplog.text
    assert machine.peak < machine.limit
    assert machine.bytes["h2d"] > 3 * X.nbytes
    np.testing.assert_allclose(found.train_loss_, wanted.train_loss_, rtol=1e-9)
    np.testing.assert_allclose(found.predict_proba(streamed), wanted.predict_proba(X), atol=1e-9)
    part = gpu.rows(streamed, np.array([3, 1]))
    np.testing.assert_array_equal(gpu.get(part), X[[3, 1]])
    assert gpu.first_not_finite(streamed) is None


def wide_problem(n=240, p=12, J=12):
    """Return rows whose scores, weights and responses together take several times as much memory as they do."""
    random = np.random.default_rng(4)
    y = np.arange(n) % J
    return random.normal(size=(J, p))[y] + random.normal(size=(n, p)), y


def leaves_in(caplog):
    return [line for line in caplog.messages if "leaves the GPU and streams through it from now on" in line]


@pytest.mark.parametrize(
    "learner",
    [pytest.param(one, marks=pytest.mark.slow) if one in ("ridge", "full") else one for one in LEARNERS],
)
def test_a_matrix_on_the_device_leaves_it_when_a_round_finds_no_room(machine, gpu, caplog, learner):
    """Scores, weights and responses cannot be halved: with less and less memory X leaves, and the model is the same.

    At that limit a fit whose X cannot leave, because it is the caller's own device array, ends with an error.
    """
    X, y = wide_problem()
    params = dict(
        learner=learner, n_rounds=3, subspace_size=4, n_components=4, random_state=0, dtype="float64"
    )
    machine.forget()
    before = machine.used
    wanted = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
    rounds_up = machine.bytes["h2d"]
    limit = machine.peak - before
    assert leaves_in(caplog) == []
    while not leaves_in(caplog) or machine.bytes["h2d"] < rounds_up + 2 * X.nbytes:  # before the last round
        caplog.clear()
        limit -= max(X.nbytes // 4, (limit - 9 * X.nbytes) // 2)
        gc.collect()
        machine.forget()
        machine.limit = machine.used + limit
        found = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
    assert 2 * X.nbytes < limit  # so it was on the device before
    (line,) = leaves_in(caplog)
    assert line.startswith("out of GPU memory for ")
    assert f"the matrix of {X.shape} (" in line
    assert machine.peak <= machine.limit
    np.testing.assert_allclose(found.train_loss_, wanted.train_loss_, rtol=1e-12)
    assert [s.columns is None for s in found._history.steps] == [
        s.columns is None for s in wanted._history.steps
    ]
    for ours, theirs in zip(found._history.steps, wanted._history.steps, strict=True):
        if theirs.columns is not None:
            np.testing.assert_array_equal(ours.columns, theirs.columns)
        np.testing.assert_allclose(ours.coef, theirs.coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.predict(X), wanted.predict(X))
    machine.limit = 0
    callers = gpu.put(X)
    machine.limit = machine.used - callers.nbytes + limit
    with pytest.raises((MemoryError, BackendError), match="ut of"):
        LogitBoostClassifier(backend="gpu", **params).fit(callers, y)


def test_slices_of_a_resident_matrix_leave_with_it(machine, gpu, caplog):
    """As the training, validation and test rows of one feature matrix, which the commands take."""
    from pipeline.backends.gpu import memory, wls
    from pipeline.backends.gpu.matrix import HostMatrix

    X, y = wide_problem(600, 8, 3)
    whole = gpu.resident(gpu.put(X))
    fitted, watched = whole[:400], whole[400:]
    assert (fitted.shape, len(watched), watched[10:20].shape) == ((400, 8), 200, (10, 8))
    assert gpu.holds(fitted)
    mean = gpu.get(wls.column_moments(fitted)[0])
    used = machine.used
    assert memory.make_room("a test")
    assert machine.used == used - X.nbytes
    assert isinstance(fitted.now(), HostMatrix)
    np.testing.assert_allclose(gpu.get(wls.column_moments(fitted)[0]), mean, rtol=1e-12)
    np.testing.assert_array_equal(gpu.get(watched[10:20]), X[410:420])
    np.testing.assert_array_equal(gpu.get(gpu.rows(watched, np.array([3, 1]))), X[[403, 401]])
    assert gpu.first_not_finite(watched) is None
    params = dict(n_rounds=3, subspace_size=4, random_state=0, early_stopping=True)
    found = LogitBoostClassifier(backend="gpu", **params).fit(fitted, y[:400], validation=(watched, y[400:]))
    wanted = LogitBoostClassifier(**params).fit(X[:400], y[:400], validation=(X[400:], y[400:]))
    np.testing.assert_allclose(found.validation_loss_, wanted.validation_loss_, rtol=1e-9)
    assert not memory.make_room("a test")
    with pytest.raises(TypeError, match="slices of rows"):
        whole[np.arange(3)]
    with pytest.raises(TypeError, match="every 2th"):
        whole[::2]


def test_the_largest_matrix_of_the_device_leaves_first(machine, gpu, caplog):
    from pipeline.backends.gpu import memory
    from pipeline.backends.gpu.matrix import HostMatrix

    small, large = (gpu.resident(np.ones((n, 4))) for n in (100, 300))
    assert memory.make_room("a test")
    assert isinstance(large.now(), HostMatrix)
    assert not isinstance(small.now(), HostMatrix)
    machine.devices = 2
    with gpu.xp.cuda.Device(1):
        assert not memory.make_room("a test on another GPU")
    del small
    assert not memory.make_room("a test")
    assert len(leaves_in(caplog)) == 1


def test_a_matrix_that_leaves_in_the_midst_of_a_pass_is_passed_over_once(machine, gpu):
    """One row finds no room beside X: X leaves, and its other rows are copied up for the rest of the pass."""
    from pipeline.backends.gpu.matrix import HostMatrix, over_rows

    X = np.random.default_rng(0).normal(size=(300, 40))
    resident = gpu.resident(X)
    seen = []

    def work(part, block):
        need = gpu.xp.empty(X.nbytes // 8 if part.start >= 100 else 8)  # more than there is while X is there
        assert need.size
        seen.append(gpu.get(block).copy())

    machine.limit = machine.used + 60_000
    over_rows(resident, 100 * 8, work)
    np.testing.assert_array_equal(np.concatenate(seen), X)
    assert isinstance(resident.now(), HostMatrix)


def test_rows_of_a_host_array_go_to_the_device(machine, gpu, digits):
    """With early stopping the training rows of a host array are on the device, not streaming."""
    X, y = digits
    machine.forget()
    model = LogitBoostClassifier(
        n_rounds=6, subspace_size=8, early_stopping=True, random_state=0, backend="gpu"
    )
    model.fit(X, y)
    assert machine.bytes["h2d"] < 3 * X.nbytes


def test_features_too_many_for_the_device_stay_on_the_host(machine, gpu):
    from pipeline.backends.gpu.matrix import HostMatrix
    from pipeline.model import features

    pixels = np.random.default_rng(0).integers(0, 256, (120, 40, 48), dtype=np.uint8)
    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    wanted = HogExtractor().fit_transform(pixels)
    machine.limit = machine.used + wanted.nbytes
    X = features(pixels, None, Preprocess(), extractor, 64)
    assert isinstance(X, HostMatrix)
    np.testing.assert_allclose(gpu.get(X), wanted, atol=1e-6)
    X[5:6] = gpu.put(np.full((1, X.shape[1]), np.nan))
    assert gpu.first_not_finite(X) == 5


def test_rows_that_find_no_room_beside_their_matrix_stream(machine, gpu, caplog):
    """As the training rows that early stopping leaves, when the matrix fills half of the device."""
    from pipeline.backends.gpu.matrix import HostMatrix

    X = np.random.default_rng(0).normal(size=(2000, 30))
    device, kept = gpu.put(X), np.arange(0, 2000, 2)
    assert gpu.holds(device)
    machine.limit = machine.used + 100_000
    found = gpu.rows(device, kept)
    assert isinstance(found, HostMatrix)
    assert "streams through the GPU" in caplog.text
    np.testing.assert_array_equal(gpu.get(found), X[kept])


def test_a_failed_allocation_leaves_sums_as_they_were(machine, gpu, monkeypatch):
    """Chunks of rows that fail half-way are taken again: nothing is counted twice."""
    from pipeline.backends.gpu import memory

    X, W, R = random_problem(3000, 24, 6, 3)
    center = np.zeros(24)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, 0.1)
    device = [gpu.put(a) for a in (X, center, W, R)]
    monkeypatch.setattr(memory, "chunk", lambda n, *_, **__: n)
    machine.limit = machine.used + X.nbytes * 3
    got = gpu.wls.fit(*device, 0.1)
    assert machine.count["emptied"] >= 1
    np.testing.assert_allclose(gpu.get(got.coef), wanted.coef, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", ["gather", "random_features"])
def test_the_columns_of_a_round_stream_when_no_room_is_left(machine, gpu, function):
    """X itself is on the device; what a round takes from it comes home in pieces, and the fit is the same."""
    from pipeline.backends.gpu.matrix import HostMatrix

    X, W, R = random_problem(4000, 40, 5, 3)
    center = X.mean(axis=0)
    arguments = {"gather": (np.arange(0, 40, 2), center), "random_features": (center, 0.01, 24, 7, 3)}[
        function
    ]
    cpu = backends.get("cpu").wls
    columns = getattr(cpu, function)(X, *arguments)
    wanted = cpu.fit(columns, np.zeros(columns.shape[1]), W, R, 0.1)
    device = [gpu.put(a) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in (X, *arguments)]
    WR = [gpu.put(W), gpu.put(R)]
    machine.limit = machine.used + np.asarray(columns).nbytes
    found = getattr(gpu.wls, function)(*device)
    assert isinstance(found, HostMatrix)
    np.testing.assert_allclose(gpu.get(found), columns, atol=1e-12)
    got = gpu.wls.fit(found, gpu.put(np.zeros(columns.shape[1])), *WR, 0.1)
    np.testing.assert_allclose(gpu.get(got.coef), wanted.coef, rtol=1e-9, atol=1e-9)
    values = gpu.wls.apply(found, gpu.put(np.zeros(columns.shape[1])), got.coef, got.intercept)
    np.testing.assert_allclose(
        gpu.get(values),
        cpu.apply(columns, np.zeros(columns.shape[1]), wanted.coef, wanted.intercept),
        atol=1e-9,
    )


def test_nothing_is_left_on_the_device(machine, gpu, digits):
    LogitBoostClassifier(backend="gpu", n_rounds=3).fit(*digits)
    gc.collect()  # what the errors of other tests hold
    before = machine.used
    for _ in range(3):
        LogitBoostClassifier(backend="gpu", n_rounds=3).fit(*digits)
    assert machine.used == before
