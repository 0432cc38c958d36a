"""How the seconds of a boosting round grow with images n, features p and classes J: fitted exponents.

    python scripts/bench_growth.py [--rounds 5] [--largest 100000]

Random features like those of HoG (0 to .3), float32. One figure is varied at a time, the others are n = 10,000,
p = 3240, J = 10. A figure is the median seconds of a round over `--rounds` timed fits of few rounds, the sizes taken
in turn within each repeat. The exponent is the slope of a line through the logarithms; "worst step" is the largest
factor by which time grew more than the size between neighbours. For classes the last column is the time over J / 10
times the time at J = 10: at most 1 means that many classes cost no more each than ten.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from pipeline import LogitBoostClassifier, backends

IMAGES = (1000, 3000, 10_000, 30_000, 100_000)
FEATURES = (648, 1296, 3240, 6480, 12_000)
CLASSES = (2, 5, 10, 20, 43, 100, 136)
LEARNERS = {"subspace": 10, "componentwise": 4, "random_features": 2}  # rounds of a fit


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=IMAGES[-1], help="images, at most")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    options = parser.parse_args()
    images = tuple(n for n in IMAGES if n <= options.largest)
    with backends.get("cpu").threads(0) as threads:
        print(f"{threads} threads; milliseconds of a round")
        for learner in options.learners:
            vary(learner, "n", [(n, 3240, 10) for n in images], options.rounds)
            vary(learner, "p", [(10_000, p, 10) for p in FEATURES], options.rounds)
            vary(learner, "J", [(10_000, 3240, J) for J in CLASSES], options.rounds)


def vary(learner: str, name: str, shapes: list[tuple[int, int, int]], repeats: int) -> None:
    """Print the line of one learner and one varied figure."""
    place = {"n": 0, "p": 1, "J": 2}[name]
    sizes = np.array([shape[place] for shape in shapes], dtype=float)
    found = np.median([[round_seconds(learner, *shape) for shape in shapes] for _ in range(repeats)], axis=0)
    exponent = np.polyfit(np.log(sizes), np.log(found), 1)[0]
    steps = (found[1:] / found[:-1]) / (sizes[1:] / sizes[:-1])
    cells = "  ".join(f"{size:.0f}: {1e3 * t:.4g}" for size, t in zip(sizes, found, strict=True))
    line = f"{learner:16} {name}  exponent {exponent:5.2f}  worst step {steps.max():4.2f}  {cells}"
    if name == "J":
        each = found / found[list(sizes).index(10.0)] / (sizes / 10.0)
        line += "  against J/10: " + " ".join(
            f"{int(J)}: {x:.2f}" for J, x in zip(sizes, each, strict=True) if J > 10
        )
    print(line, flush=True)


def round_seconds(learner: str, n: int, p: int, J: int) -> float:
    """Return the seconds of a round: those of a fit of some rounds, less those of a fit of one."""
    X, y = problem(n, p, J)
    more = LEARNERS[learner]

    def fit(rounds: int) -> float:
        begin = time.perf_counter()
        LogitBoostClassifier(learner, n_rounds=rounds, random_state=0).fit(X, y)
        return time.perf_counter() - begin

    return max(1e-9, (fit(1 + more) - fit(1)) / more)


def problem(n: int, p: int, J: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of J classes; a class shifts one feature."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % J
    X = rng.random((n, p), dtype=np.float32)
    X *= np.float32(0.3)
    X[np.arange(n), y % p] += np.float32(0.05)
    return X, y


if __name__ == "__main__":
    main()
