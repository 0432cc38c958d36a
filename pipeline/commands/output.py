"""What commands write into their run folder: figures, predictions, and what the run itself took."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.files import atomic
from pipeline.reporting.metrics import Scores
from pipeline.reporting.stages import Stages
from pipeline.software import software


def figures(scores: Scores) -> dict[str, Any]:
    """Return the figures as they stand in metrics.json."""
    return {
        "accuracy": scores.accuracy,
        "balanced_accuracy": scores.balanced_accuracy,
        "log_loss": scores.log_loss,
        "per_class": scores.per_class,
        "confusion_matrix": scores.confusion.tolist(),
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON for people and programs; a value that is not finite is refused."""
    with atomic(path) as stream:
        json.dump(content, stream, indent=2, allow_nan=False, ensure_ascii=False)
        stream.write("\n")


def prediction_columns(class_names: Sequence[str]) -> list[str]:
    """Return the names of the probability columns."""
    return [f"p_{name}" for name in class_names]


def write_predictions(
    path: Path, paths: Sequence[str], labels: np.ndarray, proba: np.ndarray, class_names: Sequence[str]
) -> None:
    """Write path, label (the true class), predicted and the probability of each class."""
    with atomic(path) as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "predicted", *prediction_columns(class_names)])
        rows = zip(paths, labels.tolist(), proba.argmax(axis=1).tolist(), proba.tolist(), strict=True)
        for name, label, predicted, row in rows:
            chances = [f"{value:.6g}" for value in row]
            writer.writerow([name, class_names[label], class_names[predicted], *chances])


def circumstances(stages: Stages) -> dict[str, Any]:
    """Return what metrics.json tells about the run itself: seconds of every stage, memory, versions."""
    return {
        "seconds": {**stages.seconds, "all": stages.total},
        "peak_memory_bytes": peak_memory(),
        "software": software(),
    }


def peak_memory() -> int | None:
    """Return the largest resident memory so far, in bytes; None where the system does not tell.

    Linux keeps ``ru_maxrss`` over ``exec``: a process started by a large one would tell that one's memory as its own.
    """
    try:
        found = re.search(rb"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_bytes(), re.MULTILINE)
    except OSError:  # no Linux
        found = None
    if found is not None:
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return getattr(psutil.Process().memory_info(), "peak_wset", None)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
