"""CLAHE of a batch of 8-bit images at once, number for number that of scikit-image.

cuCIM's ``equalize_adapthist`` takes one image at a time and clips its histograms on the host, a loop of Python for each
tile: tens of milliseconds an image. Here the tiles of all images of a chunk are clipped together on the device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from pipeline.config import Preprocess

GRAY = 1 << 14  # gray levels in which scikit-image works
COPIES = 8  # of the tiles' histograms, in 8 bytes a bin, that the work takes at most


class Tiles(NamedTuple):
    """How an image of some shape is cut, one pair (rows, columns) each."""

    kernel: tuple[int, int]  # pixels of a tile
    before: tuple[int, int]  # pixels that padding puts before the image
    padded: tuple[int, int]  # pixels with padding
    histograms: tuple[int, int]  # tiles that have a histogram


def tiles(shape: tuple[int, int], kernel_size: int | None) -> Tiles:
    """Return the tiles of images of `shape`: padded by half a tile on each side and to whole tiles."""
    kernel = tuple(max(s // 8, 1) if kernel_size is None else kernel_size for s in shape)
    padded = tuple(
        k // 2 + s + (k - s % k) % k + math.ceil(k / 2) for k, s in zip(kernel, shape, strict=True)
    )
    histograms = tuple(s // k - 1 for k, s in zip(kernel, padded, strict=True))
    return Tiles(kernel, tuple(k // 2 for k in kernel), padded, histograms)  # type: ignore[arg-type]


def bytes_needed(shape: tuple[int, int], step: Preprocess) -> int:
    """Return the bytes of work space for one image, beside what its pixels take."""
    rows, cols = tiles(shape, step.kernel_size).histograms
    return 8 * COPIES * (rows + 2) * (cols + 2) * step.nbins


def equalize_adapthist(images: Any, step: Preprocess) -> Any:
    """Return ``skimage.exposure.equalize_adapthist`` of each 8-bit image (n, h, w): float64 (n, h, w)."""
    cut = tiles(images.shape[1:], step.kernel_size)
    bins = _bins(images, step.nbins)
    maps = _maps(_histograms(bins, cut, step), cut)
    return _stretched(_interpolated(bins, maps, cut))


def _bins(images: Any, nbins: int) -> Any:
    """Return the histogram bin of each pixel, int64: its level on the image's own scale of 2^14 grays, in steps."""
    n = len(images)
    flat = images.reshape(n, -1)
    low, high = (257.0 * f(flat, axis=1).astype(cp.float64)[:, None] for f in (cp.min, cp.max))
    levels = 257.0 * cp.arange(256, dtype=cp.float64)[None, :]  # as 16-bit numbers
    constant = low == high
    scaled = (levels - low) / cp.where(constant, 1.0, high - low) * (GRAY - 1.0)
    gray = cp.rint(cp.where(constant, cp.minimum(levels, GRAY - 1.0), scaled))
    # of levels that the image does not have nobody asks: they only must not leave the table
    inside = cp.minimum(cp.maximum(gray, 0.0), GRAY - 1.0).astype(cp.int64)
    table = inside // (1 + GRAY // nbins)
    place = cp.arange(n, dtype=cp.int64)[:, None] * 256 + flat.astype(cp.int64)
    return cp.take(table.reshape(-1), place).reshape(images.shape)


def _reflected(size: int, before: int, padded: int) -> np.ndarray:
    """Return the number of the pixel that stands at each place of a padded row or column."""
    return np.pad(np.arange(size), (before, padded - before - size), mode="reflect")


def _histograms(bins: Any, cut: Tiles, step: Preprocess) -> Any:
    """Return the clipped histograms of the tiles: int64 (n, tile rows, tile columns, nbins)."""
    n, nbins, (rows, cols) = len(bins), step.nbins, cut.histograms
    spread = bins
    for axis in (0, 1):  # the tiles begin where the image does, and end in the padding
        begin, length = cut.before[axis], cut.histograms[axis] * cut.kernel[axis]
        places = _reflected(bins.shape[1 + axis], begin, cut.padded[axis])[begin : begin + length]
        spread = cp.take(spread, cp.asarray(places), axis=1 + axis)
    tile = (np.arange(rows * cut.kernel[0]) // cut.kernel[0])[:, None] * cols
    tile = cp.asarray(tile + np.arange(cols * cut.kernel[1]) // cut.kernel[1])
    image = cp.arange(n, dtype=cp.int64)[:, None, None] * (rows * cols)
    counts = cp.bincount(((image + tile) * nbins + spread).reshape(-1), minlength=n * rows * cols * nbins)
    pixels = cut.kernel[0] * cut.kernel[1]
    most = max(int(step.clip_limit * pixels), 1) if step.clip_limit > 0.0 else pixels
    return clipped(counts.reshape(-1, nbins), most).reshape(n, rows, cols, nbins)


def clipped(counts: Any, most: int) -> Any:
    """Return histograms (m, nbins) with no bin above `most`; what was cut off goes to other bins, as in scikit-image.

    First every bin gets an equal part. The rest is dealt out in passes, each of them bin by bin: pass i starts at bin i
    and steps as far as there are open bins for each count that is left.
    """
    nbins = counts.shape[1]
    left = cp.sum(cp.maximum(counts - most, 0), axis=1)
    counts = cp.minimum(counts, most)
    share = left // nbins
    low = counts < (most - share)[:, None]
    left = left - cp.sum(low, axis=1) * share
    counts = cp.where(low, counts + share[:, None], counts)
    middle = (counts >= (most - share)[:, None]) & (counts < most)
    left = left - cp.sum(cp.where(middle, most - counts, 0), axis=1)
    counts = cp.where(middle, most, counts)
    waiting = np.flatnonzero(cp.asnumpy(left > 0))
    while waiting.size:
        rows = cp.asarray(waiting)
        before = cp.take(left, rows)
        some, rest = _dealt(cp.take(counts, rows, axis=0), before, most)
        counts[rows], left[rows] = some, rest
        waiting = waiting[cp.asnumpy((rest > 0) & (rest != before))]
    return counts


def _dealt(counts: Any, left: Any, most: int) -> tuple[Any, Any]:
    """Return histograms and what is left to deal out after one pass over the bins."""
    bins = cp.arange(counts.shape[1], dtype=cp.int64)[None, :]
    for first in range(counts.shape[1]):
        under = counts < most
        step = cp.maximum(cp.sum(under, axis=1) // cp.maximum(left, 1), 1)[:, None]
        taken = under & (bins >= first) & ((bins - first) % step == 0) & (left > 0)[:, None]
        counts = counts + taken
        left = left - cp.sum(taken, axis=1)
        if not bool((left > 0).any()):
            break
    return counts, left


def _maps(counts: Any, cut: Tiles) -> Any:
    """Return the new gray level of each bin, int64, with the tiles at the edges repeated outside."""
    levels = cp.cumsum(counts, axis=3).astype(cp.float64) * ((GRAY - 1) / (cut.kernel[0] * cut.kernel[1]))
    maps = cp.minimum(levels, GRAY - 1.0).astype(cp.int64)
    for axis in (0, 1):
        places = np.pad(np.arange(cut.histograms[axis]), 1, mode="edge")
        maps = cp.take(maps, cp.asarray(places), axis=1 + axis)
    return maps


def _interpolated(bins: Any, maps: Any, cut: Tiles) -> Any:
    """Return the gray levels between the maps of the four tiles around each pixel: whole numbers, float64 (n, h, w)."""
    n, nbins = len(bins), maps.shape[3]
    place = [np.arange(s) + b for s, b in zip(bins.shape[1:], cut.before, strict=True)]
    tile = [at // k for at, k in zip(place, cut.kernel, strict=True)]
    share = [at % k / k for at, k in zip(place, cut.kernel, strict=True)]
    image = cp.arange(n, dtype=cp.int64)[:, None, None] * (maps.shape[1] * maps.shape[2])
    total = cp.zeros(bins.shape, dtype=cp.float32)
    for down in (0, 1):
        for right in (0, 1):
            which = (tile[0] + down)[:, None] * maps.shape[2] + (tile[1] + right)[None, :]
            levels = cp.take(maps.reshape(-1), (image + cp.asarray(which)) * nbins + bins)
            across, along = (s if on else 1 - s for s, on in zip(share, (down, right), strict=True))
            total += (levels * cp.asarray(along[None, :] * across[:, None])).astype(cp.float32)
    return total.astype(cp.uint16).astype(cp.float64)


def _stretched(gray: Any) -> Any:
    """Return each image from 0 to 1; a constant one cut off there."""
    flat = gray.reshape(len(gray), -1)
    low, high = (f(flat, axis=1)[:, None] for f in (cp.min, cp.max))
    constant = low == high
    scaled = (flat - low) / cp.where(constant, 1.0, high - low)
    return cp.where(constant, cp.minimum(flat, 1.0), scaled).reshape(gray.shape)
