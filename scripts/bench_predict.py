"""Time prediction: images a second from a packed set, and the latency of one image.

    python scripts/bench_predict.py [--n 20000] [--rounds 7]

A model of each learner is trained on made-up images and saved; then it is loaded, and labels a packed set chunk by
chunk as the predict command does, in one process: reading, HoG and classifier. random_features gets a fiftieth of the
images. Last comes the whole predict command with the linear model, which writes a CSV. Medians, with their range.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from pipeline import HogExtractor, LogitBoostClassifier, backends, config, datasets, load_model
from pipeline.commands import predict
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
        folder = Path(name)
        images = made(options.n)
        print(f"{options.n} images of 50x100 from a packed set, {threads} threads, chunks of {CHUNK}")
        for learner, n in zip(LEARNERS, (options.n, max(options.n // 50, 1)), strict=True):
            some = images.subset(slice(0, n))
            np.savez(
                folder / f"{learner}.npz", images=some.pixels, labels=some.labels, classes=images.class_names
            )
            model = trained(learner, images, folder / f"{learner}.model.npz")
            packed = folder / f"{learner}.npz"
            label(model, packed)  # compiles
            rate = n / np.array([label(model, packed) for _ in range(options.rounds)])
            one = 1e3 * np.array(latencies(model, images.pixels, 200 if learner == "subspace" else 4))
            print(
                f"{learner:>16}: {spread(rate)} images/s; one image {np.median(one):.2f} ms "
                f"({np.percentile(one, 5):.2f}-{np.percentile(one, 95):.2f})"
            )
        rate = options.n / np.array([command(folder, options.threads) for _ in range(options.rounds)])
        print(f"{'command with CSV':>16}: {spread(rate)} images/s")


def spread(rate: np.ndarray) -> str:
    return f"{np.median(rate):,.0f} ({rate.min():,.0f}-{rate.max():,.0f})"


def command(folder: Path, threads: int) -> float:
    """Return the seconds that the predict command takes, without the start of the program."""
    settings = config.Predict(
        model=str(folder / "subspace.model.npz"),
        backend=config.Backend(threads=threads),
        data=config.Data(name=config.DataName.packed, path=str(folder / "subspace.npz")),
        run_dir=str(folder),
    )
    begin = time.perf_counter()
    with redirect_stdout(io.StringIO()):
        predict.run(settings)
    return time.perf_counter() - begin


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


def latencies(model: Model, pixels: np.ndarray, calls: int) -> list[float]:
    found = []
    for i in range(calls):
        begin = time.perf_counter()
        model.predict(pixels[i : i + 1])
        found.append(time.perf_counter() - begin)
    return found[calls // 4 :]


if __name__ == "__main__":
    main()
