"""Time whole `train` commands, and the same work by the reference backend, extrapolated from a few of its rounds.

    python scripts/bench_train.py [--n 10000] [--classes 10] [--rounds 100] [--repeats 7]

Processes of their own, in turns: `train backend=cpu`, and `train backend=reference` with two numbers of rounds, whose
difference is the time of a round; images, HoG and all else of the reference are timed whole. Medians, with their range.
"Start" is what no other stage holds: Python, imports, settings, the end of the process. A first run, which may
compile, is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
FEW = (1, 3)  # rounds of the reference


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="images")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100, help="boosting rounds")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the program and of BLAS")
    parser.add_argument("--skip-reference", action="store_true")
    parser.add_argument("words", nargs="*", help="more settings of train, as plots=false")
    options = parser.parse_args()
    given = ["data=synthetic", f"data.n={options.n}", f"data.classes={options.classes}", *options.words]
    given += [f"backend.threads={options.threads}"]
    ours = [*given, f"classifier.n_rounds={options.rounds}", "backend=cpu"]
    theirs = [[*given, f"classifier.n_rounds={few}", "backend=reference"] for few in FEW]
    print(
        f"{options.n} images, {options.classes} classes, {options.rounds} rounds, {options.threads} threads"
    )
    once(ours, options.threads)
    found: list[dict[str, float]] = []
    ratio = []
    for _ in range(options.repeats):
        found.append(once(ours, options.threads))
        if not options.skip_reference:
            short, long = (once(words, options.threads) for words in theirs)
            each = (long["boost"] - short["boost"]) / (FEW[1] - FEW[0])
            whole = short["process"] + (options.rounds - FEW[0]) * each
            found[-1] |= {"reference": whole, "its round": each, "its hog": short["hog"]}
            ratio.append(whole / found[-1]["process"])
    for name in found[0]:
        values = [run[name] for run in found]
        print(f"{name:>12}: {spread(values, 2 if max(values) < 100 else 0)} s")
    if ratio:
        print(
            f"reference, extrapolated from its rounds {FEW[0]} to {FEW[1]}, against ours: {spread(ratio, 0)}x"
        )


def spread(values: list[float], digits: int) -> str:
    """Return the median, with the range in brackets."""
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def once(words: list[str], threads: int) -> dict[str, float]:
    """Train once; return the seconds of the process, of its start, and of the stages that take longest."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pipeline", "train", *words, f"hydra.run.dir={folder}/run"]
        limits = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")}
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **limits}, capture_output=True, text=True, check=False
        )
        process = time.perf_counter() - begin
        if done.returncode:
            raise SystemExit(done.stderr)
        metrics: dict[str, Any] = json.loads(
            (Path(folder) / "run" / "metrics.json").read_text(encoding="utf-8")
        )
    seconds = {name: float(value) for name, value in metrics["seconds"].items()}
    kept = {name: seconds[name] for name in ("read", "hog", "boost", "save")}
    return {"process": process, "start": process - (seconds["all"] - seconds["start"]), **kept}


if __name__ == "__main__":
    main()
