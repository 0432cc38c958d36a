"""Cholesky factorisation of a triangle in panels (:mod:`pipeline.backends.triangle`), in place, and solutions.

To BLAS, which counts along columns, a panel is a block of columns of a lower triangle L = U', from its diagonal on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.backends.cholesky import Routines, Share


class _Panel(Routines):
    """The routines that a factorisation is made of, on the columns a:b of L, rows a:q."""

    def __init__(self, panel: np.ndarray, a: int, q: int) -> None:
        super().__init__(panel.dtype)
        if panel.shape[1] != q - a or (q - a > 1 and panel.strides[1] != panel.itemsize):
            raise ValueError(f"a panel of {q - a} adjacent numbers a row was expected")
        self.a, self.b, self.q = a, a + len(panel), q
        self.start, self.item = panel.ctypes.data, panel.itemsize
        self.step = self.whole(panel.strides[0] // panel.itemsize if len(panel) > 1 else q - a)

    def _rows(self, i: int) -> tuple[int, Any]:
        """Return where row i of L begins in this block of columns, and the distance of columns."""
        return self.start + (i - self.a) * self.item, self.step

    def factorise(self) -> int:
        """Factorise the block on the diagonal; return LAPACK's info."""
        info = ctypes.c_int()
        self.call("potrf", b"L", self.whole(self.b - self.a), *self._rows(self.a), ctypes.byref(info))
        return info.value

    def divide(self, c: int, d: int) -> None:
        """Divide rows c:d from the right by the transposed factor of the block on the diagonal."""
        sizes = self.whole(d - c), self.whole(self.b - self.a)
        self.call("trsm", b"R", b"L", b"T", b"N", *sizes, self.real(1.0), *self._rows(self.a), *self._rows(c))

    def subtract_from(self, later: _Panel) -> None:
        """Subtract what this block of columns is in a later one."""
        minus, one, depth = self.real(-1.0), self.real(1.0), self.whole(self.b - self.a)
        c, d = later.a, later.b
        width = self.whole(d - c)
        self.call("syrk", b"L", b"N", width, depth, minus, *self._rows(c), one, *later._rows(c))
        if d < self.q:
            sizes = self.whole(self.q - d), width, depth
            self.call("gemm", b"N", b"T", *sizes, minus, *self._rows(d), *self._rows(c), one, *later._rows(d))

    def solve(self, x: np.ndarray, transposed: bool) -> None:
        """Take the unknowns a:b out of L x = x, or of L'x = x, in place."""
        size, rest, one = self.whole(self.b - self.a), self.whole(self.q - self.b), self.whole(1)
        mine, below = (x.ctypes.data + i * self.item for i in (self.a, self.b))
        product = rest, size, self.real(-1.0), *self._rows(self.b)
        if transposed and self.b < self.q:
            self.call("gemv", b"T", *product, below, one, self.real(1.0), mine, one)
        way = b"T" if transposed else b"N"
        self.call("trsv", b"L", way, b"N", size, *self._rows(self.a), mine, one)
        if not transposed and self.b < self.q:
            self.call("gemv", b"N", *product, mine, one, self.real(1.0), below, one)


def _parts(panels: Sequence[np.ndarray]) -> list[_Panel]:
    q, a, found = panels[0].shape[1] if panels else 0, 0, []
    for panel in panels:
        found.append(_Panel(panel, a, q))
        a += len(panel)
    return found


def factorise(panels: Sequence[np.ndarray], share: Share) -> int:
    """Overwrite the upper triangle of a symmetric matrix with U, matrix = U'U; return LAPACK's info.

    Parameters
    ----------
    panels : float32 or float64, numbers of a row adjacent; what lies left of the diagonal is neither read nor changed
    share : as for :func:`pipeline.backends.cholesky.factorise_upper`

    Returns
    -------
    int
        0, or k > 0 if the leading minor of order k is not positive definite.
    """
    parts = _parts(panels)
    for k, part in enumerate(parts):
        info = part.factorise()
        if info != 0:
            return part.a + info if info > 0 else info
        later = parts[k + 1 :]  # the longest first

        def divide(i: int, part: _Panel = part, later: list[_Panel] = later) -> None:
            part.divide(later[i].a, later[i].b)

        def subtract(i: int, part: _Panel = part, later: list[_Panel] = later) -> None:
            part.subtract_from(later[i])

        share(divide, len(later))
        share(subtract, len(later))
    return 0


def solve(panels: Sequence[np.ndarray], x: np.ndarray) -> None:
    """Overwrite a vector (q,), of the type of the panels, with the solution of U'U x = x."""
    parts = _parts(panels)
    for part in parts:
        part.solve(x, transposed=False)
    for part in reversed(parts):
        part.solve(x, transposed=True)
