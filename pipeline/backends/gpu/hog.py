"""HoG on the GPU, equal to the cpu backend's to 1e-6, but where rounding alone puts a gradient on one side of an edge.

Integers of up to 16 bits without square root are exact: one product per edge decides every bin, ties included. Any
other gradient within 4e-15 radians of a bin's edge gets its angle as in scikit-image: atan2, degrees, modulo 180,
compared with 180 / n * i in float64. CUDA's atan2 (right to 2 units in the last place) may differ from NumPy's in the
last bit, and so may its hypot, which orders colour channels of equal length but for rounding. So a gradient that lies
within one rounding of an edge may fall on the other side of it than on the cpu backend.

An image is read once and its features are written once; cell histograms stay in a block's shared memory. At the
default layout (50 x 100 pixels of 8 bits, 3240 features of float32) that is 5,000 bytes in and 12,960 out: 4.2 ns an
image at 4.3 TB/s, .9 of the datasheet of an H200, 42 us for 10,000 images. The kernel executes about 15,000 warp
instructions an image (counted in its PTX), 17 ns at the full issue rate of that GPU: arithmetic and not memory is its
limit there.

Images whose histograms exceed 48 KiB (9 orientations: 296 x 296 pixels in cells of 8 x 8) go through two kernels, with
the cells in global memory between them.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import cupy as cp
import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.gpu import hog_plan, launch, memory, transfer
from pipeline.backends.host import native

if TYPE_CHECKING:
    from pipeline.backends.hog_layout import HogLayout


def hog(
    pixels: Any,
    layout: HogLayout,
    block_norm: str,
    transform_sqrt: bool,
    dtype: str,
    out: Any = None,
) -> Any:
    """Return the HoG features of a batch.

    Parameters
    ----------
    pixels : array, shape (n, h, w) or (n, h, w, channels)
        Images of any real type, on the device or on the host. Values are not rescaled: uint8 stays 0 to 255. Of
        a colour pixel the channel with the longest gradient votes, the first on ties.
    layout : HogLayout
        Image, cell and block sizes and the number of orientations.
    block_norm : {'L1', 'L1-sqrt', 'L2', 'L2-Hys'}
        How a block is normalised; epsilon is 1e-5.
    transform_sqrt : bool
        Take the square root of each pixel first.
    dtype : {'float32', 'float64'}
        Type of the result.
    out : cupy.ndarray, shape (n, layout.n_features), C order, optional
        Where to write the result.

    Returns
    -------
    cupy.ndarray, shape (n, layout.n_features)
        Features in the layout's order. A pixel that is NaN or infinite spoils the blocks of its cell and the
        cells beside it, no others.

    Raises
    ------
    ValueError
        If the batch does not fit the layout, or a setting is unknown (see
        :mod:`pipeline.backends.hog_rules`).
    BackendError
        If not even one image fits into the memory of the GPU, or there are more than 12,288 orientations.

    Notes
    -----
    Equal to the cpu backend's for integers of up to 16 bits without square root; for other pixels, CUDA's atan2 may
    put a gradient within one rounding of an edge on its other side (see the module).

    Types other than uint8, uint16, float32 and float64 are converted on the device first, in chunks that fit in
    its memory. Each image's features depend on that image only, and every sum has a fixed order: results repeat
    bit by bit and do not depend on chunks.

    References
    ----------
    Dalal, N. and Triggs, B., Histograms of Oriented Gradients for Human Detection, CVPR 2005.
    """
    hog_rules.check(pixels, layout, block_norm, False, dtype)

    def features(batch: Any, rows: Any) -> None:
        _features(batch, layout, block_norm, transform_sqrt, rows)

    if isinstance(pixels, cp.ndarray):
        if out is None:
            out = cp.empty((len(pixels), layout.n_features), dtype=dtype)
        hog_rules.check_out(out, len(pixels), layout, dtype)
        features(pixels, out)
        return out
    return transfer.map_images(np.asarray(pixels), None, features, layout.n_features, dtype, 0)


def _features(pixels: Any, layout: HogLayout, block_norm: str, transform_sqrt: bool, out: Any) -> None:
    """Write the features of device images to `out`."""
    dtype = out.dtype.name
    _check_roots(pixels, transform_sqrt)
    definitions = hog_plan.specialise(pixels.dtype, layout, block_norm, transform_sqrt, dtype)
    cotangents = _cotangents(layout, pixels.dtype, transform_sqrt, dtype)
    per_block = hog_plan.images_per_block(layout, hog_plan.scale_bytes(definitions))
    size = (*layout.image_shape, *layout.cells)

    def work(part: slice) -> None:
        images = _kernel_pixels(pixels[part])
        n = len(images)
        fused = hog_plan.fused(layout, definitions, n)
        if fused is not None:
            stride = hog_plan.slot_stride(layout, per_block)
            launch.run(fused, images, cotangents, out[part], n, *size, per_block, stride)
            return
        cells = _count(images, layout, definitions, cotangents)
        blocks = n * math.prod(layout.blocks)
        launch.run(hog_plan.blocks(layout, definitions, n), cells, out[part], blocks, *layout.cells)

    memory.in_chunks(len(pixels), _work_bytes(pixels, layout, split=per_block == 0), work, "images")


def _check_roots(pixels: Any, transform_sqrt: bool) -> None:
    if transform_sqrt and pixels.size and pixels.dtype.kind in "if":
        hog_rules.check_roots(float(cp.nanmin(pixels)))


def _kernel_pixels(pixels: Any) -> Any:
    """Return the pixels in a type that the kernels read, contiguous; a copy only if needed."""
    return cp.ascontiguousarray(pixels, dtype=hog_plan.kernel_type(pixels.dtype))


def _work_bytes(pixels: Any, layout: HogLayout, split: bool) -> int:
    """Return the bytes that one image takes while it is worked on: its converted copy and its cells."""
    kind = hog_plan.kernel_type(pixels.dtype)
    copied = kind != pixels.dtype or not pixels.flags.c_contiguous
    copy = math.prod(pixels.shape[1:]) * kind.itemsize if copied else 0
    cells = 4 * math.prod(layout.cells) * layout.orientations if split else 0
    return copy + cells


def _cotangents(layout: HogLayout, source: np.dtype, transform_sqrt: bool, dtype: str) -> Any:
    real = hog_plan.real_type(source, transform_sqrt, dtype)
    return _edges(layout.orientations, real.str, cp.cuda.Device().id)


@functools.cache
def _edges(orientations: int, real: str, device: int) -> Any:
    """Return the cotangents of the bins' edges on the current device, whose number is `device`.

    They are kept for later calls, which may work on another stream: so their copy is waited for.
    """
    found = cp.asarray(hog_rules.cotangents(orientations, np.dtype(real)))
    cp.cuda.get_current_stream().synchronize()
    return found


def _count(images: Any, layout: HogLayout, definitions: tuple, cotangents: Any) -> Any:
    """Return the mean magnitude per cell and orientation: float32 (n cells, orientations)."""
    n = len(images)
    cells = n * math.prod(layout.cells)
    histograms = cp.empty((cells, layout.orientations), dtype=cp.float32)
    plan = hog_plan.cells(layout, definitions, n)
    launch.run(plan, images, cotangents, histograms, cells, *layout.image_shape, *layout.cells)
    return histograms


def hog_image(pixels: Any, layout: HogLayout, transform_sqrt: bool) -> Any:
    """Return a picture of each image's cell histograms: in each cell one line per orientation.

    Parameters
    ----------
    pixels, layout, transform_sqrt
        As in :func:`hog`.

    Returns
    -------
    cupy.ndarray of float32 or float64, shape (n, h, w)
        Brightness is the sum of the cell values of the lines through a pixel. float32 for float16 and float32
        input.

    Raises
    ------
    ValueError
        As in :func:`hog`, and if a cell has a side of 1 pixel.
    """
    hog_rules.check(pixels, layout, "L2-Hys", False, "float64")
    hog_rules.check_picture(layout)
    if isinstance(pixels, np.ndarray):
        pixels = native(pixels)
    pixels = cp.asarray(pixels)
    _check_roots(pixels, transform_sqrt)
    definitions = hog_plan.specialise(pixels.dtype, layout, "L2-Hys", transform_sqrt, "float64")
    cotangents = _cotangents(layout, pixels.dtype, transform_sqrt, "float64")
    cells = _count(_kernel_pixels(pixels), layout, definitions, cotangents).reshape(len(pixels), -1)
    out = cp.zeros((len(pixels), math.prod(layout.image_shape)), hog_rules.float_type(pixels.dtype))
    for orientation in range(layout.orientations):
        places, sources = _lines(layout, orientation)
        out[:, cp.asarray(places)] += cells[:, cp.asarray(sources)]
    return out.reshape(len(pixels), *layout.image_shape)


def _lines(layout: HogLayout, orientation: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels of all cells' lines of one orientation, and for each the histogram entry it shows.

    Lines stay inside their cells, so no pixel occurs twice.
    """
    from skimage.draw import line

    height, width = layout.pixels_per_cell
    radius = min(height, width) // 2 - 1
    angle = np.pi * (orientation + 0.5) / layout.orientations
    down, right = radius * np.cos(angle), radius * np.sin(angle)
    places, sources = [], []
    for r in range(layout.cells[0]):
        for c in range(layout.cells[1]):
            row, col = r * height + height // 2, c * width + width // 2
            # end points are cut to whole pixels after the sum, so they differ from cell to cell by rounding
            at = line(int(row - down), int(col + right), int(row + down), int(col - right))
            places.append(at[0] * layout.image_shape[1] + at[1])
            entry = (r * layout.cells[1] + c) * layout.orientations + orientation
            sources.append(np.full(len(at[0]), entry))
    return np.concatenate(places), np.concatenate(sources)
