"""How benchmark takes time, and how rates, shares and speed-ups come of it."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.benchmarks import measure, needs, rates
from pipeline.benchmarks.rates import Limit
from pipeline.benchmarks.registry import Work
from pipeline.profiling import limits
from tests.benchmarking import TINY, _ask_anew, toy_suite  # noqa: F401  fixtures


class Clock:
    """A clock that moves only when work says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)

    def work(self, seconds, log=None, name=""):
        def run(*arguments):
            self.now += seconds
            if log is not None:
                log.append(name)
            return np.arange(3.0)

        return run


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_rows_take_turns_and_who_begins_changes(toy, clock):
    log = []
    rows = [(name, Work(clock.work(1.0, log, name)), ()) for name in "abc"]
    result = toy(*rows)(repeats=3, seconds=1e6)
    assert "".join(log) == "abc" + "abc" + "bca" + "cab"
    assert result.rounds == 3


def test_no_round_begins_that_would_end_too_late_and_there_is_one_at_least(toy, clock):
    run = toy(("a", Work(clock.work(1.0)), ()), ("b", Work(clock.work(3.0)), ()))
    assert run(repeats=9, seconds=13.0).rounds == 2  # 4 s of first calls, 4 s a round
    assert run(repeats=9, seconds=0.0).rounds == 1
    assert run(repeats=2, seconds=1e6).rounds == 2


def test_rate_share_and_speed_are_those_of_the_median(toy, clock):
    slow, fast = Work(clock.work(4.0)), Work(clock.work(0.5))
    result = toy(
        ("slow", slow, ()), ("fast", fast, ()), ("part", slow._replace(scale=10.0), ()), nbytes=10**10
    )(repeats=3, seconds=1e6)
    found = [(row.median, row.rate, row.share, row.faster, row.first) for row in result.rows]
    assert found == [
        (4.0, 2.5e9, 0.25, 1.0, 4.0),
        (0.5, 2e10, 2.0, 8.0, 0.5),
        (40.0, 2.5e8, 0.025, 0.1, None),
    ]
    assert {(row.unit, row.limit) for row in result.rows} == {("B", "copy")}


LIMITS = {Limit("copy"): 1e10, Limit("vector", "float32"): 2e9, Limit("product", "float64"): 5e9}


def test_what_takes_longer_at_its_limit_binds(toy, clock):
    work = Work(clock.work(4.0))
    rows = [
        ("by bytes", work, ()),  # 1 s for the bytes, 0.5 s for the operations
        ("by operations", work._replace(operations=4e9), ()),  # 2 s
        ("by products", work._replace(operations=1e10, arithmetic=("product", "float64")), ()),  # 2 s
        ("by nothing", work._replace(nbytes=0, operations=0.0), ()),
    ]
    toy(*rows, nbytes=10**10, operations=1e9)
    result = measure.run("toy", TINY, 1, 1e6, limit=lambda limit, setup: LIMITS[limit])
    assert [(row.rate, row.unit, row.limit, row.share) for row in result.rows] == [
        (2.5e9, "B", "copy", 0.25),
        (1e9, "FLOP", "float32 vector", 0.5),
        (2.5e9, "FLOP", "float64 product", 0.5),
        (None, "", "", None),
    ]
    assert result.limits == {"host copy": 1e10, "host float32 vector": 2e9, "host float64 product": 5e9}


def test_pieces_are_counted_in_place_of_operations(toy, clock):
    toy(("draws", Work(clock.work(2.0)), ()), nbytes=0, operations=1e9, pieces=(10**6, "points"))
    row = measure.run("toy", TINY, 1, 1e6, limit=lambda limit, setup: LIMITS[limit]).rows[0]
    assert (row.rate, row.unit, row.limit, row.share) == (5e5, "points", "float32 vector", 0.25)


def test_rows_on_a_gpu_that_cupy_cannot_measure_have_no_share_and_the_reason(toy, clock, monkeypatch):
    lack = needs.Missing("cupy is not installed", "pip install cupy")
    monkeypatch.setattr(needs, "missing", lambda name, device: lack)
    gpu = Work(clock.work(2.0), on_device=True)
    toy(("host", Work(clock.work(2.0)), ()), ("gpu", gpu, ()), nbytes=10**10, operations=1e9)
    result = measure.run("toy", TINY, 1, 1e6, limit=lambda limit, setup: LIMITS.get(limit))
    assert [(row.rate, row.unit, row.share) for row in result.rows] == [
        (5e9, "B", 0.5),
        (5e8, "FLOP", None),
    ]
    assert result.notes == [
        "rows on the GPU have no share of its limits, which CuPy measures: cupy is not installed: pip install cupy"
    ]


def test_rows_of_a_group_are_compared_with_its_first(toy, clock):
    times = {"x: a": 6.0, "x: b": 3.0, "y: a": 8.0, "y: b": 2.0}
    result = toy(*[(name, Work(clock.work(t)), ()) for name, t in times.items()])(repeats=2, seconds=1e6)
    assert [row.faster for row in result.rows] == [1.0, 2.0, 1.0, 4.0]


def test_copies_are_apart_and_the_device_is_idle_when_the_clock_is_read(toy, clock):
    log = []

    def step(name, seconds):
        return clock.work(seconds, log, name)

    def wait(_):
        clock.now += 0.25
        log.append("wait")

    work = Work(step("run", 1.0), put=step("put", 7.0), get=step("get", 5.0), wait=wait, on_device=True)
    result = toy(("gpu", work, ()))(repeats=2, seconds=1e6)
    row = result.rows[0]
    assert log == 3 * ["put", "wait", "run", "wait", "get"]
    assert (row.first, row.seconds, row.put, row.get) == (1.25, [1.25, 1.25], [7.25, 7.25], [5.0, 5.0])
    assert result.limits == {"GPU copy": 1e10}


def test_the_first_copy_back_which_is_cold_does_not_count(toy, clock):
    times = iter([30.0, 1.0, 3.0, 2.0])

    def get(result):
        clock.now += next(times)
        return result

    row = toy(("gpu", Work(clock.work(1.0), get=get), ()))(repeats=3, seconds=1e6).rows[0]
    assert row.get == [1.0, 3.0, 2.0]


def test_a_row_waits_until_the_threads_of_the_row_before_rest(toy, clock, monkeypatch):
    """BLAS and OpenMP look for more work for a while: on a core that the next row would get."""
    used, slept, spinning = [0.0], [], [0]

    def sleep(seconds):
        slept.append(seconds)
        used[0] += seconds * (spinning[0] > 0)
        spinning[0] -= 1

    def blas():
        clock.now += 1.0
        spinning[0] = 5
        return np.arange(3.0)

    seen = []
    monkeypatch.setattr(measure.time, "sleep", sleep)
    monkeypatch.setattr(measure.time, "process_time", lambda: used[0])
    next_one = Work(clock.work(1.0), put=lambda: seen.append(spinning[0]))
    toy(("blas", Work(blas), ()), ("next", next_one, ()))(repeats=1, seconds=1e6)
    assert seen[0] == 5  # the check is not timed
    assert all(count <= 0 for count in seen[1:])
    spinning[0] = 1 << 30  # something else in this process never rests: it is not waited for in vain
    slept.clear()
    rates.rest()
    assert len(slept) == rates.PAUSES


def test_the_limit_is_the_better_of_two_looks_before_and_after(toy, clock):
    found = iter([3e9, 5e9])
    suite = toy(("a", Work(clock.work(1.0)), ()), nbytes=10**9)
    assert suite  # the register is in place
    result = measure.run("toy", TINY, 2, 1e6, limit=lambda limit, setup: next(found))
    assert result.limits == {"host copy": 5e9}
    assert result.rows[0].share == pytest.approx(0.2)


def test_compilation_stays_in_the_first_call(toy, clock):
    later = []

    def run():
        clock.now += 1.0 if later else 30.0
        later.append(1)
        return np.arange(3.0)

    row = toy(("jit", Work(run), ()))(repeats=2, seconds=1e6).rows[0]
    assert (row.first, row.seconds) == (30.0, [1.0, 1.0])


def test_short_work_is_repeated_within_a_timing(toy, clock):
    log = []
    row = toy(("short", Work(clock.work(1e-4, log)), ()))(repeats=3, seconds=1e6).rows[0]
    assert row.seconds == pytest.approx([1e-4] * 3)
    assert len(log) == 1 + 1 + 3 * 20  # the check, the look at the length, 2 ms in each round


@pytest.mark.parametrize("limit", [Limit("copy"), Limit("product", "float32"), Limit("vector", "float64")])
def test_the_host_has_limits(limit, monkeypatch):
    monkeypatch.setattr(rates, "VECTORS", 4)
    monkeypatch.setitem(limits.SIZE, "float32", 32)
    assert 1e6 < rates.measure(limit, TINY, 1 << 20) < 1e13
