"""Rung 2: the HoG kernels' text, run on the CPU, passes the cpu backend's own tests, under several schedules."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.backends import hog_rules
from pipeline.backends.cpu import hog as cpu_hog
from pipeline.backends.gpu import hog_plan
from pipeline.config import BLOCK_NORMS
from pipeline.features import HogLayout
from tests import test_hog as cases
from tests.cuda_on_host.build import KernelError, need_compiler
from tests.cuda_on_host.host import Host
from tests.test_hog import (  # noqa: F401  the cpu backend's tests, run here on the kernels
    test_a_view_equals_its_copy,
    test_an_angle_just_below_180_votes_in_the_last_bin,
    test_cells_hold_means,
    test_gradients_within_rounding_of_an_edge,
    test_lines_vote_for_one_angle,
    test_no_vote_is_lost,
    test_row_48_of_50_matters_and_row_49_does_not,
    test_rows_and_columns_are_not_swapped,
    test_ties_between_channels_go_to_the_first,
)

SCHEDULES = [("forward", 0), ("reverse", 0), ("random", 1), ("random", 2)]


def hog(pixels, layout, block_norm, transform_sqrt, dtype):
    """Every case of the cpu backend's tests, under every schedule: the same bits."""
    hog_rules.check(pixels, layout, block_norm, transform_sqrt, dtype)
    found, *others = (
        Host(schedule=order, seed=seed).hog(pixels, layout, block_norm, transform_sqrt, dtype)
        for order, seed in SCHEDULES
    )
    for other in others:
        np.testing.assert_array_equal(other, found)
    return found


def cell_histograms(pixels, layout, transform_sqrt, dtype="float64"):
    host = Host()
    definitions = hog_plan.specialise(pixels.dtype, layout, "L2-Hys", transform_sqrt, dtype)
    images, cotangents = host.prepare(pixels, layout, transform_sqrt, dtype)
    found = host.cell_histograms(images, layout, definitions, cotangents)
    return found.reshape(len(pixels), *layout.cells, layout.orientations)


KERNELS = SimpleNamespace(hog=hog, _cell_histograms=cell_histograms)


@pytest.fixture(autouse=True)
def on_kernels(monkeypatch):
    """Let what the tests call `cpu` be the kernels."""
    need_compiler()
    monkeypatch.setattr(cases, "cpu", KERNELS)


def later(test):
    """Return a test of another module as a slow one: each combination is a kernel of its own to build."""
    made = FunctionType(test.__code__, test.__globals__, test.__name__)
    made.pytestmark = [*test.pytestmark, pytest.mark.slow.mark]
    return made


test_every_type_and_norm_on_pictures = later(cases.test_parity_on_pictures)
test_every_norm_over_layouts = later(cases.test_parity_over_layouts)
test_every_number_of_bins = later(cases.test_every_gradient_of_8_bit_images_falls_in_scikit_images_bin)


@pytest.mark.parametrize("k", range(len(cases.DTYPES)))
def test_pictures_of_every_type(k):
    """To one precision and the other by turns, each time with another norm."""
    norm, dtype = BLOCK_NORMS[(k + k // 4) % len(BLOCK_NORMS)], ("float32", "float64")[k % 2]
    cases.test_parity_on_pictures(cases.DTYPES[k], norm, dtype)


@pytest.mark.parametrize("k", range(len(cases.LAYOUTS)))
def test_layouts(k):
    shape, orientations, cell, block = cases.LAYOUTS[k]
    pixels = cases.pictures(2, shape, ("uint8", "float32")[k // 4 % 2])
    layout = HogLayout(shape, orientations, cell, block)
    cases.assert_parity(pixels, layout, BLOCK_NORMS[k % len(BLOCK_NORMS)], False, "float32")


@pytest.mark.parametrize(
    ("source", "orientations"), [("uint8", 9), ("uint8", 12), ("uint8", 78), ("int16", 4)]
)
def test_every_gradient_of_8_bit_images_falls_in_scikit_images_bin(source, orientations):
    cases.test_every_gradient_of_8_bit_images_falls_in_scikit_images_bin(source, orientations)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "case",
    [
        cases.test_a_negative_has_the_same_features,
        cases.test_ramp_in_one_block,
        cases.test_norms_of_a_known_block,
        cases.test_default_norm_is_l2_hys_and_may_exceed_its_clip,
        cases.test_square_root_of_negatives,
        cases.test_bool_equals_its_uint8_version,
        cases.test_complex_is_refused,
    ],
)
def test_case_of_every_backend(case):
    case(KERNELS)


@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_a_constant_image_gives_zeros(norm):
    cases.test_a_constant_image_gives_zeros(KERNELS, norm)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases.batches(), st.sampled_from(["float32", "float64"]), st.sampled_from(SCHEDULES), st.booleans())
def test_parity_property(batch, dtype, schedule, split):
    """Random layouts, types, norms and schedules, by either way to the features."""
    pixels, layout, norm, sqrt = batch
    sqrt = sqrt and pixels.min() >= 0
    host = Host(schedule=schedule[0], seed=schedule[1])
    got = host.hog(pixels, layout, norm, sqrt, dtype, split=split)
    wanted = cpu_hog.hog(pixels, layout, norm, sqrt, "float64")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=cases.PARITY)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("source", ["uint8", "float64"])
def test_schedules_do_not_change_a_bit(source, split):
    pixels = cases.pictures(7, (50, 100), source)
    results = [
        Host(schedule=order, seed=seed).hog(pixels, HogLayout((50, 100)), split=split)
        for order, seed in SCHEDULES
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_number_and_place_of_images_do_not_change_a_bit():
    pixels, layout = cases.pictures(9, (50, 100)), HogLayout((50, 100))
    whole = Host().hog(pixels, layout)
    for first, last in ((0, 1), (2, 9), (8, 9), (0, 0)):
        np.testing.assert_array_equal(Host().hog(pixels[first:last], layout), whole[first:last])


@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_images_beyond_shared_memory(norm):
    layout = HogLayout((300, 330))
    pixels = cases.pictures(2, (300, 330))
    assert (
        hog_plan.fused(layout, hog_plan.specialise(pixels.dtype, layout, norm, False, "float32"), 2) is None
    )
    got = Host().hog(pixels, layout, norm)
    np.testing.assert_allclose(got, cpu_hog.hog(pixels, layout, norm, False, "float64"), rtol=0, atol=1e-6)


def test_blocks_larger_than_a_cuda_block():
    layout = HogLayout((50, 100), 36, (8, 8), (4, 5))  # 720 features a block
    pixels = cases.pictures(3, (50, 100))
    wanted = cpu_hog.hog(pixels, layout, "L2-Hys", False, "float64")
    for split in (False, True):
        np.testing.assert_allclose(Host().hog(pixels, layout, split=split), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("source", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("style", ["photograph", "ties"])
def test_colour(source, style):  # scikit-image PR#2870
    from skimage import data

    batch = np.stack([data.astronaut()[100:150, 180:280], data.astronaut()[:50, :100]])
    batch = (batch // 64 * 3 if style == "ties" else batch).astype(source)
    layout = HogLayout((50, 100), channels=3)
    wanted = cases.reference.hog(batch, layout, "L2-Hys", False, "float64")
    got = Host().hog(batch, layout, dtype="float64")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=cases.PARITY)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-image's own
def test_bad_pixels_spoil_the_blocks_of_their_cells_only(bad, source):
    cases.test_bad_pixels_spoil_the_blocks_of_their_cells_only(bad, source)


def test_bytes_moved():
    layout = HogLayout((50, 100))
    assert hog_plan.bytes_moved(layout, np.dtype(np.uint8), "float32") == 5000 + 4 * 3240
    large = HogLayout((300, 330))
    cells = 4 * 37 * 41 * 9
    assert (
        hog_plan.bytes_moved(large, np.dtype(np.uint8), "float32") == 99000 + 4 * large.n_features + 2 * cells
    )


@pytest.mark.parametrize("orientations", [4, 8, 12])
def test_ties_survive_contraction(orientations):
    """A bin is decided by one product and a comparison: there is no sum that a * b + c could be fused into."""
    row, col = (a.ravel() for a in np.meshgrid(np.arange(1, 256), np.arange(1, 256), indexing="ij"))
    pixels = np.zeros((row.size, 3, 3), np.uint8)
    pixels[:, 2, 1], pixels[:, 1, 2] = row, col
    layout = HogLayout((3, 3), orientations, (3, 3), (1, 1))
    wanted = cpu_hog.hog(pixels, layout, "L1", False, "float64")
    for mode in ("plain", "contracted"):
        got = Host(mode=mode).hog(pixels, layout, "L1")
        np.testing.assert_allclose(got, wanted, rtol=0, atol=cases.PARITY)


def test_the_shim_reports_what_cuda_forbids():
    host = Host()
    layout = HogLayout((50, 100))
    pixels = np.zeros((1, 50, 100), np.uint8)

    def oversized(plan, arguments):
        return plan.__class__(plan.kernel, plan.macros, plan.grid, (2048,), plan.shared), arguments

    host.replace_launch = oversized
    with pytest.raises(KernelError, match="2048 x 1 x 1 threads is outside CUDA's limits"):
        host.hog(pixels, layout)
