"""GPUs by number: the package that a row uses is made to work on the one that was asked for."""

from __future__ import annotations

import atexit
import functools
import importlib
from collections.abc import Callable
from typing import Any

from pipeline import backends
from pipeline.backends.protocol import Backend


def backend(device: int) -> Backend:
    """Return the gpu backend at work on GPU number `device`."""
    from pipeline.backends import gpu

    gpu.select(device)
    return backends.get("gpu")


def cupy(device: int) -> Any:
    """Return CuPy at work on GPU number `device`."""
    backend(device)
    return importlib.import_module("cupy")


@functools.cache
def _primary(device: int) -> Any:
    """Return the context of GPU number `device` that the other packages use too, for PyCUDA."""
    driver = importlib.import_module("pycuda.driver")
    driver.init()
    # compiled kernels must go before the driver does
    atexit.register(importlib.import_module("pycuda.tools").clear_context_caches)
    return driver.Device(device).retain_primary_context()


def pycuda(device: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes functions that call PyCUDA work on GPU number `device`.

    The context is current within them only: it would else be the one that packages after it find.
    """
    context = _primary(device)

    def on_it(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*given: Any) -> Any:
            context.push()
            try:
                return work(*given)
            finally:
                context.pop()

        return run

    return on_it
