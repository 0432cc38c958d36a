"""The normal equations of many columns: a class's Gram matrix as a triangle, and the factor in its place.

What is solved is what :mod:`pipeline.backends.solve` says; here is how it lies in memory. Sums are float64 numbers of
the upper triangle (:mod:`pipeline.backends.triangle`). Of float32 rows each of them gives way to two numbers of half
its size: its cosine, and its place in the normal matrix, a float32 number that the factorisation overwrites.

A cosine is a sum divided by the roots of the two diagonal elements, in steps of 2^-31. Its rounding, 2e-10, is far
below that of float32 products, and that of 3240 columns together changes a normal matrix by 1e-8.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.backends import cholesky_panels, triangle
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, light_kernel, light_summing_kernel, prepare
from pipeline.backends.cpu.wls_blocks import one_blas_thread

ROWS = 32  # of a panel that a thread works on at a time
STEP = 2.0**-31  # of a cosine


@dataclass(frozen=True)
class Gram:
    """The Gram matrix X'WX of the active ones of q columns, as :func:`pipeline.backends.solve.factorise` takes it.

    Columns that are not active stay where they are: their rows of the normal matrix become those of the identity.

    Attributes
    ----------
    sums : panels of float64 sums, or of int32 cosines
    root : float64 (q,): element (i, k) is that of `sums` times root_i root_k
    place : panels for the float32 normal matrix, beside the cosines; None: it gets a place of its own, in float64
    raw : float64 (q,), the diagonal
    columns : intp (a,), the active columns
    """

    sums: list[np.ndarray]
    root: np.ndarray
    place: list[np.ndarray] | None
    raw: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, flat: np.ndarray, q: int, single: bool) -> Gram:
        """Return the matrix of all q columns.

        Parameters
        ----------
        flat : float64, panels of the sums; overwritten if `single`
        single : whether the sums are of float32 rows: they become cosines

        Raises
        ------
        LinAlgError
            If one of them is not finite and `single`; else the factorisation finds it.
        """
        whole, every = triangle.panels(flat, q), np.arange(q)
        raw = np.concatenate([np.zeros(0), *(panel.diagonal() for panel in whole)])
        if not single:
            return cls(whole, np.ones(q), None, raw, every)
        root = np.sqrt(np.maximum(raw, 0.0) * STEP)
        inverse = np.divide(1.0, root, out=np.zeros(q), where=root > 0.0)
        cosines = [one.view(np.int32)[:, one.shape[1] :] for one in whole]
        pieces = _pieces(q)
        checks = np.zeros(len(pieces))

        def code(i: int) -> None:
            k, a, begin, end = pieces[i]
            checks[i] = _to_cosines(whole[k], cosines[k], inverse[a:], begin, end)

        prepare(_to_cosines, whole[0], cosines[0], inverse, 0, 0)
        kernels.share(code, len(pieces), parallel=flat.size > kernels.SERIAL)
        if np.isnan(checks).any() or not np.isfinite(raw).all():
            raise np.linalg.LinAlgError("the weighted Gram matrix is not finite")
        place = [one.view(np.float32)[:, : one.shape[1]] for one in whole]
        return cls(cosines, root, place, raw, every)

    @property
    def shape(self) -> tuple[int, int]:
        """(a, a)."""
        return self.columns.size, self.columns.size

    def diagonal(self) -> np.ndarray:
        """Return the diagonal, float64 (a,)."""
        return self.raw[self.columns]

    def among(self, active: np.ndarray) -> Gram:
        """Return the matrix of some of these columns only."""
        return dataclasses.replace(self, columns=self.columns[active])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a triangle becomes a square in a copy only")
        found = triangle.square(self.sums) * self.root
        found *= self.root[:, None]
        np.fill_diagonal(found, self.raw)
        return found[np.ix_(self.columns, self.columns)].astype(dtype or np.float64, copy=False)

    def times(self, x: np.ndarray) -> np.ndarray:
        """Return the product with a vector (a,)."""
        wide = np.zeros(self.raw.size)
        wide[self.columns] = self.root[self.columns] * x
        pieces = _pieces(wide.size)
        # every so many pieces: each sum is of about as many numbers, and does not depend on the number of threads
        totals = np.zeros((kernels.SEGMENTS, wide.size))

        def add(segment: int) -> None:
            for k, a, begin, end in pieces[segment :: kernels.SEGMENTS]:
                _add_product(self.sums[k], wide[a:], begin, end, totals[segment, a:])

        prepare(_add_product, self.sums[0], wide, 0, 0, totals[0])
        kernels.share(add, kernels.SEGMENTS, parallel=wide.size**2 > kernels.SERIAL)
        return (self.root * np.add.reduce(totals))[self.columns] + self.diagonal() * x

    def normal(
        self,
        diagonal: np.ndarray,
        xw: np.ndarray,
        sw: float,
        scale: np.ndarray,
        l2: float,
        dtype: str = "float64",
    ) -> NormalPanels:
        """As :func:`pipeline.backends.solve.normal_matrix`; what it returns is still to be factorised."""
        q, spread = self.raw.size, functools.partial(_spread, self.columns, self.raw.size)
        factor = -1.0 / sw if sw > 0.0 else 0.0
        unit = np.ones(q)
        unit[self.columns] = (diagonal + factor * xw * xw + l2) * (scale * scale)
        place = self.place
        if place is None:
            place = triangle.panels(np.empty(triangle.size(q)), q)
        wide, scales, pieces = spread(xw), spread(scale), _pieces(q)

        def write(i: int) -> None:
            k, a, begin, end = pieces[i]
            vectors = self.root[a:], wide[a:], scales[a:], unit[a:]
            _normal_rows(self.sums[k], *vectors, factor, begin, end, place[k])

        prepare(_normal_rows, self.sums[0], self.root, wide, scales, unit, factor, 0, 0, place[0])
        kernels.share(write, len(pieces), parallel=q * q > kernels.SERIAL)
        return NormalPanels(place, self.columns)


@dataclass(frozen=True)
class NormalPanels:
    """A normal matrix in panels; after :func:`factorise`, its Cholesky factor U.

    Attributes
    ----------
    panels : float32 or float64
    columns : intp (a,), the active columns: of others the matrix is the identity
    """

    panels: list[np.ndarray]
    columns: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(a, a)."""
        return self.columns.size, self.columns.size

    def diagonal(self) -> np.ndarray:
        """Return the diagonal (a,)."""
        return np.concatenate([panel.diagonal() for panel in self.panels])[self.columns]

    def divide(self, rhs: np.ndarray) -> np.ndarray:
        """Return the solution x (a,) of U'U x = rhs, in the type of U."""
        x = _spread(self.columns, self.panels[0].shape[1], rhs).astype(self.panels[0].dtype)
        with one_blas_thread:
            cholesky_panels.solve(self.panels, x)
        return x[self.columns]


def factorise(matrix: NormalPanels) -> int:
    """Overwrite a normal matrix with its factor; return LAPACK's info."""
    with one_blas_thread:
        return cholesky_panels.factorise(matrix.panels, functools.partial(kernels.share, parallel=True))


def _spread(columns: np.ndarray, q: int, values: np.ndarray) -> np.ndarray:
    """Return values (q,) of all columns from those of the active ones; the others get 0."""
    found = np.zeros(q)
    found[columns] = values
    return found


@functools.cache
def _pieces(q: int) -> list[tuple[int, int, int, int]]:
    """Return (panel, its first row, begin, end) of sets of rows of all panels, counted within the panel."""
    edges = enumerate(triangle.edges(q))
    return [(k, a, i, min(i + ROWS, b - a)) for k, (a, b) in edges for i in range(0, b - a, ROWS)]


@kernel
def _to_cosines(sums, cosines, inverse, begin, end):
    """Write cosines of rows begin:end of a panel, right of its diagonal, where sums lay; NaN if one is not finite.

    Both lie in the same memory, so a row of sums is copied first.
    """
    row = np.empty(sums.shape[1])
    check, most = 0.0, 2147483647.0
    for r in range(begin, end):
        for k in range(r + 1, row.size):
            row[k] = sums[r, k]
        for k in range(r + 1, row.size):
            x = row[k] * (inverse[r] * inverse[k])
            check += x * 0.0
            x = x if x < most else most
            cosines[r, k] = np.int32(np.rint(x if x > -most else -most))
    return check


@light_kernel
def _normal_rows(sums, root, xw, scale, unit, factor, begin, end, out):
    """Write rows begin:end of a panel of the normal matrix; the vectors begin at the panel's first row."""
    for r in range(begin, end):
        x, s, u = factor * xw[r], scale[r], root[r]
        out[r, r] = unit[r]
        for k in range(r + 1, out.shape[1]):
            out[r, k] = (sums[r, k] * (u * root[k]) + x * xw[k]) * (s * scale[k])


@light_summing_kernel
def _add_product(sums, x, begin, end, total):
    """Add what rows begin:end of a panel, right of the diagonal, and the columns opposite are times x to `total`."""
    for r in range(begin, end):
        own, found = x[r], 0.0
        for k in range(r + 1, sums.shape[1]):
            found += sums[r, k] * x[k]
            total[k] += sums[r, k] * own
        total[r] += found
