"""Features from what is kept of images, for vectors of images: a drawn feature costs a load, two products and a clip.

What is kept of an image is its cell histograms and what each block is multiplied by, before and after clipping. A
feature then depends on three numbers, whatever else its block holds. Images lie LANES together, number by number, so
that a vector register holds one number of several images; a tile of as many features is transposed in registers and
written to the images' rows. Written in LLVM's vector operations, as :mod:`pipeline.backends.cpu.tiles` is: 0.17 ns a
feature from the cache, against 1.0 ns of loops over an image's features, which Numba turns into gathers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipeline.backends.cpu.hog_blocks import L1_SQRT, L2_HYS
from pipeline.backends.cpu.jit import kernel
from pipeline.backends.cpu.vectors import lanes

LANES = 16  # images whose numbers lie side by side: a register of float32 on the widest processors
PRODUCT, ROOT, CLIPPED = 1, 2, 3  # what becomes of a cell: times a scale; its root; clipped and scaled again


def kind(norm: int) -> tuple[int, ...]:
    """Return a tuple whose length says what becomes of a cell, for a place in config.BLOCK_NORMS."""
    return (0,) * {L1_SQRT: ROOT, L2_HYS: CLIPPED}.get(norm, PRODUCT)


def tile(dtype: np.dtype) -> tuple[int, ...]:
    """Return a tuple as long as a tile is wide: images and features."""
    return (0,) * min(LANES, max(2, lanes(dtype)))


def _data(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Return a square of vectors transposed: halves, quarters and so on change places."""
    size, step = len(rows), 1
    mask = ir.VectorType(ir.IntType(32), size)
    while step < size:
        low = [c if not c & step else size + (c ^ step) for c in range(size)]
        high = [c | step if not c & step else size + c for c in range(size)]
        changed = list(rows)
        for r in range(size):
            if not r & step:
                pair = rows[r], rows[r | step]
                changed[r] = builder.shuffle_vector(*pair, ir.Constant(mask, low))
                changed[r | step] = builder.shuffle_vector(*pair, ir.Constant(mask, high))
        rows, step = changed, 2 * step
    return rows


@intrinsic
def write_tile(typingctx, kept, begin, cell, scale, again, k, places, image, out, column, kind, tile):
    """Write features k, k + 1, ... of as many images to out[places[image], column:], ...; a place below 0 is nobody's.

    Parameters
    ----------
    kept : flat, (width, LANES) numbers from `begin` on, the first of them the first image's
    cell, scale, again : unsigned (features,), where of `width` the numbers of a feature are
    out : (rows, columns) with room for the whole tile
    kind, tile : as of the functions of these names
    """
    what, size = kind.count, tile.count
    signature = types.void(
        *(kept, types.intp, cell, scale, again, types.intp),
        *(places, types.intp, out, types.intp, kind, tile),
    )

    def codegen(context, builder, signature, values):
        b, arrays, i64 = builder, signature.args, ir.IntType(64)
        number = context.get_value_type(kept.dtype)
        written = context.get_value_type(out.dtype)
        vector, target = ir.VectorType(number, size), ir.VectorType(written, size)
        base = _data(context, b, arrays[0], values[0], values[1])

        def numbers(which, c):
            place = _data(context, b, arrays[which], values[which], b.add(values[5], ir.Constant(i64, c)))
            at = b.mul(b.zext(b.load(place), i64), ir.Constant(i64, LANES))
            loaded = b.load(b.bitcast(b.gep(base, [at]), vector.as_pointer()))
            loaded.align = np.dtype(kept.dtype.name).itemsize
            return loaded

        limit = np.dtype(kept.dtype.name).type(0.2)
        limits = ir.Constant(vector, [ir.Constant(number, float(limit))] * size)
        name = f"llvm.sqrt.v{size}f{8 * np.dtype(kept.dtype.name).itemsize}"
        root = cgutils.get_or_insert_function(b.module, ir.FunctionType(vector, [vector]), name)
        features = []
        for c in range(size):
            v = b.fmul(numbers(2, c), numbers(3, c))
            if what == ROOT:
                v = b.call(root, [v])
            elif what == CLIPPED:  # NaN stays NaN
                v = b.fmul(b.select(b.fcmp_ordered(">", v, limits), limits, v), numbers(4, c))
            features.append(v)
        whole = context.make_array(arrays[8])(context, b, values[8])
        step = cgutils.unpack_tuple(b, whole.strides, 2)[0]
        first = b.bitcast(b.gep(whole.data, [values[9]]), ir.IntType(8).as_pointer())
        for r, row in enumerate(_transposed(b, features)):
            place = b.load(_data(context, b, arrays[6], values[6], b.add(values[7], ir.Constant(i64, r))))
            with b.if_then(b.icmp_signed(">=", place, ir.Constant(i64, 0))):
                there = b.bitcast(b.gep(first, [b.mul(place, step)]), target.as_pointer())
                stored = b.store(row if number == written else b.fptrunc(row, target), there)
                stored.align = np.dtype(out.dtype.name).itemsize
        return context.get_dummy_value()

    return signature, codegen


@kernel
def write_columns(groups, places, cell, scale, again, kind, tile, out):
    """Write features of the images of groups (m, width, LANES) to the rows of out (n, features) that `places` name.

    Parameters
    ----------
    places : intp (m * LANES,) row of each image, below 0 for one that is not wanted
    cell, scale, again : uint32, see write_tile; as many as fill the last tile
    """
    flat, size, features = groups.reshape(-1), len(tile), out.shape[1]
    whole = features // size * size
    aside = np.empty((LANES, size), out.dtype)  # the last features, if they do not fill a tile
    here = np.arange(LANES)
    for g in range(groups.shape[0]):
        begin = g * groups.shape[1] * LANES
        for lane in range(0, LANES, size):
            first, wanted = g * LANES + lane, False
            for i in range(first, first + size):
                wanted |= places[i] >= 0
            if not wanted:
                continue
            for k in range(0, whole, size):
                write_tile(flat, begin + lane, cell, scale, again, k, places, first, out, k, kind, tile)
            if whole < features:
                write_tile(flat, begin + lane, cell, scale, again, whole, here, lane, aside, 0, kind, tile)
                for i in range(size):
                    if places[first + i] >= 0:
                        for k in range(whole, features):
                            out[places[first + i], k] = aside[lane + i, k - whole]
