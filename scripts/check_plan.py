"""Compare what ``plan machine=this`` predicts with what ``train`` then takes: run it on an idle machine.

    python scripts/check_plan.py                                    # 2,000, 10,000 and 40,000 synthetic images
    python scripts/check_plan.py --images 2000 classifier=ridge     # other sizes, other settings of train

Each train is a process of its own, timed from outside: what a person waits. Prints a table and leaves with
status 1 if a prediction is off by more than 25 %.
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


def predicted(folder: Path, images: int, settings: list[str], refresh: bool) -> float:
    words = ["plan", "machine=this", "data=synthetic", f"data.n={images}", *settings]
    pipeline(*words, f"machine.refresh={str(refresh).lower()}", f"hydra.run.dir={folder}")
    return float(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["plans"][0]["seconds"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", default="2000,10000,40000", help="numbers of images, with commas")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each size; the median counts")
    parser.add_argument("--kept", action="store_true", help="use a measurement of this machine that is kept")
    parser.add_argument("settings", nargs="*", help="settings of train, key=value")
    options = parser.parse_args()
    worst = 0.0
    print(f"{'images':>8} {'predicted':>10} {'measured':>10} {'ratio':>6}  runs")
    with tempfile.TemporaryDirectory() as name:
        for number, images in enumerate(map(int, options.images.split(","))):
            told = predicted(
                Path(name) / f"plan{images}", images, options.settings, not number and not options.kept
            )
            walls = [
                pipeline(
                    *("train", "data=synthetic", f"data.n={images}", *options.settings),
                    f"hydra.run.dir={Path(name) / f'train{images}_{repeat}'}",
                )
                for repeat in range(options.repeats)
            ]
            took = statistics.median(walls)
            worst = max(worst, abs(told / took - 1.0))
            runs = " ".join(f"{wall:.2f}" for wall in walls)
            print(f"{images:>8,} {told:>8.2f} s {took:>8.2f} s {told / took:>6.2f}  {runs}", flush=True)
    print(f"largest deviation {worst:.0%}, allowed {ALLOWED:.0%}")
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
