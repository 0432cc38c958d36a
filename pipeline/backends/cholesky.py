"""Cholesky factorisation in place, and solutions, the interpreter free meanwhile."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

Share = Callable[[Callable[[int], None], int], None]
BLOCK = 256  # columns that are factorised at a time where threads share the work


@functools.cache
def _routine(name: str, arguments: int) -> Any:
    """Return a routine of SciPy's BLAS or LAPACK as a C function: called so it releases the GIL, unlike its wrapper."""
    module = cython_lapack if "potr" in name else cython_blas
    capsule = module.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


class Routines:
    """BLAS and LAPACK of a type, float32 or float64: `name` is without its letter."""

    def __init__(self, dtype: np.dtype) -> None:
        self.letter = "s" if dtype == np.float32 else "d"
        self.number = ctypes.c_float if dtype == np.float32 else ctypes.c_double

    def whole(self, value: int) -> Any:
        """Return an integer as an argument."""
        return ctypes.byref(ctypes.c_int(value))

    def real(self, value: float) -> Any:
        """Return a number of the type as an argument."""
        return ctypes.byref(self.number(value))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a routine; arguments are addresses, or letters as bytes."""
        flags = [ctypes.c_char_p(one) if isinstance(one, bytes) else one for one in arguments]
        _routine(self.letter + name, len(arguments))(*flags)


class _Blocks(Routines):
    """The routines that a factorisation by blocks is made of, on parts of one matrix in Fortran order."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__(matrix.dtype)
        self.start, self.steps = matrix.ctypes.data, matrix.strides
        self.step = self.whole(matrix.strides[1] // matrix.itemsize if len(matrix) > 1 else 1)

    def _at(self, i: int, k: int) -> int:
        return self.start + i * self.steps[0] + k * self.steps[1]

    def factorise(self, a: int, b: int) -> int:
        """Factorise the block a:b on the diagonal; return LAPACK's info."""
        info = ctypes.c_int()
        self.call("potrf", b"U", self.whole(b - a), self._at(a, a), self.step, ctypes.byref(info))
        return info.value

    def solve(self, rhs: np.ndarray) -> None:
        """Overwrite a vector with the solution x of U'U x = rhs, U the whole triangle."""
        q, info = self.whole(len(rhs)), ctypes.c_int()
        right = self.whole(1), self._at(0, 0), self.step, rhs.ctypes.data, q
        self.call("potrs", b"U", q, *right, ctypes.byref(info))

    def divide(self, a: int, b: int, c: int, d: int) -> None:
        """Divide rows a:b of columns c:d from the left by the transposed factor of block a:b."""
        sizes = self.whole(b - a), self.whole(d - c)
        factor, rows = (self._at(a, a), self.step), (self._at(a, c), self.step)
        self.call("trsm", b"L", b"U", b"T", b"N", *sizes, self.real(1.0), *factor, *rows)

    def subtract(self, a: int, b: int, c: int, d: int) -> None:
        """Subtract what rows a:b of the factor are in rows b:d of columns c:d."""
        minus, one, depth = self.real(-1.0), self.real(1.0), self.whole(b - a)
        mine = self._at(a, c), self.step
        if c > b:
            sizes = self.whole(c - b), self.whole(d - c), depth
            above = self._at(a, b), self.step
            self.call("gemm", b"T", b"N", *sizes, minus, *above, *mine, one, self._at(b, c), self.step)
        size = self.whole(d - c)
        self.call("syrk", b"U", b"T", size, depth, minus, *mine, one, self._at(c, c), self.step)


def _checked(matrix: np.ndarray) -> _Blocks:
    adjacent = matrix.strides[0] == matrix.itemsize or len(matrix) < 2
    if matrix.dtype not in (np.float32, np.float64) or not adjacent or not matrix.flags.writeable:
        raise ValueError("a float32 or float64 matrix in Fortran order that can be written was expected")
    return _Blocks(matrix)


def solve_upper(factor: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Return the solution x of U'U x = rhs.

    Parameters
    ----------
    factor : (q, q), U as :func:`factorise_upper` leaves it. SciPy's ``potrs`` copies a matrix whose columns lie apart:
        at 3240 columns .03 s, ten times what it is for
    rhs : (q,)

    Returns
    -------
    ndarray
        (q,) in the dtype of `factor`.
    """
    x = np.array(rhs, dtype=factor.dtype)
    if len(x):
        _checked(factor).solve(x)
    return x


def factorise_upper(matrix: np.ndarray, share: Share | None = None) -> int:
    """Overwrite the upper triangle of a symmetric matrix with U, matrix = U'U; return LAPACK's info.

    Parameters
    ----------
    matrix : float32 or float64 (q, q), each column's numbers adjacent; its lower triangle is neither read nor changed
    share : calls a function of a number with 0 to count - 1, side by side; BLAS should use one thread meanwhile.
        Without it LAPACK has the whole matrix.

    Returns
    -------
    int
        0, or k > 0 if the leading minor of order k is not positive definite.

    Raises
    ------
    ValueError
        If the array is of another type or order.

    Notes
    -----
    OpenBLAS's own threads wait for more work for .1 s, in a loop that takes a core from whoever has threads of his own:
    10 classes of 3240 columns lost .4 s of 7 so, before they had panels (:mod:`pipeline.backends.cholesky_panels`).
    """
    q, blocks = len(matrix), _checked(matrix)
    if share is None or q <= 2 * BLOCK:
        return blocks.factorise(0, q) if q else 0
    for a in range(0, q, BLOCK):
        b = min(a + BLOCK, q)
        info = blocks.factorise(a, b)
        if info != 0:
            return a + info if info > 0 else info
        later = [(c, min(c + BLOCK, q)) for c in range(b, q, BLOCK)][::-1]  # the longest column first

        def divide(i: int, a: int = a, b: int = b, later: list = later) -> None:
            blocks.divide(a, b, *later[i])

        def subtract(i: int, a: int = a, b: int = b, later: list = later) -> None:
            blocks.subtract(a, b, *later[i])

        share(divide, len(later))
        share(subtract, len(later))
    return 0
