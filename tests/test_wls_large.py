"""Systems of many columns: triangles in panels, their factors in place, and the same fits as of squares."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pipeline import backends
from pipeline.backends import cholesky_panels, solve, triangle
from pipeline.backends.cpu import wls, wls_grams, wls_large
from pipeline.backends.protocol import Sums

SIZES = [1, 3, 255, 256, 257, 600]


def in_panels(square):
    """Return the upper triangle of a matrix (q, q) in panels, flat; left of the diagonal lies NaN."""
    q = len(square)
    flat = np.empty(triangle.size(q))
    for (a, b), panel in zip(triangle.edges(q), triangle.panels(flat, q), strict=True):
        panel[:] = square[a:b, a:]
        panel[np.tril_indices(b - a, -1)] = np.nan
    return flat


def weighted(n, q, dtype, seed=0, copies=0, constant=(), noise=0.0):
    """Return X, its centre, and weights and responses of two classes; the last columns are copies of the first."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q))
    X[:, q - copies :] = X[:, :copies] + noise * rng.normal(size=(n, copies))
    X[:, list(constant)] = 3.0
    W = rng.uniform(0.1, 1.0, (n, 2))
    R = W * rng.normal(size=(n, 2))
    X = X.astype(dtype)
    center = X.mean(axis=0)
    center[list(constant)] = 3.0
    return X, center, W.astype(dtype), R.astype(dtype)


# ---- panels ----


@pytest.mark.parametrize("q", [0, *SIZES])
def test_panels_hold_the_upper_triangle(q):
    A = np.random.default_rng(q).normal(size=(q, q))
    whole = A + A.T
    flat = in_panels(whole)
    assert triangle.order(flat.size) == q
    np.testing.assert_array_equal(triangle.square(triangle.panels(flat, q)), whole)
    starts = triangle.starts(q)
    rows = list(triangle.rows(flat, q))
    assert len(rows) == q
    for i in range(q):
        np.testing.assert_array_equal(flat[starts[i] + np.arange(i, q)], whole[i, i:])
        np.testing.assert_array_equal(rows[i], whole[i, i:])


def test_panels_are_little_more_than_half_of_a_square():
    assert triangle.size(3240) < 0.54 * 3240**2
    assert triangle.kept(triangle.SQUARE) == triangle.SQUARE**2
    assert triangle.kept(3240) == triangle.size(3240)


@pytest.mark.parametrize("q", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("half", [True, False])
def test_factorisation_in_panels(q, dtype, half):
    """Rows may lie apart, as float32 ones in the place of float64 ones; left of the diagonal nothing changes."""
    X = np.random.default_rng(q).normal(size=(2 * q + 1, q))
    S = (X.T @ X / q + np.eye(q)).astype(dtype)
    panels = []
    for (a, b), panel in zip(triangle.edges(q), triangle.panels(in_panels(S), q), strict=True):
        place = np.full((b - a, (1 + half) * (q - a)), np.nan, dtype)
        place[:, : q - a] = panel
        panels.append(place[:, : q - a])
    factor = wls_large.NormalPanels(panels, np.arange(q))
    assert wls_large.factorise(factor) == 0
    exact = dtype == "float64"
    wanted = np.linalg.cholesky(S.astype(np.float64)).T
    for (a, b), panel in zip(triangle.edges(q), panels, strict=True):
        np.testing.assert_allclose(np.triu(panel), wanted[a:b, a:], rtol=0, atol=1e-13 if exact else 1e-5)
        assert np.isnan(panel[np.tril_indices(b - a, -1)]).all()
    x = factor.divide(np.arange(q))
    assert x.dtype == dtype
    np.testing.assert_allclose(S @ x, np.arange(q), rtol=0, atol=q * (1e-12 if exact else 1e-4))


@pytest.mark.parametrize("bad", [0, 255, 256, 600, 899])
def test_the_first_minor_that_is_not_positive_definite_is_told(bad):
    S = np.eye(900)
    S[bad, bad] = -1.0
    panels = triangle.panels(in_panels(S), 900)
    assert cholesky_panels.factorise(panels, lambda work, count: [work(i) for i in range(count)]) == bad + 1


def test_panels_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="adjacent"):
        cholesky_panels.solve([np.ones((3, 6))[:, ::2]], np.ones(3))


# ---- Gram matrices ----


@pytest.mark.parametrize("q", SIZES)
@pytest.mark.parametrize("single", [True, False])
def test_a_gram_matrix_and_its_normal_matrix(q, single):
    """As the plain functions on squares say, also when the penalty is raised, and of some of the columns."""
    rng = np.random.default_rng(q)
    A = rng.normal(size=(q + 5, q)) * np.geomspace(1e-3, 1e3, q)
    square, xw, scale = A.T @ A, rng.normal(size=q), rng.uniform(0.5, 1, q)
    size = np.sqrt(np.outer(square.diagonal(), square.diagonal()))
    whole = wls_large.Gram.of(in_panels(square), q, single)
    far = 1e-9 if single else 1e-13
    for active in (np.arange(q), np.flatnonzero(rng.random(q) < 0.7)):
        gram, some = whole.among(active), np.ix_(active, active)
        assert gram.shape == (active.size, active.size)
        np.testing.assert_array_equal(gram.diagonal(), square.diagonal()[active])
        np.testing.assert_allclose(np.asarray(gram) / size[some], (square / size)[some], rtol=0, atol=far)
        for l2 in (0.5, 50.0):
            scales = scale[active] / np.sqrt(square.diagonal()[active] + l2)
            rest = gram.diagonal(), xw[active], 3.0, scales, l2
            wanted = solve.normal_matrix(np.asfortranarray(square[some]), *rest)
            found = gram.normal(*rest)
            assert found.panels[0].dtype == ("float32" if single else "float64")
            upper = triangle.square(found.panels)
            np.testing.assert_allclose(
                np.triu(upper[some]), np.triu(wanted), rtol=0, atol=2e-7 if single else 1e-12
            )
            others = np.delete(np.arange(q), active)
            np.testing.assert_array_equal(upper[others], np.eye(q)[others])
            if single:
                whole_wanted = np.triu(wanted) + np.triu(wanted, 1).T
                x = rng.normal(size=active.size)
                found_ = solve.Equations(gram, *rest).times(x)
                np.testing.assert_allclose(found_, whole_wanted @ x, rtol=0, atol=1e-9 * q)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 1), (300, 700), (500, 500)])
def test_sums_that_are_not_finite_are_an_error(value, place):
    square = np.eye(800)
    square[place] = value
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        wls_large.Gram.of(in_panels(square), 800, single=True)


@pytest.mark.parametrize(("n", "q", "J"), [(3000, 800, 1), (1500, 1300, 2), (300, 7, 3)])
def test_sums_in_panels_are_those_in_squares(n, q, J):
    rng = np.random.default_rng(0)
    X, W = rng.random((n, q), dtype=np.float32), rng.random((n, J), dtype=np.float32)
    square = wls_grams.weighted_sums(X, X.mean(axis=0), W).gram
    panels = wls_grams.weighted_sums(X, X.mean(axis=0), W, panels=True).gram
    assert panels.shape == (J, triangle.size(q))
    for one, flat in zip(square, panels, strict=True):
        np.testing.assert_array_equal(np.triu(triangle.square(triangle.panels(flat, q))), np.triu(one))


def test_turns_are_taken_in_order():
    """Whoever comes early leaves his call to the one before, and does not wait for him."""
    turns, taken = wls_grams._Turns(), []
    turns.take(2, lambda: taken.append(2))
    turns.take(1, lambda: taken.append(1))
    assert taken == []
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert go_on.wait(60)
        taken.append(0)

    thread = threading.Thread(target=turns.take, args=(0, slow))
    thread.start()
    assert begun.wait(60)
    turns.take(3, lambda: taken.append(3))
    assert taken == []
    go_on.set()
    thread.join(60)
    assert taken == [0, 1, 2, 3]


# ---- fits ----


def fitted(problem, l2, panels, monkeypatch):
    """Return coefficients and intercepts, ranks and ladders of fits by panels or by squares.

    A class at a time, so that the sums of both have the same bits.
    """
    X, center, W, R = problem
    monkeypatch.setattr(wls, "SMALL_SYSTEM", 0 if panels else X.shape[1])
    fits = [wls.fit(X, center, W[:, j : j + 1], R[:, j : j + 1], l2) for j in range(W.shape[1])]
    found = [np.concatenate([one[k] for one in fits], axis=-1) for k in range(4)]
    return np.vstack([found[0], found[1]]), np.vstack([found[2], found[3]])


CASES = {  # changes, penalty, ladder, and whether the fit to float32 rows is near that to float64 ones
    "plain": ({}, 1.0, 0, True),
    "no penalty": ({}, 0.0, 0, True),
    "columns that do not vary": ({"constant": (0, 5, 299)}, 1.0, 0, True),
    "columns that occur twice": ({"copies": 20}, 0.0, 4, True),
    "columns that nearly do": ({"copies": 20, "noise": 3e-2}, 0.0, 0, True),
    "more nearly": ({"copies": 20, "noise": 3e-3}, 1e-3, 1, False),
}


@pytest.mark.parametrize("case", CASES)
def test_panels_give_the_fits_of_squares(monkeypatch, case):
    """In float64 the very fits; in float32 fits that are as exact."""
    changes, l2, ladder, near = CASES[case]
    found = {}
    for dtype in ("float64", "float32"):
        problem = weighted(900, 300, dtype, **changes)
        for panels in (True, False):
            found[dtype, panels] = fitted(problem, l2, panels, monkeypatch)
        np.testing.assert_array_equal(found[dtype, True][1], found[dtype, False][1])
    assert (found["float32", True][1][1] == ladder).all()
    exact = found["float64", False][0]
    size = np.abs(exact).max()
    np.testing.assert_allclose(found["float64", True][0], exact, rtol=0, atol=1e-10 * size)
    if near:
        errors = [np.abs(found["float32", panels][0] - exact).max() for panels in (True, False)]
        assert errors[0] <= 1.2 * errors[1] + 3e-8 * size
    else:  # of another penalty
        np.testing.assert_allclose(
            found["float32", True][0], found["float32", False][0], rtol=0, atol=1e-3 * size
        )


def test_a_penalty_that_is_raised_finds_the_sums_as_they_were():
    """Of float32 rows the sums have given way to cosines, and the first factor lies where the second is made."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    X = np.column_stack([X, X[:, 0] + 1e-5 * rng.normal(size=50)])
    square, xw, eps = X.T @ X, X.sum(axis=0), 2.0**-23
    xr = rng.normal(size=5)
    for l2 in (1.0, 1e-5, 1e-7, 0.0):
        wanted = solve.factorise(np.asfortranarray(square), xw, 50.0, l2, eps)
        gram = wls_large.Gram.of(in_panels(square), 5, single=True)
        found = solve.factorise(gram, xw, 50.0, l2, eps, wls_large.Gram.normal, wls_large.factorise)
        assert (found.ladder, found.rank, found.l2) == (wanted.ladder, wanted.rank, wanted.l2)
        np.testing.assert_allclose(found.margin, wanted.margin, rtol=0.1)
        for a, b in zip(found.solve(xr, 2.0), wanted.solve(xr, 2.0), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * np.abs(b).max())


def test_a_factor_that_does_not_improve_is_made_anew(monkeypatch):
    X = np.random.default_rng(4).normal(size=(300, 40))
    gram = wls_large.Gram.of(in_panels(X.T @ X), 40, single=True)
    factor = solve.factorise(
        gram, X.sum(axis=0), 300.0, 1.0, 2.0**-23, wls_large.Gram.normal, wls_large.factorise
    )
    assert factor.upper.panels[0].dtype == np.float32
    xr = np.random.default_rng(5).normal(size=40)
    wanted = factor.solve(xr, 1.0)[0]
    monkeypatch.setattr(solve, "STEPS", 1)
    np.testing.assert_allclose(factor.solve(xr, 1.0)[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_class_without_weight(monkeypatch, dtype):
    monkeypatch.setattr(wls, "SMALL_SYSTEM", 0)
    X, center, W, R = weighted(200, 30, dtype)
    W[:, 1] = R[:, 1] = 0
    found = wls.fit(X, center, W, R, 1.0)
    assert not found.coef[:, 1].any()
    assert found.intercept[1] == 0.0
    assert found.rank.tolist() == [30, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fits_do_not_depend_on_threads(dtype):
    problem = weighted(1200, 900, dtype)
    cpu, found = backends.get("cpu"), []
    for threads in (1, 2, 3):
        with cpu.threads(threads):
            found.append(wls.fit(*problem, 0.5))
    for other in found[1:]:
        np.testing.assert_array_equal(other.coef, found[0].coef)
        np.testing.assert_array_equal(other.intercept, found[0].intercept)


def test_sums_of_parts_are_added_in_panels():
    """As partitions do, and one that has no rows."""
    from pipeline.backends import fits

    X, center, W, R = weighted(2048, 800, "float32")
    whole = wls.sums(X, center, W, R, slice(0, 1), True)
    total = None
    for part in (slice(0, 1024), slice(1024, 2048), None):
        more = None if part is None else wls.sums(X[part], center, W[part], R[part], slice(0, 1), True)
        total = fits.add(total, more)
    assert isinstance(total, Sums)
    assert total.gram.shape == whole.gram.shape == (1, triangle.size(800))
    mine = [triangle.square(triangle.panels(one.gram[0], 800)) for one in (total, whole)]
    np.testing.assert_allclose(mine[0], mine[1], rtol=0, atol=1e-9 * mine[1].max())
