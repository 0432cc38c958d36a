"""Two worker processes and TCP: results equal local, and bytes are those on paper, by the system's own counters.

The matrix of tests/test_dask.py runs on threads of one process, where no message is serialised.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress

import numpy as np
import pytest

from pipeline.scale import dask_cluster, dask_ways, wire
from tests import dask_runs
from tests.test_dask import LEARNERS, divided, local

pytest.importorskip("distributed")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the counters of Linux's TCP")

BETWEEN = (2, 12)  # rounds at whose end counters are read
# Bytes of a message beside its arrays: names, numbers, the envelope. With Dask's tasks the graph, too.
AROUND, AROUND_TASKS = 1500, 3500
# What the scheduler and a process say to each other in a round, whatever it is about.
TALK = 2500


def sent_and_received() -> dict[tuple, tuple[int, int]]:
    """Return of each TCP connection of this process (local, remote) the bytes acknowledged and received so far."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it is none, or was closed meanwhile
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as one:
                if (one.family, one.type) != (socket.AF_INET, socket.SOCK_STREAM):
                    continue
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                # tcpi_bytes_acked, tcpi_bytes_received of struct tcp_info in linux/tcp.h
                found[one.getsockname(), one.getpeername()] = struct.unpack_from("=QQ", info, 120)
    return found


class Counted:
    """A fit, and the bytes of a round on every connection of each process."""

    def __init__(self, cluster, cfg, rows) -> None:
        seen = {}

        def count(number, *_):
            if number in BETWEEN:
                seen[number] = {"here": sent_and_received(), **cluster.client.run(sent_and_received)}

        self.fitted = dask_runs.Fitted(cluster, cfg, 4, *rows, hooks={"on_round": count})
        before, after = (seen[number] for number in BETWEEN)
        assert before.keys() == after.keys()
        self.bytes = {
            process: {
                pair: tuple(np.subtract(now, before[process].get(pair, (0, 0))) / (BETWEEN[1] - BETWEEN[0]))
                for pair, now in pairs.items()
            }
            for process, pairs in after.items()
        }

    def to(self, process: str, address: str) -> tuple[float, float]:
        """Return the bytes a round (sent, received) of a process on its connections to what listens at an address."""
        host, port = address.removeprefix("tcp://").split(":")
        found = [both for (_, far), both in self.bytes[process].items() if far == (host, int(port))]
        return tuple(np.sum(found, axis=0)) if found else (0.0, 0.0)


def settings(learner, classes, dtype="float32", n=3600):
    cfg = dask_runs.settings(learner, dtype, n, classes)
    return cfg, divided(n, np.arange(n) % classes)


@pytest.fixture(scope="module")
def two():
    """Two worker processes, their scheduler in this process."""
    with (
        dask_runs.processes(2) as workers,
        dask_cluster.connected(
            dask_runs.scale(scheduler=workers.address, wait=60.0, workers=2), "cpu"
        ) as cluster,
    ):
        yield cluster


@linux
def test_two_processes_equal_local_and_send_what_is_on_paper(two):
    """Orders go straight to both: each gets the numbers on paper and sends those, and less than 1.5 kB beside."""
    J, q = 5, 20
    cfg, rows = settings("subspace", J)
    cfg.classifier.n_rounds = BETWEEN[1] + 2  # the last two foretell nothing: they are smaller
    model, proba = local(cfg, *rows)
    found = Counted(two, cfg, rows)
    np.testing.assert_allclose(found.fitted.proba, proba, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.fitted.classifier.train_loss_, model.train_loss_, rtol=0, atol=1e-6)
    down, up = 8 * wire.numbers_down(q, J, True), 8 * wire.numbers_up(q, J, J)
    for worker in two.threads():
        sent, received = found.to("here", worker)
        assert down <= sent <= down + AROUND
        assert up <= received <= up + AROUND
    crew = found.fitted.kept.crew
    assert crew.straight > 2 * up * BETWEEN[1]  # the way that was counted


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("learner", "q"), [("subspace", 20), ("random_features", 32)])
def test_bytes_of_the_tree_are_those_on_paper(learner, q, tmp_path, monkeypatch):
    """By tasks: the order by the scheduler to both, one worker's sums to the other, the root's by the scheduler."""
    monkeypatch.setattr(dask_ways, "FEW", 0)
    J = 5
    cfg, rows = settings(learner, J)
    cfg.classifier.n_rounds = BETWEEN[1] + 2
    with (
        dask_runs.scheduler(tmp_path) as (_, address),
        dask_runs.started(address, 2),
        dask_cluster.connected(dask_runs.scale(scheduler=address, wait=60.0, workers=2), "cpu") as cluster,
    ):
        found = Counted(cluster, cfg, rows)
        one, other = cluster.threads()
        assert found.fitted.kept.crew.straight == 0
    named = learner == "subspace"
    refined = wire.numbers_refined(q, J, named) if learner == "random_features" else (0, 0)
    exchanges = 2 if refined[0] else 1
    down = 8 * (wire.numbers_down(q, J, named) + refined[0])
    up = 8 * (wire.numbers_up(q, J, J) + refined[1])
    around = exchanges * AROUND_TASKS + TALK
    sent, received = found.to("here", address)
    assert down <= sent <= down + around
    assert up <= received <= up + around
    talk = [found.to(worker, address) for worker in (one, other)]
    for _, heard in talk:
        assert down <= heard <= down + around
    between = found.to(one, other)[1] + found.to(other, one)[1]  # whoever adds asks the other
    assert up <= between <= up + around


@pytest.mark.slow
@pytest.mark.parametrize("J", [2, 10])
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_over_tcp_equals_local(two, learner, J):
    cfg, rows = settings(learner, J, "float64", 800)
    wanted, proba = local(cfg, *rows)
    found = dask_runs.Fitted(two, cfg, 4, *rows)
    np.testing.assert_allclose(found.proba, proba, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.classifier.train_loss_, wanted.train_loss_, rtol=0, atol=1e-10)
    np.testing.assert_array_equal(found.classifier.rank_, wanted.rank_)
