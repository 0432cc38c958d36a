"""What a boosting round does to the scores, in one pass over (n, J) instead of a dozen: see boosting/loss.py."""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, prepare

ROWS = 1024  # rows whose losses are added up before they are added to the others', whatever the number of threads


def targets(codes: np.ndarray, n_classes: int) -> np.ndarray:
    """Return what the other functions take as `labels`: intp (n,).

    Parameters
    ----------
    codes : (n,) class numbers from 0 to n_classes - 1
    """
    if codes.size and not (codes.min() >= 0 and codes.max() < n_classes):
        raise ValueError(f"class numbers must be from 0 to {n_classes - 1}")
    return np.ascontiguousarray(codes, dtype=np.intp)


def working_response(
    F: np.ndarray, labels: np.ndarray, weight: np.ndarray, z_max: float, clip: str, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights W and weighted responses R of one round, (n, J) each, in one pass over the scores.

    The equations are those of :func:`pipeline.boosting.loss.softmax` and ``working_response``.

    Parameters
    ----------
    F : (n, J) float32 or float64
    labels : of :func:`targets`
    weight : (n,) sample weights, in the dtype of F
    z_max, clip, floor : as there
    """
    W, R = np.empty_like(F), np.empty_like(F)
    number = F.dtype.type
    rules = number(z_max), number(floor), clip == "gradient"
    prepare(_working_rows, F, labels, weight, *rules, W, R)
    kernels.share_rows(
        lambda a, b: _working_rows(F[a:b], labels[a:b], weight[a:b], *rules, W[a:b], R[a:b]),
        len(F),
        EFFORT * F.size,
    )
    return W, R


def advance(
    F: np.ndarray, values: np.ndarray, factor: float, labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return F + factor (values - their row mean), and its largest absolute score and log-loss sum: float64 (2,)."""
    n = len(F)
    moved, blocks = np.empty_like(F), -(-n // ROWS)
    found = np.zeros((blocks, 2))
    factor = F.dtype.type(factor)
    prepare(_advance_rows, F, values, factor, labels, weight, moved, found, 0, 0)
    kernels.share_rows(
        lambda a, b: _advance_rows(F, values, factor, labels, weight, moved, found, a, b),
        blocks,
        EFFORT * F.size,
    )
    return moved, np.array([found[:, 0].max(initial=0.0), np.add.reduce(found[:, 1])])


EFFORT = 8  # a score takes as long as so many numbers that are copied


@kernel
def _working_rows(F, labels, weight, z_max, floor, gradient, W, R):
    J = F.shape[1]
    for i in range(F.shape[0]):
        top = F[i, 0]
        for j in range(1, J):
            top = F[i, j] if F[i, j] > top else top
        total = F[i, 0] * 0
        for j in range(J):
            e = math.exp(F[i, j] - top)
            W[i, j] = e
            total += e
        s = weight[i]
        for j in range(J):
            p = W[i, j] / total
            r = (1 - p) if labels[i] == j else -p
            w = p * (1 - p)
            w = floor if floor > w else w
            limit = z_max * w
            if abs(r) > limit:
                if gradient:
                    w = abs(r) / z_max
                else:
                    r = limit if r > 0 else -limit
            W[i, j] = w * s
            R[i, j] = r * s


@kernel
def _advance_rows(F, values, factor, labels, weight, moved, found, begin, end):
    n, J = F.shape
    for block in range(begin, end):
        largest, loss = 0.0, 0.0
        last = (block + 1) * ROWS if (block + 1) * ROWS < n else n
        for i in range(block * ROWS, last):
            mean = F[i, 0] * 0
            for j in range(J):
                mean += values[i, j]
            mean /= J
            top, low = -math.inf, math.inf
            for j in range(J):
                moved[i, j] = F[i, j] + factor * (values[i, j] - mean)
                f = moved[i, j]  # rounded: the worked out number is in float64
                top = f if f > top else top
                low = f if f < low else low
            total = 0.0
            for j in range(J):
                total += math.exp(moved[i, j] - top)
            largest = top if top > largest else largest
            largest = -low if -low > largest else largest
            loss += weight[i] * (top + math.log(total) - moved[i, labels[i]])
        found[block, 0], found[block, 1] = largest, loss
