"""HoG as a scikit-learn transformer, over whichever backend is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pipeline import backends
from pipeline.features import checks
from pipeline.features.layout import HogLayout


class HogExtractor(TransformerMixin, BaseEstimator):
    """Histograms of oriented gradients of a batch of images of one size.

    The features are those of scikit-image's ``skimage.feature.hog``, to 1e-6, with either backend.

    Parameters
    ----------
    orientations : int
        Number of bins in 0 to 180 degrees.
    pixels_per_cell : tuple of int
        Rows and columns of a cell, in pixels.
    cells_per_block : tuple of int
        Rows and columns of a block, in cells.
    block_norm : {'L1', 'L1-sqrt', 'L2', 'L2-Hys'}
        How a block is normalised.
    transform_sqrt : bool
        Take the square root of each pixel first. Pixels must not be negative.
    channel_axis : int or None
        Axis of the batch that holds the channels of colour images, such as -1; None for grayscale.
    dtype : {'float32', 'float64'}
        Type of the features.
    backend : {'cpu', 'gpu', 'reference'}
        Who computes. With ``gpu``, images may be a CuPy array: the features then stay on the device.
    check_finite : bool
        Refuse images that hold NaN or infinity, naming the first. If False, such a pixel spoils the blocks of
        its cell and of the cells beside it, no others.

    Attributes
    ----------
    layout_ : HogLayout
        The layout of the images given to ``fit``.
    n_features_in_ : int
        Pixels per image, all channels counted.

    References
    ----------
    Dalal, N. and Triggs, B., Histograms of Oriented Gradients for Human Detection, CVPR 2005.

    Examples
    --------
    >>> import numpy as np
    >>> HogExtractor().fit_transform(np.zeros((2, 50, 100), dtype=np.uint8)).shape
    (2, 3240)
    """

    def __init__(
        self,
        orientations: int = 9,
        pixels_per_cell: tuple[int, int] = (8, 8),
        cells_per_block: tuple[int, int] = (3, 3),
        block_norm: str = "L2-Hys",
        transform_sqrt: bool = False,
        channel_axis: int | None = None,
        dtype: str = "float32",
        backend: str = "cpu",
        check_finite: bool = True,
    ) -> None:
        self.orientations = orientations
        self.pixels_per_cell = pixels_per_cell
        self.cells_per_block = cells_per_block
        self.block_norm = block_norm
        self.transform_sqrt = transform_sqrt
        self.channel_axis = channel_axis
        self.dtype = dtype
        self.backend = backend
        self.check_finite = check_finite

    def layout(self, image_shape: tuple[int, int], channels: int | None = None) -> HogLayout:
        """Return the layout these settings give for images of `image_shape` (rows, cols), before any work.

        Raises
        ------
        ValueError
            If a setting is out of range or the image is smaller than one block.
        """
        return HogLayout(image_shape, self.orientations, self.pixels_per_cell, self.cells_per_block, channels)

    def fit(self, X: Any, y: Any = None) -> HogExtractor:
        """Learn the size of the images; nothing else is learnt.

        Parameters
        ----------
        X : array_like, shape (n, h, w), or with one more axis `channel_axis`
            The images.
        y : object
            Ignored.

        Returns
        -------
        HogExtractor
            The extractor itself.

        Raises
        ------
        ValueError
            If X is no batch of real images of one size, or smaller than one block.
        """
        images = checks.batch(self, X)
        self.layout_ = self._layout_of(images)
        self.n_features_in_ = int(np.prod(images.shape[1:]))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of the images.

        Parameters
        ----------
        X : array_like, shape (n, h, w), or with one more axis `channel_axis`
            Images of the size given to ``fit``, of any real type; values are not rescaled. n may be 0.

        Returns
        -------
        ndarray, shape (n, layout_.n_features)
            Features in the order of :class:`HogLayout`; on the device if X was there.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before ``fit``.
        ValueError
            If the images are not real, not finite (unless `check_finite` is False), of unequal size or of another
            size than at ``fit``.
        """
        home = backends.get(self.backend)
        images = self._checked(X)
        if home.holds(images):
            return checks.finite(self, images, self._hog(images))
        n_features = self.layout_.n_features
        found = home.map_images(images, None, self._hog, n_features, self.dtype, len(images))
        return home.get(checks.finite(self, images, found))

    def transform_into(self, X: Any, out: Any) -> None:
        """Write the features of the images to `out` (n, layout_.n_features), an array where the backend works.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError
            As ``transform``.
        """
        images = self._checked(X)
        self._hog(images, out)
        checks.finite(self, images, out)

    def _hog(self, images: Any, out: Any = None) -> Any:
        hog = backends.get(self.backend).hog.hog
        return hog(images, self.layout_, self.block_norm, self.transform_sqrt, self.dtype, out)

    def _checked(self, X: Any) -> Any:
        """Return the images, if they are as at ``fit``."""
        check_is_fitted(self)
        images = checks.batch(self, X)
        checks.same_size(self._layout_of(images), self.layout_)
        return images

    def hog_image(self, X: Any) -> np.ndarray:
        """Return scikit-image's picture of the descriptor of each image: (n, h, w), see :func:`hog_image`.

        Raises
        ------
        ValueError
            As ``transform``.
        """
        home = backends.get(self.backend)
        images = checks.batch(self, X)
        layout = self._layout_of(images)
        if home.holds(images):
            return home.hog.hog_image(images, layout, self.transform_sqrt)
        return home.get(home.hog.hog_image(home.put(images), layout, self.transform_sqrt))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the features' names, ``block_r_c_cell_r_c_bin_k``, as an object array (n_features,)."""
        check_is_fitted(self)
        return np.array(self.layout_.feature_names(), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.requires_fit = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _layout_of(self, images: np.ndarray) -> HogLayout:
        channels = None if self.channel_axis is None else images.shape[3]
        try:
            return self.layout((images.shape[1], images.shape[2]), channels)
        except ValueError as error:
            if self.channel_axis is None and images.shape[2] <= 4:
                raise ValueError(
                    f"{error}. A batch of shape {images.shape} is read as (n, rows, cols): one colour image "
                    "needs a leading axis, image[np.newaxis], and channel_axis=-1"
                ) from None
            raise


def hog_image(images: Any, **settings: Any) -> np.ndarray:
    """Return a picture of each image's descriptor, as ``skimage.feature.hog(visualize=True)`` draws it.

    Parameters
    ----------
    images : array_like, shape (n, h, w), or with one more axis `channel_axis`
        The images.
    **settings
        Parameters of :class:`HogExtractor`.

    Returns
    -------
    ndarray, shape (n, h, w)
        In each cell one line per orientation, along the edge it stands for, as bright as the cell's value.

    Raises
    ------
    ValueError
        If the images or settings are unfit for :class:`HogExtractor`.
    """
    return HogExtractor(**settings).hog_image(images)
