"""How the HoG kernels are specialised and launched: pure functions of the layout, readable without a GPU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pipeline.backends import hog_rules
from pipeline.backends.gpu.launch import SHARED_LIMIT, THREADS, Launch, ceil_div, macros
from pipeline.config import BLOCK_NORMS
from pipeline.errors import BackendError

if TYPE_CHECKING:
    from pipeline.features.layout import HogLayout

WARP = 32
CELL_THREADS = 64  # of a CUDA block that counts cells for global memory
BLOCK_THREADS = 128  # of a CUDA block that normalises from global memory
DIRECT = (np.uint8, np.uint16, np.float32, np.float64)  # types that the kernels read as they are


def kernel_type(source: np.dtype) -> np.dtype:
    """Return the type in which pixels of type `source` are handed to the kernels."""
    if source == np.bool_:
        return np.dtype(np.uint8)
    return np.dtype(source) if source in DIRECT else hog_rules.float_type(source)


def real_type(source: np.dtype, transform_sqrt: bool, dtype: str) -> np.dtype:
    """Return the type of magnitudes and norms: float32 only where it decides every bin exactly.

    Differences of 8-bit pixels and their squares are exact in float32; all else needs float64.
    """
    narrow = kernel_type(source) == np.uint8 and not transform_sqrt and dtype == "float32"
    return np.dtype(np.float32 if narrow else np.float64)


def specialise(
    source: np.dtype, layout: HogLayout, block_norm: str, transform_sqrt: bool, dtype: str
) -> tuple[tuple[str, str | int], ...]:
    """Return the macros of ``hog.cu`` for images of type `source` and features of type `dtype`."""
    pixel = kernel_type(source)
    whole = pixel.kind == "u" and not transform_sqrt
    return macros(
        PIXEL=pixel,
        DIFFERENCE=np.dtype(np.int32) if whole else hog_rules.float_type(pixel),
        REAL=real_type(source, transform_sqrt, dtype),
        OUT=np.dtype(dtype),
        CHANNELS=layout.channels or 1,
        ORIENTATIONS=layout.orientations,
        CELL_ROWS=layout.pixels_per_cell[0],
        CELL_COLS=layout.pixels_per_cell[1],
        BLOCK_ROWS=layout.cells_per_block[0],
        BLOCK_COLS=layout.cells_per_block[1],
        NORM=BLOCK_NORMS.index(block_norm),
        TAKE_ROOT=int(transform_sqrt),
        WHOLE=int(whole),
        EXACT=int(hog_rules.exact(np.dtype(source), transform_sqrt)),
    )


def scale_bytes(definitions: tuple[tuple[str, str | int], ...]) -> int:
    """Return the size of the kernels' BlockScale: two numbers and a 64-bit place."""
    return 24 if dict(definitions)["REAL"] == "double" else 16


def slot_stride(layout: HogLayout, images: int) -> int:
    """Return the distance between bins in shared memory, in floats.

    Bins lie a multiple of 32 plus the block's columns apart: threads that read the features of a block row
    then meet different memory banks.
    """
    slots = images * math.prod(layout.cells)
    return slots + (layout.cells_per_block[1] - slots) % WARP


def _shared(layout: HogLayout, images: int, scale: int) -> int:
    """Return the bytes that `images` images take, to the last float that is used."""
    slots = images * math.prod(layout.cells)
    histograms = 4 * ((layout.orientations - 1) * slot_stride(layout, images) + slots)
    return images * math.prod(layout.blocks) * scale + histograms


def images_per_block(layout: HogLayout, scale: int) -> int:
    """Return how many images one CUDA block works on; 0: not even one fits in shared memory."""
    images = max(1, THREADS // math.prod(layout.cells))
    while images and _shared(layout, images, scale) > SHARED_LIMIT:
        images -= 1
    return images


def fused(layout: HogLayout, definitions: tuple[tuple[str, str | int], ...], n: int) -> Launch | None:
    """Return the launch of ``hog_fused`` for `n` images, or None if an image's histograms do not fit."""
    scale = scale_bytes(definitions)
    images = images_per_block(layout, scale)
    if images == 0:
        return None
    slots = images * math.prod(layout.cells)
    sweeps = ceil_div(slots, THREADS)
    threads = ceil_div(ceil_div(slots, sweeps), WARP) * WARP
    return Launch(
        "hog_fused", definitions, (ceil_div(n, images),), (threads,), _shared(layout, images, scale)
    )


def cells(layout: HogLayout, definitions: tuple[tuple[str, str | int], ...], n: int) -> Launch:
    """Return the launch of ``hog_cells`` for `n` images.

    Raises
    ------
    BackendError
        If one cell's histogram alone exceeds shared memory (12,288 orientations).
    """
    room = SHARED_LIMIT // (4 * layout.orientations)
    if room == 0:
        raise BackendError(
            f"orientations={layout.orientations} is more than backend=gpu counts "
            f"({SHARED_LIMIT // 4}); use fewer, or backend=cpu"
        )
    threads = min(CELL_THREADS, room)
    if threads | 1 > room:  # the kernel makes the distance between bins odd
        threads -= 1
    count = n * math.prod(layout.cells)
    shared = 4 * layout.orientations * (threads | 1)
    return Launch("hog_cells", definitions, (ceil_div(count, threads),), (threads,), shared)


def blocks(layout: HogLayout, definitions: tuple[tuple[str, str | int], ...], n: int) -> Launch:
    """Return the launch of ``hog_blocks`` for `n` images."""
    count = n * math.prod(layout.blocks)
    shared = BLOCK_THREADS * scale_bytes(definitions)
    return Launch("hog_blocks", definitions, (ceil_div(count, BLOCK_THREADS),), (BLOCK_THREADS,), shared)


def bytes_moved(layout: HogLayout, source: np.dtype, dtype: str) -> int:
    """Return the bytes that one image makes the device's memory move: pixels once, features once.

    An image whose histograms do not fit in shared memory also writes and reads its cells.
    """
    pixels = math.prod(layout.image_shape) * (layout.channels or 1) * kernel_type(source).itemsize
    total = pixels + layout.n_features * np.dtype(dtype).itemsize
    definitions = specialise(source, layout, "L2-Hys", False, dtype)
    if images_per_block(layout, scale_bytes(definitions)) == 0:
        total += 2 * 4 * math.prod(layout.cells) * layout.orientations
    return total
