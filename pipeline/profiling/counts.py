"""Bytes and operations of each stage, counted from the layout and the algorithm; nothing is measured here.

What counts
-----------
- Operations: additions, subtractions, multiplications, divisions, roots, exponentials, logarithms and cosines of
  floating-point numbers, one each; a multiply-add is two. Comparisons, signs and whole numbers are not counted, nor
  the drawing of random numbers.
- Bytes: each array once for every time that the algorithm of the backend reads or writes it, since arrays of the
  size of the data lie in main memory. Buffers made to fit a processor's second-level cache (``CACHED``
  numbers) are not counted; larger ones are, written and read. A row of which only some columns are needed costs
  whole lines of the cache. Terms that grow with neither images, nor features squared, are left out.
- The reference backend is counted as the cpu backend's algorithm in float64: what its work would need.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.profiling import counts_outofcore
from pipeline.profiling.count import Count
from pipeline.profiling.counts_fits import CACHED
from pipeline.profiling.counts_rounds import elsewhere, product, rounds, set_up
from pipeline.profiling.work import Work

__all__ = ["Count", "counts", "hog"]

STAGED = 1 << 22  # bytes from which a copy back is a stage of its own, as in backends/gpu/transfer.py
PICTURE_CALLS = 4  # stages of PNG drawing are Python throughout; this many files


def counts(work: Work, streamed: bool = False) -> dict[str, Count]:
    """Return what each stage has to do, by the name of its row in a recording; all rounds together.

    Parameters
    ----------
    work : Work
    streamed : whether the feature matrix is too large for the device and streams through it in every round
    """
    if work.backend == "reference":
        work = replace(work, number_bytes=8)
    found = {"start": Count(kind="files")}
    found |= _before(work)
    found["hog"] = hog(work)
    if work.memory_limit:
        found |= counts_outofcore.stages(work)
        del found["gather"]  # images come in their order
    if work.components is not None:
        found["reduce"] = reduce(work)
    found["boost"] = _loop(work)
    found["boost/set-up"] = set_up(work)
    if work.memory_limit:
        found["boost/set-up"] = replace(found["boost/set-up"], allocates=counts_outofcore.block(work))
    for name, of_round in rounds(work).items():
        found[f"boost/{name}"] = of_round.times(work.rounds)
    found["evaluate"] = _evaluated(work)
    found["save"] = Count(allocates=_model_bytes(work), calls=PICTURE_CALLS)
    found["compile"] = Count(kind="compile")
    if work.backend == "gpu":
        found |= _copies(work, streamed)
    return found


# ---- images ----


def _before(work: Work) -> dict[str, Count]:
    """Return the stages up to the features."""
    n, pixels = work.images, float(work.images * work.pixels)
    found = {"read": Count(kind="files", calls=max(work.files, 1))}
    if work.source == "folder":
        size = float(work.file_bytes)
        found["decode"] = Count(size + pixels, 0, pixels, kind="files", calls=n, file_bytes=size)
    elif work.source != "packed":  # made or unpacked in memory
        found["read"] = Count(pixels, 0, pixels, kind="memory")
    # Pixels are hashed to find duplicates: of a packed set, whose pixels are mapped, that is when they are read.
    from_file = pixels if work.source == "packed" else 0.0
    found["split"] = Count(pixels, kind="python", calls=n, file_bytes=from_file)
    if work.backend != "gpu":  # there it is part of the copy to the device
        found["gather"] = Count(2.0 * pixels, kind="memory", calls=-(-n // 1024))
    if work.preprocess != "none":
        out = 1 if work.preprocess == "stretch" else 4
        calls = n if work.backend != "cpu" or work.preprocess == "clahe" else -(-n // 64)
        found["preprocess"] = Count(pixels * (1 + out), kind="memory", calls=calls)
    return found


def hog(work: Work) -> Count:
    """Return the work of the features: pixels in, features out, and one look at them for NaN and infinity.

    For each pixel of a cell: two differences, a length (4), a fold (2), and per orientation a product with the
    edge's cotangent, a difference and a sum. For each cell and orientation: a scale, a square, a sum. For each
    block: sums along both sides, and the norm (3); L2-Hys does that twice, the second time from the clipped
    features. For each feature: one product, or for L2-Hys a square and a sum (3) and two products.
    """
    operations = counts_outofcore.voting(work) + counts_outofcore.writing(work) * work.features
    pixel_bytes = 1 if work.preprocess in ("none", "stretch") else 4
    feature_bytes = work.features * work.feature_bytes
    n = work.images
    calls = n if work.backend == "reference" else -(-n // 1024)
    return Count(
        float(n) * (work.pixels * pixel_bytes + 2 * feature_bytes),
        float(n) * operations,
        float(n) * feature_bytes,
        kind="memory",
        calls=calls,
        number_bytes=8 if work.backend == "reference" else work.feature_bytes,
    )


def reduce(work: Work) -> Count:
    """Return the work of the principal components: moments, Gram matrix, eigenvectors, and the reduced features.

    A Gram matrix of m = min(n, p) rows and columns, half of it; its tridiagonal form, 4/3 m^3, for which what is left
    of the matrix is read for each column; k eigenvectors brought back, 2 m^2 k; with fewer images than features the
    components are products with all features. Then every image is centred and multiplied.
    """
    n, p, k, s = float(work.fit), work.features, work.components or 0, work.feature_bytes
    m = min(n, p)
    moved = n * p * (2 * s + 6 * 8) + n * p * (s + 2 * 8) + (8 * m**3 / 3 if m * m > CACHED else 0.0)
    operations = 6 * n * p + n * p * (m + 2) + 4 / 3 * m**3 + 2 * m * m * k
    if n < p:
        moved, operations = moved + n * p * (s + 8), operations + n * p * (1 + 2.0 * k)
    moved += work.images * (3.0 * p + k) * s
    operations += work.images * p * (1 + 2.0 * k)
    return Count(moved, operations, 3 * 8 * m * m + work.images * k * s, kind="products", number_bytes=8)


# ---- the end, and the device ----


def _loop(work: Work) -> Count:
    """Return the work between the parts of a round: steps made symmetric, and at the end the features' importances.

    Those of random features draw each round's projection again, and square it in float64, some rows at a time.
    """
    once = Count(operations=3.0 * work.columns * work.classes, number_bytes=8).times(work.rounds)
    if work.learner != "random_features":
        return once
    entries = float(work.rounds * work.inputs * work.columns)
    s = work.number_bytes
    drawn = Count(2 * s * entries, 4 * entries, s * entries / work.rounds)
    return replace(once + drawn, kind="memory")


def _evaluated(work: Work) -> Count:
    """Return the work of the probabilities of the images held out: one linear model, or every round's features."""
    n = float(work.tested)
    if work.learner == "random_features":
        once = elsewhere(work, n).times(work.rounds)
    else:
        once = replace(product(work, n, work.inputs, work.classes), kind="memory")
    to_host = n * work.classes * work.number_bytes if work.backend == "gpu" else 0.0
    return replace(once, to_host=to_host, number_bytes=work.number_bytes)


def _model_bytes(work: Work) -> float:
    """Return the bytes of all rounds' coefficients, in float64."""
    q = min(work.columns, work.classes) if work.learner == "componentwise" else work.columns
    return 8.0 * work.rounds * (q + 1) * work.classes


def _copies(work: Work, streamed: bool) -> dict[str, Count]:
    """Return what crosses between host and device: pixels up as bytes, the model home; all if the matrix streams."""
    up = float(work.images * work.pixels)
    home = [_model_bytes(work), float(work.tested * work.classes * work.number_bytes)]
    down = sum(size for size in home if size >= STAGED)
    if streamed:
        passes = {"ridge": 3, "full": 3, "componentwise": 2}.get(work.learner, 1)
        matrix = float(work.inputs * work.number_bytes)
        rounds = work.rounds * (passes * work.fit + work.watched)
        up += matrix * (rounds + 2 * work.fit + work.tested)
        down += float(work.images * work.features * work.feature_bytes)
    return {
        "copy to device": Count(bytes=2 * up, to_device=up, kind="copy"),
        "copy back": Count(bytes=down, to_host=down, kind="copy"),
    }
