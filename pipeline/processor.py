"""The processor of this machine: its name, and the cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


def name(unknown: str) -> str:
    """Return the name of the processor, or `unknown` where the system does not tell."""
    import platform  # for those who ask

    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or unknown
