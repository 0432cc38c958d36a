"""Gram matrices of numbers in bfloat16 by NumPy, for tests where the processor lacks the instruction."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.backends.cpu import bfloat_grams, bfloat_tiles
from pipeline.backends.cpu.panels import Panels


def rounded(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to the nearest with the upper half of their bits, ties away from zero."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64) + 0x8000
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def grams(X: Panels, W: np.ndarray, center: np.ndarray, xw: np.ndarray, sw: np.ndarray) -> np.ndarray:
    """As :func:`pipeline.backends.cpu.bfloat_grams.grams`, which differs by the rounding of its float32 sums."""
    rows = np.asarray(X) - center.astype(np.float32)
    numbers = rounded(rows).astype(np.float64)
    gram = np.array([rounded(rows * w[:, None]).astype(np.float64).T @ numbers for w in W.T])
    if center.any():
        c = center.astype(np.float64)
        for j, w in enumerate(xw.T):
            gram[j] += np.multiply.outer(c, w - sw[j] * c) + np.multiply.outer(w, c)
    gram[:, *np.tril_indices(X.shape[1], -1)] = -7.0  # nobody may count on the lower triangles
    return gram


def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fits begin with rough Gram matrices on any processor: with these where it has no better ones."""
    if not bfloat_tiles.available():
        monkeypatch.setattr(bfloat_tiles, "available", lambda: True)
        monkeypatch.setattr(bfloat_grams, "grams", grams)
