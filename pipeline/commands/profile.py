"""``profile``: the train command under measurement: where the time goes, why, and what would shorten it."""

from __future__ import annotations

from pipeline import backends, config
from pipeline.commands.train import train
from pipeline.profiling import work
from pipeline.profiling.record import Recorder
from pipeline.profiling.runs import Run
from pipeline.reporting.progress import silent
from pipeline.reporting.stages import Stages


def measured(cfg: config.Train, listen: bool = True) -> Run:
    """Train once in this process, quietly; see :data:`pipeline.profiling.runs.Runner`.

    Parameters
    ----------
    cfg : settings of ``train``; the folder ``run_dir`` must exist, and its model is overwritten
    listen : whether to record; if not, only the stages of ``train`` itself are known
    """
    name = backends.choose(cfg.backend.name.name, cfg.backend.device, lambda line: None)
    backend = backends.get(name)
    stages = Stages()
    with backend.threads(cfg.backend.threads) as threads, silent():
        if listen:
            with Recorder(backend.clock) as recorder:
                trained = train(cfg, stages)
            recording = recorder.recording
            assert recording is not None
            seconds = {key: row.wall for key, row in recording.rows.items()}
            seconds["all"] = recording.wall
        else:
            trained, recording = train(cfg, stages), None
            seconds = {**stages.seconds, "all": stages.total}
    return Run(cfg, seconds, recording, work.of_trained(cfg, trained, threads), trained)
