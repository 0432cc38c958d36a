"""``benchmark``: ways to do the same work, timed against each other on this machine."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import backends, config
from pipeline.benchmarks import measure, registry, results
from pipeline.errors import BackendError
from pipeline.files import atomic
from pipeline.reporting import benchmark_tables, tables
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from pipeline.software import software

log = logging.getLogger(__name__)

FORMAT = 2
MIN_SECONDS = 1.0  # of a suite, however many share the time


def run(cfg: config.Benchmark, stages: Stages | None = None) -> None:
    """Measure, show, and write benchmark.json and benchmark.png.

    Parameters
    ----------
    cfg : config.Benchmark
        ``run_dir`` must exist; the files go there.
    stages : Stages, optional
        Knows the start-up time.

    Raises
    ------
    ConfigError
        If a suite is unknown, before anything is measured.
    BackendError
        If a row gave a wrong result or failed, after everything was shown and written.
    """
    stages = stages or Stages()
    names = registry.chosen(cfg.suite)
    found: list[results.SuiteResult] = []
    begin = time.perf_counter()
    with backends.get("cpu").threads(cfg.threads) as threads:
        setup = registry.Setup(cfg.size.name, threads, cfg.device, cfg.seed, _free_memory())
        for number, name in enumerate(names):
            seconds = _seconds(cfg.seconds, names[number:], time.perf_counter() - begin)
            with stages(name), progress(name, "steps") as tell:
                found.append(measure.run(name, setup, cfg.repeats, seconds, tell))
            benchmark_tables.show(found[-1])
    _write(cfg, threads, found)
    benchmark_tables.legend(found)
    written = [("numbers", "benchmark.json")]
    if cfg.plots:
        from pipeline.reporting import plots

        plots.benchmark_bars(found, Path(cfg.run_dir) / "benchmark.png")
        written.append(("picture", "benchmark.png"))
    paths = [(what, str(Path(cfg.run_dir) / name)) for what, name in written]
    tables.facts("Written", [*paths, ("time", tables.stage_line(stages.seconds))])
    _complain(found)


def _free_memory() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _seconds(seconds: float, names: Sequence[str], passed: float) -> float:
    """Return the seconds for the first of the suites `names` that are left: its share of what all suites may take.

    What is left of `seconds` after `passed` is shared out by the suites that are left, so that one that took longer,
    on a slow or busy machine, leaves fewer rounds to the others. None gets more than its share of the whole.
    """
    shares = [registry.get(name).share for name in names]
    left = max(seconds - passed, 0.0) * shares[0] / sum(shares)
    return max(MIN_SECONDS, min(left, seconds * shares[0]))


def _write(cfg: config.Benchmark, threads: int, found: list[results.SuiteResult]) -> None:
    report = {
        "format": FORMAT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": {**dataclasses.asdict(cfg), "size": cfg.size.name},
        "threads": threads,
        "software": software(),
        "suites": [
            {**_plain(suite), "rows": [{**_plain(row), "median": _number(row.median)} for row in suite.rows]}
            for suite in found
        ],
    }
    with atomic(Path(cfg.run_dir) / "benchmark.json") as stream:
        json.dump(report, stream, indent=1, allow_nan=False)
        stream.write("\n")


def _plain(result: Any) -> dict[str, Any]:
    return {key: _number(value) for key, value in dataclasses.asdict(result).items()}


def _number(value: Any) -> Any:
    """Return a number as JSON can hold it: an infinite error or NaN becomes a word."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _complain(found: list[results.SuiteResult]) -> None:
    bad = [
        f"{suite.name}: {row.name}"
        for suite in found
        for row in suite.rows
        if row.status in ("wrong", "failed")
    ]
    if bad:
        raise BackendError(
            f"{len(bad)} of the rows gave a wrong result or failed, and were not timed: {'; '.join(bad)}. "
            "The table says why; the packages they use do not work as they should on this machine"
        )
