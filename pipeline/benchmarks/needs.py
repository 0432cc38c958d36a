"""What a row may need beyond this program's own packages: is it there, and if not, why and what to do."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

from pipeline import installing
from pipeline.errors import BackendError


class Need(NamedTuple):
    """A package, or a package that sees a GPU."""

    module: str  # what is imported
    install: str  # what pip installs
    probe: Callable[[int], str | None] = lambda device: None  # why it cannot be used, or None


class Missing(NamedTuple):
    """Why a row cannot run here."""

    reason: str
    install: str  # the command; empty where installing does not help


def _gpu_backend(device: int) -> str | None:
    from pipeline.backends import gpu

    try:
        gpu.select(device)
    except BackendError as error:
        return str(error).removesuffix("; or use backend=cpu")
    return None


def _numba_cuda(device: int) -> str | None:
    from numba import cuda

    return None if cuda.is_available() else "Numba finds no GPU, or no CUDA driver and NVVM"


def _torch_gpu(device: int) -> str | None:
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        return None
    return "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch finds no GPU"


def _jax_gpu(device: int) -> str | None:
    jax = _jax()
    try:
        jax.devices("gpu")
    except RuntimeError:
        return "JAX finds no GPU, or its CUDA part is not installed"
    return None


def _jax_cpu(device: int) -> str | None:
    _jax()
    return None


def _jax():
    # By default JAX takes three quarters of the GPU's memory at its first call, from under the other rows.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return importlib.import_module("jax")


def _pycuda(device: int) -> str | None:
    driver = importlib.import_module("pycuda.driver")
    try:
        driver.init()
    except driver.Error as error:
        return f"PyCUDA finds no GPU ({error})"
    return None


def _opencv_hog(device: int) -> str | None:
    found = hasattr(importlib.import_module("cv2"), "HOGDescriptor")
    return None if found else "this OpenCV has no HOGDescriptor, which version 5 left out"


NEEDS = {
    "dask": Need("dask.array", "dask[array]"),
    "torch": Need("torch", "torch"),
    "torch-gpu": Need("torch", "torch", _torch_gpu),
    "jax": Need("jax", "jax", _jax_cpu),
    "jax-gpu": Need("jax", "jax[cuda12]", _jax_gpu),
    "cupy": Need("cupy", "hogboost[gpu-cu12]", _gpu_backend),
    "numba-cuda": Need("numba.cuda", "numba-cuda[cu12]", _numba_cuda),
    "pycuda": Need("pycuda", "pycuda", _pycuda),
    "opencv": Need("cv2", "opencv-python-headless"),
    "opencv-hog": Need("cv2", "opencv-python-headless<5", _opencv_hog),
    "hogpp": Need("hogpp", "hogpp"),
    "xgboost": Need("xgboost", "xgboost"),
}


@functools.cache
def missing(name: str, device: int = 0) -> Missing | None:
    """Return why the need `name` is not met on this machine, or None. A second question costs nothing."""
    need = NEEDS[name]
    install = installing.cupy() if need.module == "cupy" else installing.command(need.install)
    package = need.module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return Missing(f"{package} is not installed", install)
    try:
        importlib.import_module(need.module)
        reason = need.probe(device)
    except Exception as error:  # whatever a broken installation raises, the row says it
        text = " ".join(str(error).split()) or type(error).__name__
        return Missing(f"{package} is installed but cannot be used ({text})", install)
    if reason is None:
        return None
    # A GPU that is not there is not installed by pip; only what names a missing part of a package is.
    fixable = any(word in reason for word in ("without CUDA", "CUDA part", "HOGDescriptor", "NVVM"))
    return Missing(reason, install if fixable else "")
