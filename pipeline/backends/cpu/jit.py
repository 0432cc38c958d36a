"""Compile Numba kernels once per machine: safe when many processes start, and without a writable folder."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.caching import NullCache

from pipeline.backends.cpu import jit_parts
from pipeline.spans import span

log = logging.getLogger(__name__)
_compiling = threading.RLock()


# a part is only ever called from compiled code: without wrappers for Python and C it compiles faster
_PLAIN: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
_PART = {**_PLAIN, **jit_parts.options(part=True)}
_CALLED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_KERNEL = {**_CALLED, **jit_parts.options(part=False)}
_LIGHT_PART = {**_PLAIN, **jit_parts.options(part=True, light=True)}
_LIGHT_KERNEL = {**_CALLED, **jit_parts.options(part=False, light=True)}

# The C library's of float64, without the two functions in which Numba wraps it.
hypot = types.ExternalFunction(
    "_hypot" if sys.platform == "win32" else "hypot", types.float64(types.float64, types.float64)
)

_SUMMING = {"reassoc", "contract", "nsz"}


def part(function: Callable) -> Any:
    """Return `function` compiled by Numba as a part of kernels in the same folder.

    No fast-math flag is set: ties between two orientation bins are decided by exact products, which a fused
    multiply-add would change.
    """
    return numba.njit(**_PART)(function)


def summing_part(function: Callable) -> Any:
    """As :func:`part`, for sums whose order may change and products that may be fused; NaN stays NaN."""
    return numba.njit(fastmath=_SUMMING, **_PART)(function)


def light_part(function: Callable) -> Any:
    """As :func:`part`, for functions that make no arrays but slices; a sixth less to compile."""
    return numba.njit(**_LIGHT_PART)(function)


def light_summing_part(function: Callable) -> Any:
    """As :func:`summing_part`, for functions that make no arrays but slices."""
    return numba.njit(fastmath=_SUMMING, **_LIGHT_PART)(function)


def kernel(function: Callable) -> Any:
    """Return `function` compiled by Numba, the GIL released, the machine code kept on disk if possible.

    Numba discards machine code when the function's own file changes. Its parts may be in other files, so here any
    change in the folder discards it.
    """
    return _kept(function, _KERNEL)


def summing_kernel(function: Callable) -> Any:
    """As :func:`kernel`, with the freedoms of :func:`summing_part`."""
    return _kept(function, _KERNEL, fastmath=_SUMMING)


def light_kernel(function: Callable) -> Any:
    """As :func:`kernel`, for functions that make no arrays but slices."""
    return _kept(function, _LIGHT_KERNEL)


def light_summing_kernel(function: Callable) -> Any:
    """As :func:`summing_kernel`, for functions that make no arrays but slices."""
    return _kept(function, _LIGHT_KERNEL, fastmath=_SUMMING)


def _kept(function: Callable, how: dict[str, Any], **options: Any) -> Any:
    compiled = numba.njit(**how, **options)(function)
    try:
        compiled.enable_caching()
    except RuntimeError as error:  # neither the package's folder nor the user's cache folder is writable
        log.debug("%s is compiled anew in each process: %s", compiled.__name__, error)
    else:
        compiled._cache._cache_file._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
    return compiled


def _stamp(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, time and size of every source file in `folder`."""
    files = sorted(folder.glob("*.py"))
    return [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]


def _kind(argument: Any) -> Any:
    """Return what Numba's type of an argument depends on; asking Numba takes .7 ms of a boosting round of 20 ms."""
    if type(argument) is np.ndarray:
        flags = argument.flags
        order = flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable
        return argument.dtype, argument.ndim, order
    if type(argument) is tuple:
        return tuple(map(_kind, argument))
    return type(argument)


def prepare(compiled: Any, *arguments: Any) -> None:
    """Load or compile `compiled` for the types of `arguments`, one process at a time.

    Numba's on-disk index of a function is not safe against two processes that save at the same moment: both may claim
    one file name, and a later reader would run the other's machine code. A lock beside the index serialises them.
    """
    kinds = compiled.__dict__.setdefault("_hogboost_kinds", set())
    kind = tuple(map(_kind, arguments))
    if kind in kinds:
        return
    signature = tuple(numba.typeof(argument) for argument in arguments)
    if signature in compiled.overloads:
        kinds.add(kind)
        return
    with span("compile"), _compiling, _no_collection():
        if signature in compiled.overloads:
            return
        try:
            with _locked(compiled.stats.cache_path, compiled.__name__):
                compiled.compile(signature)
        except OSError as error:  # disk full, quota, folder made read-only meanwhile: do without the cache
            log.debug("the compiled %s is not kept: %s", compiled.__name__, error)
            compiled._cache = NullCache()
            compiled.compile(signature)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from looking for unreachable objects: the compiler makes millions that stay, 8 % of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _locked(folder: str | None, name: str) -> Iterator[None]:
    """Hold an advisory lock on kernel `name` in `folder` (none where there is no folder, or on a system without flock).

    Kernels of one name in several files share theirs, which costs a wait at most.
    """
    try:
        import fcntl
    except ImportError:  # Windows: Numba's own atomic renames are all there is
        yield
        return
    if folder is None:
        yield
        return
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.lock"), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock
