"""What might make boosting faster: another learner, fewer columns, fewer features, fewer rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipeline.profiling import counts
from pipeline.profiling.candidate import LEARNING, Candidate, Measured
from pipeline.profiling.learner_costs import LEARNERS, operations

ALL_COLUMNS = ("ridge", "full")  # learners that look at every feature in every round
COMPONENTS = 256  # tried first; accuracy decides


def learner(run: Measured) -> Iterator[Candidate]:
    """Yield the learners that need less than half of the operations."""
    now = run.work.learner
    cost = operations(run.work, now, run.work.columns, run.work.rounds)
    cheaper = []
    for name, settings in LEARNERS.items():
        there = operations(run.work, name, int(settings.get("subspace_size", 0)), int(settings["n_rounds"]))
        if name != now and there < 0.5 * cost:
            cheaper.append((there, name, settings))
    for there, name, settings in sorted(cheaper, key=lambda one: one[0])[:2]:
        text = " ".join(f"classifier.{key}={value}" for key, value in settings.items())
        yield Candidate(
            f"boost with the learner {name} (classifier={name})",
            f"classifier.learner={name} {text}",
            LEARNING,
            1.0,
            f"{run.told('boost')}; {name} needs {there / cost:.1%} of the operations of {now}",
            "another model: compare the accuracy",
        )


def columns(run: Measured) -> Iterator[Candidate]:
    """Yield half of the columns of a round."""
    key = {"subspace": "subspace_size", "random_features": "n_components"}.get(run.work.learner)
    half = run.work.columns // 2
    if key is None or half < 16:
        return
    yield Candidate(
        f"half as many columns in each round: {half} instead of {run.work.columns}",
        f"classifier.{key}={half}",
        LEARNING,
        0.75,
        f"{run.told('boost')}; the sums of a round grow with the square of {key}",
        "each round learns less: compare the accuracy, and allow more rounds if it falls",
    )


def rounds(run: Measured) -> Iterator[Candidate]:
    """Yield fewer rounds, where the later ones hardly lower the held-out loss."""
    rounds = run.work.rounds
    if len(run.losses) < 4:
        return
    best = min(run.losses)
    enough = next(r for r, loss in enumerate(run.losses, 1) if loss <= 1.02 * best)
    if enough > 0.9 * rounds:
        return
    yield Candidate(
        f"stop after {enough} rounds instead of {rounds}",
        f"classifier.n_rounds={enough}",
        LEARNING,
        1.0 - enough / rounds,
        f"{run.told('boost')}; after {enough} rounds the held-out log-loss, {run.losses[enough - 1]:.4f}, is within "
        f"2 % of the best of all rounds, {best:.4f}",
        "chosen by the images that also judge it; another split may need more rounds",
        "rounds",
        enough,
    )


def stopped(losses: list[float], patience: int) -> int | None:
    """Return the round after which patience ends on such losses, or None if it never does."""
    best = 0
    for index, loss in enumerate(losses):
        if loss < losses[best]:
            best = index
        if index - best >= patience:
            return index + 1
    return None


def patience(run: Measured) -> Iterator[Candidate]:
    """Yield early stopping, where it would stop."""
    if run.cfg.classifier.early_stopping:
        return
    last = stopped(run.losses, run.cfg.classifier.patience)
    if last is None or last >= run.work.rounds:
        return
    yield Candidate(
        f"let early stopping end the rounds, at about {last} of {run.work.rounds}",
        "classifier.early_stopping=true",
        LEARNING,
        1.0,
        f"{run.told('boost')}; at round {last} the held-out log-loss has not fallen for "
        f"{run.cfg.classifier.patience} rounds",
        f"{run.cfg.split.validation:.0%} of the training images are watched instead of fitted to",
        "patience",
        last,
    )


def components(run: Measured) -> Iterator[Candidate]:
    """Yield principal components in place of the features where each round works on all of these."""
    work = run.work
    if work.components is not None or work.memory_limit or work.learner not in ALL_COLUMNS:
        return
    k = COMPONENTS
    if 2 * k > work.features or k >= work.fit:
        return
    fewer = replace(work, components=k, columns=k)
    now = operations(work, work.learner, work.columns, work.rounds)
    there = operations(fewer, work.learner, k, work.rounds) + counts.reduce(fewer).operations
    if there > 0.7 * now:
        return
    yield Candidate(
        f"boost on {k} principal components of the features (reduce=pca)",
        f"reduce.name=pca reduce.components={k}",
        ("reduce", *LEARNING),
        1.0,
        f"{run.told('boost')}, on {work.features} features in every round; with {k} components, finding them "
        f"included, {there / now:.1%} of the operations remain",
        "another model, and prediction reduces, too: compare the accuracy; reduce.variance=0.95 lets the images decide",
    )


RULES = (learner, columns, rounds, patience, components)
