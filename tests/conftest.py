"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data"


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
