"""What this machine can do at best, measured in a few seconds: the scale on which every stage is judged.

Each figure is the best of a few tries: other programs only ever make a try slower. The copies and products are
NumPy's own, which the cpu backend works with too.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import ConfigError, OutputError
from pipeline.files import remedy
from pipeline.processor import usable_cores

COPIED = 1 << 27  # bytes of source and target of a copy, each: beyond any last-level cache but the largest
SIZE = {"float32": 1536, "float64": 1024}  # rows and columns of the matrices multiplied
FILE = 1 << 26  # bytes of the file that is written and read
CALLS = 20_000  # small NumPy calls timed together
IN_CACHE = 4096  # numbers of a vector: two of them stay in the first-level cache, or the second
TRIES = 5
ENOUGH = 0.6  # seconds after which a figure is not tried again
COLD, CACHED = (
    "from the disk, the cache emptied first",
    "from the page cache: this system cannot be asked to empty it",
)


@dataclass(frozen=True)
class Limits:
    """The best that this machine does.

    Attributes
    ----------
    cores : cores that this process may use
    threads : threads that `copy` and `product` used
    copy, copy_one : bytes per second of a copy, read and written both counted, on all threads and on one
    product, product_one : operations per second of a matrix product, by type, likewise
    vector_one : operations per second of the product of two vectors that stay in cache, by type, on one thread: near
        what compiled loops reach that are no matrix product
    disk_read : bytes per second of reading a file for the first time
    disk_read_is : what that is on this system: from the disk, or from the page cache
    cached_read : bytes per second of reading a file again
    python_call : seconds of a call of NumPy on a few numbers
    device_copy, device_product : as `copy` and `product`, on the device; None without one
    to_device, to_host : bytes per second of a copy from "pageable" and from "pinned" memory
    launch : seconds between two small kernels on the device
    """

    cores: int
    threads: int
    copy: float
    copy_one: float
    product: dict[str, float]
    product_one: dict[str, float]
    disk_read: float
    disk_read_is: str
    cached_read: float
    python_call: float
    device_copy: float | None = None
    device_product: dict[str, float] | None = None
    to_device: dict[str, float] = field(default_factory=dict)
    to_host: dict[str, float] = field(default_factory=dict)
    launch: float | None = None
    vector_one: dict[str, float] = field(default_factory=dict)

    def vector(self, kind: str) -> float:
        """Return `vector_one` for all threads, which share it out as they do matrix products; 0 if not measured."""
        return self.vector_one.get(kind, 0.0) * self.product[kind] / self.product_one[kind]

    def as_dict(self) -> dict[str, Any]:
        """Return the limits for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Limits:
        """Return the limits that :meth:`as_dict` gave.

        Raises
        ------
        ConfigError
            If an entry is missing or unknown.
        """
        known = {entry.name for entry in fields(cls)}
        needed = {entry.name for entry in fields(cls)} - _OPTIONAL
        missing, unknown = needed - set(content), set(content) - known
        if missing or unknown:
            found = f"no {', '.join(sorted(missing))}" if missing else f"unknown {', '.join(sorted(unknown))}"
            raise ConfigError(f"measured limits of a machine: {found}; measure them again")
        return cls(**content)


_OPTIONAL = {"device_copy", "device_product", "to_device", "to_host", "launch", "vector_one"}


def measure(backend: str, folder: Path, threads: int, another: str = "hydra.run.dir=...") -> Limits:
    """Measure this machine; some three seconds.

    Parameters
    ----------
    backend : "gpu" measures the device too
    folder : on the disk whose reading is measured; a file is made there and removed
    threads : threads of the cpu backend; 0: one per core
    another : how another folder is given

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    cores = usable_cores()
    threads = threads or cores
    cold, cached, what = disk(folder, another=another)
    device: dict[str, Any] = {}
    if backend == "gpu":
        from pipeline.backends.gpu import limits

        device = limits.measure()
    one = {name: product(name, 1) for name in SIZE}
    several = {name: max(one[name], product(name, threads)) for name in SIZE} if threads > 1 else one
    copy_one = copy(1)
    return Limits(
        cores=cores,
        threads=threads,
        copy=max(copy_one, copy(threads)) if threads > 1 else copy_one,
        copy_one=copy_one,
        product=several,
        product_one=one,
        disk_read=cold,
        disk_read_is=what,
        cached_read=cached,
        python_call=python_call(),
        vector_one={name: vector(name) for name in SIZE},
        **device,
    )


def best(work: Callable[[], Any], tries: int = TRIES) -> float:
    """Return the seconds of the fastest of a few tries; the first, which warms up, does not count."""
    work()
    seconds: list[float] = []
    while len(seconds) < tries and sum(seconds) < ENOUGH:
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def copy(threads: int, size: int | None = None) -> float:
    """Return the bytes per second of a copy of memory on so many threads, read and written both counted."""
    each = max((size or COPIED) // threads // 8, 1)
    # ones, not zeros: pages that were never written are all the same page, which stays in cache
    sources = [np.ones(each) for _ in range(threads)]
    targets = [np.ones(each) for _ in range(threads)]
    if threads == 1:
        return 16.0 * each / best(lambda: np.copyto(targets[0], sources[0]))
    gate = threading.Barrier(threads)

    def one(target: np.ndarray, source: np.ndarray) -> tuple[float, float]:
        gate.wait()
        begin = time.perf_counter()
        np.copyto(target, source)
        return begin, time.perf_counter()

    with ThreadPoolExecutor(threads) as pool:
        taken = []
        for _ in range(TRIES):  # from the first begin to the last end, without the start of the threads
            spans = list(pool.map(one, targets, sources))
            taken.append(max(end for _, end in spans) - min(begin for begin, _ in spans))
    return 16.0 * each * threads / min(taken)


def product(dtype: str, threads: int, size: int | None = None) -> float:
    """Return the operations per second of a matrix product on so many threads."""
    from threadpoolctl import threadpool_limits

    n = size or SIZE[dtype]
    a, b, out = (np.ones((n, n), dtype=dtype) for _ in range(3))
    with threadpool_limits(limits=threads, user_api="blas"):
        return 2.0 * n**3 / best(lambda: np.matmul(a, b, out=out))


def vector(dtype: str, calls: int | None = None) -> float:
    """Return the operations per second of the product of two vectors in cache, on one thread."""
    calls = calls or CALLS
    many = np.broadcast_to(
        np.ones(IN_CACHE, dtype=dtype), (calls, IN_CACHE)
    )  # the same vector again and again
    b = np.ones(IN_CACHE, dtype=dtype)
    # one call: those of Python for each vector would take three quarters of the time
    return 2.0 * IN_CACHE * calls / best(lambda: np.vecdot(many, b))


def python_call(calls: int | None = None) -> float:
    """Return the seconds of one call of NumPy on a few numbers: nearly all of it is Python's overhead."""
    a, out, calls = np.ones(4), np.empty(4), calls or CALLS

    def work() -> None:
        for _ in range(calls):
            np.add(a, a, out=out)

    return best(work) / calls


def disk(folder: Path, size: int = FILE, another: str = "hydra.run.dir=...") -> tuple[float, float, str]:
    """Return the bytes per second of reading a file first and again, and what the first is on this system.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            block = np.random.default_rng(0).bytes(1 << 20)  # nothing that a file system could compress
            for _ in range(max(1, size >> 20)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            emptied = hasattr(os, "posix_fadvise")
            if emptied:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            first = _read(file)
            again = max(_read(file) for _ in range(2))
    except OSError as error:
        raise OutputError(
            f"{folder}: a file of {size / 1e6:.0f} MB to measure the disk with cannot be written "
            f"({error.strerror or error}); {remedy(error, another)}"
        ) from error
    return first, max(first, again), COLD if emptied else CACHED


def _read(file: Any) -> float:
    """Return the bytes per second of reading an open file from its beginning."""
    buffer = memoryview(bytearray(1 << 20))
    file.seek(0)
    total, begin = 0, time.perf_counter()
    while count := file.readinto(buffer):
        total += count
    return total / (time.perf_counter() - begin)
