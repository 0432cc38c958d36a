"""Put the double where `import cupy` finds it, and the gpu backend, freshly imported, on top of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pipeline.backends
from pipeline import spans
from tests.cupy_double import namespace
from tests.cupy_double.array import ndarray
from tests.cupy_double.machine import Machine

REPLACED = ("cupy", "cupyx", "cupy_backends", "cucim", "pipeline.backends.gpu")


def _taken() -> dict[str, object]:
    names = [n for n in sys.modules if any(n == r or n.startswith(f"{r}.") for r in REPLACED)]
    return {name: sys.modules.pop(name) for name in names}


@contextlib.contextmanager
def installed() -> Iterator[Machine]:
    """Yield the pretended machine; until the end, the gpu backend runs on it."""
    machine = Machine()
    listeners = spans._listeners
    outer = vars(ndarray).get("machine")
    saved, package = _taken(), vars(pipeline.backends).pop("gpu", None)
    for name, module in namespace.modules(machine).items():
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module
    try:
        yield machine
    finally:
        spans._listeners = listeners
        _taken()
        if outer is not None:
            ndarray.machine = outer
        sys.modules.update(saved)  # type: ignore[arg-type]
        vars(pipeline.backends).pop("gpu", None)
        if package is not None:
            pipeline.backends.gpu = package  # type: ignore[attr-defined]
