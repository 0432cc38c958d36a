"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend
    from tests.cupy_double import Machine

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``gpu`` where no GPU can be used, and say why; with REQUIRE_GPU=1 fail instead."""
    if item.get_closest_marker("gpu") is None:
        return
    from pipeline import backends
    from pipeline.errors import BackendError

    try:
        backends.choose("gpu")
    except BackendError as error:
        if os.environ.get("REQUIRE_GPU") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


def shared_data(*parts: str) -> Path:
    """Return a path among the large image sets beside the repository, or skip the test and say why.

    The environment variable HOGBOOST_REQUIRE_DATA=1 turns the skip into a failure.
    """
    path = ROOT.parent.joinpath("shared", *parts)
    if not path.exists():
        reason = f"needs shared/{'/'.join(parts)} beside the repository, which is absent"
        if os.environ.get("HOGBOOST_REQUIRE_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="module")
def double() -> Iterator[Machine]:
    """The pretended machine of tests/cupy_double, with the gpu backend on it."""
    from pipeline import backends
    from tests.cuda_on_host.build import need_compiler
    from tests.cupy_double import installed

    need_compiler()
    with installed() as machine:
        backends.get("gpu")
        yield machine


@pytest.fixture
def machine(double: Machine) -> Iterator[Machine]:
    """The pretended machine with its usual memory and nothing counted yet."""
    double.memory, double.limit = 1 << 30, 0
    double.forget()
    yield double
    double.memory, double.limit = 1 << 30, 0


@pytest.fixture
def gpu(machine: Machine) -> Backend:
    """The gpu backend on the pretended machine."""
    from pipeline import backends

    return backends.get("gpu")
