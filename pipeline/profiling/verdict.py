"""What holds each stage back, and what holds the whole run back, in words: from what was measured and counted.

The order of the questions matters. Compiling and copies between host and device explain themselves. Where cores
wait, the rest is no matter. A stage near a limit of the machine is held by that limit; only then does it matter
that cores are idle, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pipeline.profiling.cause import Cause, Verdict, nearest, seconds, size
from pipeline.profiling.count import Count
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Row
from pipeline.profiling.verdict_device import copied, on_device, times, too_much
from pipeline.profiling.verdict_host import on_host

__all__ = ["Cause", "Verdict", "judge", "judge_all", "overall"]

# Stages of the processor, whichever backend computes: the clock of an idle device runs on in them.
HOST = frozenset({"start", "read", "decode", "split", "boost", "save"})
SHORT = 0.01  # seconds; the memory and processor clocks tick at 1 to 20 ms, and nothing is won here anyway
COMPILING = 0.5  # share of the seconds that compiling took: without it the stage would take less than half
EXCESS_BYTES = 32 << 20  # libraries loaded late and the slack of allocators stay below this
EXCESS = 0.5  # of what the stage needs: from here the surplus is an array, not an allocator's slack
SURPLUS_SHARE = 0.25  # of the stage's seconds that moving the surplus takes, from which it is the cause


def judge(
    key: str,
    row: Row,
    count: Count | None,
    limits: Limits,
    threads: int,
    compiled: float = 0.0,
    begin: int | None = None,
) -> Verdict:
    """Return what holds one stage back.

    Parameters
    ----------
    key : the row's name
    row : what was measured, of all rounds together
    count : what the work needs; None if unknown
    limits : of this machine
    threads : threads that the backend may use; 0: one per core
    compiled : seconds of compiling inside the row's seconds; memory is then no sign of anything
    begin : bytes resident when the stage began, for stages inside others, whose rows do not know it
    """
    threads = threads or limits.cores
    device = row.device is not None and key not in HOST
    spent = seconds(row) if device else row.wall
    count = count or Count(kind="unknown")
    if key in ("copy to device", "copy back"):
        verdict = copied(row, count, limits, key == "copy to device")
        return verdict if verdict.excess or spent >= SHORT else _short(spent)
    if spent < SHORT:
        return _with_surplus(_short(spent), row, count, limits, 0, spent)
    if key == "compile" or compiled >= COMPILING * spent:
        inside = spent if key == "compile" else compiled
        return Verdict(Cause.compile, f"{inside:.2f} s of compiling, on the first run only")
    found = nearest(row, count, limits, device)
    verdict = on_device(row, count, limits, found) if device else on_host(row, count, limits, threads, found)
    start = 0 if compiled else row.memory_begin if begin is None else begin
    return _with_surplus(verdict, row, count, limits, start, spent)


def _short(spent: float) -> Verdict:
    return Verdict(Cause.small, f"{spent * 1e3:.1f} ms in all")


def _with_surplus(
    verdict: Verdict, row: Row, count: Count, limits: Limits, begin: int, spent: float
) -> Verdict:
    """Return the verdict with a word on memory, or bytes copied, that the work does not need; begin 0: unknown.

    Memory is the cause where moving the surplus (its pages zeroed, the original read, the copy written) takes a good
    part of the time; copies are, where something was copied that had not to be.
    """
    surplus = row.memory_peak - begin - count.allocates if begin else 0.0
    if count.allocates and surplus > EXCESS_BYTES and surplus > EXCESS * count.allocates:
        words = (
            f"{size(surplus)} of memory more than the work needs{_copy_of(surplus, count)}; {verdict.words}"
        )
        moving = 3.0 * surplus / limits.copy_one
        cause = Cause.memory if moving >= SURPLUS_SHARE * spent else verdict.cause
        return replace(verdict, cause=cause, words=words, excess=float(surplus))
    moved = row.counts.get("to the device", 0.0)
    if too_much(moved, count.to_device):
        words = f"{times(moved, count.to_device, True)}; {verdict.words}"
        return replace(verdict, cause=Cause.copies, words=words, excess=moved - count.to_device)
    return verdict


def _copy_of(surplus: float, count: Count) -> str:
    """Return what array the surplus may be."""
    ratio = surplus / count.allocates
    if count.number_bytes == 4 and 1.6 <= ratio <= 2.4:
        return ": as much as a copy of its result in float64"
    return ": as much as one more copy of its result" if 0.8 <= ratio <= 1.2 else ""


def judge_all(
    rows: Mapping[str, Row],
    counts: Mapping[str, Count],
    limits: Limits,
    threads: int,
    compiled: Mapping[str, float] | None = None,
) -> dict[str, Verdict]:
    """Return what holds each stage back; parameters as :func:`judge`, by stage.

    Stages inside others share the memory of the outer one: the inner stage with the highest peak answers for
    all of them.
    """
    found = {}
    given = compiled or {}
    for key, row in rows.items():
        count, begin = counts.get(key), None
        outer = key.split("/")[0]
        if outer != key and outer in rows and count is not None and key == _fullest(rows, outer):
            begin = rows[outer].memory_begin
            needed = sum(counts[one].allocates for one in counts if one.split("/")[0] == outer)
            count = replace(count, allocates=needed)
        found[key] = judge(key, row, count, limits, threads, given.get(key, 0.0), begin)
    return found


def _fullest(rows: Mapping[str, Row], outer: str) -> str:
    inner = [key for key in rows if key.startswith(f"{outer}/")]
    return max(inner, key=lambda key: rows[key].memory_peak)


NAMES = {
    "start": "starting up",
    "read": "reading the images",
    "decode": "decoding the images",
    "split": "splitting the images",
    "gather": "gathering the images",
    "preprocess": "preprocessing",
    "copy to device": "copying to the GPU",
    "hog": "the HoG features",
    "write": "writing the cell histograms",
    "expand": "expanding the cell histograms",
    "reduce": "the principal components",
    "copy back": "copying back from the GPU",
    "boost": "the boosting loop itself",
    "boost/set-up": "preparing the boosting",
    "boost/columns": "the columns of each round",
    "boost/sums": "the sums of each round",
    "boost/solve": "the equations of each round",
    "boost/refine": "the refinement of each round",
    "boost/update": "updating the scores in each round",
    "boost/validation": "watching the validation images",
    "evaluate": "evaluating",
    "save": "saving the results",
    "compile": "compiling",
}
MADE = {"synthetic": "making the images", "digits": "unpacking the digits"}  # "read" where there are no files
MEANS = {
    Cause.files: "A faster disk or a packed set would help, a faster processor would not",
    Cause.python: "It is the overhead of many small steps: more cores would not help, fewer or larger steps would",
    Cause.one_core: "One core works while the others wait: a faster core would help, more cores would not",
    Cause.memory: "Numbers cannot be fetched faster: fewer or smaller ones would help, faster arithmetic would not",
    Cause.arithmetic: "The processor computes all the time: more cores, a GPU or less work would help",
    Cause.copies: "Fewer bytes between processor and GPU, or a faster link, would help",
    Cause.launches: "The GPU's tasks are so small that starting them takes longer than doing them",
    Cause.compile: "It happens on the first run only: the next one is without it",
    Cause.waiting: "Something else than this program takes that time, such as other programs on this machine",
    Cause.small: "Every stage is short: there is little left to gain",
}


def overall(rows: Mapping[str, Row], verdicts: Mapping[str, Verdict], total: float, source: str = "") -> str:
    """Return the one thing that holds the run back: the cause that takes most of the time, and where.

    Parameters
    ----------
    rows : of the recording
    verdicts : of the same stages
    total : wall seconds of the run
    source : kind of data
    """
    time = {
        key: (rows[key].device or 0.0) if verdict.behind else seconds(rows[key])
        for key, verdict in verdicts.items()
    }
    if not time or total <= 0.0:
        return "Nothing was measured."
    causes: dict[Cause, float] = {}
    for key, verdict in verdicts.items():
        causes[verdict.cause] = causes.get(verdict.cause, 0.0) + time[key]
    cause = max(causes, key=lambda one: causes[one])
    keys = sorted((key for key in verdicts if verdicts[key].cause is cause), key=lambda key: -time[key])
    names = {**NAMES, "read": MADE.get(source, NAMES["read"])}
    named = names.get(keys[0], keys[0])
    if len(keys) > 1 and time[keys[1]] > 0.5 * time[keys[0]]:
        named += f" and {names.get(keys[1], keys[1])}"
    share = min(1.0, causes[cause] / max(total, sum(time.values())))
    most = "most of it for" if len(keys) > 1 else "for"
    return f"{cause.value.capitalize()}: {share:.0%} of the time, {most} {named}. {MEANS[cause]}."
