"""``scale=outofcore``: images become cell histograms on disk as they are read, and partitions of the boosting loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import backends, config, datasets
from pipeline.errors import ConfigError, DataError
from pipeline.features import HogExtractor
from pipeline.files import expanded_new
from pipeline.processor import usable_cores
from pipeline.scale import known, memory
from pipeline.scale.known import Known, Listing
from pipeline.scale.memory import Budget, Work, resident
from pipeline.scale.rows import Buffers, Cells, StoredRows
from pipeline.scale.store import Store, clear, store_folder


@dataclass
class Kept(Known):
    """A data set whose histograms are on disk."""

    store: Store
    format: Cells


def check(cfg: config.Train, backend: str) -> None:
    """Refuse, before any image is read, what cannot be done out of core.

    Raises
    ------
    ConfigError
    """
    if backend != "cpu":
        raise ConfigError(
            f"scale=outofcore works with backend=cpu, not {backend}: cell histograms are its kernels'; "
            "add backend=cpu, or scale=local"
        )
    known.check(cfg)


@contextmanager
def folder_of(cfg: config.Train) -> Iterator[Path]:
    """Make the folder of the chunks; they are removed at the end, however the run ends: no other can use them."""
    own = cfg.scale.store is None
    place = (
        Path(cfg.run_dir) / "chunks"
        if own
        else expanded_new(str(cfg.scale.store), "scale.store", folder=True)
    )
    made = not place.exists()
    with store_folder(place, "hydra.run.dir" if own else "scale.store", Path(cfg.run_dir)) as folder:
        try:
            yield folder
        finally:
            clear(folder, own or made)


def limit(settings: config.Scale) -> int:
    """Return ``scale.memory_limit`` in bytes."""
    found = config.size_in_bytes(settings.memory_limit or "")
    assert found is not None  # the settings have been checked
    return found


def keep(
    cfg: config.Train,
    extractor: HogExtractor,
    folder: Path,
    advance: Callable[[int, int], Any] | None = None,
    stages: Callable[[str], AbstractContextManager[Any]] = nullcontext,
    expected: datasets.Stamps | None = None,
) -> Kept:
    """Read, preprocess and describe the images, a chunk at a time; histograms go to the disk.

    With `expected` the images must be what they were.

    Raises
    ------
    ConfigError, DataError, OutputError
        As reading images and writing files do; and if ``scale.memory_limit`` is too low.
    """
    backend = backends.get(extractor.backend)
    blank = np.zeros((1, cfg.image.height, cfg.image.width), np.uint8)
    format = Cells(extractor, backend.preprocess.apply(blank, cfg.preprocess).dtype)
    kept = format.width * format.kept.itemsize

    def rows(total: int) -> int:
        """Return how many images to read at a time: their list is in memory, their names and digests come."""
        budget = Budget(limit(cfg.scale), resident())
        room = budget.rows(total * memory.KNOWN, memory.reading(blank.size, kept), "reading images")
        return min(cfg.chunk, room)

    listing, names = Listing(), tuple[str, ...]()
    stamps, chunks = datasets.stream_labelled(cfg.data, cfg.image, rows, advance, expected)
    free = Budget(limit(cfg.scale), resident()).free
    store = format.store(folder, memory.chunk_rows(free, kept))
    for loaded in _timed(chunks, stages):
        images = loaded.images
        if images.labels is None:
            raise DataError(
                f"data.path={cfg.data.path}: holds no labels; training needs a class for each picture"
            )
        with stages("preprocess"):
            pixels = backend.preprocess.apply(images.pixels, cfg.preprocess)
        with stages("hog"):
            cells = format.pack(pixels)
            _check_finite(cells, images.paths)
        with stages("write"):
            store.append(cells)
            digests = [hashlib.blake2b(one.data, digest_size=16).digest() for one in images.pixels]
        listing.add(images.labels, images.paths, digests, loaded.rejected, loaded.native_seconds)
        names = images.class_names
    with stages("write"):
        store.flush()
    if not listing.paths or len(names) < 2:
        raise DataError(
            f"data.path={cfg.data.path}: {len(listing.paths)} pictures of {len(names)} classes; expected two classes "
            "at least"
        )
    found = listing.known(cfg, names, stamps, expected)
    return Kept(**vars(found), store=store, format=format)


def _timed(chunks: Iterator[datasets.Loaded], stages: Callable[[str], AbstractContextManager[Any]]) -> Any:
    """Yield the chunks; the time of getting each is that of the stage "read"."""
    while True:
        with stages("read"):
            loaded = next(chunks, None)
        if loaded is None:
            return
        yield loaded


def _check_finite(cells: np.ndarray, paths: list[str]) -> None:
    good = np.isfinite(cells).all(axis=1)
    if not good.all():
        raise DataError(
            f"{paths[int(np.argmin(good))]}: its HoG features are not finite; remove the image or use another "
            "preprocess="
        )


class Rows:
    """Rows of a kept data set under a memory limit.

    Parameters
    ----------
    kept : the data set
    cfg : settings of the run
    n_train : rows of the training and validation parts: their scores are in memory
    begun : what `division` was when the run began, if it is one that goes on: the bits of sums depend on it, and it on
        what else the process held

    Attributes
    ----------
    division : rows of a block, and bytes for Gram matrices of more classes
    """

    def __init__(
        self, kept: Kept, cfg: config.Train, n_train: int, begun: Sequence[int] | None = None
    ) -> None:
        self.kept = kept
        work = _work(kept, cfg, n_train)
        budget = Budget(limit(cfg.scale), resident())
        rows, self.gram_bytes = self.division = begun or memory.division(budget, work, n_train)
        self.buffers = Buffers(kept.format, rows, memory.drawn(rows, work))

    def take(self, index: np.ndarray) -> StoredRows:
        """Return the rows of the given numbers, which must rise."""
        return StoredRows(self.kept.store, self.kept.format, index, self.buffers, self.gram_bytes)

    def parts(self, index: np.ndarray, count: int) -> list[tuple[StoredRows, np.ndarray]]:
        """Return `count` partitions of the rows of the given numbers, with their labels."""
        labels = self.kept.images.labels
        assert labels is not None
        return [(self.take(part), labels[part]) for part in np.array_split(np.sort(index), count)]


def _work(kept: Kept, cfg: config.Train, n: int) -> Work:
    p, learner = kept.format.n_features, cfg.classifier.learner.name
    J = len(kept.images.class_names)
    return Work(
        p=p,
        q=known.columns(cfg, p),
        classes=J,
        fitted=1 if J == 2 else J,
        item=known.item(cfg, n * p),
        kept=kept.store.width * kept.store.dtype.itemsize,
        feature=kept.format.dtype.itemsize,
        threads=cfg.backend.threads or usable_cores(),
        random=learner == "random_features",
        componentwise=learner == "componentwise",
    )


def probabilities(rows: Rows, index: np.ndarray, proba: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return proba(features) of the rows of the given numbers, in the given order."""

    def rising(numbers: np.ndarray) -> np.ndarray:
        blocks = rows.take(numbers).blocks(rows.kept.format.dtype.name)
        return np.concatenate([proba(X) for _, _, X in blocks])  # a split leaves rows on either side

    return known.in_order(index, rising)
