"""Training out of core, and going on with it, in a process that may not map more than its limit."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import ROOT
from tests.test_resume import contents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and sets RLIMIT_AS"),
]

CHILD = """
    import resource, sys
    from pathlib import Path
    from pipeline import backends, checkpoint, config, interrupts
    from pipeline.checkpoint import Keeper
    from pipeline.commands import train
    from pipeline.reporting.progress import silent
    from pipeline.scale import memory
    from pipeline.scale.memory import resident

    def status(key):
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key))
        return int(line.split()[1]) * 1024

    folder, learner, name, megabytes = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

    def settings(where, scale, **more):
        (folder / where).mkdir(exist_ok=True)
        data = config.Data(name=config.DataName.folder, path=str(folder / "set"), workers=2)
        return config.TrainCommand(data=data, plots=False, run_dir=str(folder / where), scale=scale,
            classifier=config.Classifier(learner=config.Learner[learner], n_rounds=2, n_components=512),
            checkpoint=config.Checkpoint(rounds=1), **more)

    def between(self, rounds, take):
        if name == "cut" and rounds == 1:
            assert interrupts.note(15)
        original(self, rounds, take)

    def division(budget, work, n):
        found = divided(budget, work, n)
        if name == "cut":
            noted.write_text(f"{found[0]} {found[1]}")
        elif name == "whole":  # no process holds what another held: with the blocks of the other
            found = tuple(map(int, noted.read_text().split()))
        else:
            raise AssertionError("a run that goes on has its blocks")
        return found

    limit, noted = megabytes * 10**6, folder / "noted"
    with backends.get("cpu").threads(2), silent():
        warm = settings(f"warm {name}", config.Scale())
        warm.data = config.Data(name=config.DataName.synthetic, n=60, classes=2)
        warm.classifier.n_rounds = 1
        if learner == "full":  # of 60 images it would be the one of least norm, which takes a minute
            warm.classifier.learner = config.Learner.ridge
        train.run(warm)  # imports, compiles and starts the threads
        room = limit - resident() + 160 * 2**20  # see tests/test_scale.py
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + room,) * 2)
        original, Keeper.__call__ = Keeper.__call__, between
        divided, memory.division = memory.division, division
        ours = config.Scale(name=config.ScaleName.outofcore, memory_limit=f"{megabytes}MB")
        run = settings("whole" if name == "whole" else "run", ours, resume="run" if name == "resumed" else None)
        try:
            train.run(run)
        except interrupts.Stopped:
            assert name == "cut"
    print("peak", status("VmHWM"))
"""


@pytest.mark.parametrize(("learner", "megabytes", "n"), [("random_features", 550, 1200), ("full", 950, 5000)])
def test_large_systems_and_resumed_runs_stay_under_the_limit(learner, megabytes, n, tmp_path):
    """512 random features of 3240, or Gram matrices of 84 MB each; cut after the first of two rounds, and resumed."""
    from PIL import Image

    from pipeline import config, datasets

    data = config.Data(name=config.DataName.synthetic, n=n, classes=2, difficulty=0.9)
    images = next(datasets.stream_labelled(data, config.Image(), n)[1]).images
    for i, pixels in enumerate(images.pixels):
        path = tmp_path / "set" / images.class_names[images.labels[i]] / f"{i:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"}
    for name in ("cut", "resumed", "whole"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), learner, name, str(megabytes)],
            cwd=ROOT, capture_output=True, text=True, timeout=170, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        assert int(done.stdout.split()[-1]) <= megabytes * 10**6
        assert (tmp_path / "run" / "checkpoints").exists() is (name == "cut")
    assert contents(tmp_path / "run" / "model.npz")[1] == contents(tmp_path / "whole" / "model.npz")[1]
