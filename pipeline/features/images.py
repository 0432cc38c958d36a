"""From images to features, a batch at a time: preprocessing, HoG, reduction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pipeline import backends, config
from pipeline.features.extractor import HogExtractor
from pipeline.features.reducer import PcaReducer


def features(
    pixels: np.ndarray,
    index: np.ndarray | None,
    step: config.Preprocess,
    extractor: HogExtractor,
    size: int,
    advance: Callable[[int, int], None] | None = None,
    stages: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    reducer: PcaReducer | None = None,
) -> Any:
    """Return the features (n, n_features) of pixels[index] (None: all), where the extractor's backend works.

    Parameters
    ----------
    pixels : uint8 (N, h, w) in host memory, possibly memory-mapped
    step : preprocessing of each image
    size : images at a time, unless the backend knows better
    advance : told (images done, images in all)
    stages : called with "preprocess", "hog" and "reduce", returns the context in which that part of the work is done
    reducer : fitted to such features; without one they are HoG's own
    """
    home = backends.get(extractor.backend)
    n_hog = extractor.layout_.n_features
    placed = None if reducer is None else reducer.placed()

    def work(batch: Any, out: Any) -> None:
        with stages("preprocess"):
            batch = home.preprocess.apply(batch, step)
        with stages("hog"):
            hog = out if placed is None else home.xp.empty((len(batch), n_hog), dtype=extractor.dtype)
            extractor.transform_into(batch, hog)
        if placed is not None:
            with stages("reduce"):
                home.pca.transform(hog, *placed, out)

    width = n_hog if reducer is None else reducer.n_components_
    return home.map_images(pixels, index, work, width, extractor.dtype, size, advance)
