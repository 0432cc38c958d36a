"""Bytes and operations of the stages equal counts taken while slow, plain programs do the same work."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import backends
from pipeline.backends import hog_rules
from pipeline.backends.hog_layout import HogLayout
from pipeline.boosting.loss import log_loss_sum, softmax, working_response
from pipeline.profiling import counts_rounds
from pipeline.profiling.counts import Count, counts, hog
from pipeline.profiling.work import Work

# Cells and blocks that are not square, and pixels right of and below the last cell.
LAYOUTS = [
    HogLayout((9, 14), 4, (4, 3), (2, 1)),
    HogLayout((11, 10), 9, (5, 3), (1, 3)),
    HogLayout((8, 8), 3, (2, 4), (3, 2)),
]
NAMES = ["tall cells", "wide blocks", "flat cells"]
layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=NAMES)


def work_of(layout, **changes):
    given = {
        "images": 7,
        "fit": 7,
        "watched": 0,
        "tested": 0,
        "classes": 3,
        "layout": layout,
        "preprocess": "none",
        "feature_bytes": 8,
        "number_bytes": 8,
        "backend": "cpu",
        "threads": 1,
        "learner": "ridge",
        "rounds": 1,
        "columns": layout.n_features,
        "source": "synthetic",
    }
    return Work(**(given | changes))


# ---- numbers that count what is done with them ----


class Number:
    """A number; every operation on it is counted."""

    done = 0

    def __init__(self, value):
        self.value = float(value)

    def _with(self, other, operation):
        Number.done += 1
        return Number(operation(self.value, other.value if isinstance(other, Number) else other))

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b)

    def root(self):
        return self._with(0.0, lambda a, _: math.sqrt(a))


class Memory:
    """A flat array in main memory; every read and write of an element is counted in bytes."""

    moved = 0

    def __init__(self, values, item):
        self.values, self.item = list(values), item

    def __getitem__(self, i):
        Memory.moved += self.item
        return self.values[i]

    def __setitem__(self, i, value):
        Memory.moved += self.item
        self.values[i] = value


@pytest.fixture(autouse=True)
def _zero():
    Number.done = Memory.moved = 0


# ---- HoG ----


def slow_hog(image, layout, norm):
    """HoG of one image in plain Python: features, float (p,). Pixels come from memory once, features go there once."""
    h, w = layout.image_shape
    memory = Memory(image.ravel().tolist(), 1)
    pixel = [[Number(memory[r * w + c]) for c in range(w)] for r in range(h)]
    (rows, cols), (ch, cw), bins = layout.cells, layout.pixels_per_cell, layout.orientations
    edges = hog_rules.cotangents(bins, np.dtype(float))
    hist = [[[Number(0) for _ in range(bins)] for _ in range(cols)] for _ in range(rows)]
    for r, c in itertools.product(range(rows * ch), range(cols * cw)):
        y = pixel[min(r + 1, h - 1)][c] - pixel[max(r - 1, 0)][c]
        x = pixel[r][min(c + 1, w - 1)] - pixel[r][max(c - 1, 0)]
        if r in (0, h - 1):
            y = Number(0)
        if c in (0, w - 1):
            x = Number(0)
        left = (x * x + y * y).root()
        sign = -1.0 if y.value < 0 or (y.value == 0 and x.value < 0) else 1.0
        x, y = x * sign, y * sign
        cell = hist[r // ch][c // cw]
        for k in range(bins):  # what is left after edge k belongs to later bins
            edge = y * (edges[k] if k < bins - 1 else -math.inf)
            after = left if x.value <= edge.value else Number(0)
            cell[k] = cell[k] + (left - after)
            left = after
    square = norm.startswith("L2")
    sums = [[Number(0) for _ in range(cols)] for _ in range(rows)]
    for r, c, k in itertools.product(range(rows), range(cols), range(bins)):
        hist[r][c][k] = v = hist[r][c][k] * (1.0 / (ch * cw))
        sums[r][c] = sums[r][c] + (v * v if square else v)
    return slow_blocks(hist, sums, layout, norm)


def slow_blocks(hist, sums, layout, norm):
    """The blocks of one image from its cells."""
    (bh, bw), bins, eps, square = layout.cells_per_block, layout.orientations, 1e-5, norm.startswith("L2")
    across = [[Number(0) for _ in range(layout.blocks[1])] for _ in range(layout.cells[0])]
    for r, c, j in itertools.product(range(layout.cells[0]), range(layout.blocks[1]), range(bw)):
        across[r][c] = across[r][c] + sums[r][c + j]
    out, at = Memory([0.0] * layout.n_features, 8), 0
    for r, c in itertools.product(range(layout.blocks[0]), range(layout.blocks[1])):
        total = Number(0)
        for i in range(bh):
            total = total + across[r + i][c]
        length = (total + eps * eps).root() if square else total + eps
        scale = Number(1) / length
        block = [hist[r + i][c + j][k] for i in range(bh) for j in range(bw) for k in range(bins)]
        if norm == "L2-Hys":
            total = Number(0)
            for v in block:
                clipped = Number(min((v * scale).value, 0.2))
                total = total + clipped * clipped
            again = Number(1) / (total + eps * eps).root()
        for v in block:
            feature = v * scale
            if norm == "L1-sqrt":
                feature = feature.root()
            if norm == "L2-Hys":
                feature = Number(min(feature.value, 0.2)) * again
            out[at] = feature.value
            at += 1
    return out


@layouts
@pytest.mark.parametrize("norm", ["L1", "L1-sqrt", "L2", "L2-Hys"])
def test_hog_equals_the_slow_program_and_its_count(layout, norm):
    n = 2
    pixels = np.random.default_rng(1).integers(0, 256, (n, *layout.image_shape), dtype=np.uint8)
    found = [slow_hog(image, layout, norm) for image in pixels]
    wanted = backends.get("cpu").hog.hog(pixels, layout, norm, False, "float64")
    np.testing.assert_allclose([features.values for features in found], wanted, atol=1e-12)
    for features in found:  # the look for NaN and infinity
        assert all(math.isfinite(features[i]) for i in range(layout.n_features))
    count = hog(work_of(layout, images=n, block_norm=norm))
    assert (count.operations, count.bytes) == (Number.done, Memory.moved)
    assert count.allocates == wanted.nbytes


# ---- a round of weighted least squares ----


def weighted(layout, J):
    rng = np.random.default_rng(5)
    n, p = 7, layout.n_features
    X, W, R = rng.normal(size=(n, p)), rng.uniform(0.1, 0.3, (n, J)), rng.normal(size=(n, J))
    return X, X.mean(axis=0), W, R


def slow_sums(X, center, W, R):
    """Return X'[R W] and the Gram matrices' lower triangles, counting as backends/cpu/wls_grams.py works."""
    (n, q), J = X.shape, W.shape[1]
    x, w, r = (Memory(array.ravel(), 8) for array in (X, W, R))
    products = [[Number(0) for _ in range(q)] for _ in range(2 * J)]
    grams = [[[Number(0) for _ in range(k + 1)] for k in range(q)] for _ in range(J)]
    for i in range(n):
        row = [Number(x[i * q + k]) - center[k] for k in range(q)]
        weights, responses = ([array[i * J + j] for j in range(J)] for array in (w, r))
        for j, v in enumerate(responses + weights):
            for k in range(q):
                products[j][k] = products[j][k] + row[k] * v
        for a in range(q):
            for b in range(a + 1):
                both = row[a] * row[b]
                for j in range(J):
                    grams[j][a][b] = grams[j][a][b] + both * weights[j]
    return products, grams


def slow_solve(gram, xw, xr, sw, sr, l2):
    """Solve one class's equations: means taken out, unit diagonal, Cholesky, two triangles."""
    q = len(gram)
    for a in range(q):
        for b in range(a + 1):
            gram[a][b] = gram[a][b] - Number(xw[a]) * (xw[b] / sw)
    scale = [1.0 / math.sqrt(gram[k][k].value + l2) for k in range(q)]
    full = [[gram[max(a, b)][min(a, b)] for b in range(q)] for a in range(q)]
    for k in range(q):
        full[k][k] = Number(full[k][k].value + l2)
    full = [[full[a][b] * scale[a] * scale[b] for b in range(q)] for a in range(q)]
    lower = [[Number(0)] * q for _ in range(q)]
    for j in range(q):
        v = full[j][j]
        for k in range(j):
            v = v - lower[j][k] * lower[j][k]
        lower[j][j] = v.root()
        for i in range(j + 1, q):
            v = full[i][j]
            for k in range(j):
                v = v - lower[i][k] * lower[j][k]
            lower[i][j] = v / lower[j][j]
    beta = [Number((xr[k] - xw[k] * sr / sw) * scale[k]) for k in range(q)]
    for i in range(q):
        for k in range(i):
            beta[i] = beta[i] - lower[i][k] * beta[k]
        beta[i] = beta[i] / lower[i][i]
    for i in reversed(range(q)):
        for k in range(i + 1, q):
            beta[i] = beta[i] - lower[k][i] * beta[k]
        beta[i] = beta[i] / lower[i][i]
    return [beta[k].value * scale[k] for k in range(q)]


@layouts
def test_a_ridge_round_equals_the_slow_program_and_its_count(layout):
    J, l2 = 3, 0.7
    X, center, W, R = weighted(layout, J)
    found = counts(work_of(layout, classes=J))
    products, grams = slow_sums(X, center, W, R)
    assert found["boost/sums"].operations == Number.done
    assert found["boost/sums"].bytes == Memory.moved
    sums, sw, sr = [[v.value for v in row] for row in products], W.sum(axis=0), R.sum(axis=0)
    Number.done = 0
    coef = [slow_solve(grams[j], sums[J + j], sums[j], sw[j], sr[j], l2) for j in range(J)]
    assert found["boost/solve"].operations == pytest.approx(Number.done, rel=1e-12)
    wanted = backends.get("cpu").wls.fit(X, center, W, R, l2)
    np.testing.assert_allclose(np.transpose(coef), wanted.coef, atol=1e-9)


@layouts
def test_two_classes_need_one_fit(layout):
    one, three = (counts(work_of(layout, classes=J))["boost/solve"].operations for J in (2, 3))
    assert three == pytest.approx(3 * one)


@layouts
def test_componentwise_sums_equal_the_slow_program(layout):
    J = 3
    X, center, W, R = weighted(layout, J)
    (n, p), x = X.shape, Memory(X.ravel(), 8)
    separate, together = Memory(np.hstack([R, W]).ravel(), 8), Memory([0.0] * (2 * n * J), 8)
    for i in range(2 * n * J):
        together[i] = separate[i]
    total = [[Number(0) for _ in range(p)] for _ in range(3 * J)]
    for i in range(n):
        row = [Number(x[i * p + k]) - center[k] for k in range(p)]
        squares = [v * v for v in row]
        factors = [together[i * 2 * J + j] for j in range(2 * J)]
        factors += factors[J:]  # the weights serve x and its square
        for j, v in enumerate(factors):
            for k in range(p):
                total[j][k] = total[j][k] + (row[k] if j < 2 * J else squares[k]) * v
    count = counts(work_of(layout, classes=J, learner="componentwise"))["boost/sums"]
    assert (count.operations, count.bytes) == (Number.done, Memory.moved)
    wanted = backends.get("cpu").wls.componentwise_sums(X, center, W, R)
    got = np.array([[v.value for v in row] for row in total])
    np.testing.assert_allclose(got, np.hstack([wanted.xr, wanted.xw, wanted.xxw]).T, atol=1e-9)


@layouts
@pytest.mark.parametrize("J", [1, 3])
def test_values_of_a_step_equal_the_slow_program(layout, J):
    X, center, _, _ = weighted(layout, J)
    (n, p), coef = X.shape, np.random.default_rng(2).normal(size=(layout.n_features, J))
    x, out = Memory(X.ravel(), 8), Memory([0.0] * (n * J), 8)
    for i in range(n):
        row = [Number(x[i * p + k]) - center[k] for k in range(p)]
        for j in range(J):
            terms = [v * coef[k, j] for k, v in enumerate(row)]
            total = Number(0)
            for term in terms:
                total = total + term
            out[i * J + j] = (total + 0.25).value
    count = counts_rounds.product(work_of(layout), n, p, J)
    assert (count.operations, count.bytes) == (Number.done, Memory.moved)
    wanted = backends.get("cpu").wls.apply(X, center, coef, np.full(J, 0.25))
    np.testing.assert_allclose(np.reshape(out.values, (n, J)), wanted, atol=1e-12)


@pytest.mark.parametrize(("p", "q", "line"), [(12, 2, 4), (13, 3, 4), (9, 4, 8), (5, 5, 2), (20, 1, 16)])
def test_lines_read_for_some_columns_are_those_of_all_choices(p, q, line):
    touched = [len({k // line for k in chosen}) for chosen in itertools.combinations(range(p), q)]
    assert counts_rounds.lines_read(p, q, line) == pytest.approx(np.mean(touched), rel=1e-12)


# ---- scores: the program's own array code, on arrays that count ----


class Tallied(np.ndarray):
    """An array whose operations count the bytes that they read and write, and themselves."""

    moved = done = 0
    FREE = ("greater", "less", "maximum", "absolute", "sign")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **named):
        plain = [np.asarray(v) if isinstance(v, np.ndarray) else v for v in inputs]
        if out is not None:
            named["out"] = tuple(np.asarray(v) for v in out)
        result = np.asarray(getattr(ufunc, method)(*plain, **named))
        Tallied.moved += sum(v.nbytes for v in plain if isinstance(v, np.ndarray)) + result.nbytes
        if ufunc.__name__ not in self.FREE:
            Tallied.done += plain[0].size if method == "reduce" else result.size
        return result.view(Tallied)

    def __array_function__(self, function, types, arguments, named):
        if function not in (np.where, np.full_like):
            return super().__array_function__(function, types, arguments, named)
        plain = [np.asarray(v) if isinstance(v, np.ndarray) else v for v in arguments]
        result = function(*plain, **named)
        read = [v.nbytes for v in plain if isinstance(v, np.ndarray)] if function is np.where else []
        Tallied.moved += sum(read) + result.nbytes
        return result.view(Tallied)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "J"), [(30, 3), (50, 4), (20, 7)])
def test_the_scores_of_a_round_are_the_passes_of_their_expressions(n, J, dtype):
    rng, size = np.random.default_rng(0), np.dtype(dtype).itemsize
    F, values = (rng.normal(size=(n, J)).astype(dtype).view(Tallied) for _ in range(2))
    Y = np.eye(J, dtype=dtype)[rng.integers(0, J, n)].view(Tallied)
    weight = np.ones(n, dtype=dtype).view(Tallied)
    Tallied.moved = Tallied.done = 0
    working_response(np, Y, softmax(np, F), weight, 3.0, "gradient", 1e-7)
    moved = F + 0.3 * (values - np.mean(values, axis=1, keepdims=True))
    np.max(np.abs(moved))
    log_loss_sum(np, moved, Y, weight)
    work = work_of(LAYOUTS[0], fit=n, classes=J, number_bytes=size, backend="reference")
    update = counts_rounds.targets(work) + counts_rounds.advance(work, n)
    assert (update.operations, update.bytes) == (Tallied.done, Tallied.moved)
    work = work_of(LAYOUTS[0], fit=n, classes=J, number_bytes=size)  # of the cpu backend each array once
    found = counts_rounds.targets(work) + counts_rounds.advance(work, n)
    scores = backends.get("cpu").scores
    given = np.asarray(F), scores.targets(np.zeros(n, np.intp), J), np.asarray(weight)
    rules = 3.0, "gradient", 1e-7
    moved, _, (W, R) = scores.advance(given[0], np.asarray(values), 0.3, *given[1:], rules)
    arrays = [*given, values, moved, W, R]
    assert found.bytes == sum(array.nbytes for array in arrays)
    twice = 3 * n * J  # the exponentials of differences, and their sum
    assert found.operations == Tallied.done - twice


# ---- whole runs: closed forms, and the figures of docs/gpu.md ----

LARGE = HogLayout((50, 100))


def large(**changes):
    given = {"images": 12_500, "fit": 10_000, "tested": 2500, "classes": 10, "columns": 3240}
    return work_of(LARGE, **(given | {"feature_bytes": 4, "number_bytes": 4, "threads": 2} | changes))


def test_closed_forms_of_a_large_run():
    found = counts(large(learner="subspace", columns=128, rounds=100))
    n, p, q, J = 10_000, 3240, 128, 10
    assert found["hog"].bytes == 12_500 * (5000 + 2 * 4 * p)
    assert found["hog"].operations == 12_500 * (
        6 * 12 * 64 * (8 + 27) + 72 * 27 + 6 * 10 * 3 + 40 * 6 + 40 * 3 + 5 * p
    )
    assert found["boost/columns"].operations == 100 * n * q
    assert found["boost/columns"].allocates == n * q * 4
    gram = (J + 1 / 2) * n * q * (q + 1)
    assert found["boost/sums"].operations == 100 * (gram + n * q * 41)
    # two blocks of columns, three pairs of them
    assert found["boost/sums"].bytes == 100 * 4 * (2 * n * q + 5 * n * J)
    cholesky = q**3 / 3 + q**2 / 2 + q / 6
    assert found["boost/solve"].operations == pytest.approx(100 * J * (cholesky + 5 * q**2 + q))
    assert found["boost/solve"].bytes == 0  # a matrix of 128 kB stays in cache
    assert counts(large())["boost/solve"].bytes == J * (8 * 3 + 8) * p * p
    assert found["boost/set-up"].bytes == n * p * 2 * 4
    assert found["evaluate"].operations == 2500 * (p + 20 * p + 10)
    assert "boost/refine" not in found
    assert "copy to device" not in found


def test_each_round_costs_the_same():
    once, often = (counts(large(learner="subspace", columns=128, rounds=r, watched=900)) for r in (1, 50))
    for key, count in once.items():
        if key.startswith("boost/") and key != "boost/set-up":
            assert often[key].bytes == pytest.approx(50 * count.bytes)
            assert often[key].operations == pytest.approx(50 * count.operations)
            assert often[key].allocates == count.allocates
        else:
            assert often[key].bytes == count.bytes


@pytest.mark.parametrize(
    ("learner", "q", "stage", "figure", "wanted"),
    [
        ("subspace", 128, "sums", "operations", 3.3e9),
        ("ridge", 3240, "sums", "operations", 1310e9),
        ("componentwise", 3240, "sums", "operations", 1.9e9),
        ("random_features", 512, "columns", "operations", 33e9),
        ("random_features", 512, "columns", "bytes", 450e6),
        ("subspace", 128, "sums", "bytes", 129e6),
        ("ridge", 3240, "sums", "bytes", 7.1e9),
        ("ridge", 3240, "update", "bytes", 394e6),
    ],
)
def test_the_gpu_works_as_docs_say(learner, q, stage, figure, wanted):
    found = counts(large(backend="gpu", learner=learner, columns=q))[f"boost/{stage}"]
    assert getattr(found, figure) == pytest.approx(wanted, rel=0.06)


def test_pixels_go_up_once_and_the_model_comes_home():
    found = counts(large(backend="gpu", rounds=100))
    assert found["copy to device"].to_device == 12_500 * 5000
    assert found["copy back"].to_host == 100 * 3241 * 10 * 8
    streamed = counts(large(backend="gpu", rounds=100), streamed=True)["copy to device"].to_device
    assert streamed == 12_500 * 5000 + 3240 * 4 * (100 * 3 * 10_000 + 2 * 10_000 + 2500)


def test_refinement_is_for_float64_and_delicate_learners():
    assert "boost/refine" in counts(large(number_bytes=8))
    assert "boost/refine" in counts(large(number_bytes=8, backend="gpu"))
    assert "boost/refine" not in counts(large(number_bytes=8, backend="reference"))
    for learner, refined in (
        ("full", True),
        ("random_features", True),
        ("ridge", False),
        ("subspace", False),
    ):
        assert ("boost/refine" in counts(large(learner=learner))) == refined
        assert ("boost/refine" in counts(large(learner=learner, backend="gpu"))) == refined


@layouts
def test_refinement_equals_the_slow_program_and_its_count(layout):
    J = 3
    X, center, W, R = weighted(layout, J)
    (n, q), (x, w, r) = X.shape, (Memory(array.ravel(), 8) for array in (X, W, R))
    coef, intercept = np.random.default_rng(2).normal(size=(q, J)), [0.25, 0.5, -1.0]
    found = [[Number(0) for _ in range(q + 1)] for _ in range(J)]
    for i in range(n):
        row = [Number(x[i * q + k]) - center[k] for k in range(q)]
        for j in range(J):
            fit = Number(intercept[j])
            for k in range(q):
                fit = fit + row[k] * coef[k, j]
            residual = Number(r[i * J + j]) - fit * w[i * J + j]
            for k in range(q):
                found[j][k] = found[j][k] + residual * row[k]
            found[j][q] = found[j][q] + residual
    count = counts(work_of(layout, classes=J))["boost/refine"]
    assert count.operations == Number.done + J * 2 * q * q  # the triangles, as in the solution
    assert count.bytes == Memory.moved
    xr, sr = backends.get("cpu").wls.residual_sums(X, center, W, R, slice(0, J), coef, np.array(intercept))
    got = np.array([[v.value for v in row] for row in found])
    np.testing.assert_allclose(got, np.column_stack([xr.T, sr]), atol=1e-12)


def test_rough_fits_take_more_steps_of_refinement():
    n, q, J = 10_000, 128, 10
    exact = counts(large(learner="random_features", columns=q))["boost/refine"]
    assert exact.bytes == 4 * (n * q + 2 * n * J)
    for learner, steps, number in (("subspace", 2, 4), ("random_features", 4, 8)):
        found = counts(large(learner=learner, columns=q, rough=True))["boost/refine"]
        assert found.bytes == steps * exact.bytes  # each step reads the rows once
        assert found.operations == steps * (exact.operations - n * q)  # their columns are centred
        assert found.number_bytes == number


@pytest.mark.parametrize(
    ("q", "J", "times"),
    [(128, 10, 2), (256, 43, 2), (512, 10, 11), (128, 2, 2)],
    ids=["once", "many classes", "each", "two classes"],
)
def test_rough_sums(q, J, times):
    """One pass for the other sums; rows are rounded for all classes together, or by each for itself."""
    n, fits = 10_000, 1 if J == 2 else J
    found = counts(large(learner="subspace", columns=q, classes=J, rough=True))["boost/sums"]
    assert found.bytes == 4 * (times * n * q + 9 * n * fits)
    assert found.operations == fits * n * (5 * q + q * (q + 1) / 2)


def test_statsmodels_does_sums_and_solution_in_one():
    found, cpu = (counts(large(backend=b, number_bytes=8)) for b in ("reference", "cpu"))
    assert "boost/sums" not in found
    assert found["boost/solve"].operations == cpu["boost/solve"].operations + cpu["boost/sums"].operations


def test_files_are_counted_where_they_are_read():
    folder = counts(large(source="folder", files=12_500, file_bytes=30_000_000))
    assert folder["decode"].file_bytes == 30_000_000
    assert folder["decode"].bytes == 30_000_000 + 12_500 * 5000
    packed = counts(large(source="packed", files=1, file_bytes=62_500_000))
    assert "decode" not in packed
    assert packed["split"].file_bytes == 12_500 * 5000


def test_counts_add_up_and_take_the_larger_memory():
    total = Count(1, 2, 30, 4, 5) + Count(10, 20, 3, 40, 50)
    assert (total.bytes, total.operations, total.allocates) == (11, 22, 30)
    assert (total.to_device, total.to_host) == (44, 55)


def test_chosen_feature_passes():
    """The expressions that choose a feature read and write what is counted for them, within a tenth."""
    from pipeline.boosting.learners import Componentwise

    p, J, n = 4000, 3, 5
    rng = np.random.default_rng(0)
    xr, xw, xxw = (rng.uniform(1.0, 2.0, (p, J)).view(Tallied) for _ in range(3))
    backend = SimpleNamespace(xp=np, get=np.asarray, put=np.asarray)
    design = SimpleNamespace(backend=backend, dtype="float64", fitted_classes=J)
    W = rng.uniform(0.1, 0.2, (n, J))
    Tallied.moved = Tallied.done = 0
    sums = SimpleNamespace(xr=xr, xw=xw, xxw=xxw, sw=W.sum(axis=0), sr=W.sum(axis=0))
    Componentwise._chosen(design, sums, 0)
    count = counts(work_of(LAYOUTS[0], learner="componentwise"))["boost/solve"]
    each = count.bytes / (LAYOUTS[0].n_features * 3)
    assert Tallied.moved / (p * J) == pytest.approx(each, rel=0.1)
    operations = count.operations / (LAYOUTS[0].n_features * 3)
    assert Tallied.done / (p * J) == pytest.approx(operations, rel=0.1)
