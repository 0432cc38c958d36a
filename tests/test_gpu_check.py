"""scripts/check_gpu.py: its Python runs to the end under the double, and on a GPU where there is one."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from pipeline import backends
from tests.conftest import ROOT
from tests.cuda_on_host.build import need_compiler
from tests.cupy_double import installed

SCRIPTS = str(ROOT / "scripts")


@pytest.fixture
def checks(monkeypatch):
    """Return the modules of the script, imported afresh."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import check_gpu
    from gpu_checks import care, common, faults, parity, speed

    yield check_gpu, common, parity, care, speed, faults
    for name in [n for n in sys.modules if n == "check_gpu" or n.split(".")[0] == "gpu_checks"]:
        del sys.modules[name]


@pytest.fixture
def machine():
    need_compiler()
    with installed() as double:
        double.memory = 2 << 30
        backends.get("gpu")
        yield double


def test_every_section_runs_to_its_end_under_the_double(machine, checks, tmp_path, capsys):
    """A dry run: it shows that no line of the script fails at once, nothing of a GPU."""
    check_gpu, common, *_ = checks
    sizes = common.Sizes(
        images=(2, 6), parity_images=3, rows=200, columns=40, classes=3, training_rows=500, training_columns=24,
        rounds=2, repeats=2, timings=1, leak_rounds=1, transfer_bytes=1 << 16, copy_bytes=1 << 16,
    )  # fmt: skip
    status = check_gpu.run(sizes, 1, tmp_path)
    shown = capsys.readouterr().out
    content = json.loads((tmp_path / "check_gpu.json").read_text())
    assert content["failed"] == []
    assert status == 0
    assert set(content["sections"]) > {
        "HoG parity",
        "components parity",
        "training parity",
        "memory",
        "leaks",
        "transfers",
    }
    assert len(content["sections"]["training parity"]) >= 20
    assert "componentwise sums" in shown


def test_a_section_that_fails_is_reported_and_the_next_runs(machine, checks, capsys):
    check_gpu, *_ = checks
    report = check_gpu.Report()
    report.section("first", lambda: 1 / 0)
    report.section("second", lambda: {"value": 1.0, "failed": ["is off"]})
    report.section("third", lambda: {"value": 2.0})
    assert report.failed == ["first: ZeroDivisionError: division by zero", "second: is off"]
    assert "third                  ok" in capsys.readouterr().out


def test_parity_notices_a_wrong_result(machine, checks, monkeypatch):
    _, common, parity, *_ = checks
    gpu = backends.get("gpu")
    right = gpu.wls.gather

    def wrong(*arguments):
        out = right(*arguments)
        out[:1] = out[:1] * 1.01
        return out

    monkeypatch.setattr(gpu.wls, "gather", wrong)
    sizes = common.Sizes(classes=3, training_rows=200, training_columns=12, rounds=2)
    found = parity.training_parity(sizes, np.random.default_rng(0))
    assert any("subspace" in line for line in found["failed"])


def test_without_a_gpu_the_script_says_so(machine, checks, monkeypatch, capsys):
    check_gpu, *_ = checks
    monkeypatch.setattr(machine, "devices", 0)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py"])
    assert check_gpu.main() == 2
    assert "check_gpu: the driver shows no GPU" in capsys.readouterr().err


def test_each_planted_fault_has_its_place(checks):
    *_, faults = checks
    text = (ROOT / "pipeline/backends/gpu/wls.cu").read_text()
    for name in faults.FAULTS:
        assert (faults.faulty(text, name) == text) == (name == "none")
    shell = (ROOT / "scripts/check_gpu.sh").read_text()
    assert all(f" {name} 9" in shell for name in faults.FAULTS if name != "none")


def test_what_the_sanitizer_runs_runs(machine, checks):
    *_, faults = checks
    machine.forget()
    faults.sanitize("none")
    assert machine.count["launch"] >= 12


def test_what_a_planted_fault_breaks_leaves_the_verdict_to_the_sanitizer(machine, checks, monkeypatch):
    """It gives its own exit status only to a program that succeeds, and memcheck ends the context at a fault."""
    check_gpu, *_, faults = checks

    def ended(_):
        raise RuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    monkeypatch.setattr(faults, "sanitize", ended)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "bounds"])
    assert check_gpu.main() == 0
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "none"])
    with pytest.raises(RuntimeError, match="LaunchFailure"):
        check_gpu.main()


# ---- on a GPU ----


@pytest.fixture
def device_checks(checks):
    """Return the script's modules, sizes that take seconds, and random numbers."""
    _, common, parity, care, _, _ = checks
    sizes = common.Sizes(
        parity_images=40, training_rows=1500, training_columns=100, rounds=8, repeats=5, leak_rounds=20
    )
    return parity, care, sizes, np.random.default_rng(0)


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["hog_parity", "sums_parity", "training_parity"])
def test_the_device_gives_what_the_cpu_gives(device_checks, section):
    parity, _, sizes, random = device_checks
    assert getattr(parity, section)(sizes, random)["failed"] == []


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["repeatability", "memory", "leaks"])
def test_the_device_repeats_and_keeps_to_its_memory(device_checks, section):
    _, care, sizes, random = device_checks
    assert getattr(care, section)(sizes, random)["failed"] == []


def test_only_images_in_which_rounding_decides_are_excused(checks):
    common = checks[1]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 60, 60), dtype=np.uint8)
    assert not common.rounding_decides(pixels, 9, False).any()  # integers are exact
    assert not common.rounding_decides(random.random((6, 60, 60)), 9, False).any()  # no edge is met by chance
    planted = np.zeros((2, 5, 5))
    planted[1, 2, 3], planted[1, 3, 2] = 1.0, np.sqrt(3.0)  # 60 degrees, an edge of 9 bins
    assert common.rounding_decides(planted, 9, False).tolist() == [False, True]
    assert common.rounding_decides(planted, 7, False).tolist() == [False, False]
