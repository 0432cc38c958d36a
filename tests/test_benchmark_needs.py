"""Packages and GPUs that rows of benchmark need: what is missing, and which GPU a package works on."""

from __future__ import annotations

import types

import pytest

from pipeline import installing
from pipeline.benchmarks import gpus, needs
from tests.benchmarking import RIGHT, _ask_anew, toy_suite  # noqa: F401  fixtures


@pytest.mark.parametrize("need", needs.NEEDS)
def test_an_absent_package_leaves_its_row_with_the_command_that_installs_it(toy, monkeypatch, need):
    monkeypatch.setattr(needs.gpu, "has_driver", lambda: True)
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    result = toy(("right", RIGHT, ()), ("row", RIGHT, (need,)))()
    row = result.rows[1]
    assert (row.status, row.seconds) == ("absent", [])
    assert row.reason == f"{needs.NEEDS[need].module.partition('.')[0]} is not installed"
    assert row.install.startswith(installing.command("x").removesuffix("x"))
    assert result.rows[0].status == "ok"


@pytest.mark.parametrize("need", ["cupy", "torch-gpu", "jax-gpu", "numba-cuda", "pycuda"])
def test_a_machine_without_a_driver_is_told_of_the_driver_first(monkeypatch, need):
    """Whether the package is installed or not: pip would not help."""
    monkeypatch.setattr(needs.gpu, "has_driver", lambda: False)
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: None)
    assert needs.missing(need, 0) == (needs.gpu.NO_DRIVER, "")
    if need != "cupy":  # which is imported, and asks the driver itself
        monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())
        needs.missing.cache_clear()
        assert needs.missing(need, 0) == (needs.gpu.NO_DRIVER, "")


def test_a_package_needs_no_entry_in_the_table(monkeypatch):
    assert "pyarrow" not in needs.NEEDS
    assert needs.missing("pyarrow", 0) is None
    absent = needs.missing("no_such_package", 0)
    assert absent == ("no_such_package is not installed", installing.command("no_such_package"))
    other = needs.Need("no_such_module", "its-name-for-pip")  # imported by another name than pip knows
    assert needs.missing(other, 0).install == installing.command("its-name-for-pip")


def test_a_broken_package_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())

    def broken(name):
        raise OSError("libcudart.so.12:\ncannot open")

    monkeypatch.setattr(needs.importlib, "import_module", broken)
    found = needs.missing("torch", 0)
    assert found == (
        "torch is installed but cannot be used (libcudart.so.12: cannot open)",
        installing.command("torch"),
    )


def test_a_gpu_that_is_not_there_is_not_installed_by_pip(monkeypatch):
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(needs.gpu, "has_driver", lambda: True)
    cuda = types.SimpleNamespace(device_count=lambda: 0)
    fake = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(cuda="12.8"), HOGDescriptor=0)
    monkeypatch.setattr(needs.importlib, "import_module", lambda name: fake)
    assert needs.missing("torch-gpu", 0) == ("PyTorch finds no GPU", "")
    assert needs.missing("torch", 0) is None
    fake.version.cuda = None
    needs.missing.cache_clear()
    assert needs.missing("torch-gpu", 0) == (
        "this PyTorch is built without CUDA",
        installing.command("torch"),
    )
    assert needs.missing("opencv-hog", 0) is None
    del fake.HOGDescriptor
    needs.missing.cache_clear()
    assert needs.missing("opencv-hog", 0).install == installing.command("opencv-python-headless<5")


def numba_with(monkeypatch, gpus, available=True, nvvm=True):
    from numba import cuda
    from numba.cuda.cudadrv import nvvm as compiler

    monkeypatch.setattr(cuda, "is_available", lambda: available)
    monkeypatch.setattr(cuda, "gpus", range(gpus))
    monkeypatch.setattr(compiler, "is_available", lambda: nvvm)


def test_numba_says_whether_a_gpu_or_its_compiler_is_missing(monkeypatch):
    monkeypatch.setattr(needs.gpu, "has_driver", lambda: True)
    numba_with(monkeypatch, 0, available=False)
    assert needs.missing("numba-cuda", 0) == ("Numba finds no GPU", "")
    numba_with(monkeypatch, 1, available=False, nvvm=False)
    needs.missing.cache_clear()
    assert needs.missing("numba-cuda", 0) == (
        "the compiler that Numba needs for a GPU, NVVM, is not installed",
        installing.command("numba-cuda[cu12]"),
    )


@pytest.mark.parametrize(
    ("need", "who"),
    [("torch-gpu", "PyTorch"), ("jax-gpu", "JAX"), ("numba-cuda", "Numba"), ("pycuda", "PyCUDA")],
)
def test_a_gpu_of_a_number_that_is_not_there_is_absent(monkeypatch, need, who):
    monkeypatch.setattr(needs.gpu, "has_driver", lambda: True)
    monkeypatch.setattr(needs.importlib.util, "find_spec", lambda name: object())
    numba_with(monkeypatch, 2)
    fake = types.SimpleNamespace(
        cuda=types.SimpleNamespace(device_count=lambda: 2),  # PyTorch
        version=types.SimpleNamespace(cuda="12.8"),
        devices=lambda platform: ["gpu 0", "gpu 1"],  # JAX
        init=lambda: None,  # PyCUDA
        Error=RuntimeError,
        Device=types.SimpleNamespace(count=lambda: 2),
    )
    monkeypatch.setattr(needs.importlib, "import_module", lambda name: fake)
    assert needs.missing(need, 0) is None
    assert needs.missing(need, 1) is None
    assert needs.missing(need, 2) == (f"device=2 but {who} sees 2 GPUs: choose device=0 to 1", "")


def test_pycuda_works_in_the_context_of_the_gpu_that_was_asked_for(monkeypatch):
    """Its context is current in its own calls only; others would find it there."""
    stack, cleared = [], []

    class Context:
        def __init__(self, number):
            self.number = number

        def push(self):
            stack.append(self.number)

        def pop(self):
            stack.pop()

    class Device:
        def __init__(self, number):
            self.number = number

        def retain_primary_context(self):
            return Context(self.number)

    fake = types.SimpleNamespace(
        init=lambda: None, Device=Device, clear_context_caches=lambda: cleared.append(1)
    )
    monkeypatch.setattr(gpus.importlib, "import_module", lambda name: fake)
    monkeypatch.setattr(gpus.atexit, "register", lambda work: work())
    gpus._primary.cache_clear()
    seen = []
    on_it = gpus.pycuda(1)
    assert on_it(lambda x: seen.append(list(stack)) or x + 1)(2) == 3
    with pytest.raises(ZeroDivisionError):
        on_it(lambda: 1 // 0)()
    gpus.pycuda(0)(lambda: seen.append(list(stack)))()
    assert seen == [[1], [0]]
    assert stack == []
    gpus._primary.cache_clear()
