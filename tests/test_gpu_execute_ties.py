"""Rung 2, HoG where rounding decides a bin: the kernels' text, run on the CPU, equals the cpu backend.

Here the C library's atan2 stands in for CUDA's. Where it differs from NumPy's and moves an angle across an edge, an
image may differ from the cpu backend; such images are counted from the angles alone, and no other may differ.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from skimage import data

from pipeline.backends import hog_rules
from pipeline.backends.cpu import hog as cpu_hog
from pipeline.backends.gpu import hog_plan
from pipeline.features import HogLayout
from tests.cuda_on_host.build import need_compiler
from tests.cuda_on_host.host import Host
from tests.test_hog import PARITY
from tests.test_hog_ties import PICTURES, crops, levels, shapes_of_gradients

KINDS = ("float64 / 255", "16 levels, root")


@pytest.fixture(scope="module")
def host() -> Host:
    """One host for all tests, so that a specialisation is loaded once."""
    need_compiler()
    return Host()


def differences(pixels: np.ndarray, sqrt: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients along rows and columns of every pixel and channel, in the type they are taken in."""
    values = pixels.astype(hog_rules.float_type(pixels.dtype))
    values = np.sqrt(values) if sqrt else values
    rows, cols = np.zeros_like(values), np.zeros_like(values)
    rows[:, 1:-1], cols[:, :, 1:-1] = values[:, 2:] - values[:, :-2], values[:, :, 2:] - values[:, :, :-2]
    return rows.astype(float), cols.astype(float)


def bins(angles: np.ndarray, orientations: int) -> np.ndarray:
    edges = 180.0 / orientations * np.arange(1, orientations + 1)
    return np.searchsorted(edges, np.rad2deg(angles) % 180, side="right")


def excused(pixels: np.ndarray, sqrt: bool, orientations: int) -> np.ndarray:
    """Return which images hold a gradient whose bin is another by the C library's atan2 than by NumPy's."""
    rows, cols = differences(pixels, sqrt)
    pairs = zip(rows.ravel().tolist(), cols.ravel().tolist(), strict=True)
    library = np.fromiter((math.atan2(y, x) for y, x in pairs), float, rows.size).reshape(rows.shape)
    moved = bins(library, orientations) != bins(np.arctan2(rows, cols), orientations)
    return moved.reshape(len(pixels), -1).any(axis=1)


def assert_equal(host, pixels, sqrt, orientations, cell=(8, 8), block=(2, 2), norm="L2-Hys"):
    channels = pixels.shape[3] if pixels.ndim == 4 else None
    layout = HogLayout(pixels.shape[1:3], orientations, cell, block, channels)
    wanted = cpu_hog.hog(pixels, layout, norm, sqrt, "float64")
    off = np.abs(host.hog(pixels, layout, norm, sqrt, "float64") - wanted).max(axis=1) > PARITY
    allowed = excused(pixels, sqrt, orientations)
    assert not (off & ~allowed).any(), (off.sum(), allowed.sum())
    assert allowed.sum() < len(pixels)  # else nothing was tested


@pytest.mark.parametrize("orientations", [4, 8, 9, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_pictures(host, kind, orientations):
    pixels, sqrt = PICTURES[kind](crops(data.camera(), 20))
    assert_equal(host, pixels, sqrt, orientations)


@pytest.mark.parametrize("orientations", [8, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_colour_pictures(host, kind, orientations):
    pixels, sqrt = PICTURES[kind](crops(data.astronaut(), 6, (40, 56)))
    assert_equal(host, pixels, sqrt, orientations)
    gray = np.repeat(pixels[..., :1], 3, axis=-1)  # all channels are ties
    assert_equal(host, gray, sqrt, orientations)


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32"])
def test_few_levels(host, dtype):
    for sqrt in (False, True):
        assert_equal(host, levels(9, dtype), sqrt, 12)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_far_scales(host, scale):
    assert_equal(host, crops(data.camera(), 4, (24, 48)) / 255.0 * scale, False, 12)


@pytest.mark.parametrize("orientations", [4, 8, 12])
def test_pairs_of_gradients_next_to_a_diagonal(host, orientations):
    """Differences of k / 255 that are equal but for rounding, in all four quadrants; each is an image of its own."""
    rng = np.random.default_rng(5)
    low, step = rng.integers(0, 128, (2, 6000)), rng.integers(1, 128, 6000)
    values = np.stack([low[0] + step, low[0], low[1] + step, low[1]], axis=1) / 255.0
    values = values[values[:, 0] - values[:, 1] != values[:, 2] - values[:, 3]]
    for k, order in enumerate(([0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2])):
        values[k::4] = values[k::4, order]
    images = np.zeros((len(values), 3, 3))
    images[:, 2, 1], images[:, 0, 1], images[:, 1, 2], images[:, 1, 0] = values.T
    assert len(images) > 1000
    assert_equal(host, images, False, orientations, (3, 3), (1, 1), "L1")


def test_channels_of_equal_length_but_for_rounding(host):
    """The wrong channel would vote on the other side: (a, b) against (-a', b), a' the next number after a."""
    a, b = np.random.default_rng(3).random((2, 6400))
    zero, longer = np.zeros(6400), np.nextafter(a, 2)
    one, other = np.stack([b, zero, a, zero], axis=1), np.stack([b, zero, zero, longer], axis=1)
    picture = np.stack([shapes_of_gradients(one), shapes_of_gradients(other)], axis=-1)
    assert_equal(host, picture, False, 9, (3, 3), (1, 1), "L1")


@pytest.mark.parametrize(
    ("dtype", "sqrt", "exact"),
    [("uint8", False, 1), ("int16", False, 1), ("bool", False, 1), ("uint8", True, 0), ("int32", False, 0),
     ("float32", False, 0)],
)  # fmt: skip
def test_only_inexact_pixels_are_specialised_to_doubt(dtype, sqrt, exact):
    definitions = dict(hog_plan.specialise(np.dtype(dtype), HogLayout((50, 100)), "L2-Hys", sqrt, "float32"))
    assert definitions["EXACT"] == exact
    assert exact or definitions["REAL"] == "double"
