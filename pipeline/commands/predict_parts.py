"""``predict`` with ``scale=dask``: labels as CSV or Parquet parts in a folder."""

from __future__ import annotations

import importlib.util
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pipeline import config, datasets, installing
from pipeline.commands import distributed, output, predict, steps
from pipeline.datasets.pieces import inventory
from pipeline.errors import ConfigError, OutputError
from pipeline.files import expanded, expanded_new, occupied
from pipeline.model import load_model
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from pipeline.scale.parts import Labelling, Part
from pipeline.software import SOURCES, software


def run(cfg: config.Predict, stages: Stages) -> None:
    """Let workers label the images; write a summary of the parts to summary.json of the run folder.

    Raises
    ------
    ConfigError, DataError, ModelError, OutputError, ClusterError
    """
    with stages("start"):
        name = distributed.backend_of(cfg.backend, cfg.scale)
        if cfg.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
            raise ConfigError(
                f"format=parquet needs the package pyarrow: {installing.command('pyarrow')}; or use format=csv"
            )
        out = _folder(cfg)
    with occupied(out, "give another out=..."):
        _check_empty(out)  # nobody was faster
        try:
            _run(cfg, stages, name, out)
        finally:
            for path in out.glob(".part-*.part"):  # of workers that were killed while they wrote
                path.unlink(missing_ok=True)


def _run(cfg: config.Predict, stages: Stages, name: str, out: Path) -> None:
    from pipeline.scale import dask_cluster, dask_predict

    with stages("load model"):
        path = expanded(cfg.model)
        model = load_model(path)  # complains here of a file that is no model
        data = np.fromfile(path, np.uint8)
    with stages("list"):
        found = inventory(cfg.data, model.image, False)
    listed, rejected = Path(cfg.run_dir) / "rejected.csv", list(found.rejected)
    counts, parts, done = np.zeros(len(model.class_names), dtype=np.int64), list[Part](), 0
    with ExitStack() as stack:
        with stages("cluster"):
            cluster = stack.enter_context(dask_cluster.connected(cfg.scale, name))
            distributed.introduce(cluster)
        threads = max(cluster.await_workers().values())
        columns, sources = tuple(output.prediction_columns(model.class_names)), software()[SOURCES]
        labelling = Labelling(
            data, str(out), cfg.format, columns, name, cfg.backend.device, threads, cfg.chunk, sources
        )
        number = dask_predict.count(found.total, len(cluster.threads()), cfg.scale.partitions)
        begin = time.perf_counter()
        with stages("label"), progress("predict") as advance, steps.rejected_kept(listed):
            for images, part in dask_predict.label(cluster, found, labelling, number):
                parts.append(part)
                counts += part.counts
                rejected += part.rejected
                found.check_rejected(rejected)
                done += images
                advance(done, found.total, f"{len(cluster.threads())} workers")
        rate = counts.sum() / (time.perf_counter() - begin)
    rejected = [
        *found.rejected,
        *(one for part in sorted(parts, key=lambda one: one.name) for one in part.rejected),
    ]
    datasets.write_rejected(listed, rejected)
    _check(out, parts)
    _summarize(cfg, out, parts, counts, model.class_names, len(rejected), rate)
    predict.tell(counts, model.class_names, (rejected, listed), rate, stages, f"{len(parts)} parts in {out}")


def _folder(cfg: config.Predict) -> Path:
    """Make the folder of the parts; it must be empty, so that its parts are those of one set."""
    out = (
        expanded_new(cfg.out, "out", folder=True) if cfg.out else Path(cfg.run_dir) / "predictions"
    ).absolute()
    try:
        out.mkdir(exist_ok=True)
        _check_empty(out)
    except OSError as error:
        raise OutputError(f"out={out}: no folder can be made there: {error.strerror or error}") from error
    return out


def _check_empty(out: Path) -> None:
    found = next(out.iterdir(), None)
    if found is not None:
        raise OutputError(f"out={out}: the folder holds {found.name}; give an empty or a new one")


def _check(out: Path, parts: list[Part]) -> None:
    """Find out that the workers wrote to another file system than this machine's."""
    for part in parts:
        path = out / part.name
        if not path.is_file() or path.stat().st_size != part.size:
            raise OutputError(
                f"{path}: a worker wrote it, but it is not here: give an out= that all machines share"
            )


def _summarize(
    cfg: config.Predict,
    out: Path,
    parts: list[Part],
    counts: np.ndarray,
    class_names: tuple[str, ...],
    rejected: int,
    rate: float,
) -> None:
    content = {
        "model": str(expanded(cfg.model).absolute()),
        "data": str(cfg.data.path or cfg.data.name.value),
        "out": str(out),
        "format": cfg.format,
        "images": int(counts.sum()),
        "rejected": rejected,
        "labels": dict(zip(class_names, counts.tolist(), strict=True)),
        "images_per_second": float(rate),
        "parts": {part.name: int(part.counts.sum()) for part in sorted(parts, key=lambda one: one.name)},
    }
    output.write_json(Path(cfg.run_dir) / "summary.json", content)
