"""Made-up pictures for benchmarks: each class is a fixed arrangement of oriented strokes.

Of every class there is one drawing, a sum of Gabor patches (Gaussian-windowed gratings). A picture is the
drawing of its class, shifted by a few pixels, at a random contrast and brightness, with uniform noise.
``difficulty`` raises the noise, the shift and the range of contrasts, and mixes into every drawing one that
all classes share.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.images import Images, Progress, allocate
from pipeline.processor import usable_cores

BLOCK = 256  # pictures from one random stream
_PATCHES = 8


def make_synthetic(
    data: config.Data,
    image: config.Image,
    start: int = 0,
    stop: int | None = None,
    progress: Progress | None = None,
) -> Images:
    """Return pictures ``start`` to ``stop`` of the endless sequence that ``data.seed`` stands for.

    Picture i depends on i, classes, difficulty, seed and the size only: the first k of a larger ``data.n``
    are the k of a smaller one, and a stream in chunks equals the whole. Its class is i modulo
    ``data.classes``.

    Parameters
    ----------
    data : settings n, classes, difficulty, seed, workers
    image : settings height, width
    start, stop : int
        ``stop`` defaults to ``data.n``.
    progress : callable, optional
        Called with (pictures done, stop - start).
    """
    stop = data.n if stop is None else min(stop, data.n)
    pixels = allocate(stop - start, image)
    drawings, shift = _drawings(data, image)

    def work(block: int) -> int:
        first, last = max(start, block * BLOCK), min(stop, (block + 1) * BLOCK)
        made = _block(block, last - block * BLOCK, data, drawings, shift)
        pixels[first - start : last - start] = made[first - block * BLOCK :]
        return last - first

    blocks = range(start // BLOCK, -(-stop // BLOCK))
    with ThreadPoolExecutor(data.workers or usable_cores()) as pool:
        done = 0
        for count in pool.map(work, blocks):
            done += count
            if progress is not None:
                progress(done, stop - start)
    labels = np.arange(start, stop, dtype=np.intp) % data.classes
    width = len(str(data.classes - 1))
    names = tuple(f"class{c:0{width}d}" for c in range(data.classes))
    paths = [f"{names[i % data.classes]}/{i:06d}" for i in range(start, stop)]
    return Images(pixels, labels, names, paths, made=DataName.synthetic)


def _drawings(data: config.Data, image: config.Image) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the drawings, float32 (classes, height + 2 rows, width + 2 cols), and the shift (rows, cols)."""
    reach = 0.02 + 0.06 * data.difficulty
    shift = (round(reach * image.height), round(reach * image.width))
    size = (image.height + 2 * shift[0], image.width + 2 * shift[1])
    drawings = np.stack(
        [_drawing(np.random.default_rng([data.seed, 1, c]), size) for c in range(data.classes)]
    )
    common = _drawing(np.random.default_rng([data.seed, 2]), size)
    share = 0.5 * data.difficulty
    mixed = (1.0 - share) * drawings + share * common
    return np.ascontiguousarray(mixed, np.float32), shift


def _drawing(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Return a sum of Gabor patches scaled to -1..1, float64 of the given size."""
    y, x = np.mgrid[0 : size[0], 0 : size[1]].astype(np.float64)
    scale = min(size)
    picture = np.zeros(size)
    for _ in range(_PATCHES):
        row, col = rng.uniform(0.1, 0.9, 2) * size
        angle = rng.uniform(0.0, np.pi)
        wavelength = rng.uniform(0.12, 0.3) * scale
        sigma = rng.uniform(0.12, 0.25) * scale
        phase = rng.uniform(0.0, 2.0 * np.pi)
        dy, dx = y - row, x - col
        wave = np.cos(2.0 * np.pi * (dx * np.cos(angle) + dy * np.sin(angle)) / wavelength + phase)
        picture += wave * np.exp(-(dx**2 + dy**2) / (2.0 * sigma**2))
    return picture / max(np.abs(picture).max(), 1e-12)


def _block(
    block: int,
    count: int,
    data: config.Data,
    drawings: np.ndarray,
    shift: tuple[int, int],
) -> np.ndarray:
    """Return the first ``count`` pictures of a block, uint8 (count, height, width)."""
    rng = np.random.default_rng([data.seed, 3, block])
    height, width = drawings.shape[1] - 2 * shift[0], drawings.shape[2] - 2 * shift[1]
    labels = (block * BLOCK + np.arange(count)) % data.classes
    # Every draw below is made for the whole block, so that a shorter block is the head of the full one.
    rows = rng.integers(0, 2 * shift[0] + 1, BLOCK)[:count]
    cols = rng.integers(0, 2 * shift[1] + 1, BLOCK)[:count]
    weakest = 0.9 - 0.5 * data.difficulty
    contrast = rng.uniform(weakest, 1.0, BLOCK)[:count].astype(np.float32)
    brightness = rng.uniform(-24.0, 24.0, BLOCK)[:count].astype(np.float32) + np.float32(127.5)
    amplitude = np.float32((8.0 + 36.0 * data.difficulty) / 127.5)
    noise = np.frombuffer(rng.bytes(count * height * width), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(drawings, (height, width), axis=(1, 2))
    picture = windows[labels, rows, cols]  # a copy, float32 (count, height, width)
    picture *= (np.float32(90.0) * contrast)[:, None, None]
    picture += (brightness - np.float32(127.5) * amplitude)[:, None, None]
    picture += amplitude * noise.reshape(picture.shape)
    np.clip(picture, 0.0, 255.0, out=picture)
    return picture.astype(np.uint8)
