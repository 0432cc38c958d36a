"""What a row may need beyond this program's own packages: is it there, and if not, why and what to do."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import NamedTuple

from pipeline import installing
from pipeline.backends.gpu import device as gpu
from pipeline.errors import BackendError


class Missing(NamedTuple):
    """Why a row cannot run here."""

    reason: str
    install: str  # the command; empty where installing does not help


def _always() -> bool:
    return True


def _nothing(device: int) -> Missing | None:
    return None


class Need(NamedTuple):
    """A package, or a package that sees GPU number `device`."""

    module: str  # what is imported
    install: str  # what pip installs
    probe: Callable[[int], Missing | None] = _nothing  # why it cannot be used
    driver: Callable[[], bool] = (
        _always  # whether there is the driver that it works with, if it works with one
    )


def _number(who: str, device: int, count: int) -> Missing | None:
    """Return what is wrong with the number of a GPU where `who` sees `count` of them."""
    if device < count:
        return None
    if count == 0:
        return Missing(f"{who} finds no GPU", "")
    others = f"0 to {count - 1}" if count > 1 else "0"
    return Missing(
        f"device={device} but {who} sees {count} GPU{'s' * (count > 1)}: choose device={others}", ""
    )


def _gpu_backend(device: int) -> Missing | None:
    try:
        gpu.find(device)
    except BackendError as error:
        reason = str(error).removesuffix(gpu.INSTEAD).replace("backend.device", "device")
        return Missing(reason, "")  # which says what to install, if that helps
    return None


def _numba_cuda(device: int) -> Missing | None:
    from numba import cuda

    if cuda.is_available():
        return _number("Numba", device, len(cuda.gpus))
    from numba.cuda.cudadrv import nvvm

    if nvvm.is_available():
        return Missing("Numba finds no GPU", "")
    return Missing("the compiler that Numba needs for a GPU, NVVM, is not installed", _pip("numba-cuda"))


def _torch_gpu(device: int) -> Missing | None:
    torch = importlib.import_module("torch")
    if torch.version.cuda is None:
        return Missing("this PyTorch is built without CUDA", _pip("torch-gpu"))
    return _number("PyTorch", device, torch.cuda.device_count())


def _jax_cpu(device: int) -> Missing | None:
    # By default JAX takes three quarters of the GPU's memory when it starts, from under the other rows.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return None


def _jax_gpu(device: int) -> Missing | None:
    _jax_cpu(device)
    try:
        return _number("JAX", device, len(importlib.import_module("jax").devices("gpu")))
    except RuntimeError:
        return Missing("JAX finds no GPU, or its CUDA part is not installed", _pip("jax-gpu"))


def _pycuda(device: int) -> Missing | None:
    driver = importlib.import_module("pycuda.driver")
    try:
        driver.init()
    except driver.Error as error:
        return Missing(f"PyCUDA finds no GPU ({error})", "")
    return _number("PyCUDA", device, driver.Device.count())


def _opencv_hog(device: int) -> Missing | None:
    if hasattr(importlib.import_module("cv2"), "HOGDescriptor"):
        return None
    return Missing("this OpenCV has no HOGDescriptor, which version 5 left out", _pip("opencv-hog"))


def _driver() -> bool:
    return gpu.has_driver()


def _cupy_driver() -> bool:
    return importlib.util.find_spec("cupy") is not None or gpu.has_driver()  # CuPy asks it itself


def _numba_driver() -> bool:
    from numba import config

    return bool(config.ENABLE_CUDASIM) or gpu.has_driver()  # the simulator does without


# A package that is imported by the name under which pip installs it needs no entry.
NEEDS = {
    "dask": Need("dask.array", "dask[array]"),
    "torch-gpu": Need("torch", "torch", _torch_gpu, _driver),
    "jax": Need("jax", "jax", _jax_cpu),
    "jax-gpu": Need("jax", "jax[cuda12]", _jax_gpu, _driver),
    "cupy": Need("cupy", "hogboost[gpu-cu12]", _gpu_backend, _cupy_driver),
    "numba-cuda": Need("numba.cuda", "numba-cuda[cu12]", _numba_cuda, _numba_driver),
    "pycuda": Need("pycuda", "pycuda", _pycuda, _driver),
    "opencv": Need("cv2", "opencv-python-headless<5"),
    "opencv-hog": Need("cv2", "opencv-python-headless<5", _opencv_hog),
}


def known(name: str | Need) -> Need:
    """Return the need of a name: that of the table, or the package of that name."""
    return name if isinstance(name, Need) else NEEDS.get(name, Need(name, name))


@functools.cache
def missing(name: str | Need, device: int) -> Missing | None:
    """Return why a need is not met on this machine with GPU number `device`; None if it is.

    A second question costs nothing. What a machine lacks first is told first: the driver, then the package.
    """
    need = known(name)
    if not need.driver():
        return Missing(gpu.NO_DRIVER, "")
    package = need.module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return Missing(f"{package} is not installed", _pip(name))
    try:
        importlib.import_module(need.module)
        return need.probe(device)
    except Exception as error:  # whatever a broken installation raises, the row says it
        text = " ".join(str(error).split()) or type(error).__name__
        return Missing(f"{package} is installed but cannot be used ({text})", _pip(name))


def _pip(name: str | Need) -> str:
    need = known(name)
    return installing.cupy() if need.module == "cupy" else installing.command(need.install)
