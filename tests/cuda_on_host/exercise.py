"""Run every kernel on small inputs, in a process of its own so that a crash or a sanitizer ends only that process.

``python -m tests.cuda_on_host.exercise EXPECTED.npz MODE SCHEDULE,... SEED MUTANT`` prints what it found as JSON. Under
a schedule named "... across blocks", blocks are not ordered among each other. The sanitizers' runtimes are loaded
before Python's own code by LD_PRELOAD; see :func:`in_child`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.backends import philox
from pipeline.backends.gpu import wls_plan
from pipeline.backends.hog_layout import HogLayout
from tests.conftest import ROOT
from tests.cuda_on_host.build import KernelError
from tests.cuda_on_host.host import Host, poisoned

RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
ACROSS = " across blocks"
REPORTS = r"(?:ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error): [^\n]*"
GRAY = HogLayout((50, 100), 12)  # edges at 45 and 90 degrees: exact ties
COLOUR = HogLayout((30, 42), 20, (5, 7), (2, 3), 3)  # cells reach every border; edges at 45 and 90 degrees
COMMON = {"wls.cu": {"CLASSES": 7, "LANES": 16}}  # so that two specialisations serve all its kernels
# Sizes: several blocks a launch, yet few threads: ThreadSanitizer takes milliseconds for each.
ROWS, NORMALS = 21, 1501
KEY = 0x123456789ABCDEF0


class Outcome(NamedTuple):
    """What a run of the kernels showed; `fault` is empty if all was well."""

    fault: str


def inputs() -> dict[str, np.ndarray]:
    """Return the same small inputs in every process."""
    rng = np.random.default_rng(5)
    n, p, J = 600, 40, 13
    gray = rng.integers(0, 256, (4, 50, 100)).astype(np.uint8)
    gray[1] = rng.random((50, 100)) > 0.98  # faint: epsilon shows
    gray[2] = gray[2] // 64 * 64  # many equal differences: ties
    colour = rng.normal(100.0, 30.0, (3, 30, 42, 3))
    # a gradient one rounding from 45 degrees in every 4 x 4 pixels: scikit-image's own steps decide the bin
    corner = rng.uniform(1.0, 2.0, (7, 10, 3))
    colour[2] = 0.0
    colour[2, 1:28:4, 2:41:4], colour[2, 2:29:4, 1:40:4] = corner, np.nextafter(corner, 0.0)
    return {
        "gray": gray,
        "colour": colour,
        "X": rng.normal(1.0, 2.0, (n, p)).astype(np.float32),
        "center": rng.normal(1.0, 0.1, p).astype(np.float32),
        "W": rng.random((n, J)).astype(np.float32),
        "R": rng.normal(size=(n, J)).astype(np.float32),
        "columns": np.sort(rng.choice(n, 130, replace=False)).astype(np.int32),
        "F": rng.normal(size=(ROWS, 40)).astype(np.float32) * 3,
        "labels": rng.integers(0, 10, ROWS).astype(np.int32),
        "weight": rng.random(max(ROWS, 40)).astype(np.float32),
    }


def results(host: Host) -> dict[str, np.ndarray]:
    """Return what every kernel makes of the inputs."""
    given = inputs()
    found = {
        "hog_fused": host.hog(given["gray"], GRAY),
        "hog_cells, hog_blocks": host.hog(given["gray"], GRAY, split=True),
        "hog_fused, colour": host.hog(given["colour"], COLOUR, "L1-sqrt", dtype="float64"),
        "componentwise": host.componentwise(given["X"], given["center"], given["W"], given["R"]),
        "componentwise, float64": host.componentwise(*_small(given)),
    }
    return (
        found
        | _columns(host, given)
        | _random_features(host, given)
        | _scores(host, given, 10)
        | _scores(host, given, 40)
    )


def _small(given: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return X, center, W and R of a float64 problem: its sums show any float on their way."""
    X, W, R = (given[name][:90, :3].astype(np.float64) for name in ("X", "W", "R"))
    return X, given["center"][:3].astype(np.float64), W, R


def _columns(host: Host, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    X, center = np.ascontiguousarray(given["X"].T[:5]), given["X"][:, 0].copy()  # X is 5 x 600
    n, p = X.shape
    gathered, scaled = poisoned((n, 130), np.float32), poisoned((3, n, 150), np.float32)
    plan = wls_plan.gather(X.dtype, n, 130)
    host.run(plan, X, given["columns"], center, gathered, n, p, 130)
    X, center, W = X[:, :150].copy(), center[:150].copy(), given["W"][:n]
    host.run(wls_plan.center_scale(X.dtype, n, 150), X, center, W, scaled, n, 150, 13, 4, 3)
    return {"gather_center": gathered, "center_scale": scaled}


def _random_features(host: Host, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    normal = poisoned(NORMALS, np.float32)
    host.run(wls_plan.scaled_normal(normal.dtype, NORMALS), normal, NORMALS, 2.0, *philox.split_seed(KEY), 9)
    values, shift = given["F"].copy(), given["weight"][:40].copy()
    host.run(wls_plan.cosine(values.dtype, values.size), values, shift, values.size, 40)
    return {"scaled_normal": normal, "cosine": values}


def _scores(host: Host, given: dict[str, np.ndarray], J: int) -> dict[str, np.ndarray]:
    F = np.ascontiguousarray(given["F"][:, :J])
    n, labels, weight = len(F), given["labels"], given["weight"][:ROWS].copy()
    W, R, moved = (poisoned((n, J), np.float32) for _ in range(3))
    largest, total = poisoned(n, np.float32), poisoned(2, np.float64)
    plan = wls_plan.working_response(F.dtype, n, J)
    losses = poisoned(plan.grid[0], np.float64)
    host.run(plan, F, labels, weight, W, R, losses, n, J, 3.0, 1e-7, 1)
    host.run(wls_plan.sum_in_order(), losses, total[:1], len(losses))
    plan = wls_plan.log_loss(F.dtype, n, J)
    losses = poisoned(plan.grid[0], np.float64)
    host.run(plan, F, labels, weight, losses, n, J)
    host.run(wls_plan.sum_in_order(), losses, total[1:], len(losses))
    host.run(wls_plan.update_scores(F.dtype, n, J), F, R, moved, largest, n, J, 0.3)
    whole = {"W": W, "R": R, "losses": total, "updated": moved, "largest": largest}
    return {f"scores of {J} classes: {name}": value for name, value in whole.items()}


def expected(path: Path) -> None:
    """Write what the kernels must give, from the cpu backend and NumPy, to an ``.npz`` file."""
    from pipeline.backends import cpu
    from pipeline.boosting import loss

    given = inputs()
    gray = cpu.hog.hog(given["gray"], GRAY, "L2-Hys", False, "float64")
    X, center = given["X"].astype(np.float64), given["center"].astype(np.float64)
    sums = cpu.wls.componentwise_sums(X, center, given["W"].astype(np.float64), given["R"].astype(np.float64))
    wide, first = given["X"].T[:5], given["X"][:, 0]
    root = np.sqrt(given["W"][:5, 4:7]).T[:, :, None]
    values = {
        "hog_fused": gray,
        "hog_cells, hog_blocks": gray,
        "hog_fused, colour": cpu.hog.hog(given["colour"], COLOUR, "L1-sqrt", False, "float64"),
        "componentwise": np.stack([s.T for s in sums]),
        "componentwise, float64": np.stack([s.T for s in cpu.wls.componentwise_sums(*_small(given))]),
        "gather_center": (wide - first)[:, given["columns"]],
        "center_scale": root * (wide - first)[:, :150],
        "scaled_normal": 2.0 * philox.normal(NORMALS, KEY, 9),
        "cosine": np.cos(given["F"].astype(np.float64) + given["weight"][:40]),
    }
    for J in (10, 40):
        F, Y, weight = (
            given["F"][:, :J].astype(np.float64),
            np.eye(J)[given["labels"]],
            given["weight"][:ROWS],
        )
        W, R = loss.working_response(np, Y, loss.softmax(np, F), weight, 3.0, "gradient", 1e-7)
        moved = F + 0.3 * (R - R.mean(axis=1, keepdims=True))
        total = loss.log_loss(np, F, Y, weight, 1.0)
        whole = {
            "W": W,
            "R": R,
            "losses": [total] * 2,
            "updated": moved,
            "largest": np.abs(moved).max(axis=1),
        }
        values |= {f"scores of {J} classes: {name}": np.asarray(value) for name, value in whole.items()}
    np.savez(path, **values)


def compare(found: dict[str, np.ndarray], wanted: Any) -> str:
    """Return what is wrong with `found`, or an empty text."""
    for name, value in found.items():
        if np.isnan(value).any():
            return f"{name}: {np.isnan(value).sum()} numbers were never written"
        size = np.abs(wanted[name])
        scale = 1.0 + (size.max() if name.startswith("componentwise") else size)
        error = float((np.abs(value - wanted[name]) / scale).max())
        if error > (1e-13 if name.endswith("float64") else 1e-6):
            return f"{name}: wrong by {error:.1e}"
    return ""


def in_child(
    wanted: Path,
    mode: str,
    schedules: str = "forward",
    seed: int = 0,
    mutant: str = "",
) -> Outcome:
    """Run the kernels in a process with the sanitizers that `mode` needs; return the first fault."""
    arguments = [str(wanted), mode, schedules, str(seed), mutant]
    libraries = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in RUNTIMES.get(mode, ())
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(path.strip() for path in libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "exitcode=66",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.cuda_on_host.exercise", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    reported = re.search(REPORTS, done.stderr)
    if reported:
        return Outcome(reported[0])
    if done.returncode:
        return Outcome(f"exit status {done.returncode}: {done.stderr[-2000:]}")
    return Outcome(json.loads(done.stdout.splitlines()[-1])["fault"])


def main(path: str, mode: str, schedules: str, seed: str, mutant: str) -> None:
    """Run in the child."""
    from tests.cuda_on_host.mutants import MUTANTS

    changes = (MUTANTS[mutant].edit, MUTANTS[mutant].change_launch) if mutant else (None, None)
    fault = ""
    for name in schedules.split(","):
        order = name.removesuffix(ACROSS)
        host = Host(mode, order, int(seed), order != name, *changes, common=COMMON)
        fault = fault or _fault(host, path)
    print(json.dumps({"fault": fault}))


def _fault(host: Host, path: str) -> str:
    try:
        fault = compare(results(host), np.load(path, allow_pickle=False))
    except (KernelError, TypeError, ValueError, OverflowError) as error:
        fault = " ".join(str(error).split())
    return fault and f"{host.schedule}: {fault}"


if __name__ == "__main__":
    main(*sys.argv[1:])
