"""HoG in two steps: cell histograms, a fifth of the features' size at the default layout, and features from them.

For training sets beyond memory, which keep the first on disk and take the second step whenever they look at the rows.
Beside the histograms is kept what each block is multiplied by, so a feature costs no more than the look at its cell.
The first step is that of :mod:`pipeline.backends.cpu.hog`, the second rounds as it does: features are its features bit
for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.cpu import hog_blocks, hog_columns
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.hog import PER_THREAD, Worker
from pipeline.backends.cpu.hog_columns import LANES
from pipeline.backends.cpu.images_shared import share_images
from pipeline.backends.cpu.jit import prepare
from pipeline.config import BLOCK_NORMS

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout

PART = 3 << 18  # bytes that a thread takes at a time: they stay in the second-level cache

Read = Callable[[int, int, np.ndarray], np.ndarray]


def width(layout: HogLayout, block_norm: str) -> int:
    """Return the numbers kept of an image: its cell histograms, and what each block is multiplied by."""
    factors = 2 if block_norm == "L2-Hys" else 1  # before clipping, and after it
    return math.prod(layout.cells) * layout.orientations + factors * math.prod(layout.blocks)


def cells(
    pixels: np.ndarray, layout: HogLayout, block_norm: str, transform_sqrt: bool, dtype: str
) -> np.ndarray:
    """Return what :func:`expand` takes, in rows: (n, width), float32 where the kernels work in float32, else float64.

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

    out = np.empty((len(pixels), width(layout, block_norm)), dtype=make().hist.dtype)
    share_images(make, pixels, out, PER_THREAD)
    return out


class _Histograms(Worker):
    """The worker of ``hog`` that stops before the features."""

    def _finish(self, hist: np.ndarray, sums: np.ndarray, out: np.ndarray) -> None:
        block = (self.layout.orientations, self.layout.cells_per_block, self.norm)
        self._call(hog_blocks.keep, (hist, sums, *self.for_blocks, *block, out))


def grouped(rows: np.ndarray) -> np.ndarray:
    """Return rows (n, width) as (groups, width, LANES): number by number of LANES images, zeros beyond the last."""
    n, size = rows.shape
    whole = n // LANES
    out = np.zeros((-(-n // LANES), size, LANES), rows.dtype)
    out[:whole] = rows[: whole * LANES].reshape(whole, LANES, size).transpose(0, 2, 1)
    if whole < len(out):
        out[whole, :, : n - whole * LANES] = rows[whole * LANES :].T
    return out


class Expander:
    """Makes features of what is kept: drawn ones, or all.

    Parameters
    ----------
    layout, block_norm : of the features
    dtype : of what is kept
    """

    def __init__(self, layout: HogLayout, block_norm: str, dtype: np.dtype) -> None:
        self.layout, self.norm, self.dtype = layout, BLOCK_NORMS.index(block_norm), dtype
        self.width = width(layout, block_norm)
        self.at_once = max(1, PART // (self.width * LANES * dtype.itemsize))
        self._buffers: list[np.ndarray] = []  # those that no thread is using

    def __call__(
        self,
        read: Read,
        places: np.ndarray,
        outs: Sequence[np.ndarray],
        sets: Sequence[np.ndarray | None],
    ) -> None:
        """Write features of images.

        Parameters
        ----------
        read : read(begin, end, buffer) returns groups begin to end, see :func:`grouped`; in the buffer, or elsewhere
        places : intp (groups * LANES,) row of each image, below 0 for one that is not wanted
        outs : (rows, features), C order, one for each set
        sets : intp (features,) numbers of those wanted; None: all
        """
        shape = hog_columns.kind(self.norm), hog_columns.tile(self.dtype)
        lists = [self._numbers(columns, len(shape[1])) for columns in sets]
        groups = len(places) // LANES
        empty = np.zeros((0, self.width, LANES), self.dtype)
        for out, numbers in zip(outs, lists, strict=True):
            prepare(hog_columns.write_columns, empty, places, *numbers, *shape, out)

        def part(i: int) -> None:
            begin, end = i * self.at_once, min(groups, (i + 1) * self.at_once)
            try:
                buffer = self._buffers.pop()
            except IndexError:
                buffer = np.empty((self.at_once, self.width, LANES), self.dtype)
            found = read(begin, end, buffer[: end - begin])
            mine = places[begin * LANES : end * LANES]
            for out, numbers in zip(outs, lists, strict=True):
                hog_columns.write_columns(found, mine, *numbers, *shape, out)
            self._buffers.append(buffer)

        kernels.share(part, -(-groups // self.at_once), parallel=groups * LANES > PER_THREAD)

    def _numbers(self, columns: np.ndarray | None, tile: int) -> tuple[np.ndarray, ...]:
        """Return where the cell and the factors of each feature are, uint32, up to a multiple of `tile` of them."""
        layout = self.layout
        (rows, cols), across = layout.cells_per_block, layout.blocks[1]
        columns = np.arange(layout.n_features) if columns is None else columns
        block, inside = np.divmod(columns, rows * cols * layout.orientations)
        down, right = np.divmod(inside, cols * layout.orientations)
        first = (block // across + down) * layout.cells[1] + block % across
        cell = first * layout.orientations + right
        scale = math.prod(layout.cells) * layout.orientations + block
        again = (scale + math.prod(layout.blocks)) % self.width  # of other norms than L2-Hys there is none
        padded = -(-len(columns) // tile) * tile
        return tuple(np.resize(one, padded).astype(np.uint32) for one in (cell, scale, again))
