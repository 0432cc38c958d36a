"""HoG by Numba kernels over the whole batch, equal to scikit-image's to 1e-6."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.cpu.images_shared import share_images
from pipeline.backends.host import empty
from pipeline.config import BLOCK_NORMS

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout

PER_THREAD = 64  # images below which starting another thread costs more than it saves
CHUNK_BYTES = 1 << 19  # images converted at a time stay in the second-level cache
ORDERED_AREA = 100  # pixels per cell above which scikit-image's float32 rounding is followed step by step


def hog(
    pixels: np.ndarray,
    layout: HogLayout,
    block_norm: str,
    transform_sqrt: bool,
    dtype: str,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the HoG features of a batch.

    Parameters
    ----------
    pixels : ndarray, shape (n, h, w) or (n, h, w, channels)
        Images of any real type and memory order. Values are not rescaled: uint8 stays 0 to 255. Of a colour
        pixel the channel with the longest gradient votes, the first on ties.
    layout : HogLayout
        Image, cell and block sizes and the number of orientations.
    block_norm : {'L1', 'L1-sqrt', 'L2', 'L2-Hys'}
        How a block is normalised; epsilon is 1e-5.
    transform_sqrt : bool
        Take the square root of each pixel first.
    dtype : {'float32', 'float64'}
        Type of the result.
    out : ndarray, shape (n, layout.n_features), C order, optional
        Where to write the result.

    Returns
    -------
    ndarray, shape (n, layout.n_features)
        Features in the layout's order. A pixel that is NaN or infinite spoils the blocks of its cell and the
        cells beside it, no others.

    Raises
    ------
    ValueError
        If the batch does not fit the layout, or a setting is unknown (see
        :mod:`pipeline.backends.hog_rules`).

    Notes
    -----
    Memory beyond the result is a few hundred kB per thread. ``numba.get_num_threads()`` threads take chunks of images
    in turns, and each image's features depend on that image only: results do not depend on threads.

    References
    ----------
    Dalal, N. and Triggs, B., Histograms of Oriented Gradients for Human Detection, CVPR 2005.
    """
    hog_rules.check(pixels, layout, block_norm, transform_sqrt, dtype)
    if out is None:
        out = empty((len(pixels), layout.n_features), dtype)
    hog_rules.check_out(out, len(pixels), layout, dtype)
    _run(pixels, layout, BLOCK_NORMS.index(block_norm), transform_sqrt, out)
    return out


def _cell_histograms(
    pixels: np.ndarray, layout: HogLayout, transform_sqrt: bool, dtype: str = "float64"
) -> np.ndarray:
    """Return the mean magnitude per cell and orientation, before blocks: (n, rows, cols, orientations).

    A fifth of the size of the features at the default layout.
    """
    hog_rules.check(pixels, layout, "L2-Hys", transform_sqrt, dtype)
    out = np.empty((len(pixels), math.prod(layout.cells) * layout.orientations), dtype=dtype)
    _run(pixels, layout, None, transform_sqrt, out)
    return out.reshape(len(pixels), *layout.cells, layout.orientations)


def hog_image(pixels: np.ndarray, layout: HogLayout, transform_sqrt: bool) -> np.ndarray:
    """Return a picture of each image's cell histograms: in each cell one line per orientation.

    Parameters
    ----------
    pixels, layout, transform_sqrt
        As in :func:`hog`.

    Returns
    -------
    ndarray of float32 or float64, shape (n, h, w)
        Brightness is the sum of the cell values of the lines through a pixel. float32 for float16 and float32
        input.

    Raises
    ------
    ValueError
        As in :func:`hog`, and if a cell has a side of 1 pixel.
    """
    hog_rules.check_picture(layout)
    from skimage.draw import line

    cells = _cell_histograms(pixels, layout, transform_sqrt)
    out = np.zeros((len(pixels), *layout.image_shape), dtype=hog_rules.float_type(pixels.dtype))
    height, width = layout.pixels_per_cell
    radius = min(height, width) // 2 - 1
    for k in range(layout.orientations):
        angle = np.pi * (k + 0.5) / layout.orientations
        down, right = radius * np.cos(angle), radius * np.sin(angle)
        for r in range(layout.cells[0]):
            for c in range(layout.cells[1]):
                row, col = r * height + height // 2, c * width + width // 2
                # end points are cut to whole pixels after the sum, so they differ from cell to cell by
                # rounding
                at = line(int(row - down), int(col + right), int(row + down), int(col - right))
                out[:, at[0], at[1]] += cells[:, r, c, k, None]
    return out


def _filled(values: np.ndarray, length: int, by: float) -> np.ndarray:
    """Return `values` with `by` behind, up to `length`: loops then have no remainder."""
    out = np.full(length, by, values.dtype)
    out[: len(values)] = values
    return out


def _run(
    pixels: np.ndarray, layout: HogLayout, norm: int | None, transform_sqrt: bool, out: np.ndarray
) -> None:
    """Share the images out among threads, and let each write its rows of `out`; norm None: cell histograms."""
    share_images(
        lambda: Worker(pixels.dtype, layout, norm, transform_sqrt, out.dtype), pixels, out, PER_THREAD
    )


# The kernels that are compiled for what a worker is made for: looking at the types of their arguments takes time.
_prepared: dict[tuple, set] = {}


class Worker:
    """Scratch memory of one thread, and the kernels' arguments."""

    def __init__(
        self, source: np.dtype, layout: HogLayout, norm: int | None, transform_sqrt: bool, out: np.dtype
    ) -> None:
        from pipeline.backends.cpu.hog_cells import GROUP
        from pipeline.backends.cpu.hog_gradients import ROWS, TILE
        from pipeline.backends.cpu.hog_nine import ORIENTATIONS

        self.layout, self.norm, self.sqrt = layout, norm, transform_sqrt
        self.prepared = _prepared.setdefault((source, layout, norm, transform_sqrt, out), set())
        rows, cols = layout.cells
        height, width = layout.image_shape
        gray = layout.channels is None
        self.follow = math.prod(layout.pixels_per_cell) > ORDERED_AREA or layout.pixels_per_cell[1] > TILE
        self.exact = hog_rules.exact(source, transform_sqrt)
        # differences of 8-bit pixels and their squares are exact in float32; all else needs float64
        narrow = source in (np.uint8, np.int8, np.bool_) and out == np.float32
        small = narrow and not transform_sqrt and not self.follow
        subtract = np.dtype(np.float32) if small else hog_rules.float_type(source)
        total = np.dtype(np.float32 if small else np.float64)
        self.source = np.dtype(np.uint8) if small and gray and source != np.int8 else subtract
        self.chunk = max(1, CHUNK_BYTES // (height * width * (layout.channels or 1) * self.source.itemsize))
        bins = -(-layout.orientations // GROUP) * GROUP
        self.used = rows * layout.pixels_per_cell[0], cols * layout.pixels_per_cell[1]
        self.cot = _filled(hog_rules.cotangents(layout.orientations, total), bins, -np.inf)
        self.candidate = None if gray else np.zeros(6 * TILE, total)
        self.hist = np.zeros((self.chunk, rows, cols * layout.orientations), total)
        self.sums = np.zeros((self.chunk, rows * cols), total)
        self.for_fast = (np.zeros(3 * ROWS * TILE, total), self.candidate, np.zeros(bins * TILE, total))
        self.aside = None if self.exact or self.follow else self._lists()
        self.padded = np.zeros(1 + height * width + TILE + 1, subtract) if gray else None
        nine = (
            small and gray and layout.orientations == ORIENTATIONS and layout.pixels_per_cell[0] % ROWS == 0
        )
        self.reflected = np.zeros((height + 2) * (width + 2) + TILE + 2, subtract) if nine else None
        self.for_ordered = (
            np.zeros(self.used[1], total),
            np.zeros(self.used[1], np.int64),
            np.zeros((cols, layout.orientations), np.float32),
        )
        strips = (layout.blocks[1], rows * layout.cells_per_block[1] * layout.orientations)
        self.for_blocks = (np.zeros(strips, total), np.zeros((2, rows * cols), total))

    def _lists(self) -> tuple[np.ndarray, ...]:
        """Return what ``set_aside`` needs; a list has room for each pixel, but memory is touched only when used."""
        from pipeline.backends.cpu.hog_doubts import TOGETHER
        from pipeline.backends.cpu.hog_gradients import TILE

        sines, cosines = hog_rules.edges(self.layout.orientations)
        padded = -(-len(sines) // TOGETHER) * TOGETHER
        room = self.chunk * math.prod(self.used)
        return (
            _filled(sines, padded, sines[0]),
            _filled(cosines, padded, cosines[0]),
            np.zeros(TILE),
            np.zeros(1, np.int64),
            np.empty(room, np.int64),
            np.empty(room),
            np.empty(room),
        )

    def __call__(self, pixels: np.ndarray, out: np.ndarray, parts: Iterator[slice]) -> None:
        """Write the features of `pixels` to `out`, one of the `parts` after another; other threads take theirs."""
        for part in parts:
            self._chunk(self._convert(pixels[part]), out[part])

    def compile(self, out: np.ndarray) -> None:
        """Compile before threads start, so that they do not wait for one another inside."""
        shape = (1, self.layout.channels or 1, *self.layout.image_shape)
        self._chunk(np.zeros(shape, self.source), np.empty_like(out[:1]))

    def _chunk(self, images: np.ndarray, out: np.ndarray) -> None:
        from pipeline.backends.cpu import hog_blocks

        n = len(images)
        squares = self.norm is not None and self.norm >= hog_blocks.L2
        hist, sums = self.hist[:n], self.sums[:n]
        rest = np.arange(n) if self.follow else self._fast(images, squares, hist, sums)
        if len(rest):
            self._ordered(images, rest, squares, hist, sums)
        self._finish(hist, sums, out)

    def _finish(self, hist: np.ndarray, sums: np.ndarray, out: np.ndarray) -> None:
        """Write what becomes of the cells of a chunk: their histograms, or the blocks."""
        from pipeline.backends.cpu import hog_blocks

        layout = self.layout
        if self.norm is None:
            out[:] = hist.reshape(len(hist), -1)
        else:
            block = (layout.orientations, layout.cells_per_block, self.norm)
            self._call(hog_blocks.normalise, (hist, sums, *self.for_blocks, *block, out))

    def _fast(self, images: np.ndarray, squares: bool, hist: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Fill `hist` and `sums` the branch-free way; return the numbers of the images that need the other."""
        from pipeline.backends.cpu import hog_cells, hog_doubts, hog_nine

        layout, aside, n = self.layout, self.aside, len(images)
        flat, cell, acc = images.reshape(n, -1), layout.pixels_per_cell, self.for_fast[2]
        redo = np.zeros(n, bool)
        if self.reflected is not None:
            work = (*layout.image_shape, self.reflected, cell, self.cot, acc)
            self._call(hog_nine.fast_nine, (flat, *work, squares, hist, sums))
            return np.flatnonzero(redo)
        if aside is not None:
            aside[3][0] = 0
        settings = (cell, layout.orientations, self.cot)
        answer = (squares, hist, sums, aside, redo)
        self._call(hog_cells.fast, (images, flat, self.padded, *settings, *self.for_fast, *answer))
        if aside is not None and aside[3][0]:
            where, x, y = (values[: aside[3][0]] for values in aside[4:])
            scale = 1.0 / math.prod(layout.pixels_per_cell)
            cells = hist.reshape(-1, layout.orientations), sums.reshape(-1)
            arguments = (where, x, y, np.arctan2(y, x), layout.orientations, scale, squares, *cells)
            self._call(hog_doubts.add_late, arguments)
        return np.flatnonzero(redo)

    def _ordered(
        self, images: np.ndarray, which: np.ndarray, squares: bool, hist: np.ndarray, sums: np.ndarray
    ) -> None:
        """Fill `hist` and `sums` of the images numbered `which` in scikit-image's order."""
        from pipeline.backends.cpu import hog_ordered

        layout = self.layout
        x, y = np.empty((2, len(which), *self.used))
        images = images if self.follow else images[which]
        gray, colour = (images[:, 0], None) if self.candidate is None else (None, images)
        self._call(hog_ordered.gradients, (gray, colour, self.candidate, x, y))
        angle, cot = (None, self.cot) if self.exact else (np.arctan2(y, x), None)
        settings = (layout.pixels_per_cell, layout.orientations, cot)
        self._call(
            hog_ordered.ordered, (x, y, angle, which, *settings, *self.for_ordered, squares, hist, sums)
        )

    def _call(self, compiled, arguments: tuple) -> None:
        from pipeline.backends.cpu.jit import prepare

        if compiled not in self.prepared:
            prepare(compiled, *arguments)
            self.prepared.add(compiled)
        compiled(*arguments)

    def _convert(self, pixels: np.ndarray) -> np.ndarray:
        """Return (n, channels, h, w), contiguous, in the type the kernel reads; a copy only if needed."""
        if self.layout.channels is not None:
            images = np.empty((len(pixels), self.layout.channels, *self.layout.image_shape), self.source)
            for c in range(self.layout.channels):  # half the time of one transposed copy
                images[:, c] = pixels[..., c]
        elif self.source == np.uint8:
            return np.ascontiguousarray(pixels[:, None]).view(np.uint8)
        else:
            images = np.ascontiguousarray(pixels[:, None], dtype=self.source)
        return np.sqrt(images) if self.sqrt else images
