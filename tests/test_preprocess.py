"""Preprocessing: the cpu backend gives what scikit-image gives."""

from __future__ import annotations

import numpy as np
import pytest
from skimage import data, exposure, filters

from pipeline.backends.cpu import preprocess as cpu
from pipeline.backends.reference import preprocess as reference
from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import ConfigError

STEPS = [
    Preprocess(PreprocessName.none),
    Preprocess(PreprocessName.stretch),
    Preprocess(PreprocessName.stretch, percentiles=[0.0, 100.0]),
    Preprocess(PreprocessName.stretch, percentiles=[7.3, 61.7]),
    Preprocess(PreprocessName.gaussian),
    Preprocess(PreprocessName.gaussian, sigma=0.0),
    Preprocess(PreprocessName.gaussian, sigma=2.5),
    Preprocess(PreprocessName.equalize),
    Preprocess(PreprocessName.equalize, nbins=16),
    Preprocess(PreprocessName.clahe),
    Preprocess(PreprocessName.clahe, kernel_size=7, clip_limit=0.1, nbins=64),
]


def name(step: Preprocess) -> str:
    return step.name.value


def pictures(dtype: str) -> np.ndarray:
    camera = data.camera()
    crops = np.stack([camera[r : r + 30, c : c + 44] for r, c in ((0, 0), (200, 210), (300, 90))])
    crops = np.concatenate([crops, np.full((1, 30, 44), 7, np.uint8), (crops[:1] > 128).astype(np.uint8)])
    return (crops / 255).astype(dtype) if np.dtype(dtype).kind == "f" else crops.astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("step", STEPS, ids=name)
def test_cpu_gives_what_scikit_image_gives(step, dtype):
    pixels = pictures(dtype)
    before = pixels.copy()
    wanted, got = reference.apply(pixels, step), cpu.apply(pixels, step)
    assert got.dtype == wanted.dtype
    assert got.shape == pixels.shape
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(pixels, before)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("dtype", [">u2", ">f2", ">f4", ">f8"])
@pytest.mark.parametrize("step", STEPS, ids=name)
def test_the_order_of_bytes_changes_no_bit(step, dtype):
    pixels = pictures(dtype)
    wanted = cpu.apply(pixels.astype(pixels.dtype.newbyteorder("=")), step)
    np.testing.assert_array_equal(cpu.apply(pixels, step), wanted)


def test_reference_calls_scikit_image_with_the_stated_parameters():
    pixels = pictures("uint8")
    low, high = np.percentile(pixels[1], (2, 98))
    stretched = exposure.rescale_intensity(pixels[1], in_range=(low, high))
    np.testing.assert_array_equal(reference.apply(pixels, STEPS[1])[1], stretched)
    smooth = filters.gaussian(pixels[1], sigma=2.5, preserve_range=True)
    np.testing.assert_array_equal(reference.apply(pixels, STEPS[6])[1], smooth.astype(np.float32))
    equal = exposure.equalize_adapthist(pixels[1], kernel_size=7, clip_limit=0.1, nbins=64)
    np.testing.assert_array_equal(reference.apply(pixels, STEPS[-1])[1], equal.astype(np.float32))


@pytest.mark.parametrize("backend", [cpu, reference])
def test_ranges_are_as_documented(backend):
    pixels = pictures("uint8")
    assert backend.apply(pixels, Preprocess()) is pixels
    stretched = backend.apply(pixels, Preprocess(PreprocessName.stretch))
    assert stretched.dtype == np.uint8
    assert (stretched[0].min(), stretched[0].max()) == (0, 255)
    smooth = backend.apply(pixels, Preprocess(PreprocessName.gaussian))
    assert smooth.dtype == np.float32
    assert smooth.max() > 100
    for step in (Preprocess(PreprocessName.equalize), Preprocess(PreprocessName.clahe)):
        got = backend.apply(pixels, step)
        assert got.dtype == np.float32
        assert got.min() >= 0
        assert 0.9 < got.max() <= 1


@pytest.mark.parametrize("step", STEPS[1:], ids=name)
@pytest.mark.parametrize("value", [0, 7, 255])
def test_a_constant_image_gives_finite_values(step, value):
    pixels = np.full((2, 24, 24), value, np.uint8)
    got = cpu.apply(pixels, step)
    assert np.isfinite(got).all()
    if (
        step.name is not PreprocessName.clahe
    ):  # scikit-image's CLAHE stretches its own rounding to the full range
        assert np.ptp(got) < 1e-4
    np.testing.assert_allclose(got, reference.apply(pixels, step), atol=1e-5)


@pytest.mark.parametrize("step", STEPS, ids=name)
def test_views_and_batches_of_any_length(step):
    pixels = pictures("uint8")
    view = pixels[::-1, ::-1, ::2]
    np.testing.assert_array_equal(cpu.apply(view, step), cpu.apply(view.copy(), step))
    assert cpu.apply(pixels[:0], step).shape == (0, 30, 44)
    many = np.tile(pixels, (26, 1, 1))[:129]  # more than two chunks
    np.testing.assert_array_equal(cpu.apply(many, step)[125:], cpu.apply(pixels, step)[:4])


@pytest.mark.parametrize("backend", [cpu, reference])
@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (np.zeros((2, 8, 8, 3), np.uint8), "grayscale"),
        (np.zeros((2, 8, 8), bool), "bool"),
        (np.full((2, 8, 8), np.nan), "finite"),
        (np.full((2, 8, 8), 2.0), "-1 to 1"),
    ],
)
def test_bad_input_is_named(backend, pixels, words):
    with pytest.raises(ValueError, match=words):
        backend.apply(pixels, Preprocess(PreprocessName.clahe))


@pytest.mark.parametrize("backend", [cpu, reference])
def test_a_kernel_larger_than_the_image_is_refused(backend):
    pixels = pictures("uint8")
    with pytest.raises(
        ConfigError, match=r"preprocess\.kernel_size is 5000 .*30 rows and 44 cols allow 1 to 44"
    ):
        backend.apply(pixels, Preprocess(PreprocessName.clahe, kernel_size=5000))
    backend.apply(pixels[:1], Preprocess(PreprocessName.clahe, kernel_size=44))
    backend.apply(pixels[:1], Preprocess(PreprocessName.gaussian, kernel_size=5000))  # of no meaning there
