"""``profile``: the train command under measurement: where the time goes, why, and what would shorten it."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

from pipeline import backends, config
from pipeline.commands import profile_checks, steps
from pipeline.commands.doctor import machine_facts
from pipeline.commands.train import train
from pipeline.profiling import (
    advice,
    assemble,
    candidates,
    compare,
    limits,
    memory,
    outlook,
    stacks,
    sweeps,
    trace,
    work,
)
from pipeline.profiling.record import Recorder
from pipeline.profiling.report import Machine, Report
from pipeline.profiling.runs import Run
from pipeline.reporting import profile_page, profile_tables, tables
from pipeline.reporting.progress import silent
from pipeline.reporting.stages import Stages
from pipeline.software import software

log = logging.getLogger(__name__)

DROPPED = (
    "backend=",
    "repeats=",
    "sweep=",
    "compare=",
    "advice=",
    "verify_advice=",
    "stacks=",
    "memory=",
    "gpu=",
    "budget=",
    "scale",
)  # under a profiler
LONG = 30.0  # seconds of a run above which it is not also measured without spans


def measured(cfg: config.Train, listen: bool = True) -> Run:
    """Train once in this process, quietly; see :data:`pipeline.profiling.runs.Runner`.

    Parameters
    ----------
    cfg : settings of ``train``; the folder ``run_dir`` must exist, and its model is overwritten
    listen : whether to record; if not, only the stages of ``train`` itself are known
    """
    name = backends.choose(
        cfg.backend.name.name,
        cfg.backend.device,
        lambda line: None,
        lambda backend: backend.preprocess.require(cfg.preprocess),
    )
    backend = backends.get(name)
    stages = Stages()
    memory.release()
    with backend.threads(cfg.backend.threads) as threads, silent():
        if listen:
            with Recorder(backend.clock) as recorder:
                trained = train(cfg, stages)
            recording = recorder.recording
            assert recording is not None
            seconds = {key: row.wall for key, row in recording.rows.items()}
            seconds["all"] = recording.wall
        else:
            begin = time.perf_counter()
            trained, recording = train(cfg, stages), None
            seconds = {**stages.seconds, "all": time.perf_counter() - begin}
    return Run(cfg, seconds, recording, work.of_trained(cfg, trained, threads), trained)


def run(cfg: config.Profile, stages: Stages | None = None) -> float:
    """Measure, explain, and write profile.html, profile.json and trace.json.

    Parameters
    ----------
    cfg : config.Profile
        ``run_dir`` must exist; everything is written there, the model of the measured runs in its folder ``train``.
    stages : Stages, optional
        Knows the start-up time.

    Returns
    -------
    float
        Seconds of a run, the median: what a sweep compares.
    """
    folder = Path(cfg.run_dir) / "train"
    there = folder.exists()
    try:
        return _run(cfg, stages or Stages())
    except BaseException:  # interrupted, too: half a trial is of no use to anybody
        if not there:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _run(cfg: config.Profile, stages: Stages) -> float:
    start = _since_start() if "start" in stages.seconds else 0.0  # later jobs of a sweep start nothing
    name = steps.choose_backend(cfg.backend, cfg.preprocess)
    profile_checks.check(cfg, name)
    settings = _settings_of_train(cfg)
    with backends.get(name).threads(cfg.backend.threads) as threads:
        _tell("measuring this machine")
        found = limits.measure(name, Path(cfg.run_dir), threads)
    first, heard, unheard = _repeat(cfg, settings, name)
    report = _report(cfg, stages.typed, found, start, (first, heard, unheard))
    if cfg.compare:
        report = dataclasses.replace(
            report,
            compare=compare.compare(settings, cfg.compare, measured, cfg.budget, _tell),
        )
    if cfg.sweep:
        shapes = [sweeps.sweep(one, settings, measured, cfg.budget, _tell) for one in cfg.sweep]
        report = dataclasses.replace(report, sweeps=shapes)
    if cfg.stacks:
        _tell("one run with Python's stacks sampled")
        with stacks.sampled(Path(cfg.run_dir) / "stacks.html"):
            measured(settings, listen=False)
    if cfg.advice or cfg.verify_advice:
        report = _advised(cfg, settings, heard, report)
    _write(cfg, report, heard)
    profile_tables.show(report)
    tables.facts(
        "Written",
        [
            ("page", str(Path(cfg.run_dir) / "profile.html")),
            ("numbers", str(Path(cfg.run_dir) / "profile.json")),
            ("trace", f"{Path(cfg.run_dir) / 'trace.json'} (open it at ui.perfetto.dev or speedscope.app)"),
        ],
    )
    return report.total.wall


def _tell(what: str) -> None:
    log.info("%s", what)
    tables.say(f"  {what} ...")


def _since_start() -> float:
    """Return the seconds since the process began: the interpreter's start is among them."""
    import psutil

    return max(0.0, time.time() - psutil.Process().create_time())


def _settings_of_train(cfg: config.Profile) -> config.Train:
    """Return the settings of the measured runs, which write to a folder of their own."""
    folder = Path(cfg.run_dir) / "train"
    folder.mkdir(exist_ok=True)
    names = [one.name for one in dataclasses.fields(config.Train)]
    return config.Train(**{**{name: getattr(cfg, name) for name in names}, "run_dir": str(folder)})


def _repeat(cfg: config.Profile, settings: config.Train, name: str) -> tuple[Run, list[Run], list[Run]]:
    """Return the first run, the repeats that were listened to and those that were not, which take turns."""
    clock = backends.get(name).clock
    _tell("first run: compiles, loads, fills caches")
    first = _light(measured(settings))
    _tell(f"{cfg.repeats} more runs, some {tables.seconds(first.seconds['all'])} each")
    heard: list[Run] = []
    unheard: list[Run] = []
    if clock is not None:
        clock.start_profiler()
    for _ in range(cfg.repeats):
        heard = [_light(one) for one in heard]  # before the next: one run's features in memory at a time
        heard.append(measured(settings))
        if first.seconds["all"] < LONG:
            unheard.append(_light(measured(settings, listen=False)))
    if clock is not None:
        clock.stop_profiler()
    return first, heard, unheard


def _light(run_: Run) -> Run:
    """Return a run without what it trained: the features of seven runs would be counted as the memory of one."""
    return dataclasses.replace(run_, trained=None)


def _report(
    cfg: config.Profile,
    typed: tuple[str, ...],
    found: limits.Limits,
    start: float,
    runs: tuple[Run, list[Run], list[Run]],
) -> Report:
    first, heard, unheard = runs
    clock = backends.get(heard[-1].work.backend).clock
    rows = assemble.stages(first, heard, found)
    return Report(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=list(typed),
        total=assemble.total(first, heard, found, clock.memory() if clock is not None else None),
        stages=rows,
        machine=Machine(dict(machine_facts(cfg.backend)), found.as_dict()),
        software=software(),
        settings=_plain_settings(cfg),
        work=assemble.described(heard[-1].work),
        first_calls=assemble.first_calls(start, first, rows),
        measuring=assemble.measuring(heard, unheard, clock),
        commands=_profilers(typed),
    )


def _plain_settings(cfg: config.Profile) -> dict[str, Any]:
    """Return the settings as plain values; enumerations become their names in the report."""
    return dataclasses.asdict(cfg)


def _advised(cfg: config.Profile, settings: config.Train, heard: list[Run], report: Report) -> Report:
    """Return the report with advice, tried if that is asked for, and a word on a GPU, all from the same seconds."""
    words: list[str] = []

    def on_gpu(run_: candidates.Measured) -> tuple[float, str] | None:
        if run_.work.backend == "gpu" or run_.work.memory_limit:  # out of core is the processor's
            return None
        told = outlook.outlook(cfg, run_.work, run_.seconds, config.machine(cfg.gpu, "gpu"))
        words.append(told.words)
        return (told.seconds, told.words) if told.pays else None

    allowed = None if cfg.memory is None else config.size_in_bytes(cfg.memory)
    found = advice.advise(heard, measured, cfg.budget, memory=allowed, forecast_gpu=on_gpu, tell=_tell)
    if cfg.verify_advice:
        found = advice.verify(found, settings, measured, tell=_tell)
    return dataclasses.replace(report, gpu=words[0] if words else None, advice=found)


def _profilers(typed: tuple[str, ...]) -> dict[str, str]:
    """Return the command lines that show the same run in NVIDIA's profilers."""
    own = [word for word in typed if not word.startswith(DROPPED)]
    run_ = shlex.join(
        ["python", "-m", "pipeline", "profile", *own, "backend=gpu", "repeats=1", "advice=false"]
    )
    return {
        "nsys": "nsys profile --trace=cuda,nvtx,osrt --capture-range=cudaProfilerApi --capture-range-end=stop "
        f"-o hogboost {run_}",
        "ncu": f"ncu --profile-from-start off --nvtx --set full --launch-count 50 -o hogboost {run_}",
    }


def _write(cfg: config.Profile, report: Report, heard: list[Run]) -> None:
    folder = Path(cfg.run_dir)
    report.write(folder / "profile.json")
    recording = heard[-1].recording
    assert recording is not None
    trace.write(recording, folder / "trace.json")
    profile_page.write(report, folder)
