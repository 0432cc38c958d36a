"""Means and variances of the columns of a matrix, on the device."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends.gpu.matrix import device_rows, over_rows


def column_moments(X: Any, sample_weight: Any = None) -> tuple[Any, Any]:
    """Return weighted mean and population variance (float64, (p,)) of each column of X (n, p).

    A column that holds one value gets exactly that value as its mean and exactly 0 as its variance, so that it
    vanishes when it is centred.
    """
    n, p = X.shape
    s = cp.ones(n) if sample_weight is None else sample_weight.astype(cp.float64)
    total = s.sum()
    first = device_rows(X, slice(0, 1))[0].astype(cp.float64)
    mean, square = cp.zeros(p), cp.zeros(p)
    work_bytes = 3 * 8 * p

    def add_first(part: slice, block: Any) -> None:
        cp.add(mean, s[part] @ (block - first), out=mean)

    def add_second(part: slice, block: Any) -> None:
        centred = block - (first + mean)
        cp.add(square, s[part] @ (centred * centred), out=square)

    over_rows(X, work_bytes, add_first)
    mean /= total
    over_rows(X, work_bytes, add_second)
    variance = square / total
    mean += first
    _settle_constants(X, s, mean, variance)
    return mean, variance


def _settle_constants(X: Any, s: Any, mean: Any, variance: Any) -> None:
    """Give columns of one value that value as mean and 0 as variance, in place."""
    suspect = variance <= (1e-7 * cp.abs(mean)) ** 2
    columns = np.flatnonzero(cp.asnumpy(suspect))
    if not columns.size:
        return
    row = int(cp.argmax(s > 0))
    columns = cp.asarray(columns)
    value = cp.take(device_rows(X, slice(row, row + 1))[0], columns)
    differs = cp.zeros(len(columns), dtype=bool)

    def look(part: slice, block: Any) -> None:
        unequal = (cp.take(block, columns, axis=1) != value) & (s[part] > 0)[:, None]
        cp.logical_or(differs, unequal.any(axis=0), out=differs)

    over_rows(X, 2 * X.dtype.itemsize * len(columns), look)
    mean[columns] = cp.where(differs, mean[columns], value.astype(cp.float64))
    least = cp.full(
        len(columns), np.finfo(np.float64).tiny
    )  # squares that vanish are not those of a constant
    variance[columns] = cp.where(differs, cp.maximum(variance[columns], least), cp.zeros(len(columns)))
