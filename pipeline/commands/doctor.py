"""``doctor``: what this machine has, and what to install for what is missing."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from pipeline import backends, config, installing, processor
from pipeline.backends.gpu import device
from pipeline.commands import steps
from pipeline.errors import BackendError
from pipeline.reporting import tables
from pipeline.reporting.stages import Stages

PACKAGES = (
    *("numpy", "scipy", "numba", "llvmlite", "scikit-image", "scikit-learn", "statsmodels", "pillow"),
    *("hydra-core", "omegaconf", "rich", "matplotlib", "jinja2", "psutil", "threadpoolctl"),
)
OPTIONAL = {  # the package, the extra that brings it, and what it is for
    "dask": ("dask", "scale=dask"),
    "distributed": ("dask", "scale=dask"),
    "pyarrow": ("dask", "format=parquet of predict scale=dask"),
    "simplejpeg": ("decode", "small JPEG files 1.3 times as fast"),
    "pyinstrument": ("profile", "profile stacks=true"),
}
LOW_DISK = 1e9  # bytes; a packed set of 10,000 images has 50 MB


def run(cfg: config.Doctor, stages: Stages | None = None) -> None:
    """Print what the machine has. Nothing is written.

    Raises
    ------
    BackendError
        After the report, if the backend asked for cannot be used.
    """
    advice: list[str] = []
    fault: BackendError | None = None
    try:
        name = steps.choose_backend(cfg.backend)
    except BackendError as error:
        fault = error
        advice.append(str(error))
    tables.facts("Machine", _machine(advice))
    tables.facts("BLAS and threads", _threads(cfg, name) if fault is None else _backends(cfg, str(fault)))
    tables.facts("GPU", _gpu(cfg))
    tables.facts("Packages", _packages(advice))
    tables.facts("Optional packages", _optional())
    tables.facts("Run folder", _disk(Path(cfg.run_dir), advice))
    tables.facts(
        "Advice", [("-", line) for line in advice] or [("-", "nothing is missing: python -m pipeline train")]
    )
    if fault is not None:
        raise BackendError(
            f"backend={cfg.backend.name.name} cannot be used on this machine: see Advice"
        ) from fault


def machine_facts(settings: config.Backend) -> dict[str, str]:
    """Return what is known of the machine, for a report."""
    facts = dict(_machine([]))
    facts.update((name, value) for name, value in _gpu(config.Doctor(settings)) if name != "cucim")
    return facts


def _machine(advice: list[str]) -> Iterator[tuple[str, str]]:
    import psutil

    memory = psutil.virtual_memory()
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "processor", processor.name("not told by the system")
    yield "cores", f"{processor.usable_cores()} usable by this process, {os.cpu_count()} in the machine"
    yield "memory", f"{tables.megabytes(memory.total)}, {tables.megabytes(memory.available)} free"
    yield "python", f"{platform.python_version()} at {sys.executable}"
    if memory.available < 2e9:
        advice.append("less than 2 GB of memory are free: use hog=coarse or fewer images")


def _threads(cfg: config.Doctor, name: str) -> Iterator[tuple[str, str]]:
    import threadpoolctl

    with backends.get(name).threads(cfg.backend.threads):
        import scipy.linalg  # noqa: F401  its BLAS counts only once it is loaded

        pools = threadpoolctl.threadpool_info()
    for pool in pools:
        detail = " ".join(
            str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key)
        )
        yield pool["user_api"], f"{detail}, {pool['num_threads']} threads"
    every = " (every core)" if not cfg.backend.threads else ""
    yield from _backends(cfg, f"{name}, backend.threads={cfg.backend.threads}{every}")


def _backends(cfg: config.Doctor, chosen: str) -> Iterator[tuple[str, str]]:
    """Yield which backend was chosen, and which there are."""
    yield "backend", chosen
    unusable = " (cannot be used here)" if isinstance(_device(cfg), BackendError) else ""
    yield "backends", ", ".join(name + unusable * (name == "gpu") for name in backends.NAMES)


def _device(cfg: config.Doctor) -> device.Found | BackendError:
    """Return the GPU, or why it cannot be used."""
    try:
        return device.find(cfg.backend.device)
    except BackendError as error:
        return error


def _gpu(cfg: config.Doctor) -> Iterator[tuple[str, str]]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        yield "device", "none found: there is no nvidia-smi, so no NVIDIA driver"
    else:
        query = [tool, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
            text = (answer.stdout if answer.returncode == 0 else answer.stdout + answer.stderr).strip()
            yield "device", " | ".join(text.splitlines()) or "nvidia-smi names none"
        except (OSError, subprocess.TimeoutExpired) as error:
            yield "device", f"nvidia-smi does not answer: {error}"
    yield "cupy", _installed("cupy-cuda12x", "cupy-cuda13x", "cupy")
    yield "cucim", _installed("cucim-cu12", "cucim-cu13") + " (needed by preprocess=gaussian on the GPU)"
    found = _device(cfg)
    yield "backend=gpu", f"{'cannot' if isinstance(found, BackendError) else 'can'} be used: {found}"


def _installed(*names: str) -> str:
    """Return the first of these distributions that is installed, with its version."""
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            return f"{name} {version(name)}"
    return "not installed"


def _packages(advice: list[str]) -> Iterator[tuple[str, str]]:
    from pipeline import __version__

    yield "hogboost", __version__
    missing = []
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            missing.append(name)
            yield name, "MISSING"
    if missing:
        advice.append(f"install what is missing: {installing.command(*_requirements(missing))}")


def _optional() -> Iterator[tuple[str, str]]:
    for name, (extra, purpose) in OPTIONAL.items():
        found = _installed(name).removeprefix(f"{name} ")
        if found == "not installed":
            found += f" ({purpose}): {installing.command(f'hogboost[{extra}]')}"
        yield name, found


def _requirements(names: list[str]) -> list[str]:
    """Return the missing packages as pip takes them, with the versions this program needs."""
    try:
        stated = [entry.partition(";")[0].strip() for entry in requires("hogboost") or []]
    except PackageNotFoundError:  # a checkout that was never installed
        stated = []
    return [next((s for s in stated if s.lower().startswith(name)), name) for name in names]


def _disk(folder: Path, advice: list[str]) -> Iterator[tuple[str, str]]:
    free = shutil.disk_usage(folder).free
    yield "folder", str(folder / "runs")
    yield "disk", f"{tables.megabytes(free)} free"
    runs = folder / "runs"
    blocked = runs.exists() and not runs.is_dir()
    writable = os.access(runs if runs.is_dir() else folder, os.W_OK)
    yield "writable", "NO: runs is a file" if blocked else "yes" if writable else "NO"
    if blocked:
        advice.append(f"{runs} is a file, not a folder: rename it, or set hydra.run.dir=...")
    elif not writable:
        advice.append(f"{folder} is not writable: start in another folder, or set hydra.run.dir=...")
    if free < LOW_DISK:
        advice.append(f"the disk of {folder} is nearly full: free some space before a long run")
