"""Cholesky factorisation in place, the interpreter free meanwhile."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack


@functools.cache
def _dpotrf() -> Any:
    """Return LAPACK's dpotrf of SciPy as a C function: called so it releases the GIL, as SciPy's wrapper does not."""
    capsule = cython_lapack.__pyx_capi__["dpotrf"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    integer = ctypes.POINTER(ctypes.c_int)
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, integer, ctypes.c_void_p, integer, integer)(address)


def factorise_upper(matrix: np.ndarray) -> int:
    """Overwrite the upper triangle of a symmetric matrix with U, matrix = U'U; return LAPACK's info.

    Parameters
    ----------
    matrix : float64 (q, q), Fortran order; its lower triangle is neither read nor changed

    Returns
    -------
    int
        0, or k > 0 if the leading minor of order k is not positive definite.

    Raises
    ------
    ValueError
        If the array is of another type or order.
    """
    if matrix.dtype != np.float64 or not matrix.flags.f_contiguous or not matrix.flags.writeable:
        raise ValueError("a float64 matrix in Fortran order that can be written was expected")
    size, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    if len(matrix):
        _dpotrf()(b"U", size, matrix.ctypes.data, size, info)
    return info.value
