"""compute-sanitizer: its four tools over every kernel, and each over a planted fault that it must report."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent.parent / "check_gpu.py"
REPORTED = 9  # the exit status that a tool is told to give when it reports something
SECONDS = 30  # one run may take; there are nine
RUNS = (  # tool, planted fault, exit status wanted
    ("memcheck", "none", 0),
    ("racecheck", "none", 0),
    ("synccheck", "none", 0),
    ("initcheck", "none", 0),
    ("memcheck", "bounds", REPORTED),
    ("racecheck", "race", REPORTED),
    ("synccheck", "barrier", REPORTED),
    ("initcheck", "uninitialised", REPORTED),
)


def find() -> str | None:
    """Return where compute-sanitizer is; it comes with the CUDA toolkit, not always on the PATH."""
    return shutil.which("compute-sanitizer") or next(
        (str(path) for path in sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))), None
    )


def watched(out: Path, device: int) -> dict[str, Any]:
    """Run the tools; a section of check_gpu.py. Their output is in files in `out`."""
    tool = find()
    if tool is None:
        return {"compute-sanitizer": "not run: it is not installed (it comes with the CUDA toolkit)"}
    found: dict[str, Any] = {"compute-sanitizer": tool}
    wrong: list[str] = []
    out.mkdir(parents=True, exist_ok=True)
    # Compiles the kernels, which CuPy keeps on disk: under the tools only the planted faults are compiled.
    _status([], "none", out / "sanitizer-warm.log", device)
    for name, fault, wanted in RUNS:
        begin = time.perf_counter()
        tool_words = [tool, "--tool", name, "--error-exitcode", str(REPORTED), "--print-limit", "5"]
        file = out / f"sanitizer-{name}-{fault}.log"
        status = _status(tool_words, fault, file, device)
        found[f"{name}, fault {fault}"] = (
            f"status {status}, wanted {wanted}, {time.perf_counter() - begin:.1f} s"
        )
        if status != wanted:
            wrong.append(f"{name}, fault {fault}: {_meaning(status)}, wanted {_meaning(wanted)}; see {file}")
    return {**found, "failed": wrong}


def _status(tool: list[str], fault: str, file: Path, device: int) -> int | None:
    """Run the kernels, under a tool or none; return the exit status, None if the time ran out."""
    command = [*tool, sys.executable, str(SCRIPT), "--sanitize", fault, "--device", str(device)]
    with file.open("w") as log:
        try:
            return subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def _meaning(status: int | None) -> str:
    words = {None: f"no end within {SECONDS} s", 0: "nothing reported", REPORTED: "a fault reported"}
    return words.get(status, f"status {status}")
