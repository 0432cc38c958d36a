"""Bytes and operations of the regressions of a round: their sums, their systems and the refinement of their fits."""

from __future__ import annotations

import math

from pipeline.backends import triangle
from pipeline.profiling.count import Count
from pipeline.profiling.work import Work

CACHED = 1 << 18  # numbers of a block of rows that stays in cache, as in backends/cpu/wls.py
NARROW, BLOCK, WIDE = 64, 128, 640  # columns of a block, see columns_of_a_block in backends/cpu/wls_grams.py
FEW = 192  # columns up to which blocks are narrow
SHARED_COLUMNS, HALF = (
    256,
    352,
)  # columns of rows up to which classes share products; of a block then, likewise
GRAMS = 1 << 25  # bytes of Gram matrices that are held at a time, as in backends/cpu/wls.py
SMALL_SYSTEM = triangle.SQUARE  # unknowns up to which a system is small
SIDE_BY_SIDE = (
    256  # unknowns up to which those of all classes are solved at once, see backends/cpu/wls_systems.py
)
PANELS, PANELLED = 4, 1024  # as in backends/gpu/blas.py
DELICATE = ("full", "random_features")  # learners whose fits are refined in float32, too
# Steps of refinement of fits that begin with rough Gram matrices (backends/cpu/wls_rough.py): a first one, and one that
# shows how much of the error a step leaves; of delicate fits, which go on to more digits, four on average.
STEPS, DELICATE_STEPS = 2, 4
ROUNDED_ONCE = (
    256  # columns up to which numbers are rounded once for all classes, see backends/cpu/bfloat_grams.py
)
NUMBERS = 1 << 22  # bytes of these, likewise


def sums(work: Work) -> Count:
    """Return the work of (X - center)' [R W] and of the Gram matrix of each class."""
    n, q, f, s = float(work.fit), work.columns, work.fits, work.number_bytes
    if work.rough:
        return _rough_sums(work)
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
        together = q <= SMALL_SYSTEM and f > 1 and work.together > 1 and not one_by_one(work)
        blocks = math.ceil(q / _columns_of_a_block(work))
        chunks, pairs = (math.ceil(f / work.together) if together else f), blocks * (blocks + 1) / 2
        if together:
            operations = products + (chunks / 2 + f) * n * q * (q + 1)
        else:
            operations = products + f * n * (2 * q + q * (q + 1))
        moved = (n * q * blocks * chunks + n * f * (pairs + blocks)) * s
        if q > SMALL_SYSTEM or (f > 1 and one_by_one(work)):
            moved += (n * q + rows - n * f * blocks) * s  # the other sums in a pass of their own
        held = 8.0 * triangle.kept(q) * grams_at_once(work)
    return Count(moved, operations, held, kind="products", calls=f)


def _rough_sums(work: Work) -> Count:
    """Return the work of sums whose Gram matrices are of numbers in bfloat16, of columns that are centred.

    The other sums are one pass over the rows. For the Gram matrices as many as stay in the cache are rounded, and
    weighted for each class; of more columns, or a single class, each class does both.
    """
    n, q, f, s = float(work.fit), work.columns, work.fits, work.number_bytes
    together = f > 1 and q <= ROUNDED_ONCE
    weighted = f * n * q
    gram = f * n * q * (q + 1) / 2  # two products in the time of one
    moved = n * q * (2 if together else 1 + f) + 9 * n * f  # R and W side by side, W by classes
    held = 8.0 * triangle.kept(q) * grams_at_once(work) + (min(2 * n * q, NUMBERS) if together else 0.0)
    return Count(moved * s, 4 * f * n * q + weighted + gram, held, kind="products", calls=f)


def one_by_one(work: Work) -> bool:
    """Tell whether each class's Gram matrix is added up for itself, see one_by_one in backends/cpu/wls_grams.py."""
    return work.learner in ("ridge", "full") and SHARED_COLUMNS < work.columns <= SMALL_SYSTEM


def _columns_of_a_block(work: Work) -> int:
    q = work.columns
    if one_by_one(work):
        return min(HALF, -(-q // 2))
    if q > SMALL_SYSTEM or work.fits == 1 or work.together == 1:
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
        held += factors(work)
    return Count(f * moved, f * operations, held, kind="products", calls=f)


def refined(work: Work) -> bool:
    """Tell whether fits are refined."""
    return (
        work.backend != "reference"
        and work.learner != "componentwise"
        and (work.number_bytes == 8 or work.learner in DELICATE or work.rough)
    )


def residual_bytes(work: Work) -> int:
    """Return the bytes of the numbers that residuals are worked out in."""
    return 4 if work.rough and work.learner not in DELICATE else 8


def factors(work: Work) -> float:
    """Return the bytes of factors that `cpu` keeps beside Gram matrices to refine fits with.

    Those of few columns have a matrix of their own, backends/cpu/wls_systems.py; the steps of exact fits want a copy.
    """
    q = work.columns
    if q > SIDE_BY_SIDE or not refined(work):
        return 0.0
    return 8.0 * grams_at_once(work) * q * (q + 8 if work.rough else 2 * q + 8)


def refine(work: Work) -> Count:
    """Return the work of refinement: a step is residuals from X and their products with X, in one pass, and a solution.

    Exact fits take one.
    """
    n, q, f = float(work.fit), work.columns, work.fits
    passes = (
        math.ceil(f / grams_at_once(work)) if work.backend == "cpu" else 1
    )  # for the classes of a request
    centred = 0.0 if work.rough else n * q * passes  # columns that are gathered or drawn are
    operations = centred + f * (n * (4 * q + 3) + 2.0 * q * q)
    moved = (n * q * passes + 2 * n * f) * work.number_bytes
    if work.backend == "gpu":  # rows and residuals in float64: written, and read by two products
        moved += 8 * (3 * n * q + 4 * n * f)
    step = Count(moved, operations, 8 * q * f, kind="memory", calls=f)
    if not work.rough:
        return step
    return step.times(DELICATE_STEPS if work.learner in DELICATE else STEPS)
