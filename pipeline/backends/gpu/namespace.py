"""CuPy as the boosting loop sees it: with the names of the array standard that its older releases lack."""

from __future__ import annotations

from typing import Any

import cupy


def cumulative_sum(x: Any, /, *, axis: int | None = None) -> Any:
    """Return the running sums along an axis; CuPy 14.0 has them under NumPy's older name only."""
    return cupy.cumsum(x, axis=axis)


def __getattr__(name: str) -> Any:
    return getattr(cupy, name)
