"""What is measured on a GPU, and told to NVIDIA's profilers; under the double."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline import spans
from pipeline.boosting import LogitBoostClassifier
from pipeline.config import Preprocess
from pipeline.features import HogExtractor
from pipeline.profiling.record import Recorder


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (300, 40, 48), dtype=np.uint8)


def test_ranges_are_named_always_and_closed_again(machine, gpu, pixels):
    gpu.require()
    X, y = load_digits(return_X_y=True)
    LogitBoostClassifier(n_rounds=2, backend="gpu").fit(X[:200], y[:200])
    HogExtractor(backend="gpu").fit_transform(pixels[:2])
    assert {"set-up", "columns", "fit", "sums", "solve", "update", "compile"} <= set(machine.ranges)
    assert set(machine.open_ranges.values()) == {0}


def test_a_cupy_without_nvtx_is_no_hindrance(machine, gpu, monkeypatch):
    import cupy

    monkeypatch.delattr(cupy.cuda.nvtx, "RangePush")
    assert not gpu.clock.has_ranges()


def test_every_byte_that_moves_is_counted_where_it_moves(machine, gpu, pixels):
    from pipeline.model import features

    extractor = HogExtractor(backend="gpu").fit(pixels[:1])
    extractor.transform(pixels[:2])  # tables of the kernel
    machine.forget()
    with Recorder(gpu.clock) as recorder:
        X = features(pixels, np.arange(299, -1, -1), Preprocess(), extractor, 64)
        with spans.span("evaluate"):
            home = gpu.get(X)
    rows = recorder.recording.rows
    assert (
        rows["copy to device"].counts
        == {"to the device": pixels.nbytes}
        == {"to the device": machine.bytes["h2d"]}
    )
    assert (
        sum(row.counts.get("to the host", 0) for row in rows.values()) == machine.bytes["d2h"] == home.nbytes
    )
    assert rows["copy to device"].device > 0.0


def test_boosting_counts_its_small_transfers(machine, gpu):
    X, y = load_digits(return_X_y=True)
    model = LogitBoostClassifier(n_rounds=3, backend="gpu")
    model.fit(X[:200], y[:200])
    machine.forget()
    with Recorder(gpu.clock) as recorder, spans.span("boost"):
        model.fit(X[:200], y[:200])
    counted = sum(row.counts.get("to the host", 0) for row in recorder.recording.rows.values())
    assert counted <= machine.bytes["d2h"]
    assert counted > 0
    for key in ("boost/sums", "boost/solve", "boost/update"):
        assert recorder.recording.rows[key].wall > 0.0


def test_the_profiler_is_told_when_to_look(machine, gpu):
    gpu.clock.start_profiler()
    gpu.clock.stop_profiler()
    assert (machine.count["profiler started"], machine.count["profiler stopped"]) == (1, 1)
    gpu.clock.finish()
    assert gpu.clock.memory() >= 0
