"""Profiles as a run would make them, for the tests of tables and page. The figures are invented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.profiling.report import (
    Advice,
    CompareRow,
    Fit,
    Machine,
    Measuring,
    Point,
    Report,
    Stage,
    Sweep,
    Total,
    label,
)

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.invalid/x.png onerror=alert(2)>\"'&[red]\x1b[31m\n"


def stage(name: str, wall: float, whole: float, cores: float, cause: str, verdict: str, **more: Any) -> Stage:
    """Return a stage whose rates follow from its seconds, bytes and operations."""
    seconds = more.get("device") or wall
    for amount, rate in (("bytes", "gb_per_s"), ("operations", "gflop_per_s")):
        if more.get(amount):
            more[rate] = more[amount] / seconds / 1e9
    more.setdefault("memory_peak", 300_000_000)
    return Stage(
        name=name,
        label=label(name),
        wall=wall,
        spread=(0.96 * wall, 1.07 * wall),
        share=wall / whole,
        cpu=cores * wall,
        cores=cores,
        cause=cause,
        verdict=verdict,
        **more,
    )


def digits() -> Report:
    """10,000 images on two cores, everything measured."""
    w = 7.62
    stages = [
        stage("start", 0.02, w, 1.0, "small", "too short to matter"),
        stage(
            "read",
            0.31,
            w,
            0.9,
            "files",
            "waiting for files: 0.9 of 2 cores busy",
            bytes=5.2e7,
            limit="disk read",
            share_of_limit=0.11,
        ),
        stage(
            "decode",
            1.94,
            w,
            1.05,
            "one_core",
            "one core busy of 2: decoding runs in one thread, and PNG inflates there",
            calls=10_000,
            bytes=9.8e7,
            memory_growth=51_000_000,
            memory_peak=231_000_000,
        ),
        stage("split", 0.08, w, 1.0, "python", "Python overhead: 10,000 calls of 8 us", calls=1),
        stage(
            "hog",
            0.58,
            w,
            1.96,
            "arithmetic",
            "arithmetic: both cores busy, far below the memory's bandwidth",
            bytes=1.8e8,
            operations=4.1e9,
            limit="copy bandwidth",
            share_of_limit=0.03,
            first_call=0.21,
            memory_growth=130_000_000,
            memory_peak=402_000_000,
        ),
        stage("boost", 0.11, w, 1.1, "python", "Python overhead between the parts of a round", calls=100),
        stage(
            "boost/set-up",
            0.05,
            w,
            1.2,
            "small",
            "too short to matter",
            bytes=1.3e8,
            limit="copy bandwidth",
            share_of_limit=0.18,
        ),
        stage(
            "boost/columns",
            0.71,
            w,
            1.3,
            "memory",
            "memory bandwidth: columns lie far apart, each line that is loaded serves 1 of 8 numbers",
            calls=100,
            bytes=4.6e9,
            limit="copy bandwidth",
            share_of_limit=0.47,
        ),
        stage(
            "boost/sums",
            1.86,
            w,
            1.97,
            "arithmetic",
            "arithmetic: 94 % of what a large float32 product reaches here",
            calls=100,
            bytes=1.3e10,
            operations=3.33e11,
            limit="float32 product",
            share_of_limit=0.94,
            memory_growth=259_000_000,
            memory_peak=661_000_000,
        ),
        stage(
            "boost/solve",
            0.22,
            w,
            1.4,
            "arithmetic",
            "arithmetic on small matrices",
            calls=100,
            bytes=6.6e7,
            operations=7.2e8,
            limit="float32 product",
            share_of_limit=0.02,
        ),
        stage(
            "boost/update",
            0.92,
            w,
            1.9,
            "memory",
            "memory bandwidth: 88 % of what a copy reaches here",
            calls=100,
            bytes=1.39e10,
            operations=2.6e9,
            limit="copy bandwidth",
            share_of_limit=0.88,
        ),
        stage("evaluate", 0.06, w, 1.2, "small", "too short to matter"),
        stage(
            "save",
            0.71,
            w,
            1.0,
            "python",
            "Python overhead: drawing three pictures",
            first_call=0.34,
            calls=1,
        ),
        stage("", 0.05, w, 1.0, "python", "Python overhead"),
    ]
    return Report(
        created="2026-11-29T18:20:41+00:00",
        command=["data.path=photos", "classifier.n_rounds=100", "hog=default"],
        total=Total(
            wall=w, spread=(7.49, 7.88), first=12.9, cpu=12.1, memory_peak=661_000_000, accuracy=0.9889,
            log_loss=0.0450, repeats=3,
            verdict="One core busy: 38% of the time, most of it for decoding images. One core works while the others"
            " wait: a faster core would help, more cores would not.",
        ),
        stages=stages,
        machine=Machine(
            facts={"processor": "AMD EPYC 7B13, 2 cores used of 2", "memory": "8.3 GB", "system": "Linux 6.1, x86_64",
                   "GPU": "none"},
            limits={
                "cores": 2, "copy": 17.2e9, "copy_one": 11.8e9, "product": {"float32": 190e9, "float64": 94e9},
                "product_one": {"float32": 101e9, "float64": 49e9}, "disk_read": 1.6e9, "python_call": 5.2e-8,
            },
        ),
        software={"python": "3.11.15", "hogboost": "0.1.0", "numpy": "2.4.6", "numba": "0.68.1",
                  "BLAS": "OpenBLAS 0.3.31, 2 threads"},
        settings={"backend": {"name": "cpu", "threads": 0}, "classifier": {"learner": "subspace", "n_rounds": 100}},
        work={"images": 10_000, "fit": 8_000, "tested": 2_000, "classes": 10, "n_features": 3240, "rounds": 100,
              "columns": 128, "learner": "subspace", "backend": "cpu", "threads": 2, "source": "folder",
              "files": 10_000, "file_bytes": 52_000_000},
        first_calls={"import": 2.2, "compile": 2.05, "hog": 0.21, "save": 0.34, "BLAS threads": 0.48},
        measuring=Measuring(spans=51_240, seconds_per_span=1.4e-6, share=0.0094, with_spans=7.65, without_spans=7.61),
        compare=[
            CompareRow("reference", 1904.0, {"decode": 1.9, "hog": 7.9, "boost": 1893.0}, 1.0,
                       "HoG from 500 images, boosting from 2 of 100 rounds", 0.0, 1.0, 0.9889),
            CompareRow("cpu", 7.62, {"decode": 1.94, "hog": 0.58, "boost": 3.87}, 249.9, None, 2.4e-7, 1.0, 0.9889),
            CompareRow("gpu", reason="CuPy is not installed: pip install 'hogboost[gpu-cu12]'"),
        ],
        sweeps=_sweeps(w),
        advice=[
            Advice("pack the images once, first: python -m pipeline pack data.path=photos out=photos.npz",
                   "data.name=packed data.path=photos.npz", 5.55, 2.07,
                   "read and decode take 2.25 s; a packed set is mapped into memory without decoding",
                   "measured seconds of read and decode, less the time to map 50 MB at the disk's rate",
                   "packing takes about 4 s once, and again whenever the images or their size change", 5.61, 2.01),
            Advice("let early stopping end the rounds, at about 61 of 100", "classifier.early_stopping=true", 6.3, 1.32,
                   "The loss on held-out images is lowest after 61 rounds; the 10 after it show that.",
                   "measured seconds of a round times the rounds that fall away",
                   "The model changes: 61 rounds, and 10 % of the images are set aside to watch.", 6.61, 1.01),
            Advice("draw no plots", "plots=false", 7.07, 0.55, "Three PNG files take most of the time of saving.",
                   "measured seconds of save with and without"),
            Advice("compute on a GPU", "backend.name=gpu", 4.0, 3.62,
                   "the run takes 7.62 s on backend=cpu",
                   "bytes and operations of each stage at the datasheet's rates; the rest as measured",
                   "a forecast: nothing was run on a GPU"),
        ],
        commands={
            "nsys": "nsys profile -c cudaProfilerApi -t cuda,nvtx -o profile python -m pipeline profile backend=gpu",
            "ncu": "ncu --nvtx --nvtx-include hog/ -o hog python -m pipeline profile backend=gpu",
        },
    )  # fmt: skip


def _sweeps(whole: float) -> list[Sweep]:
    return [
        Sweep(
            "threads", "threads",
            [Point(1, "1", 11.4, {"decode": 1.95, "hog": 1.1, "boost": 7.2}),
             Point(2, "2", whole, {"decode": 1.94, "hog": 0.58, "boost": 3.87})],
            Fit("amdahl", {"seconds_one": 11.4, "serial": 0.337},
                "34 % of the work of one thread does not share out: 2 threads are 1.5 times as fast."),
        ),
        Sweep(
            "dtype", "numbers",
            [Point(0, "features float32, boosting float32", whole, {"hog": 0.58, "boost": 3.87}),
             Point(1, "features float64, boosting float64", 11.9, {"hog": 0.71, "boost": 8.0})],
            Fit("ratio", {"ratio": 1.56}, "float64 takes 1.56 times as long"),
        ),
        Sweep(
            "images", "images",
            [Point(n, f"{n:,}", 1.1 + 1.2e-4 * n**1.17, {}) for n in (625, 1250, 2500, 5000, 10_000)],
            Fit("power", {"fixed": 1.1, "factor": 1.2e-4, "exponent": 1.17},
                "Twice the images take 2.25 times as long (exponent 1.17)"),
        ),
        Sweep(
            "batch", "images at a time",
            [Point(n, f"{n:,}", s, {})
             for n, s in ((64, 0.71), (256, 0.59), (1024, 0.58), (4096, 0.66), (10_000, 0.69))],
            None,
        ),
        Sweep(
            "pixels", "pixels of an image",
            [Point(n, s, t, {})
             for n, s, t in ((1250, "25 x 50", 3.1), (5000, "50 x 100", 7.6), (20_000, "100 x 200", 26.0))],
            Fit("line", {"fixed": 1.6, "slope": 1.22e-3}, "1.6 s and 1.22 ms for each pixel"),
        ),
    ]  # fmt: skip


def gpu() -> Report:
    """100,000 images on a GPU: device seconds, copies, two sets of limits."""
    w = 6.1
    stages = [
        stage("start", 0.02, w, 1.0, "small", "too short to matter"),
        stage("read", 0.9, w, 2.2, "files", "waiting for files", bytes=5.0e8, limit="disk read", share_of_limit=0.6),
        stage("decode", 3.4, w, 15.1, "python", "Python overhead: 15 of 16 cores busy, half of it in the interpreter",
              calls=100_000),
        stage("copy to device", 0.11, w, 1.0, "copies", "copies to the device: 2.0 times the bytes that had to go up",
              device=0.10, bytes=1.0e9, limit="host to device, pinned", share_of_limit=0.2, to_device=1.0e9),
        stage("hog", 0.06, w, 1.0, "memory", "memory bandwidth of the device", device=0.0021, bytes=1.8e9,
              operations=4.1e10, limit="device copy", share_of_limit=0.2, first_call=0.9),
        stage("boost/columns", 0.05, w, 1.0, "memory", "memory bandwidth of the device", device=0.016, bytes=4.6e10,
              limit="device copy", share_of_limit=0.67, calls=100),
        stage("boost/sums", 0.31, w, 1.0, "arithmetic", "arithmetic", device=0.28, bytes=1.3e11, operations=3.3e13 / 4,
              limit="device float32 product", share_of_limit=0.57, calls=100),
        stage("boost/solve", 0.21, w, 1.0, "launches", "launch overhead: 3,100 launches of 5 us", device=0.19,
              bytes=6.6e7, operations=7.2e8, calls=100, to_host=16_000, limit="launches", share_of_limit=0.81),
        stage("boost/update", 0.08, w, 1.0, "memory", "memory bandwidth of the device", device=0.06, bytes=1.4e11,
              operations=2.6e10, limit="device copy", share_of_limit=0.54, calls=100),
        stage("copy back", 0.01, w, 1.0, "copies", "copies from the device", device=0.004, to_host=2_600_000),
        stage("save", 0.7, w, 1.0, "python", "Python overhead"),
        stage("", 0.25, w, 1.0, "waiting", "waiting"),
    ]  # fmt: skip
    plain = digits()
    limits = {
        **plain.machine.limits,
        "cores": 16, "copy": 118e9, "product": {"float32": 1.9e12, "float64": 0.95e12},
        "device_copy": 4.3e12, "device_product": {"float32": 51e12, "float64": 60e12},
        "to_device": {"pageable": 9e9, "pinned": 51e9}, "to_host": {"pageable": 7e9, "pinned": 50e9}, "launch": 4.6e-6,
    }  # fmt: skip
    return replace(
        plain,
        command=["backend=gpu", "data.path=photos"],
        total=Total(6.1, (6.0, 6.3), 21.4, 58.0, 2_300_000_000, "Decoding holds the run back: the GPU waits for it"
                    " nine tenths of the time.", 4_100_000_000, 0.991, 0.031, 5),
        stages=stages,
        machine=Machine({**plain.machine.facts, "processor": "16 cores",
                         "GPU": "NVIDIA H200, 139 GiB, driver 570"}, limits),
        work={**plain.work, "images": 100_000, "fit": 80_000, "tested": 20_000, "backend": "gpu", "threads": 16},
        advice=[Advice("pack the images once", "data.path=photos.npz", 1.8, 4.3, "decoding falls away",
                       "12 images were packed and read", None, 1.9, 4.2)],
        compare=[
            CompareRow("reference", 19_040.0, {"hog": 79.0, "boost": 18_930.0}, 1.0, "HoG from 500 images", 0.0,
                       1.0, 0.99),
            CompareRow("cpu", 41.2, {"decode": 3.4, "hog": 2.1, "boost": 32.0}, 462.1, None, 2.4e-7, 0.9998, 0.991),
            CompareRow("gpu", 6.1, {"decode": 3.4, "hog": 0.06, "boost": 0.65}, 3121.3, None, 3.1e-7, 0.9997, 0.991),
        ],
    )  # fmt: skip


def bare() -> Report:
    """As little as a profile can hold."""
    return Report(
        created="2026-11-29T18:20:41+00:00",
        command=[],
        total=Total(0.4, (0.4, 0.4), 0.4, 0.4, 90_000_000, "Nothing stands out: the run is short."),
        stages=[stage("read", 0.4, 0.4, 1.0, "waiting", "waiting")],
    )


def hostile() -> Report:
    """Every text from outside is an attack, every number an extreme."""
    plain = digits()
    return replace(
        plain,
        command=[f"data.path={HOSTILE}", "x" * 300, "name=\udcff.png"],
        total=replace(plain.total, verdict=HOSTILE, log_loss=float("nan")),
        stages=[
            replace(plain.stages[2], name=HOSTILE, label=HOSTILE, verdict=HOSTILE, cause=HOSTILE, limit=HOSTILE),
            *plain.stages[3:9],
            replace(plain.stages[9], wall=0.0, spread=(0.0, 0.0), share=0.0,
                    gflop_per_s=float("inf"), share_of_limit=0.0),
        ],
        machine=Machine({HOSTILE: HOSTILE}, {**plain.machine.limits, HOSTILE: HOSTILE}),
        software={HOSTILE: HOSTILE},
        settings={HOSTILE: [HOSTILE]},
        work={HOSTILE: HOSTILE},
        first_calls={HOSTILE: 1.0},
        compare=[CompareRow(HOSTILE, reason=HOSTILE), CompareRow("cpu", 1.0, {HOSTILE: 1.0}, 1.0, HOSTILE)],
        sweeps=[
            Sweep(HOSTILE, HOSTILE, [Point(1, HOSTILE, 1.0, {HOSTILE: 1.0}), Point(2, "2", 2.0)],
                  Fit("line", {"fixed": 0.0, "slope": 1.0}, HOSTILE)),
            Sweep("one", "x", [Point(0, "0", 0.0)]),
            Sweep("none", "x", []),
        ],
        advice=[Advice(HOSTILE, HOSTILE, 1.0, 1.0, HOSTILE, HOSTILE, HOSTILE, 1.0, 1.0)],
        commands={HOSTILE: HOSTILE},
    )  # fmt: skip
