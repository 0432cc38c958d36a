"""Vector operations for kernels: loops that Numba cannot be told to write are written in LLVM's operations."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _registers() -> tuple[int, int]:
    """Return the bytes of a vector register of this processor and how many there are."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 32
    if features.get("avx"):
        return 32, 16
    return 16, 32 if features.get("neon") else 16


BYTES, REGISTERS = _registers()
# Rows whose sums are added in the precision of the rows. Panels of 256 rows stay in the first-level cache; of a single
# class 512 are better (113 GFLOP/s instead of 90 to 110), for its sums are carried to the total more often.
ROWS, ROWS_OF_ONE = 256, 512 if REGISTERS > 16 else 256


def lanes(dtype: np.dtype) -> int:
    """Return V, the numbers of a type in a vector register."""
    return BYTES // dtype.itemsize


def adjacent(X: np.ndarray) -> None:
    """Raise ValueError if the numbers of a row of X do not follow one another: a vector is loaded at once."""
    if X.shape[1] > 1 and X.strides[1] != X.itemsize:
        raise ValueError(f"rows of adjacent numbers were expected, not of strides {X.strides}")


class Vectors:
    """Writes vector operations; pointers are to numbers, and indices count numbers."""

    def __init__(self, context: Any, builder: Any, element: Any, size: int = 0) -> None:
        self.builder = builder
        self.number = context.get_value_type(element)
        self.size = size or lanes(np.dtype(element.name))
        self.type = ir.VectorType(self.number, self.size)
        self.wide = ir.VectorType(ir.DoubleType(), self.size)
        name = f"llvm.fma.v{self.size}f{8 * np.dtype(element.name).itemsize}"
        signature = ir.FunctionType(self.type, [self.type] * 3)
        self.fma = cgutils.get_or_insert_function(builder.module, signature, name)

    def at(self, pointer: Any, *index: Any) -> Any:
        """Return a pointer some numbers further."""
        for i in index:
            number = ir.Constant(ir.IntType(64), i) if isinstance(i, int) else i
            pointer = self.builder.gep(pointer, [number])
        return pointer

    def load(self, pointer: Any) -> Any:
        """Load a vector from any place where a number may lie."""
        value = self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()))
        value.align = 4 if self.number == ir.FloatType() else 8
        return value

    def spread(self, pointer: Any) -> Any:
        """Load one number into all places of a vector."""
        return self.vector(self.builder.load(pointer))

    def vector(self, number: Any) -> Any:
        """Return a vector with one number in all places."""
        return spread(self.builder, number, self.type)

    def add(self, product: tuple[Any, Any], total: Any) -> Any:
        """Return the total and a product, rounded once."""
        return self.builder.call(self.fma, [*product, total])

    def add_to_memory(self, pointer: Any, value: Any) -> None:
        """Add a vector to float64 numbers in memory."""
        b = self.builder
        value = value if self.type == self.wide else b.fpext(value, self.wide)
        place = b.bitcast(pointer, self.wide.as_pointer())
        old = b.load(place)
        old.align = 8
        stored = b.store(b.fadd(old, value), place)
        stored.align = 8

    def sum_over_rows(self, rows: Any, count: int, terms: Any) -> list[Any]:
        """Return `count` vectors: sums over i < rows of products; terms(i) returns their factors."""
        b, int_ = self.builder, rows.type
        before, zero = b.block, ir.Constant(self.type, [0.0] * self.size)
        loop, end = b.append_basic_block("rows"), b.append_basic_block("rows.end")
        b.cbranch(b.icmp_signed(">", rows, ir.Constant(int_, 0)), loop, end)
        b.position_at_end(loop)
        i = b.phi(int_)
        totals = [b.phi(self.type) for _ in range(count)]
        more = [self.add(pair, total) for pair, total in zip(terms(i), totals, strict=True)]
        following = b.add(i, ir.Constant(int_, 1))
        last = b.block
        b.cbranch(b.icmp_signed("<", following, rows), loop, end)
        i.add_incoming(ir.Constant(int_, 0), before)
        i.add_incoming(following, last)
        b.position_at_end(end)
        results = [b.phi(self.type) for _ in range(count)]
        for total, new, result in zip(totals, more, results, strict=True):
            for phi, pairs in (
                (total, ((zero, before), (new, last))),
                (result, ((zero, before), (new, last))),
            ):
                for value, block in pairs:
                    phi.add_incoming(value, block)
        return results


def spread(builder: Any, number: Any, type_: Any) -> Any:
    """Return a vector of a type with one number in all places."""
    none, i32 = ir.Constant(type_, ir.Undefined), ir.IntType(32)
    one = builder.insert_element(none, number, ir.Constant(i32, 0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(i32, type_.count), [0] * type_.count))


def in_turns(builder: Any, first: Any, second: Any) -> list[Any]:
    """Return the numbers of two vectors in turns, as two vectors: of the first halves, of the second ones."""
    size = first.type.count
    mask, half = ir.VectorType(ir.IntType(32), size), size // 2
    orders = [[m // 2 + a + size * (m % 2) for m in range(size)] for a in (0, half)]
    return [builder.shuffle_vector(first, second, ir.Constant(mask, order)) for order in orders]


def pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Return where a number of an array lies whose numbers are adjacent."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def ask_for(builder: Any, address: Any) -> None:
    """Ask for a cache line to be brought to the second-level cache."""
    byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
    call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
    read, level, data = (ir.Constant(i32, flag) for flag in (0, 2, 1))
    builder.call(call, [address, read, level, data])


def step_of(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the bytes from a row of a matrix to the next."""
    whole = context.make_array(array_type)(context, builder, array)
    return cgutils.unpack_tuple(builder, whole.strides, 2)[0]


def row_of(context: Any, builder: Any, array_type: Any, array: Any, i: Any) -> Any:
    """Return where row i of a matrix begins."""
    whole = context.make_array(array_type)(context, builder, array)
    step = step_of(context, builder, array_type, array)
    first = builder.bitcast(whole.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(first, [builder.mul(i, step)]), whole.data.type)


@intrinsic
def prefetch(typingctx, X, i, k):
    """Ask for X[i, k] to be brought to the second-level cache; rows of X have adjacent numbers."""
    signature = types.void(X, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        number = builder.gep(row_of(context, builder, signature.args[0], values[0], values[1]), [values[2]])
        ask_for(builder, builder.bitcast(number, ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def take(typingctx, counter):
    """Add 1 to counter[0], int64, and return what it was: so threads take tasks without asking the interpreter."""
    signature = types.int64(counter)

    def codegen(context, builder, signature, values):
        place = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return signature, codegen


@intrinsic
def pack_vector(typingctx, X, i, k, center, weight, out, o):
    """Write weight (X[i, k:k + V] - center[k:k + V]) to out[o:o + V]; rows of X have adjacent numbers."""
    signature = types.void(X, types.intp, types.intp, center, X.dtype, out, types.intp)

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, Vectors(context, builder, X.dtype)
        source = v.at(row_of(context, builder, arrays[0], values[0], values[1]), values[2])
        shift = pointer(context, builder, arrays[3], values[3], values[2])
        target = pointer(context, builder, arrays[5], values[5], values[6])
        value = builder.fmul(builder.fsub(v.load(source), v.load(shift)), v.vector(values[4]))
        stored = builder.store(value, builder.bitcast(target, v.type.as_pointer()))
        stored.align = np.dtype(X.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pack_rows(typingctx, X, i, k, rows, center, out, step, panels):
    """Write X[i:i + rows, k:] - center[k:] of some columns to panels that begin at out[0], out[step] and so on.

    Rows of X have adjacent numbers. Row by row with :func:`pack_vector` it took twice the time.

    Parameters
    ----------
    panels : tuple as long as there are panels to write
    """
    index = types.intp
    signature = types.void(X, index, index, index, center, out, index, panels)

    def codegen(context, builder, signature, values):
        arrays, v, b = signature.args, Vectors(context, builder, X.dtype), builder
        first = v.at(row_of(context, b, arrays[0], values[0], values[1]), values[2])
        pitch = step_of(context, b, arrays[0], values[0])
        shift = v.at(pointer(context, b, arrays[4], values[4], values[2]))
        target = pointer(context, b, arrays[5], values[5], ir.Constant(values[6].type, 0))
        middles = [v.load(v.at(shift, m * v.size)) for m in range(panels.count)]
        byte, align = ir.IntType(8).as_pointer(), np.dtype(X.dtype.name).itemsize
        with cgutils.for_range(b, values[3]) as loop:
            row = b.bitcast(b.gep(b.bitcast(first, byte), [b.mul(loop.index, pitch)]), first.type)
            place = b.mul(loop.index, ir.Constant(loop.index.type, v.size))
            for m, middle in enumerate(middles):
                to = v.at(target, b.mul(values[6], ir.Constant(values[6].type, m)), place)
                value = b.fsub(v.load(v.at(row, m * v.size)), middle)
                b.store(value, b.bitcast(to, v.type.as_pointer())).align = align
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def scale_vector(typingctx, X, x, weight, out, o):
    """Write weight X[x:x + V] to out[o:o + V], both flat: as a loop it is made number by number."""
    signature = types.void(X, types.intp, X.dtype, out, types.intp)

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, Vectors(context, builder, X.dtype)
        source = v.load(pointer(context, builder, arrays[0], values[0], values[1]))
        target = pointer(context, builder, arrays[3], values[3], values[4])
        stored = builder.store(
            builder.fmul(source, v.vector(values[2])), builder.bitcast(target, v.type.as_pointer())
        )
        stored.align = np.dtype(X.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pack_transposed(typingctx, X, i, last, k, center, out, o):
    """Write X[i:i + V, k:k + V] - center[k:k + V] to out[o:], transposed; rows after `last` are that one again."""
    signature = types.void(X, *[types.intp] * 3, center, out, types.intp)

    def codegen(context, builder, signature, values):
        arrays, v, b = signature.args, Vectors(context, builder, X.dtype), builder
        shift = v.load(pointer(context, builder, arrays[4], values[4], values[3]))
        target = pointer(context, builder, arrays[5], values[5], values[6])
        vectors = []
        for m in range(v.size):
            row = b.add(values[1], ir.Constant(values[1].type, m))
            row = b.select(b.icmp_signed("<", row, values[2]), row, values[2])
            vectors.append(
                b.fsub(v.load(v.at(row_of(context, b, arrays[0], values[0], row), values[3])), shift)
            )
        half = v.size // 2
        for _ in range(
            v.size.bit_length() - 1
        ):  # of the halves, number by number in turns: log2 V times transposes
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [one for pair in pairs for one in in_turns(b, *pair)]
        for m, vector in enumerate(vectors):
            stored = b.store(vector, b.bitcast(v.at(target, m * v.size), v.type.as_pointer()))
            stored.align = np.dtype(X.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen
