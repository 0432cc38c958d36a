"""Spans, and the recorder that adds them up: with a clock of our own, so that every number is exact."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest

from pipeline import spans
from pipeline.profiling import record
from pipeline.profiling.record import Recorder


class Watch:
    """Stands in for the module ``time``: tests move its hands."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0

    def perf_counter_ns(self) -> int:
        return self.wall

    def process_time_ns(self) -> int:
        return self.cpu

    def work(self, seconds: float, cores: float = 1.0) -> None:
        self.wall += int(seconds * 1e9)
        self.cpu += int(seconds * cores * 1e9)


@pytest.fixture
def watch(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(record, "time", watch)
    return watch


def walls(recorder: Recorder) -> dict[str, float]:
    assert recorder.recording is not None
    return {key: row.wall for key, row in recorder.recording.rows.items()}


def test_without_a_listener_nothing_is_made():
    assert spans.span("a") is spans.span("b")
    assert spans.part("a") is spans.span("b")
    spans.count("bytes", 3)


def test_a_stage_does_not_hold_the_time_of_the_stages_inside(watch):
    with Recorder() as recorder:
        with spans.span("read"):
            watch.work(1.0, 0.5)
            with spans.span("decode"):
                watch.work(4.0, 2.0)
            watch.work(0.5)
        watch.work(0.25)
        with spans.span("hog"):
            watch.work(2.0)
    found = recorder.recording
    assert walls(recorder) == {"read": 1.5, "decode": 4.0, "hog": 2.0}
    assert found.wall == 7.75
    assert found.rows["decode"].cores == 2.0
    assert found.rows["read"].cpu == 1.0
    assert [(e.name, e.begin, e.seconds, e.depth) for e in found.events] == [
        ("decode", 1.0, 4.0, 1), ("read", 0.0, 5.5, 0), ("hog", 5.75, 2.0, 0),
    ]  # fmt: skip


def test_repeated_stages_add_up_under_their_path(watch):
    with Recorder() as recorder:
        for _ in range(3):
            with spans.span("boost"):
                watch.work(0.5)
                with spans.span("update"):
                    watch.work(1.0)
        with spans.span("update"):
            watch.work(7.0)
    assert walls(recorder) == {"boost": 1.5, "boost/update": 3.0, "update": 7.0}
    assert recorder.recording.rows["boost/update"].calls == 3
    assert recorder.recording.spans == 7


def test_compiling_is_one_row_wherever_it_happens(watch):
    with Recorder() as recorder:
        for name in ("hog", "boost"):
            with spans.span(name):
                watch.work(1.0)
                with spans.span("compile"):
                    watch.work(2.0)
                    with spans.span("copy to device"):
                        watch.work(0.5)
    assert walls(recorder) == {"hog": 1.0, "compile": 4.0, "copy to device": 1.0, "boost": 1.0}


def test_parts_share_the_time_of_their_stage_in_proportion(watch):
    """One thread, 1 s of sums and 3 s of solving of 5 s: what is left belongs to the stage around."""
    with Recorder() as recorder, spans.span("boost"), spans.span("fit"):
        with spans.part("sums"):
            watch.work(1.0, 2.0)
        with spans.part("solve"):
            watch.work(3.0, 2.0)
        watch.work(1.0, 2.0)
    assert walls(recorder) == pytest.approx({"boost": 1.0, "boost/sums": 1.0, "boost/solve": 3.0})
    assert recorder.recording.rows["boost/solve"].cpu == pytest.approx(6.0)


def test_parts_of_several_threads_share_by_the_seconds_of_all(watch):
    """Two threads at once: the seconds of both count, and together they cover the stage."""
    step = threading.Barrier(2)

    def helper() -> None:
        with spans.part("sums"):
            step.wait()  # both have begun
            step.wait()  # 4 s have passed

    with Recorder() as recorder, spans.span("boost"), spans.span("fit"):
        other = threading.Thread(target=helper)
        with spans.part("solve"):
            other.start()
            step.wait()
            watch.work(4.0, 2.0)
            step.wait()
        other.join()
    assert walls(recorder) == pytest.approx({"boost": 0.0, "boost/sums": 2.0, "boost/solve": 2.0})
    assert {e.thread for e in recorder.recording.events} == {0, 1}


def test_a_stage_of_another_thread_counts_as_a_part(watch):
    def helper() -> None:
        with spans.span("compile"):
            watch.work(2.0)

    with Recorder() as recorder, spans.span("hog"):
        other = threading.Thread(target=helper)
        other.start()
        other.join()
        watch.work(1.0)
    assert walls(recorder) == pytest.approx({"hog": 1.0, "compile": 2.0})


def test_an_exception_ends_every_stage_it_leaves(watch):
    with Recorder() as recorder:
        with suppress(KeyError), spans.span("hog"), spans.span("inside"):
            watch.work(1.0)
            raise KeyError
        with spans.span("save"):
            watch.work(2.0)
    assert walls(recorder) == {"hog/inside": 1.0, "hog": 0.0, "save": 2.0}
    assert spans.span("a") is spans.span("b"), "the recorder no longer listens"


def test_counts_belong_to_the_stage_at_work(watch):
    with Recorder() as recorder, spans.span("hog"):
        spans.count("to the device", 5.0)
        with spans.span("copy to device"):
            spans.count("to the device", 7.0)
            spans.count("to the device", 1.0)
    rows = recorder.recording.rows
    assert rows["hog"].counts == {"to the device": 5.0}
    assert rows["copy to device"].counts == {"to the device": 8.0}


class Clock:
    """A device's events, set by hand."""

    now = 0.0

    def mark(self) -> float:
        return self.now

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


def test_device_seconds_come_from_events_and_exclude_the_stages_inside(watch):
    clock = Clock()
    with Recorder(clock) as recorder, spans.span("boost"):
        clock.now += 1.0
        with spans.span("update"):
            clock.now += 4.0
    rows = recorder.recording.rows
    assert rows["boost/update"].device == 4.0
    assert rows["boost"].device == 1.0


def test_work_on_another_stream_has_its_own_events(watch):
    """A copy overlaps with the kernels around it: its time is not taken away from theirs."""
    clock = Clock()
    events = iter([10.0, 13.0])
    with Recorder(clock) as recorder, spans.span("hog"):
        with spans.span("copy to device"):
            spans.beside(lambda: next(events), lambda: None)
        clock.now += 5.0
    assert recorder.recording.rows["copy to device"].device == 3.0
    assert recorder.recording.rows["hog"].device == 5.0
    done = []
    spans.beside(lambda: pytest.fail("nobody listens"), lambda: done.append(1))
    assert done == [1]


def test_memory_is_watched_stage_by_stage():
    size = 300_000_000
    with Recorder() as recorder:
        with spans.span("read"):
            pass
        with spans.span("hog"):
            block = np.ones(size, dtype=np.uint8)
        with spans.span("save"):
            del block
    rows = recorder.recording.rows
    assert rows["hog"].memory_peak - rows["hog"].memory_begin > 0.9 * size
    assert rows["save"].memory_begin > rows["hog"].memory_begin + 0.9 * size
    assert recorder.recording.memory_peak >= rows["hog"].memory_peak
    assert rows["read"].memory_peak < rows["read"].memory_begin + 0.1 * size


def test_the_stages_of_a_real_run_make_up_its_time(tmp_path):
    """Nothing of weight happens between stages, and each row is there."""
    from pipeline import config
    from pipeline.commands.profile import measured
    from pipeline.config import Classifier, Data, DataName

    cfg = config.Train(
        run_dir=str(tmp_path),
        data=Data(name=DataName.synthetic, n=600),
        classifier=Classifier(n_rounds=20, early_stopping=True),
    )
    measured(cfg)
    run = measured(cfg)
    total = sum(seconds for stage, seconds in run.seconds.items() if stage != "all")
    assert total <= run.seconds["all"]
    assert total > 0.97 * run.seconds["all"]
    assert list(run.seconds) == [
        "start", "read", "split", "gather", "preprocess", "hog", "boost", "boost/set-up", "boost/update",
        "boost/columns", "boost/sums", "boost/solve", "boost/validation", "evaluate", "save", "all",
    ]  # fmt: skip
    assert run.work.rounds == len(run.trained.model.classifier.train_loss_)
    assert (run.work.images, run.work.classes, run.work.source) == (600, 10, "synthetic")
    counts = run.trained.content["images"]
    assert (run.work.fit, run.work.watched, run.work.tested) == (
        counts["fit"], counts["validation"], counts["test"],
    )  # fmt: skip
    unheard = measured(cfg, listen=False)
    assert unheard.recording is None
    np.testing.assert_array_equal(unheard.trained.model.classifier.coef_, run.trained.model.classifier.coef_)
