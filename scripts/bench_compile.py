"""Time what the first call of a process costs: compiling with an empty cache, loading from a filled one.

    python scripts/bench_compile.py [--repeats 5] [--only TEXT ...] [--clock cpu]

Each figure is of a process of its own: the seconds of its first call less those of its second. "compiled" has an empty
folder for machine code, "loaded" the one that the process before has filled. Start, imports and data are not
counted; what a first call imports by itself is. Rows are taken in turns, so that a slow minute falls on all of them.
Medians, with their range. The clock is the wall's; `cpu` is the processor time of the process, which other
programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pipeline import LogitBoostClassifier

HOG = """
from pipeline.backends import get
from pipeline.features import HogLayout
layout = HogLayout((50, 100){layout})
images = np.random.default_rng(0).integers(0, 256, (4, 50, 100{channels})).astype("{dtype}")
{change}
hog = get("cpu").hog
call = lambda: hog.hog(images, layout, "{norm}", {sqrt}, "{out}")
"""
CELLS = """
from pipeline.backends.cpu import unexpanded
from pipeline.features import HogLayout
layout = HogLayout((50, 100))
images = np.random.default_rng(0).integers(0, 256, (4, 50, 100)).astype("{dtype}")
out = np.empty((4, 128), np.float32)
columns = np.arange(0, 1280, 10)
places = np.where(np.arange(unexpanded.LANES) < 4, np.arange(unexpanded.LANES), -1)
def call():
    rows = unexpanded.cells(images, layout, "L2-Hys", False, "float32")
    groups = unexpanded.grouped(rows)
    expander = unexpanded.Expander(layout, "L2-Hys", rows.dtype)
    expander(lambda begin, end, buffer: groups[begin:end], places, [out], [columns])
"""
FIT = """
from pipeline.boosting import LogitBoostClassifier
X, y = np.random.default_rng(0).normal(size=(2000, 500)).astype("{dtype}"), np.arange(2000) % {classes}
model = LogitBoostClassifier("{learner}", n_rounds=2, n_components=64, dtype="{dtype}", random_state=0)
call = lambda: model.fit(X, y)
"""
PREDICT = """
import json
from pipeline.boosting import LogitBoostClassifier
X = np.random.default_rng(0).normal(size=(2000, 500)).astype("float32")
with np.load("{{folder}}/{learner}.npz", allow_pickle=False) as arrays, open("{{folder}}/{learner}.json") as header:
    model = LogitBoostClassifier.from_state(dict(arrays), json.load(header))
call = lambda: model.predict_proba(X)
"""
MEASURE = """
def seconds():
    start = time.{clock}()
    call()
    return time.{clock}() - start
first = seconds()
print(first - seconds())
"""


# Images that need more than most: a value that is not a number; gradients on the edge between two orientations.
NAN = "images[0, 0, 0] = np.nan"
DOUBTS = """
rows, columns = np.indices((50, 100))
images[:] = (np.tan(np.pi / 9) * columns + rows).reshape(1, 50, 100, *[1] * (images.ndim - 3))
"""


def hog(dtype="uint8", out="float32", norm="L2-Hys", sqrt=False, layout="", channels="", change="") -> str:
    return HOG.format(
        dtype=dtype, out=out, norm=norm, sqrt=sqrt, layout=layout, channels=channels, change=change
    )


def fit(learner: str, dtype: str = "float32", classes: int = 10) -> str:
    return FIT.format(learner=learner, dtype=dtype, classes=classes)


COLOUR = {"layout": ", channels=3", "channels": ", 3"}
CUSTOM = {"layout": ", 12, (5, 7), channels=3", "channels": ", 3"}
LARGE = {"layout": ", 9, (16, 16), channels=3", "channels": ", 3"}
ROWS = {
    "hog uint8": hog(),
    "hog uint8, float64 out": hog(out="float64"),
    "hog uint8, L1": hog(norm="L1"),
    "hog uint8, transform_sqrt": hog(sqrt=True),
    "hog uint8, 16x16 cells": hog(layout=", 9, (16, 16)"),
    "hog uint8, 12 orientations": hog(layout=", 12"),
    "hog uint16": hog("uint16"),
    "hog float16": hog("float16"),
    "hog float32": hog("float32"),
    "hog float64": hog("float64"),
    "hog float64, 5x7 cells, 12 orientations": hog("float64", layout=", 12, (5, 7)"),
    "hog float64, transform_sqrt": hog("float64", sqrt=True),
    "hog float64 with NaN": hog("float64", change=NAN),
    "hog float64 with gradients in doubt": hog("float64", change=DOUBTS),
    "hog float32, 16x16 cells": hog("float32", layout=", 9, (16, 16)"),
    "hog uint8, 3 channels": hog(**COLOUR),
    "hog uint8, 3 channels, transform_sqrt": hog(sqrt=True, **COLOUR),
    "hog uint16, 3 channels": hog("uint16", **COLOUR),
    "hog float16, 3 channels": hog("float16", **COLOUR),
    "hog float32, 3 channels": hog("float32", **COLOUR),
    "hog float32, 3 channels, 16x16 cells": hog("float32", **LARGE),
    "hog float32, 3 channels with NaN": hog("float32", change=NAN, **COLOUR),
    "hog float64, 3 channels": hog("float64", **COLOUR),
    "hog float64, 3 channels, float64 out": hog("float64", "float64", **COLOUR),
    "hog float64, 3 channels, transform_sqrt": hog("float64", sqrt=True, **COLOUR),
    "hog float64, 3 channels, L1": hog("float64", norm="L1", **COLOUR),
    "hog float64, 3 channels, L1-sqrt": hog("float64", norm="L1-sqrt", **COLOUR),
    "hog float64, 3 channels, L2": hog("float64", norm="L2", **COLOUR),
    "hog float64, 3 channels, 5x7 cells, 12 orientations": hog("float64", **CUSTOM),
    "hog float64, 3 channels, 16x16 cells": hog("float64", **LARGE),
    "hog float64, 3 channels with NaN": hog("float64", change=NAN, **COLOUR),
    "hog float64, 3 channels with gradients in doubt": hog("float64", change=DOUBTS, **COLOUR),
    "cells and columns uint8": CELLS.format(dtype="uint8"),
    "cells and columns float32": CELLS.format(dtype="float32"),
    "cells and columns float64": CELLS.format(dtype="float64"),
    "fit subspace": fit("subspace"),
    "fit subspace, 2 classes": fit("subspace", classes=2),
    "fit subspace, 43 classes": fit("subspace", classes=43),
    "fit subspace, float64": fit("subspace", "float64"),
    "fit subspace, float64, 43 classes": fit("subspace", "float64", 43),
    "fit componentwise": fit("componentwise"),
    "fit componentwise, float64": fit("componentwise", "float64"),
    "fit full": fit("full"),
    "fit full, float64": fit("full", "float64"),
    "fit ridge": fit("ridge"),
    "fit ridge, float64": fit("ridge", "float64"),
    "fit random_features": fit("random_features"),
    "fit random_features, 43 classes": fit("random_features", classes=43),
    "fit random_features, float64": fit("random_features", "float64"),
    "fit random_features, float64, 2 classes": fit("random_features", "float64", 2),
    "predict subspace": PREDICT.format(learner="subspace"),
    "predict random_features": PREDICT.format(learner="random_features"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="only rows whose name holds one of these")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    rows = [name for name in ROWS if any(text in name for text in options.only)]
    clock = {"wall": "perf_counter", "cpu": "process_time"}[options.clock]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
    with tempfile.TemporaryDirectory() as folder:
        if any("predict" in name for name in rows):
            save_models(Path(folder))
        for _ in range(options.repeats):
            for name in rows:
                found[name].append(first_calls(ROWS[name].replace("{folder}", folder), clock))
    print(f"{'first call of, seconds':54}{'compiled':>20}{'loaded':>20}")
    for name, pairs in found.items():
        compiled, loaded = np.array(pairs).T
        print(f"{name:54}{spread(compiled):>20}{spread(loaded):>20}")


def save_models(folder: Path) -> None:
    """Write a small model of each kind that predicts in its own way."""
    X, y = np.random.default_rng(0).normal(size=(2000, 500)), np.arange(2000) % 10
    for learner in ("subspace", "random_features"):
        model = LogitBoostClassifier(learner, n_rounds=2, n_components=64, random_state=0).fit(X, y)
        arrays, header = model.state()
        np.savez(folder / f"{learner}.npz", **arrays)
        (folder / f"{learner}.json").write_text(json.dumps(header))


def first_calls(program: str, clock: str) -> tuple[float, float]:
    """Return the seconds of a first call less those of a second, without and with machine code on disk."""
    text = "import time\nimport numpy as np\n" + program + MEASURE.format(clock=clock)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        runs = [
            subprocess.run(
                [sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            for _ in ("compiled", "loaded")
        ]
    return float(runs[0].stdout), float(runs[1].stdout)


def spread(seconds: np.ndarray) -> str:
    return f"{np.median(seconds):.2f} ({seconds.min():.2f}-{seconds.max():.2f})"


if __name__ == "__main__":
    main()
