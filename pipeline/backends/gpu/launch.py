"""Compile and launch the kernels in the package's ``.cu`` files through CuPy.

A *specialisation* of a kernel is its source with macros (types, numbers of orientations or classes) fixed. It is
compiled when it is first launched, once per device, by NVRTC; CuPy keeps the binary on disk for later runs.

Options of every compilation: ``--std=c++17``; ``--fmad=false`` where exact bins matter (see
``kernel_table.CONTRACTION``); division and square root stay correctly rounded (NVRTC's default). CuPy itself adds
``-ftz=true``: float32 results below 1.2e-38 become zero, far below what a feature or a coefficient can show.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from pipeline.backends.gpu.kernel_table import CONTRACTION, TABLE, Argument
from pipeline.spans import span

SHARED_LIMIT = 48 * 1024  # bytes of shared memory that every GPU grants a block without being asked
THREADS = 256  # threads of a block where nothing else decides

DTYPES: dict[str, np.dtype[Any]] = {
    "unsigned char": np.dtype(np.uint8),
    "unsigned short": np.dtype(np.uint16),
    "int": np.dtype(np.int32),
    "unsigned int": np.dtype(np.uint32),
    "long long": np.dtype(np.int64),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}
CTYPES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, but for its arguments. Plans are made by pure functions, so tests can read them.

    Attributes
    ----------
    kernel : name in the launch table
    macros : (name, value) pairs that specialise the source; types by their C name
    grid, block : numbers of blocks, and of threads in a block, in up to three dimensions
    shared : bytes of dynamic shared memory
    """

    kernel: str
    macros: tuple[tuple[str, str | int], ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int = 0


def macros(**values: str | int | np.dtype) -> tuple[tuple[str, str | int], ...]:
    """Return macro definitions in a fixed order, dtypes by their C name."""
    return tuple(
        (name, CTYPES[value] if isinstance(value, np.dtype) else value)
        for name, value in sorted(values.items())
    )


def source(file: str) -> str:
    """Return the text of one ``.cu`` file of this package."""
    return resources.files("pipeline.backends.gpu").joinpath(file).read_text(encoding="utf-8")


def options(file: str, definitions: tuple[tuple[str, str | int], ...]) -> tuple[str, ...]:
    """Return the compiler options of one specialisation of `file`."""
    contraction = "true" if CONTRACTION[file] else "false"
    defined = tuple(f"-D{name}={value}" for name, value in definitions)
    return ("--std=c++17", f"--fmad={contraction}", *defined)


def bind(launch: Launch, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `arguments` as the kernel needs them: arrays checked, numbers in the parameter's own type.

    Raises
    ------
    TypeError
        If there are too few or too many, or an array's dtype is not the kernel's.
    ValueError
        If an array is not C-contiguous (kernels ignore strides).
    OverflowError
        If a number does not fit the parameter's type.
    """
    expected = TABLE[launch.kernel].arguments
    if len(arguments) != len(expected):
        raise TypeError(f"{launch.kernel} takes {len(expected)} arguments, not {len(arguments)}")
    types = dict(launch.macros)
    return tuple(
        _bind_one(launch.kernel, argument, value, types)
        for argument, value in zip(expected, arguments, strict=True)
    )


def _bind_one(kernel: str, argument: Argument, value: Any, types: Mapping[str, str | int]) -> Any:
    dtype = DTYPES[str(types.get(argument.ctype, argument.ctype))]
    where = f"{kernel}: argument {argument.name}"
    if argument.pointer:
        if getattr(value, "dtype", None) != dtype or not hasattr(value, "flags"):
            raise TypeError(
                f"{where} must be an array of {dtype}, not {getattr(value, 'dtype', type(value))}"
            )
        if not value.flags.c_contiguous:
            raise ValueError(f"{where} must be C-contiguous; pass ascontiguousarray(...)")
        return value
    if hasattr(value, "shape") and value.shape != ():
        raise TypeError(f"{where} must be a number, not an array of shape {value.shape}")
    wrapped = dtype.type(value)
    if dtype.kind in "iu" and int(wrapped) != value:
        raise TypeError(f"{where} must be a whole number, not {value!r}")
    return wrapped


@functools.cache
def _function(kernel: str, definitions: tuple[tuple[str, str | int], ...], device: int) -> Any:
    """Return the compiled kernel; `device` is part of the key because binaries belong to a device."""
    import cupy

    file = TABLE[kernel].file
    with span("compile"):
        return cupy.RawModule(code=source(file), options=options(file, definitions)).get_function(kernel)


def run(launch: Launch, *arguments: Any) -> None:
    """Launch a kernel on the current device and stream; an empty grid is no launch.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As :func:`bind`.
    """
    import cupy

    bound = bind(launch, arguments)
    if 0 in launch.grid:
        return
    device = cupy.cuda.Device().id
    function = _function(launch.kernel, launch.macros, device)
    function(launch.grid, launch.block, bound, shared_mem=launch.shared)


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)
