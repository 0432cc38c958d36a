"""What the learners cost beside each other, by counting: which are worth a trial."""

from __future__ import annotations

from pipeline.profiling.work import Work

LEARNERS = {  # as in conf/classifier
    "subspace": {"n_rounds": "100", "learning_rate": "0.3", "l2": "1.0", "subspace_size": "128"},
    "ridge": {"n_rounds": "20", "learning_rate": "0.5", "l2": "1.0"},
    "componentwise": {"n_rounds": "200", "learning_rate": "0.5"},
}


def operations(work: Work, learner: str, columns: int, rounds: int) -> float:
    """Return about how many floating-point operations boosting takes: sums of products, factorisations, values.

    Parameters
    ----------
    columns : of a round of ``subspace`` and ``random_features``
    """
    n, p, fits = work.fit, work.inputs, work.fits
    if learner == "componentwise":
        return rounds * 6.0 * n * p * fits
    q = {"subspace": min(columns, p), "random_features": columns}.get(learner, p)
    drawn = 2.0 * n * p * q if learner == "random_features" else 0.0
    return rounds * (drawn + fits * (1.0 * n * q * q + q**3 / 3.0 + 6.0 * n * q))
