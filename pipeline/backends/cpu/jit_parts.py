"""Compile kernels and their parts by what they need of Numba: in less time, to the same results.

Numba optimises every function and makes machine code of it, and does so again with the code in each caller: a loop
that lies three calls deep is vectorised four times. A part is never called but from a kernel, so the kernel's turn is
enough. The HoG kernels take as much time as from parts that were optimised before, or up to 13 % less.

Most of the rest is Python. Passes for what kernels do not use (closures, ``with``, loops over mixed tuples, array
expressions) look at each function in vain, and where variables live is worked out twice more than is used.
Inferring types, Numba asks for each ``a + b`` or ``a[i]`` anew what it comes to, and compares the options of two
functions one by one to find what it knows: answers are kept here, and functions of the same options share them.

Light parts and kernels, which make no array, spend less still: references are not counted, which each slice of an array
does, and a function alone is only brought into registers and simplified. What is optimised is the whole, where its code
lies in its callers: the HoG kernels come out as fast.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite.binding import create_new_function_pass_manager
from numba.core import types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.ssa import reconstruct_ssa
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
    """Code to link with: not optimised with its own parts, nor made into machine code."""

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


class _LightLibrary(JITCodeLibrary):
    """Code whose functions are not optimised one by one, only brought into registers."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


class _LightPartLibrary(_PartLibrary, _LightLibrary):
    pass


class _Typing:
    """A typing context that remembers what functions return, those compiled here apart."""

    def __init__(self, context: Any, known: dict) -> None:
        self._context, self._known = context, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, arguments: tuple, named: dict) -> Any:
        """Return the signature of a call."""
        if named or isinstance(function, types.Dispatcher | types.BoundFunction):
            return self._context.resolve_function_type(function, arguments, named)
        key = id(function), arguments
        if key not in self._known:  # the function is kept with it, so that no other takes its number
            self._known[key] = function, self._context.resolve_function_type(function, arguments, named)
        return self._known[key][1]


class _Flags(Flags):
    """Options of the compiler that nobody changes any more: compared by looking whether they are the same ones."""

    __slots__ = ("_hash",)

    def __init__(self, flags: Flags) -> None:
        super().__init__(flags)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def copy(self) -> _Flags:
        """Return the same, since nobody changes it."""
        return self


_flags: dict[Flags, _Flags] = {}
_known: dict[Flags, dict] = {}  # with flags changes what a function is compiled to


@register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(NopythonTypeInference):
    _name = "hogboost_type_inference"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Typing(context, _known.setdefault(state.flags, {}))
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context


@register_pass(mutates_CFG=True, analysis_only=False)
class _Single(untyped_passes.ReconstructSSA):
    """Give each variable one definition; where it lives is worked out later."""

    _name = "hogboost_reconstruct_ssa"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = reconstruct_ssa(state.func_ir)
        self._patch_locals(state)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _StripPhis(PreLowerStripPhis):
    """Undo it; the next pass works out where variables live."""

    _name = "hogboost_strip_phis"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    _Single,
    untyped_passes.DeadBranchPrune,
    _Inference,
    _StripPhis,
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

    def _compile_core(self) -> Any:
        flags = self.state.flags
        if flags not in _flags:
            _flags[flags.copy()] = _Flags(flags)
        self.state.flags = _flags[flags]
        return super()._compile_core()


class _PartCompiler(_KernelCompiler):
    library = _PartLibrary


class _LightKernelCompiler(_KernelCompiler):
    library = _LightLibrary


class _LightPartCompiler(_KernelCompiler):
    library = _LightPartLibrary


def options(part: bool, light: bool = False) -> dict[str, Any]:
    """Return the options of ``numba.njit`` that compile a part or a kernel this way; none if a version is not known."""
    if numba.version_info.short > KNOWN:
        return {}
    if light:
        return {"pipeline_class": _LightPartCompiler if part else _LightKernelCompiler, "_nrt": False}
    return {"pipeline_class": _PartCompiler if part else _KernelCompiler}
