"""Bytes and operations of boosting: see :mod:`pipeline.profiling.counts` for what counts."""

from __future__ import annotations

from dataclasses import replace

from pipeline.profiling import counts_fits
from pipeline.profiling.count import Count
from pipeline.profiling.work import Work

BUFFER = 1 << 22  # numbers of a block of rows that is beyond the cache, as in backends/cpu/wls_blocks.py
FEW_COLUMNS = (
    64  # columns of a product up to which its rows come in blocks that stay in cache, see backends/cpu/wls.py
)
LINE = {"cpu": 64, "reference": 64, "gpu": 32}  # bytes that come from memory together
# Passes over (n, J) arrays, over their masks (a byte each) and over (n,) arrays: boosting/loss.py and
# Partition.advance, expression by expression; backends/gpu/scores.py, kernel by kernel; backends/cpu/scores.py.
TARGETS_HOST, TARGETS_MASKS, TARGETS_ROWS = 38, 4, 6
ADVANCE_HOST, ADVANCE_ROWS = 21, 20
TARGETS_GPU, ADVANCE_GPU, ROWS_GPU = 3, 4, 8
RESPONSES_CPU, PASSES_CPU = 2, 3  # weights and responses out; scores and values in, scores out: in one pass
TARGETS_OPERATIONS, ADVANCE_OPERATIONS, ADVANCE_OPERATIONS_ROW = 11, 9, 6
SHARED = 3  # of those of the targets: exp(score - largest) and its sum, which the loss needs, too
CHOSEN_PASSES, CHOSEN_OPERATIONS = 34, 9  # over (p, J) sums: learners.Componentwise._chosen


def set_up(work: Work) -> Count:
    """Return the work before the first round: means and variances in two passes, in float64, and labels."""
    n, p, s = float(work.fit), work.inputs, work.number_bytes
    passes, operations, block = 2.0 * n * p * s, 7 * n * p, 0.0  # X twice
    if work.backend != "cpu":  # X, X - first; X, X - mean, its square in place: written and read
        passes, operations, block = n * p * (2 * s + 6 * 8), 6 * n * p, min(n * p, float(BUFFER))
    converted = n * p * (work.feature_bytes + s) if work.feature_bytes != s else 0.0
    keeps = n * work.classes * 2 * s + (n * p * s if converted else 0.0)
    to_device = n * s if work.backend == "gpu" else 0.0
    return Count(
        passes + converted, operations, keeps + 2 * 8 * block, to_device, kind="memory", number_bytes=8
    )


def rounds(work: Work) -> dict[str, Count]:
    """Return the parts of one round."""
    n, s = float(work.fit), work.number_bytes
    found = {}
    if work.learner in ("subspace", "random_features"):
        found["columns"] = columns(work, n)
    if work.learner == "componentwise":
        found["sums"], found["solve"] = _componentwise(work)
    else:
        found["sums"], found["solve"] = counts_fits.sums(work), counts_fits.solve(work)
        if work.backend == "reference":  # statsmodels does both in one
            found["solve"] = found.pop("sums") + found["solve"]
        if counts_fits.refined(work):
            found["refine"] = counts_fits.refine(work)
    found["update"] = targets(work) + _values(work, n) + advance(work, n)
    if work.watched:
        found["validation"] = elsewhere(work, float(work.watched)) + advance(work, float(work.watched))
    found = {name: replace(count, number_bytes=s) for name, count in found.items()}
    if "refine" in found:
        found["refine"] = replace(found["refine"], number_bytes=counts_fits.residual_bytes(work))
    return found


def columns(work: Work, n: float) -> Count:
    """Return the work of the columns of a round, (n, q): gathered, or cos((X - center) R + b)."""
    p, q, s = work.inputs, work.columns, work.number_bytes
    if work.learner == "subspace":
        read = lines_read(p, q, LINE[work.backend] // s) * LINE[work.backend]
        return Count(n * (read + q * s), n * q, n * q * s, kind="memory")
    passes = (
        3 * n * p + 2.0 * p * q + 3 * n * q
    )  # rows centred in a buffer beyond the cache; R; the result thrice
    buffer = BUFFER // 4 if work.backend != "gpu" else n * p
    held = (n * q + min(n * p, buffer) + p * q) * s
    return Count(passes * s, n * (p + 2.0 * p * q + 2 * q), held, kind="products")


def lines_read(p: int, q: int, per_line: int) -> float:
    """Return the lines of a row of p numbers that hold one of q random columns, on average.

    A line of k numbers is spared with probability C(p - k, q) / C(p, q); rows begin at the start of a line.
    """
    full, rest = divmod(p, per_line)

    def spared(k: int) -> float:
        chance = 1.0
        for i in range(k):  # the other way round: all k numbers of the line lie outside of the q drawn
            chance *= max(p - q - i, 0) / (p - i)
        return chance

    return full * (1.0 - spared(per_line)) + (1.0 - spared(rest) if rest else 0.0)


def _componentwise(work: Work) -> tuple[Count, Count]:
    n, p, f, s = float(work.fit), work.inputs, work.fits, work.number_bytes
    rows = (6 if work.backend != "gpu" else 2) * n * f
    first = Count((n * p + rows) * s, n * p * (2 + 6 * f), 3 * 8.0 * p * f, kind="products")
    return first, Count(8.0 * CHOSEN_PASSES * p * f, CHOSEN_OPERATIONS * p * f, 8.0 * 8 * p * f)


def targets(work: Work) -> Count:
    """Return the work of a round's weights and weighted responses, from the scores; on `cpu` beside :func:`advance`."""
    n, J, s = float(work.fit), work.classes, work.number_bytes
    if work.backend == "gpu":
        return Count(n * J * TARGETS_GPU * s + n * ROWS_GPU, TARGETS_OPERATIONS * n * J, kind="memory")
    if work.backend == "cpu":
        written = n * J * RESPONSES_CPU * s
        return Count(written, (TARGETS_OPERATIONS - SHARED) * n * J, written, kind="memory")
    moved = n * J * (TARGETS_HOST * s + TARGETS_MASKS) + TARGETS_ROWS * n * s
    return Count(moved, TARGETS_OPERATIONS * n * J, 8 * n * J * s, kind="memory")


def advance(work: Work, n: float) -> Count:
    """Return the work of moving the scores of n rows by a step's values, and of their log-loss."""
    J, s = work.classes, work.number_bytes
    operations = n * (ADVANCE_OPERATIONS * J + ADVANCE_OPERATIONS_ROW)
    if work.backend == "gpu":
        return Count(n * J * ADVANCE_GPU * s + n * (ROWS_GPU + 2 * s), operations, to_host=16, kind="memory")
    if work.backend == "cpu":
        return Count(n * (J * PASSES_CPU * s + 8 + s), operations, n * J * s, kind="memory")
    return Count(n * (ADVANCE_HOST * J + ADVANCE_ROWS) * s + 2 * s, operations, 6 * n * J * s, kind="memory")


def _values(work: Work, n: float) -> Count:
    """Return the work of the values of a step on rows whose columns are at hand."""
    if work.learner == "componentwise":
        return elsewhere(work, n)
    return product(work, n, work.columns, work.fits)


def product(work: Work, n: float, q: int, f: int) -> Count:
    """Return the work of (X - center) @ coef + intercept, X (n, q) and coef (q, f)."""
    s = work.number_bytes
    cached = work.backend != "gpu" and f <= FEW_COLUMNS
    passes = 1 if cached else 3  # else rows are centred in a buffer beyond the cache
    written = (
        1 if cached else 3 if work.backend != "gpu" else 5
    )  # then the intercept; on a GPU then put in place
    moved = (passes * n * q + written * n * f) * s
    return Count(moved, n * (q + 2.0 * q * f + f), n * f * s, kind="memory")


def elsewhere(work: Work, n: float) -> Count:
    """Return the work of a step on rows whose columns must be made first."""
    if work.learner in ("ridge", "full"):
        return product(work, n, work.columns, work.classes)
    few = replace(work, learner="subspace", columns=min(work.classes, work.inputs))
    used = work if work.learner != "componentwise" else few
    return replace(columns(used, n) + product(work, n, used.columns, work.classes), kind="memory")
