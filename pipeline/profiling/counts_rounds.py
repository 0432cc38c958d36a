"""Bytes and operations of boosting: see :mod:`pipeline.profiling.counts` for what counts."""

from __future__ import annotations

import math
from dataclasses import replace

from pipeline.backends import triangle
from pipeline.profiling.count import Count
from pipeline.profiling.work import Work

CACHED = 1 << 18  # numbers of a block of rows that stays in cache, as in backends/cpu/wls.py
BUFFER = 1 << 22  # numbers of a block of rows that does not, likewise
NARROW, BLOCK, WIDE = 64, 128, 640  # columns of a block, see columns_of_a_block in backends/cpu/wls_grams.py
FEW = 192  # columns up to which blocks are narrow
SHARED_COLUMNS, HALF = (
    256,
    352,
)  # columns of rows up to which classes share products; of a block then, likewise
GRAMS = 1 << 25  # bytes of Gram matrices that are held at a time, as in backends/cpu/wls.py
TOGETHER = 12  # classes whose products are weighted together, as in backends/cpu/tiles.py
SMALL_SYSTEM = triangle.SQUARE  # unknowns up to which a system is small
FEW_COLUMNS = 64  # columns of a product up to which its rows come in blocks of CACHED numbers, likewise
PANELS, PANELLED = 4, 1024  # as in backends/gpu/blas.py
LINE = {"cpu": 64, "reference": 64, "gpu": 32}  # bytes that come from memory together
# Passes over (n, J) arrays, over their masks (a byte each) and over (n,) arrays: boosting/loss.py and
# Partition.advance, expression by expression; backends/gpu/scores.py, kernel by kernel; backends/cpu/scores.py.
TARGETS_HOST, TARGETS_MASKS, TARGETS_ROWS = 38, 4, 6
ADVANCE_HOST, ADVANCE_ROWS = 21, 20
TARGETS_GPU, ADVANCE_GPU, ROWS_GPU = 3, 4, 8
RESPONSES_CPU, PASSES_CPU = 2, 3  # weights and responses out; scores and values in, scores out: in one pass
TARGETS_OPERATIONS, ADVANCE_OPERATIONS, ADVANCE_OPERATIONS_ROW = 11, 9, 6
SHARED = 3  # of those of the targets: exp(score - largest) and its sum, which the loss needs, too
DELICATE = ("full", "random_features")  # learners whose fits are refined in float32, too
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
        found["sums"], found["solve"] = sums(work), solve(work)
        if work.backend == "reference":  # statsmodels does both in one
            found["solve"] = found.pop("sums") + found["solve"]
        if work.backend != "reference" and (s == 8 or work.learner in DELICATE or work.rough):
            found["refine"] = _refine(work)
    found["update"] = targets(work) + _values(work, n) + advance(work, n)
    if work.watched:
        found["validation"] = elsewhere(work, float(work.watched)) + advance(work, float(work.watched))
    return {name: replace(count, number_bytes=s) for name, count in found.items()}


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


def sums(work: Work) -> Count:
    """Return the work of (X - center)' [R W] and of the Gram matrix of each class."""
    n, q, f, s = float(work.fit), work.columns, work.fits, work.number_bytes
    products = n * q * (1 + 4 * f)
    rows = 6 * n * f  # R and W side by side
    if work.backend == "gpu":
        width = (1 + PANELS) / (2 * PANELS) if q >= PANELLED else 1.0
        passes = (
            1 + (1 + (PANELS * width if q >= PANELLED else 1)) * f
        )  # X once; scaled rows written, and read by panels
        moved = (3 * n * q + rows + passes * n * q + n * f) * s + q * q * f * (s * width + s + 16.0)
        operations = products + f * n * (2 * q + 2.0 * q * q * width)
        held = f * (n * q * s + q * q * (8.0 + s))
    else:
        together = q <= SMALL_SYSTEM and f > 1 and not one_by_one(work)
        blocks = math.ceil(q / _columns_of_a_block(work))
        chunks, pairs = (math.ceil(f / TOGETHER) if together else f), blocks * (blocks + 1) / 2
        if work.rough:  # two products of numbers in bfloat16 in the time of one
            operations = products + f * n * q * (q + 1) / 2
        elif together:
            operations = products + (chunks / 2 + f) * n * q * (q + 1)
        else:
            operations = products + f * n * (2 * q + q * (q + 1))
        moved = (n * q * blocks * chunks + n * f * (pairs + blocks)) * s
        if q > SMALL_SYSTEM or (f > 1 and one_by_one(work)):
            moved += (n * q + rows - n * f * blocks) * s  # the other sums in a pass of their own
        held = 8.0 * triangle.kept(q) * grams_at_once(work)
    return Count(moved, operations, held, kind="products", calls=f)


def one_by_one(work: Work) -> bool:
    """Tell whether each class's Gram matrix is added up for itself, see one_by_one in backends/cpu/wls_grams.py."""
    return work.learner in ("ridge", "full") and SHARED_COLUMNS < work.columns <= SMALL_SYSTEM


def _columns_of_a_block(work: Work) -> int:
    q = work.columns
    if one_by_one(work):
        return min(HALF, -(-q // 2))
    if q > SMALL_SYSTEM or work.fits == 1:
        return WIDE
    return NARROW if q <= FEW else BLOCK


def grams_at_once(work: Work) -> int:
    """Return how many Gram matrices `cpu` holds at a time, see classes_at_once in backends/cpu/wls.py."""
    q = work.columns
    if q > SMALL_SYSTEM:
        return 1
    most = GRAMS // (8 * max(q, 1) ** 2)
    if one_by_one(work):
        most = min(most, max(2, work.threads))
    return min(work.fits, most)


def solve(work: Work) -> Count:
    """Return the work of factorising and solving q equations for each class: Cholesky in float64.

    q^3/3 + q^2/2 + q/6 for the factor, 2 q^2 for its two triangles, q (q + 1) to take the means out and 2 q^2 to
    scale. ``full`` with no more rows than columns has no such factor: pivoted Cholesky, then a QR of its rank.
    """
    q, f = work.columns, work.fits
    factor = q**3 / 3 + q**2 / 2 + q / 6
    if work.learner == "full" and work.fit <= q:
        rank = work.fit
        factor += 4.0 * q * rank**2 - 4 / 3 * rank**3  # Householder QR, and forming Q
    operations = factor + 4.0 * q * q + q * (q + 1)
    # factorised in place (2), solved twice (half a matrix each), made scaled: of half a Gram matrix half a matrix, or
    # by NumPy in more passes (4, and the diagonal); all in cache if small
    made = 8.0 if work.backend == "cpu" else 8.0 * 5
    moved = q * q * (8.0 * 3 + made) if q * q > CACHED else 0.0
    held = 3 * 8.0 * q * q
    if work.backend == "cpu":  # in the place of the Gram matrix; in float64 beside it, if that is a triangle
        held = 8.0 * triangle.kept(q) if q > SMALL_SYSTEM and work.number_bytes == 8 else 0.0
    return Count(f * moved, f * operations, held, kind="products", calls=f)


def _refine(work: Work) -> Count:
    """Return the work of one step of refinement: residuals from X, their products with X, and a solution."""
    n, q, f = float(work.fit), work.columns, work.fits
    passes = (
        math.ceil(f / grams_at_once(work)) if work.backend == "cpu" else 1
    )  # for the classes of a request
    operations = n * q * passes + f * (n * (4 * q + 3) + 2.0 * q * q)
    moved = (n * q * passes + 2 * n * f) * work.number_bytes
    if work.backend == "gpu":  # rows and residuals in float64: written, and read by two products
        moved += 8 * (3 * n * q + 4 * n * f)
    return Count(moved, operations, 8 * q * f, kind="memory", calls=f)


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
