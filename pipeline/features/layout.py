"""Where each HoG feature comes from; see :mod:`pipeline.backends.hog_layout`, which the backends share."""

from __future__ import annotations

from pipeline.backends.hog_layout import HogLayout

__all__ = ["HogLayout"]
