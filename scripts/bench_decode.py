"""Time decoding of picture files on one and more threads, and the reading of a packed set.

    python scripts/bench_decode.py [--n 10000] [--rounds 7]

Pictures are made up (strokes and noise, as data=synthetic), saved as PNG and JPEG in the target's size and in 300 x
400, and read again; the file cache is warm. Rounds are interleaved; the table gives the median microseconds per
file, its range, and the ratio of one thread to several within a round.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline import config, datasets
from pipeline.datasets.folder import scan, usable_cores

TARGET = config.Image()
SIZES = ((50, 100), (300, 400))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="files of each kind")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=usable_cores())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        kinds = list(written(Path(name), options.n))
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for kind, root in kinds:
                for threads in (1, options.threads):
                    times.setdefault((kind, threads), []).append(decode(root, threads))
        print(f"{'files':>16} {'one thread':>26} {f'{options.threads} threads':>26} {'ratio':>20}")
        for kind, _ in kinds:
            one, several = np.array(times[kind, 1]), np.array(times[kind, options.threads])
            print(f"{kind:>16} {told(one, options.n)} {told(several, options.n)} {spread(one / several)}")
        packed = Path(name) / "set.npz"
        datasets.pack(folder(kinds[0][1]), TARGET, packed)
        reads = [read(packed) for _ in range(max(options.rounds, 3))]
        print(
            f"packed set, {options.n} images opened and every pixel read once: {1e3 * np.median(reads):.1f} ms"
        )


def written(root: Path, n: int) -> Iterator[tuple[str, Path]]:
    """Write the pictures of each size and format; yield what they are and where."""
    for height, width in SIZES:
        source = config.Data(name=config.DataName.synthetic, n=min(n, 500))
        images = datasets.load(source, config.Image(height=height, width=width)).images
        for suffix in ("png", "jpeg"):
            place = root / f"{suffix}{height}"
            for label in images.class_names:
                (place / label).mkdir(parents=True)
            for i in range(n):
                k = i % len(images)
                label = images.class_names[images.labels[k]]
                Image.fromarray(images.pixels[k]).save(place / label / f"{i:06d}.{suffix}")
            yield f"{suffix} {height}x{width}", place


def folder(root: Path, workers: int = 0) -> config.Data:
    return config.Data(name=config.DataName.folder, path=str(root), workers=workers)


def decode(root: Path, threads: int) -> float:
    scan(root)
    begin = time.perf_counter()
    datasets.load(folder(root, threads), TARGET)
    return time.perf_counter() - begin


def read(path: Path) -> float:
    begin = time.perf_counter()
    source = config.Data(name=config.DataName.packed, path=str(path))
    np.asarray(datasets.load(source, TARGET).images.pixels).sum()
    return time.perf_counter() - begin


def told(seconds: np.ndarray, n: int) -> str:
    each = 1e6 * seconds / n
    return f"{np.median(each):9.1f} us ({each.min():.1f}-{each.max():.1f})".rjust(26)


def spread(ratios: np.ndarray) -> str:
    return f"{np.median(ratios):.2f} ({ratios.min():.2f}-{ratios.max():.2f})".rjust(20)


if __name__ == "__main__":
    main()
