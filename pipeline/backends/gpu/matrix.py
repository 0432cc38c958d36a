"""A matrix too large for the device, and the one loop over the rows of any matrix."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from pipeline.backends.gpu import memory
from pipeline.spans import count, span

log = logging.getLogger(__name__)


class HostMatrix:
    """A matrix (n, p) in host memory whose rows stream through the device whenever they are needed.

    It stands in for a device array in the functions of ``wls.py``; results are the same up to the order in which
    rows are added. A round then costs one pass of the matrix over the bus to the device.

    Parameters
    ----------
    host : ndarray, shape (n, p)
    """

    ndim = 2

    def __init__(self, host: np.ndarray) -> None:
        self.host = host

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.host.shape[0], self.host.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers."""
        return self.host.dtype

    @property
    def size(self) -> int:
        """Numbers in the matrix."""
        return self.host.size

    @property
    def nbytes(self) -> int:
        """Bytes of host memory."""
        return self.host.nbytes

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, rows: slice) -> HostMatrix:
        """Return some of the rows, without a copy."""
        if not isinstance(rows, slice):
            raise TypeError(f"a streamed matrix gives slices of rows, not [{rows!r}]")
        return HostMatrix(self.host[rows])

    def __setitem__(self, rows: slice, values: Any) -> None:
        """Bring device rows home."""
        with span("copy back"):
            count("to the host", values.nbytes)
            self.host[rows] = cp.asnumpy(values)

    def astype(self, dtype: Any, copy: bool = True) -> HostMatrix:
        """Return the matrix in another type."""
        return HostMatrix(self.host.astype(dtype, copy=copy))


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
    X : device array or HostMatrix, (n, p)
    work_bytes : bytes that `work` takes per row
    work : must leave nothing behind when an allocation fails in it, see :func:`memory.in_chunks`
    """
    n = X.shape[0]
    if isinstance(X, HostMatrix):
        from pipeline.backends.gpu.transfer import upload

        row_bytes = 2 * X.shape[1] * X.dtype.itemsize
        upload(X.host, None, memory.chunk(n, row_bytes + work_bytes), work, "rows")
        return
    memory.in_chunks(n, work_bytes, lambda part: work(part, X[part]), "rows")
