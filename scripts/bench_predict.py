"""Time prediction: images a second from a packed set, and the latency of one image.

    python scripts/bench_predict.py [--n 20000] [--rounds 7]

A model of each learner is trained on made-up images and saved; then it is loaded, and labels a packed set chunk by
chunk as the predict command does, in one process. Medians, with their range.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from pipeline import HogExtractor, LogitBoostClassifier, backends, config, datasets, load_model
from pipeline.model import Model, fitted_extractor, save_model

IMAGE = config.Image()
LEARNERS = ("subspace", "random_features")
CHUNK = config.Predict.chunk


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=20_000, help="images labelled")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, backends.get("cpu").threads(options.threads) as threads:
        images = made(options.n)
        packed = Path(name) / "set.npz"
        np.savez(packed, images=images.pixels, labels=images.labels, classes=np.array(images.class_names))
        models = {learner: trained(learner, images, Path(name) / f"{learner}.npz") for learner in LEARNERS}
        walls: dict[str, list[float]] = {learner: [] for learner in LEARNERS}
        for model in models.values():
            label(model, packed)  # compiles
        for _ in range(options.rounds):
            for learner, model in models.items():
                walls[learner].append(label(model, packed))
        print(f"{options.n} images of 50x100 from a packed set, {threads} threads, chunks of {CHUNK}")
        for learner, model in models.items():
            rate = options.n / np.array(walls[learner])
            one = latencies(model, images.pixels)
            print(
                f"{learner:>16}: {np.median(rate):9,.0f} images/s ({rate.min():,.0f}-{rate.max():,.0f}); one image "
                f"{1e3 * np.median(one):.2f} ms ({1e3 * np.percentile(one, 5):.2f}-{1e3 * np.percentile(one, 95):.2f})"
            )


def made(n: int) -> datasets.Images:
    return datasets.load(config.Data(name=config.DataName.synthetic, n=n), IMAGE).images


def trained(learner: str, images: datasets.Images, path: Path) -> Model:
    some = slice(0, 2000)
    extractor = fitted_extractor(HogExtractor(), IMAGE)
    X = extractor.transform(images.pixels[some])
    classifier = LogitBoostClassifier(learner=learner, n_rounds=50, random_state=0).fit(
        X, images.labels[some]
    )
    save_model(path, Model(extractor, classifier, images.class_names, IMAGE, config.Preprocess()))
    return load_model(path)


def label(model: Model, packed: Path) -> float:
    begin = time.perf_counter()
    source = config.Data(name=config.DataName.packed, path=str(packed))
    for part in datasets.stream(source, IMAGE, CHUNK):
        model.predict(part.images.pixels)
    return time.perf_counter() - begin


def latencies(model: Model, pixels: np.ndarray, calls: int = 200) -> list[float]:
    found = []
    for i in range(calls):
        begin = time.perf_counter()
        model.predict(pixels[i : i + 1])
        found.append(time.perf_counter() - begin)
    return found[10:]


if __name__ == "__main__":
    main()
