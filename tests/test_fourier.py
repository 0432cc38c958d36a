"""Random Fourier features: the numbers drawn, the cosines, and that a row's numbers depend on no other row."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline import backends
from pipeline.backends import philox
from pipeline.backends.cpu import fourier, vector_functions, vectors, wls

TYPES = ("float32", "float64")


def features(n, p, q, dtype, seed=0, spread=1.0):
    """Return X, its centre, R, phases, and the features worked out in float64."""
    random = np.random.default_rng(seed)
    X = (spread * random.normal(size=(n, p)) + 3.0).astype(dtype)
    center, phase = X.mean(axis=0), random.uniform(0, 2 * np.pi, q).astype(dtype)
    R = fourier.normal_panels(p, q, 0.1, seed, 2, np.dtype(dtype))
    rows = R.transpose(1, 0, 2).reshape(p, -1)[:, :q].astype(np.float64)
    angle = (X.astype(np.float64) - center.astype(np.float64)) @ rows + phase.astype(np.float64)
    return X, center, R, phase, np.cos(angle)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("p", "q"), [(1, 1), (3, 1), (5, 17), (7, 33), (97, 300), (40, 512), (2, 5000)])
def test_normal_numbers_in_panels(p, q, dtype):
    """Those of every backend, whatever the shape; zeros beyond the last column."""
    data = fourier.normal_panels(p, q, 1.5, 2**40 + 9, 4, np.dtype(dtype))
    rows = data.transpose(1, 0, 2).reshape(p, -1)
    wanted = (1.5 * philox.normal(p * q, 2**40 + 9, 4)).reshape(p, q)
    np.testing.assert_allclose(rows[:, :q], wanted, rtol=1e-7 if dtype == "float32" else 1e-14, atol=1e-14)
    assert not rows[:, q:].any()


def test_many_normal_numbers_are_the_librarys_to_the_last_digits():
    found = fourier.normal_panels(1000, 1000, 1.0, 11, 0, np.dtype("float64"))
    rows = found.transpose(1, 0, 2).reshape(1000, -1)[:, :1000].reshape(-1)
    np.testing.assert_allclose(rows, philox.normal(10**6, 11, 0), rtol=2e-15, atol=2e-15)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("n", "p", "q"),
    [(1, 1, 1), (1, 40, 20), (17, 5, 16), (130, 33, 7), (257, 70, 100), (300, 1100, 40), (40, 9, 1100)],
)
def test_features_are_cosines_of_a_product(n, p, q, dtype):
    """More rows, columns or terms than are worked out together, and numbers that fill no vector."""
    X, center, R, phase, wanted = features(n, p, q, dtype)
    found = fourier.features(X, center, R, phase)
    assert (found.shape, found.dtype) == ((n, q), np.dtype(dtype))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)
    beyond = found.data.transpose(0, 2, 1, 3).reshape(len(found.data) * vectors.ROWS, -1)[:n, q:]
    assert not beyond.any()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_has_the_same_features_beside_any_other_rows(dtype):
    """Bit for bit, on any number of threads: what is predicted of one image does not depend on the others."""
    X, center, R, phase, _ = features(700, 60, 50, dtype)
    cpu = backends.get("cpu")
    with cpu.threads(1):
        whole = np.asarray(fourier.features(X, center, R, phase))
    with cpu.threads(0):
        np.testing.assert_array_equal(fourier.features(X, center, R, phase), whole)
    for a, b in ((0, 1), (13, 14), (100, 399), (255, 700)):
        np.testing.assert_array_equal(fourier.features(X[a:b], center, R, phase), whole[a:b])
    spread = np.full((700, 90), np.nan, dtype)
    spread[:, 7:67] = X
    spread.flags.writeable = False
    np.testing.assert_array_equal(fourier.features(spread[:, 7:67], center, R, phase), whole)


def test_cosines_of_large_angles():
    """Those beyond what the polynomials serve are the library's: near and far angles lie in one tile."""
    X, center, R, phase, _ = features(40, 3, 20, "float64", spread=3e6)
    X[::7], center[:] = 0.0, 0.0
    rows = R.transpose(1, 0, 2).reshape(3, -1)[:, :20]
    X = np.round(X / 1024) * 1024  # few digits: the product has no rounding that matters
    rows[:] = np.round(rows * 64) / 64
    R = np.ascontiguousarray(
        np.pad(rows, ((0, 0), (0, R.size // 3 - 20))).reshape(3, len(R), -1).transpose(1, 0, 2)
    )
    angles = X @ rows + np.round(phase * 64) / 64
    assert (abs(angles) > vector_functions.FAR).any()
    assert (abs(angles) < vector_functions.FAR).any()
    found = np.asarray(fourier.features(X, center, R, np.round(phase * 64) / 64))
    np.testing.assert_allclose(found, np.cos(angles), rtol=0, atol=1e-15)
    near = (np.random.default_rng(0).uniform(-vector_functions.FAR, vector_functions.FAR, 20_000)).reshape(
        -1, 1
    )
    one = np.zeros((1, 1, vectors.lanes(near.dtype)))
    one[0, 0, 0] = 1.0
    found = np.asarray(fourier.features(near, np.zeros(1), one, np.zeros(1)))
    np.testing.assert_allclose(found, np.cos(near), rtol=0, atol=4e-16)
    infinite = np.full((3, 1), np.inf)
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.asarray(fourier.features(infinite, np.zeros(1), one, np.zeros(1)))).all()


def test_rows_of_distant_numbers_are_refused():
    X, center, R, phase, _ = features(30, 6, 4, "float32")
    with pytest.raises(ValueError, match="adjacent"):
        fourier.features(np.asfortranarray(X), center, R, phase)


@pytest.mark.parametrize("q", [40, 800])
def test_fits_on_features_are_those_on_their_rows(q):
    """Also where systems are solved one at a time: no matrix of rows is made for each."""
    random = np.random.default_rng(1)
    X = random.normal(size=(900, 12))
    phi = wls.random_features(X, X.mean(axis=0), 0.05, q, 3, 1)
    W = random.random((900, 3)) + 0.1
    R = W * random.normal(size=(900, 3))
    found, wanted = (wls.fit(one, np.zeros(q), W, R, 1.0) for one in (phi, np.asarray(phi)))
    np.testing.assert_allclose(found.coef, wanted.coef, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.intercept, wanted.intercept, rtol=0, atol=1e-10)
    values = wls.apply(phi, np.zeros(q), found.coef, found.intercept)
    np.testing.assert_allclose(values, np.asarray(phi) @ wanted.coef + wanted.intercept, rtol=0, atol=1e-9)
