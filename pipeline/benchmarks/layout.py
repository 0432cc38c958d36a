"""Suite ``layout``: what the order of numbers in memory costs, and when a copy is made that nobody asked for.

The matrix is A[i, j] = (7 i + 3 j) mod 16, so every result has a closed form: 3 has no divisor in common with 16,
hence any 16 neighbours in a row are 0 to 15 in some order, and likewise down a column. The rows of a group, named
before the colon, do the same task.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline.benchmarks.registry import Case, Setup, Work, largest_difference, row, suite


def values(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return A[i, j] by its formula."""
    return ((7 * i + 3 * j) % 16).astype(np.float64)


@suite("layout", share=0.12)
def case(setup: Setup) -> Case:
    """Return the matrix in both orders and precisions, and half of its numbers in random places."""
    n = setup.choose(3072, 1024, 32)
    matrix = values(np.arange(n)[:, None], np.arange(n))
    mask = np.random.default_rng(setup.seed).random(n * n) < 0.5
    data = SimpleNamespace(
        n=n, matrix=matrix, fortran=np.asfortranarray(matrix), mask=mask, index=np.flatnonzero(mask)
    )
    work = f"tasks on a matrix of {n:,} x {n:,} float64 ({matrix.nbytes / 1e6:,.0f} MB)"
    notes = [
        "the rows of a group, named before the colon, do the same task; speeds are compared with its first row"
    ]

    def error(found: Any) -> float:
        raise AssertionError("every row of this suite judges its own result")

    return Case(data, error, 0.0, 0, "largest difference", work, setup, notes)


def _work(
    run: Callable[[], object],
    wanted: Callable[[], np.ndarray],
    nbytes: int,
    note: str = "",
    tolerance: float = 0.0,
) -> Work:
    """Return the work, judged by a closed form that is computed only when it is needed."""

    def error(found: Any) -> float:
        return largest_difference(wanted())(found)

    return Work(
        run,
        error=error,
        tolerance=tolerance,
        nbytes=nbytes,
        note=note,
    )


def _even_rows(case: Case) -> np.ndarray:
    n = case.data.n
    return values(np.arange(0, n, 2)[:, None], np.arange(n))


@row("layout", "half: a copy of every second row")
def _copy(case: Case) -> Work:
    A = case.data.matrix
    return _work(lambda: np.array(A[::2]), lambda: _even_rows(case), A.nbytes)


@row("layout", "half: a view of every second row")
def _view(case: Case) -> Work:
    A = case.data.matrix
    return _work(lambda: A[::2], lambda: _even_rows(case), 0, "no number is touched")


def _picked(case: Case) -> np.ndarray:
    i, j = np.divmod(np.arange(case.data.n**2)[case.data.mask], case.data.n)
    return values(i, j)


def _picked_bytes(case: Case, selector: np.ndarray) -> int:
    return 8 * 2 * case.data.index.size + selector.nbytes


@row("layout", "pick: mask, A[mask]")
def _mask(case: Case) -> Work:
    flat, chosen = case.data.matrix.ravel(), case.data.mask
    return _work(
        lambda: flat[chosen], lambda: _picked(case), _picked_bytes(case, chosen), "half of all numbers"
    )


@row("layout", "pick: fancy index, A[index]")
def _fancy(case: Case) -> Work:
    flat, chosen = case.data.matrix.ravel(), case.data.index
    return _work(lambda: flat[chosen], lambda: _picked(case), _picked_bytes(case, chosen), "the same half")


@row("layout", "pick: take(A, index)")
def _take(case: Case) -> Work:
    flat, chosen = case.data.matrix.ravel(), case.data.index
    return _work(
        lambda: flat.take(chosen), lambda: _picked(case), _picked_bytes(case, chosen), "the same half"
    )


def _sums(case: Case) -> np.ndarray:
    return np.full(case.data.n, 7.5 * case.data.n)  # n / 16 times 0 + 1 + ... + 15


def _one_by_one(case: Case, lines: np.ndarray, note: str) -> Work:
    note += f"; a Python loop of {len(lines):,} calls"
    return _work(lambda: np.array([line.sum() for line in lines]), lambda: _sums(case), lines.nbytes, note)


@row("layout", "sums: row-major, one by one")
def _columns_of_rows(case: Case) -> Work:
    return _one_by_one(case, case.data.matrix.T, "of columns, strided: a cache line a number")


@row("layout", "sums: column-major, one by one")
def _columns_of_columns(case: Case) -> Work:
    return _one_by_one(case, case.data.fortran.T, "of columns, contiguous")


@row("layout", "sums: row-major, A.sum(axis=0)")
def _columns_at_once(case: Case) -> Work:
    A = case.data.matrix
    return _work(lambda: A.sum(axis=0), lambda: _sums(case), A.nbytes, "one call: NumPy adds row to row")


def _numba_sum(case: Case, by_rows: bool) -> Work:
    import numba

    @numba.njit
    def columns(A):
        out = np.zeros(A.shape[1])
        for j in range(A.shape[1]):
            for i in range(A.shape[0]):
                out[j] += A[i, j]
        return out

    @numba.njit
    def rows(A):
        out = np.zeros(A.shape[1])
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                out[j] += A[i, j]
        return out

    A, run = case.data.matrix, rows if by_rows else columns
    return _work(
        lambda: run(A),
        lambda: _sums(case),
        A.nbytes,
        f"one call: inner loop over {'j' if by_rows else 'i'} of A[i, j]",
    )


@row("layout", "sums: Numba, inner loop down")
def _numba_down(case: Case) -> Work:
    return _numba_sum(case, by_rows=False)


@row("layout", "sums: Numba, inner loop along")
def _numba_along(case: Case) -> Work:
    return _numba_sum(case, by_rows=True)


def _added(case: Case) -> np.ndarray:
    j = np.arange(case.data.n)
    return values(j[:, None], j) + j


@row("layout", "repeat: A + tile(v, (n, 1))")
def _tile(case: Case) -> Work:
    A, v = case.data.matrix, np.arange(case.data.n, dtype=np.float64)
    return _work(
        lambda: A + np.tile(v, (len(A), 1)), lambda: _added(case), 2 * A.nbytes, "v is copied n times"
    )


@row("layout", "repeat: A + v")
def _broadcast(case: Case) -> Work:
    A, v = case.data.matrix, np.arange(case.data.n, dtype=np.float64)
    return _work(lambda: A + v, lambda: _added(case), 2 * A.nbytes, "broadcast: v stays in the cache")


def _root(case: Case, A: np.ndarray, tolerance: float) -> Work:
    def wanted() -> np.ndarray:
        j = np.arange(case.data.n)
        return np.sqrt(np.arange(16.0))[values(j[:, None], j).astype(np.intp)]

    return _work(lambda: np.sqrt(A), wanted, 2 * A.nbytes, f"precise to {tolerance:.0e}", tolerance)


@row("layout", "precision: sqrt(A), float64")
def _double(case: Case) -> Work:
    return _root(case, case.data.matrix, 1e-15)


@row("layout", "precision: sqrt(A), float32")
def _single(case: Case) -> Work:
    return _root(case, case.data.matrix.astype(np.float32), 3e-7)
