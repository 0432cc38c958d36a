"""The gpu backend: CUDA kernels of our own through CuPy, cuBLAS and cuSOLVER, cuCIM for preprocessing.

Nothing here imports CuPy before :func:`select` or :func:`require` has found that a GPU can be used. Work is queued
on CuPy's current stream; results come home only through :func:`get`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from pipeline import spans
from pipeline.backends.gpu import device

__all__ = [
    "clock",
    "first_not_finite",
    "gather_meanwhile",
    "get",
    "hog",
    "holds",
    "in_room",
    "map_images",
    "name",
    "pca",
    "preprocess",
    "put",
    "require",
    "resident",
    "rows",
    "scores",
    "select",
    "threads",
    "wls",
    "xp",
]

name = "gpu"
gather_meanwhile = None  # a device works while the host solves in any case
_chosen: device.Found | None = None  # by select
_thread = threading.local()  # device: the number of the GPU that the thread was given
_MODULES = ("clock", "hog", "pca", "preprocess", "scores", "wls")
_TRANSFERS = ("first_not_finite", "get", "holds", "in_room", "map_images", "put", "resident", "rows")


def select(number: int) -> device.Found:
    """Make GPU `number` the one that this process works on, in this thread and in others.

    Raises
    ------
    BackendError
        If it cannot be used.
    """
    global _chosen  # noqa: PLW0603  the choice is the process's
    found = device.find(number)
    _use(found)
    _name_ranges()
    _chosen = found
    return found


def require() -> device.Found:
    """Return the GPU in use. If none was selected, that is the one on which CuPy works, and it stays so.

    CUDA's current device belongs to a thread: one that comes here for the first time is given the GPU selected.

    Raises
    ------
    BackendError
        If none can be used.
    """
    if _chosen is None:
        return _current()
    if getattr(_thread, "device", None) != _chosen.device:
        _use(_chosen)
    return _chosen


@functools.cache
def _current() -> device.Found:
    found = device.find(None)
    _name_ranges()
    return found


@functools.cache
def _name_ranges() -> None:
    """Let NVIDIA's profilers see the names of stages, once in a process."""
    marks = importlib.import_module("pipeline.backends.gpu.clock")
    if marks.has_ranges():
        spans.add(marks.Ranges())


def _use(found: device.Found) -> None:
    importlib.import_module("cupy").cuda.Device(found.device).use()
    _thread.device = found.device


@contextlib.contextmanager
def threads(count: int) -> Iterator[int]:
    """Limit the host's BLAS, which solves what a Cholesky on the GPU could not, to `count` threads."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=count or None):
        yield count


def __getattr__(attribute: str) -> Any:
    if attribute == "xp":
        require()
        return importlib.import_module("pipeline.backends.gpu.namespace")
    if attribute in _MODULES:
        require()
        return importlib.import_module(f"pipeline.backends.gpu.{attribute}")
    if attribute in _TRANSFERS:
        require()
        return getattr(importlib.import_module("pipeline.backends.gpu.transfer"), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
