"""What might make a run faster, derived from its measured stages and its settings.

A candidate says which stages it can change and how much of them it can save at most. One that cannot save enough is
never tried.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pipeline import config
from pipeline.backends.hog_layout import HogLayout
from pipeline.profiling import candidates_boosting as boosting
from pipeline.profiling import candidates_memory as memory
from pipeline.profiling.candidate import AFTER_PIXELS, Candidate, Measured
from pipeline.profiling.candidates_boosting import stopped

__all__ = ["Candidate", "Measured", "derived", "stopped"]

COARSE = ([10, 10], [2, 2])  # pixels per cell and cells per block of hog=coarse


def derived(run: Measured) -> Iterator[Candidate]:
    """Yield every candidate that the settings leave room for."""
    reading, numbers = (_packed, _threads, _workers, _precision), (_layout, _preprocess, _plots, _chunk)
    for rule in (*memory.RULES, *reading, *boosting.RULES, *numbers):
        yield from rule(run)


def _packed(run: Measured) -> Iterator[Candidate]:
    if run.work.source == "packed":
        return
    data, image = run.cfg.data, run.cfg.image
    name = f"{Path(data.path).name if data.path else data.name.name}_{image.height}x{image.width}.npz"
    source = f"data={data.name.name}" if data.path is None else shlex.quote(f"data.path={data.path}")
    if run.work.source == "synthetic":
        source += f" data.n={data.n} data.classes={data.classes}"
        source += f" data.difficulty={data.difficulty} data.seed={data.seed}"
    out = shlex.quote(f"out={name}")
    size = f"image.height={image.height} image.width={image.width} image.fit={image.fit.name}"
    yield Candidate(
        f"pack the images once, first: python -m pipeline pack {source} {out} {size}",
        f"data.name=packed {shlex.quote(f'data.path={name}')}",
        ("read", "decode"),
        1.0,
        f"{run.told('read', 'decode')}; a packed set is mapped into memory without decoding",
        f"packing takes about {run.of('read', 'decode'):.2g} s once, and again when the images or their size change",
        "packed",
    )


def _threads(run: Measured) -> Iterator[Candidate]:
    threads, cores = run.work.threads, run.cores
    if run.work.backend == "gpu" or not 0 < threads < cores:
        return
    yield Candidate(
        f"compute on all {cores} cores instead of {threads}",
        "backend.threads=0",
        ("preprocess", *AFTER_PIXELS),
        1.0 - threads / cores,
        f"{threads} of {cores} cores work; {run.told('preprocess', 'hog', 'boost')}",
    )


def _workers(run: Measured) -> Iterator[Candidate]:
    workers = run.cfg.data.workers
    if run.work.source not in ("folder", "synthetic") or not 0 < workers < run.cores:
        return
    yield Candidate(
        f"decode on all {run.cores} cores instead of {workers}",
        "data.workers=0",
        ("read", "decode"),
        1.0 - workers / run.cores,
        f"{workers} of {run.cores} cores decode; {run.told('read', 'decode')}",
    )


def _precision(run: Measured) -> Iterator[Candidate]:
    wide = [
        key
        for key, kind in (("hog.dtype", run.cfg.hog.dtype), ("classifier.dtype", run.cfg.classifier.dtype))
        if kind is config.FloatType.float64
    ]
    if wide:
        are = "are" if len(wide) > 1 else "is"
        yield Candidate(
            "compute in float32 instead of float64",
            " ".join(f"{key}=float32" for key in wide),
            AFTER_PIXELS,
            0.75,
            f"{' and '.join(wide)} {are} float64, twice the bytes; {run.told('hog', 'boost')}",
            "features and sums have 7 digits instead of 16; accuracy hardly ever depends on the rest",
        )


def _layout(run: Measured) -> Iterator[Candidate]:
    cells, blocks = COARSE
    shape = run.work.layout.image_shape
    if shape[0] < cells[0] * blocks[0] or shape[1] < cells[1] * blocks[1]:
        return
    p = HogLayout(shape, run.cfg.hog.orientations, (cells[0], cells[1]), (blocks[0], blocks[1])).n_features
    if p > 0.8 * run.work.features:
        return
    yield Candidate(
        f"larger cells and smaller blocks (hog=coarse): {p} features instead of {run.work.features}",
        f"hog.pixels_per_cell=[{cells[0]},{cells[1]}] hog.cells_per_block=[{blocks[0]},{blocks[1]}]",
        AFTER_PIXELS,
        1.0 - (p / run.work.features) ** 2,
        f"{run.told('hog', 'boost')}, and both grow with the features",
        "coarser features: compare the accuracy",
    )


def _preprocess(run: Measured) -> Iterator[Candidate]:
    if run.work.preprocess == "none":
        return
    yield Candidate(
        f"leave preprocess={run.work.preprocess} out",
        "preprocess.name=none",
        ("preprocess", "hog"),
        1.0,
        run.told("preprocess"),
        "other features: compare the accuracy; HoG evens out contrast by itself",
    )


def _plots(run: Measured) -> Iterator[Candidate]:
    if run.cfg.plots:
        yield Candidate("draw no plots", "plots=false", ("save",), 1.0, run.told("save"), "no PNG files")


def _chunk(run: Measured) -> Iterator[Candidate]:
    now = run.cfg.chunk
    if run.work.backend == "gpu" or run.work.memory_limit:  # these plan their own
        return
    for size in (now * 8, max(now // 8, 32)):
        if size < run.work.images and size != now:
            yield Candidate(
                f"{size} images at a time instead of {now}",
                f"chunk={size}",
                ("preprocess", "hog"),
                0.5,
                f"{run.told('preprocess', 'hog')}, in {-(-run.work.images // now)} batches",
            )
