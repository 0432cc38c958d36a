"""``pack``: decode a folder of images once and write one packed set."""

from __future__ import annotations

from pathlib import Path

from pipeline import config, datasets
from pipeline.commands import steps
from pipeline.files import expanded
from pipeline.reporting import tables, units
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages


def run(cfg: config.Pack, stages: Stages | None = None) -> None:
    """Pack the images of ``data`` into the file ``out`` (.npz)."""
    stages = stages or Stages()
    out = expanded(cfg.out)
    listed = Path(cfg.run_dir) / "rejected.csv"
    with stages("pack"), progress("decode") as advance, steps.rejected_kept(listed):
        report = datasets.pack(cfg.data, cfg.image, out, advance)
    datasets.write_rejected(listed, report.rejected)
    tables.facts(
        f"{tables.count(report.n, 'image')} of {tables.count(len(report.class_names), 'class', 'classes')} packed",
        [
            ("size", f"{cfg.image.height}x{cfg.image.width} pixels, {units.amount(out.stat().st_size, 'B')}"),
            (
                "rejected",
                f"{tables.count(len(report.rejected), 'file')}, see {listed}" if report.rejected else "none",
            ),
            (
                "time",
                f"{tables.stage_line(stages.seconds)} ({report.n / report.seconds:.0f} images/s)",
            ),
            ("packed", str(out)),
            ("next", f"python -m pipeline train data=packed data.path={out}"),
        ],
    )
