"""Time one whole boosting round of each learner against statsmodels on the same fit and against the machine's floor.

    python scripts/bench_boost.py --rounds 7

A round is softmax, working responses, the learner's fit for all classes, the update of the scores and the loss. Twenty
rounds in a row are timed, as in a fit, and divided by twenty (three of random_features, one of ridge). The
measurements are interleaved: the floor, each learner, statsmodels, and again; the table gives medians, ranges in
brackets, and ratios taken within a pass (of what is timed once: within the first). The floor of a learner is what its
round cannot do without, at rates measured in the same pass: n q^2 + q^3 / 3 operations per class for a Gram matrix and
its Cholesky factorisation and 2 n p q for a random projection, at the rate of a large matrix product; the cache lines
that hold the columns of subspace, and X for componentwise, at the rate at which X is read. componentwise has a second
floor in the last column, its 6 n p operations per class at the rate of a large product: it cannot be faster than the
slower of the two.

statsmodels fits the very columns of the round (random features are given to it ready-made). Its seconds are
extrapolated: one class, times the number of classes; for componentwise, 20 features of one class, times features
and classes / 20. At p = 3240 a class takes it a minute, so that row is timed once (--skip-large leaves it out).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline import backends
from pipeline.boosting.learners import Componentwise, Design, RandomFeatures, Ridge, Subspace
from pipeline.boosting.loop import History, Rules, boost
from pipeline.boosting.messages import Frame
from pipeline.boosting.partition import Partition
from pipeline.boosting.team import Team
from pipeline.profiling.counts_rounds import lines_read

L2 = 1.0
# Seconds before a timing. OpenBLAS's second thread looks for more work for about 100 ms after a product (2^28 cycles,
# OPENBLAS_THREAD_TIMEOUT), on a core that what is timed next would get: rounds after one took 33 ms instead of 18.
REST = 0.2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=10_000, help="images")
    parser.add_argument("--p", type=int, default=3240, help="features")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="BLAS and Numba threads; 0: every core")
    parser.add_argument("--skip-large", action="store_true", help="do not time statsmodels at --p")
    return parser.parse_args()


@dataclasses.dataclass(frozen=True)
class Scores:
    """Rows, and their scores in mid-course."""

    rows: Partition
    F: np.ndarray


def problem(options: argparse.Namespace) -> tuple[Design, Scores]:
    """Return a design like HoG features (0 to .3) and scores of a round in mid-course."""
    rng = np.random.default_rng(0)
    n, p, J = options.n, options.p, options.classes
    X = rng.random((n, p), dtype=np.float32) * np.float32(0.3)
    codes = rng.integers(0, J, n)
    F = rng.normal(size=(n, J)).astype(np.float32) + 2 * np.eye(J, dtype=np.float32)[codes]
    cpu = backends.get("cpu")
    rows = Partition(cpu, X, codes, np.ones(n))
    moments = rows.moments("float32")
    rows.begin(Frame(moments.mean, J, 1, "float32", 3.0, "gradient"), [])
    design = Design(cpu, p, J, np.arange(p), float(moments.variance.sum()), 1, "float32")
    return design, Scores(rows, F)


def run_rounds(design: Design, scores: Scores, learner: object, index: int, rounds: int = 1) -> History:
    """Run `rounds` rounds from the same scores; what they draw depends on `index`."""
    rows = scores.rows
    rows.F, rows.frame = scores.F, dataclasses.replace(rows.frame, seed=index)
    shifted = dataclasses.replace(design, seed=index)
    return boost(shifted, learner, Rules(rounds, 0.3, None), Team(design.backend, [rows]), None, History())


def statsmodels_seconds(design: Design, scores: Scores, learner: object, index: int) -> float:
    """Return the seconds statsmodels would take for the fits of the same round; see the head of this file."""
    J, rows = scores.F.shape[1], scores.rows
    W, R = backends.get("cpu").scores.working_response(
        scores.F, rows.labels, rows.weight, 3.0, "gradient", 1e-7
    )
    reference = backends.get("reference").wls
    step = run_rounds(design, scores, learner, index).steps[0]
    X = rows.rows
    if isinstance(learner, Componentwise):
        fits = [
            lambda k=k: reference.fit(X[:, k : k + 1], np.zeros(1), W[:, :1], R[:, :1], 0.0)
            for k in range(20)
        ]
        return sum(seconds(fit) for fit in fits) * X.shape[1] * J / 20
    if step.gamma is not None:
        X = np.asarray(
            design.backend.wls.random_features(X, rows.center, step.gamma, step.coef.shape[0], index, 0)
        )
    elif step.columns is not None:
        X = X[:, step.columns]
    return J * seconds(lambda: reference.fit(X, np.zeros(X.shape[1]), W[:, :1], R[:, :1], L2))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rested(work: Callable[[], object]) -> float:
    """Return the seconds of work that begins when no thread of earlier work is busy any more, see REST."""
    time.sleep(REST)
    return seconds(work)


def product_rate(size: int = 2048) -> float:
    """Return this machine's float32 matrix-product rate, operations per second."""
    A = np.random.default_rng(0).random((size, size), dtype=np.float32)
    rate = 2.0 * size**3 / min(seconds(lambda: A @ A) for _ in range(3))
    time.sleep(REST)
    return rate


def read_rate(X: np.ndarray, threads: int) -> float:
    """Return the bytes per second at which X is read, every thread adding up rows of its own."""
    parts = np.array_split(X, threads)

    def read() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(np.sum, parts))

    return X.nbytes / min(seconds(read) for _ in range(3))


def main() -> None:
    options = arguments()
    n, p, J = options.n, options.p, options.classes
    design, scores = problem(options)
    q, components = 128, 512
    lines = 64 * n * lines_read(p, q, 16)  # bytes
    learners = {  # rounds in a row, operations, bytes
        f"subspace, q = {q}": (Subspace(q, L2), 20, J * (n * q**2 + q**3 / 3), lines),
        "componentwise": (Componentwise(), 20, 0, 4 * n * p),
        f"random_features, q = {components}": (
            RandomFeatures(components, (0.1, 0.1), L2),
            3,
            2 * n * p * components + J * (n * components**2 + components**3 / 3),
            0,
        ),
        f"ridge, p = {p}": (Ridge(L2), 1, J * (n * p**2 + p**3 / 3), 0),
    }
    times: dict[str, list[float]] = {name: [] for name in learners}
    floors: dict[str, list[float]] = {name: [] for name in learners}
    original: dict[str, list[float]] = {name: [] for name in learners}
    second: list[float] = []
    with design.backend.threads(options.threads) as threads:
        for learner, *_ in learners.values():
            if not isinstance(learner, Ridge):
                run_rounds(design, scores, learner, 0)  # compile
        for index in range(options.rounds):
            rate, reading = product_rate(), read_rate(scores.rows.rows, threads)
            second.append(6 * n * p * J / rate)
            for name, (learner, rounds, work, read) in learners.items():
                floors[name].append(work / rate + read / reading)
                large = isinstance(learner, Ridge)
                fit = functools.partial(run_rounds, design, scores, learner, index, rounds)
                times[name].append(rested(fit) / rounds)
                if not large or (index == 0 and not options.skip_large):
                    time.sleep(REST)
                    original[name].append(statsmodels_seconds(design, scores, learner, index))
            print(
                f"round {index + 1} of {options.rounds}: product rate {rate / 1e9:.0f} GFLOP/s, "
                f"X is read at {reading / 1e9:.1f} GB/s",
                flush=True,
            )
    report(options, threads, times, floors, original)
    ratios = np.array(times["componentwise"]) / np.array(second)
    print(f"componentwise, second floor: {np.median(second) * 1e3:.1f} ms, {spread(ratios, 2)} x")


def report(options, threads, times, floors, original) -> None:
    hidden = {k: v for k, v in os.environ.items() if k.startswith(("OPENBLAS_", "OMP_", "MKL_"))}
    print(
        f"\nn = {options.n}, p = {options.p}, J = {options.classes}, float32, {threads} threads, {hidden or ''}"
    )
    print(
        f"{'one round':28} {'ms':>27} {'floor, ms':>27} {'x floor':>17} {'statsmodels, s':>14} {'ratio':>20}"
    )
    for name, measured in times.items():
        t, f, slow = np.array(measured), np.array(floors[name]), np.array(original[name])
        note = (
            f"{np.median(slow):14.2f} {spread(slow / t[: slow.size], 0):>20}" if slow.size else f"{'-':>14}"
        )
        print(f"{name:28} {spread(t * 1e3, 1):>27} {spread(f * 1e3, 1):>27} {spread(t / f, 2):>17} {note}")


def spread(values: np.ndarray, digits: int) -> str:
    """Return the median and, in brackets, the range."""
    middle, low, high = (f"{value:,.{digits}f}" for value in (np.median(values), values.min(), values.max()))
    return f"{middle} ({low}-{high})" if len(values) > 1 else middle


if __name__ == "__main__":
    main()
