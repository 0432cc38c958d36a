"""Ranked advice: what to try, what it would gain, and whether that came true."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from pipeline import backends, config, datasets
from pipeline.errors import BackendError, ConfigError, PipelineError
from pipeline.processor import usable_cores
from pipeline.profiling import candidates_memory, held_out, subsets
from pipeline.profiling.candidates import Candidate, Measured, derived
from pipeline.profiling.changes import Tell, overridden, quiet, scratch
from pipeline.profiling.memory import release
from pipeline.profiling.report import Advice
from pipeline.profiling.runs import Run, Runner
from pipeline.profiling.trials import Predicted, Predictor
from pipeline.scale.memory import resident

log = logging.getLogger(__name__)

WORTH = 0.03  # share of the run below which a gain is not worth a word
ENOUGH = 5  # runs of the settings as they are
MORE, PATIENCE = 3, 30.0  # times as many pairs as asked for, within so many seconds
QUICK = 10.0  # seconds of a run that is measured again between any two trials
Gpu = Callable[[Measured], tuple[float, str] | None]  # seconds of the run on the GPU, and how that is known


def advise(
    runs: list[Run],
    runner: Runner,
    budget_seconds: float = 120.0,
    *,
    memory: float | None = None,
    forecast_gpu: Gpu | None = None,
    gpu_here: Callable[[], bool] | None = None,
    losses: Callable[[Run], list[float]] = held_out.losses,
    tell: Tell = quiet,
) -> list[Advice]:
    """Derive what could make a run faster, predict each gain, and rank.

    Parameters
    ----------
    runs : warm runs of the same settings; ``run_dir`` must exist, a folder is made in it and removed. The last gives up
        what it trained: its features would count as memory of every run that is tried
    runner : trains; called for short runs of those candidates whose stages leave room for a gain
    budget_seconds : after these no further candidate is tried, the least promising are left out
    memory : bytes that the run may use; None: what the machine has
    forecast_gpu : what the run would take on a GPU; without it there is no word about GPUs
    gpu_here : whether this machine has a GPU; None: it is asked
    losses : log-loss on the held-out images after each round of a run
    tell : told what is tried

    Returns
    -------
    list of Advice
        Gains of at least 3 % of the run, the largest first; gains are wall seconds of a warm run. Where memory is
        short, what to do about it stands first, whatever it costs in time: what makes the run fit before what does not.
    """
    run = _measured(runs, losses, memory)
    images = subsets.sample(getattr(runs[-1].trained, "images", None))
    runs[-1] = replace(runs[-1], trained=None)
    release()
    run = replace(run, base=resident())
    run, tried = _tried(run, [one.seconds for one in runs], images, runner, budget_seconds, tell)
    fresh = {one.override: one for one in derived(run)}  # the same, with the figures of all runs
    found: dict[str, Advice] = {}
    short: list[Advice] = []
    for candidate, predicted in tried:
        advice = _advice(fresh.get(candidate.override, candidate), run, predicted)
        if candidate.needed:
            short.append(advice)
            continue
        keys = " ".join(word.partition("=")[0] for word in candidate.override.split())
        if keys not in found or found[keys].predicted_gain < advice.predicted_gain:
            found[keys] = advice
    if forecast_gpu is not None and run.work.backend != "gpu" and (told := forecast_gpu(run)) is not None:
        found["backend.name"] = _on_gpu(run, *told, here=(gpu_here or _gpu_here)())
    worth = [one for one in found.values() if one.predicted_gain >= WORTH * run.seconds["all"]]
    worth.sort(key=lambda one: -one.predicted_gain)
    return _short_of_memory(run, short) + worth


def _tried(
    run: Measured,
    measured: list[Mapping[str, float]],
    images: datasets.Images | None,
    runner: Runner,
    budget: float,
    tell: Tell,
) -> tuple[Measured, list[tuple[Candidate, Predicted]]]:
    """Predict every candidate that can gain enough, the most promising first.

    Between them the settings are run again, so that a machine that becomes slower or faster meanwhile, or a library
    that is still warming up, counts on both sides. Returned are the run with the medians of all, and the predictions.
    """
    hopeful = [
        one for one in derived(run) if one.needed or one.bound(run.seconds) >= WORTH * run.seconds["all"]
    ]
    # last what is predicted from the run itself: by then its medians are known best
    hopeful.sort(key=lambda one: (not one.needed, one.method == "rounds", -one.bound(run.seconds)))
    begin, tried = perf_counter(), []
    with scratch(run.cfg) as folder:
        for number, candidate in enumerate(hopeful):
            if perf_counter() - begin > budget:
                left = ", ".join(one.override for one in hopeful[number:])
                log.info("not tried for want of time: %s", left)
                break
            tell(candidate.override)
            try:
                tried.append((candidate, Predictor(run, images, runner, Path(folder))(candidate)))
            except ConfigError as error:  # settings that do not go with it, such as a limit too low
                log.info("%s cannot be tried: %s", candidate.override, error)
                continue
            if len(measured) < ENOUGH or run.seconds["all"] < QUICK:
                # the latest count: a process gets faster over its first dozen runs, by a tenth where it was measured
                measured = [*measured, runner(replace(run.cfg, run_dir=folder)).seconds][-ENOUGH:]
                run = replace(run, seconds=_medians(measured))
    return run, tried


def _measured(
    runs: Sequence[Run], losses: Callable[[Run], list[float]], memory: float | None = None
) -> Measured:
    import psutil

    last = runs[-1]
    return Measured(
        last.settings,
        last.work,
        _medians([run.seconds for run in runs]),
        usable_cores(),
        losses(last),
        peak=0 if last.recording is None else last.recording.memory_peak,
        memory=memory or float(psutil.virtual_memory().total),
    )


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each stage over several runs."""
    stages = dict.fromkeys(stage for one in measured for stage in one)
    return {stage: median(one.get(stage, 0.0) for one in measured) for stage in stages}


def _advice(candidate: Candidate, run: Measured, predicted: Predicted) -> Advice:
    """Return the advice: stages that the candidate does not change take what they took."""
    gain = sum(
        run.seconds.get(stage, 0.0) - predicted.seconds.get(stage, 0.0)
        for stage in set(run.seconds) | set(predicted.seconds)
        if stage != "all" and candidate.concerns(stage)
    )
    return Advice(
        candidate.title,
        candidate.override,
        run.seconds["all"] - gain,
        gain,
        candidate.why,
        predicted.words,
        candidate.caveat,
        predicted_memory=None if candidate.memory is None else round(candidate.memory),
    )


def _gpu_here() -> bool:
    """Tell whether this machine has a GPU that can be used."""
    try:
        backends.choose("gpu")
    except BackendError:
        return False
    return True


def _on_gpu(run: Measured, seconds: float, words: str, here: bool) -> Advice:
    whole = run.seconds["all"]
    return Advice(
        "compute on a GPU"
        if here
        else "run it on another machine, one with a GPU: this one has none that can be used",
        "backend.name=gpu",
        seconds,
        whole - seconds,
        f"the run takes {whole:.2f} s on backend={run.work.backend}",
        words,
        "a forecast: nothing was run on a GPU"
        if here
        else "a forecast for that machine: it cannot be tried here",
    )


def _short_of_memory(run: Measured, needed: list[Advice]) -> list[Advice]:
    """Return what helps where memory is short, what mends it first.

    Beside `needed`, the pixels may be read from a packed set, which is mapped, not held. That costs no time, and comes
    first where it suffices.
    """
    if run.peak < candidates_memory.SHORT * run.memory or run.work.memory_limit:
        return needed
    whole = run.seconds["all"]
    packed = [
        replace(
            _advice(candidates_memory.packed(run, one), run, Predicted({}, "counted bytes")),
            predicted_seconds=whole,
            predicted_gain=0.0,
        )
        for one in derived(run)
        if one.method == "packed"
    ]
    suffices = candidates_memory.without_pixels(run) < candidates_memory.SHORT * run.memory
    return packed + needed if suffices else needed + packed


def verify(
    advice: Sequence[Advice], cfg: config.Train, runner: Runner, repeats: int = 3, tell: Tell = quiet
) -> list[Advice]:
    """Follow each piece of advice and measure what it gains.

    Parameters
    ----------
    cfg : settings that the advice is about; ``run_dir`` must exist, a folder is made in it and removed
    repeats : pairs of runs, without and with the change in turn, after one that warms up; medians count. Short runs are
        repeated up to three times as often: their seconds scatter by more than many a gain

    Returns
    -------
    list of Advice
        With ``measured_seconds`` and ``measured_gain``. What cannot be run here has none, and says why as its caveat.
    """
    return [_verified(one, cfg, runner, repeats, tell) for one in advice]


def _verified(advice: Advice, cfg: config.Train, runner: Runner, repeats: int, tell: Tell) -> Advice:
    tell(advice.override)
    with scratch(cfg) as folder:
        before = replace(cfg, run_dir=folder)
        after = overridden(before, advice.override)
        try:
            if after.data.name is config.DataName.packed and after.data.path != cfg.data.path:
                path = Path(folder) / Path(after.data.path or "").name
                datasets.pack(cfg.data, cfg.image, path)
                after = replace(after, data=replace(after.data, path=str(path)))
            pairs, accuracy, held = _pairs(before, after, runner, repeats)
        except PipelineError as error:
            return replace(advice, caveat=_also(advice.caveat, f"could not be tried here: {error}"))
    without, along = (median(column) for column in zip(*pairs, strict=True))
    gain = median(old - new for old, new in pairs)
    if accuracy is not None:
        said = f"tried: accuracy {accuracy[1]:.2%}, {accuracy[0]:.2%} without it"
        advice = replace(advice, caveat=_also(advice.caveat, said))
    log.info("%s: %.3f s without, %.3f s with", advice.override, without, along)
    memory = held if advice.predicted_memory is not None else None
    return replace(advice, measured_seconds=along, measured_gain=gain, measured_memory=memory)


def _pairs(
    before: config.Train, after: config.Train, runner: Runner, repeats: int
) -> tuple[list[tuple[float, float]], tuple[float, float] | None, int | None]:
    """Return seconds without and with the change; both accuracies, and bytes resident with it, if the runs tell."""
    runner(after)
    pairs: list[tuple[float, float]] = []
    accuracy, held = None, None
    begin = perf_counter()
    while len(pairs) < repeats or (len(pairs) < MORE * repeats and perf_counter() - begin < PATIENCE):
        old = _seconds(runner(before))
        run = runner(after)
        new = _seconds(run)
        if run.recording is not None:
            held = max(held or 0, run.recording.memory_peak)
        del run  # its features are not to count as memory of the next
        pairs.append((old[0], new[0]))
        if old[1] is not None and new[1] is not None:
            accuracy = (old[1], new[1])
    return pairs, accuracy, held


def _seconds(run: Run) -> tuple[float, float | None]:
    scores = getattr(run.trained, "scores", None)
    return run.seconds["all"], None if scores is None else float(scores.accuracy)


def _also(caveat: str | None, more: str) -> str:
    return f"{caveat}; {more}" if caveat else more
