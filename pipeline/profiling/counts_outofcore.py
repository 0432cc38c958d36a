"""Bytes and operations of HoG in its two steps, and of ``scale=outofcore``, which keeps what lies between them on disk.

See :mod:`pipeline.profiling.counts` for what counts. Chunks lie in the page cache where that has room: a pass
reads them from memory then, and from the disk otherwise.
"""

from __future__ import annotations

import math

from pipeline.profiling.count import Count
from pipeline.profiling.work import Work, of_round

IMAGES_AT_ONCE = 1024  # whose pixels are in memory together, as config.Train.chunk


def voting(work: Work) -> float:
    """Return the operations of an image's cell histograms, and of what its blocks are multiplied by."""
    layout, blocks, bins = work.layout, math.prod(work.layout.blocks), work.layout.orientations
    cells = math.prod(layout.cells)
    rows, cols = layout.cells_per_block
    squares = work.block_norm.startswith("L2")
    votes = cells * math.prod(layout.pixels_per_cell) * (8 + 3 * bins) + cells * bins * (3 if squares else 2)
    across = layout.cells[0] * layout.blocks[1] * cols  # once for all blocks of a column
    norms = across + blocks * (rows + (3 if squares else 2))
    again = 3 * (blocks + work.features) if work.block_norm == "L2-Hys" else 0  # clipped, all are looked at
    return votes + norms + again


def writing(work: Work) -> int:
    """Return the operations of a feature whose cell and block's factors are known."""
    return {"L1": 1, "L1-sqrt": 2, "L2": 1, "L2-Hys": 2}[work.block_norm]


def rounds_columns(work: Work) -> float:
    """Return the columns that a pass expands, in the mean over those that follow the moments.

    Of ``subspace`` those of a round; the passes that take a step, all but the last, make those of the next round, too.
    """
    if work.learner != "subspace":
        return float(work.features)
    return work.columns * (1.0 + (work.rounds - 1) / (work.passes - 1))


def stages(work: Work) -> dict[str, Count]:
    """Return the stages that are other out of core: histograms, their writing, and their expansion in every pass."""
    n, kept = float(work.images), float(work.kept_bytes)
    pixel_bytes = 1 if work.preprocess in ("none", "stretch") else 4
    chunks = -(-work.images // IMAGES_AT_ONCE)
    rows = float((work.passes - 1) * work.fit + work.rounds * work.watched)  # for the columns of rounds
    whole = float(work.fit + work.tested)  # for the moments, and those held out
    each = work.feature_bytes
    if work.number_bytes != work.feature_bytes:
        each += work.feature_bytes + work.number_bytes
    some = rounds_columns(work)
    return {
        # digests of the pixels were taken when the histograms were written
        "split": Count(16.0 * n, kind="python", calls=work.images),
        # histograms are looked at once for NaN and infinity
        "hog": Count(
            n * (work.pixels * pixel_bytes + 2 * kept),
            n * voting(work),
            min(n, IMAGES_AT_ONCE) * kept,
            kind="memory",
            calls=chunks,
            number_bytes=work.kept_number_bytes,
        ),
        # two digests: of the pixels, which find duplicates, and of the histograms, which find damage
        "write": Count(
            n * (work.pixels + 3 * kept),
            0.0,
            min(n, 2.0 * IMAGES_AT_ONCE) * kept,
            kind="python",
            calls=work.images,
        ),
        "expand": Count(
            whole * (kept + work.features * each) + rows * (kept + some * each),
            writing(work) * (whole * work.features + rows * some),
            0.0,
            kind="memory",
            calls=work.passes,
            number_bytes=work.kept_number_bytes,
        ),
    }


def block(work: Work) -> float:
    """Return the bytes that the rounds hold: a block of rows, scores, and Gram matrices of the classes of a pass."""
    needs = of_round(work)
    scores = needs.state(work.fit + work.watched)
    return float(scores + needs.fixed() + work.block_rows * needs.per_row() + needs.grams(work.at_once))
