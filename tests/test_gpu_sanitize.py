"""Rung 3: the kernels on the CPU under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer."""

from __future__ import annotations

import pytest

from tests.cuda_on_host import exercise
from tests.cuda_on_host.build import need_compiler


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    need_compiler()
    path = tmp_path_factory.mktemp("expected") / "expected.npz"
    exercise.expected(path)
    return path


@pytest.mark.parametrize(
    ("mode", "schedules"),
    [
        pytest.param("plain", "forward,random", marks=pytest.mark.slow),
        pytest.param("address", "forward,reverse", marks=pytest.mark.slow),
        pytest.param("thread", "forward,forward across blocks", marks=pytest.mark.slow),
    ],
    ids=["plain", "address", "thread"],
)
def test_no_fault(wanted, mode, schedules):
    outcome = exercise.in_child(wanted, mode, schedules, 1)
    assert not outcome.fault
