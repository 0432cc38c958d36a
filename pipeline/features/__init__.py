"""HoG features: what each one means (:class:`HogLayout`) and how to compute them (:class:`HogExtractor`)."""

from __future__ import annotations

from pipeline.features.extractor import HogExtractor, hog_image
from pipeline.features.layout import HogLayout

__all__ = ["HogExtractor", "HogLayout", "hog_image"]
