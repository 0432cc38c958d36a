"""Softmax, log-loss and the working response: functions of scores (n, J), in any array namespace ``xp``.

The equations are those of Friedman, Hastie and Tibshirani, "Additive logistic regression: a statistical view
of boosting", Annals of Statistics 28 (2000), Algorithm 6, with the weight recomputed where the working response is
clipped (see :func:`working_response`).
"""

from __future__ import annotations

from typing import Any

Array = Any

SCORE_LIMIT = {"float32": 80.0, "float64": 500.0}  # largest |F|: exp of twice as much still has a reciprocal
WEIGHT_FLOOR = {"float32": 1e-7, "float64": 2.0 * 2.220446049250313e-16}


def softmax(xp: Any, F: Array) -> Array:
    """Return class probabilities (n, J) of scores F (n, J); rows sum to 1 for any finite scores."""
    E = xp.exp(F - xp.max(F, axis=1, keepdims=True))
    return E / xp.sum(E, axis=1, keepdims=True)


def log_loss_sum(xp: Any, F: Array, Y: Array, weight: Array) -> Array:
    """Return the weighted sum of -log p of the true class, by log-sum-exp: finite for any finite scores.

    Parameters
    ----------
    F, Y : (n, J) scores and one-hot labels
    weight : (n,) sample weights
    """
    top = xp.max(F, axis=1)
    spread = xp.log(xp.sum(xp.exp(F - top[:, None]), axis=1))
    return xp.sum(weight * (top + spread - xp.sum(Y * F, axis=1)))


def log_loss(xp: Any, F: Array, Y: Array, weight: Array, total: float) -> float:
    """Return :func:`log_loss_sum` divided by the sum `total` of the weights, as a number."""
    return float(log_loss_sum(xp, F, Y, weight)) / total


def working_response(
    xp: Any, Y: Array, P: Array, weight: Array, z_max: float, clip: str, floor: float
) -> tuple[Array, Array]:
    """Return the weights W and weighted working responses R = W Z of one round, both (n, J).

    The residual is r = y - p, the weight w = p (1 - p), the working response z = r / w, clipped to
    [-z_max, z_max]. ``clip="gradient"`` then sets w = r / z, so that w z stays the gradient r of the
    log-likelihood: the fixed point of boosting remains the maximum-likelihood fit. ``clip="paper"`` keeps w, as
    Algorithm 6 is printed, and converges elsewhere.

    Parameters
    ----------
    Y, P : (n, J) one-hot labels and probabilities
    weight : (n,) sample weights
    floor : smallest p (1 - p)
    """
    r = Y - P
    w = P * (1.0 - P)
    w = xp.where(w > floor, w, xp.full_like(w, floor))
    limit = z_max * w
    clipped = xp.abs(r) > limit
    if clip == "gradient":
        w = xp.where(clipped, xp.abs(r) / z_max, w)
    else:
        r = xp.where(clipped, xp.sign(r) * limit, r)
    return w * weight[:, None], r * weight[:, None]


def trim(xp: Any, W: Array, R: Array, share: float) -> tuple[Array, Array]:
    """Zero the smallest weights of each class whose sum is at most `share` of the class's weight mass.

    Trimming is by mass, never by count: what is kept is the smallest set of rows that holds at least
    1 - share of the sum (Friedman, Hastie and Tibshirani 2000, section 9).
    """
    if share <= 0.0:
        return W, R
    ascending = xp.sort(W, axis=0)
    dropped = xp.cumulative_sum(ascending, axis=0) <= share * xp.sum(W, axis=0, keepdims=True)
    zero = xp.zeros_like(W)
    # The largest weight that is dropped; rows of exactly that weight are kept if any of their ties must be.
    first_kept = xp.sum(xp.astype(dropped, xp.int64), axis=0)
    last = xp.full_like(first_kept, W.shape[0] - 1)
    row = xp.where(first_kept < last, first_kept, last)
    threshold = xp.take_along_axis(ascending, row[None, :], axis=0)
    keep = threshold <= W
    return xp.where(keep, W, zero), xp.where(keep, R, zero)
