"""Suite ``filter``: a wide Gaussian, exactly in several ways and nearly by three box filters.

The image repeats itself beyond its edges, which every way can do; the kernel is the sampled Gaussian up to four
standard deviations, and the reference two dense matrix products in float64.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import numpy as np

from pipeline.benchmarks.registry import Case, Setup, Work, largest_difference, row, suite

TRUNCATE = 4.0  # standard deviations
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
    work = f"Gaussian of sigma {sigma:g} ({taps.size} x {taps.size} taps) on {n} x {n + 16} float32 pixels"
    measure = "largest difference, of values from 0 to 1"
    return Case(data, largest_difference(wanted), EXACT, 2 * image.nbytes, measure, work, setup)


def gaussian(sigma: float) -> np.ndarray:
    """Return the taps of a sampled Gaussian, float64, of sum 1."""
    radius = int(TRUNCATE * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return taps / taps.sum()


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
        note=f"{taps.size**2:,} products a pixel; {rows} rows of pixels, extrapolated",
    )


@row("filter", "separable")
def _separable(case: Case) -> Work:
    from scipy import ndimage

    image, taps = case.data.image, case.data.taps

    def run() -> np.ndarray:
        down = ndimage.correlate1d(image, taps, axis=0, mode="wrap")
        return ndimage.correlate1d(down, taps, axis=1, mode="wrap")

    return Work(run, note=f"SciPy, {2 * taps.size} products a pixel")


@row("filter", "separable, matrix products")
def _products(case: Case) -> Work:
    down, along = (case.data.down.astype(np.float32), case.data.along.astype(np.float32))
    image = case.data.image
    return Work(lambda: down @ image @ along, note="BLAS, with the zeros multiplied")


@row("filter", "FFT")
def _fft(case: Case) -> Work:
    from scipy import fft

    image, workers = case.data.image, case.setup.threads
    transfer = _transfer(case)

    def run() -> np.ndarray:
        spectrum = fft.rfft2(image, workers=workers)
        spectrum *= transfer
        return fft.irfft2(spectrum, s=image.shape, workers=workers, overwrite_x=True)

    return Work(run, note="SciPy; the kernel's transform is made before")


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

    return Work(run, note="with a frame around the image, which repeats it")


def _torch(case: Case, place: str) -> Work:
    import torch

    torch.set_num_threads(case.setup.threads)
    on_device = place != "cpu"
    taps = torch.from_numpy(case.data.taps.astype(np.float32)).to(place)
    r = taps.numel() // 2

    def run(image):
        framed = torch.nn.functional.pad(image[None, None], (r, r, r, r), mode="circular")
        down = torch.nn.functional.conv2d(framed, taps.reshape(1, 1, -1, 1))
        return torch.nn.functional.conv2d(down, taps.reshape(1, 1, 1, -1))[0, 0]

    return Work(
        run,
        put=lambda: torch.from_numpy(case.data.image).to(place),
        get=lambda found: found.cpu().numpy(),
        wait=(lambda _: torch.cuda.synchronize(place)) if on_device else None,
        on_device=on_device,
        note="conv2d",
    )


@row("filter", "PyTorch, separable", needs=("torch",))
def _torch_cpu(case: Case) -> Work:
    return _torch(case, "cpu")


@row("filter", "PyTorch, GPU, separable", needs=("torch-gpu",))
def _torch_gpu(case: Case) -> Work:
    return _torch(case, f"cuda:{case.setup.device}")


def _cupy(case: Case, run, note: str, tolerance: float | None = None) -> Work:
    import cupy

    return Work(
        run,
        put=lambda: cupy.asarray(case.data.image),
        get=cupy.asnumpy,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        on_device=True,
        note=note,
        tolerance=tolerance,
    )


@row("filter", "CuPy, separable", needs=("cupy",))
def _cupy_separable(case: Case) -> Work:
    import cupy
    from cupyx.scipy import ndimage

    taps = cupy.asarray(case.data.taps)

    def run(image):
        down = ndimage.correlate1d(image, taps, axis=0, mode="wrap")
        return ndimage.correlate1d(down, taps, axis=1, mode="wrap")

    return _cupy(case, run, "as SciPy")


@row("filter", "CuPy, matrix products", needs=("cupy",))
def _cupy_products(case: Case) -> Work:
    import cupy

    down, along = (cupy.asarray(m.astype(np.float32)) for m in (case.data.down, case.data.along))
    return _cupy(case, lambda image: down @ image @ along, "cuBLAS, with the zeros multiplied")


@row("filter", "CuPy, FFT", needs=("cupy",))
def _cupy_fft(case: Case) -> Work:
    import cupy

    transfer = cupy.asarray(_transfer(case))
    inverse = functools.partial(cupy.fft.irfft2, s=case.data.image.shape)
    return _cupy(case, lambda image: inverse(cupy.fft.rfft2(image) * transfer), "cuFFT")


@row("filter", "CuPy, three boxes", needs=("cupy",))
def _cupy_boxes(case: Case) -> Work:
    from cupyx.scipy import ndimage

    widths = box_widths(case.data.sigma)

    def run(image):
        for width in widths:
            image = ndimage.uniform_filter(image, width, mode="wrap")
        return image

    return _cupy(case, run, "as SciPy: no Gaussian", NEARLY)
