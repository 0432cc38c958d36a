"""What to do where memory is short, or where a run spares memory that there is: on disk or not, and in what form.

The bytes are counted (:mod:`pipeline.profiling.footprint`); what it does to the time is measured in short runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipeline.config import ScaleName
from pipeline.profiling.candidate import Candidate, Measured
from pipeline.profiling.cause import size
from pipeline.profiling.footprint import Footprint, footprint, least_limit
from pipeline.profiling.work import Work, streamed

SHORT = 0.7  # share of the memory above which it is short
HALF = 0.5  # of the memory is what a run out of core is given
MOST = 0.9  # of the memory is what it may be given
SLACK = 96e6  # bytes of kernels that are yet to be compiled, and of memory that the allocator keeps
EVERYTHING = (
    "read",
    "decode",
    "split",
    "gather",
    "preprocess",
    "hog",
    "write",
    "boost",
    "expand",
    "evaluate",
)


def out_of_core(run: Measured) -> Iterator[Candidate]:
    """Yield cell histograms on disk in place of features in memory, where the features hardly fit."""
    cfg, work = run.cfg, run.work
    local = cfg.scale.name is ScaleName.local and work.backend == "cpu"
    if not local or cfg.classifier.trim > 0.0 or work.components is not None or run.peak < SHORT * run.memory:
        return
    found = limited(work, run.base, run.memory)
    if found is None:
        return
    limit, there = found
    need = footprint(there, run.base, run.memory)
    if need.host >= run.peak:  # what the program itself holds is most of it
        return
    kept, features = work.images * there.kept_bytes, work.images * work.features * work.feature_bytes
    over = run.peak > run.memory or footprint(work, run.base, run.memory).host > run.memory
    what = "the features do not fit in memory" if over else "memory is short"
    yield Candidate(
        f"{what}: keep the cell histograms on disk and expand them block by block (scale=outofcore)",
        f"scale.name=outofcore scale.memory_limit={limit}",
        EVERYTHING,
        1.0,
        f"at most {size(run.peak)} of {size(run.memory)} of memory were in use; the features are {size(features)}, "
        f"the histograms {size(kept)} on disk, and {there.passes} passes expand {there.block_rows} images at a time",
        "the same model up to rounding; memory in exchange for time",
        memory=need.host,
        needed=True,
    )


def in_memory(run: Measured) -> Iterator[Candidate]:
    """Yield features in memory, where a run out of core need not be one."""
    if not run.work.memory_limit:
        return
    local = replace(run.work, memory_limit=0)
    need = footprint(local, run.base, run.memory)
    if need.host > SHORT * run.memory:
        return
    yield Candidate(
        "keep the features in memory (scale=local): they fit",
        "scale.name=local",
        EVERYTHING,
        1.0,
        f"{run.told('expand', 'write')}; in memory the run needs {size(need.host)} of the {size(run.memory)} there are",
        "the same model up to rounding; more memory",
        memory=need.host,
    )


def packed(run: Measured, packing: Candidate) -> Candidate:
    """Return packing as a way to spare memory: pixels of a packed set are mapped, not held."""
    saved = run.work.images * run.work.pixels
    left = without_pixels(run)
    alone = "" if left < SHORT * run.memory else f"; counted, the run then still needs {size(left)}"
    if left > run.memory:
        alone += ", which is more than there is"
    return replace(
        packing,
        title=f"memory is short: {packing.title}",
        why=f"at most {size(run.peak)} of {size(run.memory)} of memory were in use; the pixels are "
        f"{size(saved)} of them; of a packed set only the {run.cfg.chunk} images at work are held{alone}",
        needed=True,
    )


def without_pixels(run: Measured) -> float:
    """Return the bytes that a run whose pixels are mapped has resident at most, measured or counted: the more."""
    counted = footprint(run.work, run.base, run.memory).host
    return max(run.peak, counted) - float(run.work.images) * run.work.pixels


def limited(work: Work, base: float, memory: float) -> tuple[str, Work] | None:
    """Return a ``scale.memory_limit`` as typed and the work under it; None if no limit below the memory would do.

    Half of the memory, or what training out of core needs at least and SLACK.
    """
    least = least_limit(work, base) + SLACK
    limit = max(HALF * memory, least, 1e8)
    if limit > MOST * memory:
        return None
    text = f"{limit / 1e9:.0f}GB" if limit >= 1e10 else f"{-(-limit // 10**6):.0f}MB"
    exact = round(limit / 1e9) * 10**9 if limit >= 1e10 else int(-(-limit // 10**6)) * 10**6
    return text, streamed(replace(work, memory_limit=exact), int(base))


def would_fit(work: Work, base: float, memory: float) -> tuple[str, Footprint] | None:
    """Return the overrides with which a run in memory that does not fit would run, and its needs; None if none."""
    if work.backend != "cpu" or work.components is not None:
        return None
    found = limited(work, base, memory)
    if found is None:
        return None
    need = footprint(found[1], base, memory)
    return (f"scale=outofcore scale.memory_limit={found[0]}", need) if need.fits else None


RULES = (out_of_core, in_memory)
