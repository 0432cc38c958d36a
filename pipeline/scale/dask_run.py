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
from pipeline.scale import held, known, memory, placing
from pipeline.scale.dask_cluster import Cluster
from pipeline.scale.dask_crew import Crew
from pipeline.scale.dask_team import DaskTeam
from pipeline.scale.held import Own
from pipeline.scale.known import Known, Listing
from pipeline.scale.recipe import Recipe
from pipeline.scale.told import Told
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
    known.check(cfg)


@dataclass
class Kept(Known):
    """A data set whose features lie with the workers; `seconds` are those of all workers together."""

    crew: Crew
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
    learner, p = cfg.classifier.learner.name, extractor.layout_.n_features
    q, item, feature = known.columns(cfg, p), known.item(cfg, total * p), np.dtype(extractor.dtype).itemsize
    columns = 3 * q * item if q < p or learner == "random_features" else 0
    sums = 8 * q * q * 6
    if learner == "componentwise":
        sums = 8 * 6 * p * classes + memory.sums_of_segments(p, classes, memory.MOMENTS)
        columns = p * item // 16
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
    listing, parts = Listing(rejected=list(found.rejected)), [answers[i] for i in range(count)]
    for one in parts:
        listing.add(one.labels, one.paths, [row.tobytes() for row in one.digests], one.rejected, one.seconds)
    if not listing.paths:
        raise DataError(
            f"data.path={cfg.data.path}: none of {found.total} files is a picture that can be used"
        )
    images = listing.known(cfg, found.class_names, found.stamps, expected)
    cuts = np.concatenate([[0], np.cumsum([len(part.paths) for part in parts])]).astype(np.intp)
    least = min((limit for limit in limits if limit), default=UNKNOWN)
    each = -(-count // max(len(limits), 1))
    gram_bytes = int(least * FOR_SUMS / (each + 4))
    return Kept(**vars(images), crew=crew, cuts=cuts, gram_bytes=gram_bytes)


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
    return known.in_order(held_out, lambda _: np.concatenate([found[i] for i in range(len(kept.crew))]))
