"""Time HoG of a whole batch against scikit-image's per-image loop, and the cost of writing the result.

    python scripts/bench_hog.py --n 10000 --rounds 7

Rounds are interleaved: scikit-image on a sample of the images, one thread, two threads, the floor, and again. Each
ratio is scikit-image's time per image over ours in the same round, and the gain one thread's time over two threads';
the table gives the median and the range of both. The floor is the time to write an array of the result's size, which
nothing can beat.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numba
import numpy as np
from skimage import data
from threadpoolctl import threadpool_limits

from pipeline.backends.cpu import hog as cpu
from pipeline.backends.reference import hog as reference
from pipeline.features import HogLayout

DEFAULT = HogLayout((50, 100))
FIRST_CALL = """
import time
import numpy as np
from pipeline.backends.cpu import hog
from pipeline.features import HogLayout
images = np.zeros((4, 50, 100), {dtype!r})
start = time.perf_counter()
hog.hog(images, HogLayout((50, 100)), "L2-Hys", False, "float32")
print(time.perf_counter() - start)
"""
# name, layout, norm, transform_sqrt, type of the pixels, type of the features
ROWS = [
    ("uint8, default", DEFAULT, "L2-Hys", False, "uint8", "float32"),
    ("uint8, float64 out", DEFAULT, "L2-Hys", False, "uint8", "float64"),
    ("uint8, L1", DEFAULT, "L1", False, "uint8", "float32"),
    ("uint8, L1-sqrt", DEFAULT, "L1-sqrt", False, "uint8", "float32"),
    ("uint8, L2", DEFAULT, "L2", False, "uint8", "float32"),
    ("uint8, transform_sqrt", DEFAULT, "L2-Hys", True, "uint8", "float32"),
    ("bool", DEFAULT, "L2-Hys", False, "bool", "float32"),
    ("uint16", DEFAULT, "L2-Hys", False, "uint16", "float32"),
    ("int64", DEFAULT, "L2-Hys", False, "int64", "float32"),
    ("float16", DEFAULT, "L2-Hys", False, "float16", "float32"),
    ("float32", DEFAULT, "L2-Hys", False, "float32", "float32"),
    ("float64", DEFAULT, "L2-Hys", False, "float64", "float64"),
    ("2x2 blocks", HogLayout((50, 100), 9, (8, 8), (2, 2)), "L2-Hys", False, "uint8", "float32"),
    (
        "10x10 cells, 2x2 blocks",
        HogLayout((50, 100), 9, (10, 10), (2, 2)),
        "L2-Hys",
        False,
        "uint8",
        "float32",
    ),
    (
        "16x16 cells, 2x2 blocks",
        HogLayout((50, 100), 9, (16, 16), (2, 2)),
        "L2-Hys",
        False,
        "uint8",
        "float32",
    ),
    (
        "5x7 cells, 12 orientations",
        HogLayout((50, 100), 12, (5, 7), (3, 3)),
        "L2-Hys",
        False,
        "uint8",
        "float32",
    ),
    ("100x50", HogLayout((100, 50)), "L2-Hys", False, "uint8", "float32"),
    ("128x64 (pedestrians)", HogLayout((128, 64), 9, (8, 8), (2, 2)), "L2-Hys", False, "uint8", "float32"),
    ("3 channels", HogLayout((50, 100), channels=3), "L2-Hys", False, "uint8", "float32"),
]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def pictures(n: int, layout: HogLayout, dtype: str) -> np.ndarray:
    """Return n crops of a photograph: real edges, and as many ties between bins as photographs have."""
    rng = np.random.default_rng(0)
    source = data.camera() if layout.channels is None else data.astronaut()
    height, width = layout.image_shape
    rows, cols = rng.integers(0, 512 - height, n), rng.integers(0, 512 - width, n)
    crops = np.stack([source[r : r + height, c : c + width] for r, c in zip(rows, cols, strict=True)])
    return crops > 120 if dtype == "bool" else crops.astype(dtype)


def first_calls(dtype: str) -> tuple[float, float]:
    """Return the seconds of the first call in a new process, without and with machine code on disk."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", FIRST_CALL.format(dtype=dtype)]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in "cw"
        ]
    cold, warm = (float(run.stdout) for run in runs)
    return cold, warm


def measure(row: tuple, n: int, sample: int, rounds: int) -> str:
    name, layout, norm, sqrt, source, dtype = row
    images = pictures(n, layout, source)
    threads = [count for count in (1, 2) if count <= numba.config.NUMBA_NUM_THREADS]
    wanted = reference.hog(images[:sample], layout, norm, sqrt, "float64")
    error = np.abs(cpu.hog(images, layout, norm, sqrt, dtype)[:sample] - wanted).max()
    times: dict[object, list[float]] = {key: [] for key in ("scikit", "floor", *threads)}
    for _ in range(rounds):
        loop = seconds(lambda: reference.hog(images[:sample], layout, norm, sqrt, dtype))
        times["scikit"].append(loop / sample)
        for count in threads:
            numba.set_num_threads(count)
            times[count].append(seconds(lambda: cpu.hog(images, layout, norm, sqrt, dtype)) / n)
        write = seconds(lambda: np.empty((n, layout.n_features), dtype).fill(1.0))
        times["floor"].append(write / n)
    micro = {key: np.median(values) * 1e6 for key, values in times.items()}
    cells = [f"{name:28s}{micro['scikit']:9.0f}"]
    for count in threads:
        ratios = np.array(times["scikit"]) / np.array(times[count])
        cells.append(
            f"{micro[count]:8.2f}{np.median(ratios):8.1f}x ({ratios.min():5.1f}-{ratios.max():5.1f})"
        )
    gains = np.array(times[1]) / np.array(times[threads[-1]])
    gain = f"{np.median(gains):.2f} ({gains.min():.2f}-{gains.max():.2f})"
    return "".join(cells) + f"{gain:>18s}{micro['floor']:8.2f}{error:10.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="images in the default row; others use a fifth")
    parser.add_argument("--sample", type=int, default=100, help="images given to scikit-image in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="measure only the rows whose name holds this text")
    options = parser.parse_args()
    sample = min(options.sample, options.n)
    print(
        f"{options.n} images, scikit-image on {sample} of them, {options.rounds} rounds, medians; us an image"
    )
    header = f"{'':28s}{'scikit':>9s}{'1 thr':>8s}{'ratio (range)':>24s}{'2 thr':>8s}{'ratio (range)':>24s}"
    print(header.rstrip() + f"{'gain (range)':>18s}{'floor':>8s}{'error':>10s}")
    with threadpool_limits(limits=1):  # no BLAS thread may disturb the clock
        for number, row in enumerate(ROWS):
            if options.only in row[0]:
                n = options.n if number == 0 else max(sample, options.n // 5)
                print(measure(row, n, sample, options.rounds), flush=True)
    for dtype in ("uint8", "float32"):
        cold, warm = first_calls(dtype)
        print(f"first call, {dtype}: {cold:.2f} s with no machine code on disk, {warm:.3f} s with it")


if __name__ == "__main__":
    main()
