"""HoG in two steps: cell histograms, a fifth of the features' size at the default layout, and features from them.

For training sets beyond memory, which keep the first on disk and take the second step whenever they look at the rows.
Both are the kernels of :mod:`pipeline.backends.cpu.hog`, so the features are its features bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.cpu.hog import PER_THREAD, Worker
from pipeline.backends.cpu.images_shared import share_images
from pipeline.config import BLOCK_NORMS

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout


def width(layout: HogLayout) -> int:
    """Return the numbers kept of an image: of each cell its histogram, and the sum that its blocks' norms need."""
    return math.prod(layout.cells) * (layout.orientations + 1)


def cells(
    pixels: np.ndarray, layout: HogLayout, block_norm: str, transform_sqrt: bool, dtype: str
) -> np.ndarray:
    """Return what :func:`expand` takes: (n, width), float32 where the kernels work in float32, else float64.

    Parameters
    ----------
    pixels : (n, h, w)
    layout, block_norm, transform_sqrt, dtype : as for :func:`pipeline.backends.cpu.hog.hog`

    Raises
    ------
    ValueError
        As ``hog``.
    """
    hog_rules.check(pixels, layout, block_norm, transform_sqrt, dtype)

    def make() -> _Histograms:
        return _Histograms(
            pixels.dtype, layout, BLOCK_NORMS.index(block_norm), transform_sqrt, np.dtype(dtype)
        )

    out = np.empty((len(pixels), width(layout)), dtype=make().hist.dtype)
    share_images(make, pixels, out, PER_THREAD)
    return out


class _Histograms(Worker):
    """The worker of ``hog`` that stops before the blocks."""

    def _finish(self, hist: np.ndarray, sums: np.ndarray, out: np.ndarray) -> None:
        size = math.prod(hist.shape[1:])
        out[:, :size] = hist.reshape(len(hist), -1)
        out[:, size:] = sums


def expand(
    kept: np.ndarray,
    layout: HogLayout,
    block_norm: str,
    out: np.ndarray,
    columns: np.ndarray | None = None,
) -> None:
    """Write the features (n, layout.n_features) of kept histograms (n, width) to `out`.

    With `columns`, intp (m,), only those are written, (n, m): a quarter of the memory traffic and more is saved.
    """

    def make() -> _Blocks:
        return _Blocks(layout, BLOCK_NORMS.index(block_norm), kept.dtype, columns)

    share_images(make, kept, out, PER_THREAD)


class _Blocks:
    """Scratch memory of one thread that normalises blocks."""

    chunk = 64  # images at a time: their histograms stay in cache
    prepared = False  # looking is cheap beside a block of rows

    def __init__(
        self, layout: HogLayout, norm: int, total: np.dtype, columns: np.ndarray | None = None
    ) -> None:
        rows, cols = layout.cells
        self.layout, self.norm, self.columns = layout, norm, columns
        self.hist = np.zeros((self.chunk, rows, cols * layout.orientations), total)
        self.sums = np.zeros((self.chunk, rows * cols), total)
        strips = (layout.blocks[1], rows * layout.cells_per_block[1] * layout.orientations)
        self.scratch = (np.zeros(strips, total), np.zeros((2, rows * cols), total))

    def compile(self, out: np.ndarray) -> None:
        """Compile before threads start."""
        self._normalise(1, np.empty_like(out[:1]))

    def __call__(self, kept: np.ndarray, out: np.ndarray, parts: Iterator[slice]) -> None:
        size = math.prod(self.hist.shape[1:])
        for part in parts:
            block = kept[part]
            n = len(block)
            self.hist[:n] = block[:, :size].reshape(self.hist[:n].shape)
            self.sums[:n] = block[:, size:]
            self._normalise(n, out[part])

    def _normalise(self, n: int, out: np.ndarray) -> None:
        from pipeline.backends.cpu import hog_blocks
        from pipeline.backends.cpu.jit import prepare

        block = (self.layout.orientations, self.layout.cells_per_block, self.norm)
        arguments = (self.hist[:n], self.sums[:n], *self.scratch, *block)
        if self.columns is None:
            prepare(hog_blocks.normalise, *arguments, out)
            hog_blocks.normalise(*arguments, out)
        else:
            prepare(hog_blocks.normalise_some, *arguments, self.columns, out)
            hog_blocks.normalise_some(*arguments, self.columns, out)
