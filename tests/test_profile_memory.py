"""Features on disk or in memory: passes and bytes counted, needs forecast, advice that says which."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import backends, config
from pipeline.backends.cpu import unexpanded
from pipeline.commands.profile import measured
from pipeline.errors import ConfigError
from pipeline.profiling import advice as module
from pipeline.profiling import assemble, candidates_memory, counts_outofcore
from pipeline.profiling.advice import advise, verify
from pipeline.profiling.changes import overridden
from pipeline.profiling.counts import counts, hog
from pipeline.profiling.footprint import footprint, least_limit
from pipeline.profiling.limits import Limits
from pipeline.profiling.record import Recorder
from pipeline.profiling.report import Advice
from pipeline.profiling.work import describe, of_trained, streamed
from pipeline.scale.memory import Budget
from pipeline.scale.rows import Cells
from pipeline.spans import span
from tests.fake_runs import CORES, FakeRunner, settings

FLAT = [1.0] * 3
OUT = "scale.name=outofcore"
LIMITS = Limits(
    cores=2,
    threads=2,
    copy=1.6e10,
    copy_one=1e10,
    product={"float32": 1e11, "float64": 5e10},
    product_one={"float32": 5e10, "float64": 2.5e10},
    disk_read=2e9,
    disk_read_is="from the disk",
    cached_read=4e9,
    python_call=5e-7,
    vector_one={"float32": 2e10, "float64": 1e10},
)


def real(run_dir, text):
    text = f"data.name=synthetic data.n=100 data.classes=3 classifier.n_rounds=4 plots=false {OUT} {text}"
    return overridden(config.Train(run_dir=str(run_dir)), text)


# ---- counts ----


@pytest.fixture
def expanded(monkeypatch):
    """The numbers of rows and of columns that a run expands, call by call."""
    shapes, expand = [], Cells.expand

    def counting(self, read, places, outs, sets):
        shapes.append((len(outs[0]), sum(out.shape[1] for out in outs)))
        expand(self, read, places, outs, sets)

    monkeypatch.setattr(Cells, "expand", counting)
    return shapes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "classifier.dtype=float64",
        "data.classes=2",
        "classifier.early_stopping=true",
        "classifier.learner=componentwise",
    ],
)
def test_passes_are_those_that_a_run_makes(tmp_path, expanded, text):
    run = measured(real(tmp_path, text))
    work = run.work
    rows, whole = (work.passes - 1) * work.fit + work.rounds * work.watched, work.fit + work.tested
    assert sum(n for n, _ in expanded) == rows + whole
    columns = counts_outofcore.rounds_columns(work)
    assert columns < work.features or work.learner != "subspace"
    # the first pass for sums, the last, and those over validation images need fewer than the others: of a few rounds
    # that is seen, of componentwise the last pass looks at the chosen columns only
    few = 0.2 if work.learner == "componentwise" else 0.12
    assert sum(n * m for n, m in expanded) == pytest.approx(whole * work.features + rows * columns, rel=few)
    assert run.recording.rows["expand"].wall > 0.0
    assert not [key for key in run.recording.rows if "expand" in key and key != "expand"]


def test_passes_grow_where_one_serves_few_classes(tmp_path, expanded, monkeypatch):
    monkeypatch.setattr("pipeline.scale.memory.classes", lambda size, q: 2)
    monkeypatch.setattr("pipeline.scale.rows.classes", lambda size, q: 2)
    run = measured(real(tmp_path, "data.classes=5"))
    assert run.work.at_once == 2
    assert run.work.passes == 2 + 4 * 3  # two before the rounds, and three ranges of classes in each
    assert sum(n for n, _ in expanded) == run.work.passes * run.work.fit + run.work.tested


@pytest.mark.parametrize(
    "text",
    ["", "hog.dtype=float64", "hog.transform_sqrt=true", "preprocess.name=equalize", "hog.orientations=6"],
)
def test_bytes_on_disk_are_those_of_the_kernels(tmp_path, text):
    cfg = real(tmp_path, text)
    blank = np.zeros((1, cfg.image.height, cfg.image.width), np.uint8)
    pixels = backends.get("cpu").preprocess.apply(blank, cfg.preprocess)
    work = describe(cfg, backend="cpu", threads=1, images=10, classes=3)
    worker = unexpanded._Histograms(
        pixels.dtype, work.layout, 0, cfg.hog.transform_sqrt, np.dtype(cfg.hog.dtype.name)
    )
    assert work.kept_bytes == unexpanded.width(work.layout, work.block_norm) * worker.hist.itemsize


def test_the_two_steps_of_hog_do_the_work_of_one(tmp_path):
    local = describe(real(tmp_path, "scale.name=local"), backend="cpu", threads=1, images=1000, classes=10)
    work = describe(real(tmp_path, ""), backend="cpu", threads=1, images=1000, classes=10)
    found = counts(work)
    rows, whole = (work.passes - 1) * 800, 800 + 200
    some = 2 * 128 * work.rounds / (work.rounds + 1)  # in each round once for its sums, once for its step
    spared = (
        2 * (3240 - some) * rows
    )  # two products each that are not made of the columns that no one looks at
    once = found["hog"].operations / 1000 + (found["expand"].operations + spared) / (rows + whole)
    assert once == pytest.approx(hog(local).operations / 1000)
    # float32 in, float32 out
    assert found["expand"].bytes == pytest.approx(whole * (2912 + 12_960) + rows * (2912 + 4 * some))
    assert found["hog"].bytes == 1000 * (5000 + 2 * 2912)
    assert "gather" not in found
    assert "expand" not in counts(local)


def test_rows_of_a_run_out_of_core_are_judged(tmp_path):
    run = measured(real(tmp_path, ""))
    found = {one.name: one for one in assemble.stages(run, [run], LIMITS)}
    for name in ("hog", "expand", "write", "boost/sums"):
        assert found[name].bytes or found[name].operations, name
        assert found[name].verdict
    assert found["expand"].label == "Expand cell histograms"
    assert found["read"].label == "Make images"
    total = sum(one.wall for one in found.values())
    assert 0.6 * run.recording.wall < total <= 1.001 * run.recording.wall  # a tenth of a second in all


def test_a_stage_inside_one_of_its_name_is_the_same_row():
    with Recorder() as recorder, span("boost"), span("update"), span("update"):
        pass
    assert set(recorder.recording.rows) == {"boost", "boost/update"}


# ---- needs ----


def of_size(images, text="", tmp="run"):
    return describe(real(tmp, text), backend="cpu", threads=2, images=images, classes=10)


def test_needs_out_of_core_stay_below_the_limit_whatever_the_images():
    for images in (10_000, 100_000, 1_000_000):
        need = footprint(of_size(images, "scale.memory_limit=2GB"), 3e8, 1e10)
        assert need.fits
        assert need.host < 2e9
        assert need.disk == images * 2912
    assert footprint(of_size(1_000_000, "scale.name=local"), 3e8, 1e10).host > 1.296e10  # the features alone


def test_a_limit_that_is_too_low_is_refused_as_the_run_would():
    need = footprint(of_size(10_000, "scale.memory_limit=310MB"), 3e8, 1e10)
    assert not need.fits
    assert "scale.memory_limit=310MB is too low" in need.refused
    least = int(least_limit(of_size(10_000), 3e8))
    enough = streamed(replace(of_size(10_000), memory_limit=int(1.02 * least)), 300_000_000)
    assert footprint(enough, 3e8, 1e10).fits
    with pytest.raises(ConfigError, match="is too low"):
        Budget(int(0.9 * least), 300_000_000).rows(0, candidates_memory.SLACK, "training")


# ---- advice ----


def law(cfg, work):
    """Return seconds of a program that expands 1 us an image and pass, and is otherwise the same on disk."""
    seconds = {
        "read": 0.001,
        "hog": 1e-4 * work.images,
        "boost/sums": 1e-7 * work.fit * work.rounds,
        "save": 0.1,
    }
    if work.memory_limit:
        seconds |= {"write": 1e-5 * work.images, "expand": 1e-6 * work.fit * work.passes}
    return seconds


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: CORES)


def recorded(run, peak):
    return replace(run, recording=SimpleNamespace(memory_peak=peak))


def test_histograms_on_disk_are_advised_where_memory_is_short(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "resident", lambda: 300_000_000)  # the limit that is advised follows from it
    runner, cfg = FakeRunner(law), settings(tmp_path)
    first, *_ = [
        one
        for one in advise([recorded(runner(cfg), 1_900_000_000)], runner, memory=2e9, losses=lambda run: FLAT)
        if "scale" in one.override
    ]
    assert first.override == "scale.name=outofcore scale.memory_limit=1000MB"
    assert first.title.startswith("memory is short: keep the cell histograms on disk")
    after = runner(overridden(cfg, first.override))
    assert first.predicted_seconds == pytest.approx(after.seconds["all"], rel=0.01)
    assert first.predicted_gain == pytest.approx(runner(cfg).seconds["all"] - after.seconds["all"], rel=0.05)
    assert first.predicted_gain < 0.0
    assert first.predicted_memory < 1_000_000_000
    assert f"{after.work.passes} passes" in first.why


def test_features_that_do_not_fit_are_said_not_to(tmp_path):
    runner = FakeRunner(law)
    cfg = replace(settings(tmp_path), data=config.Data(name=config.DataName.synthetic, n=500_000))
    found = advise([recorded(runner(cfg), 6_000_000_000)], runner, memory=4e9, losses=lambda run: FLAT)
    first = next(one for one in found if "scale" in one.override)
    assert first.title.startswith("the features do not fit in memory")
    assert found.index(first) <= 1  # beside packing, before all that saves time


def test_there_is_no_word_of_disks_where_memory_is_ample_or_no_limit_would_do(tmp_path):
    runner, cfg = FakeRunner(law), settings(tmp_path)
    for peak, memory in ((1_000_000_000, 2e9), (2**31, 1e8)):
        found = advise([recorded(runner(cfg), peak)], runner, memory=memory, losses=lambda run: FLAT)
        assert not [one for one in found if "scale" in one.override], memory


def test_features_in_memory_are_advised_where_they_fit(tmp_path):
    runner, cfg = FakeRunner(law), overridden(settings(tmp_path), OUT)
    found = advise([runner(cfg)], runner, memory=8e9, losses=lambda run: FLAT)
    local = next(one for one in found if one.override == "scale.name=local")
    gain = runner(cfg).seconds["all"] - runner(overridden(cfg, "scale.name=local")).seconds["all"]
    assert local.predicted_gain == pytest.approx(gain, rel=0.02)
    assert local.predicted_memory > 8000 * 12_960
    tight = advise([runner(cfg)], runner, memory=3e8, losses=lambda run: FLAT)
    assert not [one for one in tight if one.override == "scale.name=local"]


def test_verify_tells_the_memory_that_was_taken(tmp_path):
    fake, peaks = FakeRunner(law), {"local": 900, "outofcore": 400}

    def runner(cfg):
        return recorded(fake(cfg), peaks[cfg.scale.name.name])

    told = Advice("title", OUT, 1.0, -1.0, "why", "model", predicted_memory=450)
    found = verify([told, replace(told, predicted_memory=None)], settings(tmp_path), runner, 1)
    assert [one.measured_memory for one in found] == [400, None]
    assert found[0].measured_gain < 0.0


def test_out_of_core_advice_can_be_followed_on_a_real_machine(tmp_path, monkeypatch):
    """A small machine is pretended; the run out of core keeps below what was predicted, and is the same model."""
    monkeypatch.setattr(module, "MORE", 1)
    cfg = real(tmp_path, "scale.name=local data.n=300")
    measured(cfg)
    run = measured(cfg)
    peak = run.recording.memory_peak
    full = replace(run, recording=SimpleNamespace(memory_peak=3 * peak))  # as if the features were many
    found = advise([full], measured, 0.01, memory=4.0 * peak)
    first = next(one for one in found if one.override.startswith(OUT))
    tried = verify([first], cfg, measured, 1)[0]
    assert tried.measured_seconds > 0.0
    limit = int(first.override.split()[1].partition("=")[2].removesuffix("MB")) * 10**6
    assert tried.measured_memory < limit
    assert first.predicted_memory < limit
    accuracy = tried.caveat.partition("tried: accuracy ")[2].split("%, ")
    assert accuracy[0] == accuracy[1].split("%")[0]


def test_changes_of_one_group_are_made_together():
    after = overridden(config.Train(), "reduce.name=pca reduce.components=16")
    assert (after.reduce.name.name, after.reduce.components) == ("pca", 16)
    with pytest.raises(ConfigError, match=r"scale\.size"):
        overridden(config.Train(), "scale.size=3")


def test_the_work_of_a_run_out_of_core_says_so(tmp_path):
    run = measured(real(tmp_path, "scale.memory_limit=4GB"))
    assert of_trained(run.settings, run.trained, 2).memory_limit == 4 * 10**9
    assert run.work.block_rows == 80  # all of them fit
