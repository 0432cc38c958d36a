"""What a boosting round does to the scores, a few passes over (n, J) instead of a dozen: see boosting/loss.py.

The results must fit the device as a whole: every part of a round reads all of them. What is taken beside them is taken
for fewer rows when memory runs out, and the results are the same bit by bit: a row's numbers depend on that row only,
and the log-loss, a sum over rows, is always taken over all of them in one launch.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends.gpu import launch, memory, wls_plan


def targets(codes: np.ndarray, n_classes: int) -> Any:
    """Return what the other functions take as `labels`: int32 (n,) on the device.

    Parameters
    ----------
    codes : (n,) class numbers from 0 to n_classes - 1, in host memory
    """
    if codes.size and not (codes.min() >= 0 and codes.max() < n_classes):
        raise ValueError(f"class numbers must be from 0 to {n_classes - 1}")
    numbers = codes.astype(np.int32)
    return memory.whole(lambda: cp.asarray(numbers), f"the labels of {len(numbers)} rows")


def working_response(
    F: Any, labels: Any, weight: Any, z_max: float, clip: str, floor: float
) -> tuple[Any, Any]:
    """Return weights W and weighted responses R of one round, (n, J) each, in one pass over the scores.

    The equations are those of :func:`pipeline.boosting.loss.softmax` and ``working_response``.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If there is no room for W and R.
    BackendError
        If not even one row can be worked on beside them.
    """
    n, J = F.shape
    W, R = memory.whole(
        lambda: (cp.empty_like(F), cp.empty_like(F)), f"weights and responses of {n} rows and {J} classes"
    )
    keep_gradient = int(clip == "gradient")

    def work(part: slice) -> None:
        rows = F[part]
        plan = wls_plan.working_response(F.dtype, len(rows), J)
        losses = cp.empty(plan.grid[0], dtype=cp.float64)
        given, results = (rows, labels[part], weight[part]), (W[part], R[part], losses)
        launch.run(plan, *given, *results, len(rows), J, z_max, floor, keep_gradient)

    memory.in_halves(n, work)
    return W, R


def advance(
    F: Any,
    values: Any,
    factor: float,
    labels: Any,
    weight: Any,
    rules: tuple[float, str, float] | None = None,
) -> tuple[Any, Any, None]:
    """Return F + factor (values - their row mean), and its largest absolute score and log-loss sum: float64 (2,).

    Weights and responses by the `rules` are not worked out here: the third result is None, and who needs them calls
    :func:`working_response`. Both kernels wait for memory, so one instead of two would spare a read of the scores only.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If there is no room for the new scores.
    BackendError
        If not even one row can be worked on beside them.
    """
    n, J = F.shape
    plan = wls_plan.log_loss(F.dtype, n, J)
    moved, losses, pair = memory.whole(
        lambda: (cp.empty_like(F), cp.empty(plan.grid[0], dtype=cp.float64), cp.zeros(2)),
        f"scores of {n} rows and {J} classes",
    )

    def work(part: slice) -> None:
        rows = F[part]
        m = len(rows)
        largest, of_rows = cp.empty(m, dtype=F.dtype), cp.ascontiguousarray(values[part])
        update = wls_plan.update_scores(F.dtype, m, J)
        launch.run(update, rows, of_rows, moved[part], largest, m, J, factor)
        cp.maximum(
            pair[:1], cp.max(largest), out=pair[:1]
        )  # the last step: an error before it leaves no trace

    memory.in_halves(n, work)
    launch.run(plan, moved, labels, weight, losses, n, J)
    launch.run(wls_plan.sum_in_order(), losses, pair[1:], losses.size)
    return moved, pair, None
