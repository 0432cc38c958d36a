"""Validation of the extractor's images and features: each message names what was found and expected."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import backends

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend
    from pipeline.features.extractor import HogExtractor
    from pipeline.features.layout import HogLayout


def batch(extractor: HogExtractor, X: Any) -> np.ndarray:
    """Return X as an array (n, h, w) or (n, h, w, channels) of real numbers, finite if so asked."""
    for name in ("transform_sqrt", "check_finite"):
        value = getattr(extractor, name)
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, not {value!r}")
    home = backends.get(extractor.backend)
    images = X if home.holds(X) else _as_batch(X)
    if images.dtype.kind not in "biuf":
        raise ValueError(
            f"images must be real numbers, not {images.dtype}; pass the magnitude or the real part"
        )
    expected = "(n, rows, cols)" if extractor.channel_axis is None else "(n, rows, cols, channels)"
    if images.ndim != (3 if extractor.channel_axis is None else 4):
        hint = "; colour images need channel_axis=-1" if images.ndim == 4 else ""
        raise ValueError(
            f"images must have shape {expected}, not {images.shape}; one image needs a leading axis, "
            f"image[np.newaxis]{hint}"
        )
    if extractor.channel_axis is not None:
        axis = extractor.channel_axis
        if (
            not isinstance(axis, numbers.Integral)
            or isinstance(axis, bool)
            or axis not in (1, 2, 3, -1, -2, -3)
        ):
            raise ValueError(f"channel_axis must be 1, 2, 3, -1, -2 or -3, not {axis!r}")
        images = (home.xp if home.holds(images) else np).moveaxis(images, axis, -1)
    if extractor.check_finite:
        if home.holds(images):
            _check_finite_away(home, images)
        else:
            _check_finite(images)
    return images


def _as_batch(X: Any) -> np.ndarray:
    """Return X as an array, naming the first image of another size than the first."""
    if isinstance(X, (list, tuple)):
        shapes = [np.shape(image) for image in X]
        for position, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise ValueError(
                    f"image {position} has shape {shape} but image 0 has {shapes[0]}; "
                    "bring all images to one size"
                )
    images = np.asarray(X)
    if images.dtype == object:
        raise ValueError("images must be one array of real numbers, or a list of arrays of one size")
    return images


def _check_finite(images: np.ndarray) -> None:
    """Raise for the first image that holds NaN or infinity, looking at few images at a time."""
    if images.dtype.kind != "f":
        return
    for first in range(0, len(images), 256):
        good = np.isfinite(images[first : first + 256]).all(axis=tuple(range(1, images.ndim)))
        if not good.all():
            raise ValueError(
                f"image {first + int(np.argmin(good))} holds NaN or infinity; "
                "remove the image or mend its pixels"
            )


def _check_finite_away(home: Backend, images: Any) -> None:
    """Raise for the first image of a device array that holds NaN or infinity."""
    if images.dtype.kind != "f" or not images.size:
        return
    bad = home.first_not_finite(images.reshape(len(images), -1))
    if bad is not None:
        raise ValueError(f"image {bad} holds NaN or infinity; remove the image or mend its pixels")


def same_size(layout: HogLayout, fitted: HogLayout) -> None:
    """Raise unless images of this layout are of the size and channels seen at ``fit``."""
    if layout != fitted:
        raise ValueError(
            f"the images give {layout.n_features} features ({_describe(layout)}) but fit saw "
            f"{fitted.n_features} features ({_describe(fitted)}); "
            "give images of the size seen at fit"
        )


def _describe(layout: HogLayout) -> str:
    rows, cols = layout.image_shape
    return (
        f"{rows} x {cols} images, "
        f"{'grayscale' if layout.channels is None else f'{layout.channels} channels'}, "
        f"{layout.blocks[0]} x {layout.blocks[1]} blocks of "
        f"{layout.cells_per_block[0]} x {layout.cells_per_block[1]} cells of "
        f"{layout.pixels_per_cell[0]} x {layout.pixels_per_cell[1]} pixels, "
        f"{layout.orientations} orientations"
    )


def finite(extractor: HogExtractor, images: Any, found: Any) -> Any:
    """Return the features `found` of images, if they are finite.

    Of huge floating-point pixels the gradients overflow; of integers they cannot.
    """
    if extractor.check_finite and images.dtype.kind == "f" and len(images):
        bad = backends.get(extractor.backend).first_not_finite(found)
        if bad is not None:
            raise ValueError(
                f"image {bad} has pixels so large (up to {abs(images[bad]).max():.3g}) that its features are "
                "not finite; scale the images, for instance to 0 to 1"
            )
    return found
