"""Register tiles of values, of products and of small factorisations: see :mod:`pipeline.backends.cpu.tiles`."""

from __future__ import annotations

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipeline.backends.cpu.vectors import REGISTERS, ROWS, Vectors, lanes, pointer, row_of


@functools.cache
def value_shape(n_classes: int) -> tuple[tuple[None, ...], tuple[None, ...]]:
    """Return (rows, classes), tuples as long as a tile of values is large in each direction."""
    chunks = -(-n_classes // (12 if REGISTERS > 16 else 6))
    classes = -(-n_classes // chunks)
    rows = 8
    while rows * (classes + 1) + 1 > REGISTERS:
        rows //= 2
    return (None,) * rows, (None,) * classes


@functools.cache
def product_shape(n_classes: int, dtype: np.dtype, worked: np.dtype) -> tuple[None, ...]:
    """Return a tuple as long as the number of classes of a tile of :func:`add_product_tile`, worked out in `worked`."""
    most = (REGISTERS - 4) * lanes(worked) // lanes(dtype)
    return (None,) * (-(-n_classes // -(-n_classes // most)))


@intrinsic
def value_tile(typingctx, data, d, panels, coef, c, out, o, shape):
    """Write to out[o:] (rows, classes) the sums over columns of rows times coefficients, in the type of these.

    Rows begin at data[d], V numbers of each, and go on a panel of ROWS rows further. Coefficients (classes, columns),
    float64 or as the rows, begin at `c`. A coefficient that is loaded serves every row of the tile: row by row it took
    twice the time.

    Parameters
    ----------
    panels : how many there are
    shape : as :func:`value_shape`
    """
    rows, classes = (part.count for part in shape)
    V, D = (lanes(np.dtype(one.dtype.name)) for one in (data, coef))
    index = types.intp
    signature = types.void(data, index, index, coef, index, out, index, shape)

    def codegen(context, builder, signature, values):
        arrays, v = signature.args, Vectors(context, builder, coef.dtype)
        x = pointer(context, builder, arrays[0], values[0], values[1])
        factors = pointer(context, builder, arrays[3], values[3], values[4])
        target = pointer(context, builder, arrays[5], values[5], values[6])
        whole = values[2].type
        kind = ir.VectorType(x.type.pointee, D)
        count = builder.mul(values[2], ir.Constant(whole, V // D))  # vectors in a row
        columns = builder.mul(count, ir.Constant(whole, D))

        def vector(pointer):
            value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
            value.align = np.dtype(data.dtype.name).itemsize
            return value if kind == v.type else builder.fpext(value, v.type)

        def terms(i):
            panel, part = (f(i, ir.Constant(whole, V // D)) for f in (builder.udiv, builder.urem))
            place = builder.add(
                builder.mul(panel, ir.Constant(whole, ROWS * V)), builder.mul(part, ir.Constant(whole, D))
            )
            numbers = [vector(v.at(x, place, r * V)) for r in range(rows)]
            first = v.at(factors, builder.mul(i, ir.Constant(whole, D)))
            weights = [
                v.load(v.at(first, builder.mul(columns, ir.Constant(whole, m)))) for m in range(classes)
            ]
            return [(number, weight) for number in numbers for weight in weights]

        name = f"llvm.vector.reduce.fadd.v{D}f{8 * np.dtype(coef.dtype.name).itemsize}"
        kinds = ir.FunctionType(v.number, [v.number, v.type])
        across = cgutils.get_or_insert_function(builder.module, kinds, name)
        zero = ir.Constant(v.number, -0.0)
        for m, value in enumerate(v.sum_over_rows(count, rows * classes, terms)):
            builder.store(builder.call(across, [zero, value], fastmath=("reassoc",)), v.at(target, m))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_product_tile(typingctx, data, d, values, w, step, rows, total, t, pitch, classes):
    """Add to total[t:], rows of `pitch`, the sums over rows of values[row, class] x[row], in the type of the values.

    All arrays are flat. The columns x are a panel that begins at data[d]; values, float64 or as the columns, begin at
    `w`, `step` of a row; the total is float64.

    Parameters
    ----------
    classes : as :func:`product_shape`
    """
    count, V, D = classes.count, lanes(np.dtype(data.dtype.name)), lanes(np.dtype(values.dtype.name))
    index = types.intp
    signature = types.void(data, index, values, *[index] * 3, total, index, index, classes)

    def codegen(context, builder, signature, given):
        arrays, v = signature.args, Vectors(context, builder, values.dtype)
        x = pointer(context, builder, arrays[0], given[0], given[1])
        factors = pointer(context, builder, arrays[2], given[2], given[3])
        out = pointer(context, builder, arrays[6], given[6], given[7])
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
def subtract_rows(typingctx, S, i, k, first, last, rows, depth):
    """Subtract from S[i, first:last] the sum over m < depth of S[k + m, i] S[k + m, first:last]; so of rows below.

    S, float32 or float64, is in C order; from `first` to `last` there are whole vectors. As loops the compiler would
    not make vectors of it: for all it knows the rows overlap.

    Parameters
    ----------
    rows, depth : tuples as long as there are rows from `i` on, and as there are rows to subtract
    """
    D = lanes(np.dtype(S.dtype.name))
    index = types.intp
    signature = types.void(S, index, index, index, index, rows, depth)

    def codegen(context, builder, signature, values):
        whole, v = signature.args[0], Vectors(context, builder, S.dtype)
        i, k, first, last = values[1:5]

        def some(begin, count):
            numbers = [builder.add(begin, ir.Constant(begin.type, m)) for m in range(count)]
            return [(number, row_of(context, builder, whole, values[0], number)) for number in numbers]

        below, above = some(i, rows.count), some(k, depth.count)
        factors = [
            [v.vector(builder.fneg(builder.load(v.at(one, number)))) for _, one in above]
            for number, _ in below
        ]
        step = ir.Constant(first.type, D)
        with cgutils.for_range_slice(builder, first, last, step, first.type) as (j, _):
            loaded = [v.load(v.at(one, j)) for _, one in above]
            for (_, row), mine in zip(below, factors, strict=True):
                value = v.load(v.at(row, j))
                for pair in zip(mine, loaded, strict=True):
                    value = v.add(pair, value)
                stored = builder.store(value, builder.bitcast(v.at(row, j), v.type.as_pointer()))
                stored.align = np.dtype(S.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen
