"""HoG where rounding decides a bin: ordinary pictures, scaled or under a square root, equal scikit-image's."""

from __future__ import annotations

import numpy as np
import pytest
from skimage import data

from pipeline.backends import hog_rules
from pipeline.backends.cpu import hog as cpu
from pipeline.backends.reference import hog as reference
from pipeline.features import HogExtractor, HogLayout
from tests.test_hog import assert_parity

ORIENTATIONS = (1, 2, 4, 6, 8, 9, 12, 16, 18, 36)


def crops(source: np.ndarray, n: int, shape: tuple[int, int] = (50, 100)) -> np.ndarray:
    rng = np.random.default_rng(11)
    rows, cols = rng.integers(0, 512 - shape[0], n), rng.integers(0, 512 - shape[1], n)
    return np.stack([source[r : r + shape[0], c : c + shape[1]] for r, c in zip(rows, cols, strict=True)])


def levels(top: int, dtype: str, channels: int | None = None) -> np.ndarray:
    shape = (3, 33, 41) if channels is None else (3, 33, 41, channels)
    return np.random.default_rng(top).integers(0, top, shape, endpoint=True).astype(dtype)


def assert_parity_at_every_number(pixels, sqrt, orientations=ORIENTATIONS, cell=(8, 8), dtype="float64"):
    channels = pixels.shape[3] if pixels.ndim == 4 else None
    for n in orientations:
        layout = HogLayout(pixels.shape[1:3], n, cell, (2, 2), channels)
        assert_parity(pixels, layout, "L2-Hys", sqrt, dtype)


PICTURES = {
    "float64 / 255": lambda p: (p / 255.0, False),
    "float32 / 255": lambda p: (p / np.float32(255), False),
    "float64 / 255, root": lambda p: (p / 255.0, True),
    "float32 / 255, root": lambda p: (p / np.float32(255), True),
    "roots as pixels": lambda p: (np.sqrt(p // 16), False),
    "16 levels, root": lambda p: (p // 16, True),
    "64 levels, root": lambda p: (p // 4, True),
    "uint8, root": lambda p: (p, True),
    "uint16, root": lambda p: (p.astype(np.uint16) // 32, True),
    "uint8": lambda p: (p, False),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures(kind):
    """Differences of k / 255 next to a diagonal, differences of roots next to any edge."""
    pixels, sqrt = PICTURES[kind](crops(data.camera(), 12))
    assert_parity_at_every_number(pixels, sqrt)


@pytest.mark.parametrize("kind", PICTURES)
def test_colour_pictures(kind):
    pixels, sqrt = PICTURES[kind](crops(data.astronaut(), 3, (40, 56)))
    assert_parity_at_every_number(pixels, sqrt)
    assert_parity_at_every_number(pixels, sqrt, (4, 8, 9), dtype="float32")
    gray = np.repeat(pixels[..., :1], 3, axis=-1)  # all channels are ties
    assert_parity_at_every_number(gray, sqrt, (4, 9))


@pytest.mark.parametrize("sqrt", [False, True])
@pytest.mark.parametrize("top", [1, 2, 4, 9])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "uint64", "float16", "float64"])
def test_few_levels(dtype, top, sqrt):
    assert_parity_at_every_number(levels(top, dtype), sqrt)
    assert_parity_at_every_number(levels(top, dtype, channels=2), sqrt, (8, 9, 16))
    assert_parity_at_every_number(levels(top, dtype, channels=2), sqrt, (8, 9), dtype="float32")


@pytest.mark.parametrize("cell", [(5, 7), (12, 11), (3, 97), (1, 1)])  # the second and third: ordered sums
def test_other_cells(cell):
    pixels = crops(data.camera(), 2, (27, 200))
    for kind in ("float64 / 255", "16 levels, root"):
        assert_parity_at_every_number(*PICTURES[kind](pixels), (4, 8, 9, 12), cell)


@pytest.mark.parametrize("scale", [1e-30, 1e30, 3e36, 1e38])
def test_far_scales(scale):
    """Up to where a cell's float32 sum overflows, and its gradients in doubt with it."""
    pixels = crops(data.camera(), 2, (24, 48)) / 255.0 * scale
    with np.errstate(all="ignore"):
        assert_parity_at_every_number(pixels, False, (4, 9))


def test_gradients_in_doubt_beside_nan():
    pixels = crops(data.camera(), 3, (48, 96)) / 255.0
    pixels[1, 20, 20] = np.nan
    assert_parity_at_every_number(pixels, False, (4, 8, 12))


def shapes_of_gradients(pixels: np.ndarray) -> np.ndarray:
    """Return one picture of 3 x 3 cells, whose middle pixels have the gradients that the four values give."""
    side = int(np.sqrt(len(pixels)))
    tiles = np.zeros((side * side, 3, 3), pixels.dtype)
    tiles[:, 2, 1], tiles[:, 0, 1], tiles[:, 1, 2], tiles[:, 1, 0] = pixels[: side * side].T
    return tiles.reshape(1, side, side, 3, 3).swapaxes(2, 3).reshape(1, 3 * side, 3 * side)


@pytest.mark.parametrize("orientations", [4, 8, 9, 12])
def test_pairs_of_gradients_next_to_a_diagonal(orientations):
    """Differences of k / 255 that are equal but for rounding, in all four quadrants."""
    rng = np.random.default_rng(5)
    low, step = rng.integers(0, 128, (2, 60_000)), rng.integers(1, 128, 60_000)
    down, across = low[0] + step, low[1] + step
    values = np.stack([down, low[0], across, low[1]], axis=1) / 255.0
    y, x = values[:, 0] - values[:, 1], values[:, 2] - values[:, 3]
    values = values[x != y]
    for k, order in enumerate(([0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2])):
        values[k::4] = values[k::4, order]
    picture = shapes_of_gradients(values[:6400])
    assert_parity(picture, HogLayout(picture.shape[1:], orientations, (3, 3), (1, 1)), "L1")


def test_channels_of_equal_length_but_for_rounding():
    """The wrong channel would vote on the other side: (a, b) against (-a', b), a' the next number after a."""
    a, b = np.random.default_rng(3).random((2, 6400))
    zero, longer = np.zeros(6400), np.nextafter(a, 2)
    one, other = np.stack([b, zero, a, zero], axis=1), np.stack([b, zero, zero, longer], axis=1)
    roots = [np.sqrt(v * v + b * b) for v in (a, longer)]
    assert ((roots[1] > roots[0]) != (np.hypot(longer, b) > np.hypot(a, b))).sum() > 100
    picture = np.stack([shapes_of_gradients(one), shapes_of_gradients(other)], axis=-1)
    assert_parity(picture, HogLayout(picture.shape[1:3], 9, (3, 3), (1, 1), 2), "L1")


def angles_of(row: np.ndarray, col: np.ndarray) -> np.ndarray:
    """Return the angles by scikit-image's formula, in degrees."""
    return np.rad2deg(np.arctan2(row.astype(float), col.astype(float))) % 180


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_product_decides_every_pair_of_8_bit_differences(dtype):
    """All 261,120 pairs: `wanted` edges are reached, and no more, in scikit-image's rounding and in ours."""
    steps = np.arange(-255, 256)
    row, col = (a.ravel() for a in np.meshgrid(steps, steps, indexing="ij"))
    row, col = row[(row != 0) | (col != 0)], col[(row != 0) | (col != 0)]
    assert len(row) == 261_120
    angles = angles_of(row, col)
    turn = np.where((row < 0) | ((row == 0) & (col < 0)), -1, 1)
    x, y = (col * turn).astype(dtype), (row * turn).astype(dtype)
    for n in (*range(1, 37), 45, 60, 90, 180):
        wanted = np.searchsorted(180.0 / n * np.arange(1, n + 1), angles, side="right")
        cot = hog_rules.cotangents(n, np.dtype(dtype))
        reached, not_yet = wanted > 0, wanted < n - 1
        assert (x[reached] <= cot[wanted[reached] - 1] * y[reached]).all()
        assert not (x[not_yet] <= cot[wanted[not_yet]] * y[not_yet]).any()


def test_no_16_bit_difference_is_in_doubt():
    """Off the axes and diagonals, where products are exact, none is within 1e-12 radians of an edge."""
    y = np.arange(1, 65_536, dtype=float)  # int16 and uint16 differ by up to 65,535
    for n in (*range(2, 37), 45, 60, 90, 180):
        sines, cosines = hog_rules.edges(n)
        for s, c in zip(sines[1:], cosines[1:], strict=True):
            if abs(s - c) < 1e-9 or c < 1e-9:
                continue
            x = np.maximum(np.rint(c / s * y), 1.0)
            distance = abs(x * s - y * c) / np.hypot(x, y)
            assert distance[x < 65_536].min() > 1e-12


@pytest.mark.parametrize(("dtype", "sqrt", "exact"), [
    ("uint8", False, True), ("int16", False, True), ("bool", False, True), ("uint8", True, False),
    ("int32", False, False), ("float16", False, False), ("float64", False, False),
])  # fmt: skip
def test_which_pixels_are_decided_by_one_product(dtype, sqrt, exact):
    assert hog_rules.exact(np.dtype(dtype), sqrt) is exact


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-image's own
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_extractor_lets_bad_pixels_through_if_asked(backend):
    pixels = crops(data.camera(), 2) / np.float32(255)
    pixels[1, 4, 4] = np.nan
    with pytest.raises(ValueError, match="image 1 holds NaN"):
        HogExtractor(backend=backend).fit_transform(pixels)
    got = HogExtractor(backend=backend, check_finite=False, dtype="float64").fit_transform(pixels)
    wanted = reference.hog(pixels, HogLayout((50, 100)), "L2-Hys", False, "float64")
    assert np.isnan(got[1, :81]).any()
    assert np.isfinite(got[1, 81:]).all()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)


def test_the_tests_reach_gradients_in_doubt():
    """The lists of gradients set aside are not empty on the pictures above."""
    for kind in ("float64 / 255", "16 levels, root"):
        pixels, sqrt = PICTURES[kind](crops(data.camera(), 12))
        worker = cpu.Worker(pixels.dtype, HogLayout((50, 100), 12), 3, sqrt, np.dtype("float64"))
        worker(pixels, np.empty((12, worker.layout.n_features)), iter([slice(0, 12)]))
        assert worker.aside[3][0] > 0
