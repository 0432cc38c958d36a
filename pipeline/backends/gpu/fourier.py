"""Random Fourier features, drawn and worked out on the device."""

from __future__ import annotations

import logging
from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends import philox
from pipeline.backends.gpu import launch, wls_plan
from pipeline.backends.gpu.matrix import empty_matrix, fill_rows, over_rows


def frequencies(p: int, n_components: int, gamma: float, seed: int, index: int, dtype: Any):
    """Return R (p, n_components) ~ N(0, 2 gamma) of draw `index`."""
    R = cp.empty((p, n_components), dtype=dtype)
    key0, key1 = philox.split_seed(seed)
    plan = wls_plan.scaled_normal(R.dtype, R.size)
    launch.run(plan, R, R.size, float(np.sqrt(2.0 * gamma)), key0, key1, index)
    return R


def _projection(p: int, n_components: int, gamma: float, seed: int, index: int, dtype: Any):
    """Return R (p, n_components) ~ N(0, 2 gamma) and b (n_components,) ~ U(0, 2 pi) of draw `index`."""
    R = frequencies(p, n_components, gamma, seed, index, dtype)
    shift = 2.0 * np.pi * philox.uniform(n_components, seed, index)
    return R, cp.asarray(shift.astype(dtype))


def random_features(X: Any, center: Any, gamma: float, n_components: int, seed: int, index: int) -> Any:
    """Return cos((X - center) @ R + b), shape (n, n_components), in the dtype of X, beside gathered columns.

    R ~ N(0, 2 gamma) and b ~ U(0, 2 pi) are drawn from (seed, index) and forgotten: random Fourier features
    of the Gaussian kernel exp(-gamma |x - y|^2) (Rahimi and Recht, NIPS 2007).
    """
    R, b = _projection(X.shape[1], n_components, gamma, seed, index, X.dtype)
    center = center.astype(X.dtype, copy=False)
    phi = empty_matrix(X.shape[0], n_components, X.dtype, logging.DEBUG)

    def work(part: slice, block: Any) -> None:
        def write(rows: Any) -> None:
            cp.matmul(block - center, R, out=rows)
            launch.run(wls_plan.cosine(rows.dtype, rows.size), rows, b, rows.size, n_components)

        fill_rows(phi, part, write)

    over_rows(X, (X.shape[1] + n_components) * X.dtype.itemsize, work)
    return phi
