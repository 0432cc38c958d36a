"""What a boosting round does to the scores, in one pass over (n, J) instead of a dozen: see boosting/loss.py."""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.exponential import exponentials, weights_and_responses
from pipeline.backends.cpu.jit import light_kernel, light_part, prepare

SOME = 64  # rows whose numbers are worked out together
VECTOR = 16  # numbers of a vector at most
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
    found = advance(F, F, 0.0, labels, weight, (z_max, clip, floor))[2]  # once a fit: it moves nothing
    assert found is not None
    return found


def advance(
    F: np.ndarray,
    values: np.ndarray,
    factor: float,
    labels: np.ndarray,
    weight: np.ndarray,
    rules: tuple[float, str, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Move the scores, and work out the weights and responses of the round to come at once.

    Parameters
    ----------
    F, values : (n, J) float32 or float64
    factor : the scores become F + factor (values - their row mean)
    labels, weight : as in :func:`working_response`
    rules : its z_max, clip and floor; or None: no weights and responses

    Returns
    -------
    moved : (n, J)
    pair : float64 (2,), the largest absolute score and the weighted sum of the log-losses
    targets : what :func:`working_response` returns of `moved`, or None

    Notes
    -----
    The exponentials that the loss needs are those of the responses, and to wake a second thread takes as long as a
    tenth of it all: on two threads the two took .87 ms of 100,000 scores apart from each other, together .3.
    """
    n = len(F)
    moved, blocks = np.empty_like(F), -(-n // ROWS)
    found = np.zeros((blocks, 2))
    number = F.dtype.type
    W = R = moved  # to Numba what is not written must have a type, too
    if rules is not None:
        W, R = np.empty_like(F), np.empty_like(F)
    z_max, clip, floor = rules or (1.0, "gradient", 0.0)
    how = rules is not None, number(z_max), number(floor), clip == "gradient"
    given = F, values, number(factor), labels, weight
    size = max(SOME * F.shape[1], SOME) + VECTOR
    prepare(_advance_rows, *given, moved, found, *how, W, R, np.empty((5, size), F.dtype), 0, 0)
    kernels.share_rows(
        lambda a, b: _advance_rows(*given, moved, found, *how, W, R, np.empty((5, size), F.dtype), a, b),
        blocks,
        EFFORT * F.size,
    )
    pair = np.array([found[:, 0].max(initial=0.0), np.add.reduce(found[:, 1])])
    return moved, pair, None if rules is None else (W, R)


EFFORT = 8  # a score takes as long as so many numbers that are copied


@light_kernel
def _advance_rows(
    F, values, factor, labels, weight, moved, found, respond, z_max, floor, gradient, W, R, room, begin, end
):
    """Work in vectors on all numbers of some rows: those of a single one are few. `room` is for five rows of them."""
    n, J = F.shape
    e, total, own, s, top = room[0], room[1], room[2], room[3], room[4]
    for block in range(begin, end):
        largest, loss = 0.0, 0.0
        last = (block + 1) * ROWS if (block + 1) * ROWS < n else n
        for first in range(block * ROWS, last, SOME):
            m = SOME if last - first > SOME else last - first
            high = move_rows(F, values, factor, first, m, moved, e, top)
            largest = high if high > largest else largest
            exponentials(e, m * J)
            for i in range(m):
                t = e[i * J]
                for j in range(1, J):
                    t += e[i * J + j]
                label, w = labels[first + i], weight[first + i]
                loss += w * (top[i] + math.log(t) - moved[first + i, label])
                for j in range(J):
                    total[i * J + j], own[i * J + j], s[i * J + j] = t, 0, w
                own[i * J + label] = 1
            if respond:
                weights_and_responses(e, total, own, s, m * J, z_max, floor, gradient)
                for i in range(m):
                    for j in range(J):
                        W[first + i, j], R[first + i, j] = e[i * J + j], total[i * J + j]
        found[block, 0], found[block, 1] = largest, loss


@light_part
def move_rows(F, values, factor, first, m, moved, e, top):
    """Move m rows; write their largest scores and, a row after the other, what is left of the others above these.

    Returns the largest absolute score.
    """
    J, largest = F.shape[1], 0.0
    for i in range(m):
        sum_ = 0.0
        for j in range(J):
            sum_ += values[first + i, j]
        top[i] = sum_ / J  # rounded to the type of the scores
    for i in range(m):
        mean = top[i]
        high, low = F[first + i, 0], F[first + i, 0]
        for j in range(J):
            f = F[first + i, j] + factor * (values[first + i, j] - mean)
            moved[first + i, j] = f
            high = f if j == 0 or f > high else high
            low = f if j == 0 or f < low else low
        for j in range(J):
            e[i * J + j] = moved[first + i, j] - high
        top[i] = high
        largest = high if high > largest else largest
        largest = -low if -low > largest else largest
    return largest
