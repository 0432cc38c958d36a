"""Principal components: every backend against scikit-learn's PCA."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from pipeline import backends
from pipeline.backends import spectrum

BACKENDS = ("reference", "cpu")


def falling(n, p, seed=0, rank=None):
    """Return a matrix (n, p) whose variances fall by a steady factor, with a mean far from 0."""
    rng = np.random.default_rng(seed)
    m = min(n, p) if rank is None else rank
    scores = rng.normal(size=(n, m)) * np.geomspace(3.0, 0.05, m)
    return scores @ np.linalg.qr(rng.normal(size=(p, m)))[0].T + rng.normal(size=p) * 4.0


def constant_columns():
    X = falling(80, 12)
    X[:, 3], X[:, 7] = 0.1, 1e6
    return X


SETS = {
    "tall": falling(200, 30),
    "wide": falling(40, 150),
    "square": falling(25, 25),
    "rank-deficient": falling(150, 20, rank=6),
    "wide and rank-deficient": falling(20, 150, rank=6),
    "constant columns": constant_columns(),
    "two rows": falling(2, 9),
    "one column": falling(30, 1),
}


def oracle(X, k):
    found = PCA(k, svd_solver="full").fit(X)
    noise = max(X.shape) * np.finfo(float).eps * found.explained_variance_[0]
    return found, int((found.explained_variance_ > noise).sum())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SETS)
def test_components_are_those_of_scikit_learn(backend, name):
    X = SETS[name]
    k = min(*X.shape, 8)
    wanted, rank = oracle(X, k)
    got = backends.get(backend).pca.fit(X, k, None)
    np.testing.assert_allclose(got.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(got.variances[:rank], wanted.explained_variance_[:rank], rtol=1e-8)
    np.testing.assert_array_equal(got.variances[rank:], 0.0)
    np.testing.assert_array_equal(got.components[rank:], 0.0)
    np.testing.assert_allclose(got.total, X.var(axis=0, ddof=1).sum(), rtol=1e-9)
    kept = got.components[:rank]
    np.testing.assert_allclose(kept @ kept.T, np.eye(rank), atol=1e-10)
    np.testing.assert_allclose(
        kept.T @ kept, wanted.components_[:rank].T @ wanted.components_[:rank], atol=1e-8
    )
    np.testing.assert_allclose(kept, wanted.components_[:rank], atol=1e-7)  # signs, too
    scores = backends.get(backend).pca.transform(X, got.mean, got.components)
    np.testing.assert_allclose(scores[:, :rank], wanted.transform(X)[:, :rank], atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("name", ["tall", "wide", "rank-deficient"])
def test_a_share_keeps_as_many_components_as_scikit_learn(backend, name, share):
    X = SETS[name]
    wanted = PCA(share, svd_solver="full").fit(X)
    got = backends.get(backend).pca.fit(X, None, share)
    assert len(got.components) == len(got.variances) == wanted.n_components_
    assert got.variances.sum() / got.total > share


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_variances_give_the_same_subspace(backend):
    """Directions of one variance are not unique: their span is."""
    rng = np.random.default_rng(2)
    scores = PCA(whiten=True).fit_transform(rng.normal(size=(100, 10))) * ([5.0] * 3 + [1.0] * 7)
    X = scores @ np.linalg.qr(rng.normal(size=(10, 10)))[0]
    wanted, _ = oracle(X, 3)
    got = backends.get(backend).pca.fit(X, 3, None)
    np.testing.assert_allclose(
        got.components.T @ got.components, wanted.components_.T @ wanted.components_, atol=1e-8
    )
    np.testing.assert_allclose(got.variances, 25.0, rtol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_variance_there_is_one_component_of_zeros(backend):
    X = np.full((6, 4), 0.1, dtype=np.float32)
    got = backends.get(backend).pca.fit(X, None, 0.9)
    assert (got.components.shape, got.total) == ((1, 4), 0.0)
    scores = backends.get(backend).pca.transform(X, got.mean, got.components)
    np.testing.assert_array_equal(scores, np.zeros((6, 1)))


@pytest.mark.parametrize("shape", [(300, 40), (40, 300)])
def test_blocks_do_not_change_the_result(monkeypatch, shape):
    from pipeline.backends.cpu import pca

    X = falling(*shape)
    whole = pca.fit(X, 5, None)
    scores = pca.transform(X, whole.mean, whole.components)
    monkeypatch.setattr(pca, "BUFFER", 2000)
    cut = pca.fit(X, 5, None)
    np.testing.assert_allclose(cut.components, whole.components, atol=1e-10)
    np.testing.assert_allclose(cut.variances, whole.variances, rtol=1e-10)
    np.testing.assert_allclose(pca.transform(X, whole.mean, whole.components), scores, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_is_summed_in_float64(backend):
    """A mean a thousand times the spread: float32 products would leave three digits."""
    X = (falling(500, 20) + 3000.0).astype(np.float32)
    wanted = PCA(4, svd_solver="full").fit(X.astype(np.float64))
    pca = backends.get(backend).pca
    got = pca.fit(X, 4, None)
    np.testing.assert_allclose(got.variances, wanted.explained_variance_, rtol=1e-9)
    scores = pca.transform(X, got.mean, got.components)
    assert scores.dtype == np.float32
    out = np.empty((500, 4), dtype=np.float32)
    assert pca.transform(X, got.mean, got.components, out) is out
    np.testing.assert_array_equal(out, scores)
    np.testing.assert_allclose(scores, wanted.transform(X.astype(np.float64)), atol=5e-3)


@pytest.mark.parametrize("m", [1, 2, 3, 60])
def test_leading_eigenvectors_are_those_of_eigh(m):
    rng = np.random.default_rng(m)
    A = rng.normal(size=(m, m + 3))
    gram = 1e-200 * A @ A.T
    values, vectors = spectrum.leading(np.asfortranarray(np.tril(gram)), lambda all_: (len(all_) + 1) // 2)
    wanted, directions = np.linalg.eigh(gram * 1e200)
    np.testing.assert_allclose(values, 1e-200 * wanted[::-1], rtol=1e-9)
    k = (m + 1) // 2
    np.testing.assert_allclose(np.abs(np.sum(vectors * directions[:, ::-1][:, :k], axis=0)), 1.0, atol=1e-9)
    assert vectors.shape == (m, k)


def test_a_gram_matrix_that_is_not_finite_is_refused():
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        spectrum.leading(np.full((3, 3), np.inf, order="F"), len)
