"""``train`` with ``scale=dask``: the same steps with the rows on Dask workers."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import backends, config
from pipeline.checkpoint import Keeper
from pipeline.commands import apart, keeping, results, rounds, steps
from pipeline.datasets.pieces import inventory
from pipeline.features import HogExtractor
from pipeline.model import Model
from pipeline.reporting import tables
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages

if TYPE_CHECKING:
    from pipeline.datasets.pieces import Inventory
    from pipeline.scale.dask_cluster import Cluster

log = logging.getLogger(__name__)
MORE = 2  # times the memory that suits workers, which they still have: what suits them is a seventh of theirs


def run(cfg: config.Train, stages: Stages, keeper: Keeper | None = None) -> results.Trained:
    """Train on the workers of a cluster, which is found or started here.

    Raises
    ------
    ConfigError, DataError, ClusterError
    """
    from pipeline.scale import dask_cluster

    with stages("start"):
        name = backend_of(cfg.backend, cfg.scale)
        from pipeline.scale import dask_run

        dask_run.check(cfg, name)
        steps.check_layout(cfg.hog, cfg.image)
        hog = steps.extractor(cfg.hog, cfg.image, "cpu")
        data = keeping.whereabouts(keeper, cfg.data)
    with stages("list"):
        found = inventory(data, cfg.image, True, keeping.stamps(keeper))
    with ExitStack() as stack:
        with stages("cluster"):
            cluster = stack.enter_context(dask_cluster.connected(cfg.scale, name))
            introduce(cluster)
        if keeper is not None:
            keeper.begun = True
        stack.enter_context(backends.get("cpu").threads(cfg.backend.threads))
        return _train(cfg, hog, name, cluster, found, stages, keeper)


def backend_of(settings: config.Backend, scale: config.Scale) -> str:
    """Return the name of the workers' backend; this machine need not have their GPU."""
    from pipeline.scale import dask_cluster

    name = settings.name.name if settings.name is config.BackendName.gpu else steps.choose_backend(settings)
    dask_cluster.require(name, scale)
    return name


def introduce(cluster: Cluster) -> None:
    """Tell where the cluster and its dashboard are, and what differs there."""
    workers = cluster.threads()
    line = f"Dask at {cluster.address}: {tables.count(len(workers), 'worker')}, dashboard {cluster.dashboard}"
    say(line)
    for differs in cluster.check_versions():
        say(f"other software: {differs}")


def say(line: str) -> None:
    """Tell a line, here and in the log."""
    log.info(line)
    tables.say(f"  {line}")


def _train(
    cfg: config.Train,
    hog: HogExtractor,
    backend: str,
    cluster: Cluster,
    found: Inventory,
    stages: Stages,
    keeper: Keeper | None,
) -> results.Trained:
    """Let the workers read, train on them, evaluate and save."""
    from pipeline.scale import dask_run

    count = keeping.partitions(keeper) or cfg.scale.partitions
    expected = keeping.stamps(keeper)
    with (
        stages("features"),
        progress("features") as advance,
        steps.rejected_kept(Path(cfg.run_dir) / "rejected.csv"),
    ):
        kept = dask_run.keep(cfg, hog, backend, cluster, found, count, advance, say, expected)
    try:
        parts = apart.divide(cfg, kept, stages, keeper, found.data.path, backend, len(kept.crew))
        kept.gram_bytes = _gram_bytes(kept.gram_bytes, keeping.noted(keeper, "gram_bytes"))
        keeping.add(keeper, gram_bytes=kept.gram_bytes)
        with stages("boost"):
            unfitted = steps.classifier(cfg.classifier, "cpu")
            rows = parts.fitted, parts.watched, parts.held_out
            classifier = rounds.with_progress(
                lambda hooks: dask_run.fit(unfitted, kept, *rows, hog.layout_.n_features, hooks),
                unfitted,
                keeper=keeper,
                beside=lambda: f"  {tables.count(kept.crew.workers, 'worker')}",
            )
        with stages("evaluate"):
            proba = dask_run.probabilities(kept, classifier, parts.held_out)
    finally:
        kept.crew.close()
    hog = hog.set_params(backend=backend)
    model = Model(hog, classifier, kept.images.class_names, cfg.image, cfg.preprocess)
    return apart.finish(cfg, stages, model, kept, parts, proba)


def _gram_bytes(ours: int, begun: int | None) -> int:
    """Return the memory for Gram matrices, as when the run began: sums of more or fewer classes round differently.

    Parameters
    ----------
    ours : what suits the workers that are there
    """
    if begun is None or begun <= MORE * ours:
        return begun or ours
    say(
        "the workers have less memory for sums than when the run began: the model may differ in its last digits"
    )
    return ours
