"""What a run costs on a GPU that only its datasheet is known of: a roofline of each stage."""

from __future__ import annotations

from pipeline import config
from pipeline.profiling.footprint import IMAGES_AT_ONCE, footprint
from pipeline.profiling.forecast import (
    ARITHMETIC,
    BANDWIDTH,
    CHAIN,
    COPIES,
    HERE,
    HOST,
    INSTRUCTIONS,
    LAUNCHES,
    OF_BANDWIDTH,
    OF_PRODUCTS,
    Amounts,
    Counts,
    Forecast,
    StageCost,
    given,
    peak,
)
from pipeline.profiling.machines import Measured
from pipeline.profiling.work import Work

OF_TENSOR, OF_FACTORING, OF_LINK, OF_ISSUE = 0.4, 0.3, 0.8, 0.8  # shares of the peak that work reaches
LAUNCH = 5e-6  # seconds of a launch (docs/gpu.md)
WAIT = 2e-5  # seconds until the host has heard of the device
DEVICE_START = 2.0  # seconds of importing CuPy, making a context and loading kernels already built
HOG_WARPS = 15_000  # warp instructions of HoG of 50 x 100 pixels to 3240 features (docs/gpu.md)
PER_COLUMN = 1e-6  # seconds of a column of a factorisation, whose columns wait for each other
ISSUES = 4  # warp instructions a multiprocessor starts in a cycle


def of_gpu(
    machine: config.Machine, measured: Measured, work: Work, counts: Counts, tf32: bool = False
) -> Forecast:
    """Return a forecast for a datasheet GPU in a machine like this one.

    Parameters
    ----------
    work : with backend "gpu"
    tf32 : whether Gram matrices are built on tensor cores (``classifier.gram_precision=tf32``)
    """
    host = machine.host_memory_gb * 1e9 if machine.host_memory_gb else measured.memory
    memory = footprint(work, measured.base_memory, host, given(machine, "memory_gb") * 1e9)
    here = measured.seconds(work.images, work.rounds)
    stages = [StageCost("start", here["start"] + DEVICE_START, "start")]
    stages += [StageCost(stage, here[stage], HERE) for stage in HOST[1:] if here.get(stage, 0.0) > 0.0]
    for stage, count in counts(work, memory.streamed).items():
        if stage not in HOST and stage != "compile":
            cost = _device_stage(stage, count, machine, work, tf32)
            if cost.seconds > 0.0:
                stages.append(cost)
    tensor = " and tensor cores" if tf32 and machine.tensor_tflops else ""
    return Forecast(
        machine,
        False,
        work.images,
        work.rounds,
        tuple(stages),
        memory,
        (
            f"{OF_BANDWIDTH:.0%} of the bandwidth, {OF_PRODUCTS:.0%} of the arithmetic{tensor}, {OF_LINK:.0%} of the "
            f"link, {LAUNCH * 1e6:.0f} us a launch; HoG {HOG_WARPS:,} warp instructions for 50x100 pixels",
            f"reading, decoding, splitting, scoring and saving take what they take here ({measured.processor}); "
            f"{DEVICE_START:.0f} s more to start, kernels already built",
            "copies to the device do not overlap with work",
        ),
    )


def _device_stage(stage: str, count: Amounts, machine: config.Machine, work: Work, tf32: bool) -> StageCost:
    rate, share = peak(machine, work, stage), OF_PRODUCTS
    if stage == "boost/sums" and tf32 and machine.tensor_tflops and work.number_bytes == 4:
        rate, share = machine.tensor_tflops * 1e12, OF_TENSOR
    if stage == "boost/solve":
        share = OF_FACTORING
    times = {
        BANDWIDTH: count.bytes / (OF_BANDWIDTH * given(machine, "bandwidth_gb_s") * 1e9),
        ARITHMETIC: count.operations / (share * rate),
    }
    if stage in ("copy to device", "copy back"):
        times = {}
    if stage == "hog":
        issue = given(machine, "multiprocessors") * ISSUES * given(machine, "clock_ghz") * 1e9
        times = {BANDWIDTH: times[BANDWIDTH], INSTRUCTIONS: hog_warps(work) / (OF_ISSUE * issue)}
    if stage == "boost/solve" and work.learner != "componentwise":
        times[CHAIN] = work.rounds * work.columns * PER_COLUMN
    limit, longest = max(times.items(), key=lambda item: item[1]) if times else (COPIES, 0.0)
    launched = launches(stage, work) * LAUNCH
    copied = (count.to_device + count.to_host) / (OF_LINK * given(machine, "link_gb_s") * 1e9)
    if stage == "boost":
        launched += 3 * work.rounds * WAIT
    extra = max(launched, copied)
    if extra > longest:
        limit = LAUNCHES if launched >= copied else COPIES
    return StageCost(stage, longest + launched + copied, limit)


def hog_warps(work: Work) -> float:
    """Return the warp instructions of HoG: four fifths go with the pixels, one with the features."""
    each = HOG_WARPS * (0.8 * work.pixels / 5000 + 0.2 * work.features / 3240)
    return each * work.images


def launches(stage: str, work: Work) -> float:
    """Return the launches of a stage in a run: kernels of our own, products, and array operations of CuPy."""
    chunks = -(-work.images // IMAGES_AT_ONCE)
    once = {"copy to device": 2 * chunks, "copy back": 2, "preprocess": 12 * chunks, "hog": 3 * chunks}
    once["boost/set-up"] = 30
    if stage in once:
        return float(once[stage])
    gathered = {"subspace": 2, "random_features": 6}.get(work.learner, 0)
    of_round = {
        "boost": 12,
        "boost/columns": gathered,
        "boost/sums": 12 if work.learner != "componentwise" else 4,
        "boost/solve": 40,
        "boost/refine": 20,
        "boost/update": 14,
        "boost/validation": 8 + gathered,
    }
    return float(of_round.get(stage, 1) * work.rounds)
