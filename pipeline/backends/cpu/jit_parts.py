"""Compile a part of a kernel only as far as the kernel needs it: to code that the kernel's own optimisation takes in.

Numba optimises every function and makes machine code of it, and does so again with the code in each caller: a loop
that lies three calls deep is vectorised four times. A part is never called but from a kernel, so the kernel's turn is
enough. The HoG kernels take as much time as from parts that were optimised before, or up to 13 % less.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

KNOWN = (0, 68)  # newest version of Numba whose inner workings are known to be as below


class _Codegen:
    """The code generator without what needs a function in memory: the place of its environment."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: an environment serves exceptions and objects, which parts have none of."""


class _Library(JITCodeLibrary):
    """Code to link with: neither optimised nor made into machine code."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, as Numba does for what a library does not define."""
        return 0


class _PartCompiler(Compiler):
    def define_pipelines(self) -> list:
        self.state.library = _Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


def options() -> dict[str, Any]:
    """Return the options of ``numba.njit`` that compile a part this way; none with a version that is not known."""
    return {"pipeline_class": _PartCompiler} if numba.version_info.short <= KNOWN else {}
