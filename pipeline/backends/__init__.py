"""The one place that chooses who does the numerical work.

A backend is a folder: ``reference`` (scikit-image and statsmodels: slow, trusted), ``cpu`` (Numba and BLAS) and
``gpu`` (CuPy, cuCIM and CUDA kernels). Each has the same files with the same functions;
:mod:`pipeline.backends.protocol` states them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pipeline.errors import BackendError

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

NAMES = ("reference", "cpu", "gpu")


def get(name: str) -> Backend:
    """Return the backend called `name`, ready to work.

    Raises
    ------
    BackendError
        If there is no such backend, or this machine cannot run it: what was found, and what to do.
    """
    if name not in NAMES:
        raise BackendError(f"backend={name} is unknown; choose one of: {', '.join(NAMES)}")
    package = importlib.import_module(f"pipeline.backends.{name}")
    if name == "gpu":
        package.require()
    return cast("Backend", package)


def choose(
    name: str,
    device: int = 0,
    say: Callable[[str], None] = print,
    needs: Callable[[Backend], None] | None = None,
) -> str:
    """Return the name of the backend to use, after making sure that this machine can run it.

    Parameters
    ----------
    name : one of NAMES, or "auto": gpu if it can be used, else cpu
    device : number of the GPU
    say : told what "auto" picked and why
    needs : raises BackendError if a backend lacks what is needed of it

    Raises
    ------
    BackendError
        If the backend that was asked for by name cannot be used. Nothing else is taken in its place.
    """
    needs = needs or (lambda backend: None)
    if name not in ("auto", "gpu"):
        needs(get(name))
        return name
    from pipeline.backends import gpu

    if name == "gpu":
        gpu.select(device)
        needs(get(name))
        return name
    try:
        found = gpu.select(device)
        needs(get("gpu"))
    except BackendError as error:
        say(f"backend=auto picked cpu: {str(error).removesuffix('; or use backend=cpu')}")
        return "cpu"
    say(f"backend=auto picked gpu: {found}")
    return "gpu"
