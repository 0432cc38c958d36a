"""Register tiles: sums over rows of products of columns, held in vector registers while the rows go by.

Numba turns loops into vector code but cannot be told to keep twenty accumulators in registers, which is what these
sums need: each loaded number must serve many multiply-adds. So the innermost loop over rows is written in LLVM's
vector operations. A panel is a block of rows of V columns, row after row, V being the numbers in a vector register;
sums of a block of rows are added in the precision of the rows and then to a float64 total.

Sizes that the machine code depends on (classes, columns) are the lengths of tuples, so that Numba compiles and keeps
a version for each. They hold None: to take numbers out of such tuples cost a kernel .1 s more to compile.
"""

from __future__ import annotations

import functools
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
ROWS, ROWS_OF_ONE = 256, 512


def lanes(dtype: np.dtype) -> int:
    """Return V, the numbers of a type in a vector register."""
    return BYTES // dtype.itemsize


def adjacent(X: np.ndarray) -> None:
    """Raise ValueError if the numbers of a row of X do not follow one another: a vector is loaded at once."""
    if X.shape[1] > 1 and X.strides[1] != X.itemsize:
        raise ValueError(f"rows of adjacent numbers were expected, not of strides {X.strides}")


@functools.cache
def gram_shape(n_classes: int, dtype: np.dtype) -> tuple[tuple[None, ...], ...]:
    """Return (classes, columns, panels, lanes), tuples as long as a tile of Gram matrices is large in each direction.

    A product of two numbers serves all classes of the tile, so there are as many as registers allow; of a single class
    the weights are in the first factor already, and the tile is that of a plain matrix product. The rates on a Zen 4
    processor, on which a large product of OpenBLAS runs at 101 to 104 GFLOP/s a thread: 103 with 10 classes,
    107 with 12, 94 with 4.
    """
    most = REGISTERS - 8 if REGISTERS > 16 else 12
    V = lanes(dtype)
    if n_classes == 1:
        return (None,), (None,) * V, (None,) * max(1, 8 // V), (None,) * V
    chunks = -(-n_classes // min(12, most))
    classes = -(-n_classes // chunks)
    columns = 1
    while 2 * columns * (classes + 1) + 2 <= REGISTERS and 2 * columns <= min(V, 4):
        columns *= 2
    return (None,) * classes, (None,) * columns, (None,), (None,) * V


@functools.cache
def product_shape(n_classes: int, dtype: np.dtype) -> tuple[None, ...]:
    """Return a tuple as long as the number of classes of a tile of :func:`add_product_tile`."""
    most = (REGISTERS - 4) * BYTES // 8 // lanes(dtype)
    return (None,) * (-(-n_classes // -(-n_classes // most)))


@functools.cache
def moment_shape(n_classes: int) -> tuple[None, ...]:
    """Return a tuple as long as the number of classes whose three sums of a column are worked out together."""
    most = (REGISTERS - 2) // 3
    return (None,) * (-(-n_classes // -(-n_classes // most)))


class _Vectors:
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
        for i in index:
            number = ir.Constant(ir.IntType(64), i) if isinstance(i, int) else i
            pointer = self.builder.gep(pointer, [number])
        return pointer

    def load(self, pointer: Any, type_: Any = None) -> Any:
        value = self.builder.load(self.builder.bitcast(pointer, (type_ or self.type).as_pointer()))
        value.align = 4 if self.number == ir.FloatType() else 8
        return value

    def spread(self, pointer: Any) -> Any:
        """Load one number into all places of a vector."""
        return self.vector(self.builder.load(pointer))

    def vector(self, number: Any) -> Any:
        b, i32, none = self.builder, ir.IntType(32), ir.Constant(self.type, ir.Undefined)
        one = b.insert_element(none, number, ir.Constant(i32, 0))
        return b.shuffle_vector(one, none, ir.Constant(ir.VectorType(i32, self.size), [0] * self.size))

    def add(self, product: tuple[Any, Any], total: Any) -> Any:
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


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [offset])


def _ask_for(builder: Any, address: Any) -> None:
    """Ask for a cache line to be brought to the second-level cache."""
    byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
    call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
    read, level, data = (ir.Constant(i32, flag) for flag in (0, 2, 1))
    builder.call(call, [address, read, level, data])


def _step(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    """Return the bytes from a row of a matrix to the next."""
    whole = context.make_array(array_type)(context, builder, array)
    return cgutils.unpack_tuple(builder, whole.strides, 2)[0]


def _row(context: Any, builder: Any, array_type: Any, array: Any, i: Any) -> Any:
    """Return where row i of a matrix begins."""
    whole = context.make_array(array_type)(context, builder, array)
    step = _step(context, builder, array_type, array)
    first = builder.bitcast(whole.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(first, [builder.mul(i, step)]), whole.data.type)


@intrinsic
def add_gram_tile(typingctx, left, i, right, k, weights, w, rows, total, t, shape):
    """Add to total[t:] (classes, columns, panels, V) the sums over rows of w[row, class] left[row, column] right[row].

    `left` and `right` are flat arrays of panels, i and k the numbers in them before the first; the right panels
    follow one another at ``rows_of_a_panel * V``. Weights (rows, classes) begin at `w`; a single class has none.

    Parameters
    ----------
    rows : rows to add, and the distance of panels in rows
    shape : as :func:`gram_shape`; with fewer lanes, only so many numbers of each V on the right and of the total
    """
    classes, columns, panels, vector = (part.count for part in shape)
    row = lanes(np.dtype(left.dtype.name))
    signature = types.void(
        left, types.intp, right, types.intp, weights, types.intp, types.intp, total, types.intp, shape
    )

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, _Vectors(context, builder, left.dtype, vector)
        a = _pointer(context, builder, arrays[0], values[0], values[1])
        b = _pointer(context, builder, arrays[2], values[2], values[3])
        c = _pointer(context, builder, arrays[4], values[4], values[5])
        out = _pointer(context, builder, arrays[7], values[7], values[8])
        rows = values[6]
        size = ir.Constant(rows.type, row)
        panel = builder.mul(rows, size)

        def terms(i):
            row = builder.mul(i, size)
            rights = [
                v.load(v.at(b, builder.mul(panel, ir.Constant(rows.type, m)), row)) for m in range(panels)
            ]
            lefts = [v.spread(v.at(a, row, m)) for m in range(columns)]
            if classes == 1:
                return [(x, y) for x in lefts for y in rights]
            both = [builder.fmul(x, y) for x in lefts for y in rights]
            first = builder.mul(i, ir.Constant(rows.type, classes))
            weight = [v.spread(v.at(c, first, m)) for m in range(classes)]
            return [(x, y) for y in weight for x in both]

        for m, value in enumerate(v.sum_over_rows(rows, classes * columns * panels, terms)):
            v.add_to_memory(v.at(out, m * row), value)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_product_tile(typingctx, data, d, values, w, step, rows, total, t, pitch, classes):
    """Add to total[t:], rows of `pitch`, the sums over rows of values[row, class] x[row], in float64 throughout.

    All arrays are flat. The columns x are a panel that begins at data[d]; values begin at `w`, `step` of a row.

    Parameters
    ----------
    classes : as :func:`product_shape`
    """
    count, V, D = classes.count, lanes(np.dtype(data.dtype.name)), BYTES // 8
    index = types.intp
    signature = types.void(data, index, values, *[index] * 3, total, index, index, classes)

    def codegen(context, builder, signature, given):
        arrays, v = signature.args, _Vectors(context, builder, types.float64)
        x = _pointer(context, builder, arrays[0], given[0], given[1])
        factors = _pointer(context, builder, arrays[2], given[2], given[3])
        out = _pointer(context, builder, arrays[6], given[6], given[7])
        narrow, rows = ir.VectorType(x.type.pointee, D), given[5]

        def vector(pointer):
            value = builder.load(builder.bitcast(pointer, narrow.as_pointer()))
            value.align = np.dtype(data.dtype.name).itemsize
            return value if narrow == v.type else builder.fpext(value, v.type)

        def terms(i):
            row = builder.mul(i, ir.Constant(rows.type, V))
            numbers = [vector(v.at(x, row, m)) for m in range(0, V, D)]
            mine = v.at(factors, builder.mul(i, given[4]))
            return [(v.spread(v.at(mine, m)), number) for m in range(count) for number in numbers]

        for m, value in enumerate(v.sum_over_rows(rows, count * (V // D), terms)):
            row = builder.mul(given[8], ir.Constant(rows.type, m // (V // D)))
            v.add_to_memory(v.at(out, row, m % (V // D) * D), value)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def prefetch(typingctx, X, i, k):
    """Ask for X[i, k] to be brought to the second-level cache; rows of X have adjacent numbers."""
    signature = types.void(X, types.intp, types.intp)

    def codegen(context, builder, signature, values):
        number = builder.gep(_row(context, builder, signature.args[0], values[0], values[1]), [values[2]])
        _ask_for(builder, builder.bitcast(number, ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def pack_vector(typingctx, X, i, k, center, weight, out, o, lanes):
    """Write weight (X[i, k:k + V] - center[k:k + V]) to out[o:o + V]; rows of X have adjacent numbers."""
    signature = types.void(X, types.intp, types.intp, center, X.dtype, out, types.intp, lanes)

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, _Vectors(context, builder, X.dtype)
        source = v.at(_row(context, builder, arrays[0], values[0], values[1]), values[2])
        shift = _pointer(context, builder, arrays[3], values[3], values[2])
        target = _pointer(context, builder, arrays[5], values[5], values[6])
        value = builder.fmul(builder.fsub(v.load(source), v.load(shift)), v.vector(values[4]))
        stored = builder.store(value, builder.bitcast(target, v.type.as_pointer()))
        stored.align = np.dtype(X.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def square(typingctx, X):
    """Return the shape of a tile of V columns by one panel, of one class, for the type of X."""
    V = lanes(np.dtype(X.dtype.name))
    shape = types.Tuple([types.UniTuple(types.none, size) for size in (1, V, 1, V)])
    return shape(X), lambda context, builder, signature, values: context.get_constant_null(shape)


@intrinsic
def pack_transposed(typingctx, X, i, last, k, center, out, o):
    """Write X[i:i + V, k:k + V] - center[k:k + V] to out[o:], transposed; rows after `last` are that one again."""
    signature = types.void(X, *[types.intp] * 3, center, out, types.intp)

    def codegen(context, builder, signature, values):
        arrays, v, b = signature.args, _Vectors(context, builder, X.dtype), builder
        shift = v.load(_pointer(context, builder, arrays[4], values[4], values[3]))
        target = _pointer(context, builder, arrays[5], values[5], values[6])
        vectors = []
        for m in range(v.size):
            row = b.add(values[1], ir.Constant(values[1].type, m))
            row = b.select(b.icmp_signed("<", row, values[2]), row, values[2])
            vectors.append(
                b.fsub(v.load(v.at(_row(context, b, arrays[0], values[0], row), values[3])), shift)
            )
        mask, half = ir.VectorType(ir.IntType(32), v.size), v.size // 2
        low, high = (
            ir.Constant(mask, [m // 2 + first + v.size * (m % 2) for m in range(v.size)])
            for first in (0, half)
        )
        for _ in range(
            v.size.bit_length() - 1
        ):  # of the halves, number by number in turns: log2 V times transposes
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [b.shuffle_vector(*pair, order) for pair in pairs for order in (low, high)]
        for m, vector in enumerate(vectors):
            stored = b.store(vector, b.bitcast(v.at(target, m * v.size), v.type.as_pointer()))
            stored.align = np.dtype(X.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_moment_tile(typingctx, X, i, k, center, weights, w, rows, total, t, classes, column):
    """Add to total[t:] (3, classes, V) the sums over i:i + rows of r x, w x and w x^2, x = X[i, k:k + V] - center.

    Weights (rows, 2, classes) hold r and w of each row and begin at `w`; the centres begin at `k`. Rows of X have
    adjacent numbers and are read where they lie: to copy them into a panel first took a third of the time. Meanwhile
    X[i:i + rows, column] is asked for: memory works while the processor does.
    """
    count = classes.count
    index = types.intp
    signature = types.void(
        X, index, index, center, weights, index, index, total, index, classes, index, index
    )

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, _Vectors(context, builder, X.dtype)
        first = _row(context, builder, arrays[0], values[0], values[1])
        x0, later = v.at(first, values[2]), v.at(first, values[10])
        shift = v.load(_pointer(context, builder, arrays[3], values[3], values[2]))
        c = _pointer(context, builder, arrays[4], values[4], values[5])
        out = _pointer(context, builder, arrays[7], values[7], values[8])
        rows, step = values[6], _step(context, builder, arrays[0], values[0])
        byte = ir.IntType(8).as_pointer()

        def moved(pointer, i):
            return builder.gep(builder.bitcast(pointer, byte), [builder.mul(i, step)])

        def terms(i):
            _ask_for(builder, moved(later, i))
            x = builder.fsub(v.load(builder.bitcast(moved(x0, i), x0.type)), shift)
            square = builder.fmul(x, x)
            both = v.at(c, builder.mul(i, ir.Constant(rows.type, 2 * count)))
            products = [(x, v.spread(v.at(both, m))) for m in range(2 * count)]
            # Sums of ten classes leave no register for a weight that is used twice: it is loaded again, which costs
            # nothing, from an address that the compiler does not know to be the same.
            hidden = builder.asm(ir.FunctionType(both.type, [both.type]), "", "=r,0", [both], True)
            return products + [(square, v.spread(v.at(hidden, count + m))) for m in range(count)]

        for m, value in enumerate(v.sum_over_rows(rows, 3 * count, terms)):
            v.add_to_memory(v.at(out, m * v.size), value)
        return context.get_dummy_value()

    return signature, codegen
