"""The cost of a training run on any machine, and the number of images from which on another one pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipeline import config
from pipeline.profiling.devices import of_gpu
from pipeline.profiling.forecast import Counts, Forecast
from pipeline.profiling.machines import Measured
from pipeline.profiling.processors import of_cpu, of_this
from pipeline.profiling.work import Work


def forecast(
    machine: config.Machine, measured: Measured, work: Work, counts: Counts, tf32: bool = False
) -> Forecast:
    """Return the forecast for any kind of machine."""
    if machine.kind.name == "this":
        return of_this(machine, measured, work, counts)
    if machine.kind.name == "cpu":
        return of_cpu(machine, measured, replace(work, backend="cpu"), counts)
    # cell histograms on disk are the processor's; on a GPU features that do not fit stream from host memory
    return of_gpu(machine, measured, replace(work, backend="gpu", memory_limit=0), counts, tf32)


def largest(fits: Callable[[int], bool], images: int) -> int | None:
    """Return the most images, fewer than given, that fit, rounded down to two digits; None for fewer than ten."""
    low, high = 10, images
    if not fits(low):
        return None
    while high > low * 1.005 + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    scale = 10 ** max(0, len(str(low)) - 2)
    return low // scale * scale


def break_even(there: Callable[[int], float], here: Callable[[int], float], most: int = 10**9) -> int | None:
    """Return the number of images from which on `there` takes fewer seconds than `here`; None if never.

    Both grow with the images; the answer is rounded up to two digits.
    """
    sizes = [100]
    while sizes[-1] < most:
        sizes.append(sizes[-1] * 2)
    wins = [there(n) < here(n) for n in sizes]
    if not wins[-1]:
        return None
    last_loss = max((i for i, win in enumerate(wins) if not win), default=-1)
    if last_loss < 0:
        return sizes[0]
    low, high = sizes[last_loss], sizes[last_loss + 1]
    while high > low * 1.01 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if there(middle) < here(middle) else (middle, high)
    scale = 10 ** max(0, len(str(high)) - 2)
    return -(-high // scale) * scale
