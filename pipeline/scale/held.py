"""A part of the images as a worker holds it: read, described, divided, and asked for sums. Knows nothing of Dask."""

from __future__ import annotations

import hashlib
import threading
from concurrent import futures
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline import backends, datasets
from pipeline.boosting.messages import Report
from pipeline.boosting.partition import Partition
from pipeline.datasets.pieces import Piece, read_piece
from pipeline.errors import DataError
from pipeline.features.images import features
from pipeline.scale.recipe import Recipe, backend_at_work, extractor, probabilities
from pipeline.scale.told import First, Told
from pipeline.scale.wire import Answer, Begun, Order, Share, folded, packed

# Does what can be done before it is asked for, while answers travel and the process that asks solves.
_MEANWHILE = futures.ThreadPoolExecutor(1, "hogboost-meanwhile")
MOVED = 64  # rows that are moved at a time


@dataclass(frozen=True)
class Own:
    """The rows of a piece that belong to a team: to fit, or to watch."""

    rows: np.ndarray  # int32 (m,), in the piece, rising
    codes: np.ndarray  # int32 (m,) class numbers
    weight: np.ndarray | None  # float64 (m,); None: all 1


@dataclass
class Past:
    """What was done with a piece since it was read: a worker that takes it over does it again."""

    dtype: str = ""  # in which the rows are fitted
    teams: dict[str, Own] = field(default_factory=dict)
    held_out: np.ndarray | None = None  # int32, rising; None: not divided yet
    scores: dict[str, np.ndarray] = field(default_factory=dict)  # with which a team began


class _Team:
    """The partition of a team, and how far its scores are."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.begun = self.kept = self.last = self.tried = 0

    def ready(self, order: Order) -> bool:
        """Make the scores what the order asks for, if that takes no more than keeping the last move."""
        if self.begun != order.begun:
            return False
        if self.kept == order.kept - 1 and self.tried == order.last:
            self.partition.keep()
            self.kept, self.last, self.tried = order.kept, order.last, 0
        return (self.kept, self.last) == (order.kept, order.last)


class Held:
    """A piece in the memory of a worker. It is never sent, spilled or copied: what is lost is made again.

    Parameters
    ----------
    number : of the piece
    piece : what to read
    recipe : how to make features of it
    past, begun : what was done with it, on another worker, before
    first : what was told of it when it was read first; None: this is the first time

    Raises
    ------
    ChangedError
        If it is not what it was.
    """

    def __init__(
        self,
        number: int,
        piece: Piece,
        recipe: Recipe,
        past: Past | None = None,
        begun: dict[str, Begun] | None = None,
        first: First | None = None,
    ) -> None:
        self.number, self.recipe = number, recipe
        self.teams: dict[str, _Team] = {}
        self._lock = threading.RLock()
        with self.working():
            self.extractor = extractor(recipe)
            self.features, self.told = self._read(piece)
            if first is not None:
                first.check(number, piece, self.told)
            past = past or Past()
            if past.held_out is not None:
                self.divide(past)
            for name, one in (begun or {}).items():
                self.begin(name, one, past.scores.get(name))
                team = self.teams[name]
                for serial, move in one.moves:
                    team.partition.advance(move)
                    team.partition.keep()
                    team.kept, team.last = team.kept + 1, serial

    def __reduce__(self) -> Any:
        raise TypeError("the rows of a worker stay where they are")

    def working(self) -> AbstractContextManager[Any]:
        """Return a context in which nobody else works in this process; it gives the backend."""
        return backend_at_work(self.recipe.hog["backend"], self.recipe.threads, self.recipe.device)

    def _read(self, piece: Piece) -> tuple[Any, Told]:
        recipe, backend = self.recipe, backends.get(self.recipe.hog["backend"])
        size = max(piece.end - piece.begin, 0)
        X = backend.xp.empty((size, self.extractor.layout_.n_features), dtype=recipe.hog["dtype"])
        labels, digests = [np.zeros(0, np.int32)], list[bytes]()
        paths, rejected = list[str](), list[datasets.Rejected]()
        seconds: dict[str, float] = {}
        for loaded in read_piece(piece, recipe.chunk, recipe.threads):
            images, first = loaded.images, len(paths)
            rejected += loaded.rejected
            for key, value in loaded.native_seconds.items():
                seconds[key] = seconds.get(key, 0.0) + value
            if not len(images):
                continue
            self._describe(images, X[first : first + len(images), :])
            if images.labels is not None:
                labels.append(images.labels.astype(np.int32))
            paths += images.paths
            digests += [hashlib.blake2b(one.data, digest_size=16).digest() for one in images.pixels]
        found = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
        return backend.resident(X[: len(paths), :]), Told(
            np.concatenate(labels), paths, found, rejected, seconds
        )

    def _describe(self, images: datasets.Images, out: Any) -> None:
        """Write the features of images (m, p): in host memory where they are to lie, without a copy."""
        recipe, backend = self.recipe, backends.get(self.recipe.hog["backend"])
        if isinstance(out, np.ndarray):
            pixels = backend.preprocess.apply(images.pixels, recipe.preprocess)
            self.extractor.transform_into(pixels, out)
            sure = pixels.dtype.kind != "f"  # of whole numbers come no others
        else:
            out[...] = features(images.pixels, None, recipe.preprocess, self.extractor, len(images))
            sure = False
        bad = None if sure else backend.first_not_finite(out)
        if bad is not None:
            raise DataError(
                f"{images.paths[bad]}: its HoG features are not finite; remove the image or use another preprocess="
            )

    def divide(self, past: Past) -> None:
        """Give each team its rows, and keep those that are held out; the features of the piece are let go.

        In host memory the rows change places instead of being copied: that costs less time, and no memory.
        """
        if self.features is None:
            return
        assert past.held_out is not None  # the split is known
        backend = backends.get(self.recipe.hog["backend"])
        wanted = [*(own.rows for own in past.teams.values()), past.held_out]
        shares = divided_in_place(self.features, wanted)
        if shares is None:
            shares = [backend.rows(self.features, rows.astype(np.intp)) for rows in wanted]
        self.held_out, self.features = backend.resident(shares.pop()), None
        for (name, own), X in zip(past.teams.items(), shares, strict=True):
            weight = np.ones(len(own.rows)) if own.weight is None else own.weight
            rows = backend.resident(X.astype(past.dtype, copy=False))
            self.teams[name] = _Team(Partition(backend, rows, own.codes.astype(np.intp), weight))

    def begin(self, name: str, begun: Begun, scores: np.ndarray | None) -> None:
        """Take up a fit, see :meth:`pipeline.boosting.partition.Partition.begin`."""
        team = self.teams[name]
        team.partition.begin(begun.frame, begun.steps, scores)
        team.begun, team.kept, team.last, team.tried = begun.number, 0, 0, 0

    def answer(self, order: Order) -> Answer:
        """Return what the piece says; or that it is lost, if it does not hold what the order asks of it."""
        with self._lock, self.working() as backend:
            if order.what == "probabilities":
                if self.features is not None:
                    return Answer(None, (self.number,))
                return Answer(probabilities(self.extractor, self.held_out, self.recipe, *order.arguments))
            team = self.teams.get(order.team)
            if team is None or not (order.what == "moments" or team.ready(order)):
                return Answer(None, (self.number,))
            return Answer(self._of(team, order, backend))

    def prepare(self, name: str) -> None:
        """Make the columns that a team will be asked for next; an order that comes meanwhile waits."""
        with self._lock, self.working():
            self.teams[name].partition.prepare()

    def _of(self, team: _Team, order: Order, backend: Any) -> Any:
        partition, arguments, lower = team.partition, order.arguments, backend.name == "gpu"
        if order.what == "advance":
            move, request = arguments
            found = partition.advance(move, request)
            team.tried = order.number
            return Report(found.largest, found.loss, packed(found.sums, backend.get, lower))
        found = getattr(partition, order.what)(*arguments)
        if order.what == "sums":
            return packed(found, backend.get, lower)
        if order.what == "residual_sums":
            return None if found[0] is None else tuple(backend.get(one) for one in found)
        return Share(found) if order.what == "room" else found


def divided_in_place(X: Any, wanted: list[np.ndarray]) -> list[np.ndarray] | None:
    """Move rows of X so that those of each list lie together, and return them; None if that is not possible.

    Parameters
    ----------
    X : (n, p); what is in no list is lost
    wanted : numbers of rows, rising, the first list the longest; no row may be in two

    Raises
    ------
    IndexError
        If a number is of no row.
    """
    sizes, numbers = [len(rows) for rows in wanted], np.unique(np.concatenate(wanted))
    if len(numbers) and not (numbers[0] >= 0 and numbers[-1] < len(X)):
        raise IndexError(f"rows {numbers[0]} to {numbers[-1]} are wanted of a piece of {len(X)}")
    if not isinstance(X, np.ndarray) or sum(sizes) != len(numbers):
        return None
    rest = [X[rows] for rows in wanted[1:]]
    block = np.empty((MOVED, X.shape[1]), X.dtype)
    for a in range(
        0, sizes[0], MOVED
    ):  # row k comes from k or beyond: nothing is written over before it is read
        source = wanted[0][a : a + MOVED]
        # No row is beyond the bounds, see above; with "raise" the block would be made twice.
        np.take(X, source, axis=0, out=block[: len(source)], mode="clip")
        X[a : a + len(source)] = block[: len(source)]
    bounds = np.cumsum([0, *sizes])
    for a, b, rows in zip(bounds[1:], bounds[2:], rest, strict=False):
        X[a:b] = rows
    return [X[a:b] for a, b in pairwise(bounds)]


def hold(
    number: int,
    piece: Piece,
    recipe: Recipe,
    past: Past,
    begun: dict[str, Begun] | None = None,
    first: First | None = None,
) -> Held:
    """Take a piece up: the task whose result stays on its worker."""
    return Held(number, piece, recipe, past, begun, first)


def tell(held: Held) -> Answer:
    """Return what the driver hears of a piece."""
    return Answer(held.told)


def divide(held: Held, past: Past) -> Answer:
    """Give the teams their rows, and let the features of the piece go."""
    with held.working():
        held.divide(past)
    return Answer(True)


def begin(held: Held, team: str, begun: Begun, scores: np.ndarray | None) -> Answer:
    """Take up a fit."""
    with held.working():
        if team not in held.teams:
            return Answer(None, (held.number,))
        held.begin(team, begun, scores)
    return Answer(True)


def ask(order: Order, *pieces: Held) -> Answer:
    """Ask neighbouring pieces, and add what they say."""
    answer = folded([one.answer(order) for one in pieces])
    if order.what == "advance" and not answer.lost:
        for (
            one
        ) in pieces:  # an error there is met again when the columns are asked for: nobody need look for it
            _MEANWHILE.submit(one.prepare, order.team)
    return answer


def ask_one(held: Held, order: Order) -> Answer:
    """Ask one piece."""
    return held.answer(order)


def same(message: Any) -> Any:
    """Return a message: the task through which workers hand it on to each other."""
    return message
