"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
