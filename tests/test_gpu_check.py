"""scripts/check_gpu.py: its Python runs to the end under the double, and on a GPU where there is one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

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
    from gpu_checks import care, clock, common, faults, parity, sanitizer, show, speed, stages, training

    yield SimpleNamespace(
        check_gpu=check_gpu, common=common, parity=parity, care=care, speed=speed, faults=faults, show=show,
        stages=stages, training=training, sanitizer=sanitizer, clock=clock,
    )  # fmt: skip
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
    sizes = checks.common.Sizes(
        images=(4, 6), image_shape=(24, 32), parity_images=3, parity_step=10, random_features=32,
        components=(200, 40), classes=3, training_rows=500, training_columns=24, rounds=2, repeats=2, timings=1,
        leak_rounds=1, transfer_bytes=1 << 16, copy_bytes=1 << 16,
    )  # fmt: skip
    status = checks.check_gpu.run(sizes, 1, tmp_path)
    shown = capsys.readouterr().out
    content = json.loads((tmp_path / "check_gpu.json").read_text())
    assert content["failed"] == content["not run"] == []
    assert status == 0
    assert shown.splitlines()[-1] == content["verdict"] == "VERDICT: all checks passed."
    assert (tmp_path / "check_gpu.txt").read_text() == shown[shown.index("stage   ") :]
    sections = content["sections"]
    assert set(sections) > {
        "HoG parity",
        "components parity",
        "training parity",
        "memory",
        "leaks",
        "bandwidths",
    }
    assert len(sections["training parity"]) >= 20
    for n in (4, 6):
        both = sections[f"stages, {n} images"] | sections[f"learner full, {n} images"]
        timed = {k: v for k, v in both.items() if isinstance(v, dict)}
        for values in timed.values():
            assert {"ms", "MB", "GB/s", "share of copy", "GFLOP/s"} == set(values)
            assert values["ms"] > 0.0
        assert all(timed[name]["GB/s"] > 0.0 for name in STAGES if name != "round of subspace: solve")
        copies = {k: v for k, v in sections[f"transfers, {n} images"].items() if k.startswith("copy ")}
        assert len(copies) == 5
        assert all(values["share of bus"] > 0.0 for values in copies.values())
        assert all(f"{name:<44} {n:>7} " in shown for name in (*STAGES, *copies))
    assert "copy on the device GB/s" in shown


STAGES = (
    "preprocess=stretch", "preprocess=gaussian", "preprocess=equalize", "preprocess=clahe", "HoG", "look for NaN",
    "reduce=pca, fit and reduce", "means and variances", "softmax, weights, responses", "scores moved, log-loss",
    "componentwise sums", "columns of subspace", "fit of subspace", "fit of subspace, tf32", "values of subspace",
    "columns of random_features", "fit of random_features", "values of random_features", "fit of ridge",
    "fit of ridge, tf32", "values of ridge", "prediction, linear", "prediction, random features, a round",
    "round of subspace: columns", "round of subspace: sums", "round of subspace: solve", "round of subspace: update",
    "round of ridge: sums", "round of componentwise: sums", "round of componentwise: solve",
    "round of random_features: columns", "fit of 2 rounds of componentwise", "round of full: sums",
    "round of full: update", "fit of 1 round of full",
)  # fmt: skip


def test_a_section_that_fails_is_reported_and_the_next_runs(machine, checks, capsys):
    report = checks.check_gpu.Report()
    report.section("first", lambda: 1 / 0)
    report.section("second", lambda: {"value": 1.0, "failed": ["is off"]})
    report.section("third", lambda: {"value": 2.0})
    report.section("fourth", lambda: {"part": "not run: no tool"})
    assert report.failed == ["first: ZeroDivisionError: division by zero", "second: is off"]
    assert report.not_run == ["fourth: part: not run: no tool"]
    assert report.status == 1
    assert "2 checks FAILED" in report.verdict()
    assert "NOT RUN: fourth: part" in report.verdict()
    assert re.search("^third +ok ", capsys.readouterr().out, re.MULTILINE)


def test_parity_notices_a_wrong_result(machine, checks, monkeypatch):
    gpu = backends.get("gpu")
    right = gpu.wls.gather

    def wrong(*arguments):
        out = right(*arguments)
        out[:1] = out[:1] * 1.01
        return out

    monkeypatch.setattr(gpu.wls, "gather", wrong)
    sizes = checks.common.Sizes(classes=3, training_rows=200, training_columns=12, rounds=2)
    found = checks.training.training_parity(sizes, np.random.default_rng(0))
    assert any("subspace" in line for line in found["failed"])


def classes_of_pairs(noise=0.0, n=600, p=8):
    """Return float32 rows whose columns come in pairs, the second with noise, of three classes, and labels."""
    random = np.random.default_rng(2)
    y = random.integers(0, 3, n)
    X = random.normal(size=(n, p)) + 0.5 * np.eye(3, p)[y]
    return np.stack([X, X + noise * random.normal(size=X.shape)], axis=2).reshape(n, -1).astype(np.float32), y


@pytest.mark.parametrize(("noise", "size", "rounding"), [(0.0, 1e-5, True), (0.1, 3e-2, False)])
def test_other_features_are_excused_only_where_rounding_decides(
    machine, checks, monkeypatch, noise, size, rounding
):
    """The gains of the first column of each pair are put back: by rounding, or so far that a worse one is chosen."""
    monkeypatch.setattr("pipeline.boosting.fitting.PROMOTED", 0)
    wls = backends.get("gpu").wls
    right = wls.componentwise_sums

    def off(X, *rest):
        sums = right(X, *rest)
        sums.xr[::2] = sums.xr[::2] * (1.0 - size)
        return sums

    monkeypatch.setattr(wls, "componentwise_sums", off)
    result = checks.training.compare("componentwise", *classes_of_pairs(noise), "float32", 4)
    assert result.found["type"] == "float32"
    assert (result.rounding == 1) is rounding
    assert any("rounding does not explain it" in line for line in result.wrong) is not rounding


def test_what_rounding_decides_again_and_again_fails(machine, checks, monkeypatch):
    sizes = checks.common.Sizes(classes=3, training_rows=60, training_columns=6, rounds=2)
    monkeypatch.setattr(checks.common, "LEARNERS", ("componentwise",))
    monkeypatch.setattr(checks.training, "explained", lambda *_: True)
    monkeypatch.setattr(checks.training, "first_difference", lambda *_: 1)
    found = checks.training.training_parity(sizes, np.random.default_rng(0))
    assert len(found["failed"]) == 4
    assert all("rounding decided between features in each of 3 sets" in line for line in found["failed"])
    assert found["componentwise J=3 float32"]["rounding decided in rounds"] == [2, 2]


def test_columns_drawn_from_the_seed_are_never_excused(machine, checks, monkeypatch):
    """Nor is a class of three whose feature is far from the best."""
    monkeypatch.setattr(checks.training, "first_difference", lambda *_: 0)
    X, y = classes_of_pairs()
    result = checks.training.compare("subspace", X, y, "float32", 2)
    assert "rounding does not explain it" in result.wrong[0]
    random = np.random.default_rng(0)
    x, W, R = random.normal(size=(300, 5)), random.random((300, 2)), random.normal(size=(300, 2))
    x -= x.mean(axis=0)
    gains = [np.square((x * r[:, None]).sum(0) - (x.T @ w) * r.sum() / w.sum()) / (
        (x * x).T @ w - (x.T @ w) ** 2 / w.sum()) for w, r in zip(W.T, R.T, strict=True)]  # fmt: skip
    allowed = checks.training.may_be_chosen(x, W, R, 2.2e-16)
    np.testing.assert_array_equal(allowed, np.stack(gains, axis=1) == np.max(gains, axis=1))


def test_a_leak_is_noticed_in_the_pool_and_outside_it(machine, checks, monkeypatch):
    sizes = checks.common.Sizes(leak_rounds=2)
    assert checks.care.leaks(sizes, np.random.default_rng(0))["failed"] == []
    import cupy

    kept, fit = [], checks.care.LogitBoostClassifier.fit

    def leaks(self, X, y):
        kept.append(cupy.empty(1000))
        return fit(self, X, y)

    monkeypatch.setattr(checks.care.LogitBoostClassifier, "fit", leaks)
    assert checks.care.leaks(sizes, np.random.default_rng(0))["failed"] == ["16384 bytes of the pool leaked"]

    def takes(self, X, y):
        machine.memory_of_others = getattr(machine, "memory_of_others", 0) + (40 << 20)
        return fit(self, X, y)

    monkeypatch.setattr(checks.care.LogitBoostClassifier, "fit", takes)
    free = cupy.cuda.runtime.memGetInfo
    monkeypatch.setattr(
        cupy.cuda.runtime,
        "memGetInfo",
        lambda: (free()[0] - getattr(machine, "memory_of_others", 0), free()[1]),
    )
    (line,) = checks.care.leaks(sizes, np.random.default_rng(0))["failed"]
    assert line.startswith(f"{80 << 20} bytes outside the pool leaked")


def test_poisoned_arrays_show_what_is_left_unwritten(machine, checks):
    import cupy

    empty = cupy.empty
    try:
        cupy.empty = lambda *a, **k: cupy.asarray(np.zeros(*a, **k))  # lucky memory
        with checks.common.poisoned():
            assert np.isnan(cupy.empty(3).get()).all()
            assert (cupy.empty((2, 2), dtype=np.int32).get() == -1).all()
            assert cupy.empty(0, dtype=np.uint8).size == 0
        assert (cupy.empty(3).get() == 0).all()
    finally:
        cupy.empty = empty


def test_long_runs_are_repeated_less_often(machine, checks, monkeypatch):
    common = checks.common
    for length, runs in ((1.0, 3 + 20), (50.0, 3 + 10), (400.0, 2 + 3), (4000.0, 2 + 3)):
        calls = []
        monkeypatch.setattr(common, "_ms", lambda work, length=length: (work(), length)[1])
        assert common.median_ms(lambda calls=calls: calls.append(1), 20, 0.5) == length
        assert len(calls) == runs


def test_without_a_gpu_the_script_says_so(machine, checks, monkeypatch, capsys):
    monkeypatch.setattr(machine, "devices", 0)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py"])
    assert checks.check_gpu.main() == 2
    told = capsys.readouterr()
    assert "check_gpu: the driver shows no GPU" in told.err
    assert told.out.startswith("VERDICT: NOTHING WAS RUN")


def test_each_planted_fault_has_its_place_and_its_tool(checks):
    faults = checks.faults
    text = (ROOT / "pipeline/backends/gpu/wls.cu").read_text()
    for name in faults.FAULTS:
        assert (faults.faulty(text, name) == text) == (name == "none")
    runs = checks.sanitizer.RUNS
    tools = {"memcheck", "racecheck", "synccheck", "initcheck"}
    assert {tool for tool, fault, wanted in runs if (fault, wanted) == ("none", 0)} == tools
    planted = {tool: fault for tool, fault, wanted in runs if wanted != 0}
    assert set(planted) == tools
    assert set(planted.values()) == set(faults.FAULTS) - {"none"}
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / "check_gpu.sh")], check=True)


def test_the_whole_run_keeps_below_eight_minutes(checks):
    shell = (ROOT / "scripts" / "check_gpu.sh").read_text()
    outside = sum(int(n) for n in re.search(r"timeout --kill-after=(\d+) (\d+)", shell).groups())
    assert checks.check_gpu.SECONDS < outside < 480
    assert checks.check_gpu.SECONDS - checks.check_gpu.SANITIZER_SECONDS >= 180


TOOL = """#!/bin/sh
# a compute-sanitizer that reports the faults it is told of: {reports}
case "$*" in *"--sanitize none"*) exit 0;; esac
case "$2" in {reports}) exit 9;; hangs) sleep 20;; esac
exit 0
"""


@pytest.fixture
def tool(checks, monkeypatch, tmp_path):
    """Return how to install a compute-sanitizer that reports the planted faults of some of its tools."""

    def install(reports: str) -> None:
        file = tmp_path / "compute-sanitizer"
        file.write_text(TOOL.format(reports=reports))
        file.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(checks.sanitizer, "SCRIPT", tmp_path / "none.py")

    return install


def test_a_tool_that_misses_its_planted_fault_fails(checks, tool, tmp_path):
    tool("*")
    assert checks.sanitizer.watched(tmp_path / "out", 0)["failed"] == []
    tool("memcheck|racecheck|initcheck")
    (line,) = checks.sanitizer.watched(tmp_path / "out", 0)["failed"]
    assert line.startswith("synccheck, fault barrier: nothing reported, wanted a fault reported; see ")


def test_a_tool_that_does_not_end_fails(checks, tool, tmp_path, monkeypatch):
    tool("memcheck|racecheck|initcheck")
    monkeypatch.setattr(checks.sanitizer, "SECONDS", 0.2)
    monkeypatch.setattr(checks.sanitizer, "RUNS", (("hangs", "barrier", 9),))
    (line,) = checks.sanitizer.watched(tmp_path / "out", 0)["failed"]
    assert line.startswith("hangs, fault barrier: no end within 0.2 s")


@pytest.fixture
def two_sections(checks, monkeypatch):
    """Let the script have two sections that do next to nothing."""
    kept = {"machine": checks.parity.machine, "facts about CuPy": checks.parity.facts}
    monkeypatch.setattr(checks.check_gpu, "sections", lambda *_: dict(kept))
    return kept


def main(checks, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", *map(str, words)])
    return checks.check_gpu.main()


def test_without_the_sanitizer_the_run_is_not_complete(
    machine, checks, two_sections, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(checks.sanitizer, "find", lambda: None)
    assert main(checks, monkeypatch, tmp_path) == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("VERDICT: INCOMPLETE, nothing that was run failed. NOT RUN: compute-sanitizer: ")
    assert "not installed" in last
    assert json.loads((tmp_path / "check_gpu.json").read_text())["verdict"] == last
    assert main(checks, monkeypatch, tmp_path, "--without-sanitizer") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "VERDICT: all checks passed. Left out by option: --without-sanitizer."


def test_what_the_sanitizer_misses_fails_the_run(
    machine, checks, two_sections, tool, monkeypatch, tmp_path, capsys
):
    tool("racecheck|synccheck|initcheck")
    assert main(checks, monkeypatch, tmp_path / "out") == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "VERDICT: 1 checks FAILED: compute-sanitizer: memcheck, fault bounds: nothing reported"
    )


def test_without_cucim_the_run_is_not_complete(machine, checks, two_sections, monkeypatch, tmp_path, capsys):
    two_sections["preprocessing parity"] = lambda: checks.parity.preprocess_parity(
        checks.common.Sizes(), np.random.default_rng(0)
    )
    monkeypatch.setitem(sys.modules, "cucim", None)
    assert main(checks, monkeypatch, tmp_path, "--without-sanitizer") == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        "NOT RUN: preprocessing parity: gaussian: not run: preprocess=gaussian on backend=gpu needs cuCIM"
        in last
    )
    two_sections["preprocessing parity"] = lambda: checks.parity.preprocess_parity(
        checks.common.Sizes(left_out=("--without-cucim",)), np.random.default_rng(0)
    )
    assert main(checks, monkeypatch, tmp_path, "--without-sanitizer", "--without-cucim") == 0
    assert "--without-sanitizer, --without-cucim." in capsys.readouterr().out.splitlines()[-1]


def test_sections_end_when_the_time_is_up_and_the_verdict_says_so(
    machine, checks, two_sections, monkeypatch, tmp_path, capsys
):
    """Not even a section that catches every Exception goes on; those after it are not begun."""

    def endless():
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    two_sections["endless"], two_sections["after it"] = endless, lambda: pytest.fail("begun")
    begin = time.monotonic()
    assert main(checks, monkeypatch, tmp_path, "--without-sanitizer", "--seconds", "2") == 3
    assert time.monotonic() - begin < 30
    last = capsys.readouterr().out.splitlines()[-1]
    assert "NOT RUN: endless: not run: the time was up; after it: not run: the time was up." in last


def test_a_limit_on_time_leaves_an_alarm_that_was_set_before(checks):
    before, _ = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with pytest.raises(checks.clock.TimeIsUp), checks.clock.ends_after(0.05):
            time.sleep(5)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 900.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, before)


def test_the_shell_hands_on_options_and_status(tmp_path):
    """With a stand-in for Python: what it is given, and what becomes of its exit status."""
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\necho "given: $*"\nexit $STATUS\n')
    stand_in.chmod(0o755)
    for status in (0, 1, 3, 124):
        done = subprocess.run(
            ["bash", str(ROOT / "scripts/check_gpu.sh"), "--without-sanitizer", "out"],
            env={**os.environ, "PYTHON": str(stand_in), "STATUS": str(status)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status
        assert "given: scripts/check_gpu.py --without-sanitizer out" in done.stdout
        assert ("VERDICT: NOT FINISHED" in done.stdout) == (status == 124)


def test_what_the_sanitizer_runs_runs(machine, checks, monkeypatch):
    """Every kernel of the launch table is among it."""
    from pipeline.backends.gpu import launch
    from pipeline.backends.gpu.kernel_table import TABLE

    launched, run = set(), launch.run

    def noted(plan, *arguments):
        launched.add(plan.kernel)
        return run(plan, *arguments)

    monkeypatch.setattr(launch, "run", noted)
    checks.faults.sanitize("none")
    assert launched == set(TABLE)


def test_what_a_planted_fault_breaks_leaves_the_verdict_to_the_sanitizer(machine, checks, monkeypatch):
    """It gives its own exit status only to a program that succeeds, and memcheck ends the context at a fault."""

    def ended(_):
        raise RuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    monkeypatch.setattr(checks.faults, "sanitize", ended)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "bounds"])
    assert checks.check_gpu.main() == 0
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "none"])
    with pytest.raises(RuntimeError, match="LaunchFailure"):
        checks.check_gpu.main()


# ---- on a GPU ----


@pytest.fixture
def device_checks(checks):
    """Return the script's modules, sizes that take seconds, and random numbers."""
    sizes = checks.common.Sizes(
        parity_images=40, training_rows=1500, training_columns=100, rounds=8, repeats=5, leak_rounds=20
    )
    return checks, sizes, np.random.default_rng(0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("module", "section"),
    [("parity", "hog_parity"), ("parity", "sums_parity"), ("training", "training_parity")],
)
def test_the_device_gives_what_the_cpu_gives(device_checks, module, section):
    checks, sizes, random = device_checks
    assert getattr(getattr(checks, module), section)(sizes, random)["failed"] == []


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["repeatability", "memory", "leaks"])
def test_the_device_repeats_and_keeps_to_its_memory(device_checks, section):
    checks, sizes, random = device_checks
    assert getattr(checks.care, section)(sizes, random)["failed"] == []


def test_only_images_in_which_rounding_decides_are_excused(checks):
    common = checks.common
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 60, 60), dtype=np.uint8)
    assert not common.rounding_decides(pixels, 9, False).any()  # integers are exact
    assert not common.rounding_decides(random.random((6, 60, 60)), 9, False).any()  # no edge is met by chance
    planted = np.zeros((2, 5, 5))
    planted[1, 2, 3], planted[1, 3, 2] = 1.0, np.sqrt(3.0)  # 60 degrees, an edge of 9 bins
    assert common.rounding_decides(planted, 9, False).tolist() == [False, True]
    assert common.rounding_decides(planted, 7, False).tolist() == [False, False]
