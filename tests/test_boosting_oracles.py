"""The classifier against independent truths: Weka, statsmodels, maximum likelihood, least squares."""

from __future__ import annotations

import re

import array_api_strict
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax as scipy_softmax
from sklearn.datasets import load_digits, load_iris
from sklearn.utils.estimator_checks import check_estimator

from pipeline import backends
from pipeline.boosting import LogitBoostClassifier
from pipeline.boosting.learners import Design, make_learner
from pipeline.boosting.loop import History, Rules, boost
from pipeline.boosting.messages import Frame
from pipeline.boosting.partition import Partition
from pipeline.boosting.team import Team
from tests.conftest import DATA

GOLDEN = sorted((DATA / "golden").glob("*.npz"))
SETS = {"iris": load_iris, "digits": load_digits}


def nine_digits(X):
    """Round to 9 significant digits, as the oracle's input file was written."""
    return np.array([[float(f"{x:.9g}") for x in row] for row in X])


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_probabilities_equal_weka(path):
    data = SETS[re.search("iris|digits", path.name)[0]]()
    X = nine_digits(data.data)
    rate = re.search(r"_H([\d.]+)$", path.stem)
    model = LogitBoostClassifier(
        "full" if rate else "componentwise",
        n_rounds=int(re.search(r"_I(\d+)", path.stem)[1]),
        learning_rate=float(rate[1]) if rate else 1.0,
        z_max=3.0,
        dtype="float64",
    ).fit(X, data.target)
    expected = np.load(path, allow_pickle=False)["P"]
    assert np.abs(model.predict_proba(X) - expected).max() <= 1e-9


def test_all_golden_files_are_here():
    assert len(GOLDEN) == 18


def problem(n_classes, n=300, p=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + rng.normal(size=p)
    y = (X @ rng.normal(size=(p, n_classes)) / 3 + rng.gumbel(size=(n, n_classes))).argmax(axis=1)
    return X, y, rng.integers(0, 4, n).astype(float)


@pytest.mark.parametrize("trim", [0.0, 0.1])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("learner", ["full", "ridge", "subspace", "componentwise", "random_features"])
def test_cpu_equals_reference(learner, n_classes, trim):
    X, y, s = problem(n_classes)
    params = dict(n_rounds=8, subspace_size=5, n_components=20, dtype="float64", random_state=0, trim=trim)
    cpu, reference = (
        LogitBoostClassifier(learner, **params, backend=name).fit(X, y, s) for name in ("cpu", "reference")
    )
    assert np.abs(cpu.predict_proba(X) - reference.predict_proba(X)).max() <= 1e-8
    np.testing.assert_allclose(cpu.feature_importances_, reference.feature_importances_, atol=1e-8)
    np.testing.assert_allclose(cpu.train_loss_, reference.train_loss_, rtol=1e-8)
    assert np.array_equal(cpu.rank_, reference.rank_)


@pytest.mark.parametrize("learner", ["full", "ridge", "subspace", "componentwise", "random_features"])
def test_float32_follows_float64(learner):
    X, y, _ = problem(3, n=12_000, p=12)  # above the size that is promoted
    single, double = (
        LogitBoostClassifier(
            learner, n_rounds=10, subspace_size=5, n_components=32, dtype=dtype, random_state=0
        ).fit(X, y)
        for dtype in ("float32", "float64")
    )
    assert (single.dtype_, double.dtype_) == ("float32", "float64")
    assert np.abs(single.predict_proba(X) - double.predict_proba(X)).max() < 2e-3
    assert (single.predict(X) == double.predict(X)).mean() > 0.999


def overlapping_classes(n_classes=11, n=900, p=10):
    """Data in the manner of the vowel set (11 overlapping classes, 10 features): the MLE is finite."""
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(n_classes, p))
    y = np.arange(n) % n_classes
    return centres[y] + rng.normal(scale=1.5, size=(n, p)), y


def maximum_likelihood_probabilities(X, y):
    A, Y = np.column_stack([X, np.ones(len(X))]), np.eye(y.max() + 1)[y]

    def loss(b):
        F = A @ b.reshape(A.shape[1], -1)
        P = scipy_softmax(F, axis=1)
        value = np.log(np.exp(F - F.max(1, keepdims=True)).sum(1)).sum() + (F.max(1) - (F * Y).sum(1)).sum()
        return value, (A.T @ (P - Y)).ravel()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    b = minimize(loss, np.zeros(A.shape[1] * Y.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return scipy_softmax(A @ b.reshape(A.shape[1], -1), axis=1)


@pytest.mark.parametrize("z_max", [2.0, 3.0, 4.0])
def test_gradient_clip_converges_to_maximum_likelihood(z_max):
    X, y = overlapping_classes()
    expected = maximum_likelihood_probabilities(X, y)
    params = dict(n_rounds=150, learning_rate=1.0, z_max=z_max, dtype="float64")
    ours = LogitBoostClassifier("full", **params).fit(X, y)
    assert np.abs(ours.predict_proba(X) - expected).max() < 1e-5  # the optimiser's own accuracy
    Y = np.eye(11)[y]
    A = np.column_stack([X, np.ones(len(X))])
    assert np.abs(A.T @ (Y - ours.predict_proba(X))).max() < 1e-8  # a stationary point of the likelihood
    paper = LogitBoostClassifier("full", clip="paper", **params).fit(X, y)
    assert np.abs(paper.predict_proba(X) - expected).max() > 1e-3  # the printed form ends elsewhere


def test_first_round_of_full_wls_is_linear_regression():
    """At F = 0 all weights are equal: round 1 is least squares on indicators (ESL, 4.2)."""
    X, y = overlapping_classes(n_classes=4)
    A = np.column_stack([np.ones(len(X)), X])
    fitted = A @ np.linalg.lstsq(A, np.eye(4)[y], rcond=None)[0]
    one = LogitBoostClassifier("full", n_rounds=1, z_max=100.0, learning_rate=1.0, dtype="float64").fit(X, y)
    assert np.array_equal(one.predict(X), fitted.argmax(axis=1))


def test_two_classes_are_iteratively_reweighted_least_squares():
    """J = 2 without clipping is Newton's method for logistic regression (mboost: binomial equals glm)."""
    X, y, _ = problem(2)
    A = np.column_stack([np.ones(len(X)), X])
    b = np.zeros(A.shape[1])
    for _ in range(12):
        p = 1 / (1 + np.exp(-A @ b))
        b += np.linalg.solve(A.T @ (A * (p * (1 - p))[:, None]), A.T @ (y - p))
    ours = LogitBoostClassifier("full", n_rounds=30, learning_rate=1.0, z_max=1e6, dtype="float64").fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], b[1:], rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, b[:1], rtol=1e-7)


def test_componentwise_run_long_equals_full():
    """mboost's invariant: componentwise boosting run to convergence is the unrestricted fit."""
    X, y = overlapping_classes(n_classes=3, n=300, p=4)
    params = dict(learning_rate=1.0, dtype="float64")
    slow = LogitBoostClassifier("componentwise", n_rounds=3000, **params).fit(X, y)
    full = LogitBoostClassifier("full", n_rounds=200, **params).fit(X, y)
    assert np.abs(slow.predict_proba(X) - full.predict_proba(X)).max() < 1e-6


@pytest.mark.parametrize(
    "params",
    [
        {"n_rounds": 20},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"learner": "full", "n_rounds": 20}, marks=pytest.mark.slow),
        pytest.param({"learner": "ridge", "n_rounds": 20}, marks=pytest.mark.slow),
        pytest.param({"learner": "componentwise", "n_rounds": 40}, marks=pytest.mark.slow),
        pytest.param(
            {"learner": "random_features", "n_rounds": 20, "n_components": 32}, marks=pytest.mark.slow
        ),
        # sets as small as those of the checks are fitted in float64 without being told
        pytest.param({"dtype": "float64", "n_rounds": 20}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_scikit_learn_checks(params):
    """Every check of scikit-learn passes; none is expected to fail."""
    check_estimator(LogitBoostClassifier(**params))


class StrictBackend:
    """The cpu backend's sums behind array_api_strict arrays: the loop may use nothing but the standard."""

    name = "strict"
    xp = array_api_strict
    scores = gather_meanwhile = None

    rough = None

    def __init__(self):
        self.cpu = backends.get("cpu")
        self.wls = self

    def put(self, array):
        return self.xp.asarray(array)

    def get(self, array):
        return np.asarray(array)

    def in_room(self, work, what):
        return work()

    def _wrap(self, value):
        if isinstance(value, tuple):
            parts = [self._wrap(v) for v in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return self.xp.asarray(value) if isinstance(value, np.ndarray) else value

    def _host(self, value):
        if isinstance(value, tuple):
            return type(value)(*(self._host(v) for v in value))
        # writeable: what comes from sums may be overwritten
        return np.array(value) if isinstance(value, type(self.xp.asarray(0.0))) else value

    def __getattr__(self, name):
        def call(*args):
            return self._wrap(getattr(self.cpu.wls, name)(*(self._host(a) for a in args)))

        return call


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("learner", ["full", "componentwise", "subspace", "random_features"])
def test_loop_runs_under_the_array_standard(learner, n_classes):
    X, y, _ = problem(n_classes)
    params = dict(learner=learner, n_rounds=5, subspace_size=6, n_components=16, random_state=3, trim=0.05)
    expected = LogitBoostClassifier(**params).fit(X, y)
    backend = StrictBackend()
    center, variance = X.mean(axis=0), X.var(axis=0)
    design = Design(backend, 12, n_classes, np.arange(12), variance.sum(), expected.seed_, "float64")
    rows = Partition(backend, backend.put(X), y, np.ones(len(y)))
    rows.begin(Frame(center, n_classes, expected.seed_, "float64", 3.0, "gradient", 0.05), [])
    learner = make_learner(expected.get_params())
    history = boost(design, learner, Rules(5, 0.3, None), Team(backend, [rows]), None, History())
    np.testing.assert_allclose(history.train_loss, expected.train_loss_, rtol=1e-9)
