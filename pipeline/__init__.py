"""HoG features and boosted weighted least squares on thousands of small grayscale images.

The public names are loaded on first use, so that ``python -m pipeline --help`` answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.boosting import LogitBoostClassifier
    from pipeline.features import HogExtractor, HogLayout, PcaReducer
    from pipeline.model import load_model

__all__ = ["HogExtractor", "HogLayout", "LogitBoostClassifier", "PcaReducer", "__version__", "load_model"]

_HOME = {
    "HogExtractor": "pipeline.features",
    "HogLayout": "pipeline.features",
    "LogitBoostClassifier": "pipeline.boosting",
    "PcaReducer": "pipeline.features",
    "load_model": "pipeline.model",
}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hogboost")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
