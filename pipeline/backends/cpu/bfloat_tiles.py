"""Register tiles of numbers in bfloat16, of which a processor with AVX512-BF16 multiplies twice as many as of float32.

A bfloat16 is the upper half of a float32: its range, and 8 bits of precision. The instruction multiplies pairs of
numbers, adds both products to a float32 number, and does so for all numbers of a vector register. A pair, of the
same column in two successive rows, lies in the bits of one float32 number here.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipeline.backends.cpu.vectors import Vectors, lanes, pointer

FLOAT = np.dtype(np.float32)


@functools.cache
def available() -> bool:
    """Tell whether the processor that Numba compiles for has the instruction, in registers of 64 bytes."""
    named = numba.config.CPU_NAME not in (None, "", "host")  # then NUMBA_CPU_FEATURES says what it has
    if named or numba.config.CPU_FEATURES is not None:
        return False
    features = llvm.get_host_cpu_features()
    if not all(features.get(name) for name in ("avx512f", "avx512vl", "avx512bf16")):
        return False
    llvm.initialize_native_asmparser()  # Numba does without, but for instructions that are written as text
    return True


class _Pairs(Vectors):
    """Vectors of pairs: their products are added to vectors of float32 numbers."""

    def add(self, product: tuple[Any, Any], total: Any) -> Any:
        """Return the total and the products of two vectors of pairs."""
        kinds = ir.FunctionType(self.type, [self.type] * 3)
        # as text: LLVM changed the types of its own function for the instruction between versions
        return self.builder.asm(kinds, "vdpbf16ps $3, $2, $0", "=v,0,v,v", [total, *product], False)


@intrinsic
def pack_pairs(typingctx, X, first, second, center, k, weight, other, out, o):
    """Write V pairs to out[o:], rounded: weight (X[first:] - center[k:]) and other (X[second:] - center[k:])."""
    index = types.intp
    signature = types.void(X, index, index, center, index, X.dtype, X.dtype, out, index)

    def codegen(context, builder, signature, values):
        arrays, v, b = signature.args, Vectors(context, builder, types.float32), builder
        bits = ir.VectorType(ir.IntType(32), v.size)

        def whole(number):
            return ir.Constant(bits, [number] * v.size)

        shift = v.load(pointer(context, b, arrays[3], values[3], values[4]))

        def rounded(at, factor):
            number = b.fsub(v.load(pointer(context, b, arrays[0], values[0], at)), shift)
            return b.add(b.bitcast(b.fmul(number, v.vector(factor)), bits), whole(0x8000))

        low, high = rounded(values[1], values[5]), rounded(values[2], values[6])
        both = b.or_(b.lshr(low, whole(16)), b.and_(high, whole(0xFFFF0000)))
        target = pointer(context, b, arrays[7], values[7], values[8])
        b.store(b.bitcast(both, v.type), b.bitcast(target, v.type.as_pointer())).align = FLOAT.itemsize
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_pair_tile(typingctx, left, i, right, k, pairs, total, t, side, shape):
    """Add to total[t:], rows of `side`, the products of columns of `left` with columns of `right`, over rows.

    Pairs of rows of V columns begin at left[i] and right[k]; all arrays are flat and float32.

    Parameters
    ----------
    pairs : how many there are: on the right a panel's are followed by the next panel's
    shape : tuples as long as there are columns on the left, panels on the right, and columns of each of these. The
        processor loads as many vectors as it multiplies: 16 columns and 1 panel run at three quarters of the rate of
        8 and 2.
    """
    (across, down, width), index = (part.count for part in shape), types.intp
    V = lanes(FLOAT)
    signature = types.void(left, index, right, index, index, total, index, index, shape)

    def codegen(context, builder, signature, values):
        arrays, b = signature.args, builder
        v = _Pairs(context, builder, types.float32, width)
        one = pointer(context, b, arrays[0], values[0], values[1])
        other = pointer(context, b, arrays[2], values[2], values[3])
        out = pointer(context, b, arrays[5], values[5], values[6])
        panel = b.mul(values[4], ir.Constant(values[4].type, V))

        def terms(pair):
            place = b.mul(pair, ir.Constant(pair.type, V))
            numbers = [
                v.load(v.at(other, place, b.mul(panel, ir.Constant(pair.type, m)))) for m in range(down)
            ]
            spread = [v.spread(v.at(one, place, m)) for m in range(across)]
            return [(x, y) for x in spread for y in numbers]

        for m, value in enumerate(v.sum_over_rows(values[4], across * down, terms)):
            row = b.mul(values[7], ir.Constant(values[7].type, m // down))
            place = v.at(out, row, m % down * V)
            stored = b.store(b.fadd(v.load(place), value), b.bitcast(place, v.type.as_pointer()))
            stored.align = FLOAT.itemsize
        return context.get_dummy_value()

    return signature, codegen
