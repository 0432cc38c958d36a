"""Matrices that need not be on the device, and the one loop over the rows of any matrix.

Three kinds of matrices (n, p) go through the functions of ``wls.py`` and ``pca.py``: device arrays, which stay where
they are; a :class:`HostMatrix`, too large for the device, that streams through it; and a :class:`Resident`, on the
device until something else needs the room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends.gpu import memory
from pipeline.spans import count, span

log = logging.getLogger(__name__)


class _Matrix:
    """What the kinds of matrices that stand in for a device array have in common."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Numbers in the matrix."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, wherever it is."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]


class HostMatrix(_Matrix):
    """A matrix (n, p) in host memory whose rows stream through the device whenever they are needed.

    It stands in for a device array in the functions of ``wls.py``; results are the same up to the order in which
    rows are added. A round then costs one pass of the matrix over the bus to the device.

    Parameters
    ----------
    host : ndarray, shape (n, p)
    """

    def __init__(self, host: np.ndarray) -> None:
        self.host, self.shape, self.dtype = host, (host.shape[0], host.shape[1]), host.dtype

    def __getitem__(self, rows: slice) -> HostMatrix:
        """Return some of the rows, without a copy."""
        return HostMatrix(self.host[_checked(rows)])

    def __setitem__(self, rows: slice, values: Any) -> None:
        """Bring device rows home."""
        with span("copy back"):
            count("to the host", values.nbytes)
            self.host[rows] = cp.asnumpy(values)

    def astype(self, dtype: Any, copy: bool = True) -> HostMatrix:
        """Return the matrix in another type."""
        return HostMatrix(self.host.astype(dtype, copy=copy))


def _checked(rows: slice) -> slice:
    if not isinstance(rows, slice):
        raise TypeError(f"a matrix that streams, or may have to, gives slices of rows, not [{rows!r}]")
    return rows


class _Stay:
    """The memory behind a resident matrix and its slices: on the device, later in host memory."""

    def __init__(self, device: Any, host: np.ndarray | None) -> None:
        self.device, self.host, self.place, self.nbytes = device, host, device.device.id, device.nbytes

    def leave(self) -> str:
        """Let go of the device's memory, and say so; the numbers come home if they are not there already."""
        if self.host is None:
            with span("copy back"):
                count("to the host", self.nbytes)
                self.host = cp.asnumpy(self.device)
        self.device, self.nbytes = None, 0
        shape, size = self.host.shape, self.host.nbytes / 1e9
        return f"the matrix of {shape} ({size:.1f} GB) leaves the GPU and streams through it from now on"


class Resident(_Matrix):
    """A matrix (n, p) on the device that leaves it, and streams from then on, if other work finds no room.

    Its numbers do not change. Slices of its rows share its memory, and leave with it.

    Parameters
    ----------
    device : device array (n, p), contiguous; nobody else may keep it, or its memory would not become free
    host : the same numbers in host memory, if they are there anyway
    """

    def __init__(self, device: Any, host: np.ndarray | None = None) -> None:
        self._take(_Stay(device, host), slice(0, device.shape[0]))
        memory.may_leave(self._stay)

    def _take(self, stay: _Stay, rows: slice) -> None:
        array: Any = stay.host if stay.device is None else stay.device
        self._stay, self._rows, self.dtype = stay, rows, array.dtype
        self.shape = rows.stop - rows.start, array.shape[1]

    def now(self) -> Any:
        """Return the matrix as it is at present, a device array or a HostMatrix, to be kept for a moment only."""
        device = self._stay.device
        if device is not None:
            return device[self._rows]
        assert self._stay.host is not None
        return HostMatrix(self._stay.host[self._rows])

    def __getitem__(self, rows: slice) -> Resident:
        """Return some of the rows, without a copy."""
        begin, stop, step = _checked(rows).indices(self.shape[0])
        if step != 1:
            raise TypeError(f"a resident matrix gives slices of rows in their order, not every {step}th")
        part = Resident.__new__(Resident)
        part._take(self._stay, slice(self._rows.start + begin, self._rows.start + max(begin, stop)))
        return part

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Return the matrix in another type."""
        if self.dtype == dtype and not copy:
            return self
        found = memory.whole(
            lambda: self.now().astype(dtype), f"a matrix of {self.shape} in {np.dtype(dtype)}"
        )
        return found if isinstance(found, HostMatrix) else Resident(found)


def now(X: Any) -> Any:
    """Return a matrix of any kind as it is at present: a device array or a HostMatrix."""
    return X.now() if isinstance(X, Resident) else X


def device_rows(X: Any, part: slice) -> Any:
    """Return some rows of a matrix of any kind as a device array; if they are not there, they are copied."""
    X = now(X)
    return cp.asarray(np.ascontiguousarray(X.host[part])) if isinstance(X, HostMatrix) else X[part]


def empty_matrix(n: int, p: int, dtype: Any, level: int = logging.WARNING) -> Any:
    """Return an uninitialised matrix on the device, or in host memory if the device is too small for it.

    The second is told in a log line of that level.
    """
    dtype = np.dtype(dtype)
    made: list[Any] = []
    if memory.fits(n * p * dtype.itemsize) and memory.attempt(lambda: made.append(cp.empty((n, p), dtype))):
        return made[0]
    return streamed(np.empty((n, p), dtype=dtype), level)


def streamed(array: np.ndarray, level: int = logging.WARNING) -> HostMatrix:
    """Return a host matrix that streams through the device, with a line in the log."""
    log.log(
        level,
        "a matrix of %s (%.1f GB) leaves no room on the GPU (%.1f GB free): it stays in host memory and "
        "streams through the GPU in every round",
        array.shape,
        array.nbytes / 1e9,
        memory.free_bytes() / 1e9,
    )
    return HostMatrix(array)


def fill_rows(out: Any, part: slice, write: Callable[[Any], Any]) -> None:
    """Let write(rows) fill out[part] in place: those rows themselves, or device rows that are then brought home."""
    if isinstance(out, HostMatrix):
        rows = cp.empty((part.stop - part.start, out.shape[1]), dtype=out.dtype)
        write(rows)
        out[part] = rows
    else:
        write(out[part])


def over_rows(X: Any, work_bytes: int, work: Callable[[slice, Any], None]) -> None:
    """Call work(part, X[part]) with device rows, as many at a time as memory allows.

    Parameters
    ----------
    X : device array, HostMatrix or Resident, (n, p)
    work_bytes : bytes that `work` takes per row
    work : must leave nothing behind when an allocation fails in it, see :func:`memory.in_chunks`
    """
    n, present = X.shape[0], now(X)
    if isinstance(present, HostMatrix):
        from pipeline.backends.gpu.transfer import upload

        row_bytes = 2 * X.shape[1] * X.dtype.itemsize
        upload(present.host, None, memory.chunk(n, row_bytes + work_bytes), work, "rows")
        return
    del present  # it would hold the memory of a resident matrix that has to leave in the midst of this
    memory.in_chunks(n, work_bytes, lambda part: work(part, device_rows(X, part)), "rows")
