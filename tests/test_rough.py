"""Fits that rough Gram matrices begin: products in bfloat16 against plain ones, and fits against exact systems."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import LogitBoostClassifier, backends
from pipeline.backends.cpu import bfloat_grams, bfloat_tiles, panels, wls, wls_rough
from pipeline.backends.protocol import Sums
from tests import rough_products
from tests.rough_products import rounded

has_bfloat16 = pytest.mark.skipif(
    not bfloat_tiles.available(), reason="this processor has no AVX512-BF16: Gram matrices are float32 here"
)


@pytest.fixture(autouse=True)
def _small_fits_too(monkeypatch):
    """Begin fits with rough Gram matrices where they would not save time."""
    monkeypatch.setattr(wls_rough, "WORTH", 0)
    monkeypatch.setattr(wls_rough, "COLUMNS", 0)
    monkeypatch.setattr(wls_rough, "CLASSES", 1)


@pytest.fixture
def rough_anywhere(monkeypatch):
    """Begin fits with rough Gram matrices of NumPy's where the processor has no products of numbers in bfloat16."""
    rough_products.anywhere(monkeypatch)


def problem(n, q, J, seed=0, mean=0.0, own=1.0):
    """Return columns that hang together, as those of HoG features do, weights and weighted responses.

    `own` is the standard deviation of what a column does not share with others: with .3 fits are delicate.
    """
    rng = np.random.default_rng(seed)
    X = own * rng.normal(size=(n, q)) + 1.5 * rng.normal(size=(n, 3)) @ rng.normal(size=(3, q)) / np.sqrt(3)
    p = rng.random((n, J)) ** 3
    W = p * (1 - p) + 1e-6
    R = np.clip((rng.random((n, J)) < p) - p, -3 * W, 3 * W)
    return (X * 0.1 + mean).astype(np.float32), W.astype(np.float32), R.astype(np.float32)


def gathered(X, center=0.0):
    q = X.shape[1]
    return wls.gather(X, np.arange(q), np.full(q, center, np.float32))


def exact(X, W, R, l2):
    """Return coefficients (q, J), intercepts and the roots of the diagonals, from float64 normal equations."""
    X, W, R = (one.astype(np.float64) for one in (X, W, R))
    coef, intercept, root = [], [], []
    for w, r in zip(W.T, R.T, strict=True):
        mean = w @ X / w.sum()
        A = (X * w[:, None]).T @ X - w.sum() * np.outer(mean, mean) + l2 * np.eye(X.shape[1])
        coef.append(np.linalg.solve(A, X.T @ r - mean * r.sum()))
        intercept.append(r.sum() / w.sum() - mean @ coef[-1])
        root.append(np.sqrt(np.diag(A)))
    return np.array(coef).T, np.array(intercept), np.array(root).T


def error(found, truth):
    """Return the largest error of scaled coefficients, beside the largest of a class."""
    coef, _, root = truth
    return (np.abs((found.coef - coef) * root).max(axis=0) / np.abs(coef * root).max(axis=0)).max()


# ---- products ----


@has_bfloat16
@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 1300), q=st.integers(1, 70), J=st.integers(1, 5), seed=st.integers(0, 10**6),
       mean=st.sampled_from([0.0, 0.3]))  # fmt: skip
def test_products_are_those_of_rounded_numbers(n, q, J, seed, mean):
    """And those by which tests do without the instruction."""
    X, W, _ = problem(n, q, J, seed, mean)
    W[np.random.default_rng(seed).random(n) < 0.2] = 0.0
    center = X.mean(axis=0) if mean else np.zeros(q, np.float32)
    given_ = gathered(X), W, center, X.astype(np.float64).T @ W, W.sum(axis=0, dtype=np.float64)
    found, expected = bfloat_grams.grams(*given_), rough_products.grams(*given_)
    assert found.dtype == expected.dtype
    for j in range(J):
        size = np.abs(X * W[:, j : j + 1]).T @ np.abs(X)
        assert (np.abs(np.triu(found[j]) - np.triu(expected[j])) <= 1e-5 * size).all()


@has_bfloat16
@pytest.mark.parametrize(("q", "J", "mean"), [(70, 2, 0.0), (70, 17, 0.3), (33, 1, 0.0), (280, 3, 0.0)])
def test_rows_in_sets_have_the_sums_of_all(q, J, mean, monkeypatch):
    """Of 70 columns a set is two blocks of rows; of one class, or more columns, all rows are one set."""
    X, W, _ = problem(1300, q, J, mean=mean)
    center = X.mean(axis=0) if mean else np.zeros(q, np.float32)
    sums = X.astype(np.float64).T @ W, W.sum(axis=0, dtype=np.float64)
    whole = bfloat_grams.grams(gathered(X), W, center, *sums)
    monkeypatch.setattr(bfloat_grams, "NUMBERS", 1 << 16)
    found = []
    for threads in (1, 2):
        with backends.get("cpu").threads(threads):
            found.append(bfloat_grams.grams(gathered(X), W, center, *sums))
    np.testing.assert_array_equal(*found)
    if q == 70 and J > 1:
        assert bfloat_grams._Rows(gathered(X), W, center).size == 2
    np.testing.assert_allclose(np.triu(found[0]), np.triu(whole), atol=1e-5 * np.abs(whole).max())


@pytest.mark.usefixtures("rough_anywhere")
def test_numbers_are_rounded_about_a_centre():
    X, W, _ = problem(3000, 40, 3, mean=5.0)
    center = X[::7].mean(axis=0)
    wide = [one.astype(np.float64) for one in (X, W)]
    xw, sw = wide[0].T @ wide[1], wide[1].sum(axis=0)
    found = bfloat_grams.grams(gathered(X), W, center, xw, sw)
    plain = bfloat_grams.grams(gathered(X), W, np.zeros(40), np.zeros((40, 0)), np.zeros(0))
    for j in range(3):
        expected = (wide[0] * wide[1][:, j : j + 1]).T @ wide[0]
        variance = np.diag(expected) - xw[:, j] ** 2 / sw[j]
        errors = [np.abs(np.triu(one[j] - expected)).max() / variance.max() for one in (found, plain)]
        assert errors[0] < 1e-3 < errors[1]


@pytest.mark.usefixtures("rough_anywhere")
def test_products_do_not_depend_on_threads():
    X, W, R = problem(5000, 130, 3)
    found = []
    for threads in (1, 2, 3):
        with backends.get("cpu").threads(threads):
            X_ = gathered(X)
            found.append(
                [
                    bfloat_grams.grams(X_, W, np.zeros(130), np.zeros((130, 0)), np.zeros(0)),
                    *panels.products(X_, R),
                    *wls.fit(X_, np.zeros(130), W, R, 1.0),
                ]
            )
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(("n", "q", "J"), [(700, 5, 3), (513, 33, 23), (256, 16, 3), (3, 40, 3)])
def test_sums_of_rows_and_of_residuals(n, q, J, precision):
    X, W, R = problem(n, q, J)
    wide = [one.astype(np.float64) for one in (X, W, R)]
    rng = np.random.default_rng(1)
    coef, intercept = rng.normal(size=(q, J)).astype(precision), rng.normal(size=J).astype(precision)
    e = wide[2] - wide[1] * (wide[0] @ coef.astype(np.float64) + intercept)
    tolerance = 1e-12 if precision == "float64" else 3e-6
    found = panels.residual_sums(gathered(X), W, R, coef, intercept)
    size = np.abs(wide[0]).T @ np.abs(e)
    assert (np.abs(found[0] - wide[0].T @ e) <= tolerance * size.max()).all()
    assert (np.abs(found[1] - e.sum(axis=0)) <= tolerance * np.abs(e).sum(axis=0).max()).all()
    both, sums = panels.products(gathered(X), R.astype(precision))
    assert (np.abs(both - wide[0].T @ wide[2]) <= tolerance * (np.abs(wide[0]).T @ np.abs(wide[2]))).all()
    np.testing.assert_allclose(
        sums, wide[2].sum(axis=0), rtol=tolerance, atol=tolerance * np.abs(wide[2]).sum()
    )


# ---- systems, on any processor: the rough matrices are made here ----


def rough_sums(X, W, R):
    """Return the sums that products in bfloat16 give."""
    wide = [one.astype(np.float64) for one in (X, W, R)]
    numbers = rounded(X).astype(np.float64)
    gram = [rounded(X * w[:, None]).astype(np.float64).T @ numbers for w in W.T]
    return Sums(wide[0].T @ wide[2], wide[0].T @ wide[1], wide[2].sum(0), wide[1].sum(0), np.array(gram))


def refined(X, W, R, l2, sums=None):
    system = wls_rough.Rough(sums or rough_sums(X, W, R), l2)
    steps = 0
    while system.open.any():
        coef, intercept = (one.astype(np.float64) for one in (system.coef, system.intercept))
        e = R - W * (X.astype(np.float64) @ coef + intercept)
        system.improve(X.astype(np.float64).T @ e, e.sum(axis=0))
        steps += 1
    return system, steps


@pytest.mark.parametrize("q", [64, 200, 300])  # of the last, each class has a factor of LAPACK's
@pytest.mark.parametrize("l2", [1.0, 0.1])
def test_fits_become_those_of_exact_sums(q, l2):
    X, W, R = problem(4000, q, 4)
    system, steps = refined(X, W, R, l2)
    truth = exact(X, W, R, l2)
    assert not system.lost.any()
    assert 1 <= steps <= 4
    assert error(system.fit(), truth) < 2e-6
    np.testing.assert_allclose(system.fit().intercept, truth[1], atol=1e-5 * np.abs(truth[1]).max())


def test_each_step_leaves_a_small_share_of_the_error(monkeypatch):
    monkeypatch.setattr(wls_rough, "DOUBLE", wls_rough.DOUBLE._replace(error=1e-11))
    monkeypatch.setattr(wls_rough, "DELICATE", 9.0)  # in float64, to the end
    X, W, R = problem(4000, 100, 3)
    assert error(refined(X, W, R, 1.0)[0].fit(), exact(X, W, R, 1.0)) < 1e-9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("q", "l2"), [(64, 0.01), (128, 0.1), (128, 0.001), (300, 0.01)])
def test_delicate_fits_become_those_of_float64(q, l2, seed):
    X, W, R = problem(3000, q, 3, seed, own=0.3)
    sums = rough_sums(X, W, R)
    begin = begun(sums, l2)
    assert begin.coef.dtype == np.float64
    assert error(begin.fit(), exact(X, W, R, l2)) > 1e-4
    system, steps = refined(X, W, R, l2, sums)
    assert not system.lost.any()
    assert 3 <= steps <= 10
    assert error(system.fit(), exact(X, W, R, l2)) < 1e-8


def begun(sums, l2):
    return wls_rough.Rough(sums._replace(gram=sums.gram.copy()), l2)


def test_where_one_fit_is_delicate_all_are_improved_until_it_is_exact():
    X, W, R = problem(2000, 64, 3, own=2.0)
    X = np.concatenate([X, problem(2000, 64, 3, seed=1, own=0.3)[0]])  # rows that count for the second class
    W = np.concatenate([W * np.float32([1, 1e-4, 1]), W * np.float32([1e-4, 1, 1e-4])])
    R = np.clip(np.concatenate([R, R]), -3 * W, 3 * W)
    alone = [begun(rough_sums(X, W[:, [j]], R[:, [j]]), 0.01).coef.dtype for j in range(3)]
    assert alone == [np.float32, np.float64, np.float32]
    system, _ = refined(X, W, R, 0.01)
    assert not system.lost.any()
    assert error(system.fit(), exact(X, W, R, 0.01)) < 1e-8


@pytest.mark.parametrize(("share", "lost", "steps"), [(0.1, False, 8), (0.25, True, 2), (0.35, True, 1)])
def test_delicate_fits_take_as_many_steps_as_pay(share, lost, steps):
    """A step leaves the share 1 - 1 / s of an error where the Gram matrix is s times what it should be."""
    X, W, R = problem(3000, 100, 1, own=0.3)
    wide = X.astype(np.float64)
    sums = rough_sums(X, W, R)._replace(gram=((wide * W.astype(np.float64)).T @ wide)[None])
    weights = {name: getattr(sums, name) / (1.0 - share) for name in ("gram", "xw", "sw")}
    system, taken = refined(X, W, R, 1e-6, sums._replace(**weights))
    assert system.lost.tolist() == [lost]
    assert taken == steps
    assert lost or error(system.fit(), exact(X, W, R, 1e-6)) < 1e-8


def nearly_equal(seed, flip, amp):
    """Return two columns of two values that differ in a share of rows, and responses that hang on the difference.

    With equal weights a column's numbers are all rounded alike: the Gram matrix is wrong by 4e-3 in a direction of
    which the solution holds little.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4000, 64))
    sign = np.where(rng.random(4000) < 0.5, 1.0, -1.0)
    other = np.where(rng.random(4000) < flip, -sign, sign)
    X[:, 0], X[:, 1] = sign * (1 + rng.random()), other * (1 + rng.random())
    X = (X - X.mean(axis=0)).astype(np.float32)
    z = 2.0 * X[:, 5] + amp * (sign - other) + 0.01 * rng.normal(size=4000)
    W = np.full((4000, 1), 0.09, np.float32)
    return X, W, (W * z[:, None]).astype(np.float32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("flip", "amp"), [(0.002, 0.03), (0.005, 0.03), (0.035, 0.01), (0.1, 0.03)])
def test_a_small_first_correction_does_not_say_that_a_fit_is_exact(seed, flip, amp):
    X, W, R = nearly_equal(seed, flip, amp)
    sums = rough_sums(X, W, R)
    single = begun(sums, 1e-3).coef.dtype == np.float32
    system, _ = refined(X, W, R, 1e-3, sums)
    assert system.lost.any() or error(system.fit(), exact(X, W, R, 1e-3)) < (2e-6 if single else 1e-8)


def test_fits_are_float64_whatever_they_were_improved_in():
    """Of singular systems large coefficients cancel: the exact fits that are put in may not be rounded."""
    X, W, R = problem(2000, 64, 2)
    X[:, 1:9] = X[:, :1] + 1e-3 * X[:, 1:9]
    for l2, lost in ((1.0, None), (1e-9, [True, True])):
        system, _ = refined(X, W, R, l2)
        assert lost is None or system.lost.tolist() == lost
        assert system.fit().coef.dtype == system.fit().intercept.dtype == np.float64


def test_a_matrix_that_is_too_rough_is_found_out():
    """Of a Gram matrix that is another class's, and of one with a wrong sign, nothing remains."""
    X, W, R = problem(2000, 80, 3)
    sums = rough_sums(X, W, R)
    sums.gram[1] *= 3.0
    sums.gram[2] *= -1.0
    system, _ = refined(X, W, R, 1.0, sums)
    assert system.lost.tolist() == [False, True, True]
    assert error(wls_fit_of(system, 0), [one[..., :1] for one in exact(X, W[:, :1], R[:, :1], 1.0)]) < 2e-6


def wls_fit_of(system, i):
    found = system.fit()
    return found._replace(coef=found.coef[:, i : i + 1], intercept=found.intercept[i : i + 1])


@pytest.mark.parametrize("q", [80, 260])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_left_to_exact_sums(value, q):
    X, W, R = problem(2000, q, 2)
    sums = rough_sums(X, W, R)
    sums.gram[0, 3, 5] = value
    sums.xr[7, 1] = value
    system, _ = refined(X, W, R, 1.0, sums)
    assert system.lost.all()


def test_no_responses_and_no_weights():
    X, W, R = problem(2000, 80, 3)
    R[:, 0], R[:, 1], W[:, 1] = 0.0, 0.0, 0.0
    system, _ = refined(X, W, R, 1.0)
    assert system.lost.tolist() == [False, True, False]
    assert not system.coef[:, 0].any()


# ---- whole fits ----


def plain(monkeypatch):
    monkeypatch.setattr(bfloat_tiles, "available", lambda: False)


def both_ways(monkeypatch, *arguments):
    found = wls.fit(*arguments)
    with monkeypatch.context() as patch:
        plain(patch)
        assert not wls.rough.begins(10_000, 128, 10, 1.0, "float32")
        return found, wls.fit(*arguments)


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize(("n", "q", "J"), [(2100, 64, 1), (3001, 128, 10), (1000, 257, 3)])
def test_fits_are_as_exact_as_those_of_float32_products(monkeypatch, n, q, J):
    X, W, R = problem(n, q, J)
    assert wls.rough.begins(n, q, J, 1.0, "float32")
    found, other = both_ways(monkeypatch, gathered(X), np.zeros(q), W, R, 1.0)
    truth = exact(X, W, R, 1.0)
    assert error(found, truth) <= max(2e-6, 2 * error(other, truth))
    assert (found.rank == q).all()
    assert not found.ladder.any()


@pytest.mark.usefixtures("rough_anywhere")
def test_random_features_are_rounded_about_their_means(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((6000, 200), dtype=np.float32) * np.float32(0.3)
    _, W, R = problem(6000, 1, 4)
    Z = wls.random_features(X, X.mean(axis=0), 0.02, 300, 5, 0)
    assert not Z.centred
    steps = []
    improve = wls_rough.Rough.improve
    monkeypatch.setattr(
        wls_rough.Rough, "improve", lambda self, *sums: (steps.append(1), improve(self, *sums))[1]
    )
    found = wls.fit(Z, np.zeros(300), W, R, 1.0)
    assert 1 <= len(steps) <= 4
    assert error(found, exact(np.asarray(Z), W, R, 1.0)) < 3e-6


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("l2", [0.1, 0.01, 1e-4])
def test_delicate_fits_are_those_of_float64(monkeypatch, l2, seed):
    X, W, R = problem(3001, 128, 5, seed, own=0.3)
    found, other = both_ways(monkeypatch, gathered(X), np.zeros(128), W, R, l2)
    truth = exact(X, W, R, l2)
    assert error(other, truth) < 1e-8  # exact sums are refined: it is a delicate fit
    assert error(found, truth) < 1e-8


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("width", "l2"), [(0.3, 1.0), (0.1, 0.01)])
def test_fits_to_random_features_are_those_of_float64(monkeypatch, width, l2, seed):
    X = np.random.default_rng(seed).random((3000, 200), dtype=np.float32)
    _, W, R = problem(3000, 1, 4, seed)
    Z = wls.random_features(X, X.mean(axis=0), width / float(X.var(axis=0).sum()), 400, 5, seed)
    with monkeypatch.context() as patch:
        patch.setattr(wls, "solve", None)  # no fit is left to exact sums
        found = wls.fit(Z, np.zeros(400), W, R, l2)
    assert error(found, exact(np.asarray(Z), W, R, l2)) < 1e-8


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize(
    "damage",
    [
        lambda X, W: X.__setitem__((slice(None), 3), X[:, 9]),  # two columns alike
        lambda X, W: X.__setitem__((slice(None), 3), 0.25),  # one that does not vary
        lambda X, W: W.__setitem__((slice(None), 1), 0.0),  # a class without weight
        lambda X, W: W.__setitem__((slice(40, None), 1), 0.0),  # fewer rows than columns
    ],
)
@pytest.mark.parametrize("l2", [0.0, 1e-6, 1.0])
def test_hard_cases_are_those_of_exact_sums(monkeypatch, damage, l2):
    X, W, R = problem(3000, 70, 3)
    damage(X, W)
    R[W == 0.0] = 0.0
    found, other = both_ways(monkeypatch, gathered(X), np.zeros(70), W, R, l2)
    np.testing.assert_array_equal(found.rank, other.rank)
    np.testing.assert_array_equal(found.ladder, other.ladder)
    values = [X.astype(np.float64) @ one.coef + one.intercept for one in (found, other)]
    root = np.sqrt(W.astype(np.float64))
    distance = np.linalg.norm(root * (values[0] - values[1]), axis=0)
    assert (distance <= 1e-5 * (1e-9 + np.linalg.norm(root * values[1], axis=0))).all()


@pytest.mark.usefixtures("rough_anywhere")
def test_fits_that_are_lost_are_made_together(monkeypatch):
    """Of neighbours one product serves all: one by one they took a third longer at 512 columns."""
    X, W, R = problem(3000, 70, 6)
    X[:, 40] = X[:, 7]  # two columns alike
    asked = []
    solve = wls.solve
    monkeypatch.setattr(
        wls, "solve", lambda sums, *rest: (asked.append(sums.gram.shape[0]), solve(sums, *rest))[1]
    )
    monkeypatch.setattr(wls_rough, "DOUBLE", wls_rough.DOUBLE._replace(slowest=-1.0))
    found = wls.fit(gathered(X), np.zeros(70), W, R, 1e-4)
    assert asked == [6]
    assert error(found, exact(X, W, R, 1e-4)) < 1e-5


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize("q", [70, 260])
def test_exact_sums_of_lost_fits_have_the_memory_of_the_rough_ones(monkeypatch, q):
    X, W, R = problem(2000, q, 3)
    rough, exact_sums, held, there = wls_rough.sums, wls.sums, [], []

    def nobodys(*given):
        found = rough(*given)
        found.gram[1] *= 9.0
        held.append(weakref.ref(found.gram))
        return found

    monkeypatch.setattr(wls_rough, "sums", nobodys)
    monkeypatch.setattr(wls, "sums", lambda *given: (there.append(held[0]()), exact_sums(*given))[1])
    wls.fit(gathered(X), np.zeros(q), W, R, 1.0)
    assert there == [None]


@pytest.mark.usefixtures("rough_anywhere")
def test_lost_fits_between_others_are_made_in_runs(monkeypatch):
    X, W, R = problem(3000, 70, 5)
    asked, sums = [], wls_rough.sums

    def rough(*given):  # the Gram matrices of two classes, and of another, are not theirs
        found = sums(*given)
        found.gram[[0, 2, 3]] *= 9.0
        return found

    solve = wls.solve
    monkeypatch.setattr(wls_rough, "sums", rough)
    monkeypatch.setattr(
        wls, "solve", lambda sums, *rest: (asked.append(sums.gram.shape[0]), solve(sums, *rest))[1]
    )
    found = wls.fit(gathered(X), np.zeros(70), W, R, 1.0)
    assert asked == [1, 2]
    assert error(found, exact(X, W, R, 1.0)) < 2e-6


def test_fits_in_float32_take_six_steps_at_most(monkeypatch):
    monkeypatch.setattr(wls_rough, "DELICATE", 0.0)
    X, W, R = problem(3000, 100, 1)
    wide = X.astype(np.float64)
    sums = rough_sums(X, W, R)._replace(gram=((wide * W.astype(np.float64)).T @ wide)[None])
    for share, lost, steps in ((0.1, False, 5), (0.17, True, 6)):
        weights = {name: getattr(sums, name) / (1.0 - share) for name in ("gram", "xw", "sw")}
        system, taken = refined(X, W, R, 1e-6, sums._replace(**weights))
        assert (system.lost.tolist(), taken) == ([lost], steps)


@pytest.mark.usefixtures("rough_anywhere")
def test_weights_that_are_mostly_zero_have_exact_sums(monkeypatch):
    """Trimmed: rows that do not count are left out, .4 of the time of rough sums of all at 512 columns."""
    X, W, R = problem(3000, 70, 3)
    W[np.random.default_rng(0).random(W.shape) < 0.8] = 0.0
    R[W == 0.0] = 0.0
    monkeypatch.setattr(bfloat_grams, "grams", None)
    found = wls.fit(gathered(X), np.zeros(70), W, R, 1.0)
    assert error(found, exact(X, W, R, 1.0)) < 2e-6


@pytest.mark.usefixtures("rough_anywhere")
@pytest.mark.parametrize("learner", ["subspace", "random_features"])
@pytest.mark.parametrize("J", [2, 3])
def test_boosting_is_that_of_exact_sums(monkeypatch, learner, J):
    rng = np.random.default_rng(0)
    X = rng.random((2500, 300), dtype=np.float32) * np.float32(0.3)
    y = np.argmax(X[:, :J] + 0.1 * rng.random((2500, J)), axis=1)
    settings_ = {
        "learner": learner,
        "n_rounds": 12,
        "subspace_size": 96,
        "n_components": 270,
        "random_state": 0,
    }
    calls = []
    begin = wls_rough.Rough.__init__
    monkeypatch.setattr(
        wls_rough.Rough, "__init__", lambda self, *given: (calls.append(1), begin(self, *given))[1]
    )
    found = LogitBoostClassifier(**settings_).fit(X, y)
    assert len(calls) == 12
    with monkeypatch.context() as patch:
        plain(patch)
        other = LogitBoostClassifier(**settings_).fit(X, y)
    assert len(calls) == 12
    np.testing.assert_allclose(found.train_loss_, other.train_loss_, rtol=1e-5)
    np.testing.assert_allclose(found.decision_function(X), other.decision_function(X), atol=2e-4)


def test_who_begins_with_rough_sums(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(bfloat_tiles, "available", lambda: True)
    begins = wls.rough.begins
    assert begins(10_000, 128, 10, 1.0, "float32")
    assert not begins(10_000, 128, 10, 0.0, "float32")  # without a penalty rank is decided by last digits
    assert not begins(10_000, 128, 10, 1.0, "float64")
    assert not begins(100_000, 64, 100, 1.0, "float32")  # products are little of the work
    assert not begins(2_000, 128, 10, 1.0, "float32")
    assert not begins(100_000, 128, 1, 1.0, "float32")  # two classes: one fit, of plain products
    assert not begins(10_000, 3240, 10, 1.0, "float32")
    assert backends.get("reference").wls.rough is None


@pytest.mark.parametrize("name", ["CPU_NAME", "CPU_FEATURES"])
def test_code_for_another_processor_has_no_such_products(monkeypatch, name):
    """NUMBA_CPU_NAME=generic compiles for processors without the instruction."""
    monkeypatch.setattr(bfloat_tiles.numba.config, name, "generic" if name == "CPU_NAME" else "+avx2")
    bfloat_tiles.available.cache_clear()
    assert not bfloat_tiles.available()
    monkeypatch.undo()
    bfloat_tiles.available.cache_clear()
