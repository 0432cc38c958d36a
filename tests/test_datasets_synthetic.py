"""The built-in digits and the made-up pictures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestCentroid

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets import load, stream
from pipeline.datasets.synthetic import BLOCK, make_synthetic
from pipeline.errors import DataError

SMALL = config.Image(20, 30)


def made(**options) -> config.Data:
    return config.Data(name=DataName.synthetic, **({"n": 60, "classes": 3} | options))


def test_digits_are_scikit_learns():
    images = load(config.Data(), config.Image(8, 8)).images
    source = load_digits()
    assert np.array_equal(images.pixels, np.rint(source.images * 255 / 16))
    assert (images.pixels.min(), images.pixels.max()) == (0, 255)
    assert np.array_equal(images.labels, source.target)
    assert images.class_names == tuple("0123456789")
    assert images.paths[:2] == ["digits/0/0000", "digits/1/0001"]


def test_digits_at_the_default_size_and_padded():
    images = load(config.Data(), config.Image()).images
    assert images.pixels.shape == (1797, 50, 100)
    padded = load(config.Data(), config.Image(fit=config.Fit.pad)).images
    assert (np.ptp(padded.pixels[:, :, :25].reshape(1797, -1), axis=1) == 0).all()


@pytest.mark.parametrize("chunk", [1000, 1797, 4000])
def test_digits_in_chunks(chunk):
    whole = load(config.Data(), SMALL).images
    parts = [part.images for part in stream(config.Data(), SMALL, chunk)]
    assert max(map(len, parts)) <= chunk
    assert np.array_equal(np.concatenate([part.pixels for part in parts]), whole.pixels)
    assert [path for part in parts for path in part.paths] == whole.paths


def test_synthetic_is_repeatable_and_balanced():
    first, again = load(made(), SMALL).images, load(made(workers=1), SMALL).images
    assert first.pixels.shape == (60, 20, 30)
    assert np.array_equal(first.pixels, again.pixels)
    assert first.counts().tolist() == [20, 20, 20]
    assert len(set(first.paths)) == 60
    for other in ({"seed": 1}, {"difficulty": 0.6}, {"classes": 4}):
        assert not np.array_equal(first.pixels, load(made(**other), SMALL).images.pixels)


@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_a_smaller_set_is_the_head_of_a_larger_one(n):
    larger = load(made(n=3 * BLOCK + 7), SMALL).images
    smaller = load(made(n=n), SMALL).images
    assert np.array_equal(smaller.pixels, larger.pixels[:n])
    assert smaller.paths == larger.paths[:n]
    assert np.array_equal(smaller.labels, larger.labels[:n])


def test_any_window_and_the_stream_equal_the_whole():
    data = made(n=2 * BLOCK + 9)
    whole = load(data, SMALL).images
    part = make_synthetic(data, SMALL, 100, BLOCK + 50)
    assert np.array_equal(part.pixels, whole.pixels[100 : BLOCK + 50])
    assert np.array_equal(part.labels, whole.labels[100 : BLOCK + 50])
    seen = []
    parts = [p.images for p in stream(data, SMALL, 100, lambda done, total: seen.append((done, total)))]
    assert np.array_equal(np.concatenate([p.pixels for p in parts]), whole.pixels)
    assert seen[-1] == (len(whole), len(whole))


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (7, 3), (64, 64)])
def test_any_size(size):
    images = load(made(n=5), config.Image(*size)).images
    assert images.pixels.shape == (5, *size)


def test_classes_can_be_told_apart_and_difficulty_makes_it_harder():
    def accuracy(difficulty):
        images = load(made(n=600, classes=10, difficulty=difficulty), SMALL).images
        X = images.pixels.reshape(600, -1) / 255.0
        X -= X.mean(axis=1, keepdims=True)  # brightness differs from picture to picture
        return NearestCentroid().fit(X[:400], images.labels[:400]).score(X[400:], images.labels[400:])

    easy, hard = accuracy(0.0), accuracy(1.0)
    assert easy > 0.95
    assert hard < easy - 0.2


def test_a_set_larger_than_any_memory_is_an_error_in_words():
    with pytest.raises(DataError, match=r"10000000 pictures of 16384 x 16384 need 2500000.0 GiB of memory"):
        load(made(n=10_000_000), config.Image(16384, 16384))
