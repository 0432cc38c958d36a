"""Versions of the software at work, as models, checkpoints and figures name them."""

from __future__ import annotations

import functools


@functools.cache  # looking the versions up takes 15 ms
def software() -> dict[str, str]:
    """Return the versions of the software that shapes a model."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("hogboost", "numpy", "scipy", "numba", "scikit-image", "scikit-learn", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # the checkout itself may not be installed
            found[name] = "not installed"
    return found
