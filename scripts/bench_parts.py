"""Time the parts of a boosting round of `subspace`, each where it is called.

    python scripts/bench_parts.py [--rounds 60] [--repeats 5]

n = 10,000, q = 128 of p = 3240, 10 classes, float32; the scores are those of bench_boost.py. A figure is
milliseconds of a round, `--rounds` in a row, with one thread and with all, taken in turns; medians, with the range of
the whole round. The columns of a round are gathered by threads that are idle while the systems of the round before
are solved: what is timed is the wait for them. "The rest" is what is left of the round. The floors are those of all
threads, in the same pass: n q^2 operations per class for the Gram matrices and q^3 / 3 to factorise them, at the rate
of a large product, and the cache lines that hold the columns, at the rate at which X is read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from bench_boost import L2, problem, product_rate, read_rate, run_rounds, seconds

from pipeline.backends.cpu.wls_rough import Rough
from pipeline.boosting.columns import Columns
from pipeline.boosting.learners import Subspace
from pipeline.profiling.counts_rounds import lines_read

PARTS = {  # name: functions of the backend, of its rough fits, or of a class
    "Gram matrices and the other sums": ((None, "wls", "sums"), (None, "rough", "sums")),
    "waiting for the columns": ((Columns, "", "start"), (Columns, "", "settle")),
    "solutions, and improving them": (
        (Rough, "", "__init__"), (Rough, "", "improve"), (None, "wls", "solve"), (None, "wls", "refine"),
    ),
    "residuals": ((None, "wls", "residual_sums"),),
    "values of the step": ((None, "wls", "apply"),),
    "scores, loss, weights, responses": ((None, "scores", "advance"), (None, "scores", "working_response")),
}  # fmt: skip
REST, ROUND = "the rest, in Python", "round"


@contextmanager
def timed(backend: Any, spent: dict[str, float]) -> Iterator[None]:
    """Let the functions of PARTS add their seconds to `spent`."""
    before = []
    modules = {"wls": backend.wls, "rough": backend.wls.rough, "scores": backend.scores}
    for part, functions in PARTS.items():
        for kind, module, name in functions:
            owner = kind or modules[module]
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, clocked(before[-1][2], spent, part))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def clocked(function: Callable, spent: dict[str, float], part: str) -> Callable:
    def call(*arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments, **named)
        spent[part] += time.perf_counter() - start
        return result

    return call


def measure(design: Any, scores: Any, index: int, rounds: int) -> dict[str, float]:
    """Return the seconds that a round spends in each part, and altogether."""
    spent = dict.fromkeys(PARTS, 0.0)
    with timed(design.backend, spent):
        whole = seconds(lambda: run_rounds(design, scores, Subspace(128, L2), index, rounds))
    spent[REST], spent[ROUND] = whole - sum(spent.values()), whole
    return {part: value / rounds for part, value in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="images")
    parser.add_argument("--p", type=int, default=3240, help="features")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=60, help="rounds in a row")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    design, scores = problem(options)
    n, q, J = options.n, 128, options.classes
    lines = 64 * n * lines_read(options.p, q, 16)  # bytes
    with design.backend.threads(0) as all_threads:
        counts = sorted({1, all_threads})
    found: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    floors: dict[str, list[float]] = {part: [] for part in PARTS}
    for index in range(options.repeats + 1):
        for count in counts:
            with design.backend.threads(count):
                parts = measure(design, scores, index, options.rounds if index else 2)
            if index:  # the first compiles
                found[count].append(parts)
        with design.backend.threads(0):
            rate, reading = product_rate(), read_rate(scores.rows.rows, all_threads)
        work = (J * n * q**2 / rate, lines / reading, J * q**3 / 3 / rate)
        for part, floor in zip(PARTS, work, strict=False):
            floors[part].append(floor)
    header = "".join(f"{f'{count} thread' + 's' * (count > 1):>12}" for count in counts)
    print(f"{f'ms of a round, {options.rounds} in a row':36}{header}{'floor':>10}")
    for part in (*PARTS, REST, ROUND):
        columns = [1e3 * np.array([one[part] for one in found[count]]) for count in counts]
        cells = "".join(f"{np.median(column):12.2f}" for column in columns)
        if part == ROUND:
            note = "   " + ", ".join(f"{column.min():.1f}-{column.max():.1f}" for column in columns)
        else:
            note = f"{1e3 * np.median(floors[part]):10.2f}" if floors.get(part) else ""
        print(f"{part:36}{cells}{note}")


if __name__ == "__main__":
    main()
