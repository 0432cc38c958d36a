"""Groups of where and how the work is done: ``backend``, ``scale``, ``checkpoint``, ``machine``."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.groups.choices import BackendName, MachineKind, ScaleName
from pipeline.groups.ranges import check, size_in_bytes, whole


@dataclass
class Backend:
    """Group ``backend``."""

    name: BackendName = BackendName.cpu  # what backend=... chose
    threads: int = 0  # 0: every core this process may use
    device: int = 0  # gpu: number of the GPU

    def __post_init__(self) -> None:
        check(0 <= self.device <= 1023, "backend.device", self.device, "the number of a GPU, from 0")
        check(
            0 <= self.threads <= 65_536,
            "backend.threads",
            self.threads,
            "0 (every core) or a number of threads up to 65,536",
        )


@dataclass
class Scale:
    """Group ``scale``: how far the work goes beyond the memory of one process, or beyond one machine."""

    name: ScaleName = ScaleName.local  # what scale=... chose
    store: str | None = None  # outofcore: folder for the chunks; null: in the run folder, removed at the end
    memory_limit: str | None = "2GB"  # memory to keep below; outofcore: all; dask: a worker, null: its share
    partitions: int | None = 1  # images go in so many parts, whose sums are added; dask, null: as memory asks
    scheduler: str | None = None  # dask: tcp://host:8786 or tls://host:8786; null: workers on this machine
    workers: int = 0  # dask: processes, 0: one per core or GPU; with scheduler: how many to wait for, 0: any
    threads: int = 1  # dask without scheduler: threads of each worker
    processes: bool = True  # dask without scheduler: false: workers are threads of this process, for tests
    wait: float = 60.0  # dask: seconds to wait for the scheduler to answer, and for a worker to come
    timeout: float = 3600.0  # dask: seconds without any answer after which the run stops
    tls_ca: str | None = None  # dask: file of the certificate authority, for tls://
    tls_cert: str | None = None  # dask: file of this program's certificate
    tls_key: str | None = None  # dask: file of its key

    def __post_init__(self) -> None:
        free = self.memory_limit is None and self.name is not ScaleName.outofcore
        found = None if self.memory_limit is None else size_in_bytes(self.memory_limit)
        check(
            free or (found is not None and found >= 10**8),
            "scale.memory_limit",
            self.memory_limit,
            "a size of at least 100MB, such as 800MB or 4GB",
        )
        if self.partitions is not None:
            whole("scale.partitions", self.partitions, 1, 100_000)
        whole("scale.workers", self.workers, 0, 100_000)
        whole("scale.threads", self.threads, 1, 65_536)
        check(0.1 <= self.wait <= 1e6, "scale.wait", self.wait, "seconds, at least 0.1")
        check(1.0 <= self.timeout <= 1e7, "scale.timeout", self.timeout, "seconds, at least 1")


@dataclass
class Checkpoint:
    """Section ``checkpoint``: what a run of ``train`` that is cut short leaves behind to go on from."""

    every: float = 60.0  # seconds of boosting between two checkpoints; 0: none by the clock
    rounds: int | None = None  # write one after every so many rounds, too

    def __post_init__(self) -> None:
        check(0.0 <= self.every <= 1e9, "checkpoint.every", self.every, "0 (off) or a number of seconds")
        check(
            self.rounds is None or self.rounds >= 1, "checkpoint.rounds", self.rounds, "at least 1, or null"
        )


YEARS = 1990, 2100  # of a datasheet


POSITIVE = (
    *("memory_gb", "bandwidth_gb_s", "fp32_tflops", "fp64_tflops", "link_gb_s", "multiprocessors"),
    *("cores", "clock_ghz", "power_watts", "host_memory_gb"),
)


@dataclass
class Machine:
    """Group ``machine``: a machine of ``plan``. Rates are peaks of the datasheet, 1e9 and 1e12 a second."""

    name: str = ""  # of the entry, as a person calls the machine
    kind: MachineKind = MachineKind.this  # this: measured here; gpu, cpu: from a datasheet, a forecast
    memory_gb: float | None = None  # 1e9 bytes, of the GPU or the machine; this, null: all that is installed
    bandwidth_gb_s: float | None = None  # of that memory
    fp32_tflops: float | None = None  # float32, without tensor cores
    fp64_tflops: float | None = None  # float64
    tensor_tflops: float | None = None  # gpu: TF32 on tensor cores, dense; 0: it has none
    link_gb_s: float | None = None  # gpu: host to device, one direction
    multiprocessors: int | None = None  # gpu: streaming multiprocessors
    cores: int | None = None  # cpu: cores that count (not the efficiency cores)
    clock_ghz: float | None = None  # highest clock of the datasheet
    power_watts: float | None = None  # of the board or the processor at full load
    year: int | None = None  # of the datasheet
    source: str = ""  # whose datasheet the figures are from
    host_memory_gb: float | None = None  # gpu: memory of the machine around it; null: as here
    price_per_hour: float | None = None  # what an hour costs, in any currency
    sample: int = 6_000  # this: images of the largest measuring run
    refresh: bool = False  # this: measure again, although a measurement of these settings is kept

    def __post_init__(self) -> None:
        whole("machine.sample", self.sample, 100, 1_000_000)
        for name in POSITIVE:
            value = getattr(self, name)
            check(value is None or 0.0 < value < 1e9, f"machine.{name}", value, "above 0")
        if self.year is not None:
            whole("machine.year", self.year, *YEARS)
        for name in ("tensor_tflops", "price_per_hour"):
            value = getattr(self, name)
            check(value is None or 0.0 <= value < 1e9, f"machine.{name}", value, "at least 0")
