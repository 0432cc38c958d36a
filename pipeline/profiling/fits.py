"""The laws that the points of a sweep follow: serial share, exponent, cost of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.profiling.cause import duration
from pipeline.profiling.report import Fit, Point, label

WORTH = 0.02  # share of the run below which a stage's exponent is noise


def amdahl(points: Sequence[Point]) -> Fit:
    """Return seconds_one (s + (1 - s) / k) of k threads, by least squares of the relative error.

    G. M. Amdahl, Validity of the single processor approach, AFIPS 1967.
    """
    from scipy.optimize import nnls

    threads = np.array([point.x for point in points])
    seconds = np.array([point.seconds for point in points])
    rows = np.stack([np.ones_like(threads), 1.0 / threads], axis=1) / seconds[:, None]
    constant, shared = nnls(rows, np.ones_like(seconds))[0].tolist()
    one = constant + shared
    serial = constant / one
    most = threads.max()
    gain = 1.0 / (serial + (1.0 - serial) / most)
    end = f"no number of threads makes it more than {1.0 / serial:.3g} times as fast as one" if serial > 0.005 else (
        "more threads would go on to pay"
    )  # fmt: skip
    if serial > 0.995:
        words = f"None of the work shares out: {most:.0f} threads are no faster than one."
        return Fit("amdahl", {"serial": serial, "seconds_one": one}, words)
    words = (
        f"{serial:.0%} of the work of one thread does not share out: {most:.0f} threads are {gain:.2g} times as fast "
        f"as one, and {end}."
    )
    return Fit("amdahl", {"serial": serial, "seconds_one": one}, words)


def power(points: Sequence[Point], thing: str, source: str = "") -> Fit:
    """Return factor x ** exponent of the whole, and the exponent of each stage that counts, by log-log regression.

    Parameters
    ----------
    thing : what x counts, in the plural
    source : kind of data
    """
    x = np.array([point.x for point in points])
    factor, exponent = _log_log(x, np.array([point.seconds for point in points]))
    values = {"factor": factor, "exponent": exponent}
    steepest: tuple[float, str] | None = None
    for stage, largest in points[-1].stages.items():
        seconds = np.array([point.stages.get(stage, 0.0) for point in points])
        if largest < WORTH * points[-1].seconds or (seconds <= 0.0).any():
            continue
        values[f"exponent of {stage}"] = _log_log(x, seconds)[1]
        steepest = max(steepest or (-np.inf, ""), (values[f"exponent of {stage}"], stage))
    words = f"Twice the {thing} take {2.0**exponent:.2f} times as long (exponent {exponent:.2f})"
    if steepest is not None:
        words += f"; {label(steepest[1], source)} grows fastest (exponent {steepest[0]:.2f})"
    return Fit("power", values, words + ".")


def _log_log(x: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    exponent, intercept = np.polyfit(np.log(x), np.log(seconds), 1)
    return float(np.exp(intercept)), float(exponent)


def batches(points: Sequence[Point], images: int, now: int) -> Fit:
    """Return what a batch costs by itself: seconds = fixed + per_batch (images / batch), by nonnegative least squares.

    Batches above the fastest are left out: there the caches decide, not the number of batches.

    Parameters
    ----------
    points : x is the batch, seconds those of the stages that work in batches
    now : the batch of the settings

    Notes
    -----
    Two runs of one size differ by chance: what is no larger than the largest of these differences is not claimed.
    """
    from scipy.optimize import nnls

    best = min(points, key=lambda point: point.seconds)
    rising = [point for point in points if point.x <= best.x]
    counts = np.ceil(images / np.array([point.x for point in rising]))
    seconds = np.array([point.seconds for point in rising])
    rows = np.stack([np.ones_like(counts), counts], axis=1) / seconds[:, None]
    fixed, each = nnls(rows, np.ones_like(seconds))[0].tolist()
    values = {
        "best": best.x,
        "fixed": fixed,
        "per_batch": each,
        "ratio": points[-1].seconds / points[0].seconds,
    }
    noise, slowest = max(point.spread for point in points), max(point.seconds for point in points)
    if slowest - best.seconds <= noise:
        words = (
            f"No step beyond the noise: every size takes {duration(best.seconds)} to {duration(slowest)}, and two runs "
            f"of one size differ by up to {duration(noise)}."
        )
        return Fit("ratio", values, words)
    words = f"Fastest with {best.x:.0f} images at a time"
    if points[0].seconds - best.seconds > noise:
        words += f"; a batch costs {1e3 * each:.2g} ms beside its images"
    used = next(point for point in points if point.x == min(now, images))
    if used.seconds - best.seconds > noise:
        words += f"; chunk={now} takes {used.seconds / best.seconds:.2f} times as long in these stages"
    last = points[-1]
    if last.seconds - best.seconds > max(0.05 * best.seconds, noise):
        words += (
            f"; {last.x:.0f} take {last.seconds / best.seconds:.2f} times as long: more than the caches hold"
        )
    return Fit("ratio", values, words + ".")


def precision(points: Sequence[Point], accuracy: Sequence[float | None]) -> Fit:
    """Return float64 against float32 in everything: the last point against the first."""
    ratio = points[-1].seconds / points[0].seconds
    words = f"float64 throughout takes {ratio:.2f} times as long as float32"
    grown = {
        stage: points[-1].stages.get(stage, 0.0) - seconds for stage, seconds in points[0].stages.items()
    }
    most = max(grown, key=lambda stage: grown[stage], default="")
    if most and grown[most] > WORTH * points[-1].seconds:
        words += f", most of all in {label(most)} ({grown[most]:.2g} s more)"
    if accuracy[0] is not None and accuracy[-1] is not None:
        words += f"; accuracy {accuracy[0]:.2%} with float32, {accuracy[-1]:.2%} with float64"
    return Fit("ratio", {"ratio": ratio}, words + ".")
