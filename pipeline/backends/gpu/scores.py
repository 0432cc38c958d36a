"""What a boosting round does to the scores, a few passes over (n, J) instead of a dozen: see boosting/loss.py."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends.gpu import launch, wls_plan


def targets(codes: np.ndarray, n_classes: int) -> Any:
    """Return what the other functions take as `labels`: int32 (n,) on the device.

    Parameters
    ----------
    codes : (n,) class numbers from 0 to n_classes - 1, in host memory
    """
    if codes.size and not (codes.min() >= 0 and codes.max() < n_classes):
        raise ValueError(f"class numbers must be from 0 to {n_classes - 1}")
    return cp.asarray(codes.astype(np.int32))


def working_response(
    F: Any, labels: Any, weight: Any, z_max: float, clip: str, floor: float
) -> tuple[Any, Any]:
    """Return weights W and weighted responses R of one round, (n, J) each, in one pass over the scores.

    The equations are those of :func:`pipeline.boosting.loss.softmax` and ``working_response``.
    """
    n, J = F.shape
    W, R = cp.empty_like(F), cp.empty_like(F)
    plan = wls_plan.working_response(F.dtype, n, J)
    losses = cp.empty(plan.grid[0], dtype=cp.float64)
    launch.run(plan, F, labels, weight, W, R, losses, n, J, z_max, floor, int(clip == "gradient"))
    return W, R


def advance(F: Any, values: Any, factor: float, labels: Any, weight: Any) -> tuple[Any, Any]:
    """Return F + factor (values - their row mean), and its largest absolute score and log-loss sum: float64 (2,)."""
    n, J = F.shape
    moved, largest = cp.empty_like(F), cp.empty(n, dtype=F.dtype)
    values = cp.ascontiguousarray(values)
    launch.run(wls_plan.update_scores(F.dtype, n, J), F, values, moved, largest, n, J, factor)
    plan = wls_plan.log_loss(F.dtype, n, J)
    losses, pair = cp.empty(plan.grid[0], dtype=cp.float64), cp.empty(2, dtype=cp.float64)
    launch.run(plan, moved, labels, weight, losses, n, J)
    launch.run(wls_plan.sum_in_order(), losses, pair[1:], losses.size)
    pair[:1] = cp.max(largest)
    return moved, pair
