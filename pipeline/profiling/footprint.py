"""Whether a training run fits: bytes in host and device memory, stage by stage, and the chunks that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.backends import triangle
from pipeline.backends.host import MAPPED
from pipeline.errors import ConfigError
from pipeline.profiling.counts_fits import factors, grams_at_once
from pipeline.profiling.work import Work, of_round
from pipeline.scale import memory

IMAGES_AT_ONCE = 1024  # whose intermediate copies are in memory at a time, as config.Train.chunk
BUFFER = 1 << 22  # numbers of a block of rows that BLAS multiplies, as in backends/cpu/wls_blocks.py
LARGEST = 1 << 30  # bytes of one chunk on a device, as in backends/gpu/memory.py
SHARE = 0.5  # of the device memory that one step plans for, likewise
CONTEXT = 600e6  # bytes that the CUDA context and its libraries take
LINE = 64  # bytes of a vector at most: columns of a round come in panels of that many
SCORES = (
    6  # arrays of images x classes alive in a round: scores, moved scores, weights, responses, values, labels
)
SYSTEMS = 6  # matrices p x p in float64 that one class needs on a device (docs/gpu.md)


@dataclass(frozen=True)
class Need:
    """What one stage has in memory at most.

    Attributes
    ----------
    stage : name of the stage
    host, device : bytes, with all that stages before have left
    note : what is held, or how many rows or images are worked on at a time
    """

    stage: str
    host: float
    device: float
    note: str


@dataclass(frozen=True)
class Footprint:
    """The memory of a run on one machine.

    Attributes
    ----------
    needs : of each stage
    host_memory, device_memory : bytes there are; the second is 0 without a device
    streamed : whether the feature matrix stays in host memory and streams through the device in every round
    disk : bytes of cell histograms on disk, out of core
    refused : why the run would stop before its first round; empty if it would not
    """

    needs: tuple[Need, ...]
    host_memory: float
    device_memory: float
    streamed: bool = False
    disk: float = 0.0
    refused: str = ""

    @property
    def host(self) -> float:
        """Most bytes of host memory."""
        return max(need.host for need in self.needs)

    @property
    def device(self) -> float:
        """Most bytes of device memory."""
        return max(need.device for need in self.needs)

    @property
    def fits(self) -> bool:
        """Tell whether both suffice."""
        on_device = not self.device_memory or self.device <= self.device_memory - CONTEXT
        return on_device and self.host <= self.host_memory and not self.refused


def footprint(work: Work, base: float, host_memory: float, device_memory: float = 0.0) -> Footprint:
    """Return what the stages of `work` need.

    Parameters
    ----------
    base : bytes of the process with next to no images, its plots included
    host_memory, device_memory : bytes there are; device_memory = 0: the processor does all the work
    """
    if work.memory_limit and not device_memory:
        return _out_of_core(work, base, host_memory)
    if device_memory:
        return _on_device(work, base, host_memory, device_memory)
    return _here(work, base, host_memory)


def _here(work: Work, base: float, host_memory: float) -> Footprint:
    """Return the needs of a run whose features lie in the memory of the processor that does the work."""
    small, s = work.feature_bytes, work.number_bytes
    pixels, features, chunk = _images(work)
    held = base + pixels + features
    needs = [
        Need("read", base + pixels, 0.0, _pixels(pixels)),
        Need("hog", held + chunk, 0.0, f"{min(work.images, IMAGES_AT_ONCE):,} images at a time"),
    ]
    what = "features"
    if work.components is not None:
        fewer = float(work.images) * work.components * small
        needs.append(Need("reduce", held + max(_components(work), fewer + BUFFER * small), 0.0,
                          "features, their Gram matrix, eigenvectors"))  # fmt: skip
        held, what = base + pixels + fewer, "components"
    gathered = [_gathered(work, LINE // s)] * (2 if _meanwhile(work) else 1)
    notes = ", columns of the round" + " and the next" * (len(gathered) - 1) if gathered[0] else ""
    beside = gathered[0] if _by_rows(work) else 0.0  # rows that panels become
    rows = _other(work) + _scores(work) + sum(gathered) + beside
    needs += [
        Need("boost", held + rows + _systems(work, gathered), 0.0, f"{what}, scores{notes}"),
        Need("evaluate", held + work.tested * work.classes * 32.0, 0.0, f"{what}, probabilities"),
    ]
    return Footprint(tuple(needs), host_memory, 0.0)


def _on_device(work: Work, base: float, host_memory: float, device_memory: float) -> Footprint:
    """Return the needs of a run on a device, in its memory and the host's."""
    p, q, J, s = work.features, work.columns, work.classes, work.number_bytes
    pixels, features, chunk = _images(work)
    other = _other(work)
    room = max(device_memory - CONTEXT, 1.0)
    streamed = features > SHARE * room
    resident = 0.0 if streamed else features
    systems = float(SYSTEMS) * 8 * q * q if work.learner != "componentwise" else 72.0 * p * J
    must = _scores(work) + _gathered(work) + systems + (0.0 if streamed else other)
    free = max(room - resident - must, 0.0)
    at_once = int(max(1, min(work.fit, min(LARGEST, SHARE * free) // max(q * s, 1))))
    least = min(float(LARGEST), float(at_once) * q * s)
    where = "features stay in host memory and stream through the device in every round" if streamed else (
        "features stay on the device"
    )  # fmt: skip
    host = base + CONTEXT + pixels + (features if streamed else 0.0)
    return Footprint(
        (
            Need("read", base + pixels, 0.0, _pixels(pixels)),
            Need("hog", host + 2 * chunk, resident + chunk,
                 f"{min(work.images, IMAGES_AT_ONCE):,} images at a time; {where}"),
            Need("boost", host + (other if streamed else 0.0), resident + must + least,
                 f"{at_once:,} {'row' if at_once == 1 else 'rows'} of a class at a time"),
            Need("evaluate", host + work.tested * J * 32.0, resident, "features, probabilities"),
        ),
        host_memory,
        device_memory,
        streamed,
    )  # fmt: skip


def _images(work: Work) -> tuple[float, float, float]:
    """Return the bytes of all pixels in memory, of the features, and of what is between them at a time."""
    pixels = 0.0 if work.source == "packed" else float(work.images) * work.pixels
    each = work.features * work.feature_bytes
    return pixels, float(work.images) * each, min(work.images, IMAGES_AT_ONCE) * (work.pixels * 5.0 + each)


def _pixels(there: float) -> str:
    return "pixels, as bytes" if there else "pixels stay in the packed file"


def _scores(work: Work) -> float:
    return float(work.fit) * work.classes * work.number_bytes * SCORES


def _other(work: Work) -> float:
    """Return the bytes of the rows in the type of boosting, if that is another than the features'."""
    s = work.number_bytes
    return float(work.fit) * work.inputs * s if s != work.feature_bytes else 0.0


def _gathered(work: Work, panel: int = 1) -> float:
    """Return the bytes of the columns of a round, gathered or drawn, in panels of so many."""
    if work.learner in ("subspace", "random_features"):
        return float(work.fit) * (-(-work.columns // panel) * panel) * work.number_bytes
    return 0.0


def _meanwhile(work: Work) -> bool:
    """Tell whether the columns of the round to come are gathered while those of the round before are there."""
    ahead = work.backend == "cpu" and work.threads > 1 and work.rounds > 1
    return ahead and work.learner == "subspace"


def _by_rows(work: Work) -> bool:
    """Tell whether panels may become rows: where most weights are trimmed, sums leave out the rows without."""
    return work.trimmed and work.backend == "cpu"


def _systems(work: Work, gathered: list[float]) -> float:
    """Return the bytes of Gram matrices, of their factors, and of what else is beside the columns of rounds."""
    q, s, inputs = work.columns, work.number_bytes, float(work.inputs)
    few = q <= triangle.SQUARE
    buffers = min(float(BUFFER // 4 if few else BUFFER), float(work.fit) * inputs) * 8 * 2
    if work.learner == "componentwise":
        most = max(memory.MOMENTS, work.fit * work.inputs * s // 16)
        several = memory.sums_of_segments(work.inputs, work.classes, most)
        return max(72.0 * inputs * work.classes + several, buffers)
    # of many columns a triangle, and in float64 its factor
    grams = 8.0 * (max(grams_at_once(work), 3) * q * q if few else triangle.size(q) * (s // 4))
    if work.learner == "full" and work.fit <= q:  # no unique solution: that of least norm, backends/solve.py
        grams += 8.0 * q * (3 * q + 4 * work.fit)
    if not few:
        return max(grams, buffers)
    # The C library keeps the memory of arrays that are let go of, and finds no room there for somewhat larger ones. It
    # took as much again: 92 MB in 14 rounds beside 2 x 31 MB, 10,000 rows of 768 columns, and 33 of Gram matrices.
    left = sum(size for size in (*gathered, grams) if size <= MAPPED)
    return grams + factors(work) + max(buffers, left)


def _components(work: Work) -> float:
    """Return the bytes that finding principal components takes beside the features (backends/cpu/pca.py)."""
    p, k = work.features, work.inputs
    m = float(min(work.fit, p))
    eigenvectors = 16.0 * m * (m + k)  # the Gram matrix and its reflectors; the vectors twice
    scaled = 8.0 * m * (m + k) + 16.0 * k * p  # the components, and their magnitudes
    return max(eigenvectors, scaled) + 8.0 * BUFFER


OF_AN_IMAGE = 200  # bytes of an image's path, label, and digests


def _out_of_core(work: Work, base: float, host_memory: float) -> Footprint:
    """Return the needs of ``scale=outofcore``: what the limit leaves decides how much is worked on at a time."""
    n, kept, round_ = work.images, work.kept_bytes, of_round(work)
    budget = memory.Budget(work.memory_limit, int(base))
    named, disk = base + float(n) * OF_AN_IMAGE, float(n) * kept
    trained = work.fit + work.watched
    try:
        each = memory.reading(work.pixels, kept)
        rows = min(n, IMAGES_AT_ONCE, budget.rows(0, each, "reading images"))
        block, spare = memory.division(budget, round_, trained)
    except ConfigError as error:
        need = Need("boost", least_limit(work, base), 0.0, str(error))
        return Footprint((need,), host_memory, 0.0, disk=disk, refused=str(error))
    waiting = min(n, memory.chunk_rows(budget.free, kept)) * float(kept)
    once = min(work.fits, memory.classes(spare, work.columns))
    held = named + round_.state(trained) + round_.fixed()
    rows_held = min(block, work.fit) * float(round_.per_row())
    return Footprint(
        (
            Need("read", named + rows * work.pixels * 3.0, 0.0, f"{rows:,} images at a time"),
            Need("hog", named + rows * (work.pixels * 12.0 + kept) + waiting, 0.0,
                 f"cell histograms, {kept:,} bytes an image; {disk / 1e9:.2f} GB of them on disk"),
            Need("boost", held + rows_held + round_.grams(once), 0.0,
                 f"{block:,} images expanded at a time, {once} of {work.fits} classes a pass"),
            Need("evaluate", held + rows_held + work.tested * work.classes * 32.0, 0.0, "features, probabilities"),
        ),
        host_memory,
        0.0,
        disk=disk,
    )  # fmt: skip


def least_limit(work: Work, base: float) -> float:
    """Return the least ``scale.memory_limit`` with which training out of core would begin, in bytes."""
    round_ = of_round(work if work.memory_limit else replace(work, memory_limit=1))
    fixed = round_.state(work.fit + work.watched) + round_.fixed() + round_.grams(1)
    training = fixed + memory.LEAST_ROWS * round_.per_row()
    reading = memory.LEAST_ROWS * memory.reading(work.pixels, work.kept_bytes)
    return base + memory.MARGIN + max(training, reading)
