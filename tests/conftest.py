"""Fixtures shared by the whole suite."""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend
    from tests.cupy_double import Machine

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).resolve().parent / "data"


def pytest_collection_finish() -> None:
    """Take the modules, which stay until the end, out of what Python searches for unreachable objects."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
def register() -> Callable[..., None]:
    """``config.register``, once for each command: Hydra keeps the schemas as long as the process, and takes copies."""
    from pipeline import config

    return functools.cache(config.register)


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    register: Callable[..., None],
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command line in this process, in a folder of its own: call("train", "key=value") -> (status, out, err)."""
    from pipeline import cli, config

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "register", register)
    monkeypatch.setattr(sys, "argv", ["pipeline"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli._dispatch(arguments, time.perf_counter())
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    handlers, level = logging.root.handlers[:], logging.root.level
    yield run
    logging.captureWarnings(False)
    logging.root.handlers[:] = handlers  # Hydra's write to a stream that ends with the test
    logging.root.setLevel(level)


@pytest.fixture
def told(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run a command line that must fail by one line on the error stream; return the line.

    Without progress, which a machine that is busy with other work shows of any stage.
    """
    from pipeline.reporting import progress

    def run(*arguments: str) -> str:
        with progress.silent():
            status, out, err = call(*arguments)
        assert status == 2
        assert out == ""
        assert err.count("\n") == 1
        assert "HYDRA_FULL_ERROR" not in err
        return err.rstrip()

    return run


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three class folders of 16 pictures."""
    import numpy as np
    from PIL import Image

    root, rng = tmp_path / "photos", np.random.default_rng(0)
    for label, name in enumerate(("a", "b", "c")):
        (root / name).mkdir(parents=True)
        for i in range(16):
            waves = np.sin((0.3 + 0.3 * label) * np.arange(16))[:, None] * np.ones(16)
            picture = 128 + 60 * waves + rng.normal(0, 30, (16, 16))
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(root / name / f"{i:02d}.png")
    return root


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
