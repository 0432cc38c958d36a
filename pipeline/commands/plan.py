"""``plan``: what a training run would cost on a machine: time, memory, money, and what binds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import backends, config
from pipeline.commands import output, steps
from pipeline.commands.profile import measured as measured_run
from pipeline.config import MachineKind
from pipeline.errors import ConfigError
from pipeline.profiling import limits, machines, measuring, samples
from pipeline.profiling.candidates_memory import would_fit
from pipeline.profiling.cost import break_even, forecast, largest
from pipeline.profiling.counts import counts
from pipeline.profiling.forecast import Forecast
from pipeline.profiling.machines import Measured
from pipeline.profiling.work import Work, describe
from pipeline.reporting import plan_tables, tables
from pipeline.reporting.stages import Stages

WorkAt = Callable[[int], Work]


def run(cfg: config.Plan, stages: Stages | None = None) -> None:
    """Tell what ``train`` with these settings would cost, and keep it in plan.json of the run folder.

    Raises
    ------
    ConfigError
        If a machine lacks a field, or the settings do not fit each other.
    """
    wanted = [_priced(config.machine(name), cfg.prices.get(name)) for name in cfg.machines] or [cfg.machine]
    for machine in wanted:
        machines.require(machine)
    measured, work_at, images = known(cfg, measured_run)
    here = _here(cfg)
    tf32 = cfg.classifier.gram_precision == "tf32"
    at = partial(_at, measured=measured, work_at=work_at, tf32=tf32)
    own = at(here, images)
    plans = [own if machine.kind is MachineKind.this else at(machine, images) for machine in wanted]
    from_on = [_pays(plan, here, at) for plan in plans]
    ways = [_ways(plan, at, measured, work_at(images)) for plan in plans]
    work = work_at(images)
    if cfg.machines:
        plan_tables.comparison(plans, own, from_on, work)
        for plan, way in zip(plans, ways, strict=True):
            if not plan.footprint.fits:
                tables.say(f"  {plan.machine.name}: {plan_tables.fits(plan)}; {way}")
    else:
        plan_tables.one(plans[0], own, from_on[0], work, measured, ways[0])
    content = {
        "work": {k: v for k, v in dataclasses.asdict(work).items() if k != "layout"},
        "measured": measured.as_dict(),
        "plans": [_plain(*one) for one in zip(plans, from_on, ways, strict=True)],
    }
    output.write_json(Path(cfg.run_dir) / "plan.json", content)


def known(cfg: config.Plan, runner: Any) -> tuple[Measured, WorkAt, int]:
    """Return this machine as measured, the work of any number of images, and the number asked for."""
    settings = train_settings(cfg)
    steps.check_layout(settings.hog, settings.image)
    source = samples.look(settings.data, settings.image)
    images = cfg.images or source.images
    if images < 2 * source.classes:
        named = "images" if cfg.images is not None or source.kind != "synthetic" else "data.n"
        raise ConfigError(
            f"{named}={images}: too few images for {source.classes} classes; give at least two a class"
        )
    name = steps.choose_backend(settings.backend, settings.preprocess)
    with backends.get(name).threads(settings.backend.threads) as threads:
        found = measuring.this_machine(
            settings,
            cfg.machine,
            source,
            runner,
            lambda folder: _limits(name, folder, threads),
            lambda line: tables.say(f"  {line}"),
        )

    # A share of the variance says only after a fit how many components it takes: about as many as on samples.
    components = None if settings.reduce.components else found.components

    def work_at(n: int) -> Work:
        size = round(found.file_bytes_per_image * n)
        files = n if source.kind == "folder" else 1 if source.kind == "packed" else 0
        return describe(
            settings,
            backend=name,
            threads=threads,
            images=n,
            classes=source.classes,
            files=(files, size),
            source=source.kind,
            components=components,
        )

    return found, work_at, images


def _limits(name: str, folder: Path, threads: int) -> dict[str, Any]:
    """Return what this machine does at best, and how much memory its device has free."""
    found = limits.measure(name, folder, threads, "TMPDIR").as_dict()  # a temporary folder
    if name == "gpu":
        from pipeline.backends.gpu import memory

        found["device_memory"] = memory.free_bytes()
    return found


def train_settings(cfg: config.Plan) -> config.Train:
    """Return the settings of the run that is planned; a GPU of a datasheet leaves the processor to be measured."""
    if cfg.scale.name is config.ScaleName.dask:
        raise ConfigError(
            "plan knows one machine at a time, not the network between several; use scale=local or scale=outofcore "
            "(docs/scale.md has the model of a cluster)"
        )
    if cfg.split.folds:
        raise ConfigError(
            "split.folds is for evaluate; plan is about train: leave split=folds and split.folds= out"
        )
    names = [one.name for one in dataclasses.fields(config.Train)]
    settings = config.Train(**{name: getattr(cfg, name) for name in names})
    elsewhere = cfg.machines or cfg.machine.kind is not MachineKind.this
    if elsewhere and settings.backend.name is not config.BackendName.reference:
        settings.backend = dataclasses.replace(settings.backend, name=config.BackendName.cpu)
    settings.scale = dataclasses.replace(settings.scale, store=None)  # measuring runs keep their chunks apart
    return settings


def _priced(machine: config.Machine, price: float | None) -> config.Machine:
    return machine if price is None else dataclasses.replace(machine, price_per_hour=price)


def _here(cfg: config.Plan) -> config.Machine:
    """Return this machine's entry; its memory may be said to be another."""
    own = cfg.machine if cfg.machine.kind is MachineKind.this else config.Machine()
    price = cfg.prices.get("this", own.price_per_hour)
    return config.Machine(name="this machine", price_per_hour=price, memory_gb=own.memory_gb)


def _at(machine: config.Machine, images: int, *, measured: Measured, work_at: WorkAt, tf32: bool) -> Forecast:
    return forecast(machine, measured, work_at(images), counts, tf32)


def _pays(plan: Forecast, here: config.Machine, at: Callable[[config.Machine, int], Forecast]) -> int | None:
    """Return the number of images from which on a machine is faster than this one; None also where nothing fits."""
    if plan.machine.kind is MachineKind.this or not plan.footprint.fits:
        return None
    return break_even(lambda n: at(plan.machine, n).seconds, lambda n: at(here, n).seconds)


def _ways(
    plan: Forecast, at: Callable[[config.Machine, int], Forecast], measured: Measured, work: Work
) -> str:
    """Return what would make a run fit that does not; empty if it does."""
    if plan.footprint.fits:
        return ""
    found = []
    if plan.machine.kind is not MachineKind.gpu and not work.memory_limit:
        way = would_fit(work, measured.base_memory, plan.footprint.host_memory)
        if way is not None:
            found.append(f"{way[0]}, which needs {way[1].disk / 1e9:.1f} GB of disk")
    most = largest(lambda n: at(plan.machine, n).footprint.fits, plan.images)
    if most is not None:
        found.append(f"at most about {most:,} images with these settings")
    return "; or ".join([*found, "smaller features, as hog=coarse"])


def _plain(plan: Forecast, from_on: int | None, way: str) -> dict[str, Any]:
    """Return a plan for plan.json; one that does not fit has no seconds, and says what would."""
    fits = plan.footprint.fits
    machine = {**dataclasses.asdict(plan.machine), "kind": plan.machine.kind.name}
    return {
        "machine": machine,
        "label": "measured on samples" if plan.measured else "forecast, never measured",
        "seconds": plan.seconds if fits else None,
        "stages": [dataclasses.asdict(stage) for stage in plan.stages] if fits else [],
        "memory": {**dataclasses.asdict(plan.footprint), "fits": fits, "would_fit": way or None},
        "price": plan.price if fits else None,
        "watt_hours": plan.energy if fits else None,
        "faster_than_this_machine_from_images": from_on,
        "assumptions": list(plan.assumptions),
    }
