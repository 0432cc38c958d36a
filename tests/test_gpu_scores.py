"""The scores of a round when memory runs out: fewer rows at a time, the same bits; under the double."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest

from pipeline.errors import BackendError


def scores_problem(n, J, dtype):
    """Return F, values whose rows do not lie together, class numbers and weights."""
    rng = np.random.default_rng(n + J)
    F, values = rng.normal(scale=3.0, size=(n, J)).astype(dtype), rng.normal(size=(J, n)).astype(dtype)
    return F, values, rng.integers(0, J, n), rng.random(n).astype(dtype)


def on_device(gpu, n, J, dtype=np.float64):
    F, values, codes, weight = scores_problem(n, J, dtype)
    return gpu.put(F), gpu.put(values).T, gpu.scores.targets(codes, J), gpu.put(weight)


def granules(*sizes):
    """Return the bytes that allocations of these sizes take from the pool."""
    return sum(-(-size // 512) * 512 for size in sizes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "J", "spare", "last"), [(3000, 4, 10_000, None), (9001, 1, 4000, None), (40, 128, 1536, 1)]
)
def test_scores_move_in_halves_when_memory_runs_out(machine, gpu, caplog, n, J, spare, last, dtype):
    """No bit changes: rows do not depend on each other, and the loss is added up over all of them."""
    F, values, labels, weight = on_device(gpu, n, J, dtype)
    wanted = [gpu.get(a) for a in gpu.scores.advance(F, values, 0.3, labels, weight)[:2]]
    blocks = gpu.scores.wls_plan.log_loss(F.dtype, n, J).grid[0]
    machine.limit = machine.used + granules(F.nbytes, 8 * blocks, 16) + spare * F.dtype.itemsize // 8
    if last is not None:
        machine.limit = (
            machine.used + granules(F.nbytes, 8 * blocks, 16) + granules(1, J * F.dtype.itemsize, 1)
        )
    before = machine.count["emptied"]
    with caplog.at_level(logging.WARNING):
        found = gpu.scores.advance(F, values, 0.3, labels, weight)[:2]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(gpu.get(a), b)
    assert f"out of GPU memory with {n} rows at a time: trying {n // 2}" in caplog.text
    assert machine.count["emptied"] - before >= 2
    if last is not None:
        assert f"trying {last}" in caplog.text.splitlines()[-1]


@pytest.mark.parametrize("clip", ["gradient", "paper"])
def test_responses_are_formed_in_halves_when_memory_runs_out(machine, gpu, caplog, clip):
    F, _, labels, weight = on_device(gpu, 3000, 4)
    wanted = [gpu.get(a) for a in gpu.scores.working_response(F, labels, weight, 3.0, clip, 1e-7)]
    machine.limit = machine.used + granules(F.nbytes, F.nbytes) + 512
    with caplog.at_level(logging.WARNING):
        found = gpu.scores.working_response(F, labels, weight, 3.0, clip, 1e-7)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(gpu.get(a), b)
    assert "out of GPU memory with 3000 rows at a time: trying 1500" in caplog.text


def test_not_even_one_row_of_scores_can_be_worked_on(machine, gpu):
    F, values, labels, weight = on_device(gpu, 40, 128)
    machine.limit = machine.used + granules(F.nbytes, 8 * 40, 16) + 1000
    with pytest.raises(BackendError, match="too few for a single one of the rows"):
        gpu.scores.advance(F, values, 1.0, labels, weight)


@pytest.mark.parametrize("function", ["advance", "working_response"])
def test_results_that_cannot_be_halved_are_tried_twice_and_told_in_one_line(machine, gpu, caplog, function):
    """The scores, weights and responses of all rows must be on the device as a whole."""
    from pipeline.messages import one_line

    F, values, labels, weight = on_device(gpu, 10_000, 3)
    rest = {
        "advance": (values, 1.0, labels, weight),
        "working_response": (labels, weight, 3.0, "gradient", 1e-7),
    }[function]
    gc.collect()  # what an error of another test still holds would be given back later
    machine.limit = machine.used + F.nbytes // 2
    with pytest.raises(MemoryError) as raised, caplog.at_level(logging.WARNING):
        getattr(gpu.scores, function)(F, *rest)
    assert "of 10000 rows and 3 classes: trying again with the pool emptied" in caplog.text
    assert machine.count["emptied"] == 1
    line = one_line(raised.value, "train")
    assert line.startswith("out of GPU memory (")
    assert "backend=cpu" in line
    assert "\n" not in line


def test_results_are_found_room_for_by_emptying_the_pool(machine, gpu, monkeypatch):
    """As where free memory is there, but in pieces."""
    import cupy

    from pipeline.backends.gpu import memory

    calls = []

    def fragmented():
        calls.append(machine.count["emptied"])
        if machine.count["emptied"] == 0:
            raise cupy.cuda.memory.OutOfMemoryError("in pieces")
        return "room"

    assert memory.whole(fragmented, "something") == "room"
    assert calls == [0, 1]
