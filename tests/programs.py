"""The program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT


def environment() -> dict[str, str]:
    """Return this process's environment, in which Python finds the checkout from any folder."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def started(*arguments: str, cwd: Path, before: str = "", **more: Any) -> subprocess.Popen[str]:
    """Start ``python -m pipeline``; both its streams are kept unless `more` says where they go.

    With `before`, statements of Python, these are run first, in the same process.
    """
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    run = "; import sys; from pipeline.__main__ import main; sys.exit(main())"
    command = [sys.executable, *(["-c", before + run] if before else ["-m", "pipeline"]), *arguments]
    return subprocess.Popen(command, cwd=cwd, text=True, **(streams | more))


def python_m(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m pipeline`` to its end, which may be a failure."""
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
