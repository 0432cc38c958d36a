"""Rules that every backend's HoG shares: what input is refused, and in which type pixels are subtracted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config import BLOCK_NORMS

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout


def check(pixels: np.ndarray, layout: HogLayout, block_norm: str, transform_sqrt: bool, dtype: str) -> None:
    """Refuse a batch, or a setting, that would not give what scikit-image gives.

    Parameters
    ----------
    pixels : ndarray, shape (n, h, w) or (n, h, w, channels)
        The batch.
    layout : HogLayout
        What the batch must look like.
    block_norm, transform_sqrt, dtype
        As in ``hog``.

    Raises
    ------
    ValueError
        Complex or non-numeric pixels, another shape than the layout's, an unknown norm or dtype, or negative
        pixels together with `transform_sqrt`.
    """
    if block_norm not in BLOCK_NORMS:
        raise ValueError(f"block_norm must be one of {', '.join(BLOCK_NORMS)}, not {block_norm!r}")
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, not {dtype!r}")
    if pixels.dtype.kind not in "biuf":
        raise ValueError(
            f"pixels must be real numbers, not {pixels.dtype}; pass the magnitude or the real part"
        )
    wanted = layout.image_shape if layout.channels is None else (*layout.image_shape, layout.channels)
    if pixels.ndim != len(wanted) + 1 or pixels.shape[1:] != wanted:
        raise ValueError(
            f"pixels of shape {pixels.shape} do not fit the layout, which needs (n, {str(wanted)[1:-1]})"
        )
    if transform_sqrt and pixels.size and pixels.dtype.kind in "if":
        check_roots(float(np.nanmin(pixels)))


def check_roots(smallest: float) -> None:
    """Refuse to take square roots if the smallest pixel is negative.

    Raises
    ------
    ValueError
        If it is.
    """
    if smallest < 0:
        raise ValueError(
            f"transform_sqrt=True takes square roots of pixels, but the smallest pixel is {smallest:g}; "
            "shift the pixels to 0 or above, or set transform_sqrt=False"
        )


def check_out(out: Any, n: int, layout: HogLayout, dtype: str) -> None:
    """Refuse an `out` that the features of `n` images do not fit: kernels write where they are told.

    Raises
    ------
    ValueError
        If its shape, its type or its memory order is another one.
    """
    wanted = (n, layout.n_features)
    if out.shape != wanted or out.dtype != np.dtype(dtype) or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a C-contiguous array of {np.dtype(dtype)} and shape {wanted}, not of {out.dtype} and "
            f"shape {out.shape}{'' if out.flags.c_contiguous else ' with strides'}"
        )


def check_picture(layout: HogLayout) -> None:
    """Refuse cells too small for the lines of ``hog_image`` (scikit-image: IndexError).

    Raises
    ------
    ValueError
        If a cell has a side of 1 pixel.
    """
    if min(layout.pixels_per_cell) < 2:
        raise ValueError(
            f"pixels_per_cell={layout.pixels_per_cell} leaves no room for a line: a picture of the "
            "descriptor needs cells of at least 2 x 2 pixels"
        )


def float_type(dtype: np.dtype) -> np.dtype:
    """Return the type in which pixels are subtracted: float32 for float16 and float32, else float64."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def exact(dtype: np.dtype, transform_sqrt: bool) -> bool:
    """Return whether one product per edge decides every bin as scikit-image does: integers up to 16 bits.

    Other gradients may be within scikit-image's rounding of a bin's edge: differences of decimal fractions next to
    the diagonal, differences of square roots next to any edge.
    """
    return dtype.kind in "biu" and dtype.itemsize <= 2 and not transform_sqrt


def edges(orientations: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sines and cosines of the bins' edges from 0 to 90 degrees; the others are their mirror images.

    Returns
    -------
    ndarray of float64, shape (orientations // 2 + 1,)
        Sines, rising from 0.
    ndarray of float64, shape (orientations // 2 + 1,)
        Cosines, falling from 1.
    """
    angles = np.radians(180.0 / orientations * np.arange(orientations // 2 + 1))
    return np.sin(angles), np.cos(angles)


def cotangents(orientations: int, dtype: np.dtype) -> np.ndarray:
    """Return the cotangent of the upper edge of each bin but the last; -inf, which nothing reaches, for the last.

    On the axes and diagonals, where gradients lie exactly on an edge, the value is exact, or next to exact on
    the side where scikit-image's edge 180 / n * i was rounded to.

    Returns
    -------
    ndarray of `dtype`, shape (orientations,)
    """
    out = np.full(orientations, -np.inf, dtype=dtype)
    for i in range(1, orientations):
        edge = 180.0 / orientations * i
        quarter = round(edge / 45.0)
        if abs(edge - 45.0 * quarter) < 1e-9:
            value = dtype.type(2 - quarter)  # 45, 90, 135 degrees: 1, 0, -1
            beyond = np.sign(edge - 45.0 * quarter)
            out[i - 1] = np.nextafter(value, dtype.type(-2 * beyond)) if beyond else value
        else:
            out[i - 1] = 1.0 / math.tan(math.radians(edge))
    return out
