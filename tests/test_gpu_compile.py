"""Rung 1: NVRTC compiles every kernel for every GPU it knows: no warning, no spill, the launch table's arguments."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from pipeline.backends.gpu import hog_plan, launch, wls_plan
from pipeline.backends.gpu.kernel_table import CONTRACTION, TABLE
from pipeline.features import HogLayout
from tests.conftest import ROOT
from tests.cuda_on_host.build import HostModule, need_compiler
from tests.cuda_on_host.nvrtc import CUPY, REPORT, Compiled, Nvrtc

REGISTERS = 65536  # of a multiprocessor, shared by the threads of its blocks
THREADS = {"hog_fused": launch.THREADS, "hog_cells": 64, "hog_blocks": 128, "componentwise_partial": 256}

LAYOUT = HogLayout((50, 100))
ODD = HogLayout((60, 90), 36, (5, 7), (2, 3), 3)


def hog_macros(source: str, dtype: str, layout: HogLayout = LAYOUT, norm: str = "L2-Hys", sqrt: bool = False):
    return hog_plan.specialise(np.dtype(source), layout, norm, sqrt, dtype)


def wls_macros(dtype: str, classes: int, lanes: int):
    return launch.macros(REAL=np.dtype(dtype), CLASSES=classes, LANES=lanes)


SPECIALISATIONS = {
    "8 bits": ("hog.cu", hog_macros("uint8", "float32")),
    "16 bits, colour": ("hog.cu", hog_macros("uint16", "float32", ODD, "L1-sqrt")),
    "float32, roots": ("hog.cu", hog_macros("float32", "float32", LAYOUT, "L1", True)),
    "float64, colour": ("hog.cu", hog_macros("float64", "float64", ODD)),
    "float32, ten classes": ("wls.cu", wls_macros("float32", 10, 16)),
    "float64, most classes": ("wls.cu", wls_macros("float64", wls_plan.MOST_CLASSES, 32)),
}


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


def compile_one(nvrtc: Nvrtc, name: str, architecture: int) -> Compiled:
    file, definitions = SPECIALISATIONS[name]
    strict = ("-Werror", "all-warnings") if nvrtc.version[0] >= 13 else ()
    options = (*launch.options(file, definitions), *CUPY, *REPORT, *strict, f"-arch=sm_{architecture}")
    return nvrtc.compile(launch.source(file), options)


USUAL = "8 bits", "float32, ten classes"


@pytest.fixture(
    scope="module",
    # half a second for each pair; the first and the last architecture and those of A100, L4 and H100 stand for all
    params=["usual", pytest.param("all", marks=pytest.mark.slow)],
)
def compiled(nvrtc, request) -> dict[tuple[str, int], Compiled]:
    """Specialisations for architectures: every pair, or the usual ones for some and the others for the last.

    (NVRTC works on one at a time, whatever the threads.) Test processes side by side begin at different ends: one takes
    from the cache what the other has compiled.
    """
    some = {min(nvrtc.architectures), 80, 89, 90, max(nvrtc.architectures)}
    keys = [
        (name, number)
        for name in SPECIALISATIONS
        for number in nvrtc.architectures
        if request.param == "all" or (number in some and (name in USUAL or number == max(some)))
    ]
    last = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    return {key: compile_one(nvrtc, *key) for key in (reversed(keys) if last else keys)}


def test_every_architecture_is_there(nvrtc):
    """From sm_75 to sm_121; CUDA 12, of which that of sm_121 is 12.9, still compiles for sm_70."""
    wanted = {75, 80, 86, 87, 89, 90, 100, 103, 120, 121}
    assert wanted | ({70} if nvrtc.version[0] == 12 else set()) <= set(nvrtc.architectures)


def test_no_warnings(compiled):
    warnings = {key: made.warnings() for key, made in compiled.items() if made.warnings()}
    assert not warnings


def test_every_kernel_is_in_the_launch_table(compiled):
    for (name, _), made in compiled.items():
        file = SPECIALISATIONS[name][0]
        assert set(made.resources()) == {kernel for kernel, entry in TABLE.items() if entry.file == file}


def test_no_spills_and_few_enough_registers(compiled):
    for key, made in compiled.items():
        for kernel, found in made.resources().items():
            assert found.stack == found.spill_stores == found.spill_loads == 0, (key, kernel, found)
            assert found.registers * THREADS.get(kernel, 256) <= REGISTERS, (key, kernel, found)


PTX = {"int32": "u32", "uint32": "u32", "int64": "u64", "float32": "f32", "float64": "f64"}


def table_types(kernel: str, definitions) -> list[str]:
    """Return the types that the launch table gives a kernel's parameters."""
    types = dict(definitions)
    return [
        "pointer" if a.pointer else launch.DTYPES[str(types.get(a.ctype, a.ctype))].name
        for a in TABLE[kernel].arguments
    ]


def test_parameters_in_machine_code_equal_the_launch_table(compiled):
    for (name, architecture), made in compiled.items():
        for kernel, found in made.parameters().items():
            wanted = [PTX.get(kind, "u64") for kind in table_types(kernel, SPECIALISATIONS[name][1])]
            assert found == wanted, (name, architecture, kernel)


@pytest.mark.parametrize("name", SPECIALISATIONS)
def test_parameters_in_the_source_equal_the_launch_table(name):
    need_compiler()
    file, definitions = SPECIALISATIONS[name]
    module = HostModule(launch.source(file), launch.options(file, definitions))
    for kernel in module.names:
        assert module.parameters(kernel) == table_types(kernel, definitions), kernel


def test_bins_are_compared_without_contraction(compiled):
    """A fused a * b + c would round once and move exact ties of 8-bit images to the wrong bin."""
    assert CONTRACTION["hog.cu"] is False
    for name, contracted in zip(USUAL, (False, True), strict=True):
        found = ["fma." in made.ptx for (one, _), made in compiled.items() if one == name]
        assert found == [contracted] * len(found) != []


def test_plans_keep_the_limits_of_every_gpu():
    for shape in ((8, 8), (50, 100), (296, 296), (297, 304), (1024, 1024)):
        for orientations in (1, 9, 36, 180):
            layout = HogLayout(shape, orientations, (8, 8), (1, 1))
            for source, dtype in (("uint8", "float32"), ("float64", "float64")):
                definitions = hog_macros(source, dtype, layout)
                plans = [hog_plan.fused(layout, definitions, 7), hog_plan.cells(layout, definitions, 7)]
                plans.append(hog_plan.blocks(layout, definitions, 7))
                for plan in filter(None, plans):
                    assert 0 < plan.shared <= launch.SHARED_LIMIT
                    assert plan.block[0] <= 1024
    for classes in (1, 2, 3, 12, 13, 43, 300):
        plan = wls_plan.componentwise(np.dtype("float32"), 10_000, 3240, classes).partial
        assert plan.shared <= launch.SHARED_LIMIT
        assert dict(plan.macros)["CLASSES"] * plan.grid[2] >= classes


def test_kernel_files_are_in_the_wheel(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    if not (ROOT / "README.md").exists():
        pytest.skip("README.md, which the wheel holds, is absent from this checkout")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert {f"pipeline/backends/gpu/{file}" for file in CONTRACTION} <= set(names)
