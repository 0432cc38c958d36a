"""The HoG function for users of CuPy and cuCIM, and pictures of histograms, under the double of CuPy (rung 4)."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from skimage import data
from skimage.feature import hog as scikit_hog

from pipeline import backends
from pipeline.backends import hog_rules
from pipeline.backends.cpu import hog as cpu_hog
from pipeline.features import HogLayout
from tests.cuda_on_host.build import need_compiler
from tests.cupy_double import installed
from tests.test_hog import pictures


@pytest.fixture(scope="module")
def module():
    need_compiler()
    with installed() as machine:
        machine.devices = 2
        backends.get("gpu")
        yield importlib.import_module("pipeline.backends.gpu.hog_features")


def test_one_image_and_a_batch(module):
    batch = pictures(3, (40, 48))
    wanted = np.stack([scikit_hog(image) for image in batch])
    one = module.hog(module.cp.asarray(batch[0]))
    many = module.hog(module.cp.asarray(batch))
    assert isinstance(one, module.cp.ndarray)
    assert one.shape == (wanted.shape[1],)
    np.testing.assert_allclose(one.get(), wanted[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(many.get(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("source", ["uint8", "int16", "float16", "float64", "bool"])
def test_scikit_images_parameters(module, source):
    image = pictures(1, (41, 50), source)[0]
    options = {
        "orientations": 8,
        "pixels_per_cell": (5, 6),
        "cells_per_block": (2, 3),
        "block_norm": "L1-sqrt",
    }
    options |= {"transform_sqrt": source != "int16", "feature_vector": False}
    got = module.hog(module.cp.asarray(image), **options, dtype="float64")
    wanted = scikit_hog(image, **options)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.get(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_colour(module, axis):
    image = data.astronaut()[100:150, 180:280]
    got = module.hog(module.cp.asarray(np.moveaxis(image, -1, axis)), channel_axis=axis)
    wanted = scikit_hog(image, channel_axis=-1)
    np.testing.assert_allclose(got.get(), wanted, rtol=0, atol=1e-6)


def test_arrays_of_other_libraries(module, monkeypatch):
    image = pictures(1, (24, 24))[0]
    device = module.cp.asarray(image)

    class Interface:
        __cuda_array_interface__ = {"shape": image.shape}  # noqa: RUF012

    class DLPack:
        def __dlpack_device__(self):
            return (2, 0)

    monkeypatch.setattr(module.cp, "asarray", lambda given: device if isinstance(given, Interface) else None)
    monkeypatch.setattr(
        module.cp, "from_dlpack", lambda given: device if isinstance(given, DLPack) else None, raising=False
    )
    for foreign in (Interface(), DLPack()):
        np.testing.assert_allclose(module.hog(foreign).get(), scikit_hog(image), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("image", "options", "error", "words"),
    [
        (np.zeros((24, 24)), {}, TypeError, "GPU memory, not ndarray"),
        ("device", {"visualize": True}, ValueError, "hog_image"),
        ("device", {"block_norm": "l2"}, ValueError, "block_norm"),
        ("device", {"pixels_per_cell": (9, 9)}, ValueError, "27 rows"),
        ("device", {"channel_axis": -1}, ValueError, "3 axes"),
        ("device", {"dtype": "float16"}, ValueError, "float32 or float64"),
    ],
)
def test_what_is_refused(module, image, options, error, words):
    given = module.cp.asarray(np.zeros((24, 24))) if isinstance(image, str) else image
    with pytest.raises(error, match=words):
        module.hog(given, **options)


def test_a_forgotten_channel_axis_is_named(module):
    """An image (h, w, 3) reads as h images of w x 3 pixels."""
    with pytest.raises(
        ValueError, match=r"smaller than one block.*if the last axis holds channels, give channel_axis=-1"
    ):
        module.hog(module.cp.asarray(data.astronaut()[:40, :50]))
    with pytest.raises(ValueError, match="smaller than one block") as told:
        module.hog(module.cp.asarray(np.zeros((5, 40, 10))))
    assert "channel_axis" not in str(told.value)


def test_an_image_on_another_gpu(module):
    image = pictures(1, (24, 24))[0]
    with module.cp.cuda.Device(1):
        there = module.cp.asarray(image)
    got = module.hog(there)
    assert (there.device.id, got.device.id, module.cp.cuda.Device().id) == (1, 1, 0)
    np.testing.assert_allclose(got.get(), scikit_hog(image), rtol=0, atol=1e-6)


def test_tables_that_are_kept_are_there_for_every_stream(module, monkeypatch):
    """What one call copies to the device, a call on another stream may use at once."""
    gpu_hog = importlib.import_module("pipeline.backends.gpu.hog")
    stream = module.cp.cuda.Stream(non_blocking=True)

    def copied_late(values):
        found = module.cp.full(values.shape, np.nan)
        stream.submit(lambda: found.host.__setitem__(..., values))
        return found

    monkeypatch.setattr(module.cp, "asarray", copied_late)
    monkeypatch.setattr(module.cp.cuda, "get_current_stream", lambda: stream)
    found = gpu_hog._edges.__wrapped__(9, "<f8", 0)
    np.testing.assert_array_equal(found.host, hog_rules.cotangents(9, np.dtype(float)))


def out_too_narrow(xp):
    return xp.zeros((2, 7), np.float32)


def out_of_another_type(xp):
    return xp.zeros((2, 81), np.float64)


def out_with_strides(xp):
    return xp.zeros((2, 162), np.float32)[:, ::2]


@pytest.mark.parametrize("make", [out_too_narrow, out_of_another_type, out_with_strides])
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_kernels_write_only_where_they_fit(module, name, make):
    """A kernel does not see the size of the array that it writes to."""
    pixels, xp = pictures(2, (24, 24)), module.cp if name == "gpu" else np
    out = make(xp)
    with pytest.raises(ValueError, match=r"out must be a C-contiguous array of float32 and shape \(2, 81\)"):
        backends.get(name).hog.hog(xp.asarray(pixels), HogLayout((24, 24)), "L2-Hys", False, "float32", out)


def test_negative_pixels_have_no_root(module):
    with pytest.raises(ValueError, match="transform_sqrt"):
        module.hog(module.cp.asarray(np.full((24, 24), -1.0)), transform_sqrt=True)


@pytest.mark.parametrize("source", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("cell", [(8, 8), (5, 3), (9, 12)])
def test_picture_of_the_descriptor(module, source, cell):
    pixels = pictures(2, (40, 52), source)
    layout = HogLayout((40, 52), 7, cell, (1, 1))
    gpu_hog = importlib.import_module("pipeline.backends.gpu.hog")
    got = gpu_hog.hog_image(module.cp.asarray(pixels), layout, False)
    wanted = cpu_hog.hog_image(pixels, layout, False)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got.get(), wanted, rtol=1e-5, atol=1e-5)


def test_large_images_take_two_kernels_in_chunks(module):
    pixels = pictures(2, (300, 330), "int16")
    layout = HogLayout((300, 330))
    got = importlib.import_module("pipeline.backends.gpu.hog").hog(
        module.cp.asarray(pixels), layout, "L2", False, "float32"
    )
    wanted = cpu_hog.hog(pixels, layout, "L2", False, "float64")
    np.testing.assert_allclose(got.get(), wanted, rtol=0, atol=1e-6)
