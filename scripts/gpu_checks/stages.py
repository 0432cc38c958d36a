"""Sections of check_gpu.py: every stage timed by events at several numbers of images, against the bytes it must move.

Bytes and operations are the project's own counts (:mod:`pipeline.profiling.counts`), those of ``profile`` and ``plan``.
A stage that computes much (fits, random features, components) shows few bytes a second and many operations.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gpu_checks import common, speed
from pipeline import spans
from pipeline.boosting import LogitBoostClassifier
from pipeline.config import Preprocess, PreprocessName
from pipeline.features import HogLayout
from pipeline.profiling import counts, counts_fits, counts_rounds
from pipeline.profiling.count import Count
from pipeline.profiling.work import Work

SUBSPACE, KEPT = 128, 256  # columns of a subspace, principal components
ROUNDS = 5  # of a fit that is timed
LEARNERS = ("subspace", "ridge", "componentwise", "random_features")  # and full, in a section of its own
LONG = 10.0  # seconds: a fit is not repeated after so many


class Stage(NamedTuple):
    """Something to time, and what it has to move and compute."""

    name: str
    work: Callable[[], Any]
    count: Count


class Bench:
    """What the stages of n images work on.

    Attributes
    ----------
    host, pixels : uint8 (n, h, w), on the host and on the device
    X : float32 (n, p), their features, on the device
    """

    def __init__(self, n: int, sizes: common.Sizes, random: np.random.Generator) -> None:
        gpu = common.gpu()
        self.n, self.J, self.random, self.sizes = n, sizes.classes, random, sizes
        self.layout = HogLayout(sizes.image_shape)
        self.host = random.integers(0, 256, (n, *sizes.image_shape), dtype=np.uint8)
        self.pixels = gpu.put(self.host)
        self.X = self.hog()
        self.y = np.arange(n) % self.J

    def hog(self) -> Any:
        """Return the features of the images."""
        return common.gpu().hog.hog(self.pixels, self.layout, "L2-Hys", False, "float32")

    def work(self, learner: str = "ridge", columns: int = 0, **changes: Any) -> Work:
        """Return the work in the terms of the counts: all images are fitted, and all are predicted."""
        given = dict(
            images=self.n, fit=self.n, watched=0, tested=self.n, classes=self.J, layout=self.layout,
            preprocess="none", feature_bytes=4, number_bytes=4, backend="gpu", threads=1, learner=learner,
            rounds=1, columns=columns or self.layout.n_features, source="synthetic",
        )  # fmt: skip
        return Work(**(given | changes))


def stages(n: int, sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time every stage for n images."""
    bench, copied = Bench(n, sizes, random), speed.measured(sizes).copy
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for step in PreprocessName:
        if step is not PreprocessName.none:
            found[f"preprocess={step.value}"] = _preprocess(bench, Preprocess(step), copied)
    for stage in (*_of_images(bench), *_of_rounds(bench), *_of_models(bench)):
        ms = common.median_ms(stage.work, sizes.timings, sizes.seconds)
        found[stage.name] = common.rates(ms, stage.count, copied)
    for learner in LEARNERS:
        timed, faults = _rounds(bench, learner, copied)
        found |= timed
        wrong += faults
    return {**found, "failed": wrong}


def full(n: int, sizes: common.Sizes, random: np.random.Generator) -> dict[str, Any]:
    """Time a round of the learner `full` for n images.

    It is ridge without a penalty, but what no factorisation on the device can solve, as with fewer images than
    features, the host solves class by class: seconds for each. So a fit is one round, and run once if it takes long.
    """
    bench, copied = Bench(n, sizes, random), speed.measured(sizes).copy
    found, wrong = _rounds(bench, "full", copied, rounds=1)
    return {**found, "failed": wrong}


def _preprocess(bench: Bench, step: Preprocess, copied: float) -> Any:
    gpu = common.gpu()
    reason = common.not_run(step, bench.sizes)
    if reason is not None:
        return reason
    count = counts.counts(bench.work(preprocess=step.name.value))["preprocess"]
    ms = common.median_ms(
        lambda: gpu.preprocess.apply(bench.pixels, step), bench.sizes.timings, bench.sizes.seconds
    )
    return common.rates(ms, count, copied)


def _of_images(bench: Bench) -> Iterator[Stage]:
    """Yield the stages before boosting."""
    from pipeline.backends.gpu import hog_plan

    gpu, X = common.gpu(), bench.X
    n, p = X.shape
    moved = hog_plan.bytes_moved(bench.layout, np.dtype(np.uint8), "float32")
    yield Stage("HoG", bench.hog, Count(n * moved, counts.hog(bench.work()).operations))
    yield Stage("look for NaN", lambda: gpu.first_not_finite(X), Count(n * p * 4))
    k = max(1, min(KEPT, n // 2, p // 2))

    def reduce() -> None:
        found = gpu.pca.fit(X, k, None)
        gpu.pca.transform(X, gpu.put(found.mean), gpu.put(found.components))

    yield Stage("reduce=pca, fit and reduce", reduce, counts.reduce(bench.work(components=k)))
    yield Stage("means and variances", lambda: gpu.wls.column_moments(X), counts_rounds.set_up(bench.work()))


def _of_rounds(bench: Bench) -> Iterator[Stage]:
    """Yield what a boosting round consists of."""
    gpu, X, J, random = common.gpu(), bench.X, bench.J, bench.random
    cp, wls, scores = common.namespace(), gpu.wls, gpu.scores
    n, p = X.shape
    center = wls.column_moments(X)[0]
    F, weight = (gpu.put(a.astype(np.float32)) for a in (random.normal(size=(n, J)), random.random(n)))
    labels = scores.targets(bench.y, J)
    targets = lambda: scores.working_response(F, labels, weight, 3.0, "gradient", 1e-7)  # noqa: E731
    W, R = targets()
    yield Stage("softmax, weights, responses", targets, counts_rounds.targets(bench.work()))
    yield Stage(
        "scores moved, log-loss",
        lambda: scores.advance(F, R, 0.3, labels, weight),
        counts_rounds.advance(bench.work(), n),
    )
    summed = counts_rounds.rounds(bench.work("componentwise"))["sums"]
    yield Stage("componentwise sums", lambda: wls.componentwise_sums(X, center, W, R), summed)
    columns, many = np.sort(random.choice(p, min(SUBSPACE, p), replace=False)), bench.sizes.random_features
    made = {
        "subspace": (len(columns), lambda: wls.gather(X, columns, center)),
        "random_features": (many, lambda: wls.random_features(X, center, 1e-4, many, 1, 0)),
    }
    for learner, (q, make) in made.items():
        work = bench.work(learner, q)
        yield Stage(f"columns of {learner}", make, counts_rounds.columns(work, n))
        yield from _fits(learner, make(), cp.zeros(q), W, R, work)
    yield from _fits("ridge", X, center, W, R, bench.work())


def _fits(learner: str, X: Any, center: Any, W: Any, R: Any, work: Work) -> Iterator[Stage]:
    """Yield a learner's fit at both precisions of the Gram matrix, and the step's values."""
    wls, count = common.gpu().wls, counts_fits.sums(work) + counts_fits.solve(work)
    for precision in ("full", "tf32"):
        name = f"fit of {learner}" + (", tf32" if precision == "tf32" else "")
        yield Stage(name, lambda p=precision: wls.fit(X, center, W, R, 1.0, p), count)
    found = wls.fit(X, center, W, R, 1.0)
    applied = counts_rounds.product(work, X.shape[0], X.shape[1], W.shape[1])
    yield Stage(f"values of {learner}", lambda: wls.apply(X, center, found.coef, found.intercept), applied)


def _of_models(bench: Bench) -> Iterator[Stage]:
    """Yield predictions: features on the device, scores home."""
    (n, p), many = bench.X.shape, bench.sizes.random_features
    for learner, name in (("subspace", "linear"), ("random_features", "random features, a round")):
        work = bench.work(learner, many if learner == "random_features" else p)
        model = LogitBoostClassifier(learner, n_rounds=1, n_components=many, random_state=0, backend="gpu")
        model.fit(bench.X, bench.y)
        checked = Count(n * p * 4)  # rows are looked through for NaN first
        count = checked + counts.counts(work)["evaluate"]
        yield Stage(f"prediction, {name}", lambda m=model: m.decision_function(bench.X), count)


class Marks:
    """Events at the begin and the end of each stage that the program names."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, Any, Any]] = []

    def begin(self, name: str, is_part: bool) -> Any:
        """Record an event."""
        return name, common.gpu().clock.mark()

    def end(self, token: Any) -> None:
        """Record another."""
        self.marks.append((*token, common.gpu().clock.mark()))

    def count(self, name: str, amount: float) -> None:
        """Take no notice."""

    def beside(self, begin: Any, end: Any) -> None:
        """Take no notice."""

    def ms(self) -> dict[str, float]:
        """Return the milliseconds of each name, all its stretches together."""
        total: dict[str, float] = {}
        for name, begin, end in self.marks:
            total[name] = total.get(name, 0.0) + 1e3 * common.gpu().clock.seconds(begin, end)
        return total


def _rounds(
    bench: Bench, learner: str, copied: float, rounds: int = ROUNDS
) -> tuple[dict[str, Any], list[str]]:
    """Time whole fits, and in them the stages of a round. Between two events the device may also wait for the host."""
    rounds, many = min(rounds, bench.sizes.rounds), bench.sizes.random_features
    q = {"subspace": min(SUBSPACE, bench.X.shape[1]), "random_features": many}.get(learner, 0)
    model = LogitBoostClassifier(
        learner,
        n_rounds=rounds,
        subspace_size=SUBSPACE,
        n_components=many,
        random_state=0,
        backend="gpu",
    )
    samples: list[dict[str, float]] = []
    begin = time.perf_counter()
    while len(samples) < 1 + min(3, bench.sizes.timings):
        marks = Marks()
        with spans.listening(marks), spans.span("fit as a whole"):
            model.fit(bench.X, bench.y)
        samples.append(marks.ms())
        if time.perf_counter() - begin > LONG:
            break
    samples = samples[1:] or samples  # the first compiles kernels, a small part of a fit that takes long
    parts = counts_rounds.rounds(bench.work(learner, q))
    found, wrong = {}, []
    for name, count in parts.items():
        times = [sample[name] / rounds for sample in samples if name in sample]
        if times:
            found[f"round of {learner}: {name}"] = common.rates(statistics.median(times), count, copied)
        else:
            wrong.append(f"no stage called {name} in a round of {learner}")
    whole = counts_rounds.set_up(bench.work(learner, q))
    for count in parts.values():
        whole += count.times(rounds)
    ms = statistics.median(sample["fit as a whole"] for sample in samples)
    found[f"fit of {rounds} round{'s' * (rounds > 1)} of {learner}"] = common.rates(ms, whole, copied)
    return found, wrong
