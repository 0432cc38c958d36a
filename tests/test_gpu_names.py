"""Rung 0: every name of CuPy, cuCIM and the like that the gpu backend uses exists in the installed release."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.cuda_on_host.build import required

PACKAGES = ("cupy", "cupyx", "cucim", "cupy_backends")
FOLDER = ROOT / "pipeline" / "backends" / "gpu"
FILES = [
    *sorted(FOLDER.glob("*.py")),
    *sorted((ROOT / "pipeline" / "boosting").glob("*.py")),  # xp is CuPy there
    *sorted((ROOT / "scripts" / "gpu_checks").glob("*.py")),  # and so is cp
]


def aliases(tree: ast.AST) -> dict[str, str]:
    """Return what each local name stands for: ``cp`` for cupy, and so on."""
    found = {"cp": "cupy", "cupy": "cupy", "xp": "cupy"}  # also where a function gets the module as a value
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] in PACKAGES:
                    found[name.asname or name.name.split(".")[0]] = (
                        name.asname and name.name
                    ) or name.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            for name in node.names:
                found[name.asname or name.name] = f"{node.module}.{name.name}"
    return found


def names_used(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every dotted name that a file takes from the packages, with its line."""
    tree = ast.parse(path.read_text())
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from ((f"{node.module}.{name.name}", node.lineno) for name in node.names)
        if isinstance(node, ast.Import):
            yield from (
                (name.name, node.lineno) for name in node.names if name.name.split(".")[0] in PACKAGES
            )
        if isinstance(node, ast.Attribute) and (name := dotted(node, known)):
            yield name, node.lineno


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """Return the dotted name that an expression stands for, if it begins with a known one."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in known:
        return ".".join([known[node.id], *reversed(parts)])
    return None


def calls_made(path: Path) -> Iterator[tuple[str, int, list[str], int]]:
    """Yield each call of a function of the packages: name, number of arguments, their keywords, line."""
    tree = ast.parse(path.read_text())
    known = aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := dotted(node.func, known)):
            spread = any(isinstance(a, ast.Starred) for a in node.args)
            keywords = [k.arg for k in node.keywords if k.arg is not None]
            if not spread and len(keywords) == len(node.keywords):
                yield name, len(node.args), keywords, node.lineno


def misfit(name: str, count: int, keywords: list[str]) -> str | None:
    """Return why a call does not fit the signature of the function called `name`; None if it does."""
    try:
        signature = inspect.signature(resolve(name))
    except ValueError:  # compiled, and does not tell its parameters
        return None
    try:
        signature.bind(*range(count), **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    return None


def resolve(name: str) -> Any:
    """Return what a name stands for; raise if it does not exist."""
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    for depth, part in enumerate(rest, 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(name.split(".")[:depth]))
        found = getattr(found, part)
    return found


def test_the_search_finds_names_and_misses_what_does_not_exist(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "import cupy as cp\nfrom cupy import cuda\nx = cp.linalg.cholesky\ny = cuda.Stream.null\ncp.no"
    )
    names = [name for name, _ in names_used(file)]
    assert sorted(set(names)) == [
        "cupy",
        "cupy.cuda",
        "cupy.cuda.Stream",
        "cupy.cuda.Stream.null",
        "cupy.linalg",
        "cupy.linalg.cholesky",
        "cupy.no",
    ]
    if importlib.util.find_spec("cupy") is None:
        required("CuPy is not installed (pip install cupy-cuda12x)")
    with pytest.raises(ImportError):
        resolve("cupy.no")
    file.write_text("import cupy as cp\ncp.sum(cp.stack([1, 2], axis=1), 0)\ncp.take(1, 2, axes=0)\n")
    calls = sorted(calls_made(file))
    assert calls == [("cupy.stack", 1, ["axis"], 2), ("cupy.sum", 2, [], 2), ("cupy.take", 2, ["axes"], 3)]
    assert [misfit(*call[:3]) is None for call in calls] == [True, True, False]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_name_exists(path):
    missing = []
    for name, line in sorted(set(names_used(path))):
        package = name.split(".")[0]
        if importlib.util.find_spec(package) is None:
            required(f"{package} is not installed; {path.name} uses {name}")
        try:
            resolve(name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{path.name}:{line}: {name}: {error}")
    assert not missing


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_call_fits_its_function(path):
    """The double takes any keyword that NumPy takes; CuPy's functions take fewer."""
    wrong = []
    for name, count, keywords, line in calls_made(path):
        package = name.split(".")[0]
        if importlib.util.find_spec(package) is None:
            required(f"{package} is not installed; {path.name} calls {name}")
        why = misfit(name, count, keywords)
        if why is not None:
            wrong.append(f"{path.name}:{line}: {name}: {why}")
    assert not wrong


def test_cupy_and_its_kin_are_used_in_the_gpu_backend_only():
    """And in rows of the benchmark, which compare CuPy itself."""
    for path in (ROOT / "pipeline").rglob("*.py"):
        if FOLDER not in path.parents and path.parent.name != "benchmarks":
            assert not list(names_imported(path)), path


def names_imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (module for module in modules if module.split(".")[0] in PACKAGES)
