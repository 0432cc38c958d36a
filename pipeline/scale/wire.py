"""What partitions elsewhere are asked and what they answer: messages, their sums in a fixed tree, their size."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pipeline.backends import triangle
from pipeline.backends.protocol import Sums
from pipeline.boosting.messages import Moments, Report, Request, pooled


@dataclass(frozen=True)
class Order:
    """A question to partitions, and what they must have done before: it may be asked twice.

    Attributes
    ----------
    team : the set of rows that is asked, "train" or "watch"
    what : a method of :class:`pipeline.boosting.partition.Partition`
    arguments : its arguments
    begun : number of the ``begin`` that counts
    kept : how many moves the scores must hold
    last : number of the last of them; a partition that has tried it, but not kept it, keeps it now
    number : of this order, if it is a move
    """

    team: str
    what: str
    arguments: tuple[Any, ...] = ()
    begun: int = 0
    kept: int = 0
    last: int = 0
    number: int = 0


class Answer(NamedTuple):
    """What some partitions say together."""

    value: Any
    lost: tuple[int, ...] = ()  # partitions that do not have what the order asks of them


@dataclass(frozen=True)
class Begun:
    """How the scores of a team came about, the same for all partitions: what a lost one is made again from."""

    number: int
    frame: Any
    steps: list[Any]
    moves: list[tuple[int, Any]] = field(default_factory=list)  # (number, move) of those kept


def packed(sums: Sums | None, get: Any, lower: bool = False) -> Sums | None:
    """Return sums in host memory, their Gram matrices as triangles: they are symmetric.

    Of each matrix the rows of the upper triangle lie end to end: float64 (classes, q (q + 1) / 2).

    Parameters
    ----------
    get : copies an array of the backend to the host
    lower : whether the lower triangles are those that count
    """
    if sums is None:
        return None
    rest = [None if one is None else np.ascontiguousarray(get(one)) for one in sums]
    gram = rest[4]
    if gram is not None:
        gram = _triangles(gram.transpose(0, 2, 1) if lower else gram) if len(gram) else None
    return Sums(rest[0], rest[1], rest[2], rest[3], gram, rest[5])


def unpacked(sums: Sums | None, panels: bool = False) -> Sums | None:
    """Return sums as a backend takes them: the upper triangles of the Gram matrices are filled.

    Parameters
    ----------
    panels : whether it is `cpu`, which takes large matrices in panels
    """
    if sums is None or sums.gram is None:
        return sums
    gram = sums.gram
    q = int((np.sqrt(8 * gram.shape[1] + 1) - 1) / 2)
    panels = panels and q > triangle.SQUARE
    whole = np.zeros((len(gram), triangle.size(q) if panels else q * q))
    if q <= SMALL and not panels:
        whole[:, _places(q)] = gram
    else:
        for one, flat in zip(whole, gram, strict=True):
            for row, numbers in zip(_rows(one, q, panels), _rows_of_all(flat, q), strict=True):
                row[:] = numbers
    return sums._replace(gram=whole if panels else whole.reshape(len(gram), q, q))


SMALL = 1024  # columns up to which the places in a triangle are kept; a row at a time took 1 ms at q = 128, now .3


@functools.cache
def _places(q: int) -> np.ndarray:
    """Return where the upper triangle's numbers lie in a matrix (q, q), row by row."""
    return np.flatnonzero(np.triu(np.ones((q, q), dtype=bool)))


def _triangles(gram: np.ndarray) -> np.ndarray:
    """Return the rows of upper triangles end to end, of matrices (classes, q, q) or panels (classes, numbers)."""
    classes, panels = len(gram), gram.ndim == 2
    q = triangle.order(gram.shape[1]) if panels else gram.shape[1]
    if q <= SMALL and not panels:
        return np.take(np.ascontiguousarray(gram).reshape(classes, q * q), _places(q), axis=1)
    found = np.empty((classes, q * (q + 1) // 2))
    for flat, one in zip(found, gram, strict=True):
        for numbers, row in zip(_rows_of_all(flat, q), _rows(one, q, panels), strict=True):
            numbers[:] = row
    return found


def _rows(gram: np.ndarray, q: int, panels: bool) -> Iterator[np.ndarray]:
    """Yield the rows of an upper triangle, from the diagonal on, as views."""
    if panels:
        return triangle.rows(gram, q)
    square = gram.reshape(q, q)
    return (square[k, k:] for k in range(q))


def _rows_of_all(flat: np.ndarray, q: int) -> Iterator[np.ndarray]:
    """Yield the same where they lie end to end."""
    ends = itertools.accumulate(range(q, 0, -1))
    return (flat[end - q + k : end] for k, end in enumerate(ends))


def added(one: Answer, other: Answer) -> Answer:
    """Return what two sets of partitions say together; neither is changed: either may be asked for again."""
    return Answer(_added(one.value, other.value), one.lost + other.lost)


def _added(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Share):
        return min(one, other)
    if isinstance(one, Moments):
        return pooled([one, other])
    if isinstance(one, Report):
        return Report(max(one.largest, other.largest), one.loss + other.loss, _added(one.sums, other.sums))
    if isinstance(one, tuple):
        both = map(_added, one, other)
        return Sums(*both) if isinstance(one, Sums) else tuple(both)
    return one + other


class Share(float):
    """A share of a move: of several the smallest counts."""


def folded(answers: Sequence[Answer]) -> Answer:
    """Return what partitions say together, added in pairs of neighbours, pairs of pairs, and so on.

    The order depends on the numbers of the partitions only, not on who adds: a part of the tree whose partitions
    begin at a multiple of its size may be added elsewhere, with the same result.
    """
    while len(answers) > 1:
        pairs = [answers[i : i + 2] for i in range(0, len(answers), 2)]
        answers = [added(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return answers[0]


@dataclass(frozen=True)
class Leaf:
    """Neighbouring partitions that one worker holds: it adds their answers itself."""

    first: int
    stop: int
    worker: str


@dataclass(frozen=True)
class Pair:
    """Two parts of the tree whose sums are added."""

    left: Node
    right: Node


Node = Leaf | Pair


def tree(owners: Sequence[str], first: int = 0, size: int | None = None) -> Node:
    """Return the tree in which the answers of all partitions are added, in as large leaves as lie on one worker.

    Parameters
    ----------
    owners : of each partition the worker that holds it
    """
    if size is None:
        size = 1 << (len(owners) - 1).bit_length() if len(owners) > 1 else 1
    stop = min(first + size, len(owners))
    if len(set(owners[first:stop])) == 1:
        return Leaf(first, stop, owners[first])
    half = size // 2
    left = tree(owners, first, half)
    if first + half >= stop:
        return left
    return Pair(left, tree(owners, first + half, half))


def leaves(node: Node) -> list[Leaf]:
    """Return the leaves of a tree, in order."""
    return [node] if isinstance(node, Leaf) else leaves(node.left) + leaves(node.right)


def awaited(order: Order) -> int:
    """Return about how many bytes the answer to an order has: those of its Gram matrices, which are most of it."""
    if order.what not in ("sums", "advance"):
        return 0
    asked = [one for one in order.arguments if isinstance(one, Request)]
    counts = ((one.classes.stop - one.classes.start, one.basis.size) for one in asked)
    return sum(8 * (classes * q * (q + 1) // 2) for classes, q in counts)


def numbers_up(q: int, classes: int, fitted: int, componentwise: bool = False) -> int:
    """Return how many float64 numbers the sums of a round are: q columns, Gram matrices of `classes` of `fitted`."""
    if componentwise:
        return 3 * q * fitted + 2 * fitted
    return classes * q * (q + 1) // 2 + 2 * q * fitted + 2 * fitted


def numbers_down(q: int, fitted: int, columns: bool) -> int:
    """Return how many 8-byte numbers a step is, the request for the next sums, and the columns of the round after."""
    return q * fitted + fitted + (3 * q if columns else 0)


def numbers_refined(q: int, fitted: int, columns: bool) -> tuple[int, int]:
    """Return how many 8-byte numbers the exchange has that refines a fit, down and up: the fit, and X'e with its sums.

    The request names the columns of the round again, if they are some of all.
    """
    fit = q * fitted + fitted
    return fit + (q if columns else 0), fit


def payload(message: Any) -> int:
    """Return the bytes of the arrays in a message; what is around them is a few hundred more."""
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, list | tuple):
        return sum(map(payload, message))
    if hasattr(message, "__dataclass_fields__"):
        return sum(payload(getattr(message, name)) for name in message.__dataclass_fields__)
    return 0
