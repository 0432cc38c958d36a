"""NVRTC by ctypes: CUDA C++ to PTX and machine code for any GPU, with the compiler's wheel alone (no driver)."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.cuda_on_host.build import cache_folder, required

REPORT = ("--ptxas-options=-v", "--ptxas-options=-warn-spills", "--ptxas-options=-warn-lmem-usage")
# What CuPy adds to every compilation.
CUPY = ("-ftz=true", "--device-as-default-execution-space")
RESOURCES = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


class Resources(NamedTuple):
    """What one kernel takes on one architecture."""

    stack: int
    spill_stores: int
    spill_loads: int
    registers: int


class Compiled(NamedTuple):
    """The result of one compilation."""

    ptx: str
    log: str

    def resources(self) -> dict[str, Resources]:
        """Return what each kernel takes."""
        return {
            found[1]: Resources(*(int(found[i]) for i in range(2, 6)))
            for part in re.split(r"(?=ptxas info\s+: Compiling entry)", self.log)
            if (found := RESOURCES.search(part))
        }

    def warnings(self) -> list[str]:
        """Return the lines of the log that warn, but for the news that an old architecture will be dropped."""
        lines = [line for line in self.log.splitlines() if re.search("warning|error", line, re.IGNORECASE)]
        return [line for line in lines if "Architectures prior" not in line]

    def parameters(self) -> dict[str, list[str]]:
        """Return the PTX types of each kernel's parameters."""
        entries = re.findall(r"\.entry (\w+)\(\s*(.*?)\)", self.ptx, re.DOTALL)
        return {name: re.findall(r"\.param\s+(?:\.align \d+ )?\.(\w+)", text) for name, text in entries}


def _library() -> Path:
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found and found.submodule_search_locations else []:
        for path in sorted(Path(folder).glob("**/libnvrtc.so.1?")):
            return path
    required("NVRTC is not installed (pip install nvidia-cuda-nvrtc-cu12); the kernels cannot be compiled")
    raise AssertionError


class Nvrtc:
    """The compiler."""

    def __init__(self) -> None:
        path = _library()
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self._identity = f"{path.name} {path.stat().st_size}"  # releases that differ in the last number only
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(numbers)
        self.version = (major.value, minor.value)
        self.architectures = [number for number in numbers if number >= 70]

    def compile(self, code: str, options: Sequence[str]) -> Compiled:
        """Compile `code`, or take what the same compiler made of it before; errors are raised in its own words."""
        parts = [self._identity, str(self.version), code, *options]
        kept = cache_folder() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}-nvrtc.json"
        if kept.exists():
            return Compiled(**json.loads(kept.read_text()))
        made = self._compile(code, options)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:  # whole or not at all
            new = Path(folder) / kept.name
            new.write_text(json.dumps(made._asdict()))
            new.replace(kept)
        return made

    def _compile(self, code: str, options: Sequence[str]) -> Compiled:
        program = ctypes.c_void_p()
        self._library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"kernel.cu", 0, None, None)
        encoded = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        failed = self._library.nvrtcCompileProgram(program, len(options), encoded)
        log = self._text(program, "ProgramLog")
        ptx = "" if failed else self._text(program, "PTX")
        self._library.nvrtcDestroyProgram(ctypes.byref(program))
        if failed:
            raise RuntimeError(log or f"NVRTC error {failed}")
        return Compiled(ptx, log)

    def _text(self, program: Any, what: str) -> str:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()
