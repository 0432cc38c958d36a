"""What holds back a stage that the GPU does, and the copies to it and back."""

from __future__ import annotations

from pipeline.profiling.cause import Cause, Share, Verdict, duration, near, seconds, size, told
from pipeline.profiling.count import Count
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Row

LAUNCHES = 30  # kernels that one stage of a round launches, roundly
BEHIND = 0.5  # of the host's seconds: a device that took less of them had others' work to do in the rest
TWICE_COPIED = 1.25  # times the bytes that had to be copied; a padded last chunk or two stay below
COPIED_SLACK = 1 << 16  # bytes of small arrays that are not counted, in all


def on_device(row: Row, count: Count, limits: Limits, found: Share | None) -> Verdict:
    """Return the verdict on a stage of the gpu backend. Its work is queued: `device` tells when it was done.

    Parameters
    ----------
    found : the limit that the stage came nearest to

    Notes
    -----
    The device's seconds run on while it waits for the next kernel, so they are at least the host's, unless the
    device was behind when the stage began: then the host waits here for what earlier stages queued. Far from every
    limit, short stretches are made of launches, and long ones of arithmetic that is no product.
    """
    device, rest = row.device or 0.0, told(found)
    if device < BEHIND * row.wall:
        words = "the host waits here for what the stages before gave to the GPU"
        return Verdict(Cause.waiting, words, *rest, behind=True)
    if near(found, count) and found is not None:
        return Verdict(found.cause, found.words, *rest)
    each = device / max(row.calls, count.calls, 1)
    if each < LAUNCHES * (limits.launch or 0.0):
        words = f"{duration(each)} at a time on the GPU, no more than it takes to launch some kernels"
        return Verdict(Cause.launches, words, *rest)
    at = f"; {found.words}" if found is not None else ""
    return Verdict(Cause.arithmetic, "the GPU is busy with arithmetic that is no matrix product" + at, *rest)


def copied(row: Row, count: Count, limits: Limits, up: bool) -> Verdict:
    """Return the verdict on copies between host and device, `up` or down."""
    needed = count.to_device if up else count.to_host
    moved = row.counts.get(_name(up), 0.0)
    rate = limits.to_device.get("pinned") if up else limits.to_host.get("pageable")
    share = moved / seconds(row) / rate if rate and moved else None
    words, excess = f"{size(moved or needed)} {'up' if up else 'down'}", 0.0
    if too_much(moved, needed):
        excess, words = moved - needed, f"{words}, {times(moved, needed, up)}"
    if share is not None:
        words += f", at {share:.0%} of what the bus does"
    return Verdict(Cause.copies, words, share, "copies between host and device", excess)


def too_much(moved: float, needed: float) -> bool:
    """Tell whether more was copied than had to be; where nothing had to be, nothing is said."""
    return bool(needed) and moved > TWICE_COPIED * needed and moved - needed > COPIED_SLACK


def times(moved: float, needed: float, up: bool) -> str:
    """Say how much more was copied than had to be."""
    return f"{moved / needed:.1f} times the bytes that had to go {'up' if up else 'down'}"


def _name(up: bool) -> str:
    return "to the device" if up else "to the host"
