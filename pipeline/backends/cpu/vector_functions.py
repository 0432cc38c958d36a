"""Logarithms, sines and cosines of several numbers at a time, and normal numbers made of them.

The library's functions take one number at a time, and polynomials in a loop of Numba's took the compiler a second to
make vectors of. Here they are written in LLVM's vector operations, as the tiles are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipeline.backends.cpu.vectors import BYTES, in_turns, lanes, pointer, spread
from pipeline.backends.philox import MULTIPLIER, NORMAL_STREAM, ROUNDS, WEYL

TOGETHER = BYTES // 8  # float64 numbers in a vector register
FAR = 1e6  # size of an angle from which on its cosine is not worked out here

# pi / 2 in two parts: the first has 33 bits, so that its products with whole numbers below FAR are exact
_QUARTER, _REST = float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a626331p-34")
_WHOLE = 1.5 * 2.0**52  # added, it leaves the nearest whole number in the last bits
_SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 8)]
_COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(1, 9)]
_ARTANH = [2.0 / (2 * k + 1) for k in range(1, 10)]
_LOW = 0xFFFFFFFF


class _Doubles:
    """Writes operations on vectors of float64 numbers and of 64-bit integers."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.builder, i64 = builder, ir.IntType(64)
        self.type, self.bits = ir.VectorType(ir.DoubleType(), TOGETHER), ir.VectorType(i64, TOGETHER)

    def constant(self, value: float) -> Any:
        return ir.Constant(self.type, [value] * TOGETHER)

    def whole(self, value: int) -> Any:
        return ir.Constant(self.bits, [value] * TOGETHER)

    def function(self, name: str, *arguments: Any) -> Any:
        signature = ir.FunctionType(self.type, [self.type] * len(arguments))
        known = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.{name}.v{TOGETHER}f64")
        return self.builder.call(known, arguments)

    def series(self, y: Any, coefficients: list[float]) -> Any:
        """Return c0 + c1 y + c2 y^2 + ..."""
        total = self.constant(coefficients[-1])
        for one in coefficients[-2::-1]:
            total = self.function("fma", total, y, self.constant(one))
        return total

    def cosine_and_sine(self, x: Any) -> tuple[Any, Any]:
        """Return both of angles below FAR, to 1e-16: Taylor's series of what they are beyond multiples of pi / 2."""
        b, one = self.builder, self.whole(1)
        shifted = self.function("fma", x, self.constant(2.0 / math.pi), self.constant(_WHOLE))
        quarters, quarter = b.fsub(shifted, self.constant(_WHOLE)), b.bitcast(shifted, self.bits)
        r = self.function("fma", quarters, self.constant(-_QUARTER), x)
        r = self.function("fma", quarters, self.constant(-_REST), r)
        y = b.fmul(r, r)
        cosine = self.series(y, [1.0, *_COSINE])
        sine = self.function("fma", b.fmul(r, y), self.series(y, _SINE), r)
        odd = b.icmp_unsigned("==", b.and_(quarter, one), one)
        turned = b.select(odd, sine, cosine), b.select(odd, cosine, sine)
        signs = [
            b.shl(b.and_(bits, self.whole(2)), self.whole(62)) for bits in (b.add(quarter, one), quarter)
        ]
        pairs = zip(turned, signs, strict=True)
        found = [b.bitcast(b.xor(b.bitcast(value, self.bits), sign), self.type) for value, sign in pairs]
        return found[0], found[1]

    def floated(self, whole: Any, shift: float) -> Any:
        """Return integers below 2^52 as numbers, plus a shift: the bits of 2^52 and more are those of the integer."""
        b = self.builder
        exact = b.bitcast(b.or_(whole, self.whole(0x433 << 52)), self.type)
        return b.fadd(b.fsub(exact, self.constant(2.0**52)), self.constant(shift))

    def uniform(self, words: Any) -> Any:
        """Return 32-bit words as numbers between 0 and 1, times 2^32."""
        return self.floated(words, 0.5)

    def logarithm(self, x: Any, scale: int) -> Any:
        """Return log(x 2^scale), to 1e-16: the series of 2 artanh((m - 1) / (m + 1)) for x = m 2^e, m near 1."""
        b, bits = self.builder, self.builder.bitcast(x, self.bits)
        exponent = self.floated(b.lshr(bits, self.whole(52)), scale - 1023.0)
        kept = b.and_(bits, self.whole((1 << 52) - 1))
        m = b.bitcast(b.or_(kept, self.whole(1023 << 52)), self.type)
        large = b.fcmp_ordered(">", m, self.constant(math.sqrt(2.0)))
        m = b.select(large, b.fmul(m, self.constant(0.5)), m)
        exponent = b.select(large, b.fadd(exponent, self.constant(1.0)), exponent)
        s = b.fdiv(b.fsub(m, self.constant(1.0)), b.fadd(m, self.constant(1.0)))
        y = b.fmul(s, s)
        rest = b.fmul(b.fmul(s, y), self.series(y, _ARTANH))
        total = self.function("fma", self.constant(2.0), s, rest)
        return self.function("fma", exponent, self.constant(math.log(2.0)), total)

    def words(self, block: Any, key0: Any, key1: Any, index: Any) -> list[Any]:
        """Return the words of Philox for counters block, block + 1, ...; see :mod:`pipeline.backends.philox`."""
        b, low, word = self.builder, self.whole(_LOW), self.whole(32)
        steps = ir.Constant(self.bits, list(range(TOGETHER)))
        counter = b.add(spread(b, block, self.bits), steps)
        c0, c1 = b.and_(counter, low), b.lshr(counter, word)
        c2, c3 = b.and_(spread(b, index, self.bits), low), self.whole(NORMAL_STREAM)
        keys = [spread(b, key, self.bits) for key in (key0, key1)]
        for _ in range(ROUNDS):
            p0, p1 = (b.mul(self.whole(m), b.and_(c, low)) for m, c in zip(MULTIPLIER, (c0, c2), strict=True))
            c0, c1 = b.xor(b.xor(b.lshr(p1, word), c1), keys[0]), b.and_(p1, low)
            c2, c3 = b.xor(b.xor(b.lshr(p0, word), c3), keys[1]), b.and_(p0, low)
            keys = [b.and_(b.add(key, self.whole(w)), low) for key, w in zip(keys, WEYL, strict=True)]
        return [c0, c1, c2, c3]


@intrinsic
def draw_normal(typingctx, out, o, block, key0, key1, index, scale):
    """Write scale * N(0, 1) to out[o:o + 4 TOGETHER]: the numbers of counters block:block + TOGETHER, four each."""
    signature = types.void(out, types.intp, *[types.uint64] * 4, types.float64)

    def codegen(context, builder, signature, values):
        v, b = _Doubles(context, builder), builder
        target = pointer(context, b, signature.args[0], values[0], values[1])
        factor = spread(b, values[6], v.type)
        c0, c1, c2, c3 = v.words(*values[2:6])
        pairs = []
        for radial, angular in ((c0, c1), (c2, c3)):
            logarithm = v.logarithm(v.uniform(radial), -32)
            radius = v.function("sqrt", b.fmul(logarithm, v.constant(-2.0)))
            turn = b.fmul(v.uniform(angular), v.constant(2.0**-32))
            both = v.cosine_and_sine(b.fmul(turn, v.constant(2.0 * math.pi)))
            pairs.append([b.fmul(factor, b.fmul(radius, one)) for one in both])
        (z0, z1), (z2, z3) = pairs
        halves = zip(in_turns(b, z0, z2), in_turns(b, z1, z3), strict=True)
        ordered = [vector for pair in halves for vector in in_turns(b, *pair)]
        for m, vector in enumerate(ordered):
            place = b.gep(target, [ir.Constant(ir.IntType(64), m * TOGETHER)])
            b.store(vector, b.bitcast(place, v.type.as_pointer())).align = 8
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def write_cosines(typingctx, angles, a, phase, c, kept, out, o):
    """Write kept[c:] cos(angles[a:] + phase[c:]), V numbers, to out[o:]; return whether an angle is beyond FAR."""
    signature = types.boolean(angles, types.intp, phase, types.intp, kept, out, types.intp)
    size = lanes(np.dtype(out.dtype.name))

    def codegen(context, builder, signature, values):
        v, b, arrays = _Doubles(context, builder), builder, signature.args
        written = ir.VectorType(context.get_value_type(out.dtype), TOGETHER)
        places = ((0, 1), (2, 3), (4, 3), (5, 6))
        starts = [pointer(context, b, arrays[i], values[i], values[k]) for i, k in places]
        far = ir.Constant(ir.IntType(1), 0)
        for m in range(0, size, TOGETHER):
            at = [b.gep(start, [ir.Constant(ir.IntType(64), m)]) for start in starts]
            loaded = [b.load(b.bitcast(one, v.type.as_pointer())) for one in at[:3]]
            for one in loaded:
                one.align = 8
            x = b.fadd(loaded[0], loaded[1])
            near = b.fcmp_ordered("<", v.function("fabs", x), v.constant(FAR))
            lost = b.icmp_unsigned(
                "!=", b.bitcast(near, ir.IntType(TOGETHER)), ir.Constant(ir.IntType(TOGETHER), -1)
            )
            far = b.or_(far, lost)
            value = b.fmul(v.cosine_and_sine(x)[0], loaded[2])
            value = value if written == v.type else b.fptrunc(value, written)
            b.store(value, b.bitcast(at[3], written.as_pointer())).align = np.dtype(out.dtype.name).itemsize
        return context.cast(b, far, types.boolean, types.boolean)

    return signature, codegen


@intrinsic
def convert(typingctx, X, o, out, k):
    """Write V numbers X[o:] to out[k:], of float32 or float64; V of the shorter type are in a vector register."""
    signature = types.void(X, types.intp, out, types.intp)
    sizes = [np.dtype(one.dtype.name).itemsize for one in (X, out)]

    def codegen(context, builder, signature, values):
        b, count = builder, BYTES // min(sizes)
        given, wanted = (ir.VectorType(context.get_value_type(one.dtype), count) for one in (X, out))
        source, target = (pointer(context, b, signature.args[i], values[i], values[i + 1]) for i in (0, 2))
        value = b.load(b.bitcast(source, given.as_pointer()))
        value.align = sizes[0]
        if given != wanted:
            value = (b.fpext if sizes[0] < sizes[1] else b.fptrunc)(value, wanted)
        b.store(value, b.bitcast(target, wanted.as_pointer())).align = sizes[1]
        return context.get_dummy_value()

    return signature, codegen
