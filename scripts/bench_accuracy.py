"""Held-out accuracy of every learner on sets of labelled images, beside scikit-learn's linear models.

    python scripts/bench_accuracy.py set1.npz set2.npz ...

Each set is an .npz with `images` (n, rows, cols) and `labels`. Default HoG features; stratified 80/20 split, seed 0
(scikit-learn's train_test_split); learners with the settings of conf/classifier. Seconds are for the fit alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import yaml
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from pipeline import HogExtractor, LogitBoostClassifier, backends

CONF = Path(__file__).resolve().parent.parent / "conf" / "classifier"
PEERS = {"LogisticRegression": lambda: LogisticRegression(max_iter=1000), "LinearSVC": LinearSVC}
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
    parser.add_argument("--models", nargs="+", default=(*PEERS, *LEARNERS), choices=(*PEERS, *LEARNERS))
    parser.add_argument("--seeds", type=int, default=1, help="random states of the learner to average over")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    print(f"{'set':24} {'model':20} {'accuracy':>9} {'balanced':>9} {'log-loss':>9} {'seconds':>8}")
    with backends.get("cpu").threads(options.threads):
        for path in options.sets:
            one_set(path, options)


def one_set(path: Path, options: argparse.Namespace) -> None:
    with np.load(path, allow_pickle=False) as arrays:
        X, y = HogExtractor().fit_transform(arrays["images"]), arrays["labels"]
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)
    for name in options.models:
        rows = [measure(model, X, y, train, test) for model in repeats(name, options.seeds)]
        accuracy, balanced, loss, seconds = np.mean(rows, axis=0)
        shown = "" if np.isnan(loss) else f"{loss:.4f}"
        print(
            f"{path.stem:24} {name:20} {accuracy:9.4f} {balanced:9.4f} {shown:>9} {seconds:8.2f}", flush=True
        )


def repeats(name: str, seeds: int) -> list:
    """Return untrained models whose figures are averaged: one of a peer, one per random state of a learner."""
    if name in PEERS:
        return [PEERS[name]()]
    return [LogitBoostClassifier(**settings(name), random_state=seed) for seed in range(seeds)]


def measure(model, X, y, train, test) -> tuple[float, float, float, float]:
    start = time.perf_counter()
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - start
    found = model.predict(X[test])
    loss = log_loss(y[test], model.predict_proba(X[test])) if hasattr(model, "predict_proba") else np.nan
    return float((found == y[test]).mean()), balanced_accuracy_score(y[test], found), loss, seconds


if __name__ == "__main__":
    main()
