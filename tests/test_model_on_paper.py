"""The table of docs/scale.md is what scripts/model_on_paper.py works out from the bytes that are counted."""

from __future__ import annotations

import pytest

from pipeline.scale import wire
from scripts import model_on_paper as paper
from tests.conftest import ROOT

LEARNERS = {one.name: one for one in paper.LEARNERS}


def test_docs_hold_the_table():
    assert f"\n{paper.table()}\n" in (ROOT / "docs" / "scale.md").read_text()


@pytest.mark.parametrize("one", paper.LEARNERS, ids=lambda one: one.name)
def test_bytes_are_those_of_the_messages(one):
    J = paper.CLASSES
    refined = wire.numbers_refined(one.q, J, one.columns) if one.refined else (0, 0)
    assert sum(one.up) == 8 * (wire.numbers_up(one.q, J, J) + refined[1])
    assert sum(one.down) == 8 * (wire.numbers_down(one.q, J, one.columns) + refined[0])


def test_learners_have_the_exchanges_that_were_counted():
    """tests/test_dask.py counts a second exchange in float32 for these, and none for subspace."""
    from tests.test_dask import REFINED

    assert {one.name for one in paper.LEARNERS if one.refined} == {
        name for name, dtype in REFINED if dtype == "float32"
    }
    assert LEARNERS["random_features"].exchanges == 2
    assert LEARNERS["subspace"].exchanges == 1


def test_workers_of_a_machine_share_its_card():
    """Eight workers: seven messages by one card. Two machines: one more between them; and two to come home."""
    assert paper.hops(1) == paper.HOME
    assert paper.hops(8) == 7 + paper.HOME
    assert paper.hops(16) == 8 + paper.HOME
    assert paper.hops(800) == 7 + 7 + paper.HOME


def test_a_round_is_the_sum_of_its_parts():
    one, workers = LEARNERS["random_features"], 800
    parts = [part(one, workers) for part in paper.TREE]
    assert min(parts) > 0.0
    assert paper.with_the_tree(one, workers) == pytest.approx(sum(parts))
    assert paper.projection(one, workers) > paper.grams(one, workers)  # p = 3240 is more than J q / 2
    reduced = sum(part(one, workers) for part in (*paper.WORK, paper.down, paper.up_to_one, paper.solving))
    assert paper.with_one_reducer(one, workers) == pytest.approx(reduced + 2 * workers * paper.TASK)


@pytest.mark.parametrize("one", paper.LEARNERS, ids=lambda one: one.name)
def test_the_best_number_of_workers_is_the_best(one):
    for total in (paper.with_the_tree, paper.with_one_reducer):
        found = paper.best(total, one)
        assert all(total(one, found) <= total(one, other) for other in (found - 1, found + 1, 2 * found))
    stop = paper.reducer_as_long_as_work(one)
    work = sum(part(one, stop) for part in paper.WORK)
    assert paper.up_to_one(one, stop) == pytest.approx(work, rel=0.02)


@pytest.mark.parametrize(("value", "text"), [(0.0, ""), (27.3, "27"), (0.80, "0.80"), (0.000867, "0.00087")])
def test_seconds_in_two_digits(value, text):
    assert paper.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(0, ""), (681120, "681 kB"), (10_588_320, "10.6 MB")])
def test_sizes_in_three_digits(value, text):
    assert paper.size(value) == text
