"""Situations that users of comparable software reported, each named by its report, with the right behaviour."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from threadpoolctl import threadpool_info

from pipeline.boosting import LogitBoostClassifier
from pipeline.boosting.loss import log_loss, softmax

LINEAR = ("full", "ridge", "componentwise", "subspace")
LEARNERS = (*LINEAR, "random_features")


def small(learner="subspace", **params):
    defaults = dict(n_rounds=10, subspace_size=4, n_components=24, random_state=0)
    return LogitBoostClassifier(learner, **{**defaults, **params})


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600]


# ---- designs ----


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_rank_deficient_design(backend):
    """statsmodels#10126: bounded coefficients, fitted values of least squares, the rank reported."""
    rng = np.random.default_rng(0)
    base = rng.choice([-1.0, 1.0], size=(60, 8))
    X = np.column_stack([base, base[:, :4] * -1.0])
    y = (base[:, 0] + base[:, 1] + rng.normal(size=60) > 0).astype(int)
    one = LogitBoostClassifier(
        "full", n_rounds=1, learning_rate=1.0, z_max=100.0, dtype="float64", backend=backend
    ).fit(X, y)
    A = np.column_stack([np.ones(60), X])
    target = 4.0 * (y - 0.5)  # the working response at F = 0
    expected = A @ np.linalg.lstsq(A, target, rcond=None)[0]
    np.testing.assert_allclose(one.decision_function(X), expected, atol=1e-8)
    assert np.abs(one.coef_).max() < 10
    assert one.rank_.max() == 8
    if backend == "cpu":
        assert (one.ladder_ == 4).all()


def test_dummy_variables_with_a_constant():
    """statsmodels#2628: three dummies and a constant give the same predictions for every seed and column order."""
    rng = np.random.default_rng(0)
    group = np.arange(90) % 3
    y = (rng.random(90) < np.array([0.2, 0.5, 0.8])[group]).astype(int)
    share = np.array([y[group == g].mean() for g in range(3)])
    for seed, columns in enumerate(2 * list(itertools.permutations(range(4)))):
        order = np.random.default_rng(seed).permutation(90)
        X = np.column_stack([np.eye(3)[group], np.ones(90)])[:, columns]
        model = LogitBoostClassifier(
            "full", n_rounds=30, learning_rate=1.0, dtype="float64", random_state=seed
        ).fit(X[order], y[order])
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], share[group], atol=1e-8)


@pytest.mark.parametrize("learner", ["full", "componentwise"])
def test_scale_of_a_column_does_not_matter(learner, iris):
    """statsmodels#9258: one column times 1e8 leaves the predictions alone."""
    X, y = iris
    scaled = X * np.array([1.0, 1e8, 1.0, 1e-8])
    before, after = (
        small(learner, dtype="float64", n_rounds=15).fit(D, y).predict_proba(D) for D in (X, scaled)
    )
    assert np.abs(before - after).max() < 1e-6


def test_large_offset_of_a_column(iris):
    """The kind behind statsmodels#9258: a column far from 0 loses nothing to cancellation, in float32 too."""
    X, y = iris
    X = np.tile(X, (300, 1))
    y = np.tile(y, 300)
    shifted = X + np.array([0.0, 0.0, 4096.0, 0.0])  # exact in float32 for values with one decimal to 5e-4
    before, after = (small("full").fit(D, y) for D in (X, shifted))
    assert before.dtype_ == "float32"
    assert np.abs(before.predict_proba(X) - after.predict_proba(shifted)).max() < 0.02


@pytest.mark.parametrize("learner", LEARNERS)
def test_constant_and_duplicate_columns(learner, iris):
    X, y = iris
    odd = np.column_stack([np.full(len(X), 0.1), X, X[:, 2], np.full(len(X), 1e6)])
    model = small(learner).fit(odd, y)
    assert np.isfinite(model.predict_proba(odd)).all()
    assert model.score(odd, y) > 0.9
    assert model.feature_importances_[0] == model.feature_importances_[-1] == 0.0


def test_all_columns_constant():
    X, y = np.ones((20, 3)), np.arange(20) % 4 == 0
    for learner in LEARNERS:
        proba = small(learner, n_rounds=60, learning_rate=1.0).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(proba[:, 1], 0.25, atol=1e-6)


def test_more_features_than_rows():
    """n < p: the minimum-norm ladder holds, without and with a penalty, and separates the classes."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 100)), np.arange(40) % 3
    for learner in ("full", "ridge"):
        model = small(learner, dtype="float64").fit(X, y)
        assert np.isfinite(model.coef_).all()
        assert model.score(X, y) == 1.0
    assert (small("full", dtype="float64").fit(X, y).rank_ <= 39).all()


# ---- weights ----


def test_weights_are_positional(iris):
    """statsmodels#500: a Series with a shuffled index is taken by position."""
    X, y = iris
    w = np.random.default_rng(0).random(len(y))
    series = pd.Series(w, index=np.random.default_rng(1).permutation(len(y)))
    np.testing.assert_array_equal(
        small().fit(X, y, series).predict_proba(X), small().fit(X, y, w).predict_proba(X)
    )


def test_unknown_keyword():
    """statsmodels#7753: an unknown keyword is an error."""
    with pytest.raises(TypeError, match="learning_rat"):
        LogitBoostClassifier(learning_rat=0.1)


@pytest.mark.parametrize("learner", LEARNERS)
def test_integer_weights_are_repeated_rows(learner, iris):
    """statsmodels#3898: an integer weight counts rows."""
    X, y = iris
    w = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = small(learner).fit(X, y, w)
    repeated = small(learner).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_weight(bad, iris):
    """Measured: NaN, infinite and negative weights are refused by name and row."""
    X, y = iris
    w = np.ones(len(y))
    w[7] = bad
    with pytest.raises(ValueError, match=r"sample_weight.*row 7"):
        small().fit(X, y, w)


@pytest.mark.parametrize("odd", ["abc", ["x"] * 150, [[1.0], [1.0, 2.0]], {"a": 1}])
def test_weights_that_are_no_numbers_are_told_by_name(odd, iris):
    with pytest.raises(ValueError, match=r"sample_weight must be \(150,\) numbers, one weight a row: "):
        small().fit(*iris, sample_weight=odd)


@pytest.mark.parametrize("learner", LEARNERS)
def test_zero_weights(learner, iris):
    """scikit-learn PR#16507, #32212: zero weights are removal; all zero is an error."""
    X, y = iris
    w = np.random.default_rng(0).integers(0, 2, len(y)).astype(float)
    weighted, removed = small(learner).fit(X, y, w), small(learner).fit(X[w > 0], y[w > 0])
    np.testing.assert_allclose(weighted.predict_proba(X), removed.predict_proba(X), atol=1e-12)
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        small(learner).fit(X, y, np.zeros(len(y)))


def test_class_weight_balanced_equals_its_weights(iris):
    X, y = iris[0][30:], iris[1][30:]
    w = len(y) / (3 * np.bincount(y))[y]
    np.testing.assert_allclose(
        small(class_weight="balanced").fit(X, y).predict_proba(X),
        small().fit(X, y, w).predict_proba(X),
        atol=1e-12,
    )


# ---- finite for ever ----


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_separable_data(learner, dtype, iris):
    """statsmodels#516, #2282: 500 rounds on separable data stay finite and within the limit of scores."""
    X, y = iris
    model = small(learner, n_rounds=500, learning_rate=1.0, dtype=dtype).fit(X, y)
    F = model.decision_function(X)
    limit = 500.0 if model.dtype_ == "float64" else 80.0
    assert np.isfinite(F).all()
    assert np.abs(F).max() <= limit * (1 + 1e-6)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, atol=1e-12)
    assert np.isfinite(model.train_loss_).all()


def test_softmax_of_far_scores():
    """scikit-learn#17978 and dotnet/machinelearning#3648."""
    np.testing.assert_allclose(softmax(np, np.array([[-800.0, -900.0, -1000.0]])), [[1, 0, 0]], atol=1e-40)
    far = np.array([[90.0, 2.0, -2.0]], dtype=np.float32)
    assert np.isfinite(softmax(np, far)).all()
    one = np.ones(1, dtype=np.float32)
    assert log_loss(np, far, np.array([[0, 0, 1]], dtype=np.float32), one, 1.0) == pytest.approx(92.0)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_loss_never_becomes_nan(rate):
    """xgboost#213: a thousand rounds at either rate, in true float32."""
    X, y = load_digits(return_X_y=True)
    X, y = np.tile(X, (2, 1)), np.tile(y, 2)
    model = small("componentwise", n_rounds=1000, learning_rate=rate).fit(X, y)
    assert model.dtype_ == "float32"
    assert np.isfinite(model.train_loss_).all()
    assert model.train_loss_[-1] < model.train_loss_[0]


def test_features_that_would_overflow_are_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 4)).astype(np.float32) * np.float32(1e18)
    with pytest.raises(ValueError, match=r"too large for dtype='float32'.* or use dtype='float64'"):
        small().fit(X, np.arange(40_000) % 2)
    with pytest.raises(ValueError, match=r"too large for dtype='float64'.*scale the features$"):
        small(dtype="float64").fit(X.astype(float) * 1e200, np.arange(40_000) % 2)


# ---- labels and columns ----


@pytest.mark.parametrize("learner", LEARNERS)
def test_same_seed_same_bits(learner, digits):
    """xgboost#4919: two fits with one seed are bit-equal; another seed differs where there are draws."""
    X, y = digits
    first, second = (small(learner).fit(X, y).predict_proba(X) for _ in range(2))
    assert np.array_equal(first, second)
    other = small(learner, random_state=1).fit(X, y).predict_proba(X)
    assert np.array_equal(first, other) == (learner in ("full", "ridge", "componentwise"))


@pytest.mark.parametrize("labels", [["b", "a"], [3, 4, 5], [True, False], ["ä", "z", "画"]])
def test_labels_round_trip(labels):
    """xgboost#10078, #11228: predictions are the labels that were given."""
    rng = np.random.default_rng(0)
    y = np.array(labels)[np.arange(90) % len(labels)]
    X = np.eye(len(labels))[np.arange(90) % len(labels)] + rng.normal(scale=0.1, size=(90, len(labels)))
    model = small().fit(X, y)
    assert model.classes_.tolist() == sorted(labels)
    assert (model.predict(X) == y).all()
    assert model.predict(X).dtype == y.dtype


def test_one_class_only(iris):
    """python-glmnet#1: one class is an error in words."""
    with pytest.raises(ValueError, match="one class only"):
        small().fit(iris[0], np.zeros(len(iris[0])))


def test_float32_rows_sum_to_one():
    """scikit-learn-intelex#3401."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30_000, 6)).astype(np.float32), rng.integers(0, 5, 30_000)
    proba = small().fit(X, y).predict_proba(X)
    assert proba.dtype == np.float32
    assert np.abs(proba.sum(axis=1) - 1).max() < 1e-6


def test_probability_columns(iris):
    """catboost#625: (n, J) in the order of classes_, for two classes too."""
    X, y = iris[0][:100], np.array(["no", "ab"])[iris[1][:100]]
    model = small().fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (100, 2)
    assert (model.classes_[proba.argmax(axis=1)] == y).all()
    np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(-model.decision_function(X))), atol=1e-12)


@pytest.mark.parametrize("learner", LEARNERS)
def test_predicted_scores_are_the_fitted_scores(learner, digits):
    """artemmavrin/logitboost: the learning rate counts at predict; staged results do not share memory."""
    X, y = digits
    model = small(learner, learning_rate=0.4).fit(X, y)
    stages = list(model.staged_predict_proba(X))
    assert len(stages) == model.n_rounds_ == 10
    assert not any(np.shares_memory(a, b) for a, b in itertools.pairwise(stages))
    np.testing.assert_allclose(stages[-1], model.predict_proba(X), atol=1e-9)
    for proba, loss in zip(stages, model.train_loss_, strict=True):
        assert -np.log(proba[np.arange(len(y)), y]).mean() == pytest.approx(loss, rel=1e-6)


# ---- what users do with an estimator ----


@pytest.mark.parametrize("learner", LINEAR)
def test_coefficients_are_the_decision_function(learner, digits):
    X, y = digits
    for labels in (y, y % 2):
        model = small(learner).fit(X, labels)
        scores = X @ model.coef_.T + model.intercept_
        scores = scores[:, 0] if len(model.classes_) == 2 else scores
        np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-9)


def test_no_coefficients_for_a_nonlinear_model(digits):
    model = small("random_features").fit(*digits)
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="linear learner"):
        _ = model.intercept_


@pytest.mark.parametrize("learner", LEARNERS)
def test_warm_start_equals_one_fit(learner, digits):
    X, y = digits
    whole = small(learner, n_rounds=12).fit(X, y)
    parts = small(learner, n_rounds=5, warm_start=True).fit(X, y)
    parts.set_params(n_rounds=12).fit(X, y)
    assert parts.n_rounds_ == 12
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    with pytest.raises(ValueError, match="below the 12 rounds"):
        parts.set_params(n_rounds=3).fit(X, y)
    with pytest.raises(ValueError, match="other classes"):
        parts.set_params(n_rounds=20).fit(X, y + 1)
    with pytest.raises(ValueError, match="warm_start: X has 63 features, the rounds so far 64"):
        small(learner, n_rounds=2, warm_start=True).fit(X, y).set_params(n_rounds=4).fit(X[:, 1:], y)
    other = "full" if learner == "ridge" else "ridge"
    with pytest.raises(ValueError, match="warm_start cannot continue"):
        small(learner, n_rounds=2, warm_start=True).fit(X, y).set_params(n_rounds=4, learner=other).fit(X, y)


def test_warm_start_with_early_stopping_keeps_what_was_fitted(digits):
    """The rounds of an earlier fit have no validation loss: they once shifted the choice of the best round."""
    X, y = digits
    model = small("ridge", n_rounds=10, warm_start=True).fit(X, y)
    model.set_params(n_rounds=40, early_stopping=True, patience=5).fit(X, y)
    assert model.n_rounds_ > 10
    assert np.isnan(model.validation_loss_[:10]).all()
    assert model.n_rounds_ == np.nanargmin(model.validation_loss_) + 1
    model.set_params(n_rounds=model.n_rounds_ + 2, early_stopping=False).fit(X, y)
    assert model.stopped_ == "n_rounds"
    assert len(model.train_loss_) == model.n_rounds_


def test_a_model_from_a_file_is_not_continued(digits):
    X, y = digits
    loaded = LogitBoostClassifier.from_state(*small("ridge", n_rounds=3).fit(X, y).state())
    with pytest.raises(ValueError, match="from a file"):
        loaded.set_params(n_rounds=5, warm_start=True).fit(X, y)


def test_a_fit_that_fails_leaves_no_half_fitted_model(iris):
    model = small()
    with pytest.raises(ValueError, match="validation must be a pair"):
        model.fit(*iris, validation=3)
    with pytest.raises(NotFittedError):
        model.predict(iris[0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({0: -1}, r"class_weight\[0\] must be"),
        ({0: np.nan}, r"class_weight\[0\]"),
        ({0: 0, 1: 0, 2: 0}, "class_weight is zero"),
    ],
)
def test_bad_class_weight(weights, message, iris):
    with pytest.raises(ValueError, match=message):
        small(class_weight=weights).fit(*iris)


def test_signature_users_rely_on():
    import inspect

    names = list(inspect.signature(LogitBoostClassifier).parameters)
    expected = """learner n_rounds learning_rate z_max clip l2 subspace_size early_stopping validation_fraction
        patience class_weight dtype random_state backend verbose"""
    assert names[:15] == expected.split()
    kinds = [p.kind for p in inspect.signature(LogitBoostClassifier).parameters.values()]
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for kind in kinds[15:])


@pytest.mark.parametrize("learner", ["full", "ridge"])
def test_fewer_rows_than_features_equals_the_reference(learner):
    """HoG of a small set has more features than images: held-out probabilities agree with statsmodels' too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 100)) * rng.uniform(0.1, 3.0, size=100) + rng.normal(size=100)
    y = np.arange(60) % 3
    cpu, reference = (
        small(learner, dtype="float64", n_rounds=3, backend=b).fit(X[:40], y[:40])
        for b in ("cpu", "reference")
    )
    assert np.abs(cpu.predict_proba(X) - reference.predict_proba(X)).max() < 1e-8
    assert np.array_equal(cpu.rank_, reference.rank_)
    assert (cpu.rank_ == (39 if learner == "full" else 100)).all()


def test_concurrent_fits_restore_the_threads_of_blas(digits):
    X, y = digits
    before = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: small(n_rounds=20).fit(X, y).predict_proba(X), range(6)))
    assert all(np.array_equal(found[0], other) for other in found)
    assert [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"] == before


def test_early_stopping_keeps_the_best_round(digits):
    X, y = digits
    model = small("full", n_rounds=100, learning_rate=1.0, early_stopping=True, patience=3).fit(X, y)
    assert model.stopped_ == "patience"
    assert model.n_rounds_ < 100
    assert model.n_rounds_ == np.argmin(model.validation_loss_) + 1
    assert (
        len(model.train_loss_) == len(model.validation_loss_) == model.n_rounds_ + 3
    )  # the rounds that stopped it
    proba = model.predict_proba(X)
    assert len(list(model.staged_predict_proba(X))) == model.n_rounds_
    assert np.isfinite(proba).all()


def test_explicit_validation_set_and_callback(digits):
    X, y = digits
    seen = []
    model = small(n_rounds=6)
    model.fit(X[:400], y[:400], validation=(X[400:], y[400:]), on_round=lambda *a: seen.append(a))
    assert [s[:2] for s in seen] == [(i, 6) for i in range(1, 7)]
    assert [s[3] for s in seen] == model.validation_loss_
    proba = model.predict_proba(X[400:])
    expected = -np.log(proba[np.arange(200), y[400:]]).mean()
    assert model.validation_loss_[-1] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="validation holds class 77"):
        small().fit(X, y, validation=(X[:1], [77]))


def test_verbose(digits, capsys):
    small(verbose=2, n_rounds=3).fit(*digits)
    assert capsys.readouterr().out.count("train") == 3


def test_trimming_by_mass_keeps_the_result_close(digits):
    X, y = digits
    plain, trimmed = (small("ridge", n_rounds=15, trim=t).fit(X, y) for t in (0.0, 0.02))
    assert np.abs(plain.predict_proba(X) - trimmed.predict_proba(X)).max() < 0.02
    assert not np.array_equal(plain.predict_proba(X), trimmed.predict_proba(X))


def test_works_in_cross_validation_and_clone(digits):
    X, y = digits
    assert cross_val_score(small("ridge"), X, y, cv=3).mean() > 0.85
    assert clone(small("ridge", gamma=(0.1, 0.2))).get_params()["gamma"] == (0.1, 0.2)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"learner": "stump"}, "learner"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"n_rounds": 2.5}, "n_rounds"),
        ({"n_rounds": True}, "n_rounds"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"z_max": -1}, "z_max"),
        ({"z_max": np.nan}, "z_max"),
        ({"clip": "none"}, "clip"),
        ({"l2": -1.0}, "l2"),
        ({"subspace_size": 0}, "subspace_size"),
        ({"gamma": (1.0, 0.5)}, "gamma"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": None}, "gamma"),
        ({"gamma": np.array(0.1)}, "gamma"),
        ({"gamma": ("a", "b")}, "gamma"),
        ({"gamma": (1e308, 1e308)}, "gamma"),
        ({"trim": 1.0}, "trim"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"patience": 0}, "patience"),
        ({"class_weight": "even"}, "class_weight"),
        ({"class_weight": 2.0}, "class_weight"),
        ({"early_stopping": "no"}, "early_stopping"),
        ({"early_stopping": "false"}, "early_stopping"),
        ({"early_stopping": 1}, "early_stopping"),
        ({"early_stopping": None}, "early_stopping"),
        ({"warm_start": "yes"}, "warm_start"),
        ({"verbose": -1}, "verbose"),
        ({"verbose": "loud"}, "verbose"),
        ({"verbose": 0.5}, "verbose"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_bad_parameter_is_named(params, word, iris):
    with pytest.raises(ValueError, match=f"^{word} must be"):
        small(**params).fit(*iris) if "learner" not in params else LogitBoostClassifier(**params).fit(*iris)


def test_parameters_may_be_of_numpy(iris, capsys):
    """They come from a grid of values; the state of such a model was no JSON."""
    X, y = iris
    given = {
        "n_rounds": np.int64(3),
        "early_stopping": np.False_,
        "warm_start": np.True_,
        "verbose": np.True_,
    }
    given |= {"learning_rate": np.float32(0.5), "gamma": np.array([0.3, 1.0])}
    model = LogitBoostClassifier(learner="full", random_state=0, **given).fit(X, y)
    assert "round 3/3" in capsys.readouterr().out
    arrays, header = model.state()
    again = LogitBoostClassifier.from_state(arrays, json.loads(json.dumps(header)))
    assert again.get_params()["early_stopping"] is False
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("learner", LEARNERS)
def test_state_round_trip_without_pickle(learner, digits, tmp_path):
    """xgboost PR#8632: the model is NumPy arrays and a header; it predicts the same wherever it is loaded."""
    X, y = digits
    model = small(learner).fit(X, y.astype(str).astype(object))
    arrays, header = model.state()
    np.savez(tmp_path / "m.npz", **arrays)
    loaded_arrays = dict(np.load(tmp_path / "m.npz", allow_pickle=False))
    again = LogitBoostClassifier.from_state(loaded_arrays, json.loads(json.dumps(header)))
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-12)
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert again.n_rounds_ == 10
    if learner in LINEAR:
        with pytest.raises(ValueError, match="without its rounds"):
            next(again.staged_predict_proba(X))


@pytest.fixture(scope="module")
def float32_rows():
    """Enough numbers to be fitted in float32."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(14_000, 10)).astype(np.float32), rng.integers(0, 3, 14_000)
    X[:, 0] += y
    return X, y


@pytest.mark.parametrize("learner", ["subspace", "componentwise", "full", "random_features"])
@pytest.mark.parametrize("size", [1e39, 1e33, 1e28, 1e-26, 1e-30, 1e-44, 1e-300])
def test_weights_of_any_size_give_the_same_model_or_are_refused(float32_rows, learner, size):
    """Sums in float32 would overflow, or vanish: models were wrong without a word."""
    X, y = float32_rows
    model = LogitBoostClassifier(learner=learner, n_rounds=2, random_state=0, l2=0.0, n_components=64)
    if not 1e-28 <= size <= 1e30:
        with pytest.raises(
            ValueError, match=r"sample_weight is too (small|large) for dtype='float32': the largest is"
        ):
            model.fit(X, y, sample_weight=np.full(len(y), size))
        return
    wanted = model.fit(X, y).predict_proba(X)
    found = model.fit(X, y, sample_weight=np.full(len(y), size)).predict_proba(X)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("learner", ["subspace", "componentwise", "random_features"])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float32", 1e-15), ("float32", 1e-22), ("float32", 1e-44), ("float64", 1e-150), ("float64", 1e-170)],
)
@pytest.mark.parametrize("some", [False, True])
def test_features_of_a_tiny_unit_give_the_same_model_or_are_refused(
    float32_rows, learner, dtype, scale, some
):
    """All of them, or one beside others: its squares would vanish, and it would be taken for a constant."""
    X, y = (float32_rows[0].astype(dtype)[:, :], float32_rows[1])
    unit = np.ones(10, dtype)
    unit[0 if some else slice(None)] = scale
    model = LogitBoostClassifier(
        learner=learner, n_rounds=2, random_state=0, l2=0.0, n_components=64, dtype=dtype
    )
    if scale in (1e-15, 1e-150):
        found = model.fit(X * unit, y).predict_proba(X * unit)
        if learner != "random_features" or not some:  # whose kernel knows distances
            np.testing.assert_allclose(found, model.fit(X, y).predict_proba(X), rtol=0, atol=1e-5)
        return
    with pytest.raises(ValueError, match=rf"X is too small for dtype='{dtype}'.*feature \d+ has variance"):
        model.fit(X * unit, y)


@pytest.mark.parametrize("columns", ["independent", "dependent", "of several sizes"])
@pytest.mark.parametrize(
    ("learner", "backend"), [("full", "cpu"), ("subspace", "cpu"), ("full", "reference")]
)
def test_the_size_of_the_features_does_not_matter(learner, backend, columns):
    """Of dependent columns times 1e30 the fit was worse than guessing; powers of two change not a bit."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 4))
    y = (Z @ rng.normal(size=(4, 3))).argmax(axis=1)
    if columns != "independent":
        Z = np.hstack(
            [Z, Z[:, :2] * (2.0**40 if columns == "of several sizes" and backend == "cpu" else 1.0)]
        )
    model = LogitBoostClassifier(
        learner=learner, n_rounds=4, l2=0.0, subspace_size=6, backend=backend, random_state=0
    )
    plain = model.fit(Z, y).train_loss_
    fits = {power: clone(model).fit(np.ldexp(Z, power), y) for power in (40, 100, 400, -100, -400)}
    for power, found in fits.items():
        np.testing.assert_allclose(found.train_loss_, plain, rtol=1e-7)
        same = fits[100 if power > 0 else -100]
        assert found.train_loss_ == same.train_loss_
        assert np.array_equal(np.ldexp(found.coef_, power), np.ldexp(same.coef_, 100 if power > 0 else -100))
    np.testing.assert_allclose(clone(model).fit(Z * 1e30, y).train_loss_, plain, rtol=1e-7)
