"""``predict scale=dask``: pieces of a set are labelled by any worker, each into a file of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from distributed.scheduler import KilledWorker

from pipeline.datasets.pieces import Inventory
from pipeline.errors import ClusterError
from pipeline.scale import held, parts
from pipeline.scale.dask_cluster import POLL, Cluster
from pipeline.scale.dask_ways import GONE, Coming
from pipeline.scale.parts import Labelling, Part

PART = 50_000  # images of a part, at most, if the user does not say how many parts


def count(total: int, workers: int, asked: int | None) -> int:
    """Return in how many parts `total` images are labelled: four for each worker, so that none waits long."""
    return asked or max(1, min(max(4 * max(workers, 1), -(-total // PART)), total))


def label(
    cluster: Cluster, found: Inventory, labelling: Labelling, number: int
) -> Iterator[tuple[int, Part]]:
    """Yield (images of the piece, what became of it) of each of `number` pieces, in any order.

    A piece whose worker is lost is labelled by another.

    Raises
    ------
    ClusterError
        If the scheduler is lost, no worker is left, or workers die of one piece again and again.
    """
    client, last = cluster.client, time.monotonic()
    waiting: dict[Any, int] = {}
    with cluster.asked():
        shared = client.submit(held.same, labelling, pure=False)
        for i, piece in enumerate(found.pieces(number)):
            coming = Coming(cluster, client.submit(parts.label, shared, i, piece, pure=False))
            waiting[coming] = piece.end - piece.begin
    try:
        while waiting:
            done, _ = futures.wait([one.home for one in waiting], POLL, "FIRST_COMPLETED")
            for coming in [one for one in waiting if one.home in done]:
                yield waiting.pop(coming), _part(cluster, coming)
                last = time.monotonic()
            if not done:
                cluster.await_workers()
            if time.monotonic() - last > cluster.settings.timeout:
                raise ClusterError(
                    f"no worker has finished a part for scale.timeout={cluster.settings.timeout:g} seconds; give more "
                    "scale.partitions, or raise it"
                )
    finally:
        for coming in waiting:
            coming.cancel()


def _part(cluster: Cluster, coming: Coming) -> Part:
    try:
        found: Part = coming.home.result()
        return found
    except KilledWorker as error:
        raise ClusterError(
            f"several workers died of one part ({error}); they have too little memory: lower chunk="
        ) from error
    except GONE as error:
        if coming.failed(error):
            raise
        cluster.threads()  # raises if it is the scheduler that is gone
        raise ClusterError(f"a part was lost ({' '.join(str(error).split())[:160]}); start again") from error
