"""``predict``: label images with a saved model, a chunk at a time."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import backends, config, datasets
from pipeline.commands import output, steps
from pipeline.errors import ConfigError, ModelError, OutputError
from pipeline.files import atomic, expanded, expanded_new
from pipeline.model import Model, load_model
from pipeline.reporting import tables
from pipeline.reporting.progress import Advance, progress
from pipeline.reporting.stages import Stages

PREDICTIONS_HEAD = "path,label"
SHOWN = 30  # classes in the table; all are in the file


def run(cfg: config.Predict, stages: Stages | None = None) -> None:
    """Write path, label and the probability of each class of every image as CSV.

    Parameters
    ----------
    cfg : config.Predict
        ``run_dir`` must exist.
    stages : Stages, optional
        Where seconds are added up.
    """
    stages = stages or Stages()
    if cfg.scale.name is config.ScaleName.dask:
        from pipeline.commands import predict_parts

        return predict_parts.run(cfg, stages)
    if cfg.scale.name is not config.ScaleName.local:
        raise ConfigError(
            f"scale={cfg.scale.name.value} is for train: predict needs little memory anyway; leave it out"
        )
    if cfg.format != "csv":
        raise ConfigError(f"format={cfg.format} is for parts: add scale=dask, or leave it out")
    out = expanded_new(cfg.out, "out") if cfg.out else Path(cfg.run_dir) / "predictions.csv"
    if cfg.out:
        _check_out(out, cfg)
    with stages("load model"):
        model = load_model(expanded(cfg.model))
    with stages("start"):
        name = steps.choose_backend(cfg.backend, model.preprocess)
        backend, model.backend = backends.get(name), name
    listed = Path(cfg.run_dir) / "rejected.csv"
    begin = time.perf_counter()
    with (
        backend.threads(cfg.backend.threads),
        steps.rejected_kept(listed),
        atomic(out) as stream,
        progress("predict") as advance,
    ):
        counts, rejected = _label(cfg, model, csv.writer(stream), stages, advance)
    rate = counts.sum() / (time.perf_counter() - begin)
    datasets.write_rejected(listed, rejected)

    tell(counts, model.class_names, (rejected, listed), rate, stages, str(out))


def tell(
    counts: np.ndarray,
    class_names: tuple[str, ...],
    rejected: tuple[list[datasets.Rejected], Path],
    rate: float,
    stages: Stages,
    out: str,
) -> None:
    """Print how many images have which label, and where the labels are."""
    shown = sorted(zip(counts.tolist(), class_names, strict=True), key=lambda pair: -pair[0])[:SHOWN]
    rows = [(tables.shown(name), n, tables.percent(n / counts.sum())) for n, name in shown if n]
    tables.table("Labels", ("class", "images", "share"), rows)
    files, listed = rejected
    tables.facts(
        f"{tables.count(counts.sum(), 'image')} labelled",
        [
            ("rejected", f"{tables.count(len(files), 'file')}, see {listed}" if files else "none"),
            ("rate", f"{rate:.0f} images/s"),
            ("time", tables.stage_line(stages.seconds)),
            ("labels", out),
        ],
    )


def _check_out(out: Path, cfg: config.Predict) -> None:
    """Refuse to replace an input, or any file that is not an older CSV of this command."""
    for setting, name in (("model", cfg.model), ("data.path", cfg.data.path)):
        given = expanded(name) if name else None
        if given is not None and given.exists() and out.exists() and out.samefile(given):
            raise OutputError(f"out={cfg.out} is the file of {setting}, which is read; give another name")
    if not out.is_file() or str(out).startswith("/dev/"):
        return
    head = PREDICTIONS_HEAD.encode()
    try:
        with out.open("rb") as stream:
            found = stream.read(len(head))
    except OSError as error:
        raise OutputError(f"out={cfg.out} cannot be read: {error.strerror or error}") from error
    if found not in (b"", head):
        raise OutputError(
            f"out={cfg.out} exists and holds something else than predictions (a CSV that begins with "
            f"{PREDICTIONS_HEAD}); give another name, or remove it"
        )


def _label(
    cfg: config.Predict, model: Model, writer: Any, stages: Stages, advance: Advance
) -> tuple[np.ndarray, list[datasets.Rejected]]:
    """Write a row for each image, a chunk at a time; return images per class and the rejected files."""
    counts = np.zeros(len(model.class_names), dtype=np.int64)
    rejected: list[datasets.Rejected] = []
    writer.writerow(["path", "label", *output.prediction_columns(model.class_names)])
    chunks = iter(datasets.stream(cfg.data, model.image, cfg.chunk, advance))
    while True:
        with stages("read"):
            chunk = next(chunks, None)
        if chunk is None:
            return counts, rejected
        rejected += chunk.rejected
        if not len(chunk.images):
            continue
        with stages("label"):
            proba = model.predict_proba(chunk.images.pixels)
        if not np.isfinite(proba).all():
            raise ModelError(f"{cfg.model} gives probabilities that are not finite; train it again")
        with stages("write"):
            best = proba.argmax(axis=1)
            counts += np.bincount(best, minlength=len(counts))
            rows = zip(
                chunk.images.paths, best.tolist(), proba.tolist(), strict=True
            )  # Python's own numbers: faster
            writer.writerows(
                (path, model.class_names[label], *[f"{value:.6g}" for value in row])
                for path, label, row in rows
            )
