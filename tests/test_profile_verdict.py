"""Verdicts: from rows made by hand, and from real runs in which something slow was planted."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import config
from pipeline.profiling import verdict
from pipeline.profiling.cause import nearest, size
from pipeline.profiling.counts import Count, counts
from pipeline.profiling.limits import COLD, Limits
from pipeline.profiling.memory import release
from pipeline.profiling.record import Recorder, Row
from pipeline.profiling.verdict import Cause, judge, judge_all, overall
from pipeline.profiling.verdict_host import parallel

GB, MB = 10**9, 10**6
# 4 cores, of which one moves a third of what all do, and multiplies a quarter
MACHINE = Limits(
    cores=4,
    threads=4,
    copy=30.0 * GB,
    copy_one=10.0 * GB,
    product={"float32": 400.0 * GB, "float64": 200.0 * GB},
    product_one={"float32": 100.0 * GB, "float64": 50.0 * GB},
    disk_read=1.0 * GB,
    disk_read_is=COLD,
    cached_read=8.0 * GB,
    python_call=5e-7,
)
GPU = replace(
    MACHINE,
    device_copy=4000.0 * GB,
    device_product={"float32": 50_000.0 * GB, "float64": 25_000.0 * GB},
    to_device={"pageable": 10.0 * GB, "pinned": 50.0 * GB},
    to_host={"pageable": 10.0 * GB, "pinned": 50.0 * GB},
    launch=5e-6,
)


def row(wall, cores, **rest):
    return Row(wall=wall, cpu=wall * cores, **({"calls": 1} | rest))


# ---- each cause, on a processor ----


@pytest.mark.parametrize(
    ("key", "cores", "count", "cause"),
    [
        # next to no processor time
        ("decode", 0.2, Count(100 * MB, kind="files", calls=900, file_bytes=20 * MB), Cause.files),
        ("start", 0.3, Count(kind="files"), Cause.files),
        ("split", 0.4, Count(50 * MB, kind="python", file_bytes=50 * MB), Cause.files),
        ("boost/sums", 0.3, Count(1 * GB, 1 * GB, kind="products"), Cause.waiting),
        # a core keeps the disk busy
        ("split", 1.0, Count(800 * MB, kind="python", file_bytes=800 * MB), Cause.files),
        # all cores decode what the disk could give faster, and what it gives no faster
        ("decode", 3.9, Count(100 * MB, kind="files", calls=900, file_bytes=20 * MB), Cause.arithmetic),
        ("decode", 3.9, Count(900 * MB, kind="files", calls=900, file_bytes=800 * MB), Cause.arithmetic),
        # all cores at a limit
        ("boost/sums", 3.9, Count(1 * GB, 300 * GB, kind="products"), Cause.arithmetic),
        ("boost/update", 3.9, Count(20 * GB, 1 * GB, kind="memory"), Cause.memory),
        ("boost/update", 3.9, Count(10 * GB, 1 * GB, kind="memory"), Cause.memory),
        # all cores, at no limit
        ("hog", 3.9, Count(1 * GB, 30 * GB, kind="memory"), Cause.arithmetic),
        ("boost/sums", 3.9, Count(10 * GB, 30 * GB, kind="products"), Cause.arithmetic),
        # one core, which does all that one can, and one that does less
        ("boost/sums", 1.0, Count(1 * GB, 99 * GB, kind="products"), Cause.one_core),
        ("boost/update", 1.0, Count(9 * GB, 1 * GB, kind="memory"), Cause.one_core),
        ("hog", 1.1, Count(1 * GB, 30 * GB, kind="memory"), Cause.one_core),
        # a large piece, far from any limit: a slow program, not many calls
        ("hog", 1.0, Count(100 * MB, 1 * GB, kind="memory", calls=10), Cause.one_core),
        # the same in a thousand pieces
        ("hog", 1.0, Count(10 * MB, 1 * GB, kind="memory", calls=1000), Cause.python),
        ("save", 1.0, Count(kind="python"), Cause.python),
        ("boost", 1.0, Count(operations=10, kind="python"), Cause.python),
        ("read", 1.0, Count(kind="files"), Cause.python),
        ("something new", 1.0, None, Cause.one_core),
        ("compile", 1.0, Count(kind="compile"), Cause.compile),
    ],
)
def test_one_second_of_a_stage(key, cores, count, cause):
    found = judge(key, row(1.0, cores), count, MACHINE, 4)
    assert found.cause is cause, found
    assert found.words
    assert "\n" not in found.words


def test_a_serial_stage_at_a_limit_that_other_cores_do_not_raise():
    narrow = replace(MACHINE, copy=12.0 * GB)
    count = Count(9 * GB, kind="memory")
    assert judge("boost/update", row(1.0, 1.0), count, narrow, 4).cause is Cause.memory
    assert judge("boost/update", row(1.0, 1.0), count, MACHINE, 4).cause is Cause.one_core


def test_threads_that_were_not_asked_for_are_named():
    found = judge("hog", row(1.0, 1.0), Count(1 * GB, 30 * GB, kind="memory"), MACHINE, 1)
    assert found.cause is Cause.one_core
    assert "1.0 of 4 cores at work (backend.threads=1)" in found.words
    assert "backend.threads" not in judge("hog", row(1.0, 1.0), Count(1 * GB), MACHINE, 0).words


def test_on_a_machine_of_one_core_none_is_idle():
    single = replace(MACHINE, cores=1, copy=10.0 * GB, product=MACHINE.product_one)
    found = judge("hog", row(1.0, 1.0), Count(500 * MB, 9 * GB, kind="memory"), single, 0)
    assert found.cause is Cause.arithmetic
    assert judge("boost/update", row(1.0, 1.0), Count(9 * GB, kind="memory"), single, 0).cause is Cause.memory


def test_arithmetic_that_is_no_matrix_product_is_measured_on_vectors():
    """A matrix product keeps its numbers in registers; HoG and the like cannot come near its rate."""
    limits = replace(MACHINE, vector_one={"float32": 1e9, "float64": 5e8})
    work, one = Count(operations=1.6e9, kind="memory"), row(1.0, 2.0)
    both = limits.product["float32"] / limits.product_one["float32"]
    found = nearest(one, work, limits, False)
    assert found.value == pytest.approx(1.6 / both)
    assert found.limit == "this machine's float32 arithmetic on numbers in cache"
    product = nearest(one, replace(work, kind="products"), limits, False)
    assert product.limit == "this machine's float32 matrix products"
    assert product.value == pytest.approx(1.6e9 / limits.product["float32"])
    faster = nearest(one, replace(work, operations=1e11), limits, False)
    assert faster.words == "all of this machine's float32 arithmetic on numbers in cache"


def test_the_share_is_that_of_the_nearest_limit():
    found = judge("boost/sums", row(2.0, 3.9), Count(6 * GB, 480 * GB, kind="products"), MACHINE, 4)
    assert found.share_of_limit == pytest.approx(0.6)
    assert "float32 matrix products" in found.limit
    wide = replace(Count(6 * GB, 240 * GB, kind="products"), number_bytes=8)
    assert "float64" in judge("boost/sums", row(2.0, 3.9), wide, MACHINE, 4).limit


def test_a_share_near_nothing_is_not_told_as_nothing():
    found = judge("read", row(1.0, 3.0), Count(3 * MB, kind="memory"), MACHINE, 4)
    assert "less than 1% of this machine's memory bandwidth" in found.words
    assert " 0%" not in found.words


def test_arrays_in_cache_do_not_exceed_the_limit_in_words():
    found = judge("boost/update", row(1.0, 3.9), Count(45 * GB, kind="memory"), MACHINE, 4)
    assert found.cause is Cause.memory
    assert found.share_of_limit == pytest.approx(1.5)
    assert "150%" not in found.words
    assert "cache" in found.words


def test_compiling_inside_a_stage():
    stage = row(2.0, 1.0)
    assert judge("hog", stage, Count(1 * GB, kind="memory"), MACHINE, 4, compiled=1.5).cause is Cause.compile
    assert judge("hog", stage, Count(1 * GB, kind="memory"), MACHINE, 4, compiled=0.5).cause is Cause.one_core


def test_a_short_stage_is_not_judged():
    assert judge("evaluate", row(0.004, 0.1), Count(1 * GB), MACHINE, 4).cause is Cause.small
    assert judge("evaluate", Row(), Count(1 * GB), MACHINE, 4).cause is Cause.small


@pytest.mark.parametrize(("cores", "busy"), [(2, 4 / 3), (4, 1.6), (1000, 2 / 1.001)])
def test_half_serial_by_amdahl(cores, busy):
    assert parallel(cores) == pytest.approx(busy)


# ---- memory that the work does not need ----


def needing(allocates, **rest):
    return Count(1 * GB, 30 * GB, allocates, kind="memory", **rest)


def grown(by, wall=1.0):
    return row(wall, 3.9, memory_begin=500 * MB, memory_peak=500 * MB + by)


def test_a_needless_float64_copy_is_told_and_is_the_cause_where_it_takes_the_time():
    needed = 130 * MB
    found = judge("hog", grown(3 * needed, 0.2), needing(needed), MACHINE, 4)
    assert found.cause is Cause.memory
    assert (
        "260 MB of memory more than the work needs: as much as a copy of its result in float64" in found.words
    )
    assert found.excess == 2 * needed
    assert judge("hog", grown(3 * needed, 10.0), needing(needed), MACHINE, 4).cause is Cause.arithmetic


def test_a_copy_in_the_same_type():
    needed = 130 * MB
    found = judge("hog", grown(2 * needed, 0.1), needing(needed), MACHINE, 4)
    assert "as much as one more copy of its result" in found.words


def test_what_the_work_needs_and_some_slack_is_no_surplus():
    for count, by in ((needing(130 * MB), 150 * MB), (needing(1 * MB), 20 * MB), (Count(1 * GB), 900 * MB)):
        assert judge("hog", grown(by), count, MACHINE, 4).excess == 0.0


def test_memory_says_nothing_where_the_beginning_is_unknown_or_something_was_compiled():
    unknown = row(1.0, 3.9, memory_peak=900 * MB)
    assert judge("hog", unknown, needing(130 * MB), MACHINE, 4).excess == 0.0
    assert judge("hog", grown(390 * MB), needing(130 * MB), MACHINE, 4, compiled=0.1).excess == 0.0


def test_stages_inside_another_share_its_memory():
    rows = {
        "boost": row(0.1, 1.0, memory_begin=500 * MB, memory_peak=600 * MB),
        "boost/set-up": row(0.1, 3.9, memory_peak=620 * MB),
        "boost/sums": row(1.0, 3.9, memory_peak=1000 * MB),
    }
    given = {"boost": Count(), "boost/set-up": needing(60 * MB), "boost/sums": needing(60 * MB)}
    found = judge_all(rows, given, MACHINE, 4)
    assert found["boost/sums"].excess == 380 * MB
    assert found["boost/set-up"].excess == found["boost"].excess == 0.0


# ---- the device ----


@pytest.mark.parametrize(
    ("key", "wall", "device", "calls", "count", "cause"),
    [
        ("hog", 0.1, 1.0, 1, Count(2500 * GB, kind="memory"), Cause.memory),
        ("boost/sums", 0.1, 1.0, 100, Count(1 * GB, 30_000 * GB, kind="products"), Cause.arithmetic),
        ("hog", 0.1, 1.0, 1, Count(400 * GB, kind="memory"), Cause.arithmetic),
        ("boost/update", 0.01, 0.012, 100, Count(1 * GB, kind="memory"), Cause.launches),
        ("boost/update", 1.0, 0.01, 100, Count(1 * GB, kind="memory"), Cause.waiting),
        ("decode", 1.0, 1.0, 1, Count(1 * GB, kind="files", calls=900), Cause.one_core),
        ("save", 1.0, 1.0, 1, Count(kind="python"), Cause.python),
        ("boost", 1.0, 1.0, 1, Count(kind="python"), Cause.python),
    ],
)
def test_a_stage_with_a_device(key, wall, device, calls, count, cause):
    found = judge(key, row(wall, 1.0, device=device, calls=calls), count, GPU, 4)
    assert found.cause is cause, found


def test_the_limits_of_a_stage_on_the_device_are_the_devices():
    found = judge("hog", row(0.1, 1.0, device=1.0), Count(2500 * GB, kind="memory"), GPU, 4)
    assert found.share_of_limit == pytest.approx(0.625)
    assert found.limit.startswith("the GPU's")


def test_copies_say_how_much_and_how_fast():
    stage = row(0.1, 1.0, device=0.1, counts={"to the device": 1.0 * GB})
    found = judge("copy to device", stage, Count(to_device=1.0 * GB, kind="copy"), GPU, 4)
    assert found.cause is Cause.copies
    assert found.words == "1.0 GB up, at 20% of what the bus does"
    assert found.excess == 0.0


def test_a_doubled_transfer_is_told():
    stage = row(0.1, 1.0, device=0.1, counts={"to the device": 2.0 * GB})
    found = judge("copy to device", stage, Count(to_device=1.0 * GB, kind="copy"), GPU, 4)
    assert "2.0 times the bytes that had to go up" in found.words
    assert found.excess == 1.0 * GB


def test_what_goes_up_in_another_stage_is_told_there():
    stage = row(1.0, 1.0, device=1.0, counts={"to the device": 3.0 * GB})
    found = judge("boost/set-up", stage, Count(1 * GB, to_device=1.0 * GB, kind="memory"), GPU, 4)
    assert found.cause is Cause.copies
    assert found.words.startswith("3.0 times the bytes that had to go up")


# ---- the whole ----


def test_the_cause_with_most_of_the_time_holds_the_run_back():
    rows = {"decode": row(2.0, 1.0), "hog": row(3.0, 3.9), "boost/sums": row(2.5, 3.9), "save": row(1.0, 1.0)}
    verdicts = {
        "decode": verdict.Verdict(Cause.files, ""),
        "hog": verdict.Verdict(Cause.arithmetic, ""),
        "boost/sums": verdict.Verdict(Cause.arithmetic, ""),
        "save": verdict.Verdict(Cause.python, ""),
    }
    found = overall(rows, verdicts, 8.5)
    assert found.startswith(
        "Arithmetic: 65% of the time, most of it for the HoG features and the sums of each round."
    )
    verdicts["hog"] = verdict.Verdict(Cause.files, "")
    assert overall(rows, verdicts, 8.5).startswith("Waiting for files: 59% of the time")


def test_waiting_for_the_device_is_the_devices_time():
    rows = {"boost/sums": row(0.1, 1.0, device=5.0), "boost/update": row(5.0, 1.0, device=0.1)}
    verdicts = judge_all(
        rows, {"boost/sums": Count(0, 125_000 * GB, kind="products"), "boost/update": Count(1 * GB)}, GPU, 4
    )
    assert verdicts["boost/update"].behind
    assert overall(rows, verdicts, 5.1).startswith("Arithmetic: 98% of the time")


def test_every_cause_and_stage_has_its_words():
    from tests.test_profile_counts import large

    assert set(verdict.MEANS) == set(Cause)
    assert set(counts(large(number_bytes=8, watched=9, source="folder", preprocess="clahe"))) <= set(
        verdict.NAMES
    )
    assert set(counts(large(backend="gpu"))) <= set(verdict.NAMES)
    assert overall({}, {}, 1.0) == "Nothing was measured."


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (2500, "2.5 kB"), (259_000_000, "259 MB"), (1.26e9, "1.3 GB")]
)
def test_sizes_for_people(count, text):
    assert size(count) == text


# ---- planted slowness, in real runs ----


def settings(tmp_path, **data):
    given = {"name": config.DataName.synthetic, "n": 240, "classes": 4}
    cfg = config.Train(run_dir=str(tmp_path), plots=False, data=config.Data(**(given | data)))
    cfg.image, cfg.hog = config.Image(16, 16), config.Hog(pixels_per_cell=[4, 4], cells_per_block=[2, 2])
    cfg.classifier.n_rounds = 2
    return cfg


def judged(cfg, limits):
    from pipeline.commands.profile import measured

    release()
    run = measured(cfg)
    return run, judge_all(run.recording.rows, counts(run.work), limits, run.work.threads)


def test_a_sleep_in_decode_is_waiting_for_files(tmp_path, monkeypatch):
    from PIL import Image

    from pipeline.datasets import parallel

    rng = np.random.default_rng(0)
    for i in range(40):
        place = tmp_path / "data" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(place / f"{i}.png")
    cfg = settings(tmp_path, name=config.DataName.folder, path=str(tmp_path / "data"), workers=2)
    judged(cfg, MACHINE)  # compiles and imports
    original = parallel.to_bytes

    def slow(*arguments):
        time.sleep(0.1)
        return original(*arguments)

    monkeypatch.setattr(parallel, "to_bytes", slow)
    run, found = judged(cfg, MACHINE)
    assert found["decode"].cause is Cause.files
    told = overall(run.recording.rows, found, run.recording.wall)
    assert told.startswith("Waiting for files")
    assert "decoding the images" in told


@pytest.fixture
def processor_time(monkeypatch):
    """Let the seconds that pass be those in which the main thread works: other programs then play no part."""
    from pipeline.profiling import record

    clock = SimpleNamespace(perf_counter_ns=time.thread_time_ns, process_time_ns=time.process_time_ns)
    monkeypatch.setattr(record, "time", clock)


@pytest.mark.parametrize("forced", [True, False])
def test_a_stage_forced_onto_one_thread(processor_time, monkeypatch, forced):
    from pipeline import backends
    from pipeline.backends.cpu import wls_kernels
    from pipeline.processor import usable_cores

    if not forced and usable_cores() < 2:
        pytest.skip("needs two cores to keep two busy")
    if forced:
        monkeypatch.setattr(wls_kernels, "_threads", lambda count, parallel: 1)
    two = replace(MACHINE, cores=2, python_call=1e-9, product=dict.fromkeys(MACHINE.product, 1e15))
    rng = np.random.default_rng(0)
    X, W = (
        rng.normal(size=(6000, 128)).astype(np.float32),
        rng.uniform(0.1, 0.2, (6000, 10)).astype(np.float32),
    )
    cpu = backends.get("cpu")
    with cpu.threads(2):
        cpu.wls.fit(X, np.zeros(128), W, W, 1.0)
        with Recorder() as recorder:
            for _ in range(30):
                recorder.end(_fit(recorder, cpu, X, W))
    rows = recorder.recording.rows
    given = {"boost/sums": Count(1e6, 1e6, kind="products"), "boost/solve": Count(1e6, 1e6, kind="products")}
    found = judge_all(rows, given, two, 2)
    assert found["boost/sums"].cause is (Cause.one_core if forced else Cause.arithmetic), rows["boost/sums"]
    if forced:
        told = overall(rows, found, recorder.recording.wall)
        assert told.startswith("One core busy")
        assert "the sums of each round" in told


def _fit(recorder, cpu, X, W):
    """Fit once inside the stages of a round; return the outer one's token."""
    outer = recorder.begin("boost", False)
    inner = recorder.begin("fit", False)
    cpu.wls.fit(X, np.zeros(X.shape[1]), W, W, 1.0)
    recorder.end(inner)
    return outer


@pytest.mark.parametrize("planted", [True, False])
def test_a_needless_float64_copy_of_the_features(tmp_path, monkeypatch, planted):
    from pipeline import model

    cfg = settings(tmp_path, n=2500)
    cfg.image, cfg.hog = config.Image(50, 100), config.Hog()
    judged(cfg, MACHINE)
    kept, original = [], model.features

    def wasteful(pixels, index, step, extractor, count, advance, stages):
        X = original(pixels, index, step, extractor, count, advance, stages)
        with stages("hog"):
            kept.append(X.astype(np.float64))
        return X

    if planted:
        monkeypatch.setattr(model, "features", wasteful)
    # memory so slow that the copy is what takes the time, however fast or busy this machine is
    slow = replace(MACHINE, copy=0.02 * GB, copy_one=0.02 * GB)
    _, found = judged(cfg, slow)
    if not planted:
        assert found["hog"].excess == 0.0
        return
    assert found["hog"].cause is Cause.memory
    assert "as much as a copy of its result in float64" in found["hog"].words
    assert found["hog"].excess == pytest.approx(2500 * 3240 * 8, rel=0.2)
    assert not any(one.excess for key, one in found.items() if key != "hog")


@pytest.mark.parametrize("planted", [True, False])
def test_a_doubled_transfer(machine, tmp_path, monkeypatch, planted):
    from pipeline.backends.gpu import transfer

    cfg = settings(tmp_path, n=600)
    cfg.backend = config.Backend(name=config.BackendName.gpu)
    original = transfer.Staging._fill

    def twice(self, *arguments):
        original(self, *arguments)
        original(self, *arguments)

    if planted:
        monkeypatch.setattr(transfer.Staging, "_fill", twice)
    run, found = judged(cfg, GPU)
    moved = run.recording.rows["copy to device"].counts["to the device"]
    assert moved == (2 if planted else 1) * 600 * 256
    surplus = {key for key, one in found.items() if one.excess}
    assert surplus == ({"copy to device"} if planted else set())
    if planted:
        assert found["copy to device"].cause is Cause.copies
        assert "2.0 times the bytes that had to go up" in found["copy to device"].words


def test_two_threads_may_look_at_the_memory_at_once():
    """Both the recorder and its watch read the file that tells; they once shared a place in it."""
    from concurrent.futures import ThreadPoolExecutor

    from pipeline.profiling.memory import MemoryWatch

    watch = MemoryWatch()
    watch.start()
    with ThreadPoolExecutor(4) as pool:
        looks = list(pool.map(lambda _: [watch.read() for _ in range(2000)], range(4)))
    watch.stop()
    assert min(min(seen) for seen in looks) > MB
