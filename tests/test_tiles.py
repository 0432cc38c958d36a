"""Sums by register tiles equal the same sums worked out plainly in float64, whatever the sizes."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import wait
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.backends.cpu import (
    bfloat_grams,
    fourier,
    scores,
    tiles,
    value_tiles,
    vectors,
    wls,
    wls_grams,
    wls_kernels,
    wls_moments,
    wls_systems,
)
from pipeline.backends.cpu.exponential import exponentials
from pipeline.backends.solve import factorise
from pipeline.boosting.loss import log_loss_sum, softmax, working_response
from pipeline.scale import memory

EPS = {"float32": 6e-8, "float64": 1.2e-16}


def problem(n, q, J, dtype, seed, unused=0.0):
    """Return X, its centre, weights (some of them zero) and responses."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)).astype(dtype)
    W = rng.uniform(0.0, 1.0, (n, J)).astype(dtype)
    W[rng.random(W.shape) < unused] = 0
    R = (rng.normal(size=(n, J)) * (W > 0)).astype(dtype)
    return X, rng.normal(size=q).astype(dtype), W, R


def plainly(X, center, W, R):
    """Return the Gram matrices, products and totals; the first subtraction is in the precision of X, as it must be."""
    x = (X - center).astype(np.float64)
    W, R = W.astype(np.float64), R.astype(np.float64)
    gram = np.array([(x * w[:, None]).T @ x for w in W.T]).reshape(W.shape[1], X.shape[1], X.shape[1])
    return gram, np.array([R.T @ x, W.T @ x]), np.array([R.sum(axis=0), W.sum(axis=0)]), x


def bound(x, W, dtype, rows):
    """Return how far sums of products of that many rows may be from exact ones, for the largest columns."""
    return (
        4 * EPS[dtype] * rows * max(1.0, float(np.abs(W).max())) * max(1.0, float((x * x).sum(axis=0).max()))
    )


SIZES = {
    "n": st.integers(1, 700), "q": st.integers(1, 90), "J": st.sampled_from([1, 2, 5, 10, 14]),  # a compilation each
    "dtype": st.sampled_from(["float32", "float64"]), "seed": st.integers(0, 99),
    "unused": st.sampled_from([0.0, 0.5, 1.0]),
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(**SIZES)
def test_sums_of_a_regression(n, q, J, dtype, seed, unused):
    X, center, W, R = problem(n, q, J, dtype, seed, unused)
    found, alone = wls_grams.weighted_sums(X, center, W, R), wls_grams.weighted_sums(X, center, W)
    gram, products, totals, x = plainly(X, center, W, R)
    far = bound(
        x, np.hstack([W, R]), dtype, 1
    )  # several roundings a product, hardly any of sums that are positive
    upper = np.triu(np.ones((q, q), bool))
    np.testing.assert_allclose(found.gram[:, upper], gram[:, upper], rtol=0, atol=8 * far)
    np.testing.assert_array_equal(alone.gram[:, upper], found.gram[:, upper])
    np.testing.assert_allclose(found.products, products, rtol=0, atol=8 * far)
    np.testing.assert_allclose(found.totals, totals, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("J", [1, 5, 14, 43])
@pytest.mark.parametrize("q", [129, 200])
def test_several_blocks_of_columns_and_sets_of_classes(q, J):
    X, center, W, R = problem(600, q, J, "float64", 1)
    found = wls_grams.weighted_sums(X, center, W, R)
    gram, products, totals, _ = plainly(X, center, W, R)
    upper = np.triu(np.ones((q, q), bool))
    np.testing.assert_allclose(found.gram[:, upper], gram[:, upper], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.products, products, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.totals, totals, rtol=0, atol=1e-11)


def test_one_class_of_many_columns():
    X, center, W, R = problem(70, 1300, 1, "float32", 2)  # three blocks
    found = wls_grams.weighted_sums(X, center, W, R)
    gram, _, _, x = plainly(X, center, W, R)
    upper = np.triu(np.ones((1300, 1300), bool))
    np.testing.assert_allclose(found.gram[:, upper], gram[:, upper], rtol=0, atol=bound(x, W, "float32", 1))


@pytest.mark.parametrize("J", [1, 10])
def test_rows_cut_at_whole_blocks_give_the_same_sums(J):
    """Float32 sums of blocks of rows are added in float64: what is cut between blocks is equal to its rounding."""
    X, center, W, R = problem(3000, 70, J, "float32", 3)
    whole = wls_grams.weighted_sums(X, center, W, R)
    cut = vectors.ROWS_OF_ONE * 2
    parts = [wls_grams.weighted_sums(X[a:b], center, W[a:b], R[a:b]) for a, b in ((0, cut), (cut, 3000))]
    for name in ("gram", "products", "totals"):
        both = getattr(parts[0], name) + getattr(parts[1], name)
        np.testing.assert_allclose(both, getattr(whole, name), rtol=1e-12, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(**SIZES)
def test_moments_of_single_features(n, q, J, dtype, seed, unused):
    X, center, W, R = problem(n, q, J, dtype, seed, unused)
    found = wls_moments.weighted_moments(X, center, W, R)
    gram, products, _, x = plainly(X, center, W, R)
    far = 8 * bound(x, np.hstack([W, R]), dtype, 1)
    np.testing.assert_allclose(found[:2], products, rtol=0, atol=far)
    np.testing.assert_allclose(found[2], np.diagonal(gram, axis1=1, axis2=2), rtol=0, atol=far)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("strips", [3, 9])
def test_more_features_than_a_strip(monkeypatch, strips, shared):
    monkeypatch.setattr(wls_moments, "SHARED", shared)
    X, center, W, R = problem(
        300, strips * wls_moments.STRIP * vectors.lanes(np.dtype("float64")) + 5, 14, "float64", 4
    )
    found = wls_moments.weighted_moments(X, center, W, R)
    _, products, _, x = plainly(X, center, W, R)
    np.testing.assert_allclose(found[:2], products, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[2], W.T @ (x * x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_single_features_of_many_classes(monkeypatch, shared):
    """Few segments of the rows, and sets of classes apart."""
    monkeypatch.setattr(wls_moments, "SHARED", shared)
    monkeypatch.setattr(wls_moments, "SUMS", 1 << 20)
    monkeypatch.setattr(wls_moments, "SHARE", 1 << 20)
    assert wls_moments._tasks(1100, 6, 1 << 19, 1 << 20) == (2, 4)
    X, center, W, R = problem(1100, 400, 60, "float64", 9)
    found = wls_moments.weighted_moments(X, center, W, R)
    _, products, _, x = plainly(X, center, W, R)
    np.testing.assert_allclose(found[:2], products, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[2], W.T @ (x * x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_sums_of_single_features_hold_no_copy_of_the_weights(monkeypatch, shared):
    monkeypatch.setattr(wls_moments, "SHARED", shared)
    X, center, W, R = problem(10_000, 40, 136, "float32", 9)
    wls_moments.weighted_moments(X, center, W, R)  # compiles
    tracemalloc.start()
    try:
        found = wls_moments.weighted_moments(X, center, W, R)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 0.5 * W.nbytes
    assert kept <= 1.5 * found.nbytes  # not the sums of each segment of the rows


@pytest.mark.parametrize(("p", "J"), [(1300, 43), (20_000, 10), (20_000, 3), (6000, 20)])
@pytest.mark.parametrize("shared", [True, False])
def test_sums_of_single_features_take_what_is_counted(monkeypatch, shared, p, J):
    """14 MB were taken of 6.7 counted, of rows out of core; the margin held them."""
    monkeypatch.setattr(wls_moments, "SHARED", shared)
    if shared:  # as 32 registers have it
        monkeypatch.setattr(wls_moments, "moment_shape", lambda J: (None,) * -(-J // -(-J // 10)))
    n = 2048
    X, center, W, R = problem(n, p, J, "float32", 9)
    wls_moments.weighted_moments(X[:300], center, W[:300], R[:300])  # compiles
    tracemalloc.start()
    try:
        wls_moments.weighted_moments(X, center, W, R)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    work = memory.Work(
        p=p, q=p, classes=J, fitted=J, item=4, kept=0, feature=4, threads=1, random=False, componentwise=True
    )
    assert peak <= work.grams(1) + n * (p * 4 // 16)


def test_rows_apart_and_rows_that_cannot_be_written():
    X, center, W, R = problem(500, 80, 5, "float32", 5)
    wide = np.zeros((1000, 80), np.float32)
    wide[::2] = X
    fixed = X.copy()
    fixed.flags.writeable = False
    wanted = wls_grams.weighted_sums(X, center, W, R)
    for rows in (wide[::2], fixed):
        np.testing.assert_array_equal(wls_grams.weighted_sums(rows, center, W, R).gram, wanted.gram)
        np.testing.assert_array_equal(
            wls_moments.weighted_moments(rows, center, W, R), wls_moments.weighted_moments(X, center, W, R)
        )


def test_numbers_of_a_row_must_be_adjacent():
    X, center, W, R = problem(30, 8, 5, "float32", 6)
    for work in (wls_grams.weighted_sums, wls_moments.weighted_moments):
        with pytest.raises(ValueError, match="adjacent"):
            work(np.asfortranarray(X), center, W, R)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_do_not_depend_on_threads(threads):
    from pipeline import backends

    X, center, W, R = problem(2000, 100, 10, "float32", 7)
    wanted = wls_grams.weighted_sums(X, center, W, R).gram
    with backends.get("cpu").threads(threads):
        np.testing.assert_array_equal(wls_grams.weighted_sums(X, center, W, R).gram, wanted)


@pytest.mark.parametrize("J", [11, 43])
def test_sets_of_two_sizes_give_the_very_sums(monkeypatch, J):
    monkeypatch.setattr(wls_moments, "SHARED", True)
    X, center, W, R = problem(600, 50, J, "float32", 9)
    wanted = wls_moments.weighted_moments(X, center, W, R)
    monkeypatch.setattr(wls_moments, "WORTH", 0)
    np.testing.assert_array_equal(wls_moments.weighted_moments(X, center, W, R), wanted)


@pytest.mark.parametrize("registers", [(64, 32), (32, 16), (16, 32), (16, 16)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_fit_the_registers_of_every_processor(monkeypatch, registers, dtype):
    """Accumulators, the products they take, the numbers loaded for them: none of it leaves the registers."""
    monkeypatch.setattr(vectors, "BYTES", registers[0])
    for module in (tiles, value_tiles):
        monkeypatch.setattr(module, "REGISTERS", registers[1])
    monkeypatch.setattr(tiles, "SHARED", registers[1] > 16)
    for J in range(1, 60):
        classes, columns, panels, lanes = map(len, tiles.gram_shape.__wrapped__(J, np.dtype(dtype)))
        assert lanes == registers[0] // np.dtype(dtype).itemsize
        assert lanes % columns == 0
        assert classes * -(-J // classes) < J + classes
        sums = classes * columns * panels
        held = columns * panels if classes > 1 else panels
        assert sums + held + 1 <= registers[1]
        _, together, beside, width = map(len, tiles.packed_shape.__wrapped__(J, np.dtype(dtype)))
        assert (together + 1) * beside + 1 <= registers[1]
        assert together <= width == lanes
        assert 3 * len(tiles.moment_shape.__wrapped__(J)) + 2 <= registers[1]
        rows, together = map(len, value_tiles.value_shape.__wrapped__(J))
        assert rows * together + rows + 1 <= registers[1]
        assert vectors.ROWS % rows == 0
        assert together * -(-J // together) < J + together


@pytest.fixture
def other_tiles(monkeypatch):
    """Tiles as a processor has them that has more registers than this one, or fewer."""
    for module in (tiles, wls_moments):
        monkeypatch.setattr(module, "SHARED", not tiles.SHARED)
    tiles.gram_shape.cache_clear()
    yield
    tiles.gram_shape.cache_clear()


@pytest.mark.usefixtures("other_tiles")
@pytest.mark.parametrize("q", [40, 43])
def test_sums_are_the_same_by_the_tiles_of_other_processors(q):
    X, center, W, R = problem(600, 80, 10, "float32", 8)
    columns = np.random.default_rng(8).permutation(80)[:q]
    sums = wls_grams.weighted_sums(wls.gather(X, columns, center), np.zeros(q, "f"), W, R)
    gram, products, totals, x = plainly(X, center, W, R)
    far, upper = 8 * bound(x, np.hstack([W, R]), "float32", 1), np.triu(np.ones((q, q), bool))
    wanted = gram[:, columns[:, None], columns]
    np.testing.assert_allclose(sums.gram[:, upper], wanted[:, upper], rtol=0, atol=far)
    np.testing.assert_allclose(sums.products, products[:, :, columns], rtol=0, atol=far)
    np.testing.assert_allclose(sums.totals, totals, rtol=1e-12, atol=1e-12)
    singly = wls_moments.weighted_moments(X, center, W, R)
    np.testing.assert_allclose(singly[:2], products, rtol=0, atol=far)
    np.testing.assert_allclose(singly[2], np.diagonal(gram, axis1=1, axis2=2), rtol=0, atol=far)
    R_, phase = fourier.normal_panels(80, q, 0.1, 3, 1, np.dtype("f")), np.linspace(0.0, 6.0, q)
    angles = (X - center) @ R_.transpose(1, 0, 2).reshape(80, -1)[:, :q] + phase
    np.testing.assert_allclose(fourier.features(X, center, R_, phase), np.cos(angles), rtol=0, atol=1e-5)


@pytest.mark.parametrize("q", [1, 2, 3, 4, 5])
def test_sums_are_the_same_by_tiles_of_four_panels(monkeypatch, q):
    """As processors have them whose registers hold two numbers."""
    V = vectors.lanes(np.dtype("d"))
    shape = (None,), (None,) * 2, (None,) * 4, (None,) * V
    for module in (tiles, fourier, wls_grams):
        monkeypatch.setattr(module, "gram_shape", lambda *_: shape)
    q = q * V - 1
    X, center, W, R = problem(300, 80, 3, "float64", 8)
    gathered = wls.gather(X, np.arange(q), center)
    assert gathered.data.shape[1] % 4 == 0
    sums = wls_grams.weighted_sums(gathered, np.zeros(q), W, R)
    gram, products, _, x = plainly(X, center, W, R)
    upper = np.triu(np.ones((q, q), bool))
    np.testing.assert_allclose(sums.gram[:, upper], gram[:, :q, :q][:, upper], rtol=0, atol=1e-10)
    np.testing.assert_allclose(sums.products, products[:, :, :q], rtol=0, atol=1e-10)
    R_, phase = fourier.normal_panels(80, q, 0.1, 3, 1, np.dtype("d")), np.linspace(0.0, 6.0, q)
    angles = x @ R_.transpose(1, 0, 2).reshape(80, -1)[:, :q] + phase
    np.testing.assert_allclose(fourier.features(X, center, R_, phase), np.cos(angles), rtol=0, atol=1e-10)


# ---- what surrounds the sums ----


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 40), q=st.integers(0, 70), J=st.integers(1, 70), seed=st.integers(0, 99))
def test_values_of_float32_rows_are_those_of_float64_rounded_once(n, q, J, seed):
    X, center, _, _ = problem(n, q, 1, "float32", seed)
    rng = np.random.default_rng(seed)
    coef, intercept = rng.normal(size=(q, J)) * 1e3, rng.normal(size=J)
    found = wls.apply(X, center, coef, intercept)
    wanted = (X - center).astype(np.float64) @ coef + intercept
    assert found.dtype == np.float32
    atol = 1e-3 * q if wls.FEW < J else 1e-9
    np.testing.assert_allclose(found, wanted, rtol=6e-8 if wls.FEW >= J else 1e-4, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residual_sums(dtype):
    X, center, W, R = problem(900, 33, 4, dtype, 8)
    rng = np.random.default_rng(1)
    coef, intercept = rng.normal(size=(33, 2)), rng.normal(size=2)
    xr, sr = wls.residual_sums(X, center, W, R, slice(1, 3), coef, intercept)
    x = (X - center).astype(np.float64)
    residual = R[:, 1:3] - W[:, 1:3] * (x @ coef + intercept)
    np.testing.assert_allclose(xr, x.T @ residual, rtol=0, atol=1e-10)
    np.testing.assert_allclose(sr, residual.sum(axis=0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("q", [1, 5, 31, 64, 130, 700])
def test_the_normal_matrix_in_the_place_of_the_gram_matrix(q):
    """Its triangle equals that of the plain function; the other triangle, the sums, stays as it was."""
    from pipeline.backends import solve

    rng = np.random.default_rng(q)
    A = rng.normal(size=(q + 5, q))
    gram, xw, scale = np.asfortranarray(A.T @ A), rng.normal(size=q), rng.uniform(0.5, 1, q)
    given_, x = gram.copy(order="F"), rng.normal(size=q)
    for l2 in (0.5, 5.0):  # a raised penalty: the same sums are asked again
        rest = gram.diagonal().copy(), xw, 3.0, scale, l2
        wanted = solve.normal_matrix(gram, *rest)
        found = wls_kernels.normal_matrix(given_, *rest)
        assert found.dtype == np.float64
        assert np.shares_memory(found, given_)
        np.testing.assert_allclose(np.triu(found), np.triu(wanted), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(np.tril(given_, -1), np.tril(gram, -1))
        whole = np.triu(wanted) + np.triu(wanted, 1).T
        np.testing.assert_allclose(solve.Equations(given_, *rest).times(x), whole @ x, rtol=0, atol=1e-10 * q)


def test_the_margin_tells_what_rounding_can_do():
    """Columns that hardly differ, and columns far from zero: in both a rounding of the sums grows on its way."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    near = np.hstack([X, X[:, :1] + 0.01 * rng.normal(size=(400, 1))])
    far = X + 100.0

    def margin(rows):
        gram = np.asfortranarray(rows.T @ rows)
        return factorise(gram, rows.sum(axis=0), 400.0, 0.0, EPS["float64"]).margin

    assert margin(X) > 0.5
    assert margin(near) == pytest.approx(1e-4, rel=0.5)
    assert margin(far) == pytest.approx(1e-4, rel=0.5)


# ---- scores ----


@pytest.mark.parametrize(("dtype", "least"), [("float32", -87.0), ("float64", -708.0)])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 5000])
def test_exponentials_are_exact_to_two_units_of_their_last_place(dtype, least, count):
    x = np.linspace(least, 0.0, count).astype(dtype)
    x[0] = 2 * least if count > 1 else 0.0  # no number of the type, or nearly so: 0
    room = np.concatenate([x, np.full(16, -1.0, dtype)])  # whole vectors are worked on
    exponentials_of(room, count)
    wanted = np.exp(x.astype(np.longdouble))
    wanted[x < least] = 0.0
    np.testing.assert_allclose(room[:count], wanted, rtol=2 * np.finfo(dtype).eps, atol=0)


@numba.njit
def exponentials_of(x, count):
    exponentials(x, count)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 3000), J=st.integers(2, 12), seed=st.integers(0, 99), clip=st.sampled_from(["gradient", "paper"]),
    dtype=st.sampled_from(["float32", "float64"]), scale=st.sampled_from([0.1, 3.0, 40.0]),
)  # fmt: skip
def test_scores_equal_their_expressions(n, J, seed, clip, dtype, scale):
    rng = np.random.default_rng(seed)
    F, values = ((scale * rng.normal(size=(n, J))).astype(dtype) for _ in range(2))
    codes, weight = rng.integers(0, J, n), rng.uniform(0, 2, n).astype(dtype)
    labels, floor = scores.targets(codes, J), {"float32": 1e-7, "float64": 1e-16}[dtype]
    Y = np.eye(J, dtype=dtype)[codes]
    W, R = scores.working_response(F, labels, weight, 3.0, clip, floor)
    # in float64, of the scores as they are: the expressions of float32 round as often as the kernels do
    exact = [array.astype(np.float64) for array in (Y, F, weight)]
    wanted = working_response(np, exact[0], softmax(np, exact[1]), exact[2], 3.0, clip, floor)
    relative, eps = {"float32": 1e-4, "float64": 1e-11}[dtype], 40 * EPS[dtype]
    np.testing.assert_allclose(R, wanted[1], rtol=relative, atol=eps)
    np.testing.assert_allclose(W, wanted[0], rtol=relative, atol=2 * eps)
    moved, pair, targets = scores.advance(F, values, 0.25, labels, weight, (3.0, clip, floor))
    plain = F + np.dtype(dtype).type(0.25) * (values - values.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(moved, plain, rtol=1e-5 if dtype == "float32" else 1e-12, atol=eps * scale)
    for found, same in zip(
        targets, scores.working_response(moved, labels, weight, 3.0, clip, floor), strict=True
    ):
        np.testing.assert_array_equal(found, same)
    assert scores.advance(F, values, 0.25, labels, weight)[2] is None
    assert pair.dtype == np.float64
    assert pair[0] == np.abs(moved).max().astype(np.float64)
    wide = moved.astype(np.float64)
    assert pair[1] == pytest.approx(float(log_loss_sum(np, wide, exact[0], exact[2])), rel=1e-5, abs=1e-6)


def test_class_numbers_are_looked_at():
    with pytest.raises(ValueError, match="from 0 to 2"):
        scores.targets(np.array([0, 3]), 3)


def test_counts_know_the_blocks():
    from pipeline.profiling import counts_fits as counted

    sizes = [(1, 5, counted.NARROW), (counted.FEW, 2, counted.NARROW), (counted.FEW + 1, 2, counted.BLOCK)]
    for q, classes, wanted in [*sizes, (10, 1, counted.WIDE)]:
        assert wls_grams.columns_of_a_block(q, classes) == wanted
    assert (counted.SHARED_COLUMNS, counted.HALF) == (wls_grams.TOGETHER, wls_grams.HALF)
    assert counted.GRAMS == wls.GRAMS
    assert counted.SIDE_BY_SIDE == wls_systems.MOST
    assert (counted.ROUNDED_ONCE, counted.NUMBERS) == (bfloat_grams.TOGETHER, bfloat_grams.NUMBERS)
    assert wls.classes_together == (12 if tiles.SHARED else 1)


@pytest.mark.parametrize(("learner", "q"), [
    ("ridge", 200), ("ridge", 256), ("ridge", 300), ("full", 500), ("ridge", 768), ("ridge", 800), ("subspace", 500),
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_counts_know_how_many_gram_matrices_are_held(learner, q, threads, monkeypatch):
    from pipeline.profiling import counts_fits as counted

    monkeypatch.setattr(wls.kernels, "threads", lambda: threads)
    for fits in (1, 3, 43):
        work = SimpleNamespace(learner=learner, columns=q, fits=fits, threads=threads)
        wanted = wls.classes_at_once(fits, q, learner != "subspace")
        assert counted.grams_at_once(work) == wanted
    rows = np.zeros((2, q), "f")
    assert counted.one_by_one(work) == (learner != "subspace" and wls_grams.one_by_one(rows))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_rows_do_not_depend_on_the_classes_asked_for(dtype):
    """Of 257 to 768 columns, so that a machine with more threads may hold more Gram matrices."""
    X, center, W, R = problem(1500, 300, 5, dtype, 7)
    whole = wls.sums(X, center, W, R, slice(0, 5), True)
    upper = np.triu(np.ones((300, 300), bool))
    for step in (1, 2, 3):
        for first in range(0, 5, step):
            classes = slice(first, min(first + step, 5))
            found = wls.sums(X, center, W, R, classes, first == 0)
            np.testing.assert_array_equal(found.gram[:, upper], whole.gram[classes][:, upper])
            if first == 0:
                for one, same in zip(found[:4], whole[:4], strict=True):
                    np.testing.assert_array_equal(one, same)
    _, _, _, x = plainly(X, center, W, R)
    exact = np.einsum("ni,nj,nk->jik", x, W.astype(float), x)
    np.testing.assert_allclose(whole.gram[:, upper], exact[:, upper], rtol=0, atol=8 * bound(x, W, dtype, 1))


# ---- columns in panels ----


@settings(max_examples=30, deadline=None)
@given(**SIZES)
def test_gathered_columns_and_their_sums(n, q, J, dtype, seed, unused):
    """Panels hold the very numbers, and their sums are those of the same numbers in rows."""
    X, center, W, R = problem(n, q, J, dtype, seed, unused)
    columns = np.random.default_rng(seed).permutation(q)[: -(-q // 2)]
    found = wls.gather(X, columns, center)
    rows = X[:, columns] - center[columns]
    assert (found.shape, found.dtype, len(found), found.size) == (rows.shape, rows.dtype, n, rows.size)
    np.testing.assert_array_equal(found, rows)
    with pytest.raises(ValueError, match="copy"):
        np.array(found, copy=False)
    zero = np.zeros(columns.size)
    sums, plain = wls_grams.weighted_sums(found, zero, W, R), plainly(rows, zero.astype(dtype), W, R)
    far = 8 * bound(plain[3], np.hstack([W, R]), dtype, 1)
    upper = np.triu(np.ones((columns.size, columns.size), bool))
    np.testing.assert_allclose(sums.gram[:, upper], plain[0][:, upper], rtol=0, atol=far)
    np.testing.assert_allclose(sums.products, plain[1], rtol=0, atol=far)
    np.testing.assert_allclose(sums.totals, plain[2], rtol=1e-12, atol=1e-12)
    coef, intercept = np.random.default_rng(seed).normal(size=(columns.size, J)), np.ones(J)
    np.testing.assert_allclose(wls.apply(found, zero, coef, intercept), rows @ coef + 1, rtol=1e-5, atol=1e-5)
    for residual, wanted in zip(
        wls.residual_sums(found, zero, W, R, slice(0, J), coef, intercept),
        wls.residual_sums(rows, zero, W, R, slice(0, J), coef, intercept),
        strict=True,
    ):
        np.testing.assert_allclose(residual, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("J", [1, 14, 43])
@pytest.mark.parametrize("q", [129, 200])
def test_panels_in_several_blocks_and_sets_of_classes(q, J):
    X, center, W, R = problem(1100, q, J, "float64", 1)
    found = wls_grams.weighted_sums(wls.gather(X, np.arange(q), center), np.zeros(q), W, R)
    gram, products, totals, _ = plainly(X, center, W, R)
    upper = np.triu(np.ones((q, q), bool))
    np.testing.assert_allclose(found.gram[:, upper], gram[:, upper], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.products, products, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.totals, totals, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["shifted", "some classes", "trimmed"])
def test_panels_become_rows_where_they_are_of_no_use(kind):
    X, center, W, R = problem(700, 30, 5, "float64", 2, unused=0.9 if kind == "trimmed" else 0.0)
    shift = center if kind == "shifted" else np.zeros(30)
    classes = slice(1, 3) if kind == "some classes" else slice(0, 5)
    found = wls.gather(X, np.arange(30), np.zeros(30))
    sums, wanted = (wls.sums(rows, shift, W, R, classes, True) for rows in (found, X))
    for a, b in zip(sums[:4], wanted[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(np.triu(sums.gram), np.triu(wanted.gram), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_columns_that_are_gathered_meanwhile(threads):
    from pipeline import backends

    X, center, _, _ = problem(3000, 200, 1, "float32", 3)
    columns = np.arange(0, 200, 2)
    cpu = backends.get("cpu")
    with cpu.threads(threads):
        end = cpu.gather_meanwhile(X, columns, center)
        product = wls_grams.weighted_sums(X, center, np.ones((3000, 2), "f")).gram  # other work beside it
        np.testing.assert_array_equal(end(), X[:, columns] - center[columns])
        np.testing.assert_array_equal(
            product, wls_grams.weighted_sums(X, center, np.ones((3000, 2), "f")).gram
        )


def test_what_fails_on_another_thread_is_told():
    def work(i):
        if i == 7:
            raise RuntimeError("seven")

    shared = wls_kernels.Shared(work, 20, parallel=True)
    with pytest.raises(RuntimeError, match="seven"):
        shared.finish()


@pytest.mark.parametrize("started", [0, 1])
def test_an_interrupt_while_work_is_handed_out_leaves_no_thread_taken(monkeypatch, started):
    """The next work gets all four threads again: after such a fit all that followed ran on one."""
    handed, pool = [], wls_kernels._pool()

    def submit(work):
        if len(handed) == started:
            raise KeyboardInterrupt
        handed.append(pool.submit(work))
        return handed[-1]

    monkeypatch.setattr(wls_kernels.numba, "get_num_threads", lambda: 4)
    with monkeypatch.context() as patch:
        patch.setattr(wls_kernels, "_pool", lambda: SimpleNamespace(submit=submit))
        with pytest.raises(KeyboardInterrupt):
            wls_kernels.Shared(lambda i: None, 4, parallel=True)
    wait(handed)
    assert wls_kernels._threads(4, parallel=True) == 4


def test_threads_at_work_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(wls_kernels.numba, "get_num_threads", lambda: 2)
    begun, go_on = threading.Event(), threading.Event()

    def work(i):
        begun.set()
        assert go_on.wait(60)

    shared = wls_kernels.Shared(work, 2, parallel=True)
    assert begun.wait(60)
    assert wls_kernels._threads(2, parallel=True) == 1
    go_on.set()
    shared.finish()
    assert wls_kernels._threads(2, parallel=True) == 2
