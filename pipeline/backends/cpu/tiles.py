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

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipeline.backends.cpu.vectors import (
    REGISTERS,
    Vectors,
    ask_for,
    lanes,
    pointer,
    row_of,
    step_of,
)

# Whether the product of two columns serves several classes. With 16 registers each is added up for itself.
SHARED = REGISTERS > 16


@functools.cache
def gram_shape(n_classes: int, dtype: np.dtype) -> tuple[tuple[None, ...], ...]:
    """Return (classes, columns, panels, lanes), tuples as long as a tile of Gram matrices is large in each direction.

    A product of two numbers serves all classes of the tile, so there are as many as registers allow; of a single class
    the weights are in the first factor already, and the tile is that of a plain matrix product. The rates on a Zen 4
    processor, on which a large product of OpenBLAS runs at 101 to 104 GFLOP/s a thread: 103 with 10 classes,
    107 with 12, 94 with 4. On a Zen 3, whose 16 registers would hold ten classes of one column, they had 57 to 71 of
    the 101 GFLOP/s that there are, and plain products have 95 to 98 (8 columns by a panel 69, 4 by 3 panels 58).
    """
    V = lanes(dtype)
    if n_classes == 1 or not SHARED:
        columns = V if SHARED else min(V, 4)
        return (None,), (None,) * columns, (None,) * max(1, 8 // columns), (None,) * V
    chunks = -(-n_classes // min(12, REGISTERS - 8))
    classes = -(-n_classes // chunks)
    columns = 1
    while 2 * columns * (classes + 1) + 2 <= REGISTERS and 2 * columns <= min(V, 4):
        columns *= 2
    return (None,) * classes, (None,) * columns, (None,), (None,) * V


def whole_panels(q: int, dtype: np.dtype) -> int:
    """Return how many panels hold q columns of gathered or drawn numbers: as many as whole tiles of a class have."""
    _, _, panels, lanes = gram_shape(1, np.dtype(dtype))
    return -(-q // (len(lanes) * len(panels))) * len(panels)


@functools.cache
def packed_shape(n_classes: int, dtype: np.dtype) -> tuple[tuple[None, ...], ...]:
    """Return the shape of a tile of sums of single features in panels, (one, classes, panels, lanes).

    A class's weights take the place of a column on the left. Of four to six by two panels the rate is that of a Gram
    matrix; sets of so many classes fill up as few as may be.
    """
    V = lanes(dtype)
    size = min([size for size in (6, 5, 4) if size <= V] or [V], key=lambda size: -n_classes % size)
    return (None,), (None,) * size, (None,) * max(2, 8 // size), (None,) * V


@functools.cache
def moment_shape(n_classes: int) -> tuple[None, ...]:
    """Return a tuple as long as the number of classes whose three sums of a column are worked out together."""
    most = (REGISTERS - 2) // 3
    return (None,) * (-(-n_classes // -(-n_classes // most)))


@intrinsic
def add_gram_tile(typingctx, left, i, right, k, step, weights, w, rows, total, t, pitch, shape):
    """Add to total[t:] (classes, columns, pitch) the sums over rows of w[row, class] left[row, column] right[row].

    `left` and `right` are flat arrays of panels, i and k the numbers in them before the first; the right panels
    follow one another at `step` numbers. Weights (rows, classes) begin at `w`; a single class has none.

    Parameters
    ----------
    rows : rows to add
    pitch : numbers of the total for each column: those of the panels, V of each, or more
    shape : as :func:`gram_shape`; with fewer lanes, only so many numbers of each V on the right and of the total
    """
    classes, columns, panels, vector = (part.count for part in shape)
    row = lanes(np.dtype(left.dtype.name))
    signature = types.void(
        left,
        *[types.intp, right, types.intp, types.intp, weights, types.intp, types.intp],
        total,
        types.intp,
        types.intp,
        shape,
    )

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, Vectors(context, builder, left.dtype, vector)
        a = pointer(context, builder, arrays[0], values[0], values[1])
        b = pointer(context, builder, arrays[2], values[2], values[3])
        c = pointer(context, builder, arrays[5], values[5], values[6])
        out = pointer(context, builder, arrays[8], values[8], values[9])
        panel, rows, pitch = values[4], values[7], values[10]
        size = ir.Constant(rows.type, row)

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
            column = builder.mul(pitch, ir.Constant(pitch.type, m // panels))
            v.add_to_memory(v.at(out, column, m % panels * row), value)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def square(typingctx, X):
    """Return the shape of a tile of V columns by one panel, of one class, for the type of X."""
    V = lanes(np.dtype(X.dtype.name))
    shape = types.Tuple([types.UniTuple(types.none, size) for size in (1, V, 1, V)])
    return shape(X), lambda context, builder, signature, values: context.get_constant_null(shape)


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
        arrays, v = signature.args, Vectors(context, builder, X.dtype)
        first = row_of(context, builder, arrays[0], values[0], values[1])
        x0, later = v.at(first, values[2]), v.at(first, values[10])
        shift = v.load(pointer(context, builder, arrays[3], values[3], values[2]))
        c = pointer(context, builder, arrays[4], values[4], values[5])
        out = pointer(context, builder, arrays[7], values[7], values[8])
        rows, step = values[6], step_of(context, builder, arrays[0], values[0])
        byte = ir.IntType(8).as_pointer()

        def moved(pointer, i):
            return builder.gep(builder.bitcast(pointer, byte), [builder.mul(i, step)])

        def terms(i):
            ask_for(builder, moved(later, i))
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
