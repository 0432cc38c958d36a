"""Is there a GPU that this program can use? One line that says what was found and what to do, if not.

CuPy imports on a machine without a GPU, so an import proves nothing: driver, device and libraries are asked, in
the order in which they can be missing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import sys
from typing import Any, NamedTuple

from pipeline import installing
from pipeline.errors import BackendError

OLDEST = {12: (7, 0), 13: (7, 5)}  # compute capability that NVRTC of each CUDA release still compiles for
OLDEST_CUPY = (14, 0, 1)
LIBRARIES = {"nvrtc": "NVRTC", "cublas": "cuBLAS", "cusolver": "cuSOLVER"}
INSTEAD = "; or use backend=cpu"
NO_DRIVER = (
    "this machine has no NVIDIA driver, or it is not loaded: install one first, or in a container start with "
    "--gpus all"
)


class NoCupyError(BackendError, ImportError):
    """CuPy is missing or cannot be used; also an ImportError, for whoever imports a module that needs it."""


class Found(NamedTuple):
    """The GPU that was chosen."""

    device: int
    name: str
    memory: int  # bytes
    driver: int  # CUDA release the driver supports, 1000 * major + 10 * minor
    runtime: int  # CUDA release CuPy was built with

    def __str__(self) -> str:
        return (
            f"device {self.device}, {self.name}, {self.memory / 1e9:.0f} GB, driver for CUDA "
            f"{_release(self.driver)}, CuPy for CUDA {_release(self.runtime)}"
        )


def find(device: int | None) -> Found:
    """Return what is known of GPU number `device`; of the one that CuPy works on in this thread if it is None.

    Raises
    ------
    BackendError
        If it cannot be used: one line with what was found and what to do.
    """
    cupy = import_cupy()
    driver, runtime = _driver(cupy)
    count = _count(cupy)
    if device is None:
        device = int(cupy.cuda.Device().id)
    if device >= count:
        last = f"0 to {count - 1}" if count > 1 else "0"
        raise BackendError(
            f"backend.device={device} but this machine shows {count} GPU{'s' * (count > 1)}: "
            f"choose backend.device={last}, or look at CUDA_VISIBLE_DEVICES"
        )
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    name = properties["name"].decode()
    capability = (int(properties["major"]), int(properties["minor"]))
    oldest = OLDEST.get(runtime // 1000, OLDEST[max(OLDEST)])
    if capability < oldest:
        raise BackendError(
            f"GPU {device} ({name}) has compute capability {capability[0]}.{capability[1]}, but CUDA "
            f"{runtime // 1000} needs at least {oldest[0]}.{oldest[1]}: use backend=cpu"
            + (" or the extra gpu-cu12" if runtime >= 13000 and capability >= OLDEST[12] else "")
        )
    _libraries(runtime)
    _open(cupy, device, name)
    return Found(device, name, int(properties["totalGlobalMem"]), driver, runtime)


def has_driver() -> bool:
    """Return whether there is a trace of an NVIDIA driver; for a machine without CuPy, which would ask it."""
    if shutil.which("nvidia-smi") is not None or os.path.exists("/proc/driver/nvidia/version"):
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def import_cupy(what: str = "backend=gpu", instead: str = INSTEAD) -> Any:
    """Return CuPy.

    Parameters
    ----------
    what : who needs it, for the message
    instead : what else may be done, for the message

    Raises
    ------
    NoCupyError
        If it is missing, too old or broken. A machine without a driver is told of the driver, which comes first.
    """
    if importlib.util.find_spec("cupy") is None:
        raise NoCupyError(_no_cupy(f"{what} needs CuPy, which is not installed: ", instead))
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:  # whatever a broken installation raises, the user is told in one line
        told = f"CuPy is installed but cannot be imported ({_line(error)}): reinstall it with "
        raise NoCupyError(_no_cupy(told, instead)) from error
    if tuple(int(part) for part in re.findall(r"\d+", cupy.__version__)[:3]) < OLDEST_CUPY:
        oldest = ".".join(map(str, OLDEST_CUPY))
        told = f"CuPy {cupy.__version__} is installed, but {what} needs {oldest} or later: "
        raise NoCupyError(_no_cupy(told, instead))
    return cupy


def _no_cupy(told: str, instead: str) -> str:
    return (f"{told}{installing.cupy()}" if has_driver() else NO_DRIVER) + instead


def _driver(cupy: Any) -> tuple[int, int]:
    """Return the CUDA release of the driver and of CuPy, if they fit."""
    runtime = int(cupy.cuda.runtime.runtimeGetVersion())
    try:
        driver = int(cupy.cuda.runtime.driverGetVersion())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"the NVIDIA driver does not answer ({_line(error)}): install or reload it; or use backend=cpu"
        ) from error
    if driver == 0:
        raise BackendError(NO_DRIVER + INSTEAD)
    if driver // 1000 < runtime // 1000:
        other = (
            f", or install CuPy for CUDA {driver // 1000}: "
            f"{installing.command(f'hogboost[gpu-cu{driver // 1000}]')} after pip uninstall "
            f"cupy-cuda{runtime // 1000}x"
            if driver // 1000 >= min(OLDEST)
            else ""
        )
        raise BackendError(
            f"CuPy is built for CUDA {_release(runtime)} but the driver supports CUDA {_release(driver)} only: "
            f"update the driver{other}; or use backend=cpu"
        )
    return driver, runtime


def _count(cupy: Any) -> int:
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"no GPU can be used ({_line(error)}): look at nvidia-smi and CUDA_VISIBLE_DEVICES; "
            "or use backend=cpu"
        ) from error
    if count == 0:
        raise BackendError(
            "the driver shows no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES; or use backend=cpu"
        )
    return count


def _libraries(runtime: int) -> None:
    """Make sure that the libraries CuPy opens at first use are there.

    They are asked for as CuPy itself asks: as attributes of its package of libraries, which also finds those that pip
    installed. An import of the module by its full name would look on the system's search path only.
    """
    package = importlib.import_module("cupy_backends.cuda.libs")
    for module, library in LIBRARIES.items():
        try:
            found = getattr(package, module)
            if module == "nvrtc":
                found.getVersion()  # its module imports without the library
        except Exception as error:  # ImportError, or what the search for a library raises
            raise BackendError(
                f"{library} of CUDA {runtime // 1000} cannot be loaded ({_line(error)}): "
                f"{installing.command(f'cupy-cuda{runtime // 1000}x[ctk]')}; or use backend=cpu"
            ) from error


def _open(cupy: Any, device: int, name: str) -> None:
    """Make sure that the GPU lets this process in: it may be full, or given to one process only."""
    try:
        with cupy.cuda.Device(device):
            cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"GPU {device} ({name}) cannot be opened ({_line(error)}): end other programs on it (nvidia-smi), "
            "choose another backend.device, or use backend=cpu"
        ) from error


def _release(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
