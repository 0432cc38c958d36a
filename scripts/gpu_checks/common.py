"""What the sections of check_gpu.py share: sizes, inputs, comparisons, timing."""

from __future__ import annotations

import contextlib
import importlib
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import backends
from pipeline.config import Preprocess
from pipeline.errors import BackendError
from pipeline.profiling.count import Count

WITHOUT_SANITIZER, WITHOUT_CUCIM = "--without-sanitizer", "--without-cucim"
LEARNERS = ("subspace", "ridge", "full", "componentwise", "random_features")


@dataclass(frozen=True)
class Sizes:
    """How much work is done; the dry run without a GPU takes less.

    Of the cases of HoG parity each `parity_step`-th is taken; `seconds` is about what one timing may take. `left_out`
    holds the options by which the user leaves something out.
    """

    images: tuple[int, ...] = (64, 4096, 65536)
    image_shape: tuple[int, int] = (50, 100)
    parity_images: int = 150
    parity_step: int = 1
    random_features: int = 512
    components: tuple[int, int] = (4000, 1620)
    classes: int = 10
    training_rows: int = 4000
    training_columns: int = 240
    rounds: int = 20
    repeats: int = 20
    timings: int = 20
    seconds: float = 0.5
    leak_rounds: int = 100
    transfer_bytes: int = 1 << 28
    copy_bytes: int = 1 << 30
    left_out: tuple[str, ...] = ()


def plain(value: Any) -> Any:
    """Return a NumPy value as JSON has it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def gpu() -> Any:
    """Return the gpu backend."""
    return backends.get("gpu")


def namespace() -> Any:
    """Return CuPy."""
    gpu()
    return importlib.import_module("cupy")


def not_run(step: Preprocess, sizes: Sizes) -> str | None:
    """Return why a preprocessing step is not run, None if it can be."""
    try:
        gpu().preprocess.require(step)
    except BackendError as error:
        return WITHOUT_CUCIM if WITHOUT_CUCIM in sizes.left_out else f"not run: {error}"
    return None


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Let every array that is made without values hold NaN, or -1: what a kernel leaves unwritten shows."""
    cp = namespace()
    made = {name: getattr(cp, name) for name in ("empty", "empty_like")}

    def filled(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            out = make(*arguments, **named)
            if out.size:
                out.fill(-1 if out.dtype.kind == "i" else 255 if out.dtype.kind == "u" else float("nan"))
            return out

        return call

    for name, make in made.items():
        setattr(cp, name, filled(make))
    try:
        yield
    finally:
        for name, make in made.items():
            setattr(cp, name, make)


def close(name: str, got: Any, wanted: np.ndarray, bound: float) -> tuple[float, list[str]]:
    """Return the largest difference relative to the largest value, and what is wrong with it."""
    got = np.asarray(gpu().get(got), dtype=np.float64)
    wanted = np.asarray(wanted, dtype=np.float64)
    if not np.isfinite(got).all():
        return float("nan"), [f"{name}: {int((~np.isfinite(got)).sum())} numbers are not finite"]
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    difference = float(np.abs(got - wanted).max(initial=0.0)) / scale
    return difference, [] if difference <= bound else [
        f"{name}: off by {difference:.2g}, allowed {bound:.1g}"
    ]


def make_pixels(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return images with edges of all angles, ties at 45 degrees among them, and noise."""
    rows, cols = np.indices(shape[1:3])
    waves = random.normal(size=(shape[0], 2, 1, 1)) * 0.4
    images = np.sin(waves[:, 0] * rows + waves[:, 1] * cols) * 100 + 120
    images = images + random.integers(-8, 9, images.shape)
    images = np.clip(np.round(images), 0, 255)
    if len(shape) == 4:
        images = images[..., None] * random.random(shape[3]) + random.integers(0, 9, shape)
    return images.astype(dtype) if np.dtype(dtype).kind in "iu" else (images / 255).astype(dtype)


def make_problem(random: np.random.Generator, n: int, q: int, J: int, dtype: str) -> list[np.ndarray]:
    """Return X, center, W and R of J weighted least squares."""
    X = random.normal(size=(n, q)) + random.normal(size=q)
    W = random.random((n, J)) * (random.random((n, J)) > 0.2)
    R = W * random.normal(size=(n, J))
    return [X.astype(dtype), X.mean(axis=0), W.astype(dtype), R.astype(dtype)]


def make_classes(
    random: np.random.Generator, n: int, p: int, J: int, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of J overlapping classes, and their labels."""
    y = np.concatenate([np.arange(J), random.integers(0, J, n - J)])
    centres = random.normal(size=(J, p)) * 0.4
    return (centres[y] + random.normal(size=(n, p))).astype(dtype), y


def median_ms(work: Callable[[], Any], repeats: int, seconds: float = math.inf) -> float:
    """Return the median of event-timed runs, in milliseconds.

    A first run, which may compile kernels, does not count, nor do two more if they are short. What takes long is run
    fewer times than asked for, so that it takes not much more than `seconds`, but three times at least.
    """
    work()
    first = _ms(work)
    runs = min(repeats, max(3, int(min(repeats, 1e3 * seconds / first))))
    if first < 100.0:
        work()
    return statistics.median(_ms(work) for _ in range(runs))


def _ms(work: Callable[[], Any]) -> float:
    cp = namespace()
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end))


def rates(ms: float, count: Count, copied: float) -> dict[str, float]:
    """Return a time, and what it says next to a measured copy of `copied` bytes per second."""
    return {
        "ms": ms,
        "MB": count.bytes / 1e6,
        "GB/s": count.bytes / ms / 1e6,
        "share of copy": count.bytes / ms * 1e3 / copied,
        "GFLOP/s": count.operations / ms / 1e6,
    }


def rounding_decides(pixels: np.ndarray, orientations: int, transform_sqrt: bool) -> np.ndarray:
    """Return for each image whether a gradient lies within rounding of an edge between two bins, bool (n,).

    There the last bit of ``atan2`` decides, and CUDA's need not be NumPy's. Integers of up to 16 bits without square
    root are exact, and so are gradients on the axes and diagonals: those are never excused.
    """
    if not transform_sqrt and pixels.dtype.kind in "bui" and pixels.dtype.itemsize <= 2:
        return np.zeros(len(pixels), dtype=bool)
    x = pixels.astype(np.float32 if pixels.dtype in (np.float16, np.float32) else np.float64)
    x = np.sqrt(x) if transform_sqrt else x
    row, col = np.zeros(x.shape), np.zeros(x.shape)
    row[:, 1:-1] = x[:, 2:] - x[:, :-2]
    col[:, :, 1:-1] = x[:, :, 2:] - x[:, :, :-2]
    bins = np.degrees(np.arctan2(row, col)) % 180.0 * (orientations / 180.0)
    near = np.abs(bins - np.rint(bins)) < 1e-12 * orientations
    near &= (row != 0.0) & (col != 0.0) & (np.abs(row) != np.abs(col))
    return near.reshape(len(pixels), -1).any(axis=1)
