"""Build a ``.cu`` file with g++ and launch its kernels on NumPy arrays, with the calling shape of cupy.RawModule."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
HEADER = "cuda_on_host.h"
RUNTIME = ("runtime.cpp", HEADER, "block.h", "fibers.h", "switch.h")
KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')
SCHEDULES = {"forward": 0, "reverse": 1, "random": 2}
COMMON = (
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fno-gnu-unique",
    "-U_FORTIFY_SOURCE",
    "-Wall",
    "-Wno-unknown-pragmas",
    f"-I{HERE}",
)
MODES = {
    "plain": ("-O1", "-ffp-contract=off"),
    "contracted": ("-O2", "-mfma", "-ffp-contract=fast"),
    "address": (
        "-O1",
        "-g1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
        "-fno-omit-frame-pointer",
    ),
    "thread": ("-O1", "-g1", "-fsanitize=thread"),
}


class KernelError(RuntimeError):
    """What the kernel did that CUDA forbids, or what g++ says of its text."""


def required(reason: str) -> None:
    """Skip the test for `reason`; with HOGBOOST_REQUIRE_LADDER=1 fail instead."""
    if os.environ.get("HOGBOOST_REQUIRE_LADDER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def need_compiler() -> None:
    """Skip where there is no g++."""
    if shutil.which("g++") is None:
        required("g++ is not installed; the kernels cannot be built for the CPU")


def cache_folder() -> Path:
    """Return the folder of built kernels, made if need be; it belongs to this user."""
    folder = Path(tempfile.gettempdir()) / f"hogboost-kernels-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user; remove it or set TMPDIR")
    return folder


@functools.cache
def _runtime_text() -> str:
    return "".join((HERE / name).read_text() for name in RUNTIME)


def _compile(name: str, text: str, flags: Sequence[str]) -> Path:
    """Return the file g++ makes of `text`; from the cache, if it is there. Warnings are errors."""
    key = hashlib.sha256("\0".join([text, _runtime_text(), *flags]).encode()).hexdigest()[:24]
    made = cache_folder() / f"{key}-{name}"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        source, target = Path(folder) / "kernel.cpp", Path(folder) / name
        source.write_text(text)
        command = ["g++", *flags, "-o", str(target), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise KernelError(result.stderr)
        target.replace(made)
    return made


def _build(text: str, mode: str) -> Path:
    """Return the shared library of the kernels in `text`, linked with the runtime of this mode."""
    flags = (*COMMON, *MODES[mode])
    runtime = _compile("runtime.o", (HERE / "runtime.cpp").read_text(), ("-c", *flags))
    return _compile("kernel.so", text, ("-shared", _header(flags), *flags, "-x", "none", str(runtime)))


@functools.cache
def _header(flags: tuple[str, ...]) -> str:
    """Return the option by which g++ finds the header of all kernels compiled: a third of the time of each."""
    text = (
        (HERE / HEADER).read_text().replace("#pragma once\n", "")
    )  # included once by itself, if precompiled
    made = _compile("header.gch", text, ("-x", "c++-header", *flags))
    folder = made.with_suffix("")
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):  # g++ looks there before it looks for the header itself
        (folder / f"{HEADER}.gch").symlink_to(made)
    return f"-I{folder}"


LANES_OF = {
    1: 1,
    2: 2,
    3: 4,
    7: 8,
    10: 16,
    12: 32,
}  # LANES for so many CLASSES, where a kernel asks for one only


def completed(code: str, options: Sequence[str]) -> list[str]:
    """Return macro definitions with those of CLASSES and LANES that a kernel leaves to their default.

    A kernel that does not name them is the same whatever they are; so specialisations are shared, and fewer are built.
    """
    defined = [option[2:] for option in options if option.startswith("-D")]
    if not {"#ifndef CLASSES", "#ifndef LANES"} <= set(code.splitlines()):
        return defined
    given = dict(definition.split("=", 1) for definition in defined)
    if "LANES" not in given:
        classes = int(given.get("CLASSES", 10))
        given["LANES"] = str(LANES_OF.get(classes, 16))
        given.setdefault("CLASSES", "10")
    elif "CLASSES" not in given:
        given["CLASSES"] = str({lanes: classes for classes, lanes in LANES_OF.items()}[int(given["LANES"])])
    return [f"{name}={value}" for name, value in sorted(given.items())]


class HostModule:
    """The kernels of one source text, as cupy.RawModule would hold them.

    Parameters
    ----------
    code : the text of a ``.cu`` file
    options : NVRTC's options; macro definitions are used, ``--fmad=true`` is not: g++ never contracts unless
        `mode` is "contracted"
    mode : a key of MODES
    schedule : "forward", "reverse" or "random": the order of threads in a block and of blocks
    seed : of the random order
    concurrent : for mode "thread": blocks are not ordered among each other
    """

    def __init__(
        self,
        code: str,
        options: Sequence[str] = (),
        mode: str = "plain",
        schedule: str = "forward",
        seed: int = 0,
        concurrent: bool = False,
    ) -> None:
        self.names = KERNEL.findall(code)
        exports = "\n".join(f"EXPORT_KERNEL({name})" for name in self.names)
        defined = completed(code, options)
        macros = "".join(f"#define {definition.replace('=', ' ', 1)}\n" for definition in defined)
        text = f'#include "cuda_on_host.h"\n{macros}#line 1 "kernel.cu"\n{code}\n{exports}\n'
        self._library = ctypes.CDLL(str(_build(text, mode)))
        self._order = (SCHEDULES[schedule], seed, int(concurrent))

    def parameters(self, name: str) -> list[str]:
        """Return the types of a kernel's parameters as g++ compiled them: pointer, int32, float64 ..."""
        function = self._library[f"parameter_{name}"]
        function.restype = ctypes.c_char_p
        found: list[str] = []
        while (text := function(ctypes.c_size_t(len(found)))) is not None:
            found.append(text.decode())
        return found

    def get_function(self, name: str) -> Callable[..., None]:
        """Return a function (grid, block, arguments, shared_mem) that runs the kernel."""
        expected = self.parameters(name)

        def launch(
            grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], *, shared_mem: int = 0
        ) -> None:
            values = _pointers(name, expected, arguments)
            pointers = (ctypes.c_void_p * len(values))(
                *[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values]
            )
            sizes = (ctypes.c_uint * 6)(*_three(grid), *_three(block))
            schedule, seed, concurrent = self._order
            failed = self._library[f"launch_{name}"](
                sizes, ctypes.c_size_t(shared_mem), pointers, schedule, ctypes.c_uint(seed), concurrent
            )
            if failed:
                raise KernelError(f"{name}: {self._error()}")

        return launch

    def _error(self) -> str:
        function = self._library.last_error
        function.restype = ctypes.c_char_p
        return function().decode()


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = (*sizes, 1, 1)[:3]
    return first, second, third


def _pointers(name: str, expected: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
    """Return arguments as C objects, by CuPy's rule: an array is its address, a NumPy scalar its own bytes."""
    if len(arguments) != len(expected):
        raise KernelError(f"{name}: {len(arguments)} arguments, the kernel takes {len(expected)}")
    values: list[Any] = []
    for place, (argument, kind) in enumerate(zip(arguments, expected, strict=True)):
        given = "pointer" if isinstance(argument, np.ndarray) else np.asarray(argument).dtype.name
        if given != kind:
            raise KernelError(f"{name}: argument {place} is {given}, the kernel takes {kind}")
        if isinstance(argument, np.ndarray):
            values.append(ctypes.c_void_p(argument.ctypes.data))
        else:
            values.append(ctypes.create_string_buffer(np.asarray(argument).tobytes()))
    return values
