"""The memory that a fit takes beside its features, measured, is what ``plan`` says of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline import config
from pipeline.profiling.footprint import footprint
from pipeline.profiling.work import Work, describe
from tests.programs import environment

# Prints the bytes before a fit, features among them, and the most while it ran. A fit to fewer rows and columns before
# has loaded what every fit needs.
FIT = """
import sys
import numpy as np
from pipeline import LogitBoostClassifier

def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))

learner, n, p, q, J = sys.argv[1], *map(int, sys.argv[2:6])
rng = np.random.default_rng(0)
X, y = rng.random((n, p), dtype=np.float32), np.arange(n) % J
for k in range(6):
    X[:, k] += (y >> k) & 1
settings = {"n_rounds": 3, "random_state": 0, "trim": float(sys.argv[6])}
LogitBoostClassifier(learner, subspace_size=64, n_components=64, **settings).fit(X[:2200], y[:2200])
print(status("VmRSS"))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
LogitBoostClassifier(learner, subspace_size=q, n_components=q, **settings).fit(X, y)
print(status("VmHWM"))
"""


def work_of(learner: str, n: int, p: int, q: int, classes: int, trim: float) -> Work:
    given = {"subspace_size": q, "n_components": q, "n_rounds": 3, "trim": trim}
    settings = config.Classifier(learner=config.Learner[learner], **given)
    cfg = config.Train(run_dir="r", classifier=settings)
    work = describe(cfg, backend="cpu", threads=2, images=n, classes=classes, source="packed", components=p)
    return replace(work, fit=n, tested=0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells and forgets a peak")
@pytest.mark.parametrize(
    ("learner", "n", "p", "q", "classes", "trim"),
    [
        ("random_features", 40_000, 300, 256, 4, 0.9),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("subspace", 10_000, 600, 256, 43, 0.0),
                ("random_features", 40_000, 300, 256, 4, 0.0),
                ("subspace", 40_000, 300, 256, 10, 0.0),
                ("subspace", 40_000, 300, 128, 2, 0.0),
                ("subspace", 10_000, 800, 512, 20, 0.0),
                ("subspace", 40_000, 300, 250, 10, 0.9),
            )
        ),
    ],
)
def test_a_fit_takes_the_memory_that_is_forecast(learner, n, p, q, classes, trim):
    """Never more, and at most a quarter less: rows by the ten thousand, whose columns count, and many classes."""
    words = [learner, *map(str, (n, p, q, classes, trim))]
    done = subprocess.run(
        [sys.executable, "-c", FIT, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "NUMBA_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr
    before, taken = map(int, done.stdout.split())
    need = {
        one.stage: one.host for one in footprint(work_of(learner, n, p, q, classes, trim), 0.0, 1e12).needs
    }
    told = before + need["boost"] - 4.0 * n * p
    assert taken <= told <= 1.25 * taken
