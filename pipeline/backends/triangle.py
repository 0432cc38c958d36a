"""The upper triangle of a large symmetric matrix in panels of rows: little more than half of the square's memory.

A panel holds HEIGHT rows, from the column on in which its first row has the diagonal: rows a:b of a matrix (q, q) are
b - a rows of q - a numbers. The panels follow one another in one flat array. Numbers of one column lie equally far
apart throughout a panel, as BLAS wants them: to it a panel is a block of columns of the lower triangle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

SQUARE = (
    768  # columns up to which a Gram matrix is kept as a square; beyond, where the cpu works on it, in panels
)
HEIGHT = 256  # rows of a panel: depth of the products of a factorisation; half a square of them is lost in each panel


def edges(q: int) -> list[tuple[int, int]]:
    """Return (a, b) of each panel: rows a:b of q."""
    return [(a, min(a + HEIGHT, q)) for a in range(0, q, HEIGHT)]


def size(q: int) -> int:
    """Return how many numbers the panels of a matrix (q, q) are."""
    return sum((b - a) * (q - a) for a, b in edges(q))


def kept(q: int) -> int:
    """Return how many numbers a class's Gram matrix of q columns is: a square's, or its panels'."""
    return q * q if q <= SQUARE else size(q)


def order(numbers: int) -> int:
    """Return q of a matrix (q, q) whose panels are so many numbers."""
    q = math.isqrt(2 * numbers)
    while size(q) > numbers:
        q -= 1
    return q


def starts(q: int) -> np.ndarray:
    """Return where the rows of a matrix (q, q) lie, intp (q,): element (i, k) is number starts[i] + k of the panels."""
    found, begin = np.empty(q, dtype=np.intp), 0
    for a, b in edges(q):
        found[a:b] = begin - a + (q - a) * np.arange(b - a)
        begin += (b - a) * (q - a)
    return found


def panels(flat: np.ndarray, q: int) -> list[np.ndarray]:
    """Return the panels (b - a, q - a) of a flat array, as views."""
    found, begin = [], 0
    for a, b in edges(q):
        end = begin + (b - a) * (q - a)
        found.append(flat[begin:end].reshape(b - a, q - a))
        begin = end
    return found


def rows(flat: np.ndarray, q: int) -> Iterator[np.ndarray]:
    """Yield the rows of the upper triangle of panels, from the diagonal on, as views."""
    for i, begin in enumerate(starts(q)):
        yield flat[begin + i : begin + q]


def square(whole: Sequence[np.ndarray]) -> np.ndarray:
    """Return the symmetric matrix (q, q), in their type, whose panels are given."""
    q = whole[0].shape[1] if whole else 0
    found = np.zeros((q, q), dtype=whole[0].dtype if whole else np.float64)
    for (a, b), panel in zip(edges(q), whole, strict=True):
        found[a:b, a:] = np.triu(panel)
    below = np.tril_indices(q, -1)
    found[below] = found.T[below]
    return found
