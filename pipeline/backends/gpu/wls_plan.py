"""How the kernels of ``wls.cu`` are specialised and launched: pure functions of sizes, readable without a GPU.

Call ``launch.run(plan, *arguments)`` with the arguments of the launch table, in its order:

==================== ========================================================================================
gather               X (n, p), columns int32 (q,), center (p,), out (n, q), n, p, q
center_scale         X (n, q), center (q,), W (n, J), out (batch, n, q), n, q, J, first_class, batch
componentwise        X (n, p), center (p,), W, R (n, J), partial, n, p, J, rows_per_block
componentwise_finish partial, sums float64 (3, J, p): x r, x w, x^2 w; parts, 3 J p
scaled_normal        out (count,), count, scale, key0, key1, index: the numbers of ``backends.philox.normal``
cosine               values (n, q) in place, shift (q,), n q, q
working_response     F (n, J), labels int32 (n,), weight (n,), W, R (n, J), losses float64 (blocks,), n, J, z_max,
                     floor, keep_gradient (1: clip="gradient")
log_loss             F, labels, weight, losses, n, J
update_scores        F, values, updated (n, J), largest (n,), n, J, factor
sum_in_order         values float64 (count,), total float64 (1,), count
==================== ========================================================================================

All arrays but columns, labels, losses, partial and sums have the type of X, and all are C-contiguous.
``losses`` holds one number per block of the plan (``plan.grid[0]``); ``sum_in_order`` adds them up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.backends.gpu.launch import THREADS, Launch, ceil_div, macros

COLUMN_THREADS = 128  # along columns, where a row may be short
GRID_ROWS = 4096  # blocks along rows at most; a block then takes several rows
ROW_THREADS = 128  # of the kernels that share a row among lanes
LOSS_BLOCKS = 1024
SUM_THREADS = 256

GROUPS, FEATURES, RUN, KINDS = 8, 2, 64, 3  # as in wls.cu
WIDTH = 32 * FEATURES
MOST_CLASSES = 12  # sums of so many classes fit in a thread's registers
FILL = 4 * 132  # blocks that keep a large GPU busy


def _along_columns(kernel: str, dtype: np.dtype, n: int, q: int) -> Launch:
    grid = (ceil_div(q, COLUMN_THREADS), min(n, GRID_ROWS))
    return Launch(kernel, macros(REAL=np.dtype(dtype)), grid, (COLUMN_THREADS,))


def gather(dtype: np.dtype, n: int, q: int) -> Launch:
    """Return the launch of ``gather_center`` for n rows and q gathered columns."""
    return _along_columns("gather_center", dtype, n, q)


def center_scale(dtype: np.dtype, n: int, q: int) -> Launch:
    """Return the launch of ``center_scale`` for n rows of q columns; the batch of classes is an argument."""
    return _along_columns("center_scale", dtype, n, q)


class Componentwise(NamedTuple):
    """The two launches of the componentwise sums and the sizes between them."""

    partial: Launch
    finish: Launch
    parts: int  # partial: float64 (parts, 3, J, p)
    rows_per_block: int


def componentwise(dtype: np.dtype, n: int, p: int, n_classes: int) -> Componentwise:
    """Return the launches for X (n, p), n >= 1, and J classes. X is read once for each 12 classes.

    The rows are cut into as many parts as keep the GPU busy, and no more: each part costs 24 p J bytes. How they
    are cut depends on n, p and J only, so the order of summation does not depend on the device.
    """
    passes = ceil_div(n_classes, MOST_CLASSES)
    classes = ceil_div(n_classes, passes)
    across = ceil_div(p, WIDTH)
    step = GROUPS * RUN
    wanted = max(1, FILL // max(1, across * passes))
    rows = ceil_div(ceil_div(n, wanted), step) * step
    parts = ceil_div(n, rows)
    shared = 8 * WIDTH * (GROUPS + KINDS * classes)
    definitions = macros(REAL=np.dtype(dtype), CLASSES=classes)
    partial = Launch("componentwise_partial", definitions, (across, parts, passes), (32, GROUPS), shared)
    finish = _flat("componentwise_finish", dtype, KINDS * n_classes * p)
    return Componentwise(partial, finish, parts, rows)


def _flat(kernel: str, dtype: np.dtype, count: int) -> Launch:
    return Launch(kernel, macros(REAL=np.dtype(dtype)), (ceil_div(count, THREADS),), (THREADS,))


def scaled_normal(dtype: np.dtype, count: int) -> Launch:
    """Return the launch that fills `count` numbers, four a thread."""
    return _flat("scaled_normal", dtype, ceil_div(count, 4))


def cosine(dtype: np.dtype, count: int) -> Launch:
    """Return the launch for `count` numbers."""
    return _flat("cosine", dtype, count)


def lanes(n_classes: int) -> int:
    """Return how many threads share a row of J classes: the next power of 2, at most 32."""
    return min(32, 1 << (n_classes - 1).bit_length())


def _along_rows(kernel: str, dtype: np.dtype, n: int, n_classes: int, most: int | None) -> Launch:
    width = lanes(n_classes)
    blocks = ceil_div(n, ROW_THREADS // width)
    grid = (blocks if most is None else min(blocks, most),)
    shared = 0 if most is None else 8 * ROW_THREADS
    return Launch(kernel, macros(REAL=np.dtype(dtype), LANES=width), grid, (ROW_THREADS,), shared)


def working_response(dtype: np.dtype, n: int, n_classes: int) -> Launch:
    """Return the launch for scores (n, J)."""
    return _along_rows("working_response", dtype, n, n_classes, LOSS_BLOCKS)


def log_loss(dtype: np.dtype, n: int, n_classes: int) -> Launch:
    """Return the launch for scores (n, J)."""
    return _along_rows("log_loss", dtype, n, n_classes, LOSS_BLOCKS)


def update_scores(dtype: np.dtype, n: int, n_classes: int) -> Launch:
    """Return the launch for scores (n, J)."""
    return _along_rows("update_scores", dtype, n, n_classes, None)


def sum_in_order() -> Launch:
    """Return the launch that adds up any number of float64 values."""
    return Launch("sum_in_order", macros(REAL=np.dtype(np.float32)), (1,), (SUM_THREADS,), 8 * SUM_THREADS)
