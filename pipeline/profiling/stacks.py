"""The Python stack of a run, sampled by pyinstrument: which lines the time of the interpreter goes to."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline import installing
from pipeline.errors import ConfigError
from pipeline.files import atomic

EVERY = 0.001  # seconds between two samples


def require(setting: str = "stacks=true") -> None:
    """Check that stacks can be sampled; call it before the work, not after.

    Parameters
    ----------
    setting : str
        What asked for it, as typed; the message names it.

    Raises
    ------
    ConfigError
        If pyinstrument is not installed.
    """
    if importlib.util.find_spec("pyinstrument") is None:
        raise ConfigError(
            f"{setting} samples the Python stack with pyinstrument, which is not installed: "
            f"{installing.command('hogboost[profile]')}, or leave the setting out"
        )


@contextmanager
def sampled(path: str | Path, setting: str = "stacks=true") -> Iterator[None]:
    """Sample the Python stack of this thread inside the ``with`` block and write a page of it.

    Parameters
    ----------
    path : str or Path
        HTML file to write, one self-contained page; written also when the block fails.
    setting : str
        See :func:`require`.

    Raises
    ------
    ConfigError
        If pyinstrument is not installed.
    OutputError
        If the file cannot be written.
    """
    require(setting)
    from pyinstrument import Profiler
    from pyinstrument.renderers import HTMLRenderer

    profiler = Profiler(interval=EVERY)
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
        page = profiler.output(HTMLRenderer())
        with atomic(path) as stream:
            stream.write(page)
