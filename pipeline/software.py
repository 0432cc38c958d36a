"""Versions of the software at work, as models, checkpoints and figures name them."""

from __future__ import annotations

import functools
from pathlib import Path

SOURCES = "hogboost sources"  # tells apart what has the same version: two states of a checkout


@functools.cache  # looking the versions up takes 15 ms, reading the sources as long
def software() -> dict[str, str]:
    """Return the versions of the software that shapes a model, and a digest of this program's own sources."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in (
        "hogboost",
        "numpy",
        "scipy",
        "numba",
        "scikit-image",
        "scikit-learn",
        "pillow",
        "simplejpeg",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # the checkout itself may not be installed
            found[name] = "not installed"
    found[SOURCES] = sources(Path(__file__).parent)
    return found


def sources(package: Path) -> str:
    """Return a digest of the names and texts of a package's programs (Python, CUDA), 12 hexadecimal digits.

    Settings are no part of it: those of a run are compared one by one.
    """
    import hashlib

    digest = hashlib.blake2b(digest_size=6)
    found = (path for path in package.rglob("*.*") if path.suffix in (".py", ".cu"))
    paths = {path.relative_to(package).as_posix(): path for path in found}
    for name in sorted(paths):
        text = paths[name].read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name} {len(text)} ".encode() + text)
    return digest.hexdigest()
