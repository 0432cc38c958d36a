"""Sweeps of a profile: the laws behind made-up runs are found again, and real runs of every source work."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import config
from pipeline.commands.profile import measured
from pipeline.datasets import pack
from pipeline.errors import ConfigError
from pipeline.profiling import sweeps
from pipeline.profiling.changes import overridden
from tests.fake_runs import FakeRunner, settings


def test_threads_find_a_serial_share_of_20_percent(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "usable_cores", lambda: 6)
    runner = FakeRunner(
        lambda cfg, work: {"hog": 0.3 + 1.2 / work.threads, "boost/sums": 0.1 + 0.4 / work.threads}
    )
    found = sweeps.sweep("threads", settings(tmp_path), runner)
    assert [point.x for point in found.points] == [1, 2, 3, 4, 5, 6]
    assert found.fit.kind == "amdahl"
    assert found.fit.values["serial"] == pytest.approx(0.2)
    assert found.fit.values["seconds_one"] == pytest.approx(2.0)
    assert "20%" in found.fit.words
    assert "5 times" in found.fit.words
    assert found.fit.at(4) == pytest.approx(2.0 * (0.2 + 0.8 / 4))
    assert {call.data.workers for call in runner.calls[2:]} == {1, 2, 3, 4, 5, 6}  # decoding too


def test_threads_that_do_not_help_are_said_to_be_no_faster(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "usable_cores", lambda: 2)
    found = sweeps.sweep(
        "threads", settings(tmp_path), FakeRunner(lambda cfg, work: {"hog": 0.1 * work.threads})
    )
    assert found.fit.values["serial"] == pytest.approx(1.0)
    assert found.fit.words == "None of the work shares out: 2 threads are no faster than one."


def test_threads_in_doubling_steps_on_many_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "usable_cores", lambda: 48)
    runner = FakeRunner(lambda cfg, work: {"hog": 1.0 / work.threads})
    found = sweeps.sweep("threads", settings(tmp_path), runner)
    assert [point.x for point in found.points] == [1, 2, 4, 8, 16, 32, 48]
    assert found.fit.values["serial"] == pytest.approx(0.0, abs=1e-9)


def test_images_find_an_exponent_of_1_3_and_the_stage_that_grows(tmp_path):
    runner = FakeRunner(lambda cfg, work: {"hog": 1e-5 * work.images**1.3, "save": 1e-6 * work.images**0.5})
    found = sweeps.sweep("images", settings(tmp_path), runner)
    assert [point.x for point in found.points] == [1000, 2000, 4000, 8000]
    assert found.fit.values["exponent of hog"] == pytest.approx(1.3)
    assert found.fit.values["exponent"] == pytest.approx(1.3, abs=0.01)
    assert "HoG features grows fastest (exponent 1.30)" in found.fit.words
    assert "exponent of save" not in found.fit.values  # too small to tell


def test_batch_finds_the_cost_of_a_batch_and_the_fastest(tmp_path):
    def law(cfg, work):
        spilled = 0.5 if cfg.chunk > 1024 else 0.0
        return {"hog": 1.0 + 0.004 * math.ceil(work.images / cfg.chunk) + spilled, "boost/sums": 3.0}

    found = sweeps.sweep("batch", replace(settings(tmp_path), chunk=64), FakeRunner(law))
    assert [point.x for point in found.points] == [16, 64, 256, 1024, 4096, 8000]
    assert found.points[0].seconds == pytest.approx(1.0 + 0.004 * 500)  # boosting has no part in it
    assert found.fit.values["per_batch"] == pytest.approx(0.004)
    assert found.fit.values["best"] == 1024
    assert "chunk=64" in found.fit.words
    assert "caches" in found.fit.words


def test_a_batch_sweep_claims_no_step_that_two_runs_of_one_size_differ_by_too(tmp_path):
    noise = iter([0.0, 0.03, 0.01, 0.0, 0.0, 0.02, 0.01, 0.0, 0.02, 0.0, 0.0, 0.01, 0.0, 0.01, 0.0, 0.02])

    def law(cfg, work):
        return {"hog": 1.0 + next(noise), "boost/sums": 3.0}

    found = sweeps.sweep("batch", settings(tmp_path), FakeRunner(law))
    assert found.fit.words.startswith("No step beyond the noise: every size takes 1.0 s to 1.0 s")
    assert "caches" not in found.fit.words
    assert max(point.spread for point in found.points) == pytest.approx(0.02)


def test_dtype_compares_float64_with_float32(tmp_path):
    def law(cfg, work):
        return {"hog": 0.25 * work.feature_bytes, "boost/sums": 0.5 * work.number_bytes}

    runner = FakeRunner(law, lambda cfg: 0.9 + 0.01 * (cfg.classifier.dtype is config.FloatType.float64))
    found = sweeps.sweep("dtype", settings(tmp_path), runner)
    assert [point.seconds for point in found.points] == [3.0, 5.0, 4.0, 6.0]
    assert found.fit.values["ratio"] == pytest.approx(2.0)
    assert "2.00 times" in found.fit.words
    assert "90.00% with float32, 91.00% with float64" in found.fit.words


def test_size_keeps_to_layouts_of_whole_blocks(tmp_path):
    runner = FakeRunner(lambda cfg, work: {"hog": 1e-4 * work.pixels, "boost/sums": 1e-7 * work.features**2})
    cfg = settings(tmp_path)
    found = sweeps.sweep("size", cfg, runner)
    assert [point.label for point in found.points] == ["25x50", "35x71", "50x100", "71x141"]
    assert found.fit.values["exponent of hog"] == pytest.approx(1.0)
    cfg = replace(cfg, image=config.Image(height=30, width=60))  # half of it is smaller than a block
    sizes = sweeps._sizes(cfg)
    assert (30, 60) in sizes
    assert all(height >= 24 and width >= 24 for height, width in sizes)
    few = replace(
        cfg,
        image=config.Image(height=24, width=24),
        hog=config.Hog(pixels_per_cell=[24, 24], cells_per_block=[1, 1]),
    )
    with pytest.raises(ConfigError, match="sweep=size: images of 24x24"):
        sweeps.sweep("size", few, runner)


def test_a_budget_cuts_the_rounds_and_says_so(tmp_path):
    runner = FakeRunner(lambda cfg, work: {"hog": 1.0, "boost/sums": 1.0 * work.rounds})
    found = sweeps.sweep("images", settings(tmp_path, n_rounds=100), runner, budget_seconds=60.0)
    rounds = runner.calls[-1].classifier.n_rounds
    assert 2 <= rounds < 20
    assert f"{rounds} of 100 rounds" in found.fit.words
    assert sweeps.sweep("images", settings(tmp_path, n_rounds=3), runner).fit.words.count("rounds") == 0


def test_the_faster_of_two_runs_counts(tmp_path):
    noise = iter([0.0] * 2 + [0.5, 0.0] * 10)
    runner = FakeRunner(lambda cfg, work: {"hog": 1e-3 * work.images + next(noise)})
    found = sweeps.sweep("images", settings(tmp_path), runner)
    assert [point.seconds for point in found.points] == pytest.approx([1.0, 2.0, 4.0, 8.0])


def test_mistakes_are_told_in_one_line(tmp_path, monkeypatch):
    runner = FakeRunner(lambda cfg, work: {"hog": 1.0})
    cfg = settings(tmp_path)
    with pytest.raises(
        ConfigError, match=r"no sweep 'thread'. Did you mean 'threads'\? Choose among: threads, "
    ):
        sweeps.check(["images", "thread"])
    with pytest.raises(ConfigError, match=r"no sweep 'x'.* Choose among"):
        sweeps.sweep("x", cfg, runner)
    assert runner.calls == []  # before anything is measured
    gpu = replace(cfg, backend=config.Backend(name=config.BackendName.gpu))
    for name in ("batch", "threads"):
        with pytest.raises(ConfigError, match=f"sweep={name}.*backend=gpu"):
            sweeps.sweep(name, gpu, runner)
    monkeypatch.setattr(sweeps, "usable_cores", lambda: 1)
    with pytest.raises(ConfigError, match="at least two cores"):
        sweeps.sweep("threads", cfg, runner)
    assert list(tmp_path.iterdir()) == []  # nothing is left


# ---- real runs ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two class folders of 60 small pictures each, in tracks of 6."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for kind, name in enumerate(("across", "down")):
        (root / name).mkdir()
        for i in range(60):
            wave = 60 * np.sin(np.arange(32) * 0.8 + rng.uniform(0, 6))
            picture = 125 + (wave[:, None] if kind else wave) + rng.normal(0, 20, (32, 32))
            Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(
                root / name / f"t{i // 6:02d}_{i % 6}.png"
            )
    return root


def real(tmp_path, path: Path) -> config.Train:
    """Return small settings for images at `path`."""
    text = (
        "image.height=32 image.width=32 classifier.n_rounds=3 classifier.subspace_size=16 backend.threads=1"
    )
    cfg = overridden(config.Train(run_dir=str(tmp_path)), text)
    return replace(cfg, data=config.Data(name=config.DataName.auto, path=str(path)))


def test_fewer_images_of_a_folder_keep_every_track(tmp_path, folder):
    cfg = replace(real(tmp_path, folder), split=config.Split(group_by=r"(t\d+)_"))
    found = sweeps.sweep("images", cfg, measured)
    assert [point.x for point in found.points] == [20, 30, 60, 120]
    assert all(point.seconds > 0.0 and "hog" in point.stages for point in found.points)
    assert "read once" in found.fit.words
    assert list(tmp_path.iterdir()) == []


def test_sizes_of_a_packed_set_are_made_from_its_pixels(tmp_path, folder):
    packed = tmp_path / "photos.npz"
    cfg = real(tmp_path, folder)
    pack(cfg.data, cfg.image, packed)
    found = sweeps.sweep("size", real(tmp_path, packed), measured)
    assert [point.label for point in found.points] == ["32x32", "45x45"]
