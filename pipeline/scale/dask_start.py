"""Dask workers on this machine: one for each core, or for each GPU."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from typing import Any

from pipeline import config
from pipeline.errors import ClusterError

# Ctrl-C in a terminal reaches every process of the run: it is for the driver to let the round end.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
OURS = {  # of workers started here; their memory is divided beforehand, so that nothing is spilled to disk
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.profile.enabled": False,
    # Dask would have the allocator give back each freed block at once (MALLOC_TRIM_THRESHOLD_): a round's arrays then
    # come as new pages every time, which made rounds a quarter longer.
    "distributed.nanny.pre-spawn-environ": {
        "OMP_NUM_THREADS": 1,
        "MKL_NUM_THREADS": 1,
        "OPENBLAS_NUM_THREADS": 1,
    },
}


def workers(settings: config.Scale, backend: str) -> Any:
    """Start workers on this machine.

    Raises
    ------
    ClusterError
        If that fails.
    """
    try:
        return _started(settings, backend)
    except (OSError, TimeoutError, RuntimeError, ValueError) as error:
        why = " ".join(str(error).split())[:160] or type(error).__name__
        raise ClusterError(
            f"scale=dask: no workers can be started on this machine ({why}); try fewer scale.workers=, or start them "
            "yourself and give scale.scheduler=tcp://..."
        ) from error


def _started(settings: config.Scale, backend: str) -> Any:
    """Start workers on this machine: one for each core, or for each GPU."""
    count = settings.workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None)
    given: dict[str, Any] = {
        "threads_per_worker": settings.threads,
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": config.size_in_bytes(settings.memory_limit) if settings.memory_limit else "auto",
        "silence_logs": logging.CRITICAL,
    }
    if settings.processes:
        given["preload"] = [DEAF]
    if backend == "gpu" and importlib.util.find_spec("dask_cuda") is not None:
        cuda = importlib.import_module("dask_cuda")
        return cuda.LocalCUDACluster(n_workers=settings.workers or None, **given)
    from distributed import LocalCluster

    return LocalCluster(n_workers=count, processes=settings.processes, **given)
