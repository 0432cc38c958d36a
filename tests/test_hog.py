"""HoG of both backends and the extractor: equal to scikit-image, and the cases reported of others."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage import data
from skimage.feature import hog as scikit_hog

from pipeline.backends.cpu import hog as cpu
from pipeline.backends.cpu import preprocess as cpu_preprocess
from pipeline.backends.reference import hog as reference
from pipeline.backends.reference import preprocess as reference_preprocess
from pipeline.config import BLOCK_NORMS
from pipeline.features import HogExtractor, HogLayout, hog_image

BACKENDS = [cpu, reference]
DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "uint32",
    "int64",
    "float16",
    "float32",
    "float64",
]
PARITY = 1e-6


def pictures(n: int, shape: tuple[int, int], dtype: str = "uint8") -> np.ndarray:
    """Crops of a photograph: natural statistics, with the many exact diagonals that they bring."""
    rng = np.random.default_rng(7)
    camera = data.camera()
    rows, cols = rng.integers(0, 512 - shape[0], n), rng.integers(0, 512 - shape[1], n)
    crops = np.stack([camera[r : r + shape[0], c : c + shape[1]] for r, c in zip(rows, cols, strict=True)])
    return crops > 120 if dtype == "bool" else crops.astype(dtype)


def assert_parity(pixels, layout, norm="L2-Hys", sqrt=False, dtype="float64"):
    wanted = reference.hog(pixels, layout, norm, sqrt, "float64")
    got = cpu.hog(pixels, layout, norm, sqrt, dtype)
    assert got.dtype == dtype
    assert got.shape == wanted.shape == (len(pixels), layout.n_features)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=PARITY)


@pytest.mark.parametrize(
    ("one", "other"), [(cpu, reference), (cpu_preprocess, reference_preprocess)], ids=["hog", "preprocess"]
)
def test_backends_offer_the_same_functions(one, other):
    def public(module):
        return {
            name: inspect.signature(function)
            for name, function in inspect.getmembers(module, inspect.isfunction)
            if not name.startswith("_") and function.__module__ == module.__name__
        }

    assert public(one) == public(other)
    assert public(one)


def test_reference_is_scikit_image():
    pixels = pictures(2, (40, 48))
    layout = HogLayout((40, 48), 8, (5, 6), (2, 3))
    got = reference.hog(pixels, layout, "L1-sqrt", True, "float64")
    wanted = [scikit_hog(image, 8, (5, 6), (2, 3), "L1-sqrt", transform_sqrt=True) for image in pixels]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", BLOCK_NORMS)
@pytest.mark.parametrize("source", DTYPES)
def test_parity_on_pictures(source, norm, dtype):
    assert_parity(pictures(3, (50, 100), source), HogLayout((50, 100)), norm, source == "uint8", dtype)
    assert_parity(pictures(3, (51, 97), source), HogLayout((51, 97), 12, (5, 10), (2, 3)), norm, False, dtype)


LAYOUTS = [
    ((51, 97), 9, (7, 7), (3, 3)),  # scikit-image PR#234: sizes that are no multiple of the cell
    ((55, 103), 9, (5, 10), (3, 3)),
    ((9, 11), 9, (1, 1), (1, 1)),
    ((50, 100), 180, (8, 8), (2, 2)),
    ((50, 100), 1, (8, 8), (2, 2)),
    ((50, 100), 18, (10, 10), (5, 10)),
    ((40, 300), 9, (8, 8), (3, 3)),  # more than one tile of columns
    ((40, 310), 9, (9, 31), (2, 2)),  # cells larger than 100 pixels: scikit-image's order
    ((100, 100), 7, (50, 50), (2, 2)),
    ((8, 8), 4, (8, 8), (1, 1)),
    ((24, 2), 4, (8, 1), (1, 1)),
    ((3, 1), 5, (1, 1), (2, 1)),
    ((2, 200), 9, (1, 97), (1, 1)),
    ((20, 200), 9, (1, 96), (2, 2)),
    ((1, 9), 5, (1, 2), (1, 3)),
    ((1, 1), 9, (1, 1), (1, 1)),
]  # pixels, orientations, pixels of a cell, cells of a block


@pytest.mark.parametrize(("shape", "orientations", "cell", "block"), LAYOUTS)
@pytest.mark.parametrize("source", ["uint8", "float32"])
def test_parity_over_layouts(shape, orientations, cell, block, source):
    layout = HogLayout(shape, orientations, cell, block)
    for norm in BLOCK_NORMS:
        assert_parity(pictures(2, shape, source), layout, norm, False, "float32")


@st.composite
def batches(draw):
    rows, cols = draw(st.integers(1, 24)), draw(st.integers(1, 110))
    cell = (draw(st.integers(1, min(rows, 12))), draw(st.integers(1, min(cols, 13))))
    block = (draw(st.integers(1, min(3, rows // cell[0]))), draw(st.integers(1, min(3, cols // cell[1]))))
    layout = HogLayout((rows, cols), draw(st.integers(1, 20)), cell, block)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = (draw(st.integers(1, 2)), rows, cols)
    style = draw(st.sampled_from(["small", "wide", "random"]))
    if style == "random" or dtype.kind == "b":
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        if dtype.kind == "f":
            exponent = draw(st.integers(-30, 30)) if dtype != np.float16 else 0
            pixels = (rng.normal(size=shape) * 10.0**exponent).astype(dtype)
        elif dtype.kind == "b":
            pixels = rng.random(shape) > 0.5
        else:
            info = np.iinfo(dtype)
            pixels = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    elif dtype.kind == "f":
        few = [0.0, 1.0, 0.5, 3.0] if style == "small" else [0.0, 1.0, -2.0, 1e-4, 0.3, 60000.0]
        pixels = draw(hnp.arrays(dtype, shape, elements=st.sampled_from(few), fill=st.just(0)))
    else:
        limits = (0, 4) if style == "small" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        pixels = draw(hnp.arrays(dtype, shape, elements=st.integers(*limits), fill=st.just(0)))
    return pixels, layout, draw(st.sampled_from(BLOCK_NORMS)), draw(st.booleans())


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(batches(), st.sampled_from(["float32", "float64"]))
def test_parity_property(batch, dtype):
    pixels, layout, norm, sqrt = batch
    sqrt = sqrt and pixels.min() >= 0
    assert_parity(pixels, layout, norm, sqrt, dtype)


@pytest.mark.parametrize(
    ("source", "orientations"),
    [("uint8", n) for n in (2, 4, 5, 8, 9, 12, 16, 18, 20, 36, 78, 180, 338)]
    + [("int16", n) for n in (4, 9, 36)],
)
def test_every_gradient_of_8_bit_images_falls_in_scikit_images_bin(source, orientations):
    """All 511 x 511 pairs: a 3 x 3 image each, whose middle pixel has that gradient; ties included."""
    steps = np.arange(-255, 256)
    row, col = (a.ravel() for a in np.meshgrid(steps, steps, indexing="ij"))
    pixels = np.zeros((row.size, 3, 3), source)
    pixels[:, 2, 1], pixels[:, 0, 1] = np.maximum(row, 0), np.maximum(-row, 0)
    pixels[:, 1, 2], pixels[:, 1, 0] = np.maximum(col, 0), np.maximum(-col, 0)
    if orientations > 20:  # memory: every seventh pair, diagonals among them
        some = (np.abs(row) + np.abs(col)) % 7 == 0
        pixels, row, col = pixels[some], row[some], col[some]
    # an image is one cell: its rim sees only zero differences, so that the middle pixel is the only vote
    edges = 180.0 / orientations * np.arange(1, orientations)
    wanted = np.searchsorted(edges, np.rad2deg(np.arctan2(row.astype(float), col)) % 180, side="right")
    layout = HogLayout((3, 3), orientations, (3, 3), (1, 1))
    hist = cpu._cell_histograms(pixels, layout, False, "float32")[:, 0, 0] * 9
    index = np.arange(len(row))
    np.testing.assert_allclose(hist[index, wanted], np.hypot(row, col), rtol=1e-6)
    np.testing.assert_allclose(hist.sum(axis=1), np.hypot(row, col), rtol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        (1.0, 1e-20),  # imageproc#127: 180 degrees by rounding: no vote, and no write beyond the bins
        (1e-20, 1.0),
        (1.0, np.nextafter(1.0, 2.0)),
        (1e-200, 1e-190),
        (3e38, -3e38),  # float32 differences overflow
        (1e300, -1e300),
        (1e-42, 3e-42),
    ],
)
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("orientations", [4, 9, 12])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-image's own overflow
def test_gradients_within_rounding_of_an_edge(values, source, orientations):
    low, high = values
    pixels = np.zeros((8, 24, 24))
    for k, (a, b) in enumerate([(low, high), (high, low), (-low, high), (low, -high)]):
        pixels[k, 4::5, 3::4], pixels[k, 5::5, 4::4] = a, b
        pixels[4 + k, :, ::3], pixels[4 + k, ::3] = a, b
    pixels = pixels.astype(source)
    layout = HogLayout((24, 24), orientations)
    wanted = reference.hog(pixels, layout, "L2", False, "float64")
    got = cpu.hog(pixels, layout, "L2", False, "float64")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=PARITY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_image_smaller_than_a_block(backend):  # scikit-image#7064, opencv#13797
    for shape in ((16, 193), (23, 24)):
        with pytest.raises(ValueError, match="24 rows and 24 cols"):
            HogExtractor(backend=backend.__name__.split(".")[-2]).fit(np.zeros((4, *shape), np.uint8))
    layout = HogLayout((24, 24))
    assert backend.hog(np.zeros((4, 24, 24), np.uint8), layout, "L2-Hys", False, "float32").shape == (4, 81)


def test_rows_and_columns_are_not_swapped():  # scikit-image PR#192
    assert_parity(pictures(3, (50, 100)), HogLayout((50, 100)))
    assert_parity(pictures(3, (100, 50)), HogLayout((100, 50)))


def test_row_48_of_50_matters_and_row_49_does_not():  # scikit-image PR#234
    pixels = pictures(1, (50, 100))
    layout = HogLayout((50, 100))
    base = cpu.hog(pixels, layout, "L2-Hys", False, "float32")
    for row, same in ((48, False), (49, True)):
        changed = pixels.copy()
        changed[:, row] ^= 255
        assert np.array_equal(cpu.hog(changed, layout, "L2-Hys", False, "float32"), base) is same


def test_an_angle_just_below_180_votes_in_the_last_bin():  # scikit-image#691
    pixels = np.zeros((1, 3, 3), np.uint8)
    pixels[0, 0, 1], pixels[0, 1, 2] = 1, 40  # gradient (-1, 40)
    hist = cpu._cell_histograms(pixels, HogLayout((3, 3), 8, (3, 3), (1, 1)), False)[0, 0, 0]
    assert hist.argmax() == 7


@pytest.mark.parametrize("orientations", [7, 8, 9, 11, 16])
def test_no_vote_is_lost(orientations):  # scikit-image#691
    pixels = pictures(2, (40, 48), "float64")
    rows, cols = np.zeros_like(pixels), np.zeros_like(pixels)
    rows[:, 1:-1], cols[:, :, 1:-1] = pixels[:, 2:] - pixels[:, :-2], pixels[:, :, 2:] - pixels[:, :, :-2]
    mean = np.hypot(rows, cols).reshape(2, 5, 8, 6, 8).mean(axis=(2, 4))
    hist = cpu._cell_histograms(pixels.astype(np.uint8), HogLayout((40, 48), orientations), False)
    np.testing.assert_allclose(hist.sum(axis=-1), mean, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_negative_has_the_same_features(backend):  # scikit-image PR#244
    pixels = pictures(2, (50, 100))
    layout = HogLayout((50, 100))
    one, other = (backend.hog(p, layout, "L2-Hys", False, "float32") for p in (pixels, 255 - pixels))
    np.testing.assert_allclose(one, other, atol=PARITY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ramp_in_one_block(backend):  # scikit-image#2809
    ramp = np.tile(np.arange(24.0), (1, 24, 1))
    layout = HogLayout((24, 24), cells_per_block=(1, 1))
    first = backend.hog(ramp, layout, "L1", False, "float64")[0, 0]
    assert first == pytest.approx(1.75 / (1.75 + 1e-5), abs=1e-9)


@pytest.mark.parametrize("cell", [(4, 4), (8, 8), (5, 3)])
def test_cells_hold_means(cell):  # scikit-image#1648
    ramp = np.tile(np.arange(40.0), (1, 40, 1))
    hist = cpu._cell_histograms(ramp, HogLayout((40, 40), 9, cell, (1, 1)), False)
    assert hist[0, 1, 1, 0] == pytest.approx(2.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_norms_of_a_known_block(backend):  # scikit-image#2335, scikit-image#2350
    pixels = np.zeros((1, 3, 6))  # two cells, each with one strong and a few weak votes
    pixels[0, 1, 2], pixels[0, 2, 4] = 27, 36
    pixels[0, 1, 0], pixels[0, 0, 4] = 0, 0
    layout = HogLayout((3, 6), 2, (3, 3), (1, 2))
    v = reference_cells(pixels, layout)
    for norm, wanted in {
        "L2": v / np.sqrt((v**2).sum() + 1e-10),
        "L1": v / (v.sum() + 1e-5),
        "L1-sqrt": np.sqrt(v / (v.sum() + 1e-5)),
    }.items():
        np.testing.assert_allclose(backend.hog(pixels, layout, norm, False, "float64")[0], wanted, atol=1e-9)


def reference_cells(pixels, layout):
    return cpu._cell_histograms(pixels, layout, False)[0].reshape(-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_norm_is_l2_hys_and_may_exceed_its_clip(backend):  # scikit-image PR#2040
    pixels = np.zeros((1, 24, 24), np.uint8)
    pixels[:, :, 12:] = 255
    assert HogExtractor().block_norm == "L2-Hys"
    got = backend.hog(pixels, HogLayout((24, 24)), "L2-Hys", False, "float64")
    np.testing.assert_allclose(got[0], scikit_hog(pixels[0]), atol=PARITY)
    assert got.max() == pytest.approx(0.57735, abs=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_square_root_of_negatives(backend):  # scikit-image#1889
    pixels = np.full((1, 24, 24), -3, np.int16)
    with pytest.raises(ValueError, match="transform_sqrt"):
        backend.hog(pixels, HogLayout((24, 24)), "L2-Hys", True, "float32")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sqrt", [False, True])
@pytest.mark.parametrize("dtype", [">u2", ">i4", ">f2", ">f4", ">f8"])
def test_the_order_of_bytes_changes_no_bit(backend, dtype, sqrt):
    """Few levels in colour: ties between channels. float32 of the other order was subtracted in float64: .07 off."""
    levels = np.random.default_rng(0).integers(0, 4, (4, 24, 40, 3))
    pixels = (levels / 3 if dtype[1] == "f" else levels).astype(dtype)
    layout = HogLayout((24, 40), channels=3)
    one, other = (
        backend.hog(p, layout, "L2-Hys", sqrt, "float64") for p in (pixels, pixels.astype(dtype[1:]))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("axis", [1.5, "a", True, 0, 4, np.array([1])])
def test_an_axis_that_is_none_is_refused(axis):
    with pytest.raises(ValueError, match="channel_axis must be 1, 2, 3, -1, -2 or -3, not"):
        HogExtractor(channel_axis=axis).fit(np.zeros((1, 24, 24, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_bool_equals_its_uint8_version(backend):  # scikit-image#3686
    mask = pictures(2, (50, 100), "bool")
    layout = HogLayout((50, 100))
    one, other = (backend.hog(p, layout, "L2-Hys", False, "float64") for p in (mask, mask.astype(np.uint8)))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("source", ["uint8", "float32", "float64", "bool"])
@pytest.mark.parametrize("axis", [1, 2, 3, -1, -3])
def test_colour(axis, source):  # scikit-image PR#2870
    colour = data.astronaut()[100:150, 180:280]
    batch = np.stack(
        [colour, colour[::-1], (colour // 64) * 3]
    )  # the last one has many ties between channels
    batch = batch > 100 if source == "bool" else batch.astype(source)
    moved = np.moveaxis(batch, -1, axis)
    for dtype in ("float64", "float32"):
        got = HogExtractor(channel_axis=axis, dtype=dtype).fit_transform(moved)
        np.testing.assert_allclose(got, [scikit_hog(i, channel_axis=-1) for i in batch], rtol=0, atol=PARITY)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("top", [9, 60, 256])  # lengths of unlike gradients are equal, too: 1, 7 and 5, 5
def test_ties_between_channels_go_to_the_first(top, dtype):  # scikit-image PR#2870
    rng = np.random.default_rng(0)
    batch = rng.integers(0, top, (20, 24, 24, 4)).astype(np.uint8)
    for n in (4, 9):
        assert_parity(batch, HogLayout((24, 24), n, channels=4), dtype=dtype)


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("source", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("cell", [(8, 8), (5, 3), (2, 2), (9, 12)])
def test_picture_of_the_descriptor(cell, source, channels):  # scikit-image#2453
    shape = (3, 40, 52) if channels is None else (3, 40, 52, channels)
    pixels = (np.random.default_rng(3).random(shape) * 255).astype(source)
    options = {"orientations": 7, "pixels_per_cell": cell, "cells_per_block": (1, 1)}
    axis = None if channels is None else -1
    got = hog_image(pixels, channel_axis=axis, **options)
    wanted = np.stack([scikit_hog(i, visualize=True, channel_axis=axis, **options)[1] for i in pixels])
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    same = hog_image(pixels, channel_axis=axis, backend="reference", **options)
    np.testing.assert_array_equal(same, wanted)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_no_picture_of_cells_of_one_pixel(backend):
    with pytest.raises(ValueError, match="at least 2 x 2 pixels"):
        hog_image(np.zeros((1, 9, 9)), pixels_per_cell=(1, 4), cells_per_block=(1, 1), backend=backend)


@pytest.mark.parametrize("source", ["uint8", "float32", "uint16"])
def test_a_view_equals_its_copy(source):  # opencv#7770
    whole = pictures(4, (70, 140), source)
    layout = HogLayout((50, 60))
    wide = pictures(4, (100, 120), source)
    views = [
        whole[:, 5:55, 7:67],
        whole[::-1, 5:55, 7:67][:, ::-1, ::-1],
        wide[:, ::2, ::2],
        np.asfortranarray(whole[:, :50, :60]),
        np.swapaxes(np.ascontiguousarray(np.swapaxes(whole[:, :50, :60], 1, 2)), 1, 2),
        np.broadcast_to(whole[:1, :50, :60], (4, 50, 60)),
    ]
    for view in views:
        one, other = (cpu.hog(p, layout, "L2-Hys", False, "float32") for p in (view, view.copy()))
        np.testing.assert_array_equal(one, other)
        assert_parity(view, layout)


def test_unknown_settings_are_refused():  # opencv#9224
    with pytest.raises(TypeError):
        HogExtractor(bins=9)
    with pytest.raises(ValueError, match=r"block_norm.*L2-Hys"):
        HogExtractor(block_norm="l2").fit_transform(np.zeros((1, 24, 24)))
    with pytest.raises(ValueError, match="dtype"):
        HogExtractor(dtype="float16").fit_transform(np.zeros((1, 24, 24)))


def test_another_size_at_transform_is_told_with_both_layouts():  # object-detector#8
    extractor = HogExtractor().fit(np.zeros((2, 50, 100), np.uint8))
    with pytest.raises(ValueError, match=r"81 features .*24 x 24.*3240 features .*50 x 100"):
        extractor.transform(np.zeros((2, 24, 24), np.uint8))


def test_unequal_sizes_name_the_first_offender():  # Syllabus-2017-2#19
    images = [np.zeros((50, 100)), np.zeros((50, 100)), np.zeros((50, 99)), np.zeros((49, 100))]
    with pytest.raises(ValueError, match=r"image 2 has shape \(50, 99\)"):
        HogExtractor().fit(images)


def test_lines_vote_for_one_angle():  # dlib#1515
    pixels = np.zeros((1, 15, 15), np.uint8)
    pixels[:, ::3] = 255
    got = cpu.hog(pixels, HogLayout((15, 15), 4, (5, 5), (1, 1)), "L2", False, "float64").reshape(-1, 4)
    assert (got[:, 2] > 0.99).all()
    assert not got[:, [0, 1, 3]].any()


@pytest.mark.parametrize("n", [0, 1, 9, 32, 10_000])
def test_any_number_of_images(n):  # OpenImageR#22
    base = pictures(10, (24, 24))
    pixels = np.resize(base, (n, 24, 24))
    got = HogExtractor().fit(base).transform(pixels)
    assert got.shape == (n, 81)
    assert got.dtype == np.float32
    single = cpu.hog(base, HogLayout((24, 24)), "L2-Hys", False, "float32")
    np.testing.assert_array_equal(got, np.resize(single, (n, 81)))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_colour_image_is_no_batch_of_narrow_ones(backend):  # HOGNumPy#1
    with pytest.raises(ValueError, match="channel_axis=-1"):
        HogExtractor(backend=backend).fit(np.zeros((50, 100, 3), np.uint8))
    with pytest.raises(ValueError, match="channel_axis=-1"):
        HogExtractor(backend=backend).fit(np.zeros((2, 50, 100, 3), np.uint8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_a_constant_image_gives_zeros(backend, norm):
    pixels = np.full((2, 50, 100), 77, np.uint8)
    assert not backend.hog(pixels, HogLayout((50, 100)), norm, False, "float32").any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_is_refused(backend):
    with pytest.raises(ValueError, match="complex"):
        backend.hog(np.zeros((1, 24, 24), complex), HogLayout((24, 24)), "L2", False, "float32")
    with pytest.raises(ValueError, match="complex"):
        HogExtractor().fit(np.zeros((1, 24, 24), complex))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_extractor_refuses_what_is_not_finite(bad):
    pixels = np.zeros((300, 24, 24), np.float32)
    pixels[290, 3, 3] = bad
    with pytest.raises(ValueError, match="image 290"):
        HogExtractor().fit_transform(pixels)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-image's own
def test_bad_pixels_spoil_the_blocks_of_their_cells_only(bad, source):
    pixels = pictures(3, (50, 100), source)
    layout = HogLayout((50, 100))
    clean = cpu.hog(pixels, layout, "L2-Hys", False, "float64")
    pixels[1, 4, 4] = bad  # well inside cell (0, 0), which is part of block (0, 0) only
    got = cpu.hog(pixels, layout, "L2-Hys", False, "float64")
    np.testing.assert_array_equal(np.delete(got, 1, axis=0), np.delete(clean, 1, axis=0))
    assert np.isnan(got[1, :81]).any()
    np.testing.assert_allclose(got[1, 81:], clean[1, 81:], atol=PARITY)
    wanted = reference.hog(pixels, layout, "L2-Hys", False, "float64")
    np.testing.assert_allclose(got, wanted, rtol=0, atol=PARITY)


def test_threads_do_not_change_a_bit():
    import numba

    pixels = pictures(333, (50, 100))
    layout = HogLayout((50, 100))
    before = numba.get_num_threads()
    try:
        results = []
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            results.append(cpu.hog(pixels, layout, "L2-Hys", False, "float32"))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])


def test_memory_is_the_result_and_little_more():
    import tracemalloc

    pixels = pictures(1, (50, 100)).repeat(4000, axis=0)
    layout = HogLayout((50, 100))
    cpu.hog(pixels[:200], layout, "L2-Hys", False, "float32")
    for source in ("uint8", "uint16"):
        batch = pixels.astype(source)
        cpu.hog(batch[:200], layout, "L2-Hys", False, "float32")
        tracemalloc.start()
        out = cpu.hog(batch, layout, "L2-Hys", False, "float32")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < out.nbytes + 32e6  # one n x h x w float64 temporary would be 160 MB
