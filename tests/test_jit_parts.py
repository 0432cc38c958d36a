"""What a first call compiles: parts once and with their kernel only, and no version that the call does not need."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from pipeline.backends.cpu import jit, jit_parts, tiles

PROGRAM = """
import sys
import numpy as np
from numba.core import event
from pipeline.backends import get
from pipeline.features import HogLayout

class Listener(event.Listener):
    def on_start(self, started):
        name = started.data["dispatcher"].__name__
        if name != "impl":  # Numba's own functions
            names.append(name)

    def on_end(self, ended):
        pass

names = []
event.register("numba:compile", Listener())
rng = np.random.default_rng(0)
if sys.argv[1] == "fit":
    from pipeline.boosting import LogitBoostClassifier
    X, y = rng.normal(size=(300, 40)).astype(sys.argv[2]), np.arange(300) % 3
    LogitBoostClassifier(n_rounds=2, subspace_size=16, dtype=sys.argv[2]).fit(X, y)
else:
    shape = (24, 32) if sys.argv[1] == "gray" else (24, 32, 3)
    images = rng.integers(0, 256, (2, *shape)).astype(sys.argv[2])
    layout = HogLayout(shape[:2], channels=None if sys.argv[1] == "gray" else 3)
    get("cpu").hog.hog(images, layout, "L2-Hys", False, "float32")
print(*names)
"""
BLOCKS = {"normalise", "all_scales", "block_scales", "gather", "clipped_squares", "write_block"}
GENERAL = {"fast", "tile_rows", "tile_row", "accumulate", "fold_columns"}
GRAY, DOUBTS = {"convert", "folded_gradient", "vertical"}, {"set_aside", "count_near", "too_large"}
COLOUR = {"strongest", "gradient", "fold", "settle"}
FIT = {
    "_sum_rows", "_gather", "add_panel_products" if tiles.SHARED else "add_panel_products_of_one",
    "add_to_gram", "_solve", "factorise_rows", "back_substitute",
    "_add_products", "_write_values", "_advance_rows", "move_rows", "unit_of",
}  # fmt: skip


@pytest.mark.parametrize(("what", "dtype", "wanted"), [
    pytest.param("gray", "uint8", BLOCKS | {"fast_nine", "reflect", "accumulate_nine", "fold_columns"},
                 marks=pytest.mark.slow),
    pytest.param("gray", "float32", BLOCKS | GENERAL | GRAY | DOUBTS, marks=pytest.mark.slow),
    pytest.param("colour", "float32", BLOCKS | GENERAL | DOUBTS | COLOUR, marks=pytest.mark.slow),
    pytest.param("fit", "float64", FIT, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_first_call_compiles_what_it_needs_and_each_function_once(tmp_path, what, dtype, wanted):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    program = [sys.executable, "-c", PROGRAM, what, dtype]
    answer = subprocess.run(
        program, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=200
    )
    assert sorted(answer.stdout.split()) == sorted(wanted)
    again = subprocess.run(
        program, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=200
    )
    assert again.stdout.split() == []


def double(x):
    return 2 * x


@pytest.mark.parametrize("known", [jit_parts.KNOWN, (0, 0)])
def test_parts_work_with_a_version_of_numba_that_is_not_known(monkeypatch, known):
    monkeypatch.setattr(jit_parts, "KNOWN", known)
    assert bool(jit_parts.options(part=True)) == (known != (0, 0))
    monkeypatch.setattr(jit, "_PART", {**jit._PLAIN, **jit_parts.options(part=True)})
    monkeypatch.setattr(jit, "_KERNEL", {"nogil": True, **jit_parts.options(part=False)})
    part = jit.part(double)

    def whole(x):
        x[0] = part(x[0])

    compiled = jit.kernel(whole)
    x = np.array([1.5])
    jit.prepare(compiled, x)
    compiled(x)
    assert x[0] == 3.0
