"""Numba kernels that feed BLAS: centring, scaling and gathering rows into small reused buffers."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from pipeline.backends.philox import MULTIPLIER, NORMAL_STREAM, ROUNDS, WEYL

_M0, _M1 = np.uint64(MULTIPLIER[0]), np.uint64(MULTIPLIER[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
_STREAM = np.uint64(NORMAL_STREAM)


@njit(parallel=True, cache=True)
def gather(X, columns, center, out):
    """Write X[:, columns] - center[columns] to out (n, q); one pass, no index arrays, no second copy."""
    for i in prange(X.shape[0]):
        for k in range(columns.size):
            out[i, k] = X[i, columns[k]] - center[columns[k]]


@njit(parallel=True, cache=True)
def center_rows(X, center, out):
    """Write X - center to out, both (rows, p)."""
    for i in prange(X.shape[0]):
        for k in range(X.shape[1]):
            out[i, k] = X[i, k] - center[k]


@njit(parallel=True, cache=True)
def center_and_square(X, center, out, squared):
    """Write X - center to out and its square to squared, all (rows, p)."""
    for i in prange(X.shape[0]):
        for k in range(X.shape[1]):
            d = X[i, k] - center[k]
            out[i, k] = d
            squared[i, k] = d * d


@njit(parallel=True, cache=True)
def scale_rows(X, center, rows, root, out):
    """Write root[i] * (X[rows[i]] - center) to out (len(rows), q): the weighted design of one class."""
    for i in prange(rows.size):
        r = rows[i]
        s = root[i]
        for k in range(X.shape[1]):
            out[i, k] = s * (X[r, k] - center[k])


@njit(cache=True)
def _box_muller(a, b):
    radius = np.sqrt(-2.0 * np.log((np.float64(a) + 0.5) * 2.0**-32))
    angle = 2.0 * np.pi * ((np.float64(b) + 0.5) * 2.0**-32)
    return radius * np.cos(angle), radius * np.sin(angle)


@njit(parallel=True, cache=True)
def scaled_normal(out, scale, key0, key1, index):
    """Fill the flat array `out` with scale * N(0, 1): the numbers of :func:`pipeline.backends.philox.normal`."""
    n = out.size
    for block in prange((n + 3) // 4):
        c0, c1, c2, c3 = np.uint64(block) & _LOW, np.uint64(block) >> _WORD, np.uint64(index), _STREAM
        k0, k1 = np.uint64(key0), np.uint64(key1)
        for _ in range(ROUNDS):
            p0, p1 = _M0 * c0, _M1 * c2
            c0, c1, c2, c3 = (p1 >> _WORD) ^ c1 ^ k0, p1 & _LOW, (p0 >> _WORD) ^ c3 ^ k1, p0 & _LOW
            k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        z0, z1 = _box_muller(c0, c1)
        z2, z3 = _box_muller(c2, c3)
        i = 4 * block
        out[i] = scale * z0
        if i + 1 < n:
            out[i + 1] = scale * z1
        if i + 2 < n:
            out[i + 2] = scale * z2
        if i + 3 < n:
            out[i + 3] = scale * z3
