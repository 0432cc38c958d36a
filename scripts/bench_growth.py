"""How the seconds of a boosting round grow with images n, features p and classes J: fitted exponents.

    python scripts/bench_growth.py [--rounds 7] [--largest 100000] [--vary n p J]

Random features like those of HoG (0 to .3), float32. One figure is varied at a time, the others are n = 10,000, p =
3240, J = 10. In each of `--rounds` repeats the sizes take turns; a size's figure is the mean round of a fit, without
the first, which sets up. The table has the median of the repeats, with the smallest and the largest in brackets. The
exponent is the slope of a line through the logarithms of the three largest sizes, fitted in each repeat: small ones
are ruled by what does not grow. "Worst step" is the largest factor by which the median grew more than the size between
neighbours. For classes the last column is the time over J / 10 times the time at J = 10 of the same repeat: at most 1
means that many classes cost no more each than ten.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from pipeline import LogitBoostClassifier, backends

IMAGES = (1000, 3000, 10_000, 30_000, 100_000)
FEATURES = (648, 1296, 3240, 6480, 12_000)
CLASSES = (2, 5, 10, 20, 43, 100, 136)
BASE = {"n": 10_000, "p": 3240, "J": 10}
LEARNERS = {"subspace": 6, "componentwise": 4, "random_features": 1}  # rounds of a fit that are timed
LARGE = 3  # sizes that the exponent is fitted to
REST = (
    0.2  # seconds between fits: OpenBLAS's second thread looks for more work for about 100 ms after a product
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="repeats")
    parser.add_argument("--largest", type=int, default=IMAGES[-1], help="images, at most")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--vary", nargs="+", default=list(BASE), choices=list(BASE))
    options = parser.parse_args()
    sizes = {"n": [n for n in IMAGES if n <= options.largest], "p": list(FEATURES), "J": list(CLASSES)}
    with backends.get("cpu").threads(0) as threads:
        print(f"{threads} threads; milliseconds of a round, median of {options.rounds} repeats (range)")
        for varied in options.vary:
            values = sizes[varied]
            problems = [problem(**{**BASE, varied: value}) for value in values]
            for learner in options.learners:
                found = [[round_seconds(learner, X, y) for X, y in problems] for _ in range(options.rounds)]
                print(told(learner, varied, np.array(values, dtype=float), np.array(found)), flush=True)


def told(learner: str, varied: str, sizes: np.ndarray, found: np.ndarray) -> str:
    """Return the line of one learner and one varied figure.

    Parameters
    ----------
    sizes : its values
    found : seconds, a row for each repeat
    """
    slopes = [np.polyfit(np.log(sizes[-LARGE:]), np.log(row[-LARGE:]), 1)[0] for row in found]
    middle = np.median(found, axis=0)
    steps = (middle[1:] / middle[:-1]) / (sizes[1:] / sizes[:-1])
    lines = [
        f"{learner}, {varied}: exponent from {sizes[-LARGE:][0]:,.0f} on {spread(slopes)}, "
        f"worst step {steps.max():.2f}",
        *(f"  {size:>9,.0f}  {spread(1e3 * column)}" for size, column in zip(sizes, found.T, strict=True)),
    ]
    if varied == "J":
        each = found / found[:, [list(sizes).index(10.0)]] / (sizes / 10.0)
        of_many = {size: column for size, column in zip(sizes, each.T, strict=True) if size in (43.0, 136.0)}
        lines += [
            f"  {size:.0f} classes against {size:.0f} / 10 times ten: {spread(r)}"
            for size, r in of_many.items()
        ]
    return "\n".join(lines)


def spread(values: np.ndarray | list[float]) -> str:
    """Return the median and, in brackets, the range."""
    return f"{np.median(values):.3g} ({np.min(values):.3g}-{np.max(values):.3g})"


def round_seconds(learner: str, X: np.ndarray, y: np.ndarray) -> float:
    """Return the seconds of a round: the mean of those after the first of a fit."""
    rounds, ends = LEARNERS[learner], []
    model = LogitBoostClassifier(learner, n_rounds=1 + rounds, random_state=0)
    time.sleep(REST)
    model.fit(X, y, on_round=lambda *_: ends.append(time.perf_counter()))
    return (ends[-1] - ends[0]) / rounds


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
