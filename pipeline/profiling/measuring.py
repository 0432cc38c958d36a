"""Measuring this machine for ``plan``: training runs of the program itself, on few images and rounds.

One small run in a process of its own shows what every process pays once: Python, imports, compiled kernels, the
first call of everything.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline import config, processor
from pipeline.config import DataName
from pipeline.errors import OutputError, PipelineError
from pipeline.profiling import machines, samples
from pipeline.profiling.machines import Measured
from pipeline.profiling.probes import fitted, observed
from pipeline.profiling.runs import Run, Runner
from pipeline.profiling.settings import overrides

USUAL = 18_000  # bytes of pixels and features of an image of the default settings
FEW_SECONDS = 6.0  # a measuring run should not take much longer
TINY = 100  # images of the run in a process of its own
OF_A_CLASS = samples.FEWEST  # images at least, so that every class is on both sides of the split

Launch = Callable[[config.Train], tuple[float, int]]
LimitsOf = Callable[[Path], dict[str, Any]]


def this_machine(
    cfg: config.Train,
    machine: config.Machine,
    source: samples.Source,
    runner: Runner,
    limits: LimitsOf,
    say: Callable[[str], None],
    launch: Launch | None = None,
) -> Measured:
    """Return what these settings cost here: from the cache, or measured now and kept.

    Parameters
    ----------
    cfg : settings of ``train``
    machine : ``sample`` and ``refresh`` of it count
    runner : trains once in this process
    limits : measures this machine's limits, with a folder to write in
    say : told what is measured
    launch : trains in a process of its own; returns wall seconds and most bytes resident
    """
    key = machines.key_of(cfg, machine.sample, source)
    found = None if machine.refresh else machines.kept(key)
    if found is not None:
        say(f"this machine: measured on {found.created}, kept; machine.refresh=true measures again")
        return found
    say("measuring this machine with short training runs of these settings; the result is kept")
    with tempfile.TemporaryDirectory(prefix="hogboost-plan-") as name:
        found = measure(
            replace(cfg, run_dir=name), machine.sample, source, runner, limits, launch or launched
        )
    try:
        machines.keep(key, found)
    except OutputError as problem:  # minutes of measuring are not thrown away for want of a cache
        say(f"the measurement is not kept, the next plan measures again: {problem}")
    return found


def measure(
    cfg: config.Train, sample: int, source: samples.Source, runner: Runner, limits: LimitsOf, launch: Launch
) -> Measured:
    """Measure this machine; ``cfg.run_dir`` is a temporary folder."""
    root = Path(cfg.run_dir)
    small, large = _sizes(cfg, sample, source)
    tiny = _with(cfg, _part(cfg, _fewest(source), root / "tiny"), 1)
    runs = list(_runs(cfg, (small, large), runner, root))
    once, base = _once(tiny, runner, launch)
    observations = []
    for run in runs:
        images, rounds, seconds = observed(run)
        seconds["between stages"] = max(0.0, run.seconds.get("all", 0.0) - sum(seconds.values()))
        observations.append(type(observed(run))(images, rounds, seconds))
    last, rates = runs[-1].recording, limits(root)
    return Measured(
        models=fitted(observations),
        once=once,
        cores={} if last is None else {stage: row.cores for stage, row in last.rows.items()},
        base_memory=base,
        memory=machines.memory(),
        processor=processor.name(platform.machine()),
        usable_cores=processor.usable_cores(),
        clock_ghz=machines.clock((rates.get("product_one") or {}).get("float32")),
        classes=source.classes,
        source=source.kind,
        file_bytes_per_image=source.file_bytes / max(source.images, 1),
        images=tuple(sorted({run.work.images for run in runs})),
        rounds=tuple(sorted({run.work.rounds for run in runs})),
        limits=rates,
        created=time.strftime("%Y-%m-%d %H:%M"),
        components=max(runs, key=lambda run: run.work.images).work.components,
    )


def _sizes(cfg: config.Train, sample: int, source: samples.Source) -> tuple[int, int]:
    """Return how many images the small and the large measuring runs have."""
    from pipeline.profiling.work import describe

    work = describe(cfg, backend="cpu", threads=1, images=1000, classes=source.classes)
    each = work.pixels + work.features * work.feature_bytes
    large = max(TINY, min(sample, round(sample * USUAL / each)))
    if cfg.backend.name.name == "reference":
        large = min(large, 600)
    if source.kind != "synthetic":
        large = min(large, source.images)
    fewest = _fewest(source)
    return max(fewest, large // 4), max(2 * fewest, large)


def _fewest(source: samples.Source) -> int:
    return max(TINY, OF_A_CLASS * source.classes)


def _runs(cfg: config.Train, sizes: tuple[int, int], runner: Runner, root: Path) -> Iterator[Run]:
    """Yield warm runs of both sizes with few and with more rounds, each twice while that is quick."""
    first = _with(cfg, _part(cfg, sizes[0], root / "small"), 2)
    runner(first)  # compiles, imports, and reads the files once
    begun = time.perf_counter()
    run = runner(first)
    took = time.perf_counter() - begun
    yield run
    per_round = sum(s for stage, s in run.seconds.items() if stage.startswith("boost/")) / max(
        run.work.rounds, 1
    )
    more = max(4, min(40, int(FEW_SECONDS / 2 / max(per_round, 1e-3))))
    again = 2 if took < FEW_SECONDS / 4 else 1
    for _ in range(again):
        yield runner(_with(first, first.data, more))
    growth = sizes[1] / sizes[0]
    if growth <= 1.0 or cfg.data.name is DataName.digits:
        return
    if growth * took > 4 * FEW_SECONDS:  # slow settings: a shorter step
        sizes = (sizes[0], 2 * sizes[0])
    data = _part(cfg, sizes[1], root / "large")
    many = max(4, int(more / growth))
    for _ in range(again):
        yield runner(_with(cfg, data, 2))
        yield runner(_with(cfg, data, many))


def _part(cfg: config.Train, count: int, folder: Path) -> config.Data:
    folder.mkdir(parents=True, exist_ok=True)
    return samples.take(cfg.data, cfg.image, count, folder)


def _with(cfg: config.Train, data: config.Data, rounds: int) -> config.Train:
    return replace(cfg, data=data, classifier=replace(cfg.classifier, n_rounds=rounds))


def _once(tiny: config.Train, runner: Runner, launch: Launch) -> tuple[float, int]:
    """Return the seconds that a process pays once, and the most memory of a run of next to no images."""
    runner(tiny)
    warm = runner(tiny).seconds["all"]
    launch(tiny)  # fills the caches of kernels and files
    walls, peaks = zip(*(launch(tiny) for _ in range(3)), strict=True)
    return max(0.0, sorted(walls)[1] - warm), max(peaks)


def launched(cfg: config.Train) -> tuple[float, int]:
    """Run ``train`` in a process of its own; return its wall seconds and the most bytes it had resident.

    Raises
    ------
    PipelineError
        With what the process said, if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="hogboost-plan-") as name:
        folder = Path(name) / "run"
        command = [sys.executable, "-m", "pipeline", "train", *overrides(cfg), f"hydra.run.dir='{folder}'"]
        home = Path(__file__).resolve().parents[2]
        paths = [str(home), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        begun = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=os.getcwd()
        )
        wall = time.perf_counter() - begun
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise PipelineError(f"plan: the measuring run ended with status {done.returncode}: {last}")
        content = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return wall, content["peak_memory_bytes"] or 0
