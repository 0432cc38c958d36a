"""The host code of the gpu backend under a hostile double of CuPy: it equals the cpu backend, and counts what it moves.

This is rung 4 of the ladder. The double is no GPU: it shows that the host code asks CuPy for the right things.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline import backends
from pipeline.backends import protocol, solve
from pipeline.boosting import LogitBoostClassifier
from pipeline.boosting.loss import log_loss_sum, softmax, trim, working_response
from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import ConfigError
from pipeline.features import HogExtractor, HogLayout
from tests.test_preprocess import STEPS, name, pictures
from tests.test_wls import random_problem

LEARNERS = ("subspace", "ridge", "full", "componentwise", "random_features")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


def host(gpu, values):
    return [np.asarray(gpu.get(v)) for v in values]


def test_the_folders_hold_the_same_functions(gpu):
    """The backend is the folder: functions and their parameters are those of the protocol, in both."""
    rooms = {"hog": "HogModule", "pca": "PcaModule", "preprocess": "PreprocessModule", "wls": "WlsModule"}
    for room, declared in rooms.items():
        asked = {n: f for n, f in vars(getattr(protocol, declared)).items() if inspect.isfunction(f)}
        asked = {n: list(inspect.signature(f).parameters)[1:] for n, f in asked.items() if n[0] != "_"}
        assert asked
        for backend in (backends.get("cpu"), gpu):
            module = getattr(backend, room)
            assert asked == {n: list(inspect.signature(getattr(module, n)).parameters) for n in asked}


# ---- weighted least squares ----


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "q", "J"), [(300, 12, 1), (700, 40, 3), (2000, 16, 10), (40, 60, 2), (50, 1, 2)]
)
@pytest.mark.parametrize("l2", [0.0, 0.7])
def test_fit_equals_the_cpu_backend(gpu, n, q, J, dtype, l2):
    X, W, R = random_problem(n, q, J, n + q, dtype)
    center = X.mean(axis=0, dtype=np.float64)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, l2)
    got = gpu.wls.fit(*map(gpu.put, (X, center, W, R)), l2)
    tolerance = 1e-9 if dtype is np.float64 else 2e-3
    for a, b in zip(host(gpu, got[:2]), wanted[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(got.rank, wanted.rank)
    np.testing.assert_array_equal(got.ladder, wanted.ladder)


def test_many_columns_are_multiplied_in_panels(gpu, monkeypatch):
    X, W, R = random_problem(150, 37, 2, 0)
    center = X.mean(axis=0)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, 0.5)
    from pipeline.backends.gpu import blas, cholesky

    monkeypatch.setattr(blas, "PANELLED", 8)
    monkeypatch.setattr(cholesky, "BATCHED", 8)
    got = gpu.wls.fit(*map(gpu.put, (X, center, W, R)), 0.5)
    for a, b in zip(host(gpu, got), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_tf32_rounds_the_gram_matrix_and_nothing_else(gpu):
    X, W, R = random_problem(800, 20, 3, 4, np.float32)
    center = np.zeros(20)
    put = [gpu.put(a) for a in (X, center, W, R)]
    full, rounded = (gpu.get(gpu.wls.fit(*put, 0.1, p).coef) for p in ("full", "tf32"))
    difference = np.abs(full - rounded).max() / np.abs(full).max()
    assert 1e-6 < difference < 1e-2
    double = [gpu.put(a.astype(np.float64)) for a in (X, center, W, R)]
    exact, same = (gpu.get(gpu.wls.fit(*double, 0.1, p).coef) for p in ("full", "tf32"))
    np.testing.assert_array_equal(exact, same)


def deficient(seed=0, dtype=np.float64):
    """Three classes; the weights of the middle one leave a singular design."""
    X, W, R = random_problem(200, 6, 3, seed, dtype)
    X[:, 5] = X[:, 0]
    X[:100, 5] += 1.0
    W[:100, 1] = R[:100, 1] = 0.0
    return X, W, R


@pytest.mark.parametrize("state", ["ignore", "raise"])  # what the caller may have set with cupyx.errstate
@pytest.mark.parametrize("left", [0, 1, 2], ids=["nan", "untouched", "negative"])
def test_only_a_failed_factorisation_takes_the_ladder(machine, gpu, monkeypatch, left, state):
    X, W, R = deficient()
    center = np.zeros(6)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, 0.0)
    machine.failed_cholesky = left
    monkeypatch.setattr(machine, "linalg", state)
    got = gpu.wls.fit(*map(gpu.put, (X, center, W, R)), 0.0)
    assert got.ladder.tolist() == wanted.ladder.tolist() == [0, 4, 0]
    assert got.rank.tolist() == wanted.rank.tolist() == [6, 5, 6]
    np.testing.assert_allclose(gpu.get(got.coef), wanted.coef, rtol=1e-8, atol=1e-8)


def test_the_ladder_raises_the_penalty_as_on_the_cpu(gpu):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    X = np.column_stack([X, X[:, 0] + 1e-5 * rng.normal(size=50)]).astype(np.float32)
    W, R = np.ones((50, 1), np.float32), rng.normal(size=(50, 1)).astype(np.float32)
    center = np.zeros(5)
    for l2, rungs in ((1.0, {0}), (1e-5, {1, 2, 3}), (0.0, {4})):
        got = gpu.wls.fit(*map(gpu.put, (X, center, W, R)), l2)
        assert set(got.ladder.tolist()) <= rungs, l2


def test_delicate_float32_systems_are_refined_and_others_are_not(gpu, monkeypatch):
    """Columns far from zero: rounding of float32 sums grows a hundredfold, and a step of refinement takes it back."""
    X, W, R = random_problem(900, 12, 3, 6, np.float32)
    refined = []
    residual_sums = gpu.wls.residual_sums
    monkeypatch.setattr(gpu.wls, "residual_sums", lambda *given: refined.append(1) or residual_sums(*given))
    for shift, wanted in ((0.0, False), (9.0, True)):
        refined.clear()
        rows = X + np.float32(shift)
        exact = backends.get("cpu").wls.fit(
            *(one.astype(np.float64) for one in (rows, np.zeros(12), W, R)), 0.0
        )
        got = gpu.wls.fit(*map(gpu.put, (rows, np.zeros(12), W, R)), 0.0)
        assert bool(refined) == wanted
        error = np.abs(gpu.get(got.coef) - exact.coef).max() / np.abs(exact.coef).max()
        assert error < (1e-7 if wanted else 1e-5)


@pytest.mark.parametrize("failing", [False, True])
def test_the_margin_of_systems_is_that_of_the_processor(machine, gpu, failing):
    import cupy as cp

    from pipeline.backends.gpu.cholesky import Systems

    X, W, _ = deficient() if failing else random_problem(300, 6, 3, 9)
    X = X + 3.0
    gram = np.array([(X * w[:, None]).T @ X for w in W.T])
    given = np.tril(gram), X.T @ W, W.sum(axis=0)
    found = Systems(
        *(cp.asarray(one) for one in given[:1]), np.dtype(np.float64), *map(cp.asarray, given[1:]), 0.0
    )
    wanted = [
        solve.factorise(g.copy(order="F"), xw, sw, 0.0, 2.2e-16).margin
        for g, xw, sw in zip(gram, given[1].T, given[2], strict=True)
    ]
    assert found.margin == pytest.approx(min(wanted), rel=1e-6)
    assert (min(wanted) == 0.0) == failing


def test_columns_without_variance_and_classes_without_weight(gpu):
    X, W, R = random_problem(60, 5, 3, 2)
    X[:, 2] = 7.0
    W[:, 1] = R[:, 1] = 0.0
    center = X.mean(axis=0)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, 0.3)
    got = gpu.wls.fit(*map(gpu.put, (X, center, W, R)), 0.3)
    for a, b in zip(host(gpu, got), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    empty = gpu.wls.fit(*(gpu.put(a) for a in (X[:, :0], center[:0], W, R)), 0.3)
    none = backends.get("cpu").wls.fit(X[:, :0], center[:0], W, R, 0.3)
    np.testing.assert_allclose(gpu.get(empty.intercept), none.intercept)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_other_sums_equal_the_cpu_backend(gpu, dtype):
    X, W, R = random_problem(900, 33, 4, 1, dtype)
    X[:, 3] = 0.1
    cpu = backends.get("cpu").wls
    s = np.random.default_rng(0).integers(0, 3, 900).astype(float)
    tolerance = 1e-11 if dtype is np.float64 else 3e-5
    for a, b in zip(
        host(gpu, gpu.wls.column_moments(gpu.put(X), gpu.put(s))), cpu.column_moments(X, s), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    mean = cpu.column_moments(X, s)[0]
    assert gpu.get(gpu.wls.column_moments(gpu.put(X))[1])[3] == 0.0
    device = [gpu.put(a) for a in (X, mean, W, R)]
    for a, b in zip(
        host(gpu, gpu.wls.componentwise_sums(*device)), cpu.componentwise_sums(X, mean, W, R), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())
    columns = np.array([0, 7, 32])
    np.testing.assert_array_equal(
        gpu.get(gpu.wls.gather(*device[:1], columns, device[1])), cpu.gather(X, columns, mean)
    )
    coef, intercept = np.random.default_rng(1).normal(size=(33, 4)), np.arange(4.0)
    got = gpu.get(gpu.wls.apply(*device[:2], gpu.put(coef), gpu.put(intercept)))
    np.testing.assert_allclose(got, cpu.apply(X, mean, coef, intercept), rtol=tolerance, atol=tolerance)
    phi = gpu.get(gpu.wls.random_features(*device[:2], 0.05, 29, 2**40 + 7, 5))
    np.testing.assert_allclose(
        phi, cpu.random_features(X, mean, 0.05, 29, 2**40 + 7, 5), atol=100 * tolerance
    )


def test_numbers_out_of_range_are_refused_not_wrapped(gpu):
    X = gpu.put(np.eye(4))
    with pytest.raises(IndexError, match="0 to 3"):
        gpu.wls.gather(X, np.array([4]), gpu.put(np.zeros(4)))
    with pytest.raises(IndexError, match="0 to 3"):
        gpu.rows(X, np.array([-1]))
    with pytest.raises(ValueError, match="0 to 2"):
        gpu.scores.targets(np.array([0, 3]), 3)


# ---- scores ----


@pytest.mark.parametrize("clip", ["gradient", "paper"])
@pytest.mark.parametrize("J", [2, 3, 10, 43])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_equal_the_array_code(gpu, J, clip, dtype):
    rng = np.random.default_rng(J)
    F, values = (rng.normal(scale=s, size=(257, J)).astype(dtype) for s in (3.0, 1.0))
    codes, weight = rng.integers(0, J, 257), rng.random(257).astype(dtype)
    Y = np.eye(J)[codes].astype(dtype)
    wanted = working_response(np, Y, softmax(np, F), weight, 3.0, clip, 1e-7)
    labels = gpu.scores.targets(codes, J)
    got = gpu.scores.working_response(gpu.put(F), labels, gpu.put(weight), 3.0, clip, 1e-7)
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    for a, b in zip(host(gpu, got), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    moved, pair, _ = gpu.scores.advance(gpu.put(F), gpu.put(values), 0.3, labels, gpu.put(weight))
    expected = F + 0.3 * (values - values.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(gpu.get(moved), expected, rtol=tolerance, atol=tolerance)
    loss = log_loss_sum(np, expected, Y, weight)
    np.testing.assert_allclose(gpu.get(pair), [np.abs(expected).max(), loss], rtol=10 * tolerance)


def test_trimming_on_the_device(gpu):
    W = np.random.default_rng(0).random((80, 3)) ** 3
    got = trim(gpu.xp, gpu.put(W), gpu.put(2.0 * W), 0.2)
    for a, b in zip(host(gpu, got), trim(np, W, 2.0 * W, 0.2), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- HoG and preprocessing ----


def test_the_order_of_bytes_changes_no_bit(gpu):
    """A device knows its own order alone: bytes in the other would be read as other numbers."""
    levels = np.random.default_rng(0).integers(0, 4, (4, 24, 40, 3)) / 3
    layout = HogLayout((24, 40), channels=3)
    for sqrt in (False, True):
        extractor = HogExtractor(transform_sqrt=sqrt, channel_axis=-1, backend="gpu")
        ways = (
            lambda pixels, sqrt=sqrt: gpu.get(gpu.hog.hog(pixels, layout, "L2-Hys", sqrt, "float32")),
            extractor.fit_transform,
            lambda pixels, extractor=extractor: extractor.hog_image(pixels),
        )
        for way in ways:
            np.testing.assert_array_equal(way(levels.astype(">f4")), way(levels.astype("f4")))


@pytest.mark.parametrize("step", STEPS, ids=name)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_preprocessing_equals_the_cpu_backend(gpu, step, dtype):
    pixels = pictures(dtype)
    wanted = backends.get("cpu").preprocess.apply(pixels, step)
    got = gpu.get(gpu.preprocess.apply(gpu.put(pixels), step))
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))
    if dtype == "uint8" and step.name is not PreprocessName.gaussian:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shape", [(50, 100), (7, 9), (5, 40)])
@pytest.mark.parametrize(
    "settings",
    [
        {"clip_limit": 0.5, "nbins": 20},
        {"clip_limit": 0.0},
        {"clip_limit": 1.0, "nbins": 20_000, "kernel_size": 4},
        {"kernel_size": 3, "nbins": 2},
        {"kernel_size": 9},
    ],
    ids=str,
)
def test_clahe_of_a_batch_is_that_of_scikit_image_bit_by_bit(gpu, machine, shape, settings):
    """Constant images, two levels, noise, ramps; tiles of one pixel and tiles larger than the image's height."""
    random, (row, col) = np.random.default_rng(0), np.indices(shape)
    flat = [np.full(shape, value) for value in (0, 7, 255)]
    drawn = [random.integers(0, 256, shape), random.integers(0, 2, shape) * 255]
    shaded = [
        row + col,
        np.where(col > 3, 200, 10),
        100 + 20 * np.sin(col / 5) + 3 * random.normal(size=shape),
    ]
    pixels = np.stack([*flat, *drawn, *shaded]).astype(np.uint8)
    step = Preprocess(PreprocessName.clahe, **settings)
    device = gpu.put(pixels)
    machine.forget()
    got = gpu.preprocess.apply(device, step)
    assert machine.bytes["d2h"] < 20 * len(pixels) * 81  # at most a few flags for each tile
    np.testing.assert_array_equal(gpu.get(got), backends.get("cpu").preprocess.apply(pixels, step))


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (np.zeros((2, 8, 8, 3), np.uint8), "grayscale"),
        (np.full((2, 8, 8), np.nan), "finite"),
        (np.full((2, 8, 8), 2.0), "-1 to 1"),
    ],
)
def test_bad_pixels_are_named(gpu, pixels, words):
    with pytest.raises(ValueError, match=words):
        gpu.preprocess.apply(gpu.put(pixels), Preprocess(PreprocessName.clahe))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_kernel_larger_than_the_image_is_refused(gpu, dtype):
    pixels = gpu.put(pictures(dtype))
    with pytest.raises(ConfigError, match="kernel_size is 45 pixels, but images of 30 rows and 44 cols"):
        gpu.preprocess.apply(pixels, Preprocess(PreprocessName.clahe, kernel_size=45))
    gpu.preprocess.apply(pixels, Preprocess(PreprocessName.clahe, kernel_size=44))


@pytest.mark.parametrize(
    "settings", [{}, {"block_norm": "L1", "orientations": 8}, {"dtype": "float64"}], ids=str
)
def test_extractor_on_host_and_device_arrays(gpu, settings):
    pixels = pictures("uint8")
    wanted = HogExtractor(**settings).fit_transform(pixels)
    extractor = HogExtractor(backend="gpu", **settings).fit(pixels)
    from_host = extractor.transform(pixels)
    assert isinstance(from_host, np.ndarray)
    device = extractor.transform(gpu.put(pixels))
    assert gpu.holds(device)
    for got in (from_host, gpu.get(device)):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="image 1 holds NaN"):
        extractor.transform(gpu.put(np.where(np.arange(len(pixels))[:, None, None] == 1, np.nan, pixels)))


# ---- the whole fit ----


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("J", [2, 10])
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_whole_fit_equals_the_cpu_backend(gpu, monkeypatch, digits, learner, J, dtype):
    monkeypatch.setattr("pipeline.boosting.fitting.PROMOTED", 0)
    X, y = digits
    y = y if J == 10 else (y > 4).astype(int)
    params = dict(learner=learner, n_rounds=5, subspace_size=16, n_components=24, random_state=0, dtype=dtype)
    wanted = LogitBoostClassifier(**params).fit(X, y)
    found = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
    tolerance = 1e-9 if dtype == "float64" else 2e-3
    np.testing.assert_allclose(found.train_loss_, wanted.train_loss_, rtol=tolerance)
    proba = found.predict_proba(X)
    np.testing.assert_allclose(proba, wanted.predict_proba(X), atol=tolerance)
    np.testing.assert_array_equal(found.rank_, wanted.rank_)
    np.testing.assert_array_equal(found.ladder_, wanted.ladder_)
    if learner == "componentwise":
        for ours, theirs in zip(found._history.steps, wanted._history.steps, strict=True):
            np.testing.assert_array_equal(ours.columns, theirs.columns)
    arrays, header = found.state()
    assert all(type(a) is np.ndarray for a in arrays.values())
    elsewhere = LogitBoostClassifier.from_state(arrays, header)
    assert elsewhere.backend == "cpu"
    np.testing.assert_allclose(elsewhere.predict_proba(X), proba, atol=tolerance)


@pytest.mark.parametrize("params", [
    {"early_stopping": True, "validation_fraction": 0.2, "patience": 2, "n_rounds": 12},
    {"trim": 0.1, "clip": "paper"},
    {"class_weight": "balanced"},
], ids=str)  # fmt: skip
def test_the_estimators_other_settings(gpu, digits, params):
    X, y = digits
    settings = {"n_rounds": 6, "subspace_size": 8, "random_state": 1, **params}
    weight = np.arange(len(y)) % 3.0
    wanted = LogitBoostClassifier(**settings).fit(X, y, weight)
    for given in (X, gpu.put(X)):
        found = LogitBoostClassifier(backend="gpu", **settings).fit(given, y, weight)
        np.testing.assert_allclose(found.train_loss_, wanted.train_loss_, rtol=1e-9)
        np.testing.assert_allclose(found.validation_loss_, wanted.validation_loss_, rtol=1e-9)
        assert found.n_rounds_ == wanted.n_rounds_
    np.testing.assert_allclose(found.predict_proba(gpu.put(X)), wanted.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("learner", ["subspace", "random_features"])
def test_warm_start_and_staged_predictions(gpu, digits, learner):
    X, y = digits
    params = dict(learner=learner, n_rounds=6, subspace_size=8, n_components=16, random_state=1)
    wanted = LogitBoostClassifier(**params).fit(X, y)
    found = LogitBoostClassifier(backend="gpu", warm_start=True, **{**params, "n_rounds": 3}).fit(X, y)
    found.set_params(n_rounds=6).fit(X, y)
    np.testing.assert_allclose(found.train_loss_, wanted.train_loss_, rtol=1e-9)
    stages = list(found.staged_predict_proba(X))
    np.testing.assert_allclose(stages[-1], wanted.predict_proba(X), atol=1e-9)


def test_scores_that_reach_their_limit(gpu):
    X = np.linspace(-1, 1, 60)[:, None]
    y = (X[:, 0] > 0).astype(int)
    params = dict(learner="full", n_rounds=400, learning_rate=1.0, dtype="float64")
    wanted = LogitBoostClassifier(**params).fit(X, y)
    found = LogitBoostClassifier(backend="gpu", **params).fit(X, y)
    assert (found.stopped_, found.n_rounds_) == (wanted.stopped_, wanted.n_rounds_)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (X[:, :0], y), "at least one"),
        (lambda X, y: (X, y[:-1]), "but y has"),
        (lambda X, y: (np.where(np.arange(len(X))[:, None] == 7, np.nan, X), y), "row 7"),
    ],
)
def test_bad_device_arrays_are_named(gpu, digits, change, words):
    X, y = change(*digits)
    with pytest.raises(ValueError, match=words):
        LogitBoostClassifier(backend="gpu").fit(gpu.put(X), y)
    fitted = LogitBoostClassifier(backend="gpu", n_rounds=1).fit(*digits)
    with pytest.raises(ValueError, match="has 3 features, but LogitBoostClassifier is expecting 64"):
        fitted.predict(gpu.put(np.zeros((2, 3))))


# ---- the double itself ----


def test_the_double_refuses_what_cupy_refuses(gpu):
    a = gpu.put(np.arange(3.0))
    for fault, words in (
        (lambda: np.asarray(a), "Implicit conversion"),
        (lambda: a + np.ones(3), "Unsupported type"),
        (lambda: np.ones(3) + a, "Unsupported type"),
        (lambda: gpu.xp.concatenate([a, np.ones(3)]), "Unsupported type"),
    ):
        with pytest.raises(TypeError, match=words):
            fault()
    assert gpu.get(a[gpu.put(np.array([0, 4]))]).tolist() == [0.0, 1.0]  # wraps


def test_the_double_copies_late(gpu):
    """A copy on a stream takes what the page-locked buffer holds when someone waits for it."""
    import cupy
    import cupyx

    pinned, device = cupyx.empty_pinned(3, np.float64), cupy.zeros(3)
    pinned[...] = 1.0
    stream, event = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
    device.set(pinned, stream=stream)
    event.record(stream)
    pinned[...] = 2.0
    event.synchronize()
    assert device.get().tolist() == [2.0, 2.0, 2.0]
