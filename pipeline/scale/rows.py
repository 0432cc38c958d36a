"""Rows on disk as a partition of the boosting loop takes them: expanded block by block into a reused buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipeline.features import HogExtractor
from pipeline.scale.memory import classes
from pipeline.scale.store import Store
from pipeline.spans import span


class Format(Protocol):
    """What is kept of an image, and how features come from it."""

    n_features: int
    dtype: np.dtype  # of the features
    width: int  # numbers kept of an image
    kept: np.dtype  # their type

    def pack(self, pixels: np.ndarray) -> np.ndarray:
        """Return what is kept (m, width) of preprocessed images (m, h, w)."""

    def expand(self, kept: np.ndarray, out: np.ndarray, columns: np.ndarray | None = None) -> None:
        """Write the features (m, n_features), or some columns of them."""


class Cells:
    """Cell histograms of the cpu backend; the features equal those of the extractor bit for bit.

    Parameters
    ----------
    extractor : fitted
    source : type of the preprocessed images, which decides the type in which the kernels work
    """

    def __init__(self, extractor: HogExtractor, source: np.dtype) -> None:
        from pipeline.backends.cpu import unexpanded

        self._kernels, self.extractor, self.layout = unexpanded, extractor, extractor.layout_
        self.n_features, self.dtype = self.layout.n_features, np.dtype(extractor.dtype)
        self.width = unexpanded.width(self.layout)
        self.kept = self.pack(np.zeros((1, *self.layout.image_shape), source)).dtype

    def pack(self, pixels: np.ndarray) -> np.ndarray:
        """Return the histograms and sums (m, width) of preprocessed images (m, h, w)."""
        given = self.extractor
        return self._kernels.cells(pixels, self.layout, given.block_norm, given.transform_sqrt, given.dtype)

    def expand(self, kept: np.ndarray, out: np.ndarray, columns: np.ndarray | None = None) -> None:
        """Write the features (m, n_features), or some columns of them."""
        self._kernels.expand(kept, self.layout, self.extractor.block_norm, out, columns)


class Buffers:
    """Memory into which blocks are expanded; all rows of a run share it, since one block is looked at at a time."""

    def __init__(self, format: Format, rows: int) -> None:
        self.rows = rows
        self.features = np.empty((rows, format.n_features), format.dtype)
        self._cast: np.ndarray | None = None

    def cast(self, block: np.ndarray, dtype: str) -> np.ndarray:
        """Return the block in another type, in a second buffer."""
        if block.dtype == dtype:
            return block
        if self._cast is None or self._cast.dtype != dtype:
            self._cast = np.empty(self.features.shape, dtype)
        out = _shaped(self._cast, block.shape)
        out[...] = block
        return out

    def block(self, rows: int, columns: int) -> np.ndarray:
        """Return the memory for a block."""
        return _shaped(self.features, (rows, columns))


def _shaped(memory: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the beginning of the memory as an array of a shape."""
    return memory.reshape(-1)[: shape[0] * shape[1]].reshape(shape)


class _Piece(NamedTuple):
    chunk: int
    rows: np.ndarray  # intp, within the chunk, rising


class StoredRows:
    """Some rows of a store, in the store's order.

    Parameters
    ----------
    store : holds the rows
    format : how features come from them
    index : intp (n,) numbers of the rows wanted, rising
    buffers : reused memory
    gram_bytes : memory for Gram matrices, total and a block's
    """

    def __init__(
        self, store: Store, format: Format, index: np.ndarray, buffers: Buffers, gram_bytes: int
    ) -> None:
        if (np.diff(index) <= 0).any():
            raise ValueError("row numbers must rise")
        self.store, self.format, self.buffers, self.gram_bytes = store, format, buffers, gram_bytes
        self.index = index
        self.shape = len(index), format.n_features
        self._pieces = list(self._cut())

    def _cut(self) -> Iterator[_Piece]:
        for number, chunk in enumerate(self.store.chunks):
            begin, end = np.searchsorted(self.index, (chunk.first, chunk.first + chunk.rows))
            mine = self.index[begin:end] - chunk.first
            for a in range(0, len(mine), self.buffers.rows):
                yield _Piece(number, mine[a : a + self.buffers.rows])

    def blocks(self, dtype: str, columns: np.ndarray | None = None) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield (begin, end, features[begin:end]), or some columns, in order; the next block takes its memory."""
        begin, width = 0, self.shape[1] if columns is None else len(columns)
        for piece in self._pieces:
            block = self.buffers.block(len(piece.rows), width)
            with span("expand"), self.store.opened(piece.chunk) as chunk:
                self.format.expand(_taken(chunk, piece.rows), block, columns)
                cast = self.buffers.cast(block, dtype)
            yield begin, begin + len(block), cast
            begin += len(block)

    def classes_at_once(self, q: int) -> int:
        """Return for how many classes memory holds the Gram matrices of q columns."""
        return classes(self.gram_bytes, q)


def _taken(chunk: np.ndarray, rows: np.ndarray) -> Any:
    """Return some rows of a mapped chunk: a view where they lie together."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return np.asarray(chunk)[first : last + 1]
    return np.asarray(chunk)[rows]
