"""What ``plan`` prints: one machine in full, or several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.profiling.forecast import BANDWIDTH, HERE, Forecast, StageCost
from pipeline.profiling.machines import Measured
from pipeline.profiling.work import Work
from pipeline.reporting import tables

WORTH_SAYING = 0.1  # share of the time from which on memory bandwidth has a line of its own


def one(
    plan: Forecast, own: Forecast, from_on: int | None, work: Work, measured: Measured, way: str = ""
) -> None:
    """Print the plan of one machine: the answer, the stages, the memory.

    Parameters
    ----------
    plan : the machine
    own : this machine, for comparison
    from_on : number of images from which on the machine is faster than this one; None: never
    work, measured : what the seconds follow from
    way : what would make a run fit that does not; such a run has no seconds
    """
    name = plan.machine.name
    if plan.measured:
        runs = " and ".join(f"{n:,}" for n in measured.images)
        title = f"Plan for {name}, measured on runs of {runs} images"
    else:
        title = f"FORECAST for {name}, from its datasheet; never measured"
    if plan.footprint.fits:
        tables.facts(f"{title}: {duration(plan.seconds)}", list(_answers(plan, own, from_on, work, measured)))
        rows = [
            (stage.stage, duration(stage.seconds), f"{stage.seconds / plan.seconds:.0%}", stage.limit)
            for stage in plan.stages
        ]
        tables.table("Stages", ("stage", "time", "share", "what"), rows)
    else:
        facts = [("run", _run(plan, work)), ("fits", fits(plan)), ("would fit", way)]
        tables.facts(f"{title}: it does not fit in memory", facts)
    on_device = plan.footprint.device_memory > 0
    columns = ("stage", "host", "device", "what") if on_device else ("stage", "host", "what")
    needs = [
        (need.stage, size(need.host), *([size(need.device)] if on_device else []), need.note)
        for need in plan.footprint.needs
    ]
    tables.table("Memory at most, as counted", columns, needs)
    if plan.assumptions and plan.footprint.fits:
        tables.facts("The forecast takes for granted", [("-", line) for line in plan.assumptions])


def _answers(
    plan: Forecast, own: Forecast, from_on: int | None, work: Work, measured: Measured
) -> Iterator[tuple[str, str]]:
    machine = plan.machine
    yield "run", _run(plan, work)
    yield "fits", fits(plan)
    longest = max(plan.stages, key=lambda stage: stage.seconds)
    yield (
        "what holds it back",
        f"{longest.stage}, {longest.seconds / plan.seconds:.0%} of the time: {bound_by(longest)}",
    )
    device = plan.on_device
    if device is not None:
        rest = plan.seconds - device
        yield (
            "on the device",
            f"{duration(device)}; the other {duration(rest)} are the host's, and no GPU shortens them",
        )
    bound = plan.share(BANDWIDTH)
    if bound >= WORTH_SAYING:
        yield "memory bandwidth", f"binds {bound:.0%} of the time: {_bandwidth(plan, measured)}"
    if machine.kind.name != "this" and not own.footprint.fits:
        yield "against this machine", f"it does not fit here: {fits(own)}"
    elif machine.kind.name != "this":
        ratio = own.seconds / plan.seconds
        faster = f"{ratio:.1f} times faster" if ratio >= 1.0 else f"{1 / ratio:.1f} times slower"
        yield "against this machine", f"{faster}: {duration(own.seconds)} here ({measured.processor})"
        yield "pays", pays(from_on, plan.images)
    price = plan.price
    yield "cost", "machine.price_per_hour=... tells" if price is None else money(price)
    if plan.energy is not None:
        yield "energy", f"at most {watt_hours(plan.energy)} Wh ({machine.power_watts:.0f} W all the time)"
    if machine.source:
        yield "source", f"{machine.source} ({machine.year})"


def _run(plan: Forecast, work: Work) -> str:
    told = (
        f"train {plan.images:,} images of {work.source}, {work.features:,} features, {work.classes} classes, "
        f"{plan.rounds} rounds{' at most' if work.watched else ''}, learner {work.learner}"
    )
    if not plan.footprint.disk:
        return told
    return f"{told}; scale=outofcore, {work.passes} passes over {size(plan.footprint.disk)} of cell histograms on disk"


def bound_by(stage: StageCost) -> str:
    """Return what a stage waits for, in words."""
    if stage.stage == "start":
        return "Python, imports and kernels, once in every run"
    if stage.limit == HERE:
        return "work of the host, as fast as here"
    return f"bound by {stage.limit}"


def _bandwidth(plan: Forecast, measured: Measured) -> str:
    copied = float(measured.limits.get("copy") or 0.0)
    here = f"{copied / 1e9:.0f} GB/s measured here" if copied else ""
    there = plan.machine.bandwidth_gb_s
    return ", ".join(filter(None, [f"{there:,.0f} GB/s of the datasheet" if there else "", here]))


def fits(plan: Forecast) -> str:
    """Return whether the memory suffices, in words."""
    memory = plan.footprint
    host = f"host {size(memory.host)} of {size(memory.host_memory)}"
    device = f", device {size(memory.device)} of {size(memory.device_memory)}" if memory.device_memory else ""
    if memory.fits:
        return f"yes: {host}{device}" + ("; features stream through the device" if memory.streamed else "")
    if memory.refused:
        return f"NO: {memory.refused}"
    return f"NO: {host}{device}"


def pays(from_on: int | None, images: int) -> str:
    """Return from how many images on the machine is the faster one, in words."""
    if from_on is None:
        return "never: it is slower than this machine with any number of images"
    if from_on <= 100:
        return "with any number of images"
    return f"from about {from_on:,} images on" + ("" if from_on <= images else f", not with {images:,}")


def comparison(plans: Sequence[Forecast], own: Forecast, from_on: Sequence[int | None], work: Work) -> None:
    """Print machines side by side; this machine comes first."""
    rows = [_row(own, own, None)]
    for plan, first in zip(plans, from_on, strict=True):
        if not plan.measured:
            rows.append(_row(plan, own, first))
    title = (
        f"train {own.images:,} images, {work.features:,} features, {work.classes} classes, {own.rounds} rounds: "
        "this machine measured on samples, all others FORECAST from datasheets, never measured"
    )
    columns = ("machine", "time", "faster", "pays from", "fits", "device", "GB/s", "Wh", "cost", "what")
    tables.table(title, columns, rows)


def _row(plan: Forecast, own: Forecast, from_on: int | None) -> tuple[str, ...]:
    longest = max(plan.stages, key=lambda stage: stage.seconds)
    device = plan.footprint.device if plan.footprint.device_memory else None
    bandwidth, energy, price = plan.machine.bandwidth_gb_s, plan.energy, plan.price
    since = "-" if plan.measured else "never" if from_on is None else f"{from_on:,}"
    if not plan.footprint.fits:  # no seconds of a run that cannot be
        too_much = plan.footprint.host > plan.footprint.host_memory or device is None
        memory = f"{size(plan.footprint.host)} of host" if too_much else size(device or 0.0)
        return plan.machine.name, "-", "-", "-", "NO", memory, "-", "-", "-", "more memory than there is"
    return (
        plan.machine.name,
        duration(plan.seconds),
        f"{own.seconds / plan.seconds:.1f} x" if own.footprint.fits else "-",
        since,
        "yes" if plan.footprint.fits else "NO",
        "-" if device is None else size(device) + (", streams" if plan.footprint.streamed else ""),
        "-" if bandwidth is None else f"{bandwidth:,.0f}",
        "-" if energy is None else watt_hours(energy),
        "-" if price is None else money(price),
        f"{longest.stage} {longest.seconds / plan.seconds:.0%}: {longest.limit}",
    )


def duration(value: float) -> str:
    """Return a duration as a person writes it, from microseconds to days."""
    if value < 0.00095:
        return f"{value * 1e6:.0f} us"
    if value >= 3600.0:
        return f"{value / 3600.0:.1f} h"
    return tables.seconds(value)


def size(count: float) -> str:
    """Return bytes in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def money(value: float) -> str:
    """Return an amount of any currency with at least two digits that count."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def watt_hours(value: float) -> str:
    """Return an energy without an exponent, with at least two digits that count."""
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.2g}"
