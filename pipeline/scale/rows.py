"""Rows on disk as a partition of the boosting loop takes them: expanded block by block into a reused buffer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from pipeline.features import HogExtractor
from pipeline.scale.memory import classes
from pipeline.scale.store import Opened, Store
from pipeline.spans import span

Read = Callable[[int, int, np.ndarray], np.ndarray]  # groups from one to another, into a buffer
Columns = np.ndarray | None  # numbers of features; None: all


class Format(Protocol):
    """What is kept of an image, and how features come from it."""

    n_features: int
    dtype: np.dtype  # of the features
    width: int  # numbers kept of an image
    kept: np.dtype  # their type
    lanes: int  # images that lie together in a file

    def pack(self, pixels: np.ndarray) -> np.ndarray:
        """Return what is kept (m, width) of preprocessed images (m, h, w)."""

    def grouped(self, kept: np.ndarray) -> np.ndarray:
        """Return the same as a file holds it, groups of `lanes` images."""

    def expand(
        self, read: Read, places: np.ndarray, outs: Sequence[np.ndarray], sets: Sequence[Columns]
    ) -> None:
        """Write features of sets of columns; `places` (groups * lanes,) says to which row an image's go."""


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
        self.width = unexpanded.width(self.layout, extractor.block_norm)
        self.lanes, self.grouped = unexpanded.LANES, unexpanded.grouped
        self.kept = self.pack(np.zeros((1, *self.layout.image_shape), source)).dtype
        self._expander = unexpanded.Expander(self.layout, extractor.block_norm, self.kept)

    def pack(self, pixels: np.ndarray) -> np.ndarray:
        """Return histograms and factors (m, width) of preprocessed images (m, h, w)."""
        given = self.extractor
        return self._kernels.cells(pixels, self.layout, given.block_norm, given.transform_sqrt, given.dtype)

    def expand(
        self, read: Read, places: np.ndarray, outs: Sequence[np.ndarray], sets: Sequence[Columns]
    ) -> None:
        """Write features of sets of columns; `places` (groups * lanes,) says to which row an image's go."""
        self._expander(read, places, outs, sets)

    def store(self, folder: Path, chunk_rows: int) -> Store:
        """Return a store of what is kept, empty."""
        return Store(folder, self.width, self.kept, chunk_rows, self.lanes, self.grouped)


class Buffers:
    """Memory into which blocks are expanded; all rows of a run share it, since one block is looked at at a time.

    Parameters
    ----------
    format : of the features
    rows : of a block of all features
    drawn : rows of a block of some of them; None: as many
    """

    def __init__(self, format: Format, rows: int, drawn: int | None = None) -> None:
        self.rows, self.drawn = rows, drawn or rows
        self.features = np.empty(rows * format.n_features, format.dtype)
        self._cast = np.empty(0, format.dtype)

    def blocks(self, rows: int, widths: Sequence[int]) -> list[np.ndarray]:
        """Return the memory for blocks of the same rows."""
        if rows * sum(widths) > self.features.size:  # two sets of columns may be more than the features are
            self.features = np.empty(rows * sum(widths), self.features.dtype)
        return _shaped(self.features, rows, widths)

    def cast(self, blocks: list[np.ndarray], dtype: str) -> list[np.ndarray]:
        """Return the blocks in another type, in a second buffer."""
        if self.features.dtype == dtype:
            return blocks
        if self._cast.dtype != dtype or self._cast.size != self.features.size:
            self._cast = np.empty(self.features.size, dtype)
        out = _shaped(self._cast, len(blocks[0]), [block.shape[1] for block in blocks])
        for mine, block in zip(out, blocks, strict=True):
            mine[...] = block
        return out


def _shaped(memory: np.ndarray, rows: int, widths: Sequence[int]) -> list[np.ndarray]:
    """Return the beginning of the memory as arrays of so many rows, one after another."""
    bounds = rows * np.cumsum([0, *widths])
    return [memory[a:b].reshape(rows, -1 if b > a else 0) for a, b in pairwise(bounds)]


class _Piece(NamedTuple):
    """Rows of a chunk that belong to one block."""

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
        self._cuts: dict[int, list[list[_Piece]]] = {}

    def _cut(self, most: int) -> list[list[_Piece]]:
        """Return the pieces of each block of at most so many rows."""
        if most not in self._cuts:
            starts = [chunk.first for chunk in self.store.chunks]
            self._cuts[most] = [
                list(self._pieces(self.index[a : a + most], starts)) for a in range(0, len(self.index), most)
            ]
        return self._cuts[most]

    @staticmethod
    def _pieces(index: np.ndarray, starts: list[int]) -> Iterator[_Piece]:
        of = np.searchsorted(starts, index, side="right") - 1
        for number in np.unique(of):
            yield _Piece(int(number), index[of == number] - starts[number])

    def blocks(
        self, dtype: str, columns: Sequence[np.ndarray] | None = None
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield (begin, end, features[begin:end]), in order; the next block takes its memory.

        With `columns`, sets of them, yield features[begin:end, set] of each set instead of all features.
        """
        sets: Sequence[Columns] = [None] if columns is None else columns
        widths = [self.shape[1] if one is None else len(one) for one in sets]
        begin = 0
        for pieces in self._cut(self.buffers.rows if columns is None else self.buffers.drawn):
            end = begin + sum(len(piece.rows) for piece in pieces)
            with span("expand"):
                blocks, at = self.buffers.blocks(end - begin, widths), 0
                for piece in pieces:
                    self._expand(piece, [block[at : at + len(piece.rows)] for block in blocks], sets)
                    at += len(piece.rows)
                cast = self.buffers.cast(blocks, dtype)
            yield begin, end, cast[0] if columns is None else cast
            begin = end

    def _expand(self, piece: _Piece, outs: list[np.ndarray], sets: Sequence[Columns]) -> None:
        lanes = self.format.lanes
        first, last = int(piece.rows[0]) // lanes, int(piece.rows[-1]) // lanes
        places = np.full((last + 1 - first) * lanes, -1)
        places[piece.rows - first * lanes] = np.arange(len(piece.rows))
        with self.store.opened(piece.chunk) as chunk:
            self.format.expand(functools.partial(_from, chunk, first), places, outs, sets)

    def classes_at_once(self, q: int) -> int:
        """Return for how many classes memory holds the Gram matrices of q columns."""
        return classes(self.gram_bytes, q)


def _from(chunk: Opened, first: int, begin: int, end: int, buffer: np.ndarray) -> np.ndarray:
    """Read groups of a chunk, counted from its group `first` on."""
    return chunk.read(first + begin, first + end, buffer)
