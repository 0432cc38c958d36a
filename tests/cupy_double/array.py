"""The double's device array."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tests.cupy_double.machine import Block, Machine

ELEMENTWISE = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"]
COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne"]
METHODS = [
    "sum",
    "max",
    "min",
    "mean",
    "argmax",
    "argmin",
    "any",
    "all",
    "astype",
    "reshape",
    "ravel",
    "copy",
    "transpose",
    "cumsum",
]


def unwrap(value: Any) -> Any:
    """Return what NumPy computes with; refuse host arrays as CuPy does."""
    if isinstance(value, ndarray):
        return value.host
    if value is None or isinstance(value, bool | int | float | complex | np.generic | type | np.dtype | str):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


class ndarray:  # noqa: N801  CuPy's name
    """A device array: NumPy's, behind a fence."""

    __array_ufunc__ = None  # NumPy's operators leave mixed operands to us, and we refuse host arrays
    machine: Machine  # set by namespace.py for each double

    def __init__(self, host: np.ndarray, block: Block | None = None) -> None:
        self.host = host
        self.block = block or Block(self.machine, host.nbytes)

    def like(self, result: Any, *others: ndarray) -> ndarray:
        """Return `result` as a device array; a view of an operand shares its memory."""
        result = np.asarray(result)
        for operand in (self, *others):
            if np.may_share_memory(result, operand.host):
                return type(self)(result, operand.block)
        return type(self)(result)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        """Copy to the host, to `out` if it is given."""
        self.machine.note("d2h", self.host.nbytes)
        if out is None:
            return self.host.copy()
        if out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError("get: shapes and types must agree and memory be contiguous")
        out[...] = self.host
        return out

    def item(self) -> Any:
        """Copy one number to the host."""
        self.machine.note("d2h", self.host.nbytes)
        return self.host.item()

    def tolist(self) -> Any:
        """Copy to the host."""
        return self.get().tolist()

    def set(self, source: np.ndarray, stream: Any = None) -> None:
        """Copy from the host; on a stream later, from page-locked memory as it is then."""
        if source.shape != self.shape or source.dtype != self.dtype or not self.host.flags.c_contiguous:
            raise ValueError("set: shapes and types must agree and memory be contiguous")
        self.machine.note("h2d", source.nbytes)
        if stream is None:
            self.host[...] = source
            return
        if not isinstance(source, Pinned):
            raise AssertionError("double: an asynchronous copy from memory that is not page-locked")
        stream.submit(lambda: self.host.__setitem__(..., np.asarray(source)))

    def fill(self, value: Any) -> None:
        """Fill with one number."""
        self.host.fill(unwrap(value))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __len__(self) -> int:
        return len(self.host)

    def __iter__(self) -> Any:
        raise AssertionError("double: iterating over a device array copies element by element")

    def _key(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        found, axis = [], 0
        for one in keys:
            if isinstance(one, np.ndarray | list):
                raise AssertionError("double: index a device array with a device array")
            if isinstance(one, ndarray) and one.host.dtype != bool:
                one = one.host % self.host.shape[axis]  # noqa: PLW2901  CuPy wraps out-of-range numbers silently
            elif isinstance(one, ndarray):
                one = one.host  # noqa: PLW2901
            axis += one is not None and one is not Ellipsis
            found.append(one)
        return tuple(found) if isinstance(key, tuple) else found[0]

    def __getitem__(self, key: Any) -> ndarray:
        return self.like(self.host[self._key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[self._key(key)] = unwrap(value)

    def __neg__(self) -> ndarray:
        return self.like(-self.host)

    def __invert__(self) -> ndarray:
        return self.like(~self.host)

    @property
    def device(self) -> Any:
        """Return the device that holds the memory."""
        return self.machine.device(self.block.place)

    shape = property(lambda self: self.host.shape)
    dtype = property(lambda self: self.host.dtype)
    ndim = property(lambda self: self.host.ndim)
    size = property(lambda self: self.host.size)
    nbytes = property(lambda self: self.host.nbytes)
    itemsize = property(lambda self: self.host.itemsize)
    strides = property(lambda self: self.host.strides)
    flags = property(lambda self: self.host.flags)
    T = property(lambda self: self.like(self.host.T))

    @property
    def data(self) -> Any:
        """Return what holds the address."""
        return MemoryPointer(self.host.ctypes.data)


class MemoryPointer:
    """As cupy.cuda.MemoryPointer: an address."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class Pinned(np.ndarray):
    """Page-locked host memory."""


def _operator(name: str) -> None:
    function = getattr(operator, name)
    dunder = name.rstrip("_")

    def forward(self: ndarray, other: Any) -> ndarray:
        return self.like(function(self.host, unwrap(other)))

    def reflected(self: ndarray, other: Any) -> ndarray:
        return self.like(function(unwrap(other), self.host))

    setattr(ndarray, f"__{dunder}__", forward)
    if name in COMPARISONS:
        return
    setattr(ndarray, f"__r{dunder}__", reflected)
    if name == "matmul":
        return
    in_place = getattr(operator, f"i{dunder}")

    def assign(self: ndarray, other: Any) -> ndarray:
        self.host = in_place(self.host, unwrap(other))
        return self

    setattr(ndarray, f"__i{dunder}__", assign)


def _method(name: str) -> None:
    def call(self: ndarray, *arguments: Any, **named: Any) -> ndarray:
        return self.like(getattr(self.host, name)(*arguments, **named))

    setattr(ndarray, name, call)


for _name in (*ELEMENTWISE, *COMPARISONS):
    _operator(_name)
for _name in METHODS:
    _method(_name)
