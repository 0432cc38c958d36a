"""The weighted-least-squares sums and solutions against plain formulas; the generator's test vectors."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import backends
from pipeline.backends import philox, solve
from pipeline.boosting.loss import trim, working_response

BACKENDS = ("cpu", "reference")
EPS32, EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)


def random_problem(n, q, J, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) + rng.normal(size=q)
    W = rng.random((n, J)) * (rng.random((n, J)) > 0.2)
    R = W * rng.normal(size=(n, J))
    return X.astype(dtype), W.astype(dtype), R.astype(dtype)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(20, 400), q=st.integers(1, 12), J=st.integers(1, 4), seed=st.integers(0, 10**6),
       l2=st.sampled_from([0.0, 0.3, 50.0]))  # fmt: skip
def test_fit_is_statsmodels_wls(n, q, J, seed, l2):
    X, W, R = random_problem(n, q, J, seed)
    center = X.mean(axis=0)
    found = backends.get("cpu").wls.fit(X, center, W, R, l2)
    for j in range(J):
        rows = W[:, j] > 0
        A = np.column_stack([np.ones(rows.sum()), X[rows] - center])
        z, w = R[rows, j] / W[rows, j], W[rows, j]
        A = np.vstack([A, np.column_stack([np.zeros(q), np.sqrt(l2) * np.eye(q)])])
        expected = sm.WLS(np.r_[z, np.zeros(q)], A, weights=np.r_[w, np.ones(q)]).fit().params
        np.testing.assert_allclose(
            np.r_[found.intercept[j], found.coef[:, j]], expected, atol=1e-8, rtol=1e-8
        )


def test_blocks_of_rows_add_up(monkeypatch):
    """Every sum is the same whatever the size of the row buffer."""
    X, W, R = random_problem(500, 7, 3, 0)
    cpu = backends.get("cpu").wls
    center = X.mean(axis=0)
    whole = (cpu.fit(X, center, W, R, 0.1), cpu.componentwise_sums(X, center, W, R), cpu.column_moments(X))
    monkeypatch.setattr(cpu, "SMALL_SYSTEM", 0)
    monkeypatch.setattr(cpu.blocks, "BUFFER", 7 * 33)
    monkeypatch.setattr(cpu.blocks, "CACHED", 7 * 21)
    parts = (cpu.fit(X, center, W, R, 0.1), cpu.componentwise_sums(X, center, W, R), cpu.column_moments(X))
    for a, b in zip(whole, parts, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_buffers_on_threads(threads):
    X, W, R = random_problem(3000, 70, 2, 1)
    center = X.mean(axis=0)
    cpu, reference = (backends.get(b) for b in BACKENDS)
    with cpu.threads(threads):
        sums = cpu.wls.componentwise_sums(X, center, W, R)
        columns = np.array([3, 5, 69])
        gathered = cpu.wls.gather(X, columns, center)
    for a, b in zip(sums, reference.wls.componentwise_sums(X, center, W, R), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert np.array_equal(gathered, X[:, columns] - center[columns])


def test_sharing_within_a_share_does_not_wait_for_itself():
    """A class solved on a thread shares rows in its turn: float64 refinement of a large problem once hung."""
    X, W, R = random_problem(20_000, 20, 3, 2)
    cpu = backends.get("cpu")
    with cpu.threads(2):
        two = cpu.wls.fit(X, X.mean(axis=0), W, R, 0.0)
    with cpu.threads(1):
        one = cpu.wls.fit(X, X.mean(axis=0), W, R, 0.0)
    assert np.array_equal(one.coef, two.coef)  # results do not depend on threads


def test_an_error_on_a_thread_is_raised():
    from pipeline.backends.cpu import wls_kernels

    def work(i):
        if i == 3:
            raise ValueError("the third")

    with backends.get("cpu").threads(2), pytest.raises(ValueError, match="the third"):
        wls_kernels.share(work, 8, parallel=True)


def fit_in_child(queue):
    X, W, R = random_problem(20_000, 20, 3, 2)
    queue.put(backends.get("cpu").wls.fit(X, X.mean(axis=0), W, R, 0.0).rank.tolist())


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_its_own_threads():
    import multiprocessing

    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    fit_in_child(queue)  # the parent's threads exist before the fork
    assert queue.get(timeout=60) == [20, 20, 20]
    child = context.Process(target=fit_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == [20, 20, 20]
    finally:
        child.kill()


@pytest.mark.parametrize("name", BACKENDS)
def test_column_moments(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5)) + 1e3
    X[:, 2] = 0.1
    s = rng.integers(0, 3, 50).astype(float)
    mean, variance = backends.get(name).wls.column_moments(X, s)
    repeated = np.repeat(X, s.astype(int), axis=0)
    np.testing.assert_allclose(mean, repeated.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(np.delete(variance, 2), np.delete(repeated.var(axis=0), 2), rtol=1e-9)
    assert mean[2] == 0.1
    assert variance[2] == 0.0


def gram_of(X):
    return np.asfortranarray(np.tril(X.T @ X)), X.sum(axis=0), float(len(X))


def test_ladder_raises_the_penalty_until_cholesky_works():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4))
    X = np.column_stack([X, X[:, 0] + 1e-5 * rng.normal(size=50)])
    gram, xw, sw = gram_of(X)
    single = gram.astype(np.float32).astype(
        np.float64
    )  # its rounding is as large as the penalties tried first
    rungs = [solve.factorise(single, xw, sw, l2, EPS32).ladder for l2 in (1.0, 1e-5, 1e-7, 0.0)]
    assert rungs[0] == 0
    assert 1 <= rungs[1] <= 3
    assert rungs[1] < rungs[2] <= 4
    assert rungs[3] == 4


def test_minimum_norm_solution_and_rank():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 9))
    r = rng.normal(size=40)
    factor = solve.factorise(*gram_of(X), 0.0, EPS64)
    assert (factor.rank, factor.ladder) == (6, 4)
    beta, b = factor.solve(X.T @ r, r.sum())
    beta, b = solve.refine(factor, X.T @ (r - X @ beta - b), (r - X @ beta - b).sum(), beta, b)
    A = np.column_stack([np.ones(40), X])
    np.testing.assert_allclose(X @ beta + b, A @ np.linalg.lstsq(A, r, rcond=None)[0], atol=1e-10)


def test_gram_that_is_not_finite_is_an_error():
    gram = np.full((3, 3), np.nan, order="F")
    gram[np.diag_indices(3)] = 1.0
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        solve.factorise(gram, np.zeros(3), 1.0, 0.0, EPS64)


# ---- working responses ----


def test_working_response_keeps_the_gradient():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(5, 0.05), size=200)
    Y = np.eye(5)[rng.integers(0, 5, 200)]
    s = rng.random(200)
    W, R = working_response(np, Y, P, s, 3.0, "gradient", 4e-16)
    np.testing.assert_array_equal(R, (Y - P) * s[:, None])
    assert (np.abs(R) <= 3.0 * W * (1 + 1e-12)).all()
    inside = np.abs(Y - P) <= 3.0 * P * (1 - P)
    np.testing.assert_allclose(W[inside], (np.maximum(P * (1 - P), 4e-16) * s[:, None])[inside])
    W, R = working_response(np, Y, P, s, 3.0, "paper", 4e-16)
    np.testing.assert_allclose(W, np.maximum(P * (1 - P), 4e-16) * s[:, None])
    assert (np.abs(R) <= 3.0 * W * (1 + 1e-12)).all()


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 0.9), ties=st.booleans())
def test_trimming_keeps_the_smallest_sufficient_set(seed, share, ties):
    rng = np.random.default_rng(seed)
    W = rng.random((60, 3)) ** 3
    W = np.ceil(W * 4) / 4 if ties else W
    kept, responses = trim(np, W, 2.0 * W, share)
    assert np.array_equal(responses, 2.0 * kept)
    for j in range(3):
        assert kept[:, j].sum() >= (1 - share) * W[:, j].sum() * (1 - 1e-12)
        threshold = kept[kept[:, j] > 0, j].min()
        assert (W[kept[:, j] == 0, j] < threshold).all()
        # leaving out the smallest kept value too would drop more than the share, by mass
        assert W[W[:, j] <= threshold, j].sum() > share * W[:, j].sum() * (1 - 1e-9)


# ---- Philox ----


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    """The known-answer vectors of the generator's authors (Random123, philox 4x32-10)."""
    assert " ".join(f"{int(w):08x}" for w in philox.philox4x32(counter, key)) == expected


@pytest.mark.parametrize("shape", [(1, 1), (33, 7), (400, 50)])
def test_backends_draw_the_same_frequencies(shape):
    seed, index = 2**40 + 12345, 17
    R, S = (backends.get(n).wls.frequencies(*shape, 0.5, seed, index, np.float64) for n in BACKENDS)
    np.testing.assert_allclose(R, S, rtol=0, atol=1e-14)
    single = backends.get("cpu").wls.frequencies(*shape, 0.5, seed, index, np.float32)
    np.testing.assert_allclose(single, S, rtol=0, atol=1e-6)


def test_normal_draws_are_standard_normal():
    z = philox.normal(200_000, seed=5, index=2)
    assert abs(z.mean()) < 0.01
    assert abs(z.var() - 1) < 0.02
    assert abs((z**4).mean() - 3) < 0.1
    assert abs(np.corrcoef(z, philox.normal(200_000, seed=5, index=3))[0, 1]) < 0.01


def test_random_features_approximate_the_gaussian_kernel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    phi = np.asarray(backends.get("cpu").wls.random_features(X, np.zeros(4), 0.2, 60_000, 3, 0))
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(2.0 * phi @ phi.T / 60_000, np.exp(-0.2 * distance), atol=0.03)


def test_backends_have_the_same_functions():
    """The backend is the folder: public functions and their parameters agree."""
    import inspect

    def public(module):
        return {
            n: list(inspect.signature(f).parameters)
            for n, f in vars(module).items()
            if inspect.isfunction(f) and f.__module__ == module.__name__ and not n.startswith("_")
        }

    for room in ("pca", "wls"):
        cpu, reference = (getattr(backends.get(n), room) for n in BACKENDS)
        assert public(cpu) == public(reference)


def factors_of_both_types(monkeypatch, spread):
    """Return the factor in float32 of 60 columns, the one in float64, and right-hand sides.

    Smallest squared pivots are 6e-3 to 2e-5; below 7e-6 they count as rounding noise, and the penalty is raised.
    """
    rng = np.random.default_rng(3)
    scale = np.geomspace(1.0, spread, 60)
    X = (rng.normal(size=(400, 60)) * scale) @ rng.normal(size=(60, 60))
    gram, xw, sw = gram_of(X)
    found = []
    for single in (10, 10_000):
        monkeypatch.setattr(solve, "SINGLE", single)
        found.append(solve.factorise(gram.copy(order="F"), xw, sw, 1.0, EPS32))
    return *found, (rng.normal(size=60), 2.0)


@pytest.mark.parametrize("spread", [1.0, 30.0, 150.0])
def test_float32_factors_are_wrong_by_their_rounding(monkeypatch, spread):
    """Of U'U each element is wrong by q + 1 roundings of |U'||U|, which is at most 1 where the diagonal is 1.

    Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 10.3: whatever the order of the sums, so
    on any processor. One rounding more is that of the matrix, two are those of LAPACK's products with reciprocals of
    pivots. It is no bound of the difference of two factors' pivots, which depends on the condition of the matrix.
    """
    found, wanted, _ = factors_of_both_types(monkeypatch, spread)
    assert found.ladder == wanted.ladder == 0
    assert found.upper.dtype == np.float32
    U = np.triu(found.upper).astype(np.float64)
    wrong = np.abs(np.triu(U.T @ U - solve.normal_matrix(*found.equations)))
    assert (wrong <= (60 + 4) * EPS32 / 2 * (np.abs(U.T) @ np.abs(U))).all()
    left = wanted.margin / wanted.upper.diagonal().min() ** 2  # a share of squares: no matter of the factor
    np.testing.assert_allclose(found.margin, left * U.diagonal().min() ** 2, rtol=2 * EPS32)


@pytest.mark.parametrize("spread", [1.0, 30.0, 150.0])
def test_float32_factors_solve_to_the_accuracy_of_float64(monkeypatch, spread):
    found, wanted, right = factors_of_both_types(monkeypatch, spread)
    if spread < 150.0:  # a residual that the rounding of float64 keeps large is no reason for another factor
        monkeypatch.setattr(solve, "factorise_upper", None)
    for a, b in zip(found.solve(*right), wanted.solve(*right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9 * np.abs(b).max())


def test_a_factor_that_does_not_improve_is_made_anew(monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 40))
    monkeypatch.setattr(solve, "SINGLE", 10)
    gram, xw, sw = gram_of(X)
    factor = solve.factorise(gram.copy(order="F"), xw, sw, 1.0, EPS32)
    xr = rng.normal(size=40)
    wanted = factor.solve(xr, 1.0)[0]
    monkeypatch.setattr(solve, "STEPS", 1)  # one division in float32 is exact to 1e-6
    np.testing.assert_allclose(factor.solve(xr, 1.0)[0], wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(factor.solve(1e-40 * xr, 1e-40)[0], 1e-40 * wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("q", [1, 3, 256, 513, 900])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shared", [True, False])
def test_factorisation_in_place(q, dtype, shared):
    """Columns that lie apart, as those of a float32 matrix within a float64 one; nothing below the diagonal changes."""
    from pipeline.backends import cholesky
    from pipeline.backends.cpu import wls_blocks

    rng = np.random.default_rng(q)
    X = rng.normal(size=(2 * q + 1, q))
    S = (X.T @ X / q + np.eye(q)).astype(dtype)
    wanted = np.linalg.cholesky(S.astype(np.float64)).T
    place = np.full((q, 2 * q), np.nan, dtype)[:, :q].T
    place[...] = np.triu(S)
    place[np.tril_indices(q, -1)] = np.nan
    assert (wls_blocks if shared else cholesky).factorise_upper(place) == 0
    np.testing.assert_allclose(np.triu(place), wanted, rtol=0, atol=1e-13 if dtype == "float64" else 1e-5)
    assert np.isnan(place[np.tril_indices(q, -1)]).all()
    x = cholesky.solve_upper(place, np.arange(q))
    np.testing.assert_allclose(S @ x, np.arange(q), rtol=0, atol=q * (1e-12 if dtype == "float64" else 1e-4))


@pytest.mark.parametrize("bad", [0, 255, 256, 600, 899])
def test_the_first_minor_that_is_not_positive_definite_is_told(bad):
    from pipeline.backends.cpu import wls_blocks

    S = np.asfortranarray(np.eye(900))
    S[bad, bad] = -1.0
    assert wls_blocks.factorise_upper(S) == bad + 1


def test_what_cannot_be_factorised_in_place_is_refused():
    from pipeline.backends.cholesky import factorise_upper

    for matrix in (np.eye(3, dtype=np.float16, order="F"), np.ones((3, 3)), np.eye(3, dtype=int, order="F")):
        with pytest.raises(ValueError, match="Fortran"):
            factorise_upper(matrix)
