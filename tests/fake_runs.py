"""Training runs whose seconds follow a known law: no clock, no images."""

from __future__ import annotations

from types import SimpleNamespace

from pipeline import config
from pipeline.profiling.runs import Run
from pipeline.profiling.work import describe

CORES = 4


class FakeRunner:
    """A runner for ``law(cfg, work) -> {stage: seconds}``; remembers the settings it was called with."""

    def __init__(self, law, accuracy=None):
        self.law, self.calls, self.accuracy = law, [], accuracy

    def __call__(self, cfg):
        self.calls.append(cfg)
        work = describe(
            cfg,
            backend=cfg.backend.name.name,
            threads=cfg.backend.threads or CORES,
            images=cfg.data.n,
            classes=cfg.data.classes,
            source="synthetic",
        )
        seconds = self.law(cfg, work)
        trained = SimpleNamespace()
        if self.accuracy is not None:
            trained.scores = SimpleNamespace(accuracy=self.accuracy(cfg))
        return Run(cfg, {**seconds, "all": sum(seconds.values())}, None, work, trained)


def settings(run_dir, **classifier):
    """Return settings for synthetic images in a folder that exists."""
    return config.Train(
        data=config.Data(name=config.DataName.synthetic, n=8000, classes=10),
        classifier=config.Classifier(**classifier),
        run_dir=str(run_dir),
    )
