"""What a run costs on a processor: on this one from measured samples, on another by scaling them."""

from __future__ import annotations

import math
from dataclasses import replace

from pipeline import config
from pipeline.backends import triangle
from pipeline.profiling.footprint import Footprint, footprint
from pipeline.profiling.forecast import (
    ARITHMETIC,
    BANDWIDTH,
    COPIES,
    HOST,
    INSTRUCTIONS,
    OF_BANDWIDTH,
    OF_PRODUCTS,
    ONE_CORE,
    Amounts,
    Counts,
    Forecast,
    StageCost,
    given,
    number_type,
    peak,
)
from pipeline.profiling.machines import Measured
from pipeline.profiling.probes import EXPAND
from pipeline.profiling.work import TOGETHER, Work

SEGMENTS = 8  # parts of the rows of a small system: more cores than these or the classes have nothing to do
SMALL_SYSTEM = triangle.SQUARE  # columns up to which a system is small
BINDS = 0.4  # a limit binds a measured stage that reaches this share of it


def of_this(machine: config.Machine, measured: Measured, work: Work, counts: Counts) -> Forecast:
    """Return what the run costs here, from measured samples."""
    seconds = measured.seconds(work.images, work.rounds)
    needed = counts(work)
    stages = [
        StageCost(stage, value, bound_here(stage, value, needed.get(stage), measured, work))
        for stage, value in seconds.items()
        if value > 0.0
    ]
    device = float(measured.limits.get("device_memory") or 0.0) if work.backend == "gpu" else 0.0
    host = machine.memory_gb * 1e9 if machine.memory_gb else measured.memory
    memory = footprint(work, measured.base_memory, host, device)
    return Forecast(
        machine, True, work.images, work.rounds, _from_disk(stages, memory, measured, work), memory
    )


def _from_disk(
    stages: list[StageCost], memory: Footprint, measured: Measured, work: Work
) -> tuple[StageCost, ...]:
    """Return the stages with the reading of histograms from the disk, where they do not stay in the page cache.

    The measuring runs are small, and find theirs there. A pass goes over the files in their order: where they do not
    all fit, none is there when its turn comes again.
    """
    rate = float(measured.limits.get("disk_read") or 0.0)
    if not rate or memory.disk <= memory.host_memory - memory.host:
        return tuple(stages)
    seconds = work.passes * work.fit * work.kept_bytes / rate
    return tuple(
        StageCost(one.stage, seconds, "files") if one.stage == EXPAND and seconds > one.seconds else one
        for one in stages
    )


def bound_here(stage: str, seconds: float, count: Amounts | None, measured: Measured, work: Work) -> str:
    """Return the limit of this machine that binds a measured stage."""
    if stage in ("read", "decode") and work.source in ("folder", "packed"):
        return "files"
    if stage in ("compile", "start"):
        return "start"
    on_device = work.backend == "gpu" and stage not in HOST
    if stage in ("copy to device", "copy back"):
        return COPIES
    if count is not None and seconds > 0.0:
        shares = {
            BANDWIDTH: count.bytes / _rate(measured, "copy", on_device) / seconds,
            ARITHMETIC: count.operations / _product(measured, work, stage, on_device) / seconds,
        }
        most = max(shares, key=lambda name: shares[name])
        if shares[most] >= BINDS:
            return most
    if on_device:
        return "device"  # launches or instructions: `profile` tells
    return INSTRUCTIONS if measured.cores.get(stage, 1.0) > 1.3 or measured.usable_cores == 1 else ONE_CORE


def _rate(measured: Measured, name: str, on_device: bool) -> float:
    """Return a rate of this machine, or of its device; infinite where it was not measured."""
    return float(measured.limits.get(f"device_{name}" if on_device else name) or math.inf)


def _product(measured: Measured, work: Work, stage: str, on_device: bool) -> float:
    rates = measured.limits.get("device_product" if on_device else "product") or {}
    return float(rates.get(number_type(work, stage)) or math.inf)


def of_cpu(machine: config.Machine, measured: Measured, work: Work, counts: Counts) -> Forecast:
    """Return a forecast for a datasheet processor: the measured stages, scaled by the limit that binds each."""
    # of its arithmetic the datasheet says what it does in float32, and nothing of its registers
    unlike = replace(work, rough=False, together=TOGETHER)
    needed, stages, all_cores = counts(unlike), [], int(given(machine, "cores"))
    clock = measured.clock_ghz / given(machine, "clock_ghz")
    bandwidth = OF_BANDWIDTH * given(machine, "bandwidth_gb_s") * 1e9
    for stage, value in measured.seconds(work.images, work.rounds).items():
        if value <= 0.0:
            continue
        limit = bound_here(stage, value, needed.get(stage), measured, work)
        cores = _useful_cores(all_cores, stage, work)
        count = needed.get(stage)
        moved = count.bytes / bandwidth if count is not None else 0.0
        if limit in ("files", "start") or (limit == ONE_CORE and stage in HOST):
            scaled = value if limit == "files" else value * clock
        elif limit == BANDWIDTH:
            scaled = moved
        elif limit == ARITHMETIC and count is not None:
            scaled = count.operations / (OF_PRODUCTS * peak(machine, work, stage) * cores / all_cores)
        else:
            busy = max(1.0, measured.cores.get(stage, 1.0))
            scaled = value * clock * (1.0 if limit == ONE_CORE else busy / cores)
        stages.append(StageCost(stage, max(scaled, moved), BANDWIDTH if moved > scaled else limit))
    memory = footprint(work, measured.base_memory, given(machine, "memory_gb") * 1e9)
    return Forecast(
        machine,
        False,
        work.images,
        work.rounds,
        _from_disk(stages, memory, measured, work),
        memory,
        (
            f"each stage measured here is scaled by the limit that binds it: {OF_BANDWIDTH:.0%} of the bandwidth, "
            f"{OF_PRODUCTS:.0%} of the arithmetic, or clock and cores ({measured.clock_ghz:.1f} GHz here)",
            f"small systems keep at most {max(SEGMENTS, work.fits)} cores busy; files are read as fast as here",
        ),
    )


def _useful_cores(cores: int, stage: str, work: Work) -> int:
    small = stage.startswith("boost") and work.columns <= SMALL_SYSTEM
    return min(cores, max(SEGMENTS, work.fits)) if small else cores
