"""Machines of ``plan``: the entries, what is missing in one, measuring this machine and keeping the result."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import config
from pipeline.config import DataName, MachineKind
from pipeline.errors import ConfigError, PipelineError
from pipeline.profiling import machines, measuring, samples
from pipeline.profiling.record import Recording, Row
from pipeline.profiling.runs import Run
from pipeline.profiling.settings import leaves, overrides
from pipeline.profiling.work import describe

ENTRIES = sorted(path.stem for path in (config.CONF / "machine").glob("*.yaml"))
GPUS = [name for name in ENTRIES if config.machine(name).kind is MachineKind.gpu]
CPUS = [name for name in ENTRIES if config.machine(name).kind is MachineKind.cpu]


# ---- entries ----


def test_a_dozen_gpus_and_typical_laptops_and_servers() -> None:
    assert len(GPUS) >= 12
    assert {"t4", "rtx4090", "a100_80", "l4", "h100", "h200", "b200"} <= set(GPUS)
    assert sum(name.startswith("laptop") for name in CPUS) >= 2
    assert sum(name.startswith("server") for name in CPUS) >= 2
    assert "this" in ENTRIES


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_is_complete_and_plausible(name: str) -> None:
    machine = config.machine(name)
    machines.require(machine)
    if machine.kind is MachineKind.this:
        return
    assert machine.fp32_tflops is not None
    assert machine.fp64_tflops is not None
    assert machine.memory_gb is not None
    assert machine.bandwidth_gb_s is not None
    assert machine.fp64_tflops < machine.fp32_tflops
    assert 2015 <= (machine.year or 0) <= 2026
    assert any(vendor in machine.source for vendor in ("NVIDIA", "AMD", "Intel"))
    if machine.kind is MachineKind.gpu:
        # a multiprocessor does 64 or 128 multiply-adds in float32 a cycle at the highest clock
        cycle = (machine.multiprocessors or 0) * (machine.clock_ghz or 0.0) * 1e9
        per_cycle = machine.fp32_tflops * 1e12 / cycle
        assert any(abs(per_cycle / exact - 1.0) < 0.02 for exact in (128, 256))
        assert machine.tensor_tflops == 0 or machine.tensor_tflops >= machine.fp32_tflops
        assert machine.link_gb_s in (16, 32, 64)  # PCIe 3.0 x16 or 4.0 x8, 4.0, 5.0; one direction


def test_the_h200_of_the_document_on_the_gpu() -> None:
    h200 = config.machine("h200")
    assert (h200.memory_gb, h200.bandwidth_gb_s, h200.fp32_tflops) == (141, 4800, 67)


@pytest.mark.parametrize("field", sorted(machines.NEEDED[MachineKind.gpu]))
def test_a_gpu_entry_with_a_missing_field(field: str) -> None:
    machine = replace(config.machine("h200"), name="my card", **{field: "" if field == "source" else None})
    with pytest.raises(ConfigError) as caught:
        machines.require(machine)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"machine.{field}: the gpu entry 'my card' lacks it; add a line '{field}: ...'")


def test_an_entry_without_a_name_or_of_no_known_name() -> None:
    with pytest.raises(ConfigError, match=r"machine\.name: the entry has no name"):
        machines.require(config.Machine(kind=MachineKind.cpu))
    with pytest.raises(ConfigError, match=r"no entry 'h2000'; choose from: .*h200"):
        config.machine("h2000")


# ---- settings as words ----


def test_words_give_exactly_the_settings() -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    config.register()
    cfg = config.Train(run_dir="r", plots=False)
    cfg.data = config.Data(name=DataName.folder, path="a folder/it's, (really) \\'odd=1'", max_rejected=1e-5)
    cfg.classifier.learner, cfg.classifier.gamma = config.Learner.random_features, [0.25, 1.5]
    cfg.split.group_by = r"(\d+)_[^/]*$"
    with initialize_config_dir(str(config.CONF), version_base="1.3"):
        composed = compose("train", overrides(cfg))
    OmegaConf.update(composed, "run_dir", "r")
    found = OmegaConf.to_object(composed)
    assert config.Train(**{one.name: getattr(found, one.name) for one in fields(config.Train)}) == cfg
    assert dict(leaves(cfg))["hog.pixels_per_cell"] == [8, 8]


# ---- measuring, with runs of known cost ----


def truth(n: int, rounds: int) -> dict[str, float]:
    return {
        "start": 0.001,
        "read": 4e-5 * n,
        "hog": 0.002 + 2e-5 * n,
        "boost/set-up": 9e-5 * n,
        "boost/sums": rounds * (0.001 + 5e-6 * n),
        "boost/solve": 0.003 * rounds,
        "save": 0.7 + 1e-5 * n,
    }


class Pretended:
    """Runs that take what `truth` says; the first of each kind costs more."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []
        self.launched = 0

    def __call__(self, cfg: config.Train) -> Run:
        n, rounds = cfg.data.n, cfg.classifier.n_rounds
        cold = not self.runs
        self.runs.append((n, rounds))
        seconds = truth(n, rounds)
        if cold:
            seconds["compile"] = 9.0
        rows = {stage: Row(wall=value, cpu=2 * value) for stage, value in seconds.items()}
        total = sum(seconds.values())
        work = describe(cfg, backend="cpu", threads=2, images=n, classes=cfg.data.classes)
        return Run(cfg, {**seconds, "all": total}, Recording(rows, total, total, 10**8, [], 0), work, None)

    def launch(self, cfg: config.Train) -> tuple[float, int]:
        self.launched += 1
        slow = 5.0 if self.launched == 1 else 0.0
        return sum(truth(cfg.data.n, cfg.classifier.n_rounds).values()) + 2.5 + slow, 300_000_000


@pytest.fixture
def cfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> config.Train:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return config.Train(data=config.Data(name=DataName.synthetic, n=40_000), run_dir=str(tmp_path))


def measured(
    cfg: config.Train, pretended: Pretended, refresh: bool = False, said: list[str] | None = None
) -> machines.Measured:
    return measuring.this_machine(
        cfg,
        config.Machine(name="this", refresh=refresh),
        samples.look(cfg.data, cfg.image),
        pretended,
        lambda folder: {"copy": 2e10, "product": {"float32": 1e11, "float64": 5e10}},
        (said if said is not None else []).append,
        pretended.launch,
    )


@pytest.mark.parametrize("n", [2_000, 10_000, 40_000])
def test_the_model_of_this_machine_predicts_runs_it_has_not_seen(cfg: config.Train, n: int) -> None:
    found = measured(cfg, Pretended())
    assert found.images == (1_500, 6_000)
    seconds = found.seconds(n, 100)
    expected = {**truth(n, 100), "start": truth(n, 100)["start"] + 2.5}
    for stage, value in expected.items():
        assert seconds[stage] == pytest.approx(value, rel=1e-3), stage
    assert sum(seconds.values()) == pytest.approx(sum(expected.values()), rel=1e-3)


def test_a_measurement_is_kept_until_settings_change_or_it_is_refreshed(cfg: config.Train) -> None:
    pretended, said = Pretended(), []
    first = measured(cfg, pretended)
    done = len(pretended.runs)
    more = replace(cfg, data=replace(cfg.data, n=10**6), classifier=replace(cfg.classifier, n_rounds=7))
    assert measured(more, pretended, said=said) == first
    assert len(pretended.runs) == done
    assert "kept; machine.refresh=true measures again" in said[0]
    measured(cfg, pretended, refresh=True)
    assert len(pretended.runs) == 2 * done
    measured(replace(cfg, hog=config.Hog(orientations=6)), pretended)
    assert len(pretended.runs) == 3 * done


def test_a_damaged_measurement_is_measured_again(cfg: config.Train) -> None:
    pretended = Pretended()
    first = measured(cfg, pretended)
    (kept,) = (machines.cache_folder() / "plan").glob("*.json")
    assert json.loads(kept.read_text())["measured"]["once"] == first.once
    kept.write_text(kept.read_text()[:100])
    done = len(pretended.runs)
    assert measured(cfg, pretended).models == first.models
    assert len(pretended.runs) == 2 * done


@pytest.mark.parametrize(
    "content", ["{bad", "[]", "{}", '{"measured": []}', '{"measured": {"models": []}}', "null"]
)
def test_a_kept_file_of_any_other_content_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    place = tmp_path / "kept.json"
    place.write_text(content)
    monkeypatch.setattr(machines, "_place", lambda key: place)
    assert machines.kept({}) is None


def test_large_images_are_measured_on_fewer(cfg: config.Train) -> None:
    pretended = Pretended()
    found = measured(replace(cfg, image=config.Image(height=400, width=800)), pretended)
    assert max(n for n, _ in pretended.runs) < 500
    assert len(found.images) == 2


def test_many_classes_need_more_images(cfg: config.Train) -> None:
    pretended = Pretended()
    found = measured(replace(cfg, data=replace(cfg.data, classes=700)), pretended)
    assert min(n for n, _ in pretended.runs) == 7_000  # ten of each
    assert found.images == (7_000, 14_000)


def test_a_process_of_its_own_tells_seconds_and_memory(cfg: config.Train) -> None:
    small = replace(
        cfg,
        data=config.Data(name=DataName.synthetic, n=40, classes=2),
        image=config.Image(height=16, width=16),
        hog=config.Hog(pixels_per_cell=[8, 8], cells_per_block=[1, 1]),
        classifier=config.Classifier(n_rounds=1),
        plots=False,
    )
    wall, memory = measuring.launched(small)
    assert wall > 0.1
    assert memory > 10_000_000
    with pytest.raises(PipelineError, match=r"the measuring run ended with status 2: .*no such"):
        measuring.launched(replace(small, data=config.Data(name=DataName.packed, path="absent.npz")))


def test_the_clock_of_a_virtual_machine_follows_from_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(psutil, "cpu_freq", lambda: None)
    assert machines.clock() == 2.5
    assert machines.clock(32 * 3.7e9) == pytest.approx(3.7)
    assert machines.clock(64 * 2.0e9) == pytest.approx(4.0)  # 32 a cycle is the other explanation
    assert machines.clock(1e6) == 2.5


# ---- samples ----


def test_part_of_a_folder_keeps_every_class(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    for name, count in (("often", 60), ("rare", 12)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / "set" / name / f"{i:02}.png")
    data, image = config.Data(name=DataName.auto, path=str(tmp_path / "set")), config.Image(height=8, width=8)
    source = samples.look(data, image)
    assert (source.kind, source.images, source.classes) == ("folder", 72, 2)
    assert source.file_bytes == sum(p.stat().st_size for p in (tmp_path / "set").rglob("*.png"))
    part = samples.take(data, image, 24, tmp_path / "part")
    found = samples.look(part, image)
    assert (found.images, found.classes) == (30, 2)  # 20 of 60, and no fewer than 10 of a class
    assert len(list((tmp_path / "part" / "often").iterdir())) == 20
    assert samples.take(data, image, 72, tmp_path / "part") == data


def test_part_of_a_packed_set_is_a_packed_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (100, 8, 8), dtype=np.uint8)
    labels = np.repeat([0, 1], [80, 20])
    np.savez(tmp_path / "all.npz", images=pixels, labels=labels, classes=np.array(["a", "b"]))
    data, image = config.Data(name=DataName.packed, path=str(tmp_path / "all.npz")), config.Image(8, 8)
    part = samples.take(data, image, 50, tmp_path)
    from pipeline import datasets

    images = datasets.load(part, image).images
    assert np.bincount(images.labels).tolist() == [40, 10]
    assert images.class_names == ("a", "b")
    assert {row.tobytes() for row in images.pixels} <= {row.tobytes() for row in pixels}
