"""Compare what ``plan machine=this`` predicts with what ``train`` then takes: run it on an idle machine.

    python scripts/check_plan.py                                    # 2,000, 10,000 and 40,000 synthetic images
    python scripts/check_plan.py --images 2000 classifier=ridge     # other sizes, other settings of train

Each train is a process of its own, timed from outside: what a person waits. Memory is the most that the process had
resident, against the forecast of the host's. Prints a table and leaves with status 1 if a prediction is off by more
than 25 %, or if a train took more memory than was forecast. With --only memory there is one train of each size, and
the machine need not be idle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
ALLOWED = 0.25


def pipeline(*words: str) -> float:
    begun = time.perf_counter()
    command = [sys.executable, "-m", "pipeline", *words]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begun


def predicted(folder: Path, images: int, settings: list[str], refresh: bool) -> tuple[float, float]:
    """Return the seconds, and the bytes of host memory at most."""
    words = ["plan", "machine=this", "data=synthetic", f"data.n={images}", *settings]
    pipeline(*words, f"machine.refresh={str(refresh).lower()}", f"hydra.run.dir={folder}")
    found = json.loads((folder / "plan.json").read_text(encoding="utf-8"))["plans"][0]
    return float(found["seconds"]), max(float(need["host"]) for need in found["memory"]["needs"])


def trained(folder: Path, images: int, settings: list[str]) -> tuple[float, float]:
    """Return the wall seconds of a train, and the most bytes it had resident."""
    wall = pipeline("train", "data=synthetic", f"data.n={images}", *settings, f"hydra.run.dir={folder}")
    found = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return wall, float(found["peak_memory_bytes"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", default="2000,10000,40000", help="numbers of images, with commas")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each size; the median counts")
    parser.add_argument("--kept", action="store_true", help="use a measurement of this machine that is kept")
    parser.add_argument(
        "--only", choices=("seconds", "memory"), help="what decides the status; both if left out"
    )
    parser.add_argument("settings", nargs="*", help="settings of train, key=value")
    options = parser.parse_args()
    seconds_off = memory_off = 0.0
    beyond = False
    repeats = 1 if options.only == "memory" else options.repeats
    columns = f" {'predicted':>10} {'measured':>10} {'ratio':>6}"
    print(f"{'images':>8}{columns}{columns}  runs")
    with tempfile.TemporaryDirectory() as name:
        for number, images in enumerate(map(int, options.images.split(","))):
            refresh = not number and not options.kept
            told, need = predicted(Path(name) / f"plan{images}", images, options.settings, refresh)
            runs = [
                trained(Path(name) / f"train{images}_{repeat}", images, options.settings)
                for repeat in range(repeats)
            ]
            took, peak = statistics.median(wall for wall, _ in runs), max(peak for _, peak in runs)
            seconds_off = max(seconds_off, abs(told / took - 1.0))
            memory_off, beyond = max(memory_off, abs(need / peak - 1.0)), beyond or need < peak
            print(
                f"{images:>8,} {told:>8.2f} s {took:>8.2f} s {told / took:>6.2f} {need / 1e6:>7,.0f} MB "
                f"{peak / 1e6:>7,.0f} MB {need / peak:>6.2f}  " + " ".join(f"{wall:.2f}" for wall, _ in runs),
                flush=True,
            )
    below = "; a train took more than was forecast" if beyond else ""
    print(
        f"largest deviation: seconds {seconds_off:.0%}, memory {memory_off:.0%}{below}; allowed {ALLOWED:.0%}"
    )
    bad_seconds = seconds_off > ALLOWED and options.only != "memory"
    bad_memory = (memory_off > ALLOWED or beyond) and options.only != "seconds"
    return int(bad_seconds or bad_memory)


if __name__ == "__main__":
    sys.exit(main())
