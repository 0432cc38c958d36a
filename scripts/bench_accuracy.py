"""Held-out accuracy of every learner on sets of labelled images, beside scikit-learn's linear models.

    python scripts/bench_accuracy.py set1.npz set2.npz ... [--reduce 0.95]
    python scripts/bench_accuracy.py set1.npz --models subspace statsmodels LogisticRegression LinearSVC \
        HistGradientBoosting gblinear

`statsmodels` is the default learner on the reference backend, which calls statsmodels' WLS for each class and round.
Its seconds are extrapolated from five rounds (printed with "~"); its model is that of `subspace`, so its accuracy is
that of these five rounds and not shown. `gblinear` is XGBoost's linear booster, if that is installed.

Each set is an .npz with `images` (n, rows, cols) and `labels`. Default HoG features; stratified 80/20 split, seed 0
(scikit-learn's train_test_split); learners with the settings of conf/classifier. Seconds are for the fit alone.

With --reduce each model is fitted twice: to all features, and to their principal components (PCs), which are found
from the training images. The seconds of the second hold those of finding the components and of reducing the training
images, which are shown again in brackets.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from pipeline import HogExtractor, LogitBoostClassifier, PcaReducer, backends


def _gblinear() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(booster="gblinear", n_estimators=100)


CONF = Path(__file__).resolve().parent.parent / "conf" / "classifier"
PEERS: dict[str, Callable[[], Any]] = {
    "LogisticRegression": lambda: LogisticRegression(max_iter=1000),
    "LinearSVC": LinearSVC,
}
MORE: dict[str, Callable[[], Any]] = {
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "gblinear": _gblinear,
    "statsmodels": lambda: LogitBoostClassifier(
        **(settings("subspace") | {"n_rounds": SAMPLE}), random_state=0, backend="reference"
    ),
}
SAMPLE = 5  # rounds of statsmodels that are timed
LEARNERS = ("subspace", "ridge", "componentwise", "random_features", "full")


def settings(learner: str) -> dict:
    params = yaml.safe_load((CONF / f"{learner}.yaml").read_text())
    if "gamma" in params:
        params["gamma"] = tuple(params["gamma"])
    return params


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument(
        "--models", nargs="+", default=(*PEERS, *LEARNERS), choices=(*PEERS, *LEARNERS, *MORE)
    )
    parser.add_argument("--seeds", type=int, default=1, help="random states of the learner to average over")
    parser.add_argument(
        "--reduce",
        type=float,
        help="also fit to principal components: a share of the variance below 1, or a number of components",
    )
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    if absent := [str(path) for path in options.sets if not path.is_file()]:
        parser.error(
            f"{', '.join(absent)}: no such file; expected packed sets, as python -m pipeline pack makes them"
        )
    print(f"{'set':24} {'model':28} {'accuracy':>9} {'balanced':>9} {'log-loss':>9} {'seconds':>8}")
    with backends.get("cpu").threads(options.threads):
        for path in options.sets:
            one_set(path, options)


def one_set(path: Path, options: argparse.Namespace) -> None:
    with np.load(path, allow_pickle=False) as arrays:
        X, y = HogExtractor().fit_transform(arrays["images"]), arrays["labels"]
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)
    for name in options.models:
        for share in (None, options.reduce) if options.reduce else (None,):
            rows = [measure(model, X, y, train, test, share) for model in repeats(name, options.seeds)]
            accuracy, balanced, loss, seconds, reducing, width = np.mean(rows, axis=0)
            shown = "" if np.isnan(loss) else f"{loss:.4f}"
            label = name if share is None else f"{name}, {width:.0f} PCs"
            if name == "statsmodels":
                rounds = settings("subspace")["n_rounds"]
                print(f"{path.stem:24} {label:28} {'':29} ~{seconds * rounds / SAMPLE:.0f}", flush=True)
                continue
            line = f"{path.stem:24} {label:28} {accuracy:9.4f} {balanced:9.4f} {shown:>9} {seconds:8.2f}"
            print(line if share is None else f"{line} ({reducing:.2f})", flush=True)


def repeats(name: str, seeds: int) -> list:
    """Return untrained models whose figures are averaged: one of a peer, one per random state of a learner."""
    if name in PEERS or name in MORE:
        return [(PEERS | MORE)[name]()]
    return [LogitBoostClassifier(**settings(name), random_state=seed) for seed in range(seeds)]


def measure(model, X, y, train, test, reduce: float | None) -> tuple[float, ...]:
    """Return accuracy, balanced accuracy, log-loss, seconds of the fit, of them to reduce, and features fitted to."""
    X_fit, X_test = X[train], X[test]
    start = time.perf_counter()
    reducing = 0.0
    if reduce is not None:
        reducer = PcaReducer(variance=reduce) if reduce < 1.0 else PcaReducer(components=int(reduce))
        X_fit = reducer.fit(X_fit).transform(X_fit)
        reducing = time.perf_counter() - start
        X_test = reducer.transform(X_test)
    begin = time.perf_counter()
    model.fit(X_fit, y[train])
    seconds = reducing + time.perf_counter() - begin
    found = model.predict(X_test)
    loss = log_loss(y[test], model.predict_proba(X_test)) if hasattr(model, "predict_proba") else np.nan
    balanced = balanced_accuracy_score(y[test], found)
    return float((found == y[test]).mean()), balanced, loss, seconds, reducing, X_fit.shape[1]


if __name__ == "__main__":
    main()
