"""The limits of this machine: something plausible is measured and survives a file; the GPU's under the double."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from pipeline.errors import ConfigError, OutputError
from pipeline.processor import usable_cores
from pipeline.profiling import limits


@pytest.fixture(scope="module")
def quick():
    """Shrink the measurements: their sizes do not matter to what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COPIED", 1 << 20)
        patch.setattr(limits, "SIZE", {"float32": 64, "float64": 64})
        patch.setattr(limits, "CALLS", 50)
        patch.setattr(limits, "ENOUGH", 0.05)
        yield


@pytest.fixture(scope="module")
def measured(quick, tmp_path_factory):
    return limits.measure("cpu", tmp_path_factory.mktemp("disk"), 0)


def test_every_figure_of_the_host_is_a_positive_number(measured):
    rates = [measured.copy, measured.copy_one, measured.disk_read, measured.cached_read, measured.python_call]
    rates += [*measured.product.values(), *measured.product_one.values()]
    assert all(math.isfinite(rate) and rate > 0.0 for rate in rates)
    assert set(measured.product) == set(measured.product_one) == {"float32", "float64"}
    assert measured.cores == measured.threads == usable_cores()


def test_all_threads_are_never_said_to_be_slower_than_one(measured):
    assert measured.copy >= measured.copy_one
    assert all(measured.product[name] >= measured.product_one[name] for name in measured.product)
    assert measured.cached_read >= measured.disk_read


def test_without_a_device_there_are_no_figures_of_one(measured):
    assert (measured.device_copy, measured.device_product, measured.launch) == (None, None, None)
    assert (measured.to_device, measured.to_host) == ({}, {})


def test_limits_survive_a_file(measured):
    again = limits.Limits.from_dict(json.loads(json.dumps(measured.as_dict())))
    assert again == measured


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_other_files_are_refused(measured, change):
    content = measured.as_dict()
    if change == "missing":
        del content["copy_one"]
    else:
        content["copy_two"] = 1.0
    with pytest.raises(ConfigError, match=r"copy_(one|two).*measure them again"):
        limits.Limits.from_dict(content)


def test_bytes_read_and_written_both_count(monkeypatch):
    monkeypatch.setattr(limits, "best", lambda work: 2.0)
    assert limits.copy(1, 8000) == 8000.0  # 8000 read and 8000 written in 2 s


def test_a_multiply_add_is_two_operations(monkeypatch):
    monkeypatch.setattr(limits, "best", lambda work: 1.0)
    assert limits.product("float32", 1, 10) == 2000.0


def test_the_product_of_two_vectors_counts_both_of_its_operations(monkeypatch):
    monkeypatch.setattr(limits, "best", lambda work: 1.0)
    assert limits.vector("float32", 10) == 2.0 * limits.IN_CACHE * 10


def test_reading_says_what_it_is(tmp_path, monkeypatch):
    assert limits.disk(tmp_path, 1 << 20)[2] == (
        limits.COLD if hasattr(limits.os, "posix_fadvise") else limits.CACHED
    )
    monkeypatch.delattr(limits.os, "posix_fadvise", raising=False)
    assert limits.disk(tmp_path, 1 << 20)[2] == limits.CACHED
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    """It advised run_dir=, which is no setting."""
    with pytest.raises(OutputError, match=r"cannot be written .*; .* another folder with hydra\.run\.dir="):
        limits.disk(tmp_path / "absent")
    with pytest.raises(OutputError, match=r"cannot be written .*; .* another folder with TMPDIR$"):
        limits.measure("cpu", tmp_path / "absent", 1, "TMPDIR")


def test_the_best_try_counts(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(limits.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(limits, "ENOUGH", 100.0)
    assert limits.best(lambda: None, 3) == 1.0


# ---- the device, under the double ----


def test_the_device_is_measured_with_the_bytes_that_it_should_move(gpu, machine):
    from pipeline.backends.gpu import limits as device

    found = device.measure(copied=1 << 16, moved=1 << 16, size={"float32": 16, "float64": 16}, launches=10)
    assert set(found["device_product"]) == {"float32", "float64"}
    for name in ("to_device", "to_host"):
        assert set(found[name]) == {"pageable", "pinned"}
    figures = [
        found["device_copy"],
        found["launch"],
        *found["to_device"].values(),
        *found["to_host"].values(),
    ]
    assert all(math.isfinite(value) and value > 0.0 for value in figures)
    tries = device.TRIES + 1
    assert machine.bytes["h2d"] == machine.bytes["d2h"] == 2 * tries * (1 << 16)


def test_the_device_is_part_of_the_limits(gpu, quick, tmp_path, monkeypatch):
    from pipeline.backends.gpu import limits as device

    for name, value in (("COPIED", 1 << 14), ("MOVED", 1 << 14), ("LAUNCHES", 5)):
        monkeypatch.setattr(device, name, value)
    monkeypatch.setattr(device, "SIZE", {"float32": 16, "float64": 16})
    found = limits.measure("gpu", tmp_path, 1)
    assert found.device_copy
    assert found.launch
    assert limits.Limits.from_dict(json.loads(json.dumps(dataclasses.asdict(found)))) == found


def test_little_memory_means_smaller_arrays(gpu, machine):
    from pipeline.backends.gpu import limits as device

    machine.memory = 1 << 20
    found = device.measure(size={"float32": 4096, "float64": 4096}, launches=2)
    assert found["device_copy"] > 0.0
    assert machine.peak < 1 << 20
