"""The command that installs a missing package: for the Python at work, and from the checkout that it runs from."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

PROGRAM = "hogboost"
_HERE = Path(__file__).resolve().parent.parent


def command(*wanted: str) -> str:
    """Return the pip command that installs packages, ready for a shell in the current folder.

    Parameters
    ----------
    *wanted : str
        Requirements as pip takes them. ``hogboost[EXTRA]`` is an extra of this program; where it runs from a source
        checkout, that folder is named instead.
    """
    checkout = _checkout()
    words = []
    for one in wanted:
        if checkout is not None and one.startswith(f"{PROGRAM}["):
            words += ["-e", _place(str(checkout), one.removeprefix(PROGRAM))]
        else:
            words.append(f"'{one}'" if "[" in one or "<" in one or ">" in one else shlex.quote(one))
    return " ".join([_place(sys.executable or "python"), "-m pip install", *words])


def cupy() -> str:
    """Return the command that installs what the gpu backend needs."""
    return f"{command('hogboost[gpu-cu12]')} (gpu-cu13 in its place where the driver is for CUDA 13)"


def _checkout() -> Path | None:
    """Return the folder of the source checkout that this program runs from, or None if it is installed."""
    try:
        stated = (_HERE / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return None
    return _HERE if f'name = "{PROGRAM}"' in stated else None


def _place(path: str, extra: str = "") -> str:
    """Return a path for a shell, from the current folder or the user's home if it lies there.

    Symbolic links stay: an environment's Python is a link to one that lacks its packages.
    """
    try:
        here = os.getcwd()
    except OSError:  # the folder was deleted
        here = ""
    if here and os.path.isabs(path):
        if extra and path == here:
            return f"'.{extra}'"
        below = _below(path, here)
        if below is not None:  # ./ says of a lone name that it is a place
            return _quoted(below if os.sep in below and not extra else f".{os.sep}{below}", extra)
        below = _below(path, os.path.expanduser("~"))
        if below is not None:
            return "~/" + _quoted(below, extra)
    return _quoted(path, extra)


def _below(path: str, folder: str) -> str | None:
    folder = folder.rstrip(os.sep)  # "" is the root: everything lies below it, and nothing is shorter for it
    return path[len(folder) + 1 :] if folder and path.startswith(folder + os.sep) else None


def _quoted(path: str, extra: str) -> str:
    if extra and "'" not in path:
        return f"'{path}{extra}'"
    return shlex.quote(path + extra)
