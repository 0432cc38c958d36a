"""Time HoG of a whole batch against scikit-image's per-image loop, and what the machine gives to two threads meanwhile.

    python scripts/bench_hog.py --n 10000 --rounds 7

Rounds are interleaved: scikit-image on a sample of the images; HoG, the control and the floor on one thread; the three
on two threads; and again. Each ratio is scikit-image's time per image over ours in the same round, and the gain one
thread's time over two threads'; the table gives the median and the range of both. "least" is the gain of the shortest
times of all rounds, those that were disturbed least.

The control is arithmetic that stays in the first-level cache, as long on one thread as HoG, shared out among threads
by the same code: a machine that gives two threads all of two cores gains 1.9 to 2 there. Where it gains less, others
use the cores, and the gain of HoG in that row is not HoG's. The floor is the time to write an array of the result's
size, which nothing can beat; its memory is as fresh as the result's, that of a large array new in each call.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numba
import numpy as np
from skimage import data
from threadpoolctl import threadpool_limits

from pipeline.backends.cpu import hog as cpu
from pipeline.backends.cpu.images_shared import share_images
from pipeline.backends.host import empty
from pipeline.backends.reference import hog as reference
from pipeline.features import HogLayout

DEFAULT = HogLayout((50, 100))
CONTROL_NUMBERS = 4096  # float32: half a first-level cache
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


@numba.njit(nogil=True)
def arithmetic(numbers: np.ndarray, times: int) -> None:
    """Change `numbers` again and again.

    Two products and sums between reading and writing one: a core that somebody else uses, too, does this as much more
    slowly as HoG. Of more arithmetic between them it loses less.
    """
    factor, term = np.float32(0.999), np.float32(0.001)
    for _ in range(times):
        for i in range(numbers.size):
            numbers[i] = (numbers[i] * factor + term) * factor + term


class Control:
    """Arithmetic for each image, `sweeps` over numbers in the first-level cache, shared out as images are."""

    chunk, prepared = 100, True

    def __init__(self, sweeps: int) -> None:
        self.sweeps, self.numbers = sweeps, np.ones(CONTROL_NUMBERS, np.float32)

    def compile(self, out: np.ndarray) -> None:
        """Never asked for: :func:`works` calls it on one thread first."""
        raise AssertionError("it is compiled")

    def __call__(self, source: np.ndarray, out: np.ndarray, parts: Iterator[slice]) -> None:
        """Work for the images of one of the `parts` after another."""
        for part in parts:
            arithmetic(self.numbers, self.sweeps * (part.stop - part.start))


class Writer(Control):
    """Writes the result's size."""

    def __call__(self, source: np.ndarray, out: np.ndarray, parts: Iterator[slice]) -> None:
        """Write the rows of one of the `parts` after another."""
        for part in parts:
            out[part].fill(1.0)


def works(row: tuple, images: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return what is timed on one thread and on two."""
    _, layout, norm, sqrt, _, dtype = row
    shape = len(images), layout.n_features

    def hog() -> object:
        return cpu.hog(images, layout, norm, sqrt, dtype)

    def control(sweeps: int) -> None:
        share_images(lambda: Control(sweeps), images, images, cpu.PER_THREAD)

    def write() -> None:
        share_images(lambda: Writer(0), images, empty(shape, dtype), cpu.PER_THREAD)

    numba.set_num_threads(1)
    control(1)
    once, wanted = (min(seconds(work) for _ in range(3)) for work in (lambda: control(10), hog))
    sweeps = max(1, round(10 * wanted / once))
    return {"hog": hog, "control": lambda: control(sweeps), "floor": write}


def measure(row: tuple, n: int, sample: int, rounds: int) -> str:
    """Return a line of the table."""
    name, layout, norm, sqrt, source, dtype = row
    images = pictures(n, layout, source)
    threads = [count for count in (1, 2) if count <= numba.config.NUMBA_NUM_THREADS]
    wanted = reference.hog(images[:sample], layout, norm, sqrt, "float64")
    error = np.abs(cpu.hog(images, layout, norm, sqrt, dtype)[:sample] - wanted).max()
    timed = works(row, images)
    loop: list[float] = []
    times: dict[tuple[str, int], list[float]] = {(key, count): [] for count in threads for key in timed}
    for _ in range(rounds):
        loop.append(seconds(lambda: reference.hog(images[:sample], layout, norm, sqrt, dtype)) / sample)
        for (key, count), values in times.items():
            numba.set_num_threads(count)
            values.append(seconds(timed[key]) / n)
    return told(name, loop, times, error)


def ranged(values: np.ndarray, digits: int) -> str:
    return f"{np.median(values):.{digits}f} ({values.min():.{digits}f}-{values.max():.{digits}f})"


def told(name: str, loop: list[float], times: dict[tuple[str, int], list[float]], error: float) -> str:
    """Return a line of the table, of seconds an image: scikit-image's, and those of HoG, control and floor."""
    threads = sorted({count for _, count in times})
    taken = {key: np.array(values) for key, values in times.items()}
    cells = [f"{name:28s}{np.median(loop) * 1e6:9.0f}"]
    for count in threads:
        mine = taken["hog", count]
        cells.append(f"{np.median(mine) * 1e6:8.2f}{ranged(np.array(loop) / mine, 0) + 'x':>17s}")
    gains, control = (taken[key, 1] / taken[key, threads[-1]] for key in ("hog", "control"))
    least = taken["hog", 1].min() / taken["hog", threads[-1]].min()
    cells.append(f"{ranged(gains, 2):>18s}{least:7.2f}{ranged(control, 2):>18s}")
    cells += [f"{np.median(taken['floor', count]) * 1e6:8.2f}" for count in threads]
    return "".join(cells) + f"{error:10.1e}"


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
    header = f"{'':28s}{'scikit':>9s}" + "".join(f"{f'{k} thr':>8s}{'ratio (range)':>17s}" for k in (1, 2))
    header += f"{'gain (range)':>18s}{'least':>7s}{'control (range)':>18s}"
    print(header + f"{'floor 1':>8s}{'floor 2':>8s}{'error':>10s}")
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
