"""HoG features: what each one means (:class:`HogLayout`), how to compute them (:class:`HogExtractor`), fewer of them.

:class:`PcaReducer` projects them onto their principal components.
"""

from __future__ import annotations

from pipeline.features.extractor import HogExtractor, hog_image
from pipeline.features.layout import HogLayout
from pipeline.features.reducer import PcaReducer

__all__ = ["HogExtractor", "HogLayout", "PcaReducer", "hog_image"]
