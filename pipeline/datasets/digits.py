"""scikit-learn's 1797 handwritten digits, 8 x 8: a real data set that needs no download."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.decode import fit
from pipeline.datasets.images import Images, allocate

_TOP = 16  # load_digits counts set pixels in 4 x 4 fields


def read_digits(image: config.Image, start: int = 0, stop: int | None = None) -> Images:
    """Return the digits ``start`` to ``stop``, 0..16 scaled to 0..255 and resized as ``image`` says.

    References
    ----------
    Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = np.rint(digits.images[start:stop] * (255 / _TOP)).astype(np.uint8)
    labels = digits.target[start:stop].astype(np.intp)
    pixels = allocate(len(small), image)
    for row, picture in zip(pixels, small, strict=True):
        row[...] = np.asarray(fit(Image.fromarray(picture), image))
    paths = [f"digits/{label}/{start + i:04d}" for i, label in enumerate(labels)]
    names = tuple(str(name) for name in digits.target_names)
    return Images(pixels, labels, names, paths, made=DataName.digits)


def count_digits() -> int:
    """Return the number of digits, 1797."""
    from sklearn.datasets import load_digits

    return len(load_digits().target)
