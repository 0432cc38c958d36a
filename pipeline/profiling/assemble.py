"""From measured runs to the rows of a report: medians, rates, shares of limits, verdicts."""

from __future__ import annotations

import dataclasses
import time
from statistics import median
from typing import Any

from pipeline import spans
from pipeline.profiling.counts import counts
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Clock, Recorder, Recording, Row
from pipeline.profiling.report import Measuring, Stage, Total, label
from pipeline.profiling.runs import Run
from pipeline.profiling.verdict import Verdict, judge_all, overall
from pipeline.profiling.work import Work

TRIALS = 2000  # empty spans, to know what one costs
OPENING = ("start", "compile")  # stages of the first run that are told apart


def recordings(runs: list[Run]) -> list[Recording]:
    """Return what was recorded of runs that were listened to."""
    return [run.recording for run in runs if run.recording is not None]


def typical(found: list[Recording]) -> dict[str, Row]:
    """Return the median of each stage over recordings, in the order in which stages first began."""
    keys = list(dict.fromkeys(key for recording in found for key in recording.rows))
    return {key: _typical_row([recording.rows.get(key, Row()) for recording in found]) for key in keys}


def _typical_row(rows: list[Row]) -> Row:
    devices = [row.device for row in rows if row.device is not None]
    names = list(dict.fromkeys(name for row in rows for name in row.counts))
    widest = max(rows, key=lambda row: row.memory_peak - row.memory_begin if row.memory_begin else 0)
    return Row(
        wall=median(row.wall for row in rows),
        cpu=median(row.cpu for row in rows),
        device=median(devices) if devices else None,
        calls=round(median(row.calls for row in rows)),
        counts={name: median(row.counts.get(name, 0.0) for row in rows) for name in names},
        memory_begin=widest.memory_begin,
        memory_peak=widest.memory_peak,
    )


def stages(first: Run, repeats: list[Run], limits: Limits) -> list[Stage]:
    """Return one row per stage of the repeated runs; what the first run took more is told beside it."""
    found = recordings(repeats)
    rows = typical(found)
    work = repeats[-1].work
    needed = counts(work)
    wall = median(recording.wall for recording in found)
    opening = first.recording.rows if first.recording is not None else {}
    verdicts = judged(found, work, limits)
    result = []
    for key, row in rows.items():
        count, verdict = needed.get(key), verdicts[key]
        walls = [recording.rows.get(key, Row()).wall for recording in found]
        seconds = row.device if row.device else row.wall
        amount, operations = (count.bytes, count.operations) if count is not None else (0.0, 0.0)
        result.append(
            Stage(
                name=key,
                label=label(key, work.source),
                wall=row.wall,
                spread=(min(walls), max(walls)),
                share=row.wall / wall if wall > 0.0 else 0.0,
                cpu=row.cpu,
                cores=row.cores,
                cause=verdict.cause.name,
                verdict=verdict.words,
                calls=row.calls,
                device=row.device,
                bytes=amount or None,
                operations=operations or None,
                gb_per_s=amount / seconds / 1e9 if amount and seconds > 0.0 else None,
                gflop_per_s=operations / seconds / 1e9 if operations and seconds > 0.0 else None,
                limit=verdict.limit,
                share_of_limit=verdict.share_of_limit,
                to_device=row.counts.get("to the device", 0.0),
                to_host=row.counts.get("to the host", 0.0),
                first_call=max(0.0, opening[key].wall - row.wall) if key in opening else 0.0,
                memory_peak=row.memory_peak,
                memory_growth=max(0, row.memory_peak - row.memory_begin) if row.memory_begin else 0,
            )
        )
    return result


def judged(found: list[Recording], work: Work, limits: Limits) -> dict[str, Verdict]:
    """Return what holds each stage of the median run back."""
    return judge_all(typical(found), counts(work), limits, work.threads)


def total(first: Run, repeats: list[Run], limits: Limits, device_memory: int | None) -> Total:
    """Return the figures of the whole run."""
    found = recordings(repeats)
    walls = [recording.wall for recording in found]
    rows, work = typical(found), repeats[-1].work
    verdicts = judged(found, work, limits)
    scores = repeats[-1].trained.scores
    return Total(
        wall=median(walls),
        spread=(min(walls), max(walls)),
        first=first.seconds["all"],
        cpu=median(recording.cpu for recording in found),
        memory_peak=max(recording.memory_peak for recording in found),
        verdict=overall(rows, verdicts, median(walls), work.source),
        device_memory=device_memory,
        accuracy=scores.accuracy,
        log_loss=scores.log_loss,
        repeats=len(found),
    )


def first_calls(start: float, first: Run, stages_: list[Stage]) -> dict[str, float]:
    """Return the seconds spent once: starting Python and importing, compiling, and what else the first run took more.

    Parameters
    ----------
    start : seconds from the start of the process to that of the first run's command
    """
    opening = first.recording.rows if first.recording is not None else {}
    compiling = opening["compile"].wall if "compile" in opening else 0.0
    rest = sum(stage.first_call for stage in stages_ if stage.name not in OPENING)
    return {"import": start + opening.get("start", Row()).wall, "compile": compiling, "other": rest}


def measuring(heard: list[Run], unheard: list[Run], clock: Clock | None) -> Measuring:
    """Return what listening costs: of one span, measured on empty ones, and runs with and without."""
    found = recordings(heard)
    with Recorder(clock):
        begin = time.perf_counter()
        for _ in range(TRIALS):
            with spans.span("empty"):
                pass
        each = (time.perf_counter() - begin) / TRIALS
    count = round(median(recording.spans for recording in found))
    wall = median(recording.wall for recording in found)
    return Measuring(
        spans=count,
        seconds_per_span=each,
        share=count * each / wall if wall > 0.0 else 0.0,
        with_spans=median(recording.wall for recording in found),
        without_spans=median(run.seconds["all"] for run in unheard) if unheard else None,
    )


def described(work: Any) -> dict[str, Any]:
    """Return the fields of a Work as plain values, the number of features among them."""
    plain = {one.name: getattr(work, one.name) for one in dataclasses.fields(work) if one.name != "layout"}
    layout = work.layout
    return {
        **plain,
        "image": _by(layout.image_shape),
        "cell": _by(layout.pixels_per_cell),
        "block": _by(layout.cells_per_block),
        "orientations": layout.orientations,
        "n_features": layout.n_features,
    }


def _by(pair: tuple[int, int]) -> str:
    return f"{pair[0]} x {pair[1]}"
