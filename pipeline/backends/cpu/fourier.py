"""Random Fourier features cos(x'R + b): drawn, multiplied and written in panels, a few rows at a time.

The library's logarithm and cosine take one number at a time; here they are polynomials in loops that the compiler turns
into vector code. R was 16.4 ms of a round (3240 x 512, two threads) and is 2.2, the cosines of 10,000 rows 18 and now
2.5. The product is that of register tiles: no number of X R is written to memory before its cosine is taken.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.backends import philox
from pipeline.backends.cpu import wls_kernels as kernels
from pipeline.backends.cpu.jit import kernel, part, prepare
from pipeline.backends.cpu.panels import Panels
from pipeline.backends.cpu.tiles import ROWS, add_gram_tile, adjacent, gram_shape, lanes, pack_transposed

BOX = 256  # counters whose numbers are drawn together, four each
# Rows and columns whose sums are in the second-level cache together, half of it, and terms that are added in the
# precision of the rows before their sum is, in float64.
UNIT, WIDTH, DEPTH = 128, 512, 512

_M0, _M1 = np.uint64(philox.MULTIPLIER[0]), np.uint64(philox.MULTIPLIER[1])
_W0, _W1 = np.uint64(philox.WEYL[0]), np.uint64(philox.WEYL[1])
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
_STREAM, _ROUNDS = np.uint64(philox.NORMAL_STREAM), philox.ROUNDS

# pi / 2 in two parts: the first has 33 bits, so that its products with whole numbers below FAR are exact
_QUARTER, _REST = float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a626331p-34")
_QUARTERS, FAR = 2.0 / math.pi, 1e6
_WHOLE = 1.5 * 2.0**52  # added and subtracted, it leaves the nearest whole number
_TURN, _LOG2, _ROOT2 = 2.0 * math.pi, math.log(2.0), math.sqrt(2.0)


@part
def _cosine_and_sine(x):
    """Return both for abs(x) < FAR, to 1e-16: Taylor's series of what is left of x beside multiples of pi / 2."""
    n = (x * _QUARTERS + _WHOLE) - _WHOLE
    r = (x - n * _QUARTER) - n * _REST
    y = r * r
    c = (((1 / 20922789888000.0 * y - 1 / 87178291200.0) * y + 1 / 479001600.0) * y - 1 / 3628800.0) * y
    c = ((((c + 1 / 40320.0) * y - 1 / 720.0) * y + 1 / 24.0) * y - 0.5) * y + 1.0
    s = ((-1 / 1307674368000.0 * y + 1 / 6227020800.0) * y - 1 / 39916800.0) * y + 1 / 362880.0
    s = ((((s * y - 1 / 5040.0) * y + 1 / 120.0) * y - 1 / 6.0) * y) * r + r
    quarter = np.int32(n)
    cosine, sine = (s, c) if quarter & 1 else (c, s)
    return -cosine if (quarter + 1) & 2 else cosine, -sine if quarter & 2 else sine


@part
def _logarithm(exponent, m):
    """Return log(m 2^exponent), 1 <= m < 2, to 1e-16: the series of 2 artanh((m - 1) / (m + 1))."""
    large = m > _ROOT2
    m, exponent = (0.5 * m, exponent + 1.0) if large else (m, exponent)
    s = (m - 1.0) / (m + 1.0)
    y = s * s
    t = (((1 / 19.0 * y + 1 / 17.0) * y + 1 / 15.0) * y + 1 / 13.0) * y + 1 / 11.0
    t = (((t * y + 1 / 9.0) * y + 1 / 7.0) * y + 1 / 5.0) * y + 1 / 3.0
    return 2.0 * (t * y * s + s) + exponent * _LOG2


@part
def _words(block, key0, key1, index, words):
    """Write the words of BOX counters: first those that radii are made of, then those of the angles."""
    for i in range(BOX):
        c0, c1, c2, c3 = np.uint64(block + i) & _LOW, np.uint64(block + i) >> _WORD, np.uint64(index), _STREAM
        k0, k1 = key0, key1
        for _ in range(_ROUNDS):
            p0, p1 = _M0 * c0, _M1 * c2
            c0, c1, c2, c3 = (p1 >> _WORD) ^ c1 ^ k0, p1 & _LOW, (p0 >> _WORD) ^ c3 ^ k1, p0 & _LOW
            k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        words[i], words[BOX + i], words[2 * BOX + i], words[3 * BOX + i] = c0, c2, c1, c3


@kernel
def _draw(data, q, scale, key0, key1, index, begin, end, lanes):
    """Write the numbers of counters begin:end, of a matrix (p, q), to panels (panels, p, V)."""
    V, p = len(lanes), data.shape[1]
    flat = data.reshape(-1)
    words, numbers, row = np.empty(4 * BOX, np.uint64), np.empty(4 * BOX), np.empty(4 * BOX)
    mantissa, exponent = np.empty(2 * BOX), np.empty(2 * BOX)
    bits = mantissa.view(np.int64)
    for block in range(begin, end, BOX):
        _words(block, key0, key1, index, words)
        for i in range(2 * BOX):
            mantissa[i] = np.float64(words[i]) + 0.5
        for i in range(2 * BOX):
            exponent[i] = np.int32(bits[i] >> 52) - (1023 + 32)
            bits[i] = bits[i] & 0xFFFFFFFFFFFFF | 1023 << 52
        for i in range(2 * BOX):
            angle = _TURN * ((np.float64(words[2 * BOX + i]) + 0.5) * 2.0**-32)
            radius = np.sqrt(-2.0 * _logarithm(exponent[i], mantissa[i]))
            cosine, sine = _cosine_and_sine(angle)
            numbers[i], numbers[2 * BOX + i] = scale * (radius * cosine), scale * (radius * sine)
        for i in range(BOX):
            row[4 * i], row[4 * i + 1] = numbers[i], numbers[2 * BOX + i]
            row[4 * i + 2], row[4 * i + 3] = numbers[BOX + i], numbers[3 * BOX + i]
        first, last = 4 * block, 4 * (end if end < block + BOX else block + BOX)
        i, last = first, last if last < p * q else p * q
        while i < last:
            k, column = i // q, i % q
            o = (column // V * p + k) * V + column % V
            if i + V <= last and column + V <= q and column % V == 0:
                for v in range(V):
                    flat[o + v] = row[i - first + v]
                i += V
            else:
                flat[o] = row[i - first]
                i += 1


@kernel
def _write(X, center, R, phase, data, q, begin, end, shape):
    """Write cos((X - center) R + phase) of units begin:end to panels; R (panels, p, V), phase float64."""
    V = len(shape[3])
    n, p, panels = X.shape[0], X.shape[1], data.shape[1]
    flat, right = data.reshape(-1), R.reshape(-1)
    left, none = np.empty(UNIT * DEPTH, X.dtype), np.empty(0, X.dtype)
    total = np.empty(UNIT * WIDTH)
    for unit in range(begin, end):
        first = unit * UNIT
        groups = ((UNIT if n - first > UNIT else n - first) + V - 1) // V
        for a in range(0, panels, WIDTH // V):
            b = a + WIDTH // V if a + WIDTH // V < panels else panels
            for c in range(a, b):
                for i in range(groups * V):
                    for v in range(V):
                        total[((c - a) * groups * V + i) * V + v] = phase[c * V + v]
            for k in range(0, p, DEPTH):
                depth = DEPTH if p - k > DEPTH else p - k
                for g in range(groups):
                    _pack(X, first + g * V, k, depth, center, left, g * depth * V, shape[3])
                for c in range(a, b):
                    for g in range(groups):
                        t = ((c - a) * groups + g) * V * V
                        add_gram_tile(
                            left, g * depth * V, right, (c * p + k) * V, none, 0, depth, total, t, shape
                        )
            for c in range(a, b):
                o = ((first // ROWS * panels + c) * ROWS + first % ROWS) * V
                _cosines(total, (c - a) * groups * V * V, groups * V * V, flat, o)
        for c in range(q, panels * V):
            o = ((first // ROWS * panels + panels - 1) * ROWS + first % ROWS) * V + c % V
            for i in range(groups * V):
                flat[o + i * V] = 0


@part
def _pack(X, i, k, depth, center, out, o, lanes):
    """Write V rows of X - center, columns k:k + depth, to a panel: column by column; the last row stands for later."""
    V, last = len(lanes), X.shape[0] - 1
    whole = depth // V * V
    for j in range(0, whole, V):
        pack_transposed(X, i, last, k + j, center, out, o + j * V, lanes)
    for j in range(whole, depth):
        for v in range(V):
            row = i + v if i + v < last else last
            out[o + j * V + v] = X[row, k + j] - center[k + j]


@part
def _cosines(angles, t, count, out, o):
    t, o, far = np.uintp(t), np.uintp(o), False
    for i in range(np.uintp(count)):
        x = angles[t + i]
        far |= not abs(x) < FAR
        out[o + i] = _cosine_and_sine(x)[0]
    if far:
        for i in range(np.uintp(count)):
            out[o + i] = math.cos(angles[t + i])


def normal_panels(p: int, q: int, scale: float, seed: int, index: int, dtype: np.dtype) -> np.ndarray:
    """Return scale * N(0, 1), a matrix (p, q), as panels (panels, p, V), zeros beyond the last column.

    The numbers are those of :func:`pipeline.backends.philox.normal`, to their last digit or two.
    """
    V = lanes(np.dtype(dtype))
    data = np.empty((-(-q // V), p, V), dtype)
    data[q // V :, :, q % V :] = 0
    blocks, key = -(-p * q // 4), tuple(map(np.uint64, philox.split_seed(seed)))
    prepare(_draw, data, q, scale, *key, index, 0, 0, (0,) * V)
    kernels.share_rows(lambda a, b: _draw(data, q, scale, *key, index, a, b, (0,) * V), blocks, 4 * data.size)
    return data


def features(X: np.ndarray, center: np.ndarray, R: np.ndarray, phase: np.ndarray) -> Panels:
    """Return cos((X - center) R + phase), in the dtype of X; each row's numbers depend on no other row.

    Parameters
    ----------
    X : (n, p) float32 or float64, rows of adjacent numbers
    center : (p,)
    R : (panels, p, V), see :func:`normal_panels`
    phase : (q,)
    """
    adjacent(X)
    n, q, (panels, _, V) = len(X), phase.size, R.shape
    wide = np.zeros(panels * V)
    wide[:q] = phase
    found = Panels(np.empty((-(-n // ROWS), panels, ROWS, V), X.dtype), (n, q))
    classes, columns, _, vector = gram_shape(1, X.dtype)
    shape: tuple = (classes, columns, (0,), vector)
    rows = X, center.astype(X.dtype, copy=False), R, wide, found.data, q
    prepare(_write, *rows, 0, 0, shape)
    kernels.share(lambda i: _write(*rows, i, i + 1, shape), -(-n // UNIT), n * R.size > kernels.SERIAL)
    return found
