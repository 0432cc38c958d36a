"""What a user is told of a missing package, driver or environment: with which Python, and what to type."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import config, installing
from pipeline.backends.gpu import device
from pipeline.commands import doctor
from pipeline.errors import BackendError
from tests.conftest import ROOT

SHELL = ROOT / "scripts" / "check_gpu.sh"


@pytest.fixture
def place(monkeypatch, tmp_path):
    """Return how to pretend where the checkout, its Python and the user are; the home is tmp_path/home."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))

    def at(checkout: str, here: str, python: str = ".venv/bin/python") -> None:
        folder = tmp_path / checkout
        for one in (folder, tmp_path / here):
            one.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text('[project]\nname = "hogboost"\n')
        monkeypatch.setattr(installing, "_HERE", folder)
        monkeypatch.setattr(sys, "executable", str(folder / python))
        monkeypatch.chdir(tmp_path / here)

    return at


@pytest.mark.parametrize(
    ("checkout", "here", "told"),
    [
        ("home/hogboost", "home/hogboost", ".venv/bin/python -m pip install -e '.[dask]'"),
        ("home/hogboost", "home", "hogboost/.venv/bin/python -m pip install -e './hogboost[dask]'"),
        ("home/src/hogboost", "work", "~/src/hogboost/.venv/bin/python -m pip install -e ~/'src/hogboost[dask]'"),
        ("opt/h", "work", "{root}/opt/h/.venv/bin/python -m pip install -e '{root}/opt/h[dask]'"),
        ("home/a b", "home", "'a b/.venv/bin/python' -m pip install -e './a b[dask]'"),
    ],
)  # fmt: skip
def test_the_command_names_this_python_and_this_checkout(place, tmp_path, checkout, here, told):
    place(checkout, here)
    assert installing.command("hogboost[dask]") == told.format(root=tmp_path)


def test_a_shell_finds_the_python_and_the_folder_that_are_named(place, tmp_path):
    for checkout in ("home/it's here/hogboost", "home/a b", "opt/c d"):
        for here in ("home", checkout, "work"):
            place(checkout, here)
            words = installing.command("hogboost[dask]")
            done = subprocess.run(
                ["bash", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True, check=True
            )
            python, *rest, folder = done.stdout.splitlines()
            assert os.path.abspath(python) == sys.executable
            assert rest == ["-m", "pip", "install", "-e"]
            assert folder.endswith("[dask]")
            assert os.path.abspath(folder.removesuffix("[dask]")) == str(tmp_path / checkout)


def test_a_python_beside_the_user_is_a_place_not_a_name(place):
    place("home/h", "home/h/.venv/bin")
    assert installing.command("bokeh") == "./python -m pip install bokeh"


def test_an_installed_program_is_named(place):
    place("home/h", "work")
    (Path(installing._HERE) / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert installing.command("hogboost[dask]") == "~/h/.venv/bin/python -m pip install 'hogboost[dask]'"
    (Path(installing._HERE) / "pyproject.toml").unlink()
    assert (
        installing.command("hogboost[dask]", "x<5")
        == "~/h/.venv/bin/python -m pip install 'hogboost[dask]' 'x<5'"
    )


def test_no_message_names_a_bare_pip():
    """Each is made by the one function; comments and docstrings tell of none."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "pipeline").rglob("*.py")
        if path.name != "installing.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install\b", line)
    ]
    assert found == []


def test_parquet_without_pyarrow(monkeypatch):
    from pipeline.commands import distributed, predict_parts
    from pipeline.errors import ConfigError
    from pipeline.reporting.stages import Stages

    monkeypatch.setattr(distributed, "backend_of", lambda *_: "cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cfg = config.Predict(model="m.npz", format="parquet", run_dir=".")
    with pytest.raises(ConfigError) as told:
        predict_parts.run(cfg, Stages())
    wanted = f"format=parquet needs the package pyarrow: {installing.command('pyarrow')}; or use format=csv"
    assert str(told.value) == wanted


# ---- doctor ----


def asked(name: str) -> config.Doctor:
    return config.Doctor(config.Backend(name=config.BackendName[name]), run_dir=".")


@pytest.fixture
def no_cupy(monkeypatch):
    """Return how to pretend that there is no CuPy, with a driver or without."""
    find = importlib.util.find_spec
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *m: None if n == "cupy" else find(n, *m))
    return lambda driver: monkeypatch.setattr(device, "has_driver", lambda: driver)


def told(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("driver", [False, True])
def test_doctor_of_a_backend_that_cannot_be_used_says_what_is_missing(no_cupy, capsys, driver):
    no_cupy(driver)
    with pytest.raises(BackendError, match=r"^backend=gpu cannot be used on this machine: see Advice$"):
        doctor.run(asked("gpu"))
    out = told(capsys)
    advice = out[out.index("Advice") :]
    assert "nothing is missing" not in out
    assert ("pip install" in advice) == driver
    assert ("this machine has no NVIDIA driver" in advice) == (not driver)
    assert "backends reference, cpu, gpu (cannot be used here)" in out


def test_doctor_of_a_backend_that_can_be_used_ends_well(no_cupy, capsys):
    no_cupy(False)
    doctor.run(asked("auto"))
    out = told(capsys)
    assert "backend=auto picked cpu: this machine has no NVIDIA driver" in out
    assert "(needed by preprocess=gaussian on the GPU)" in out


def test_doctor_asked_for_what_cannot_be_used_exits_with_2(call):
    if importlib.util.find_spec("cupy") is None and device.has_driver():
        pytest.skip("the message is of CuPy here")
    status, _, err = call("doctor", "backend=gpu", "backend.device=1000")
    assert status == 2
    assert err == "pipeline doctor: backend=gpu cannot be used on this machine: see Advice\n"


def test_doctor_lists_optional_packages(monkeypatch):
    monkeypatch.setattr(doctor, "_installed", lambda *names: "not installed")
    rows = dict(doctor._optional())
    assert {"dask", "distributed", "pyarrow", "simplejpeg"} <= set(rows)
    assert rows["dask"] == f"not installed (scale=dask): {installing.command('hogboost[dask]')}"
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "version", lambda name: "1.2")
    assert dict(doctor._optional())["dask"] == "1.2"


def test_every_optional_package_is_brought_by_its_extra():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, (extra, _) in doctor.OPTIONAL.items():
        assert any(entry.startswith(name) for entry in extras[extra])


# ---- the function for users of CuPy ----


@pytest.mark.parametrize("driver", [False, True])
def test_hog_for_cupy_without_cupy_is_told_and_an_import_error(no_cupy, monkeypatch, driver):
    no_cupy(driver)
    monkeypatch.delitem(sys.modules, "pipeline.backends.gpu.hog_features", raising=False)
    with pytest.raises(ImportError) as caught:
        importlib.import_module("pipeline.backends.gpu.hog_features")
    assert isinstance(caught.value, BackendError)
    needs = "pipeline.backends.gpu.hog_features needs CuPy, which is not installed: "
    assert str(caught.value) == (needs + installing.cupy() if driver else device.NO_DRIVER)


# ---- scripts/check_gpu.sh ----


def bare_python(folder: Path) -> Path:
    """Return a Python that sees the standard library only."""
    folder.mkdir(parents=True)
    stand_in = folder / "python"
    stand_in.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    stand_in.chmod(0o755)
    return stand_in


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_check_gpu_with_a_python_without_packages_is_one_line(tmp_path, words):
    python = bare_python(tmp_path / "bin")
    done = subprocess.run(
        ["bash", str(SHELL), *words], env={**os.environ, "PYTHON": str(python)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    line = done.stdout.splitlines()[-1]
    assert line.startswith("VERDICT: NOTHING WAS RUN, ")
    assert " lacks numpy, scipy, numba, " in line
    assert "bash scripts/run doctor, or name a Python that has them" in line
    assert done.stderr == ""


def test_check_gpu_takes_python_then_the_venv_then_python3(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))

    def stand_in(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "this is {path.relative_to(tmp_path)}"\n')
        path.chmod(0o755)
        return path

    named, last = stand_in(tmp_path / "mine" / "python"), stand_in(tmp_path / "path" / "python3")

    def taken(**settings: str) -> tuple[int, str]:
        env = {key: value for key, value in os.environ.items() if key != "PYTHON"} | settings
        env["PATH"] = f"{last.parent}:{env['PATH']}"
        done = subprocess.run(
            ["bash", str(tmp_path / "scripts" / "check_gpu.sh")],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.splitlines()[-1]

    assert taken() == (0, "this is path/python3")
    stand_in(tmp_path / ".venv" / "bin" / "python")
    assert taken() == (0, "this is .venv/bin/python")
    assert taken(PYTHON=str(named)) == (0, "this is mine/python")
    status, line = taken(PYTHON="/nowhere/python")
    assert status == 2
    assert line.startswith("VERDICT: NOTHING WAS RUN, there is no Python called /nowhere/python: ")
