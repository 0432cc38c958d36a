"""Suite ``filter``: a wide Gaussian, exactly in several ways and nearly by three box filters.

The image repeats itself beyond its edges, which every way can do; the kernel is the sampled Gaussian up to four
standard deviations, and the reference two dense matrix products in float64. What is made of the kernel (taps,
matrices, its transform) is made before the timed part in every row. The ways need different operations, so each row
says its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.benchmarks import gpus
from pipeline.benchmarks.registry import Case, Setup, Work, largest_difference, row, suite

TRUNCATE = 4.0  # standard deviations
FLOAT64 = ("vector", "float64")  # in which SciPy and CuPy add up, whatever the image is
PRODUCT = ("product", "float32")
EXACT = 2e-5  # float32 sums of values from 0 to 1
NEARLY = 0.05  # three boxes are no Gaussian


@suite("filter", share=0.14)
def case(setup: Setup) -> Case:
    """Return a random image, the kernel and the filtered image."""
    n, sigma = setup.choose((1024, 12.0), (256, 8.0), (48, 2.0))
    image = np.random.default_rng(setup.seed).random((n, n + 16), dtype=np.float32)
    taps = gaussian(sigma)
    down, along = circulant(taps, n), circulant(taps, n + 16)
    wanted = down @ image.astype(np.float64) @ along
    data = SimpleNamespace(image=image, sigma=sigma, taps=taps, down=down, along=along, wanted=wanted)
    data.operations = _operations(image.shape, taps.size)
    work = f"Gaussian of sigma {sigma:g} ({taps.size} x {taps.size} taps) on {n} x {n + 16} float32 pixels"
    measure = "largest difference, of values from 0 to 1"
    return Case(data, largest_difference(wanted), EXACT, 2 * image.nbytes, measure, work, setup)


def gaussian(sigma: float) -> np.ndarray:
    """Return the taps of a sampled Gaussian, float64, of sum 1."""
    radius = int(TRUNCATE * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return taps / taps.sum()


def _operations(shape: tuple[int, int], taps: int) -> dict[str, float]:
    """Return the operations of each way, for the whole image; additions and multiplications."""
    rows, cols = shape
    pixels, radius = float(rows * cols), taps // 2
    return {
        "direct": pixels * 2 * taps**2,
        "separable": pixels * 2 * (3 * radius + 1),  # mirrored pixels are added first: they have the same tap
        "products": pixels * 2 * (rows + cols),
        "FFT": 5 * pixels * math.log2(pixels) + pixels,  # of real numbers, there and back, and the factors
        "boxes": pixels * 3 * 2 * 3,  # a box is moved on by a sum and a difference, and divided by its width
    }


def circulant(taps: np.ndarray, n: int) -> np.ndarray:
    """Return the symmetric matrix (n, n) that filters a line of n numbers which repeats itself."""
    matrix = np.zeros((n, n))
    line = np.arange(n)
    for k, tap in enumerate(taps):
        matrix[line, (line + k - taps.size // 2) % n] += tap
    return matrix


def box_widths(sigma: float, passes: int = 3) -> list[int]:
    """Return odd widths of box filters whose variances add up to nearly sigma squared (Kovesi 2010)."""
    low = int(np.sqrt(12.0 * sigma**2 / passes + 1.0))
    low -= 1 - low % 2
    low = max(low, 1)
    few = round((12.0 * sigma**2 - passes * (low**2 + 4 * low + 3)) / (-4.0 * low - 4.0))
    return [low if i < few else low + 2 for i in range(passes)]


@row("filter", "direct")
def _direct(case: Case) -> Work:
    image, taps = case.data.image, case.data.taps.astype(np.float32)
    radius, rows = taps.size // 2, min(16, len(image))
    padded = np.take(image, np.arange(-radius, rows + radius), axis=0, mode="wrap")
    padded = np.pad(padded, ((0, 0), (radius, radius)), mode="wrap")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps.size, taps.size))
    kernel = np.outer(taps, taps)
    return Work(
        lambda: np.einsum("ijkl,kl->ij", windows, kernel),
        scale=len(image) / rows,
        error=largest_difference(case.data.wanted[:rows]),
        operations=case.data.operations["direct"],
        note=f"{taps.size**2:,} products a pixel; {rows} rows of pixels, extrapolated",
    )


@row("filter", "separable")
def _separable(case: Case) -> Work:
    from scipy import ndimage

    image, taps = case.data.image, case.data.taps

    def run() -> np.ndarray:
        down = ndimage.correlate1d(image, taps, axis=0, mode="wrap")
        return ndimage.correlate1d(down, taps, axis=1, mode="wrap")

    return Work(
        run,
        operations=case.data.operations["separable"],
        arithmetic=FLOAT64,
        note=f"SciPy, {2 * taps.size} products a pixel",
    )


@row("filter", "separable, matrix products")
def _products(case: Case) -> Work:
    down, along = (case.data.down.astype(np.float32), case.data.along.astype(np.float32))
    image = case.data.image
    return Work(
        lambda: down @ image @ along,
        operations=case.data.operations["products"],
        arithmetic=PRODUCT,
        note="BLAS, with the zeros multiplied",
    )


@row("filter", "FFT")
def _fft(case: Case) -> Work:
    from scipy import fft

    image, workers = case.data.image, case.setup.threads
    transfer = _transfer(case)

    def run() -> np.ndarray:
        spectrum = fft.rfft2(image, workers=workers)
        spectrum *= transfer
        return fft.irfft2(spectrum, s=image.shape, workers=workers, overwrite_x=True)

    return Work(
        run, operations=case.data.operations["FFT"], note="SciPy; the kernel's transform is made before"
    )


def _transfer(case: Case) -> np.ndarray:
    """Return the factor of each frequency, float32: real, since the kernel is symmetric."""
    first, second = (np.fft.fft(matrix[0]).real for matrix in (case.data.down, case.data.along))
    return np.outer(first, second[: second.size // 2 + 1]).astype(np.float32)


@row("filter", "three boxes")
def _boxes(case: Case) -> Work:
    from scipy import ndimage

    image, widths = case.data.image, box_widths(case.data.sigma)

    def run() -> np.ndarray:
        out = image
        for width in widths:
            out = ndimage.uniform_filter(out, width, mode="wrap")
        return out

    return Work(
        run,
        tolerance=NEARLY,
        operations=case.data.operations["boxes"],
        arithmetic=FLOAT64,
        note=f"SciPy, running sums of widths {', '.join(map(str, widths))}: no Gaussian",
    )


@row("filter", "OpenCV, separable", needs=("opencv",))
def _opencv(case: Case) -> Work:
    import cv2

    cv2.setNumThreads(case.setup.threads)
    image, taps = case.data.image, case.data.taps.astype(np.float32)
    r = taps.size // 2

    def run() -> np.ndarray:
        framed = cv2.copyMakeBorder(image, r, r, r, r, cv2.BORDER_WRAP)
        return cv2.sepFilter2D(framed, cv2.CV_32F, taps, taps)[r:-r, r:-r]

    return Work(
        run,
        operations=case.data.operations["separable"],
        note="with a frame around the image, which repeats it",
    )


def _torch(case: Case, place: str) -> Work:
    import torch

    torch.set_num_threads(case.setup.threads)
    taps = torch.from_numpy(case.data.taps.astype(np.float32)).to(place)
    r = taps.numel() // 2

    def run(image):
        framed = torch.nn.functional.pad(image[None, None], (r, r, r, r), mode="circular")
        down = torch.nn.functional.conv2d(framed, taps.reshape(1, 1, -1, 1))
        return torch.nn.functional.conv2d(down, taps.reshape(1, 1, 1, -1))[0, 0]

    shared = torch.from_numpy(case.data.image)
    work = Work(lambda: run(shared).numpy(), operations=case.data.operations["separable"], note="conv2d")
    if place == "cpu":
        return work
    return work._replace(
        run=run,
        put=lambda: shared.to(place),
        get=lambda found: found.cpu().numpy(),
        wait=lambda _: torch.cuda.synchronize(place),
        on_device=True,
    )


@row("filter", "PyTorch, separable", needs=("torch",))
def _torch_cpu(case: Case) -> Work:
    return _torch(case, "cpu")


@row("filter", "PyTorch, GPU, separable", needs=("torch-gpu",))
def _torch_gpu(case: Case) -> Work:
    return _torch(case, f"cuda:{case.setup.device}")


def _cupy(case: Case, run: Callable[[Any], Any], way: str, note: str) -> Work:
    cupy = gpus.cupy(case.setup.device)
    return Work(
        run,
        put=lambda: cupy.asarray(case.data.image),
        get=cupy.asnumpy,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        on_device=True,
        operations=case.data.operations[way],
        arithmetic={"separable": FLOAT64, "boxes": FLOAT64, "products": PRODUCT}.get(way),
        tolerance=NEARLY if way == "boxes" else None,
        note=note,
    )


@row("filter", "CuPy, separable", needs=("cupy",))
def _cupy_separable(case: Case) -> Work:
    cupy = gpus.cupy(case.setup.device)
    from cupyx.scipy import ndimage

    taps = cupy.asarray(case.data.taps)

    def run(image):
        down = ndimage.correlate1d(image, taps, axis=0, mode="wrap")
        return ndimage.correlate1d(down, taps, axis=1, mode="wrap")

    return _cupy(case, run, "separable", "as SciPy")


@row("filter", "CuPy, matrix products", needs=("cupy",))
def _cupy_products(case: Case) -> Work:
    cupy = gpus.cupy(case.setup.device)
    down, along = (cupy.asarray(m.astype(np.float32)) for m in (case.data.down, case.data.along))
    return _cupy(case, lambda image: down @ image @ along, "products", "cuBLAS, with the zeros multiplied")


@row("filter", "CuPy, FFT", needs=("cupy",))
def _cupy_fft(case: Case) -> Work:
    cupy = gpus.cupy(case.setup.device)
    transfer = cupy.asarray(_transfer(case))
    inverse = functools.partial(cupy.fft.irfft2, s=case.data.image.shape)
    return _cupy(case, lambda image: inverse(cupy.fft.rfft2(image) * transfer), "FFT", "cuFFT")


@row("filter", "CuPy, three boxes", needs=("cupy",))
def _cupy_boxes(case: Case) -> Work:
    from cupyx.scipy import ndimage

    widths = box_widths(case.data.sigma)

    def run(image):
        for width in widths:
            image = ndimage.uniform_filter(image, width, mode="wrap")
        return image

    return _cupy(case, run, "boxes", "as SciPy: no Gaussian")
