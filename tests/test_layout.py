"""HogLayout: counts, names, places and refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from skimage.feature import hog

from pipeline.features.layout import HogLayout


@pytest.mark.parametrize("shape", [(50, 100), (100, 50), (51, 97), (24, 24)])
@pytest.mark.parametrize("orientations", [1, 8, 9])
@pytest.mark.parametrize("cell", [(8, 8), (5, 10), (7, 3)])
@pytest.mark.parametrize("block", [(1, 1), (2, 2), (3, 2)])
def test_length_is_scikit_images(shape, orientations, cell, block):  # sdc-issue-reports#687
    layout = HogLayout(shape, orientations, cell, block)
    features = hog(np.zeros(shape), orientations, cell, block, feature_vector=False)
    assert layout.feature_shape == features.shape
    assert layout.n_features == features.size == len(layout.feature_names())


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({}, 3240),
        ({"cells_per_block": (2, 2)}, 1980),
        ({"pixels_per_cell": (10, 10), "cells_per_block": (2, 2)}, 1296),
    ],
)
def test_known_lengths(settings, length):
    assert HogLayout((50, 100), **settings).n_features == length


def test_rows_and_columns_are_not_swapped():  # scikit-image PR#192
    assert HogLayout((50, 100)).blocks == (4, 10)
    assert HogLayout((100, 50)).blocks == (10, 4)


def test_names_cells_centres_and_angles_belong_together():
    layout = HogLayout((50, 100), 9, (8, 4), (3, 2))
    names = layout.feature_names()
    assert len(set(names)) == layout.n_features
    at = names.index("block_1_3_cell_2_1_bin_7")
    assert layout.cell_index()[at] == (1 + 2) * layout.cells[1] + (3 + 1)
    np.testing.assert_allclose(layout.centres()[at], [(3 + 0.5) * 8, (4 + 0.5) * 4])
    assert layout.angles()[at] == pytest.approx(150.0)
    assert layout.cell_index().max() == np.prod(layout.cells) - 1
    assert layout.centres().shape == (layout.n_features, 2)
    assert layout.angles().shape == layout.cell_index().shape == (layout.n_features,)


def test_a_feature_moves_with_the_pixels_of_its_cell():
    layout = HogLayout((50, 100))
    image = np.zeros((50, 100))
    image[11:13, 43:46] = 1.0  # inside cell (1, 5)
    touched = np.flatnonzero(hog(image))
    assert set(layout.cell_index()[touched]) == {1 * 12 + 5}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"orientations": 0}, "orientations"),
        ({"orientations": -3}, "orientations"),
        ({"orientations": 8.5}, "orientations"),
        ({"pixels_per_cell": (0, 8)}, "pixels_per_cell"),
        ({"pixels_per_cell": (8, -1)}, "pixels_per_cell"),
        ({"pixels_per_cell": 8}, "pixels_per_cell"),
        ({"cells_per_block": (3, 0)}, "cells_per_block"),
        ({"cells_per_block": (3, 3, 3)}, "cells_per_block"),
        ({"channels": 0}, "channels"),
    ],
)
def test_settings_below_one_are_named(settings, name):  # opencv#15287
    with pytest.raises(ValueError, match=name):
        HogLayout((50, 100), **settings)


def test_an_image_smaller_than_a_block_is_told_what_is_needed():  # opencv#13797, opencv#23989
    with pytest.raises(ValueError, match=r"23 rows and 24 cols.*at least 24 rows and 24 cols"):
        HogLayout((23, 24))


def test_a_layout_is_a_value():
    assert HogLayout([50, 100]) == HogLayout((50, 100))
    assert len({HogLayout((50, 100)), HogLayout((np.int64(50), 100))}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        HogLayout((50, 100)).orientations = 8


def test_per_cell_sums_over_blocks_and_orientations():
    layout = HogLayout((50, 100))
    counts = layout.per_cell(np.ones(layout.n_features))
    assert counts.shape == layout.cells == (6, 12)
    assert counts[0, 0] == 9  # a corner cell lies in one block
    assert counts[2, 5] == 9 * 9  # an inner cell in nine
    one = np.zeros(layout.n_features)
    one[layout.feature_names().index("block_1_4_cell_2_0_bin_3")] = 2.5
    found = layout.per_cell(one)
    assert found[3, 4] == found.sum() == 2.5
    with pytest.raises(ValueError, match="one number per feature"):
        layout.per_cell(np.ones(5))
