"""``pack``: decode a folder of images once and write one packed set."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from pipeline import config, datasets
from pipeline.commands import steps
from pipeline.files import expanded
from pipeline.reporting import tables, units
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages

log = logging.getLogger(__name__)


def run(cfg: config.Pack, stages: Stages | None = None) -> None:
    """Pack the images of ``data`` into the file ``out`` (.npz)."""
    stages = stages or Stages()
    out = expanded(cfg.out)
    listed = Path(cfg.run_dir) / "rejected.csv"
    with stages("pack"), progress("decode") as advance, steps.rejected_kept(listed):
        report = datasets.pack(cfg.data, cfg.image, out, advance)
    datasets.write_rejected(listed, report.rejected)
    if report.empty:
        log.warning(
            "%s of no picture: train will refuse %s; mend or remove what %s lists, and pack again",
            *(_named(report.empty), out, listed),
        )
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
            ("next", f"python -m pipeline train data=packed {shlex.quote(f'data.path={out}')}"),
        ],
    )


def _named(names: tuple[str, ...]) -> str:
    shown = ", ".join(tables.shown(name) for name in names[:5]) + ", ..." * (len(names) > 5)
    return f"the class {shown} is" if len(names) == 1 else f"the classes {shown} are"
