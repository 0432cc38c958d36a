"""Where each HoG feature comes from: cells, blocks, names and angles, in integers only."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np


@dataclass(frozen=True)
class HogLayout:
    """The shape of a HoG descriptor for images of one size.

    A cell is a rectangle of pixels with one histogram of gradient angles; a block is a rectangle of cells
    that is normalised together. Blocks overlap: they advance by one cell. Pixels right of and below the last
    whole cell cast no vote. The features of one image are ordered (block row, block column, cell row in the
    block, cell column in the block, orientation bin), in C order.

    Parameters
    ----------
    image_shape : tuple of int
        Rows and columns of the images, in pixels.
    orientations : int
        Number of bins in 0 to 180 degrees.
    pixels_per_cell : tuple of int
        Rows and columns of a cell, in pixels.
    cells_per_block : tuple of int
        Rows and columns of a block, in cells.
    channels : int or None
        Number of channels of a colour image; None for grayscale. Features are as many either way: each pixel
        votes with the channel of largest gradient.

    Raises
    ------
    ValueError
        If a setting is not a whole number of at least 1, or the image is smaller than one block.

    References
    ----------
    Dalal, N. and Triggs, B., Histograms of Oriented Gradients for Human Detection, CVPR 2005.

    Examples
    --------
    >>> HogLayout((50, 100)).n_features
    3240
    """

    image_shape: tuple[int, int]
    orientations: int = 9
    pixels_per_cell: tuple[int, int] = (8, 8)
    cells_per_block: tuple[int, int] = (3, 3)
    channels: int | None = None

    def __post_init__(self) -> None:
        for name in ("image_shape", "pixels_per_cell", "cells_per_block"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        object.__setattr__(self, "orientations", _whole("orientations", self.orientations))
        if self.channels is not None:
            object.__setattr__(self, "channels", _whole("channels", self.channels))
        rows, cols = (c * p for c, p in zip(self.cells_per_block, self.pixels_per_cell, strict=True))
        if self.image_shape[0] < rows or self.image_shape[1] < cols:
            raise ValueError(
                f"images of {self.image_shape[0]} rows and {self.image_shape[1]} cols are smaller than one "
                f"block: cells_per_block={self.cells_per_block} of pixels_per_cell={self.pixels_per_cell} "
                f"need at least {rows} rows and {cols} cols; use larger images or smaller cells or blocks"
            )

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of whole cells in the image."""
        return (
            self.image_shape[0] // self.pixels_per_cell[0],
            self.image_shape[1] // self.pixels_per_cell[1],
        )

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of blocks in the image."""
        rows, cols = self.cells
        return rows - self.cells_per_block[0] + 1, cols - self.cells_per_block[1] + 1

    @property
    def feature_shape(self) -> tuple[int, int, int, int, int]:
        """Block rows, block columns, cell rows and cell columns of a block, orientations."""
        return (*self.blocks, *self.cells_per_block, self.orientations)

    @property
    def n_features(self) -> int:
        """Features per image: the product of `feature_shape`."""
        block_rows, block_cols, rows, cols, bins = self.feature_shape
        return block_rows * block_cols * rows * cols * bins

    def feature_names(self) -> list[str]:
        """Return names ``block_r_c_cell_r_c_bin_k``; a cell is counted inside its block."""
        block_rows, block_cols, rows, cols, bins = self.feature_shape
        return [
            f"block_{r}_{c}_cell_{i}_{j}_bin_{k}"
            for r in range(block_rows)
            for c in range(block_cols)
            for i in range(rows)
            for j in range(cols)
            for k in range(bins)
        ]

    def cell_index(self) -> np.ndarray:
        """Return the number of each feature's image cell, row * cell columns + column: intp (n_features,)."""
        block_row, block_col, row, col, _ = np.indices(self.feature_shape, sparse=True)
        number = (block_row + row) * self.cells[1] + block_col + col
        return np.broadcast_to(number, self.feature_shape).reshape(-1).astype(np.intp)

    def per_cell(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of one value per feature over each cell of the image, float64 (rows, cols) of `cells`.

        A cell takes part in several blocks and orientations; with a classifier's ``feature_importances_`` this is
        the importance of each place in the image.

        Parameters
        ----------
        values : (n_features,)

        Raises
        ------
        ValueError
            If there is not one value per feature.
        """
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (self.n_features,):
            raise ValueError(
                f"values must be one number per feature, ({self.n_features},), not {values.shape}"
            )
        rows, cols = self.cells
        return np.bincount(self.cell_index(), weights=values, minlength=rows * cols).reshape(rows, cols)

    def centres(self) -> np.ndarray:
        """Return the centre (row, column) of each feature's cell, in pixels from the image's corner.

        Returns
        -------
        ndarray of float64, shape (n_features, 2)
            The first cell of 8 x 8 pixels has its centre at (4.0, 4.0).
        """
        row, col = np.divmod(self.cell_index(), self.cells[1])
        return (np.stack([row, col], axis=1) + 0.5) * np.array(self.pixels_per_cell, dtype=float)

    def angles(self) -> np.ndarray:
        """Return the middle of each feature's orientation bin, in degrees, float64 (n_features,)."""
        middle = (np.arange(self.orientations) + 0.5) * (180.0 / self.orientations)
        return np.tile(middle, self.n_features // self.orientations)


def _whole(name: str, value: Any) -> int:
    try:
        number = index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return number


def _pair(name: str, value: Any) -> tuple[int, int]:
    try:
        first, second = value
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be two whole numbers of at least 1 (rows, cols), not {value!r}"
        ) from None
    return _whole(f"{name} (rows)", first), _whole(f"{name} (cols)", second)
