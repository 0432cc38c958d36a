"""``scale=dask``: images become features on the workers and stay there; this process splits, solves and evaluates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import backends, config, datasets
from pipeline.boosting import LogitBoostClassifier
from pipeline.datasets.pieces import Inventory
from pipeline.errors import ConfigError, DataError
from pipeline.features import HogExtractor
from pipeline.scale import held, placing
from pipeline.scale.dask_cluster import Cluster
from pipeline.scale.dask_crew import Crew
from pipeline.scale.dask_team import DaskTeam
from pipeline.scale.held import Own, Told
from pipeline.scale.recipe import Recipe
from pipeline.scale.wire import Order

UNKNOWN = 2 << 30  # bytes that a worker without a limit is taken to have for sums
FOR_SUMS = 0.15  # of a worker's memory


def check(cfg: config.Train, backend: str) -> None:
    """Refuse, before any image is read, what cannot be done with Dask.

    Raises
    ------
    ConfigError
    """
    if backend == "reference":
        raise ConfigError(
            "scale=dask works with backend=cpu or gpu: reference keeps rows where others have sums; add backend=cpu"
        )
    if cfg.classifier.trim > 0.0:
        raise ConfigError(
            f"classifier.trim={cfg.classifier.trim} needs the weights of all images at once, which scale=dask does "
            "not have; use classifier.trim=0 or scale=local"
        )
    if cfg.reduce.name is not config.ReduceName.none:
        raise ConfigError(
            f"reduce={cfg.reduce.name.value} needs all features at once, which scale=dask does not have; use "
            "reduce=none or scale=local"
        )


@dataclass
class Kept:
    """A data set whose features lie with the workers."""

    crew: Crew
    images: datasets.Images  # without pixels: a constant stands in for them
    digests: np.ndarray  # void (n,): a digest of the pixels of each image
    rejected: list[datasets.Rejected]
    seconds: dict[str, float]  # of reading and decoding, of all workers together
    stamps: datasets.Stamps
    cuts: np.ndarray  # int (pieces + 1,): numbers of the first image of each piece
    gram_bytes: int

    def divided(self, index: np.ndarray) -> list[np.ndarray]:
        """Return of each piece the rows whose numbers are in `index`, rising, counted from its first."""
        order = np.sort(index)
        bounds = np.searchsorted(order, self.cuts)
        return [
            (order[a:b] - first).astype(np.int32)
            for a, b, first in zip(bounds, bounds[1:], self.cuts, strict=False)
        ]


def load_of(cfg: config.Train, extractor: HogExtractor, total: int, classes: int) -> placing.Load:
    """Return what images cost a worker."""
    settings, p = cfg.classifier, extractor.layout_.n_features
    learner = settings.learner.name
    q = {"subspace": min(settings.subspace_size, p), "random_features": settings.n_components}.get(learner, p)
    double = settings.dtype is config.FloatType.float64 or total * p <= 1 << 17
    item, feature = 8 if double else 4, np.dtype(extractor.dtype).itemsize
    columns = 3 * q * item if q < p or learner == "random_features" else 0
    sums = 8 * 6 * p * classes if learner == "componentwise" else 8 * q * q * 6
    pixels = cfg.chunk * cfg.image.height * cfg.image.width * 12
    image = p * max(item, feature) + columns + 16 * classes * item + 64
    return placing.Load(image, p * feature, sums + pixels + (1 << 25))


def recipe_of(cfg: config.Train, extractor: HogExtractor, backend: str) -> Recipe:
    """Return how the workers make features."""
    hog = {**extractor.get_params(), "backend": backend}
    return Recipe(hog, cfg.image, cfg.preprocess, cfg.chunk, cfg.backend.threads or 1, cfg.backend.device)


def keep(
    cfg: config.Train,
    extractor: HogExtractor,
    backend: str,
    cluster: Cluster,
    found: Inventory,
    partitions: int | None,
    advance: Callable[[int, int], Any],
    told: Callable[[str], Any],
    expected: datasets.Stamps | None = None,
) -> Kept:
    """Let the workers read the images and make features of them.

    Parameters
    ----------
    found : the list of the images
    partitions : pieces; None: from the workers' memory
    advance : told (images done, images in all)
    told : told in a line when something was lost
    expected : what pictures that are made were before

    Raises
    ------
    ConfigError, DataError, ClusterError
        If the workers have too little memory, an image cannot be used, too many files are rejected, or the cluster is
        lost.
    """
    cluster.await_workers()
    limits = list(cluster.memory().values()) or [0]  # the last one may go this moment: it is waited for later
    load = load_of(cfg, extractor, found.total, len(found.class_names))
    count = placing.pieces(found.total, limits, load, partitions)
    crew = Crew(cluster, found.pieces(count), recipe_of(cfg, extractor, backend), load, told)
    answers: dict[int, Told] = {}
    rejected, done = list(found.rejected), 0
    for number, answer in crew.read():
        answers[number] = answer
        rejected += answer.rejected
        found.check_rejected(rejected)
        done += crew.pieces[number].end - crew.pieces[number].begin
        advance(done, found.total)
    parts = [answers[i] for i in range(count)]
    rejected = [*found.rejected, *(one for part in parts for one in part.rejected)]
    paths = [path for part in parts for path in part.paths]
    if not paths:
        raise DataError(
            f"data.path={cfg.data.path}: none of {found.total} files is a picture that can be used"
        )
    labels = np.concatenate([part.labels for part in parts]).astype(np.intp)
    digests = np.concatenate([part.digests for part in parts])
    seconds: dict[str, float] = {"read": 0.0, "decode": 0.0}
    for part in parts:
        for key, value in part.seconds.items():
            seconds[key] = seconds.get(key, 0.0) + value
    stand_in = np.broadcast_to(np.uint8(0), (len(paths), cfg.image.height, cfg.image.width))
    images = datasets.Images(stand_in, labels, found.class_names, paths)
    stamps = found.stamps
    if stamps is None:
        stamps = datasets.Stamps.of_digests([one.tobytes() for one in digests], labels)
        if expected is not None:
            expected.compare(stamps, f"data={cfg.data.name.value}")
    cuts = np.concatenate([[0], np.cumsum([len(part.paths) for part in parts])]).astype(np.intp)
    least = min((limit for limit in limits if limit), default=UNKNOWN)
    each = -(-count // max(len(limits), 1))
    gram_bytes = int(least * FOR_SUMS / (each + 4))
    return Kept(crew, images, digests.view("V16")[:, 0], rejected, seconds, stamps, cuts, gram_bytes)


def fit(
    unfitted: LogitBoostClassifier,
    kept: Kept,
    fitted: np.ndarray,
    watched: np.ndarray,
    held_out: np.ndarray,
    n_features: int,
    hooks: dict[str, Any],
) -> LogitBoostClassifier:
    """Fit the classifier: it solves here, on the cpu backend, what the workers sum.

    Parameters
    ----------
    fitted, watched, held_out : numbers of the images; no image to watch: none is
    hooks : of the classifier's ``fit``
    """
    labels = kept.images.labels
    assert labels is not None  # the set was listed as one with labels
    shares = {"train": kept.divided(fitted), "watch": kept.divided(watched)}
    last = "watch" if len(watched) else "train"

    def team(name: str, codes: np.ndarray, weight: np.ndarray) -> DaskTeam:
        sizes = [len(rows) for rows in shares[name]]
        cuts = np.cumsum(sizes)[:-1]
        alike = bool((weight == 1.0).all())
        own = zip(shares[name], np.split(codes.astype(np.int32), cuts), np.split(weight, cuts), strict=True)
        crew = kept.crew
        for past, (rows, mine, weights) in zip(crew.past, own, strict=True):
            past.dtype, past.teams[name] = unfitted.dtype_, Own(rows, mine, None if alike else weights)
        if name == last:
            for past, rows in zip(crew.past, kept.divided(held_out), strict=True):
                past.held_out = rows
            for _ in crew.each("divide", held.divide, lambda i: (crew.past[i],)):
                pass
        return DaskTeam(backends.get("cpu"), crew, name, sizes, float(weight.sum()), kept.gram_bytes)

    y_watched = labels[np.sort(watched)] if len(watched) else None
    return unfitted.fit_teams(team, n_features, labels[np.sort(fitted)], y_watched, **hooks)


def probabilities(kept: Kept, classifier: LogitBoostClassifier, held_out: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, classes) of the images held out, in the order of their numbers as given."""
    order = Order("", "probabilities", (classifier.state(), kept.images.class_names))
    found = {i: answer.value for i, answer in kept.crew.each("evaluate", held.ask_one, lambda i: (order,))}
    rising = np.concatenate([found[i] for i in range(len(kept.crew))])
    proba = np.empty_like(rising)
    proba[np.argsort(held_out, kind="stable")] = rising
    return proba
