"""The reference backend on a sample: what the original program would take, without waiting for it.

HoG takes the same time for every image, so some images suffice. A round of boosting is one fit per class, all of the
same size: a two-class problem has one such fit, so one class against the rest tells what every fit takes. All fits
use all training images.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from pipeline import backends
from pipeline.profiling.changes import Tell
from pipeline.profiling.held_out import Parts, parts, row_order
from pipeline.profiling.probes import of_rounds
from pipeline.profiling.record import Recorder
from pipeline.profiling.report import CompareRow
from pipeline.profiling.runs import Run
from pipeline.spans import listening, span

SAME = (
    "start",
    "read",
    "decode",
    "split",
    "gather",
    "save",
)  # stages without numerical work: no backend has a part in them
OF_A_CLASS = ("boost/sums", "boost/solve", "boost/refine")  # what a round does for each class in turn
FOR_FEATURES = 0.3  # share of the budget
BATCH = 64  # images between two looks at the clock


def on_sample(run: Run, budget: float, tell: Tell) -> CompareRow:
    """Return the row of ``reference`` for the work of a run on another backend, within about `budget` seconds.

    One fit of one class is always made, however long it takes: a minute for 3240 features of 10,000 images.

    Parameters
    ----------
    run : on a backend that works in full; its images and features are used
    """
    reference = backends.get("reference")
    with reference.threads(run.settings.backend.threads):
        tell("backend=reference: features of some images")
        sample, hog_seconds, difference = _features(run, FOR_FEATURES * budget)
        home, found = backends.get(run.work.backend), parts(run)
        held = found._replace(
            X_fit=np.asarray(home.get(found.X_fit)), X_test=np.asarray(home.get(found.X_test))
        )
        tell("backend=reference: boosting, one class and one round")
        boosting = _boosting(run, held, (1.0 - FOR_FEATURES) * budget, tell)
    stages = {stage: run.seconds[stage] for stage in SAME if stage in run.seconds}
    stages |= hog_seconds | boosting.seconds
    whole = boosting.rounds == run.work.rounds and not boosting.one_class
    words = [f"features from {sample} of {run.work.images} images"] if sample < run.work.images else []
    if not whole:
        classes = "1 class against the rest" if boosting.one_class else f"all {run.work.classes} classes"
        words.append(
            f"boosting from {boosting.rounds} of {run.work.rounds} rounds of {classes}, all images; "
            f"labels compared after as many on {run.work.backend}"
        )
    words.append("reading and saving as measured once")
    return CompareRow(
        "reference",
        sum(stages.values()),
        stages,
        extrapolated="; ".join(words),
        features_difference=difference,
        label_agreement=boosting.agreement,
        accuracy=boosting.accuracy if whole else None,
    )


def _features(run: Run, budget: float) -> tuple[int, dict[str, float], float]:
    """Return the images worked on, the seconds for all, and the largest difference of the features."""
    cfg, pixels = run.settings, run.trained.images.pixels
    reference, home = backends.get("reference"), backends.get(run.work.backend)
    hog, order = run.trained.model.extractor, row_order(run)
    seconds = {"preprocess": 0.0, "hog": 0.0}

    def work(index: np.ndarray) -> np.ndarray:
        begin = perf_counter()
        batch = reference.preprocess.apply(np.asarray(pixels[index]), cfg.preprocess)
        middle = perf_counter()
        out = reference.hog.hog(batch, hog.layout_, hog.block_norm, hog.transform_sqrt, cfg.hog.dtype.name)
        seconds["preprocess"] += middle - begin
        seconds["hog"] += perf_counter() - middle
        return out

    work(order[:1])  # pays for imports
    seconds.update(preprocess=0.0, hog=0.0)
    done, difference = 0, 0.0
    while done < len(order) and sum(seconds.values()) <= budget:
        part = slice(done, min(done + BATCH, len(order)))
        expected = np.asarray(home.get(run.trained.features[part]))
        difference = max(difference, float(np.abs(work(order[part]) - expected).max()))
        done = part.stop
    return done, {stage: value * len(order) / done for stage, value in seconds.items()}, difference


class _SetUp:
    """Listens for the end of the set-up of boosting: what comes after it are the rounds."""

    def __init__(self) -> None:
        self.ended = 0.0

    def begin(self, name: str, is_part: bool) -> str:
        """Keep the name."""
        return name

    def end(self, token: str) -> None:
        """Note the time."""
        if token == "set-up":
            self.ended = perf_counter()

    def count(self, name: str, amount: float) -> None:
        """Count nothing: there is no device."""

    def beside(self, begin: Any, end: Any) -> None:
        """Take no notice."""


class _Fitted(NamedTuple):
    """A fit on the reference backend, in the stages of a profile."""

    classifier: Any
    once: dict[str, float]  # seconds, whatever the number of rounds
    rounds: dict[str, float]  # seconds of all its rounds together
    evaluate: float

    def scaled(self, rounds: float, classes: float) -> dict[str, float]:
        """Return the seconds of so many times its rounds and classes."""
        each = {k: t * rounds * (classes if k in OF_A_CLASS else 1.0) for k, t in self.rounds.items()}
        sums = {k: self.once.get(k, 0.0) + each.get(k, 0.0) for k in [*self.once, *each]}
        per_step = (
            self.classifier.learner == "random_features"
        )  # its model is a sum that is taken round by round
        return {**sums, "evaluate": self.evaluate * (rounds if per_step else 1.0)}


def _fit(run: Run, held: Parts, y: np.ndarray, rounds: int, backend: str) -> _Fitted:
    classifier = clone(run.trained.model.classifier)
    classifier.set_params(backend=backend, n_rounds=rounds, early_stopping=False)
    set_up, ends = _SetUp(), []
    with Recorder() as recorder, listening(set_up):
        with span("boost"):
            classifier.fit(held.X_fit, y, on_round=lambda *_: ends.append(perf_counter()))
        with span("evaluate"):
            classifier.predict_proba(held.X_test)
    assert recorder.recording is not None
    wall = {key: row.wall for key, row in recorder.recording.rows.items()}
    named = {key: t for key, t in wall.items() if of_rounds(key) and key != "boost"}
    loop = max(ends[-1] - set_up.ended - sum(named.values()), 0.0)
    once = {"boost/set-up": wall["boost/set-up"], "boost": max(wall["boost"] - loop, 0.0)}
    return _Fitted(classifier, once, {**named, "boost": loop}, wall["evaluate"])


class _Boosting(NamedTuple):
    seconds: dict[str, float]
    rounds: int  # run
    one_class: bool
    agreement: float
    accuracy: float


def _boosting(run: Run, held: Parts, budget: float, tell: Tell) -> _Boosting:
    """Fit one class against the rest for one round; then as many rounds of all classes as the budget allows."""
    asked, fits = run.work.rounds, run.work.fits
    frequent = np.bincount(held.y_fit).argmax()
    y_fit, y_test, rounds, one_class = held.y_fit == frequent, held.y_test == frequent, 1, True
    begin = perf_counter()
    one = np.ones((4, 1))
    backends.get("reference").wls.fit(np.eye(4), np.zeros(4), one, one, 1.0)  # pays for imports
    fitted = _fit(run, held, y_fit, rounds, "reference")
    left = budget - (perf_counter() - begin)
    once = sum(fitted.once.values()) + fitted.evaluate
    each = sum(fitted.scaled(1.0, fits).values()) - once
    affordable = min(asked, int((left - once) / max(each, 1e-9)))
    if affordable >= 1:
        tell(f"backend=reference: boosting, {affordable} rounds")
        y_fit, y_test, rounds, one_class = held.y_fit, held.y_test, affordable, False
        fitted = _fit(run, held, y_fit, rounds, "reference")
    seconds = fitted.scaled(asked / rounds, fits if one_class else 1.0)
    other = _fit(run, held, y_fit, rounds, run.work.backend).classifier
    mine, theirs = fitted.classifier.predict(held.X_test), other.predict(held.X_test)
    return _Boosting(
        seconds, rounds, one_class, float((mine == theirs).mean()), float((mine == y_test).mean())
    )
