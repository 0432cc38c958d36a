"""The one place that chooses who does the numerical work.

A backend is a folder: ``reference`` (scikit-image and statsmodels: slow, trusted) and ``cpu`` (Numba and BLAS).
Each has the same files with the same functions; :mod:`pipeline.backends.protocol` states them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from pipeline.errors import BackendError

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

NAMES = ("reference", "cpu")


def get(name: str) -> Backend:
    """Return the backend called `name`, ready to work.

    Raises
    ------
    BackendError
        If there is no such backend.
    """
    if name not in NAMES:
        raise BackendError(f"backend={name} is unknown; choose one of: {', '.join(NAMES)}")
    return cast("Backend", importlib.import_module(f"pipeline.backends.{name}"))
