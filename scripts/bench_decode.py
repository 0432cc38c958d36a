"""Time decoding of picture files by threads and by processes, and the reading of a packed set.

    python scripts/bench_decode.py [--n 10000] [--large 10000] [--rounds 7]

Pictures are made up (strokes and noise, as data=synthetic), saved as PNG and JPEG in the target's size and in 300 x
400, and read again; the file cache is warm. Rounds are interleaved: the plain Pillow loop (open, convert, resize) on
one thread, and this program, which also lists the files, on one thread, two threads, and two processes that are
started in it; of the last two it chooses one by the number and the size of the files. The table gives the median
microseconds per file, their range, and ratios within a round: of all, and of decoding alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline import config, datasets
from pipeline.datasets import parallel
from pipeline.datasets.folder import scan
from pipeline.processor import usable_cores

TARGET = config.Image()
SIZE = (TARGET.width, TARGET.height)
SIZES = ((50, 100), (300, 400))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="files of each kind")
    parser.add_argument(
        "--large", type=int, help="files of each large kind, 300 x 400; as many as --n if not given"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--only", default="", help="measure only the kinds whose name holds this text")
    options = parser.parse_args()
    threads = options.threads
    large = options.n if options.large is None else options.large
    with tempfile.TemporaryDirectory() as name:
        print(f"median us per file of {options.rounds} rounds (range), files in the cache; {threads} cores")
        for kind, root, n in written(Path(name), options.n, large):
            if options.only in kind:
                print(told(kind, measured(root, kind, threads, options.rounds), n), flush=True)
        packed = Path(name) / "set.npz"
        datasets.pack(folder(Path(name) / "png50"), TARGET, packed)
        opened, reads = np.array([read(packed) for _ in range(max(options.rounds, 3))]).T * 1e3
        print(
            f"packed set of {options.n} images: opened in {spread(opened)} ms, every pixel read once {spread(reads)} ms"
        )


def measured(root: Path, kind: str, threads: int, rounds: int) -> dict[str, np.ndarray]:
    """Return the seconds of each way in each round, and of them those of decoding."""
    paths = [entry.path for entry in scan(root).entries]
    ways: dict[str, Callable[[], float]] = {
        "Pillow loop": lambda: by_pillow(paths),
        "one thread": lambda: by_us(root, 1, 0),
        f"{threads} threads": lambda: by_us(root, threads, 0),
        f"{threads} processes": lambda: by_us(root, threads, threads - 1),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, work in ways.items():
            begin = time.perf_counter()
            decoding = work()
            times[way].append((time.perf_counter() - begin, decoding))
    return {way: np.array(values).T for way, values in times.items()}


def by_us(root: Path, workers: int, helpers: int) -> float:
    """Read a folder with so many processes beside this one; return the seconds of decoding."""
    chosen = parallel.helping, parallel.SMALL
    parallel.helping, parallel.SMALL = (lambda *_: helpers), 1 << 40
    try:
        return datasets.load(folder(root, workers), TARGET).native_seconds["decode"]
    finally:
        parallel.helping, parallel.SMALL = chosen


def by_pillow(paths: list[str]) -> float:
    begin = time.perf_counter()
    for path in paths:
        with Image.open(path) as picture:
            np.array(picture.convert("L").resize(SIZE, Image.Resampling.BILINEAR))
    return time.perf_counter() - begin


def written(root: Path, n: int, large: int) -> Iterator[tuple[str, Path, int]]:
    """Write the pictures of each size and format; yield what they are, where, and how many."""
    for height, width in SIZES:
        source = config.Data(name=config.DataName.synthetic, n=min(max(n, large), 500))
        images = datasets.load(source, config.Image(height=height, width=width)).images
        count = n if (width, height) == SIZE else large
        for suffix in ("png", "jpeg"):
            place = root / f"{suffix}{height}"
            for label in images.class_names:
                (place / label).mkdir(parents=True)
            for i in range(count):
                k = i % len(images)
                label = images.class_names[images.labels[k]]
                Image.fromarray(images.pixels[k]).save(place / label / f"{i:06d}.{suffix}")
            if hasattr(os, "sync"):
                os.sync()  # writing to the disk would go on meanwhile
            yield f"{suffix} {height}x{width}", place, count


def folder(root: Path, workers: int = 0) -> config.Data:
    return config.Data(name=config.DataName.folder, path=str(root), workers=workers)


def read(path: Path) -> tuple[float, float]:
    """Return the seconds until the set is open, and until every pixel was read."""
    begin = time.perf_counter()
    source = config.Data(name=config.DataName.packed, path=str(path))
    images = datasets.load(source, TARGET).images
    opened = time.perf_counter() - begin
    np.asarray(images.pixels).sum()
    return opened, time.perf_counter() - begin


def told(kind: str, times: dict[str, np.ndarray], n: int) -> str:
    one, one_decoding = times["one thread"]
    cells = [f"{kind} ({n} files)"]
    for way, (seconds, decoding) in times.items():
        ratio = (
            f", {spread(one / seconds)} times one thread's speed, decoding {spread(one_decoding / decoding)}"
        )
        cells.append(f"  {way:<14} {spread(1e6 * seconds / n):>24} us{'' if way == 'one thread' else ratio}")
    return "\n".join(cells)


def spread(values: np.ndarray) -> str:
    return f"{np.median(values):.2f} ({values.min():.2f}-{values.max():.2f})"


if __name__ == "__main__":
    main()
