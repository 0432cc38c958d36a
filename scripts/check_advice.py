"""Follow the advice of the profiler and print predicted against measured gains.

    python scripts/check_advice.py [--sets synthetic vehicles6 ...] [--json found.json]
    python scripts/check_advice.py --sets trafficlights3 --repeats 2 --patience 8
    python scripts/check_advice.py --sets gtsrb43 --start classifier.n_rounds=25 --runs 2 --repeats 2 --patience 8

Sets of labelled folders come from ../shared/data beside the repository: the pictures of NAME_50x100.npz are written
out as PNG files, one folder a class, into a temporary folder; with --native the archive of the original files is
unpacked there. A set that is not there is named and passed over. Each set is trained from several settings that leave
something to gain. Run it on an idle machine: a gain is a difference of seconds. The last lines list the misses, by
more than a quarter, and the kinds of advice that came true.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pipeline import config
from pipeline.commands.profile import measured
from pipeline.profiling import advice
from pipeline.profiling.changes import overridden

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
FLOAT64 = "hog.dtype=float64 classifier.dtype=float64"
RIDGE = (
    "classifier.learner=ridge classifier.n_rounds=20 classifier.learning_rate=0.5 "
    "hog.pixels_per_cell=[10,10] hog.cells_per_block=[2,2]"
)
RANDOM = "classifier.learner=random_features classifier.n_rounds=50"
STARTS = {
    "synthetic": [
        "",
        FLOAT64,
        "backend.threads=1",
        "data.workers=1 classifier.subspace_size=384 plots=false",
    ],
    "vehicles6": ["", RANDOM, RIDGE, "preprocess.name=clahe data.workers=1"],
    "trafficlights3": ["", f"{FLOAT64} backend.threads=1"],
    "gtsrb43": ["classifier.n_rounds=25", "classifier.n_rounds=25 backend.threads=1 plots=false"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(STARTS), choices=list(STARTS))
    parser.add_argument("--images", type=int, default=10_000, help="of the synthetic set")
    parser.add_argument("--start", nargs="+", help="overrides to start from, instead of those of the sets")
    parser.add_argument("--runs", type=int, default=3, help="measured runs before the advice")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs that try each piece of advice")
    parser.add_argument("--budget", type=float, default=180.0, help="seconds for predicting, per start")
    parser.add_argument(
        "--patience", type=float, default=30.0, help="seconds of more pairs, where they are quick"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the pictures of each class of a set of folders"
    )
    parser.add_argument(
        "--native", action="store_true", help="the original files in place of PNG of one size"
    )
    parser.add_argument(
        "--memory", help="that a run may use, as in 700MB: advice on memory is tried below it"
    )
    parser.add_argument("--json", type=Path, help="file to write all that was found to")
    options = parser.parse_args()
    advice.PATIENCE = options.patience
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            data = source(name, Path(folder), options)
            if data is None:
                print(f"{name}: not in {DATA}, passed over")
                continue
            for start in options.start or STARTS[name]:
                for one in one_start(name, data, start, options, Path(folder)):
                    found.append({"set": name, "start": start, **asdict(one)})
                if options.json:
                    options.json.write_text(json.dumps(found, indent=2) + "\n")
    if not found:
        raise SystemExit("nothing was checked")
    tell(found)


def source(name: str, folder: Path, options: argparse.Namespace) -> config.Data | None:
    """Return the data settings of a set; its pictures are written into `folder`."""
    if name == "synthetic":
        return config.Data(name=config.DataName.synthetic, n=options.images)
    pixels = DATA / f"{name}_50x100.npz"
    if pixels.exists() and not options.native:
        return config.Data(
            name=config.DataName.folder, path=str(written(pixels, folder / name, options.share))
        )
    if options.share < 1.0:
        raise SystemExit(
            f"--share is for pictures of {pixels.name}, which --native leaves aside or is not there"
        )
    packed, tar = DATA / f"{name}.zip", DATA / f"{name}.tar.gz"
    target = folder / name
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(target)
    elif tar.exists():
        with tarfile.open(tar) as archive:
            archive.extractall(target, filter="data")
    else:
        return None
    while len(inside := [path for path in target.iterdir() if path.is_dir()]) == 1:
        target = inside[0]  # the folder whose folders are the classes
    return config.Data(name=config.DataName.folder, path=str(target))


def written(packed: Path, target: Path, share: float) -> Path:
    """Write pictures of a packed set as PNG files, one folder a class; return the folder of the classes."""
    with np.load(packed, allow_pickle=False) as content:
        images, labels, names = content["images"], content["labels"], content["classes"]
    for label, name in enumerate(names):
        place = target / str(name)
        place.mkdir(parents=True)
        mine = np.flatnonzero(labels == label)
        for i in mine[: max(10, round(share * len(mine)))]:
            Image.fromarray(images[i]).save(place / f"{i:05d}.png")
    return target


def one_start(
    name: str, data: config.Data, start: str, options: argparse.Namespace, folder: Path
) -> Iterator:
    run_dir = folder / "run"
    run_dir.mkdir(exist_ok=True)
    cfg = overridden(replace(config.Train(run_dir=str(run_dir)), data=data), start)
    measured(cfg)  # pays for compiling and importing
    runs: list = []
    for _ in range(options.runs):  # one run's features in memory at a time, as in the command
        runs = [*(replace(run, trained=None) for run in runs), measured(cfg)]
    walls = sorted(run.seconds["all"] for run in runs)
    work = runs[-1].work
    print(
        f"\n{name} {start or '(defaults)'}: {work.images} images, {work.classes} classes, {work.features} features: "
        f"{walls[0]:.2f} to {walls[-1]:.2f} s",
        flush=True,
    )
    memory = config.size_in_bytes(options.memory) if options.memory else None
    listed = advice.advise(runs, measured, options.budget, memory=memory)
    del runs
    for one in advice.verify(listed, cfg, measured, options.repeats):
        print(f"  {line(asdict(one))}", flush=True)
        yield one
    if not listed:
        print("  nothing to gain")


def line(one: dict) -> str:
    if one["measured_gain"] is None:
        return f"{one['override']}: {one['caveat']}"
    ratio = one["predicted_gain"] / one["measured_gain"] if one["measured_gain"] else float("nan")
    return (
        f"predicted {one['predicted_gain']:7.3f} s  measured {one['measured_gain']:7.3f} s  ratio {ratio:5.2f}  "
        f"{one['override']}\n      {one['model']}; {one['caveat']}"
    )


def came_true(one: dict) -> bool:
    """Tell whether the predicted gain is within a quarter of the measured."""
    gain = one["measured_gain"]
    return gain is not None and abs(one["predicted_gain"] - gain) <= 0.25 * abs(gain)


def kind(one: dict) -> str:
    """Return the settings that the advice changes: what makes it a kind of its own."""
    return " ".join(word.partition("=")[0] for word in one["override"].split())


def tell(found: list[dict]) -> None:
    true = [one for one in found if came_true(one)]
    tried = [one for one in found if one["measured_gain"] is not None]
    print(f"\n{len(true)} of {len(tried)} gains within 25 %; kinds: ")
    for name in dict.fromkeys(map(kind, tried)):
        mine = [one for one in tried if kind(one) == name]
        print(f"  {sum(map(came_true, mine))} of {len(mine)}  {name}")
    misses = [one for one in tried if not came_true(one)]
    print("misses:" if misses else "no misses")
    for one in misses:
        print(f"  {one['set']} {one['start']}: {line(one)}")


if __name__ == "__main__":
    main()
