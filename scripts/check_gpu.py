"""Check the gpu backend on a machine with a GPU: right, repeatable, fast, and careful with memory.

    bash scripts/check_gpu.sh                       everything, below 8 minutes
    bash scripts/check_gpu.sh --without-sanitizer   where compute-sanitizer is not installed
    python scripts/check_gpu.py --sanitize race     what compute-sanitizer watches: small inputs, one planted fault

Every section runs even if another failed, until the time is up. The result is a table on the screen and in
check_gpu.txt, and check_gpu.json, which is written after each section. Inputs are drawn afresh in each run; the seed is
printed and can be given.

The last line is the verdict, and the exit status says the same:
0 all checks passed; 1 some failed; 2 nothing was run: there is no GPU that can be used, or Python lacks a package;
3 nothing failed, but something was not run, and the verdict names it. Only what was left out by an option
(--without-...) does not count as missing, and the verdict names that too.

What is compared with the cpu backend: HoG (to 1e-6), the sums and fits of a round, preprocessing, principal
components, and every learner's training: the same features chosen in every round, unless float64 gains show that
rounding decided (gpu_checks/training.py says when), coefficients within 1e-7 (float64) or 2e-2 (float32) of the
largest, 99.9 % of the labels. What is timed: every stage and every learner at 64, 4,096 and 65,536 images by events,
with the bytes that it must move per second, their share of a measured copy's, and its operations per second; copies
over the bus; the cpu backend.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
# What the program imports; CuPy, the driver and the GPU are asked for by the backend itself.
MODULES = (
    *(
        "pipeline",
        "gpu_checks",
        "numpy",
        "scipy",
        "numba",
        "skimage",
        "sklearn",
        "statsmodels",
        "PIL",
        "psutil",
    ),
    *("threadpoolctl", "hydra", "omegaconf"),
)


def lacking() -> str | None:
    """Return the last line of a run for which this Python will not do: which it is, what it lacks, what to do."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if sys.version_info < (3, 11):  # noqa: UP036  whoever starts this has not installed the program
        missing.insert(0, "Python 3.11 or later")
    if not missing:
        return None
    return (
        f"VERDICT: NOTHING WAS RUN, {sys.executable} (Python {platform.python_version()}) lacks {', '.join(missing)}: "
        "make the project's .venv with bash scripts/run doctor, or name a Python that has them, as in "
        "PYTHON=/path/to/python bash scripts/check_gpu.sh"
    )


if __name__ == "__main__" and (told := lacking()) is not None:  # before the imports that would fail
    print(told)
    sys.exit(2)

import numpy as np  # noqa: E402
from gpu_checks import care, common, faults, parity, sanitizer, show, speed, stages, training  # noqa: E402
from gpu_checks.clock import TimeIsUp, ends_after  # noqa: E402

FILE, TABLE = "check_gpu.json", "check_gpu.txt"
SECONDS = 470.0  # of everything; check_gpu.sh ends what hangs 5 s later, below 8 minutes
SANITIZER_SECONDS = sanitizer.SECONDS * (len(sanitizer.RUNS) + 1)  # of them kept for compute-sanitizer
NO_TIME = "not run: the time was up"
PASSED, FAILED, INCOMPLETE = 0, 1, 3


@dataclass
class Report:
    """What the sections found.

    Attributes
    ----------
    sections : what each section returned
    failed, not_run : a line for each check that failed, or could not be made
    left_out : what the user's options leave out
    """

    sections: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def section(self, name: str, work: Callable[[], dict[str, Any]], seconds: float = SECONDS) -> None:
        """Do one section within some seconds; a fault in it is recorded, and the next one is done."""
        begin = time.perf_counter()
        wrong: list[str]
        try:
            with ends_after(seconds):
                found = work()
            wrong = found.pop("failed", [])
        except TimeIsUp:
            found, wrong = {"result": NO_TIME}, []
        except Exception as error:  # one fault must not cost the other sections on a machine that is lent
            traceback.print_exc()
            found, wrong = {}, [f"{type(error).__name__}: {' '.join(str(error).split())}"]
        missing = [f"{key}: {value}" for key, value in found.items() if str(value).startswith("not run: ")]
        found["seconds"] = round(time.perf_counter() - begin, 2)
        found["failed"] = wrong
        self.sections[name] = found
        self.failed += [f"{name}: {line}" for line in wrong]
        self.not_run += [f"{name}: {line.removeprefix('result: ')}" for line in missing]
        verdict = "FAILED" if wrong else "NOT RUN" if missing else "ok"
        print(f"{name:<28} {verdict:<7} {found['seconds']:>7.1f} s", flush=True)
        for line in (*wrong, *missing):
            print(f"    {line}", flush=True)

    @property
    def status(self) -> int:
        """The exit status."""
        return FAILED if self.failed else INCOMPLETE if self.not_run else PASSED

    def verdict(self) -> str:
        """Return the last line of the run."""
        beside = f" Left out by option: {', '.join(self.left_out)}." if self.left_out else ""
        missing = f" NOT RUN: {'; '.join(self.not_run)}." if self.not_run else ""
        if self.failed:
            return f"VERDICT: {len(self.failed)} checks FAILED: {'; '.join(self.failed)}.{missing}{beside}"
        if self.not_run:
            return f"VERDICT: INCOMPLETE, nothing that was run failed.{missing}{beside}"
        return f"VERDICT: all checks passed.{beside}"


def commit() -> str:
    """Return the commit that is checked out, if git can tell."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"


def run(
    sizes: common.Sizes,
    seed: int,
    out: Path,
    seconds: float = SECONDS,
    sanitized: Callable[[], dict[str, Any]] | None = None,
) -> int:
    """Do all sections, `sanitized` last, in about so many seconds; return the exit status."""
    end = time.monotonic() + seconds
    report = Report(left_out=list(sizes.left_out))
    random = np.random.default_rng(seed)
    print(f"seed {seed}, commit {commit()}", flush=True)
    kept = 0.0 if sanitized is None else min(SANITIZER_SECONDS, 0.6 * seconds)
    out.mkdir(parents=True, exist_ok=True)
    for name, work in sections(sizes, random).items():
        report.section(name, work, end - kept - time.monotonic())
        write(report, seed, out)  # so that what was found is there if the machine goes away
    if sanitized is not None:
        common.namespace().get_default_memory_pool().free_all_blocks()  # its runs are other processes
        report.section("compute-sanitizer", sanitized, end - time.monotonic())
    write(report, seed, out, report.verdict())
    text = f"{show.table(report.sections)}\ndetails in {out / FILE}\n{report.verdict()}"
    (out / TABLE).write_text(text + "\n")
    print(text, flush=True)
    return report.status


def poisoned(work: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a section whose arrays hold NaN before anything is written to them."""

    def call() -> dict[str, Any]:
        with common.poisoned():
            return work()

    return call


def sections(sizes: common.Sizes, random: np.random.Generator) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the sections by name, in order: what may take longest comes last."""
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "machine": parity.machine,
        "facts about CuPy": parity.facts,
        "HoG parity": poisoned(lambda: parity.hog_parity(sizes, random)),
        "sums parity": poisoned(lambda: parity.sums_parity(sizes, random)),
        "preprocessing parity": poisoned(lambda: parity.preprocess_parity(sizes, random)),
        "components parity": poisoned(lambda: parity.pca_parity(sizes, random)),
        "training parity": poisoned(lambda: training.training_parity(sizes, random)),
        "repeatability": lambda: care.repeatability(sizes, random),
        "memory": lambda: care.memory(sizes, random),
        "leaks": lambda: care.leaks(sizes, random),
        "bandwidths": lambda: speed.bandwidths(sizes),
    }
    for n in sizes.images:
        found[f"{show.TRANSFERS}{n} images"] = lambda n=n: speed.transfers(n, sizes, random)
        found[f"{show.STAGES}{n} images"] = lambda n=n: stages.stages(n, sizes, random)
    found["against the cpu"] = lambda: speed.against_cpu(sizes, random)
    for n in sizes.images:
        found[f"{show.FULL}{n} images"] = lambda n=n: stages.full(n, sizes, random)
    return found


def write(report: Report, seed: int, out: Path, verdict: str = "VERDICT: not at its end") -> None:
    """Write what was found so far."""
    content = {
        "seed": seed,
        "commit": commit(),
        "python": platform.python_version(),
        "verdict": verdict,
        "sections": report.sections,
        "failed": report.failed,
        "not run": report.not_run,
        "left out": report.left_out,
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="check_gpu"
    )
    folder = Path(os.environ.get("OUT", "runs/check_gpu"))
    parser.add_argument("out", type=Path, nargs="?", default=folder, help=f"folder of the results: {folder}")
    parser.add_argument("--seed", type=int, default=None, help="of the random inputs")
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"the run may take: {SECONDS:.0f}")
    parser.add_argument("--without-sanitizer", action="store_true", help="do not run compute-sanitizer")
    parser.add_argument("--without-cucim", action="store_true", help="leave out what needs cuCIM")
    parser.add_argument("--sanitize", metavar="FAULT", choices=sorted(faults.FAULTS), default=None,
                        help="only what compute-sanitizer watches, with this fault planted")  # fmt: skip
    options = parser.parse_args()
    from pipeline import backends
    from pipeline.errors import BackendError

    try:
        backends.choose("gpu", options.device)
    except BackendError as error:
        print(f"check_gpu: {error}", file=sys.stderr)
        print("VERDICT: NOTHING WAS RUN, there is no GPU that can be used.")
        return 2
    if options.sanitize is not None:
        return sanitize(options.sanitize)
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    left_out = [
        word
        for word, given in (
            (common.WITHOUT_SANITIZER, options.without_sanitizer),
            (common.WITHOUT_CUCIM, options.without_cucim),
        )
        if given
    ]
    sanitized = None
    if not options.without_sanitizer:
        sanitized = lambda: sanitizer.watched(options.out, options.device)  # noqa: E731
    sizes = replace(common.Sizes(), left_out=tuple(left_out))
    return run(sizes, seed, options.out, options.seconds, sanitized)


if __name__ == "__main__":
    sys.exit(main())
