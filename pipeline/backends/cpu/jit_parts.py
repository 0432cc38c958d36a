"""Compile kernels and their parts by what they need of Numba: in less time, to the same results.

Numba optimises every function and makes machine code of it, and does so again with the code in each caller: a loop
that lies three calls deep is vectorised four times. A part is never called but from a kernel, so the kernel's turn is
enough. The HoG kernels take as much time as from parts that were optimised before, or up to 13 % less.

Most of the rest is Python. Passes for what kernels do not use (closures, ``with``, loops over mixed tuples, array
expressions) look at each function in vain. And inferring types, Numba asks for each ``a + b`` anew what two numbers add
up to: the answer is kept here.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)

KNOWN = (0, 68)  # newest version of Numba whose inner workings are known to be as below


class _Codegen:
    """The code generator without what needs a function in memory: the place of its environment."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: an environment serves exceptions and objects, which parts have none of."""


class _PartLibrary(JITCodeLibrary):
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


class _Typing:
    """A typing context that remembers what functions of numbers return."""

    def __init__(self, context: Any, known: dict) -> None:
        self._context, self._known = context, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, arguments: tuple, named: dict) -> Any:
        """Return the signature of a call."""
        numbers = all(isinstance(one, types.Number | types.Boolean) for one in arguments)
        if named or not numbers or isinstance(function, types.Dispatcher):
            return self._context.resolve_function_type(function, arguments, named)
        key = function, arguments
        if key not in self._known:
            self._known[key] = self._context.resolve_function_type(function, arguments, named)
        return self._known[key]


_known: dict[str, dict] = {}  # by flags: with them what a function of numbers is compiled to


@register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(NopythonTypeInference):
    _name = "hogboost_type_inference"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Typing(context, _known.setdefault(state.flags.summary(), {}))
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context


_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    untyped_passes.DeadBranchPrune,
    _Inference,
    PreLowerStripPhis,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
)


class _KernelCompiler(Compiler):
    library: type[JITCodeLibrary] = JITCodeLibrary

    def define_pipelines(self) -> list:
        library = self.library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        self.state.library = library
        manager = PassManager("kernel")
        for one in _PASSES:
            manager.add_pass(one, one.__name__)
        manager.finalize()
        return [manager]


class _PartCompiler(_KernelCompiler):
    library = _PartLibrary


def options(part: bool) -> dict[str, Any]:
    """Return the options of ``numba.njit`` that compile a part or a kernel this way; none if a version is not known."""
    compiler = _PartCompiler if part else _KernelCompiler
    return {"pipeline_class": compiler} if numba.version_info.short <= KNOWN else {}
