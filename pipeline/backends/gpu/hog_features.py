"""``hog`` for CuPy arrays with scikit-image's parameters: useful beside cuCIM, which has none.

It needs CuPy and this package, nothing else of the program:

>>> import cupy  # doctest: +SKIP
>>> from pipeline.backends.gpu.hog_features import hog  # doctest: +SKIP
>>> hog(cupy.zeros((128, 64), dtype=cupy.uint8)).shape  # doctest: +SKIP
(6804,)
"""

from __future__ import annotations

from typing import Any

from pipeline.backends.gpu import device
from pipeline.backends.hog_layout import HogLayout

cp: Any = device.import_cupy(__name__, "")  # before the kernels, which import it without a word
from pipeline.backends.gpu import hog as gpu_hog  # noqa: E402

MOST_CHANNELS = 4  # so short a last axis may be meant as channels
CUDA_MEMORY = (2, 13)  # DLPack's device types whose memory a GPU reads: CUDA and CUDA managed


def hog(
    image: Any,
    orientations: int = 9,
    pixels_per_cell: tuple[int, int] = (8, 8),
    cells_per_block: tuple[int, int] = (3, 3),
    block_norm: str = "L2-Hys",
    visualize: bool = False,
    transform_sqrt: bool = False,
    feature_vector: bool = True,
    *,
    channel_axis: int | None = None,
    dtype: str = "float32",
) -> Any:
    """Return Histograms of Oriented Gradients of one image or of a batch of images of one size.

    Parameters
    ----------
    image : cupy.ndarray, or anything with ``__cuda_array_interface__`` or DLPack in GPU memory
        One image (h, w), or a batch (n, h, w); with `channel_axis` one more axis. Of any real type; values are
        not rescaled.
    orientations, pixels_per_cell, cells_per_block, block_norm, transform_sqrt, feature_vector
        As in ``skimage.feature.hog``.
    visualize : bool
        Must be False: ``pipeline.backends.gpu.hog.hog_image`` draws the histograms.
    channel_axis : int or None
        The axis that holds the channels of a colour image; None for grayscale. For a batch it counts the axes of
        the batch, as -1 does either way.
    dtype : {'float32', 'float64'}
        Type of the result.

    Returns
    -------
    cupy.ndarray
        (n_features,) for one image, (n, n_features) for a batch. With ``feature_vector=False`` the last axis
        becomes (block rows, block columns, cell rows, cell columns, orientations).

    Raises
    ------
    TypeError
        If `image` is not in GPU memory.
    ValueError
        If a setting is unknown or out of range, the image is smaller than one block, or ``visualize=True``.

    Notes
    -----
    Equal to scikit-image's features to 1e-6. Work is queued on the current stream of the device that holds `image`,
    where the result is too.
    """
    if visualize:
        raise ValueError(
            "visualize=True is not supported here; pipeline.backends.gpu.hog.hog_image draws the histograms"
        )
    images = _on_device(image)
    axes = 2 if channel_axis is None else 3
    if images.ndim not in (axes, axes + 1):
        raise ValueError(
            f"image of shape {images.shape} must have {axes} axes, or {axes + 1} for a batch, with "
            f"channel_axis={channel_axis}"
        )
    if channel_axis is not None:
        images = cp.moveaxis(images, channel_axis, -1)
    single = images.ndim == axes
    if single:
        images = images[None]
    channels = None if channel_axis is None else images.shape[-1]
    try:
        layout = HogLayout(images.shape[1:3], orientations, pixels_per_cell, cells_per_block, channels)
    except ValueError as error:
        if channels is None and not single and images.shape[-1] <= MOST_CHANNELS:
            raise ValueError(f"{error}; if the last axis holds channels, give channel_axis=-1") from error
        raise
    with images.device:
        features = gpu_hog.hog(images, layout, block_norm, transform_sqrt, dtype)
    if not feature_vector:
        features = features.reshape(len(images), *layout.feature_shape)
    return features[0] if single else features


def _on_device(image: Any) -> Any:
    """Return the image as a CuPy array, without a copy."""
    if isinstance(image, cp.ndarray):
        return image
    if hasattr(image, "__cuda_array_interface__"):
        return cp.asarray(image)
    if hasattr(image, "__dlpack_device__") and image.__dlpack_device__()[0] in CUDA_MEMORY:
        return cp.from_dlpack(image)
    raise TypeError(f"image must be in GPU memory, not {type(image).__name__}; pass cupy.asarray(image)")
