"""Rung 2: the kernels around the weighted least squares, run on the CPU, against NumPy and the cpu backend."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.backends import cpu, philox
from pipeline.backends.gpu import launch, wls_plan
from pipeline.boosting import loss
from tests.cuda_on_host.build import need_compiler
from tests.cuda_on_host.host import Host, poisoned

DTYPES = ["float32", "float64"]
SCHEDULES = [("forward", 0), ("reverse", 0), ("random", 3)]
TOLERANCE = {"float32": 1e-6, "float64": 1e-13}


@pytest.fixture(params=SCHEDULES, ids=[name for name, _ in SCHEDULES])
def host(request) -> Host:
    need_compiler()
    return Host(schedule=request.param[0], seed=request.param[1])


def problem(n: int, p: int, J: int, dtype: str):
    rng = np.random.default_rng(n + p + J)
    X = rng.normal(1.0, 2.0, (n, p)).astype(dtype)
    W = (rng.random((n, J)) * (rng.random((n, J)) > 0.2)).astype(dtype)
    R = (W * rng.normal(size=(n, J))).astype(dtype)
    return X, X.mean(axis=0), W, R


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "p", "q"), [(1, 1, 1), (37, 300, 130), (5000, 9, 4)])
def test_gather_center(host, dtype, n, p, q):
    X, center, _, _ = problem(n, p, 1, dtype)
    columns = np.sort(np.random.default_rng(0).choice(p, q, replace=False))
    out = poisoned((n, q), dtype)
    plan = wls_plan.gather(X.dtype, n, q)
    host.run(plan, X, columns.astype(np.int32), center, out, n, p, q)
    np.testing.assert_array_equal(out, cpu.wls.gather(X, columns, center))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "q", "J", "first", "batch"), [(1, 1, 1, 0, 1), (33, 150, 7, 2, 4), (4100, 3, 2, 0, 2)]
)
def test_center_scale(host, dtype, n, q, J, first, batch):
    X, center, W, _ = problem(n, q, J, dtype)
    out = poisoned((batch, n, q), dtype)
    host.run(wls_plan.center_scale(X.dtype, n, q), X, center, W, out, n, q, J, first, batch)
    wanted = np.sqrt(W[:, first : first + batch]).T[:, :, None] * (X - center)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "p", "J"), [(1, 1, 1), (511, 64, 2), (513, 65, 3), (700, 70, 13), (1100, 33, 10), (2000, 5, 12)]
)
def test_componentwise_sums(host, dtype, n, p, J):
    X, center, W, R = problem(n, p, J, dtype)
    got = host.componentwise(X, center, W, R)
    centred = (X - center).astype(np.float64)
    W64, R64 = W.astype(np.float64), R.astype(np.float64)
    terms = [(centred, R64), (centred, W64), (centred**2, W64)]
    for sums, (columns, weights) in zip(got, terms, strict=True):
        magnitude = (np.abs(columns).T @ np.abs(weights)).T
        assert (np.abs(sums - (columns.T @ weights).T) <= TOLERANCE[dtype] * magnitude + 1e-300).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_componentwise_sums_equal_the_cpu_backend(host, dtype):
    X, center, W, R = problem(900, 40, 4, dtype)
    got = host.componentwise(X, center, W, R)
    size = np.abs(X - center).T
    magnitudes = (size @ np.abs(R), size @ W, size**2 @ W)
    for sums, wanted, magnitude in zip(
        got, cpu.wls.componentwise_sums(X, center, W, R), magnitudes, strict=True
    ):
        # the cpu backend's float32 sums are off by as much; the kernel's by a tenth of it
        assert (np.abs(sums.T - wanted) <= 2 * TOLERANCE[dtype] * magnitude).all()


def test_long_float_sums_stay_exact():
    """A float32 sum has 64 terms at most, so 200,000 rows add up as exactly as 64 do."""
    need_compiler()
    n = 200_000
    X = np.full((n, 1), 0.1, np.float32)
    W = np.full((n, 1), 0.3, np.float32)
    got = Host().componentwise(X, np.zeros(1, np.float32), W, W)
    wanted = n * np.float64(np.float32(0.1)) * np.float64(np.float32(0.3))
    np.testing.assert_allclose(got[0, 0, 0], wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 1023, 5001])
@pytest.mark.parametrize(("seed", "index"), [(0, 0), (2**64 - 1, 7), (12345678901234567890, 2**31)])
def test_scaled_normal_gives_the_shared_numbers(dtype, count, seed, index):
    need_compiler()
    out = poisoned(count, dtype)
    key0, key1 = philox.split_seed(seed)
    Host().run(wls_plan.scaled_normal(out.dtype, count), out, count, 1.5, key0, key1, index)
    wanted = 1.5 * philox.normal(count, seed, index)
    np.testing.assert_allclose(out, wanted.astype(dtype), rtol=TOLERANCE[dtype], atol=1e-15)


def test_scaled_normal_counts_beyond_32_bits():
    """A counter has 64 bits: its upper word must reach the generator. (The kernel is made to start there.)"""
    need_compiler()

    def start_high(_, code):
        assert code.count("= (unsigned long long)blockIdx.x") == code.count("4 * (long long)counter") == 1
        code = code.replace("= (unsigned long long)blockIdx.x", "= (1ull << 32) + blockIdx.x")
        return code.replace("4 * (long long)counter", "4 * (long long)(unsigned int)counter")

    out = poisoned(8, np.float64)
    Host(edit=start_high).run(wls_plan.scaled_normal(out.dtype, 8), out, 8, 1.0, 5, 6, 3)
    words = philox.philox4x32((np.arange(2, dtype=np.uint64), 1, 3, philox.NORMAL_STREAM), (5, 6))
    u = (np.stack(words, axis=1) + 0.5) * 2.0**-32
    first = np.sqrt(-2.0 * np.log(u[:, 0])) * np.cos(2.0 * np.pi * u[:, 1])
    np.testing.assert_allclose(out[::4], first, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cosine(host, dtype):
    rng = np.random.default_rng(2)
    values = (rng.normal(size=(300, 7)) * 10.0 ** rng.integers(-3, 4, (300, 7))).astype(dtype)
    shift = (2.0 * np.pi * rng.random(7)).astype(dtype)
    wanted = np.cos((values + shift).astype(np.float64))
    host.run(wls_plan.cosine(values.dtype, values.size), values, shift, values.size, 7)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=2.5e-7 if dtype == "float32" else 2e-12)


def scores(n: int, J: int, dtype: str):
    rng = np.random.default_rng(J)
    F = (rng.normal(size=(n, J)) * 4).astype(dtype)
    F[0] = 0
    F[-1] = 80 * np.where(np.arange(J) % 2, 1, -1)
    labels = rng.integers(0, J, n).astype(np.int32)
    return F, labels, rng.random(n).astype(dtype), np.eye(J, dtype=dtype)[labels]


@pytest.mark.parametrize("clip", ["gradient", "paper"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "J"), [(1, 2), (130, 2), (77, 3), (41, 10), (50, 32), (20, 33), (9, 300)])
def test_working_response(host, dtype, n, J, clip):
    F, labels, weight, Y = scores(n, J, dtype)
    floor = loss.WEIGHT_FLOOR[dtype]
    W, R = poisoned((n, J), dtype), poisoned((n, J), dtype)
    plan = wls_plan.working_response(F.dtype, n, J)
    losses, total = poisoned(plan.grid[0], np.float64), poisoned(1, np.float64)
    host.run(plan, F, labels, weight, W, R, losses, n, J, 3.0, floor, int(clip == "gradient"))
    host.run(wls_plan.sum_in_order(), losses, total, len(losses))
    P = loss.softmax(np, F)
    wanted = loss.working_response(np, Y, P, weight, 3.0, clip, floor)
    rounding = 4e-7 if dtype == "float32" else 4e-15
    np.testing.assert_allclose(R, wanted[1], rtol=0, atol=rounding)
    np.testing.assert_allclose(W, wanted[0], rtol=0, atol=rounding)
    wanted_loss = loss.log_loss(
        np, F.astype(np.float64), Y.astype(np.float64), weight.astype(np.float64), 1.0
    )
    np.testing.assert_allclose(total[0], wanted_loss, rtol=4 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "J"), [(1, 1), (3000, 2), (77, 9), (20, 70)])
def test_log_loss(host, dtype, n, J):
    F, labels, weight, Y = scores(n, J, dtype)
    plan = wls_plan.log_loss(F.dtype, n, J)
    losses, total = poisoned(plan.grid[0], np.float64), poisoned(1, np.float64)
    host.run(plan, F, labels, weight, losses, n, J)
    host.run(wls_plan.sum_in_order(), losses, total, len(losses))
    wanted = loss.log_loss(np, F.astype(np.float64), Y.astype(np.float64), weight.astype(np.float64), 1.0)
    np.testing.assert_allclose(total[0], wanted, rtol=4 * TOLERANCE[dtype], atol=1e-300)


def test_more_rows_than_blocks_take_turns(monkeypatch):
    need_compiler()
    monkeypatch.setattr(wls_plan, "LOSS_BLOCKS", 3)
    F, labels, weight, Y = scores(901, 10, "float64")
    plan = wls_plan.log_loss(F.dtype, 901, 10)
    losses, total = poisoned(3, np.float64), poisoned(1, np.float64)
    Host().run(plan, F, labels, weight, losses, 901, 10)
    Host().run(wls_plan.sum_in_order(), losses, total, 3)
    np.testing.assert_allclose(total[0], loss.log_loss(np, F, Y, weight, 1.0), rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "J"), [(1, 1), (300, 2), (77, 9), (20, 32), (20, 70)])
def test_update_scores(host, dtype, n, J):
    F, _, _, _ = scores(n, J, dtype)
    values = np.random.default_rng(1).normal(size=(n, J)).astype(dtype)
    updated, largest = poisoned((n, J), dtype), poisoned(n, dtype)
    host.run(wls_plan.update_scores(F.dtype, n, J), F, values, updated, largest, n, J, 0.3)
    wanted = F + 0.3 * (values.astype(np.float64) - values.mean(axis=1, keepdims=True, dtype=np.float64))
    np.testing.assert_allclose(updated, wanted, rtol=2 * TOLERANCE[dtype], atol=2 * TOLERANCE[dtype])
    np.testing.assert_array_equal(largest, np.abs(updated).max(axis=1))


@pytest.mark.parametrize("count", [1, 255, 256, 257, 2000])
def test_sum_in_order(host, count):
    values = np.random.default_rng(count).normal(size=count)
    total = poisoned(1, np.float64)
    host.run(wls_plan.sum_in_order(), values, total, count)
    np.testing.assert_allclose(total[0], values.sum(), rtol=1e-12, atol=1e-13)


def test_sums_repeat_bit_by_bit_under_every_schedule():
    need_compiler()
    X, center, W, R = problem(1300, 70, 5, "float32")
    results = [Host(schedule=order, seed=seed).componentwise(X, center, W, R) for order, seed in SCHEDULES]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_arguments_are_checked_against_the_launch_table():
    plan = wls_plan.sum_in_order()
    values, total = np.zeros(4), np.zeros(1)
    for arguments, error, words in [
        ((values, total), TypeError, "takes 3 arguments, not 2"),
        ((values.astype(np.float32), total, 4), TypeError, "values must be an array of float64, not float32"),
        ((values[::2], total, 2), ValueError, "values must be C-contiguous"),
        ((values, total, values), TypeError, "count must be a number"),
        ((values, total, 2.5), TypeError, "count must be a whole number"),
        ((values, total, 2**31), OverflowError, "out of bounds"),
    ]:
        with pytest.raises(error, match=words):
            launch.bind(plan, arguments)
