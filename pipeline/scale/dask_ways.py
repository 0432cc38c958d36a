"""How an answer comes home from Dask's workers: as the result of a task, or straight from a few workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent import futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed.client import CancelledError, ClosedClientError
from distributed.protocol import pickle
from distributed.scheduler import KilledWorker

from pipeline.scale import held
from pipeline.scale.wire import Answer, Leaf, Node, Order, added, awaited, leaves, payload

if TYPE_CHECKING:
    from pipeline.scale.dask_cluster import Cluster

# How Dask says that somebody is not there any more; a task's own error may be one of these as well.
DIED = (CancelledError, futures.CancelledError, KilledWorker)
GONE = (*DIED, OSError, TimeoutError)
FEW = 4  # workers that are asked straight
AT_ONCE = 64 << 20  # bytes that these may send home together
REACHED = 2.0  # seconds in which a worker must answer its first call


class Coming:
    """A result on its way home. Looking whether it is there does not disturb it, however large it is."""

    def __init__(self, cluster: Cluster, future: Any) -> None:
        self.future = future
        coming = cluster.client.gather(future, asynchronous=True)
        self.home = asyncio.run_coroutine_threadsafe(coming, cluster.client.loop.asyncio_loop)

    def result(self) -> Any:
        """Return what has come home; None if it was lost on the way. What the task itself raised is raised."""
        try:
            return self.home.result()
        except GONE as error:
            if self.failed(error):
                raise
            return None

    def failed(self, error: BaseException) -> bool:
        """Return whether the task itself raised the error."""
        return self.future.status == "error" and not isinstance(error, DIED)

    def cancel(self) -> None:
        """Give it up."""
        self.home.cancel()
        with suppress(OSError, TimeoutError, ClosedClientError):  # the scheduler may be gone already
            self.future.cancel()


class Straight:
    """Answers of a few workers on their way home, without the scheduler and without tasks: one hop each way.

    Parameters
    ----------
    cluster : whose workers are asked
    root : the tree in which the answers are added, here
    keys : of each piece the name under which its worker keeps it
    order : what is asked
    """

    def __init__(self, cluster: Cluster, root: Node, keys: Sequence[str], order: Order) -> None:
        self.root, self.bytes = root, 0
        self._leaves = leaves(root)
        function = pickle.dumps(_answered)
        calls = [
            (one.worker, function, pickle.dumps((list(keys[one.first : one.stop]), order)))
            for one in self._leaves
        ]
        self.home = asyncio.run_coroutine_threadsafe(
            _called(cluster.client, calls), cluster.client.loop.asyncio_loop
        )

    def result(self) -> Answer | None:
        """Return the sum of the answers; None if a worker is gone, lacks a piece, or met an error.

        Whoever asks then asks again by tasks, which wait for what is not there yet, and tell errors.
        """
        try:
            replies = self.home.result()
        except GONE:
            return None
        found: list[Answer] = [reply["result"] for reply in replies if reply["status"] == "OK"]
        if len(found) < len(replies) or any(one is None for one in found):
            return None
        self.bytes = sum(payload(one.value) for one in found)
        return _summed(self.root, dict(zip(self._leaves, found, strict=True)))

    def cancel(self) -> None:
        """Give it up."""
        self.home.cancel()


def few(root: Node, order: Order) -> bool:
    """Return whether the workers of a tree are so few, and what they send so little, that no tree is needed."""
    count = len(leaves(root))
    return count <= FEW and count * awaited(order) <= AT_ONCE


def reached(cluster: Cluster, workers: Sequence[str]) -> bool:
    """Return whether each worker can be called from here: a scheduler's address does not promise that."""

    async def call() -> None:
        calls = [cluster.client.rpc(one).identity() for one in workers]
        await asyncio.wait_for(asyncio.gather(*calls), REACHED)

    try:
        asyncio.run_coroutine_threadsafe(call(), cluster.client.loop.asyncio_loop).result()
    except (OSError, TimeoutError):
        return False
    return True


async def _called(client: Any, calls: list[tuple[str, bytes, bytes]]) -> list[dict[str, Any]]:
    """Let each worker run a function on arguments, both pickled; return what its server replies."""
    empty = pickle.dumps({})
    asked = [client.rpc(one).run(function=what, args=given, kwargs=empty) for one, what, given in calls]
    return list(await asyncio.gather(*asked))


async def _answered(keys: list[str], order: Order, dask_worker: Any) -> Answer | None:
    """Ask a worker's pieces, in the thread in which its tasks run; None if one is not there."""
    pieces = [dask_worker.data.get(key) for key in keys]
    if any(piece is None for piece in pieces):
        return None
    loop, threads = asyncio.get_running_loop(), dask_worker.executors["default"]
    found: Answer = await loop.run_in_executor(threads, held.ask, order, *pieces)
    return found


def _summed(node: Node, answers: dict[Leaf, Answer]) -> Answer:
    """Return the sum in the order of the tree, so that it has the tree's bits."""
    if isinstance(node, Leaf):
        return answers[node]
    return added(_summed(node.left, answers), _summed(node.right, answers))
