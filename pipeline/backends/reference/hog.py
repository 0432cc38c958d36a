"""HoG by scikit-image, one image at a time: the truth the other backends are held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.backends import hog_rules

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout


def hog(
    pixels: np.ndarray,
    layout: HogLayout,
    block_norm: str,
    transform_sqrt: bool,
    dtype: str,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the HoG features of a batch.

    Parameters
    ----------
    pixels : ndarray, shape (n, h, w) or (n, h, w, channels)
        Images of any real type. Values are not rescaled: uint8 stays 0 to 255.
    layout : HogLayout
        Image, cell and block sizes and the number of orientations.
    block_norm : {'L1', 'L1-sqrt', 'L2', 'L2-Hys'}
        How a block is normalised; epsilon is 1e-5.
    transform_sqrt : bool
        Take the square root of each pixel first.
    dtype : {'float32', 'float64'}
        Type of the result.
    out : ndarray, shape (n, layout.n_features), C order, optional
        Where to write the result.

    Returns
    -------
    ndarray, shape (n, layout.n_features)
        Features in the layout's order.

    Raises
    ------
    ValueError
        If the batch does not fit the layout, or a setting is unknown (see
        :mod:`pipeline.backends.hog_rules`).

    References
    ----------
    Dalal, N. and Triggs, B., Histograms of Oriented Gradients for Human Detection, CVPR 2005.
    """
    hog_rules.check(pixels, layout, block_norm, transform_sqrt, dtype)
    from skimage import feature

    if out is None:
        out = np.empty((len(pixels), layout.n_features), dtype=dtype)
    for image, row in zip(pixels, out, strict=True):
        row[:] = feature.hog(
            image,
            layout.orientations,
            layout.pixels_per_cell,
            layout.cells_per_block,
            block_norm,
            transform_sqrt=transform_sqrt,
            channel_axis=None if layout.channels is None else -1,
        )
    return out


def hog_image(pixels: np.ndarray, layout: HogLayout, transform_sqrt: bool) -> np.ndarray:
    """Return a picture of each image's cell histograms: in each cell one line per orientation.

    Parameters
    ----------
    pixels, layout, transform_sqrt
        As in :func:`hog`.

    Returns
    -------
    ndarray of float32 or float64, shape (n, h, w)
        Brightness is the sum of the cell values of the lines through a pixel. float32 for float16 and float32
        input.

    Raises
    ------
    ValueError
        As in :func:`hog`, and if a cell has a side of 1 pixel.
    """
    hog_rules.check_picture(layout)
    hog_rules.check(pixels, layout, "L2-Hys", transform_sqrt, "float64")
    from skimage import feature

    out = np.empty((len(pixels), *layout.image_shape), dtype=hog_rules.float_type(pixels.dtype))
    for image, picture in zip(pixels, out, strict=True):
        picture[:] = feature.hog(
            image,
            layout.orientations,
            layout.pixels_per_cell,
            layout.cells_per_block,
            visualize=True,
            transform_sqrt=transform_sqrt,
            channel_axis=None if layout.channels is None else -1,
        )[1]
    return out
