"""Train on many synthetic images in memory and out of core: seconds of a boosting round, and peak memory of each.

    python scripts/bench_outofcore.py --images 100000 --limit 1GB --rounds 30 --repeats 3

Whole `train` commands in processes of their own, in turn; medians, and the range in brackets. A round's seconds are
those of boosting over its rounds: out of core they hold the two passes before the first round and the one after the
last. Beyond what memory holds in whole, give --skip-local.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--limit", default="1GB", help="scale.memory_limit")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-local", action="store_true")
    options = parser.parse_args()
    ways = {"outofcore": ["scale=outofcore", f"scale.memory_limit={options.limit}"]}
    if not options.skip_local:
        ways = {"local": []} | ways
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, words in ways.items():
            found[name].append(once(words, options.images, options.rounds))
    for name, rows in found.items():
        whole, each, peak, accuracy = (list(column) for column in zip(*rows, strict=True))
        print(
            f"{name:10} {options.images} images, {options.rounds} rounds: {spread(whole, 1)} s in all, "
            f"{spread([1e3 * one for one in each], 0)} ms a round, peak {max(peak) / 1e6:.0f} MB, "
            f"accuracy {np.median(accuracy):.4f}"
        )
    if "local" in found:
        ratio = [a[1] / b[1] for a, b in zip(found["local"], found["outofcore"], strict=True)]
        print(f"rate of a round out of core against local: {spread(ratio, 2)}")


def spread(values: list[float], digits: int) -> str:
    """Return the median, with the range in brackets."""
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def once(words: list[str], images: int, rounds: int) -> tuple[float, float, float, float]:
    """Train once; return the seconds in all, those of a round, the peak memory in bytes and the accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pipeline", "train", "data=synthetic", f"data.n={images}"),
            *(f"classifier.n_rounds={rounds}", "plots=false", f"hydra.run.dir={folder}", *words),
        ]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        told = json.loads((Path(folder) / "metrics.json").read_text())
    seconds = told["seconds"]
    return (
        sum(seconds.values()),
        seconds["boost"] / rounds,
        told["peak_memory_bytes"],
        told["test"]["accuracy"],
    )


if __name__ == "__main__":
    main()
