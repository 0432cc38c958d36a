"""What holds back a stage that the processor does."""

from __future__ import annotations

from pipeline.profiling.cause import IDLE, NEAR, Cause, Share, Verdict, duration, near, precision, told
from pipeline.profiling.count import Count
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Row

# With half of the time serial (Amdahl), n cores are 1 / (1/2 + 1/(2 n)) cores busy: below that the serial part is the
# larger one.
SERIAL_SHARE = 0.5
# Times that all cores together reach what one does. Below it, others add less than half: a stage that keeps one core
# busy near the limit is held by the limit.
CORES_HELP = 1.5
FAR = 0.1  # share of every limit of one core below which something else than the work takes the time
SMALL_CALLS = (
    100  # calls of NumPy whose overhead one piece of the work may take: what a piece is made of, roundly
)


def on_host(row: Row, count: Count, limits: Limits, threads: int, found: Share | None) -> Verdict:
    """Return the verdict on a stage of the processor.

    Parameters
    ----------
    found : the limit that the stage came nearest to
    threads : that the backend may use
    """
    serial = row.cores < parallel(limits.cores)
    files = count.file_bytes / row.wall / limits.disk_read
    if row.cores < IDLE or (serial and files >= NEAR):
        return _waiting(row, count, files, found)
    if found is not None and _held(found, count, serial):
        return Verdict(found.cause, found.words, *told(found))
    if not serial:
        words = f"{row.cores:.1f} cores busy with arithmetic that is no matrix product"
        return Verdict(Cause.arithmetic, words + _at(found), *told(found))
    if overhead(row, count, limits):
        pieces = max(count.calls, row.calls)
        words = "one core runs Python code"
        if count.kind != "python" and pieces > 1:
            words += (
                f": {pieces} small steps of {duration(row.wall / pieces)}, far more than the work in them"
            )
        return Verdict(Cause.python, words + _at(found), *told(found))
    if limits.cores == 1:
        return Verdict(Cause.arithmetic, "the one core that there is is busy" + _at(found), *told(found))
    allowed = f" (backend.threads={threads})" if threads < limits.cores else ""
    words = f"{row.cores:.1f} of {limits.cores} cores at work{allowed}"
    return Verdict(Cause.one_core, words + _at(found), *told(found))


def _held(found: Share, count: Count, serial: bool) -> bool:
    """Tell whether a limit of the whole machine holds the stage; a serial one only if other cores hardly raise it."""
    return near(found, count) and (not serial or found.gain < CORES_HELP)


def _waiting(row: Row, count: Count, files: float, found: Share | None) -> Verdict:
    """Return the verdict on a stage in which the cores wait."""
    idle = f"no core at work for {max(0.0, 1.0 - row.cores):.0%} of the time"
    if count.kind == "files" or count.file_bytes:
        if files >= NEAR:
            idle = f"read at {files:.0%} of what the disk gives"
        return Verdict(Cause.files, f"waiting for files: {idle}", files or None, "reading files")
    return Verdict(Cause.waiting, f"{idle}: something outside of the program takes it", *told(found))


def parallel(cores: int) -> float:
    """Return how many of the cores are busy when half of the time is serial."""
    return 1.0 / (SERIAL_SHARE + (1.0 - SERIAL_SHARE) / cores) if cores > 1 else float("inf")


def overhead(row: Row, count: Count, limits: Limits) -> bool:
    """Tell whether Python and the fixed cost of calls take the time of a stage on one core.

    The work of one piece, at the limits of one core, would take less than the calls that it is made of, and the stage
    is far from those limits. What is Python by nature, or has nothing to count, is so without a question.
    """
    if count.kind == "python" or (count.kind == "files" and not count.bytes):
        return True
    if not count.bytes and not count.operations:
        return False  # nothing is known of it
    needed = max(count.bytes / limits.copy_one, count.operations / limits.product_one[precision(count)])
    pieces = max(count.calls, row.calls)
    return needed < FAR * row.wall and needed / pieces < SMALL_CALLS * limits.python_call


def _at(found: Share | None) -> str:
    return f"; {found.words}" if found is not None else ""
