"""Labels of a piece of a set, written by whoever reads it: a part file, CSV or Parquet. Knows nothing of Dask."""

from __future__ import annotations

import csv
import functools
import hashlib
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pipeline import datasets
from pipeline.datasets.pieces import Piece, read_piece
from pipeline.errors import ClusterError, ModelError, OutputError
from pipeline.files import atomic
from pipeline.model import Model, load_model
from pipeline.scale.recipe import backend_at_work
from pipeline.software import SOURCES, software

Write = Callable[
    [list[str], np.ndarray, np.ndarray], None
]  # write(paths, labels (m,), probabilities (m, classes))


@dataclass(frozen=True)
class Labelling:
    """How pieces are labelled.

    Attributes
    ----------
    model : the model file, byte by byte: it is checked where it is read
    out : folder of the parts
    columns : names of the columns of probabilities
    """

    model: np.ndarray
    out: str
    format: str
    columns: tuple[str, ...]
    backend: str
    device: int
    threads: int
    chunk: int
    sources: str  # of this program, a digest: workers may join at any time


class Part(NamedTuple):
    """What became of a piece."""

    name: str  # of the file
    size: int  # bytes
    counts: np.ndarray  # int64 (classes,): images of each label
    rejected: list[datasets.Rejected]
    seconds: dict[str, float]


def label(labelling: Labelling, number: int, piece: Piece) -> Part:
    """Label the pictures of a piece, a chunk at a time, and write them to a file that is whole or not there."""
    if labelling.sources != software()[SOURCES]:
        raise ClusterError(
            f"a worker on {platform.node()} has {SOURCES} {software()[SOURCES]}, where the run began it is "
            f"{labelling.sources}; install the same version everywhere"
        )
    name = f"part-{number:05d}.{labelling.format}"
    path, rejected, seconds = Path(labelling.out) / name, list[datasets.Rejected](), dict[str, float]()
    if not path.parent.is_dir():
        raise OutputError(
            f"out={labelling.out}: a worker's machine does not have this folder; give a shared one"
        )
    with backend_at_work(labelling.backend, labelling.threads, labelling.device):
        model = _model(labelling)
        counts = np.zeros(len(model.class_names), dtype=np.int64)
        with atomic(path, "w" if labelling.format == "csv" else "wb") as stream:
            write, close = _writer(labelling, model.class_names, stream)
            for loaded in read_piece(piece, labelling.chunk, labelling.threads):
                rejected += loaded.rejected
                for key, value in loaded.native_seconds.items():
                    seconds[key] = seconds.get(key, 0.0) + value
                if not len(loaded.images):
                    continue
                proba = model.predict_proba(loaded.images.pixels)
                if not np.isfinite(proba).all():
                    raise ModelError("the model gives probabilities that are not finite; train it again")
                best = proba.argmax(axis=1)
                counts += np.bincount(best, minlength=len(counts))
                write(loaded.images.paths, best, proba)
            close()
    return Part(name, path.stat().st_size, counts, rejected, seconds)


def _writer(
    labelling: Labelling, class_names: Sequence[str], stream: IO[Any]
) -> tuple[Write, Callable[[], Any]]:
    """Return who writes rows into a file, and what ends it."""
    if labelling.format == "parquet":
        return _parquet(labelling, class_names, stream)
    writer = csv.writer(stream)
    writer.writerow(["path", "label", *labelling.columns])

    def write(paths: list[str], best: np.ndarray, proba: np.ndarray) -> None:
        for path, found, row in zip(paths, best, proba, strict=True):
            writer.writerow([path, class_names[found], *[f"{value:.6g}" for value in row]])

    return write, lambda: None


def _parquet(
    labelling: Labelling, class_names: Sequence[str], stream: IO[Any]
) -> tuple[Write, Callable[[], Any]]:
    import pyarrow
    from pyarrow import parquet

    names = ["path", "label", *labelling.columns]
    kinds = [pyarrow.string(), pyarrow.string(), *[pyarrow.float32()] * len(labelling.columns)]
    schema = pyarrow.schema(list(zip(names, kinds, strict=True)))
    writer = parquet.ParquetWriter(stream, schema)

    def write(paths: list[str], best: np.ndarray, proba: np.ndarray) -> None:
        labels = [class_names[found] for found in best]
        columns = [paths, labels, *proba.astype(np.float32).T]
        writer.write_table(pyarrow.table(columns, schema=schema))

    return write, writer.close


def _model(labelling: Labelling) -> Model:
    data = labelling.model.tobytes()
    return _loaded(hashlib.blake2b(data, digest_size=16).digest(), labelling.backend, _Bytes(data))


class _Bytes:
    """Bytes that all count as equal: the digest beside them tells them apart."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Bytes)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=1)
def _loaded(digest: bytes, backend: str, data: _Bytes) -> Model:
    """Return the model; a process reads it once, not for every piece."""
    with tempfile.TemporaryDirectory(prefix="hogboost-") as folder:
        path = Path(folder) / "model.npz"
        path.write_bytes(data.data)
        return load_model(path, backend)
