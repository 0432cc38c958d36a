"""Check the gpu backend on a machine with a GPU: right, repeatable, fast, and careful with memory.

    bash scripts/check_gpu.sh               everything, and compute-sanitizer; below 8 minutes
    python scripts/check_gpu.py             without compute-sanitizer
    python scripts/check_gpu.py --sanitize race     what compute-sanitizer runs: small inputs, one planted fault

Every section runs even if another failed. The result is a table on the screen and check_gpu.json in --out, which is
written after each section; the exit status is 1 if anything failed. Inputs are drawn afresh in each run; the seed is
printed and can be given.

What is compared with the cpu backend: HoG (to 1e-6), the sums and fits of a round, preprocessing, principal components,
and every learner's training: the same features chosen in every round, unless float64 gains show that rounding decided
(gpu_checks/training.py says when), coefficients within 1e-7 (float64) or 2e-2 (float32) of the largest, 99.9 % of the
labels. What is timed: every stage at 64, 4,096 and 65,536 images by events, with the bytes that it must move per
second, their share of a measured copy's, and its operations per second; copies over the bus; the cpu backend.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import numpy as np  # noqa: E402
from gpu_checks import care, common, faults, parity, show, speed, stages, training  # noqa: E402

FILE = "check_gpu.json"


@dataclass
class Report:
    """What the sections found."""

    sections: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def section(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Do one section; a fault in it is recorded, and the next one is done."""
        begin = time.perf_counter()
        try:
            found = work()
            wrong = found.pop("failed", [])
        except Exception as error:  # one fault must not cost the other sections on a machine that is lent
            traceback.print_exc()
            found, wrong = {}, [f"{type(error).__name__}: {' '.join(str(error).split())}"]
        found["seconds"] = round(time.perf_counter() - begin, 2)
        found["failed"] = wrong
        self.sections[name] = found
        self.failed += [f"{name}: {line}" for line in wrong]
        verdict = "FAILED" if wrong else "ok"
        self.rows.append((name, verdict, f"{found['seconds']:.1f} s"))
        print(f"{name:<22} {verdict:<7} {found['seconds']:>7.1f} s", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)


def commit() -> str:
    """Return the commit that is checked out, if git can tell."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"


def run(sizes: common.Sizes, seed: int, out: Path) -> int:
    """Do all sections; return the exit status."""
    report = Report()
    random = np.random.default_rng(seed)
    print(f"seed {seed}, commit {commit()}", flush=True)
    sections: dict[str, Callable[[], dict[str, Any]]] = {
        "machine": parity.machine,
        "facts about CuPy": parity.facts,
        "HoG parity": lambda: parity.hog_parity(sizes, random),
        "sums parity": lambda: parity.sums_parity(sizes, random),
        "preprocessing parity": lambda: parity.preprocess_parity(random),
        "components parity": lambda: parity.pca_parity(sizes, random),
        "training parity": lambda: training.training_parity(sizes, random),
        "repeatability": lambda: care.repeatability(sizes, random),
        "memory": lambda: care.memory(sizes, random),
        "leaks": lambda: care.leaks(sizes, random),
        "bandwidths": lambda: speed.bandwidths(sizes),
    }
    for n in sizes.images:
        sections[f"{show.TRANSFERS}{n} images"] = lambda n=n: speed.transfers(n, sizes, random)
        sections[f"{show.STAGES}{n} images"] = lambda n=n: stages.stages(n, sizes, random)
    sections["against the cpu"] = lambda: speed.against_cpu(sizes, random)
    out.mkdir(parents=True, exist_ok=True)
    for name, work in sections.items():
        report.section(name, work)
        write(report, seed, out)  # so that what was found is there if the time runs out
    print(show.table(report.sections))
    print(f"{len(report.failed)} failed; details in {out / FILE}")
    return int(bool(report.failed))


def write(report: Report, seed: int, out: Path) -> None:
    """Write what was found so far."""
    content = {
        "seed": seed,
        "commit": commit(),
        "python": platform.python_version(),
        "sections": report.sections,
        "failed": report.failed,
    }
    (out / FILE).write_text(json.dumps(content, indent=1, default=common.plain) + "\n")


def sanitize(fault: str) -> int:
    """Do what compute-sanitizer watches; return the exit status.

    It gives its own status only to a program that succeeds. After a planted fault memcheck ends the CUDA context, and
    what follows fails: that is no failure of this program.
    """
    try:
        faults.sanitize(fault)
    except Exception as error:
        if fault == "none":
            raise
        print(f"after the planted fault: {type(error).__name__}: {error}", flush=True)
    return 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/check_gpu"), help="folder of check_gpu.json")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--sanitize", metavar="FAULT", choices=sorted(faults.FAULTS), default=None)
    options = parser.parse_args()
    from pipeline import backends
    from pipeline.errors import BackendError

    try:
        backends.choose("gpu", options.device)
    except BackendError as error:
        print(f"check_gpu: {error}", file=sys.stderr)
        return 2
    if options.sanitize is not None:
        return sanitize(options.sanitize)
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    return run(common.Sizes(), seed, options.out)


if __name__ == "__main__":
    sys.exit(main())
