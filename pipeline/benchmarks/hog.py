"""Suite ``hog``: HoG features of a batch of small images, by the backends and by what else is installed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from pipeline import backends, config
from pipeline.benchmarks import gpus
from pipeline.benchmarks.registry import Case, Setup, Work, largest_difference, row, suite
from pipeline.datasets.synthetic import make_synthetic
from pipeline.features.layout import HogLayout

SAME = 1e-6  # the promise of the backends
ALIKE = 0.2  # 1 - correlation, for descriptors of another definition
NORM = "L2-Hys"


@suite("hog", share=0.12)
def case(setup: Setup) -> Case:
    """Return made-up images, and the reference's features of some of them."""
    n, sample = setup.choose((2000, 40), (200, 20), (8, 8))
    data = config.Data(n=n, seed=setup.seed, workers=setup.threads)
    pixels = np.asarray(make_synthetic(data, config.Image()).pixels)
    layout = HogLayout(pixels.shape[1:])
    index = np.linspace(0, n - 1, sample).astype(np.intp)  # the first, the last and some between
    wanted = backends.get("reference").hog.hog(pixels[index], layout, NORM, False, "float64")
    found = SimpleNamespace(pixels=pixels, index=index, layout=layout, wanted=wanted)
    height, width = layout.image_shape
    work = f"HoG of {n:,} images of {height} x {width} uint8, {layout.n_features} features each"
    nbytes = pixels.nbytes + 4 * n * layout.n_features
    operations = float(n * _operations(layout))

    def error(features: np.ndarray) -> float:
        if features.shape != (n, layout.n_features):
            return float("inf")
        return largest_difference(wanted)(features[index])

    return Case(found, error, SAME, nbytes, "largest difference", work, setup, operations=operations)


def _operations(layout: HogLayout) -> int:
    """Return the least operations of an image, in whatever way angles are found.

    Of a pixel two differences, the length of the gradient (4) and a sum; of a feature a product that scales it, the
    square and the sum after it was clipped, and the product that scales it by these.
    """
    height, width = layout.image_shape
    return 7 * height * width + 4 * layout.n_features


@row("hog", "scikit-image (reference)")
def _reference(case: Case) -> Work:
    data = case.data
    part, run = data.pixels[data.index], backends.get("reference").hog.hog
    return Work(
        lambda: run(part, data.layout, NORM, False, "float32"),
        scale=len(data.pixels) / len(part),
        error=largest_difference(data.wanted),
        note=f"{len(part)} images, extrapolated" if len(part) < len(data.pixels) else "",
    )


@row("hog", "cpu backend")
def _cpu(case: Case) -> Work:
    data, run = case.data, backends.get("cpu").hog.hog
    return Work(lambda: run(data.pixels, data.layout, NORM, False, "float32"))


@row("hog", "gpu backend", needs=("cupy",))
def _gpu(case: Case) -> Work:
    data, backend = case.data, gpus.backend(case.setup.device)
    assert backend.clock is not None  # a device has one
    finish = backend.clock.finish
    return Work(
        lambda pixels: backend.hog.hog(pixels, data.layout, NORM, False, "float32"),
        put=lambda: backend.put(data.pixels),
        get=backend.get,
        wait=lambda _: finish(),
        on_device=True,
    )


def unlike(wanted: np.ndarray, found: np.ndarray) -> float:
    """Return 1 - the correlation of the distances between images; infinite if the numbers of images differ.

    Descriptors of another order, weighting or interpolation cannot be compared number by number. They are alike
    if they find the same images similar.
    """
    found = np.asarray(found, dtype=np.float64).reshape(len(found), -1)
    if len(found) != len(wanted):
        return float("inf")
    pairs = np.triu_indices(len(wanted), 1)
    apart = [np.linalg.norm(X[:, None] - X[None], axis=2)[pairs] for X in (wanted, found)]
    with np.errstate(invalid="ignore"):  # descriptors that are all equal: NaN, which is not alike
        return float(1.0 - np.corrcoef(*apart)[0, 1])


def _peer(case: Case, run, note: str) -> Work:
    return Work(
        run,
        error=lambda found: unlike(case.data.wanted, found[case.data.index]),
        tolerance=ALIKE,
        measure="1 - correlation of the distances between images",
        note=f"another definition: {note}",
    )


@row("hog", "OpenCV", needs=("opencv-hog",))
def _opencv(case: Case) -> Work:
    import cv2

    cv2.setNumThreads(case.setup.threads)
    pixels = case.data.pixels
    rows, cols = (8 * (size // 8) for size in pixels.shape[1:])
    descriptor = cv2.HOGDescriptor((cols, rows), (24, 24), (8, 8), (8, 8), 9)

    def run() -> np.ndarray:
        inner = (np.ascontiguousarray(image[:rows, :cols]) for image in pixels)
        return np.stack([descriptor.compute(image).ravel() for image in inner])

    return _peer(
        case,
        run,
        "weighted by a Gaussian over the block, and shared between neighbouring cells and bins",
    )


@row("hog", "hogpp", needs=("hogpp",))
def _hogpp(case: Case) -> Work:
    import hogpp

    def run() -> np.ndarray:
        out = []
        for image in case.data.pixels:
            descriptor = hogpp.IntegralHOGDescriptor(
                n_bins=9, cell_size=(8, 8), block_size=(24, 24), block_stride=(8, 8), block_norm="l2-hys"
            )
            descriptor.compute(image)
            out.append(np.asarray(descriptor.features_).ravel())
        return np.stack(out)

    return _peer(case, run, "by an integral histogram, angles shifted by a quarter turn")
