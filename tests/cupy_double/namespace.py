"""The double's modules: cupy, cupyx and what hangs below them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.cuda_on_host.build import HostModule
from tests.cupy_double import libraries, streams
from tests.cupy_double.array import Pinned, ndarray, unwrap
from tests.cupy_double.machine import CUDARuntimeError, Machine, OutOfMemoryError, Pool

SAME = [
    *(
        "exp",
        "log",
        "sqrt",
        "square",
        "cos",
        "abs",
        "sign",
        "maximum",
        "minimum",
        "where",
        "clip",
        "add",
        "subtract",
        "rint",
    ),
    *(
        "multiply",
        "sum",
        "mean",
        "max",
        "min",
        "nanmin",
        "argmax",
        "argmin",
        "any",
        "all",
        "isfinite",
        "isnan",
    ),
    *(
        "logical_or",
        "logical_and",
        "matmul",
        "cumsum",
        "cumulative_sum",
        "sort",
        "take_along_axis",
        "percentile",
    ),
    *("reshape", "moveaxis", "permute_dims", "astype", "concatenate", "concat", "stack", "tril"),
    *("zeros_like", "ones_like", "full_like", "array_equal", "allclose"),
]
MADE = ["zeros", "ones", "full", "arange", "linspace", "eye"]
CONSTANTS = [
    *(
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    *("bool_", "pi", "nan", "inf", "newaxis", "finfo", "iinfo"),
]


def _lifted(function: Callable[..., Any]) -> Callable[..., ndarray]:
    def convert(value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(v, ndarray) for v in value):
            return [unwrap(v) for v in value]
        return value if isinstance(value, list | tuple) else unwrap(value)

    def call(*arguments: Any, out: ndarray | None = None, **named: Any) -> ndarray:
        given = [convert(a) for a in arguments]
        with np.errstate(all="ignore"):  # a GPU does not warn
            result = (
                np.asarray(function(*given, **named))
                if out is None
                else function(*given, out=out.host, **named)
            )
        if out is not None:
            return out
        flat = [a for x in arguments for a in (x if isinstance(x, list | tuple) else [x])]
        operands = [a for a in flat if isinstance(a, ndarray)]
        return operands[0].like(result, *operands[1:]) if operands else ndarray(result)

    return call


def _made(function: Callable[..., Any]) -> Callable[..., ndarray]:
    return lambda *arguments, **named: ndarray(function(*arguments, **named))


def _empty(shape: Any, dtype: Any = np.float64) -> ndarray:
    """Return an array of NaN, or of -1: never lucky zeros."""
    if not np.dtype(dtype).isnative:
        raise ValueError(f"Unsupported dtype {np.dtype(dtype)}")  # CuPy forgets the order of bytes
    host = np.empty(shape, dtype=dtype)
    host.reshape(-1).view(np.uint8).fill(0xFF)
    return ndarray(host)


def _asarray(value: Any, dtype: Any = None) -> ndarray:
    if isinstance(value, ndarray):
        return value if dtype is None or value.dtype == dtype else value.astype(dtype)
    host = np.array(value, dtype=dtype)
    if host.dtype.kind not in "biuf":
        raise ValueError(f"Unsupported dtype {host.dtype}")
    ndarray.machine.note("h2d", host.nbytes)
    return ndarray(host)


def _ascontiguousarray(value: Any, dtype: Any = None) -> ndarray:
    if not isinstance(value, ndarray):
        return _asarray(value, dtype)
    kind = value.dtype if dtype is None else np.dtype(dtype)
    if value.dtype == kind and value.flags.c_contiguous:
        return value
    return ndarray(np.array(value.host, dtype=kind, order="C"))


def _asnumpy(value: Any) -> np.ndarray:
    return value.get() if isinstance(value, ndarray) else np.asarray(value)


def _take(array: ndarray, index: ndarray, axis: int | None = None) -> ndarray:
    """Return cupy.take: out-of-range numbers wrap silently."""
    if not isinstance(index, ndarray):
        raise AssertionError("double: take with a device array of numbers")
    size = array.size if axis is None else array.shape[axis]
    return ndarray(np.take(array.host, index.host % size, axis=axis))


def _bincount(values: ndarray, weights: Any = None, minlength: int = 0) -> ndarray:
    if weights is not None:
        raise AssertionError("double: weighted bincount adds in no fixed order")
    ndarray.machine.note("wait")  # the largest value decides the size: CuPy waits for it
    return ndarray(np.bincount(unwrap(values), minlength=minlength))


def _raw_module(machine: Machine) -> type:
    class RawModule:
        """As cupy.RawModule, on the CPU."""

        def __init__(self, code: str, options: tuple[str, ...] = (), **_: Any) -> None:
            self.module = HostModule(code, options)

        def get_function(self, name: str) -> Callable[..., None]:
            run = self.module.get_function(name)

            def launch(grid: Any, block: Any, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
                machine.note("launch")
                for argument in args:
                    if isinstance(argument, np.ndarray):
                        raise TypeError(f"Unsupported type {type(argument)}")
                    if not isinstance(argument, ndarray | np.generic):
                        raise AssertionError(f"double: a bare Python {type(argument)} as a kernel argument")
                    if isinstance(argument, ndarray) and not argument.flags.c_contiguous:
                        raise AssertionError("double: a kernel was given an array with strides")
                    if isinstance(argument, ndarray) and argument.device.id != machine.current:
                        raise AssertionError("double: a kernel was given memory of another device")
                host = tuple(a.host if isinstance(a, ndarray) else a for a in args)
                run(grid, block, host, shared_mem=shared_mem)

            return launch

    return RawModule


def _runtime(machine: Machine) -> types.SimpleNamespace:
    def versions(which: str) -> Callable[[], int]:
        return lambda: getattr(machine, which)

    def count() -> int:
        machine.ask()
        return machine.devices

    def properties(device: int) -> dict[str, Any]:
        major, minor = machine.capability
        return {"name": b"double", "major": major, "minor": minor, "totalGlobalMem": machine.memory}

    def free() -> tuple[int, int]:
        if machine.shut is not None:
            raise CUDARuntimeError(machine.shut)
        return machine.memory - machine.used - machine.cached, machine.memory

    return types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        CUDA_R_32F=0,
        CUDA_R_64F=1,
        runtimeGetVersion=versions("runtime"),
        driverGetVersion=versions("driver"),
        getDeviceCount=count,
        getDeviceProperties=properties,
        memGetInfo=free,
        deviceSynchronize=streams.NULL.synchronize,
    )


def modules(machine: Machine) -> dict[str, types.ModuleType]:
    """Return the double's modules by name, for sys.modules."""
    ndarray.machine = machine
    cupy = types.ModuleType("cupy")
    cupyx, lapack = types.ModuleType("cupyx"), types.ModuleType("cupyx.lapack")
    for name in SAME:
        setattr(cupy, name, _lifted(getattr(np, name)))
    for name in MADE:
        setattr(cupy, name, _made(getattr(np, name)))
    for name in CONSTANTS:
        setattr(cupy, name, getattr(np, name))
    pool = Pool(machine)
    machine.device = streams.device(machine)
    vars(cupy).update(
        __version__="14.2.0",
        ndarray=ndarray,
        empty=_empty,
        empty_like=lambda a, dtype=None: _empty(a.shape, dtype or a.dtype),
        asarray=_asarray,
        array=_asarray,
        ascontiguousarray=_ascontiguousarray,
        asnumpy=_asnumpy,
        take=_take,
        bincount=_bincount,
        linalg=types.SimpleNamespace(
            cholesky=lambda a: libraries.cholesky(machine, a),
            eigh=lambda a, UPLO="L": libraries.eigh(machine, a, UPLO),
        ),
        RawModule=_raw_module(machine),
        get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=lambda: None),
        cuda=types.SimpleNamespace(
            runtime=_runtime(machine),
            Device=machine.device,
            Stream=streams.Stream,
            Event=streams.Event,
            get_current_stream=streams.get_current_stream,
            get_elapsed_time=streams.get_elapsed_time,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            device=types.SimpleNamespace(get_cublas_handle=lambda: 0),
            set_allocator=lambda allocator=None: None,
            nvtx=types.SimpleNamespace(RangePush=machine.push_range, RangePop=machine.pop_range),
            profiler=types.SimpleNamespace(start=machine.start_profiler, stop=machine.stop_profiler),
            is_available=lambda: machine.devices > 0 and machine.fault is None,
        ),
    )

    def empty_pinned(shape: Any, dtype: Any = float) -> Pinned:
        host = _empty_host(shape, dtype)
        if machine.page_locked is not None and host.nbytes > machine.page_locked:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory", 2)
        return host.view(Pinned)

    vars(cupyx).update(empty_pinned=empty_pinned, errstate=libraries.errstate(machine), lapack=lapack)
    lapack.potrs = libraries.potrs  # type: ignore[attr-defined]
    names = ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs")
    found = {name: types.ModuleType(name) for name in names}
    found["cupy_backends.cuda.libs"].__getattr__ = libraries.opener(machine)  # type: ignore[method-assign]
    return {
        **found,
        **libraries.cucim(),
        "cupy": cupy,
        "cupyx": cupyx,
        "cupyx.lapack": lapack,
    }


def _empty_host(shape: Any, dtype: Any) -> np.ndarray:
    host = np.empty(shape, dtype=dtype)
    host.reshape(-1).view(np.uint8).fill(0xFF)
    return host
