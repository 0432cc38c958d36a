"""Preloaded by a Dask worker: the double in its process, on the GPUs that CUDA_VISIBLE_DEVICES shows it."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import Any

from tests.cupy_double.install import installed
from tests.cupy_double.machine import Machine

KEPT = ExitStack()
MACHINES: list[Machine] = []


def dask_setup(worker: Any) -> None:
    """Pretend a machine for as long as the worker lives."""
    machine = KEPT.enter_context(installed())
    machine.devices = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    MACHINES.append(machine)


def seen() -> dict[str, Any]:
    """Return what the pretended machine of this process has seen."""
    [machine] = MACHINES
    return {
        "visible": os.environ["CUDA_VISIBLE_DEVICES"].split(","),
        "places": dict(machine.places),
        "launches": machine.count["launch"],
        "deaf": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    }
