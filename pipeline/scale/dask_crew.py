"""Pieces of a set on Dask workers: held there, asked together, made again where a worker was lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from pipeline.datasets.pieces import Piece
from pipeline.errors import ClusterError
from pipeline.scale import held, placing
from pipeline.scale.dask_cluster import POLL, Cluster
from pipeline.scale.dask_ways import Coming, Straight, few, reached
from pipeline.scale.held import Past
from pipeline.scale.recipe import Recipe
from pipeline.scale.told import First, Told
from pipeline.scale.wire import Answer, Begun, Leaf, Node, Order, added, payload, tree

PATIENCE = 8  # losses of one piece, without any answer in between, after which the run stops
# Bytes of a message that go to every worker straight; beyond, workers hand it on to each other.
COPIES = 1 << 20
# Seconds after which an order goes by the scheduler though it need not: one that sees no task for long may think its
# cluster idle (--idle-timeout) and end it.
SIGN_OF_LIFE = 30.0


class Crew:
    """All pieces of a set.

    Parameters
    ----------
    cluster : where they lie
    pieces : what to read
    recipe : how to make features
    load : what images cost
    told : called with a line when something was lost and is made again

    Attributes
    ----------
    first : of each piece what was told of it first, once it has been
    owner : of each piece the address of the worker that holds it
    exchanged : bytes of the messages so far, down (each counted once) and up (of the root)
    straight : bytes that workers have sent straight to this process
    """

    def __init__(
        self,
        cluster: Cluster,
        pieces: list[Piece],
        recipe: Recipe,
        load: placing.Load,
        told: Callable[[str], Any] = lambda line: None,
    ) -> None:
        self.cluster, self.pieces, self.recipe, self.load, self.told = cluster, pieces, recipe, load, told
        self.name, self._serial = uuid.uuid4().hex[:12], 0
        self.past = [Past() for _ in pieces]
        self.first: list[First | None] = [None] * len(pieces)
        self.begun: dict[str, Begun] = {}
        self.losses = [0] * len(pieces)
        self.exchanged, self.straight = [0, 0], 0
        self._seen = -SIGN_OF_LIFE  # when the scheduler last saw an order
        self._within_reach: dict[frozenset[str], bool] = {}
        workers = self._admitted()
        self.threads = workers
        self.owner = placing.neighbours(len(pieces), list(workers))
        self.held: list[Any] = [None] * len(pieces)
        for i in range(len(pieces)):
            self._hold(i)

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def workers(self) -> int:
        """How many workers hold pieces."""
        return len(set(self.owner))

    def close(self) -> None:
        """Let the workers forget the pieces."""
        self.held = []

    def _key(self, what: str) -> str:
        self._serial += 1
        return f"hogboost-{what}-{self.name}-{self._serial}"

    def _submit(self, what: str, worker: str | None, function: Callable[..., Any], *arguments: Any) -> Any:
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": False}
        with self.cluster.asked():
            return self.cluster.client.submit(function, *arguments, key=self._key(what), pure=False, **where)

    def _hold(self, i: int, begun: Any = None) -> None:
        own = Recipe(**{**vars(self.recipe), "threads": self.threads.get(self.owner[i], self.recipe.threads)})
        self.held[i] = self._submit(
            "hold", self.owner[i], held.hold, i, self.pieces[i], own, self.past[i], begun, self.first[i]
        )

    def read(self) -> Iterator[tuple[int, Told]]:
        """Yield (number, what was told) of each piece as soon as it is read, in any order."""
        for i, answer in self.each("tell", held.tell, lambda i: ()):
            self.first[i] = First.of(answer.value)
            yield i, answer.value

    def each(
        self, what: str, function: Callable[..., Answer], arguments: Callable[[int], tuple[Any, ...]]
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (number, answer) of a question to each piece by itself; ``function(piece, *arguments(i))`` gives it."""
        pending, asked = set(range(len(self))), dict[int, Coming]()
        last = time.monotonic()
        while pending:
            for i in sorted(pending - asked.keys()):
                future = self._submit(what, self.owner[i], function, self.held[i], *arguments(i))
                asked[i] = Coming(self.cluster, future)
            done, _ = futures.wait([one.home for one in asked.values()], POLL, "FIRST_COMPLETED")
            lost = set() if done else self._orphans() & asked.keys()
            for i in [i for i, one in asked.items() if one.home in done]:
                answer = self._arrived(asked.pop(i))
                if answer is None or answer.lost:
                    lost.add(i)
                    continue
                pending.discard(i)
                self.losses[i], last = 0, time.monotonic()
                yield i, answer
            if lost:
                for i in self._recover(lost):
                    if i in asked:  # of a piece that is not there any more
                        asked.pop(i).cancel()
            self._check_time(last, what)

    def ask(self, order: Order) -> Any:
        """Return what all pieces say to an order, added in a tree: it may be repeated, so may be the order."""
        last = time.monotonic()
        self.exchanged[0] += payload(order)
        while True:
            answer = self._asked(order, last)
            if answer is not None and not answer.lost:
                self.losses = [0] * len(self)
                self.exchanged[1] += payload(answer.value)
                return answer.value
            # No answer, though no worker is gone: a connection that was lost took all results with it.
            everything = range(len(self))
            self._recover(answer.lost if answer is not None else self._orphans() or everything)
            self._check_time(last, order.what)

    def _asked(self, order: Order, last: float) -> Answer | None:
        """Ask once; None if a worker was lost meanwhile."""
        for way in (self._straight, self._by_tasks):
            with self.cluster.asked():
                coming = way(order)
            if coming is None:
                continue
            while not futures.wait([coming.home], POLL).done:
                if self._orphans():
                    coming.cancel()
                    return None
                self._check_time(last, order.what)
            answer = self._arrived(coming)
            if answer is not None:
                self.straight += coming.bytes if isinstance(coming, Straight) else 0
                return answer
        return None

    def _straight(self, order: Order) -> Straight | None:
        """Ask the workers themselves, if they are few and within reach."""
        root, now = tree(self.owner), time.monotonic()
        if not few(root, order) or now - self._seen > SIGN_OF_LIFE:
            return None
        workers = frozenset(self.owner)
        if workers not in self._within_reach:
            self._within_reach[workers] = reached(self.cluster, sorted(workers))
        if not self._within_reach[workers]:
            return None
        return Straight(self.cluster, root, [future.key for future in self.held], order)

    def _by_tasks(self, order: Order) -> Coming:
        """Ask by tasks of Dask, whose answers workers add among themselves."""
        self._seen = time.monotonic()
        [root] = self.cluster.client.get(*self._graph(order), sync=False)
        return Coming(self.cluster, root)

    def _arrived(self, coming: Coming | Straight) -> Answer | None:
        """Return an answer that has come home; None if it was lost on the way."""
        found: Answer | None = coming.result()
        if found is None:
            self.cluster.threads()  # raises if it is the scheduler that is gone
        return found

    def _graph(self, order: Order) -> tuple[HighLevelGraph, list[str]]:
        """Return the tasks of an exchange, those of a worker in a layer that binds them to it, and the root's key."""
        name = self._key(order.what)
        layers: dict[str, dict[str, Task]] = {"free": {}}
        root = tree(self.owner)
        small = payload(order) * len(set(self.owner)) <= COPIES
        message: Any = order if small else TaskRef(f"{name}-order")
        if not small:
            layers["free"][f"{name}-order"] = Task(f"{name}-order", held.same, order)

        def tasks(node: Node) -> str:
            if isinstance(node, Leaf):
                key = f"{name}-{node.first}-{node.stop}"
                pieces = [TaskRef(self.held[i].key) for i in range(node.first, node.stop)]
                layers.setdefault(node.worker, {})[key] = Task(key, held.ask, message, *pieces)
                return key
            left, right = tasks(node.left), tasks(node.right)
            key = f"{name}-{left.removeprefix(name)}+"
            layers["free"][key] = Task(key, added, TaskRef(left), TaskRef(right))
            return key

        key = tasks(root)
        bound = {
            worker: MaterializedLayer(
                graph,
                annotations={"workers": [worker], "allow_other_workers": False} if worker != "free" else None,
            )
            for worker, graph in layers.items()
        }
        others = {worker: {one for one in layers if one != worker} for worker in layers}
        return HighLevelGraph(bound, others), [key]

    def _orphans(self) -> set[int]:
        """Return the pieces whose workers are not there any more."""
        there = self.cluster.threads()
        return {i for i, worker in enumerate(self.owner) if worker not in there}

    def _recover(self, lost: Iterable[int]) -> list[int]:
        """Let pieces be read again: those of workers that are gone, elsewhere, and those that a worker lacks.

        Returns the numbers of these pieces: what they were asked before has no answer.
        """
        orphans = self._orphans()
        again = sorted(orphans | set(lost))
        workers = len({self.owner[i] for i in orphans})
        if workers:
            self.told(f"{workers} of the workers lost; {len(again)} of {len(self)} partitions are made again")
        for i in again:
            self.losses[i] += 1
            if self.losses[i] > PATIENCE:
                raise ClusterError(
                    f"partition {i} of {len(self)} was lost {self.losses[i]} times in a row; its workers die, perhaps "
                    "of too little memory: give more workers, or workers with more memory"
                )
        self.cluster.known -= {self.owner[i] for i in again}  # one that is back under its address is another
        self._admitted()
        begun = {n: Begun(b.number, b.frame, b.steps, list(b.moves)) for n, b in self.begun.items()}
        known = self._submit("past", None, held.same, begun) if begun else None
        for i in again:
            self.held[i] = None
            if i in orphans:
                self.owner[i] = self._taker(i)
            self._hold(i, known)
        return again

    def _taker(self, i: int) -> str:
        """Return the worker that takes a piece over; wait for one if none has room."""
        sizes = [piece.end - piece.begin for piece in self.pieces]
        deadline = time.monotonic() + self.cluster.settings.wait
        while True:
            self.threads = there = self._admitted()
            images = dict.fromkeys(there, 0)
            for k, worker in enumerate(self.owner):
                if worker in images:
                    images[worker] += sizes[k]
            found = placing.taker(sizes[i], images, max(sizes), self.cluster.memory(), self.load)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{len(there)} workers are left, and none has memory for the images of those that were lost; "
                    "start more workers"
                )
            time.sleep(POLL)

    def _admitted(self) -> dict[str, int]:
        """Return the workers as soon as there is one whose software is known: who joins later is asked for it, too."""
        deadline = time.monotonic() + self.cluster.settings.wait
        while True:
            there = self.cluster.await_workers()
            for differs in self.cluster.check_newcomers(there):
                self.told(f"other software: {differs}")
            known = {worker: threads for worker, threads in there.items() if worker in self.cluster.known}
            if known:
                return known
            if time.monotonic() > deadline:
                wait = f"scale.wait={self.cluster.settings.wait:g} seconds"
                raise ClusterError(
                    f"none of {len(there)} workers has told its versions for {wait}; start others"
                )
            time.sleep(POLL)

    def _check_time(self, last: float, what: str) -> None:
        limit = self.cluster.settings.timeout
        if time.monotonic() - last > limit:
            raise ClusterError(
                f"no worker has answered for scale.timeout={limit:g} seconds (waiting for: {what}); look at "
                f"{self.cluster.client.dashboard_link}, or raise scale.timeout"
            )
