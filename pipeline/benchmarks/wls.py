"""Suite ``wls``: the weighted-least-squares fits of one boosting round, ridge penalty included.

For each class j the fit minimises sum_i w_ij (z_ij - b_j - (x_i - m)'beta_j)^2 + l2 |beta_j|^2, where m is the mean
of x. A row returns the coefficients (q, J); its error is the largest difference by the largest coefficient.

Every row is given the same: X, W and R = W Z in float32, and m. What its package wants instead (float64, centred
features, working responses, a table of its own) is made within the timed part.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from pipeline import backends
from pipeline.benchmarks import gpus
from pipeline.benchmarks.registry import Case, Setup, Work, largest_difference, row, suite

L2 = 1.0
PRECISE = {"float64": 1e-7, "float32": 1e-3}  # of coefficients from sums in that precision
DOUBLE = ("product", "float64")
NEARLY = 0.02  # coordinate descent that was ended


@suite("wls", share=0.12)
def case(setup: Setup) -> Case:
    """Return features like HoG's, and the weights and responses of a boosting round in mid-course."""
    n, q, J = setup.choose((2000, 128, 10), (500, 32, 4), (80, 5, 3))
    rng = np.random.default_rng(setup.seed)
    X = rng.random((n, q), dtype=np.float32) * np.float32(0.3)
    Y = np.eye(J)[rng.integers(0, J, n)]
    F = rng.normal(size=(n, J)) + Y
    P = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    W = (P * (1.0 - P)).astype(np.float32)
    R = (W * np.clip((Y - P) / W, -3.0, 3.0)).astype(np.float32)
    center = X.mean(axis=0, dtype=np.float64)
    data = SimpleNamespace(X=X, W=W, R=R, center=center, classes=J)
    reference = backends.get("reference")
    with reference.threads(1):  # not timed, and small: threads would only wait for each other
        data.wanted = np.asarray(reference.wls.fit(X, center, W, R, L2).coef)
    largest = float(np.abs(data.wanted).max())
    work = f"{J} weighted ridge fits of {n:,} x {q} float32"
    measure = "largest difference by the largest coefficient"

    def error(found: Any) -> float:
        return largest_difference(data.wanted)(found) / largest

    return Case(
        data,
        error,
        PRECISE["float32"],
        X.nbytes + W.nbytes + R.nbytes,
        measure,
        work,
        setup,
        operations=J * (n * q**2 + q**3 / 3),  # of symmetric Gram matrices and their Cholesky factors
        arithmetic=("product", "float32"),
    )


def _float64(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return centred features, weights and working responses z = r / w in float64."""
    W = case.data.W.astype(np.float64)
    return case.data.X.astype(np.float64) - case.data.center, W, case.data.R / W


@row("wls", "statsmodels (reference)")
def _reference(case: Case) -> Work:
    data, fit = case.data, backends.get("reference").wls.fit
    W, R = data.W[:, :1], data.R[:, :1]
    return Work(
        lambda: fit(data.X, data.center, W, R, L2).coef,
        scale=data.classes,
        error=largest_difference(data.wanted[:, :1]),
        tolerance=PRECISE["float64"],
        arithmetic=DOUBLE,
        note="pseudoinverse; one class, extrapolated",
    )


@row("wls", "cpu backend")
def _cpu(case: Case) -> Work:
    data, fit = case.data, backends.get("cpu").wls.fit
    return Work(lambda: fit(data.X, data.center, data.W, data.R, L2).coef)


@row("wls", "gpu backend", needs=("cupy",))
def _gpu(case: Case) -> Work:
    data, backend = case.data, gpus.backend(case.setup.device)
    assert backend.clock is not None  # a device has one
    finish = backend.clock.finish

    def run(given: tuple[Any, Any, Any, Any]) -> Any:
        X, center, W, R = given
        return backend.wls.fit(X, center, W, R, L2).coef

    return Work(
        run,
        put=lambda: tuple(backend.put(a) for a in (data.X, data.center, data.W, data.R)),
        get=backend.get,
        wait=lambda _: finish(),
        on_device=True,
    )


@row("wls", "NumPy")
def _numpy(case: Case) -> Work:
    data = case.data

    def run() -> np.ndarray:
        D, W, Z = _float64(case)
        coef = np.empty((D.shape[1], data.classes))
        for j in range(data.classes):
            w, z = W[:, j], Z[:, j]
            centred = D - w @ D / w.sum()  # takes the intercept out
            weighted = centred * w[:, None]
            coef[:, j] = np.linalg.solve(weighted.T @ centred + L2 * np.eye(D.shape[1]), weighted.T @ z)
        return coef

    return Work(
        run,
        tolerance=PRECISE["float64"],
        arithmetic=DOUBLE,
        note="normal equations in float64, a class at a time",
    )


@row("wls", "scikit-learn Ridge")
def _scikit_learn(case: Case) -> Work:
    from sklearn.linear_model import Ridge

    def run() -> np.ndarray:
        D, W, Z = _float64(case)
        fits = [Ridge(alpha=L2, solver="cholesky").fit(D, z, w) for z, w in zip(Z.T, W.T, strict=True)]
        return np.column_stack([fit.coef_ for fit in fits])

    return Work(
        run,
        tolerance=PRECISE["float64"],
        arithmetic=DOUBLE,
        note="solver cholesky, float64, a class at a time",
    )


@row("wls", "XGBoost gblinear", needs=("xgboost",))
def _xgboost(case: Case) -> Work:
    import xgboost

    settings = {
        "booster": "gblinear",
        "updater": "coord_descent",
        "feature_selector": "cyclic",
        "eta": 1.0,
        "reg_alpha": 0.0,
        "base_score": 0.0,
        "nthread": 1,  # its threads wait for each other at every coordinate, which costs more than they gain
        "verbosity": 0,
    }

    def run() -> np.ndarray:
        D, W, Z = _float64(case)
        coef = []
        for z, w in zip(Z.T, W.T, strict=True):
            table = xgboost.DMatrix(D, label=z, weight=w)
            penalty = {"reg_lambda": L2 / w.sum()}  # XGBoost multiplies it by the sum of the weights
            lines = xgboost.train({**settings, **penalty}, table, 60).get_dump()[0].splitlines()
            coef.append([float(line) for line in lines[lines.index("weight:") + 1 :]])
        return np.array(coef).T

    return Work(
        run, tolerance=NEARLY, note="60 passes of coordinate descent on one thread, a class at a time"
    )


def _torch(case: Case, place: str) -> Work:
    import torch

    torch.set_num_threads(case.setup.threads)
    data = case.data
    given = (data.X, data.center.astype(np.float32), data.W, data.R)

    def put():
        return [torch.from_numpy(a).to(place) for a in given]  # on the CPU they share the memory

    def run(given):
        X, center, W, R = given
        D, Z = X - center, R / W
        total = W.sum(0)
        shift = (W.T @ D) / total[:, None]  # (J, q)
        centred = D[None] - shift[:, None, :]  # (J, n, q)
        weighted = centred * W.T[:, :, None]
        gram = weighted.mT @ centred
        gram.diagonal(dim1=1, dim2=2).add_(L2)
        right = weighted.mT @ Z.T[:, :, None]
        return torch.cholesky_solve(right, torch.linalg.cholesky(gram))[:, :, 0].T

    work = Work(lambda: run(put()).numpy(), note="normal equations in float32, all classes in one batch")
    if place == "cpu":
        return work
    return work._replace(
        run=run,
        put=put,
        get=lambda coef: coef.cpu().numpy(),
        wait=lambda _: torch.cuda.synchronize(place),
        on_device=True,
    )


@row("wls", "PyTorch", needs=("torch",))
def _torch_cpu(case: Case) -> Work:
    return _torch(case, "cpu")


@row("wls", "PyTorch, GPU", needs=("torch-gpu",))
def _torch_gpu(case: Case) -> Work:
    return _torch(case, f"cuda:{case.setup.device}")
