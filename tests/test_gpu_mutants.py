"""Planted kernel bugs: each must be caught by one of the rungs. That is what shows that the rungs work.

Slow, a few minutes; ``python -m pytest tests/test_gpu_mutants.py -m slow`` prints which rung caught which bug.
"""

from __future__ import annotations

import pytest

from pipeline.backends.gpu import launch
from tests.cuda_on_host import exercise
from tests.cuda_on_host.build import need_compiler
from tests.cuda_on_host.mutants import MUTANTS, Mutant
from tests.cuda_on_host.nvrtc import CUPY, REPORT, Nvrtc
from tests.test_gpu_compile import SPECIALISATIONS

pytestmark = pytest.mark.slow

RUNS = {
    "2 execute": ("plain", "forward,reverse,random"),
    "3 address and undefined": ("address", "forward"),
    "3 thread": ("thread", "forward"),
    "3 thread across blocks": ("thread", "forward across blocks"),
}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    need_compiler()
    path = tmp_path_factory.mktemp("expected") / "expected.npz"
    exercise.expected(path)
    return path


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


@pytest.fixture(scope="module")
def report(request):
    """Collect which rung caught which bug; printed when the last is done."""
    found: dict[str, tuple[str, str]] = {}
    yield found
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        terminal.write_line("")
        for name, (rung, fault) in found.items():
            terminal.write_line(f"{MUTANTS[name].kind:22} {name:48} {rung:24} {fault[:90]}")
        for rung in ("1 compile", *RUNS):
            count = sum(caught == rung for caught, _ in found.values())
            terminal.write_line(f"{count:3} caught by rung {rung}")


def compile_fault(nvrtc: Nvrtc, mutant: Mutant) -> str:
    """Return what rung 1 says of the bug: a compiler's message, local memory, or contraction."""
    for name, (file, definitions) in SPECIALISATIONS.items():
        if name not in ("8 bits", "float32, ten classes") or file != mutant.file:
            continue
        options = launch.options(file, definitions)
        if mutant.options is not None:
            before, after = mutant.options
            assert before in options
            options = tuple(after if option == before else option for option in options)
        try:
            made = nvrtc.compile(
                mutant.edit(file, launch.source(file)), (*options, *CUPY, *REPORT, "-arch=sm_90")
            )
        except RuntimeError as error:
            return str(error)
        if made.warnings():
            return made.warnings()[0]
        if any(found.stack for found in made.resources().values()):
            return "local memory"
        if name == "8 bits" and "fma." in made.ptx:
            return "contraction in hog.cu"
    return ""


def first_catch(nvrtc: Nvrtc, wanted, name: str) -> tuple[str, str]:
    """Return the first rung that catches the bug, and what it says."""
    fault = compile_fault(nvrtc, MUTANTS[name])
    if fault:
        return "1 compile", fault
    for rung, (mode, schedules) in RUNS.items():
        fault = exercise.in_child(wanted, mode, schedules, 1, name).fault
        if fault:
            return rung, fault
    return "", ""


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != "none"])
def test_a_planted_bug_is_caught(name, wanted, nvrtc, report):
    rung, fault = first_catch(nvrtc, wanted, name)
    assert rung, f"no rung caught: {name}"
    report[name] = rung, " ".join(fault.split())


def test_without_a_bug_nothing_is_reported(wanted, nvrtc):
    assert first_catch(nvrtc, wanted, "none") == ("", "")


def test_bugs_are_of_many_kinds_and_in_every_kernel():
    assert len(MUTANTS) >= 20
    assert len({mutant.kind for mutant in MUTANTS.values()}) >= 10
    for name, mutant in MUTANTS.items():
        if mutant.old:
            assert mutant.edit(mutant.file, launch.source(mutant.file)) != launch.source(mutant.file), name
