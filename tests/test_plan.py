"""``plan``: rooflines checked by hand, memory, break-even, what is printed, and bad input."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import config
from pipeline.backends.cpu import wls, wls_moments
from pipeline.commands import plan
from pipeline.config import DataName
from pipeline.errors import ConfigError
from pipeline.profiling import devices, footprint, forecast, measuring, processors
from pipeline.profiling.cost import break_even
from pipeline.profiling.cost import forecast as forecast_of
from pipeline.profiling.machines import Measured
from pipeline.profiling.probes import StageModel
from pipeline.profiling.work import Work, describe
from pipeline.reporting import plan_tables
from pipeline.scale import memory
from tests.programs import python_m


@dataclass(frozen=True)
class Amount:
    """As ``counts.Count``, with the figures that a forecast reads."""

    bytes: float = 0.0
    operations: float = 0.0
    to_device: float = 0.0
    to_host: float = 0.0


def counted(stages: dict[str, Amount]) -> Any:
    return lambda work, streamed=False: stages


def work_of(n: int = 10_000, **settings: Any) -> Work:
    cfg = config.Train(run_dir="r", classifier=config.Classifier(**settings))
    return describe(cfg, backend="cpu", threads=2, images=n, classes=10, source="synthetic")


HERE = Measured(
    models={
        "start": StageModel(),
        "read": StageModel(per_image=5e-5),
        "hog": StageModel(per_image=4e-5),
        "boost/set-up": StageModel(per_image=1e-4),
        "boost/sums": StageModel(per_image_round=2e-6),
        "save": StageModel(fixed=0.5),
    },
    once=3.0,
    cores={"read": 1.0, "hog": 1.9, "boost/set-up": 1.9, "boost/sums": 1.9, "save": 1.0},
    base_memory=300_000_000,
    memory=25_000_000_000,
    processor="a processor",
    usable_cores=2,
    clock_ghz=3.0,
    classes=10,
    source="synthetic",
    file_bytes_per_image=0.0,
    images=(1500, 6000),
    rounds=(2, 40),
    limits={"copy": 2e10, "product": {"float32": 1e11, "float64": 5e10}},
)


def seconds_of(plan: forecast.Forecast) -> dict[str, float]:
    return {stage.stage: stage.seconds for stage in plan.stages}


def limits_of(plan: forecast.Forecast) -> dict[str, str]:
    return {stage.stage: stage.limit for stage in plan.stages}


# ---- a GPU ----


def test_roofline_of_a_gpu_by_hand() -> None:
    work, h200 = work_of(), config.machine("h200")
    stages = {
        "hog": Amount(bytes=180e6),
        "copy to device": Amount(bytes=1e8, to_device=5e7),
        "boost/set-up": Amount(bytes=4.8e9 * 9, operations=1e6),
        "boost/sums": Amount(bytes=1e6, operations=67e12),
        "read": Amount(bytes=1e12),
        "compile": Amount(),
    }
    found = forecast_of(h200, HERE, work, counted(stages))
    seconds, limits = seconds_of(found), limits_of(found)
    assert not found.measured
    assert seconds["start"] == pytest.approx(3.0 + devices.DEVICE_START)
    assert seconds["read"] == pytest.approx(0.5)  # by the host: as here
    assert seconds["save"] == pytest.approx(0.5)
    assert seconds["boost/set-up"] == pytest.approx(0.01 + 30 * 5e-6)  # 43.2 GB at 0.9 of 4.8 TB/s
    assert seconds["boost/sums"] == pytest.approx(1 / 0.7 + 100 * 12 * 5e-6)
    assert seconds["copy to device"] == pytest.approx(5e7 / (0.8 * 64e9) + 20 * 5e-6)
    assert (limits["boost/set-up"], limits["boost/sums"]) == (forecast.BANDWIDTH, forecast.ARITHMETIC)
    assert (limits["hog"], limits["copy to device"]) == (forecast.INSTRUCTIONS, forecast.COPIES)
    assert "compile" not in seconds
    device = ("hog", "copy to device", "boost/set-up", "boost/sums")
    assert found.on_device == pytest.approx(sum(seconds[stage] for stage in device))
    assert found.share(forecast.BANDWIDTH) == pytest.approx(seconds["boost/set-up"] / found.seconds)


def test_hog_is_bound_by_instructions_as_the_document_says() -> None:
    found = forecast_of(config.machine("h200"), HERE, work_of(), counted({"hog": Amount(bytes=180e6)}))
    launched = devices.launches("hog", work_of()) * devices.LAUNCH
    assert seconds_of(found)["hog"] - launched == pytest.approx(170e-6, rel=0.15)  # docs/gpu.md
    slower = seconds_of(forecast_of(config.machine("t4"), HERE, work_of(), counted({"hog": Amount()})))
    assert slower["hog"] > 2 * seconds_of(found)["hog"]


def test_tensor_cores_count_only_where_they_are_and_are_asked_for() -> None:
    work, stages = work_of(), {"boost/sums": Amount(operations=1e14)}
    for name, gains in (("h200", True), ("t4", False)):
        plain = forecast_of(config.machine(name), HERE, work, counted(stages))
        tensor = forecast_of(config.machine(name), HERE, work, counted(stages), tf32=True)
        assert (seconds_of(tensor)["boost/sums"] < seconds_of(plain)["boost/sums"]) is gains


def test_float64_systems_run_at_the_float64_rate() -> None:
    stages = {"boost/solve": Amount(operations=1e13)}
    t4 = forecast_of(config.machine("t4"), HERE, work_of(), counted(stages))
    assert seconds_of(t4)["boost/solve"] == pytest.approx(1e13 / (0.3 * 0.254e12), rel=1e-2)


def test_small_work_is_bound_by_launches() -> None:
    found = forecast_of(
        config.machine("h200"), HERE, work_of(200), counted({"boost": Amount(), "boost/update": Amount()})
    )
    assert set(list(limits_of(found).values())[-2:]) == {forecast.LAUNCHES}
    assert seconds_of(found)["boost"] == pytest.approx(100 * (12 * 5e-6 + 3 * devices.WAIT))


# ---- processors ----


def test_this_machine_is_measured_and_its_limits_named() -> None:
    work = work_of()
    stages = {
        "hog": Amount(bytes=1e6, operations=1e6),
        "boost/set-up": Amount(bytes=1e10, operations=1e9),
        "boost/sums": Amount(bytes=1e9, operations=1.2e11),
    }
    found = forecast_of(config.Machine(name="this machine"), HERE, work, counted(stages))
    assert found.measured
    assert found.seconds == pytest.approx(3.0 + 0.5 + 0.4 + 1.0 + 2.0 + 0.5)
    limits = limits_of(found)
    assert (limits["boost/set-up"], limits["boost/sums"]) == (forecast.BANDWIDTH, forecast.ARITHMETIC)
    assert (limits["hog"], limits["save"]) == (forecast.INSTRUCTIONS, forecast.ONE_CORE)


def test_a_gpu_at_work_here_is_judged_by_its_own_limits() -> None:
    limits = {
        **HERE.limits,
        "device_copy": 4e12,
        "device_product": {"float32": 4e13},
        "device_memory": 1.4e11,
    }
    here = replace(HERE, limits=limits)
    stages = {
        "boost/set-up": Amount(bytes=3e12),
        "boost/sums": Amount(bytes=3e12),
        "copy to device": Amount(bytes=1e8, to_device=5e7),
    }
    here.models["copy to device"] = StageModel(fixed=0.1)
    try:
        work = replace(work_of(), backend="gpu")
        found = forecast_of(config.Machine(name="this machine"), here, work, counted(stages))
    finally:
        del here.models["copy to device"]
    limits_found = limits_of(found)
    assert limits_found["boost/set-up"] == forecast.BANDWIDTH  # 1 s for 3 TB at 4 TB/s
    assert limits_found["boost/sums"] == "device"  # 2 s: no limit of the device explains it
    assert limits_found["copy to device"] == forecast.COPIES
    assert found.footprint.device_memory == 1.4e11


def test_another_processor_scales_each_stage_by_the_limit_that_binds_it() -> None:
    work = work_of()
    stages = {
        "boost/set-up": Amount(bytes=1e10, operations=1e9),
        "boost/sums": Amount(bytes=1e9, operations=1.2e11),
    }
    server = config.machine("server_amd")
    seconds = seconds_of(forecast_of(server, HERE, work, counted(stages)))
    assert seconds["start"] == pytest.approx(3.0 * 3.0 / 3.8)
    assert seconds["save"] == pytest.approx(0.5 * 3.0 / 3.8)
    assert seconds["hog"] == pytest.approx(0.4 * 3.0 / 3.8 * 1.9 / 32)
    assert seconds["boost/set-up"] == pytest.approx(1e10 / (0.9 * 460.8e9))
    assert seconds["boost/sums"] == pytest.approx(1.2e11 / (0.7 * 3.33e12 * 10 / 32))  # 10 classes, 10 cores
    doubled = seconds_of(forecast_of(replace(server, bandwidth_gb_s=921.6), HERE, work, counted(stages)))
    assert doubled["boost/set-up"] == pytest.approx(seconds["boost/set-up"] / 2)


def test_a_forecast_for_another_processor_knows_nothing_of_the_registers_of_this_one() -> None:
    asked: list[Work] = []

    def counts(work: Work) -> dict[str, Amount]:
        asked.append(work)
        return {}

    for together in (1, 12):
        forecast_of(config.machine("server_amd"), HERE, replace(work_of(), together=together), counts)
    assert asked[0] == asked[-1]


# ---- memory ----


def test_features_that_do_not_fit_stream_and_what_fits_nowhere_is_said() -> None:
    gigabyte = 1e9
    few, many = work_of(10_000), work_of(1_000_000)
    stays = footprint.footprint(few, 0.0, 64 * gigabyte, 16 * gigabyte)
    assert not stays.streamed
    assert stays.needs[1].device >= 10_000 * 3240 * 4
    streams = footprint.footprint(many, 0.0, 64 * gigabyte, 16 * gigabyte)
    assert streams.streamed
    assert streams.fits
    assert streams.host >= 1_000_000 * (3240 * 4 + 5000)
    assert streams.device < 16 * gigabyte
    assert footprint.footprint(many, 0.0, 64 * gigabyte, 141 * gigabyte).device > 12.96 * gigabyte
    assert not footprint.footprint(many, 0.0, 16 * gigabyte, 16 * gigabyte).fits
    wide = replace(many, learner="ridge", columns=40_000)
    assert not footprint.footprint(wide, 0.0, 64 * gigabyte, 24 * gigabyte).fits


def test_memory_of_a_processor_counts_pixels_features_and_the_round() -> None:
    work = replace(work_of(100_000), rough=False)
    found = footprint.footprint(work, 3e8, 8e9)
    pixels, features = 100_000 * 5000, 100_000 * 3240 * 4
    held = 3e8 + pixels + features
    assert found.needs[0].host == 3e8 + pixels
    columns, scores, grams = 80_000 * 128 * 4, 80_000 * 10 * 4 * 6, 10 * 128 * 128 * 8
    # the columns of the round and of the next
    assert found.host == pytest.approx(held + 2 * columns + scores + grams + (1 << 20) * 16)
    alone = replace(work, threads=1)  # nobody gathers the next ones meanwhile
    assert footprint.footprint(alone, 3e8, 8e9).host == found.host - columns
    rough = footprint.footprint(replace(work, rough=True), 3e8, 8e9)  # factors beside the Gram matrices
    assert rough.host == pytest.approx(found.host + 10 * 128 * (128 + 8) * 8)
    many = replace(work, columns=1024)  # a block of rows as wide as BLAS likes it
    columns = 80_000 * 1024 * 4
    assert footprint.footprint(many, 3e8, 8e9).host == pytest.approx(
        held + 2 * columns + scores + (1 << 22) * 16
    )
    assert footprint.footprint(replace(work, source="packed"), 3e8, 8e9).host == found.host - pixels
    assert found.fits
    assert not footprint.footprint(work, 3e8, 1e9).fits


def test_memory_of_the_solution_of_least_norm() -> None:
    """Measured with 3,000 images, `full`, one round: 783 MB, of which the process itself took 272."""
    few = work_of(3000, learner=config.Learner.full)
    assert 783e6 <= footprint.footprint(few, 272e6, 8e9).host <= 1.25 * 783e6
    enough = footprint.footprint(work_of(10_000, learner=config.Learner.full), 272e6, 8e9)
    same = footprint.footprint(work_of(10_000, learner=config.Learner.ridge), 272e6, 8e9)
    assert enough.host == same.host


def test_memory_of_principal_components() -> None:
    """The Gram matrix, its reflectors and the eigenvectors beside the features; then the features are gone."""
    work = replace(work_of(100_000), components=400, columns=128, rough=False)
    found = footprint.footprint(work, 3e8, 8e9)
    pixels, features, fewer = 100_000 * 5000, 100_000 * 3240 * 4, 100_000 * 400 * 4
    needs = {need.stage: need.host for need in found.needs}
    assert list(needs) == ["read", "hog", "reduce", "boost", "evaluate"]
    fit, transform = 16 * 3240 * (3240 + 400) + 8 * (1 << 22), fewer + 4 * (1 << 22)
    assert needs["reduce"] == pytest.approx(3e8 + pixels + features + max(fit, transform))
    columns, scores, grams = 80_000 * 128 * 4, 80_000 * 10 * 4 * 6, 10 * 128 * 128 * 8
    held = 3e8 + pixels + fewer
    assert needs["boost"] == pytest.approx(held + 2 * columns + scores + grams + (1 << 20) * 16)


@pytest.mark.slow
def test_a_train_takes_the_memory_that_is_forecast(tmp_path: Path) -> None:
    """Never more, and at most a quarter less; the process itself is measured on 100 images, as plan does."""

    def trained(name: str, images: int, reduce: str = "none") -> Any:
        words = f"data=synthetic data.n={images} reduce={reduce} classifier.n_rounds=5 hydra.run.dir={name}"
        done = python_m("train", *words.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / name / "metrics.json").read_text(encoding="utf-8"))

    trained("compiles", 100)
    base = trained("tiny", 100)["peak_memory_bytes"]
    for reduce in ("none", "pca"):
        content = trained(reduce, 3000, reduce)
        work = describe(
            config.Train(reduce=config.Reduce(config.ReduceName[reduce])),
            backend="cpu",
            threads=2,
            images=3000,
            classes=10,
            components=content.get("components"),
            source="synthetic",
        )
        told = footprint.footprint(work, base, 8e9).host
        assert content["peak_memory_bytes"] <= told <= 1.25 * content["peak_memory_bytes"], reduce


def test_constants_that_stand_elsewhere_too() -> None:
    assert config.Train.chunk == footprint.IMAGES_AT_ONCE
    assert footprint.BUFFER == wls.blocks.BUFFER
    assert (processors.SEGMENTS, processors.SMALL_SYSTEM) == (wls.blocks.SEGMENTS, wls.SMALL_SYSTEM)
    assert (memory.SEGMENTS, memory.MOMENTS) == (wls.blocks.SEGMENTS, 2 * wls_moments.SUMS)
    assert wls_moments.SHARE == 16  # of scale/memory.py, scale/dask_run.py and profiling/footprint.py


# ---- from how many images on ----


def line(fixed: float, each: float) -> Callable[[int], float]:
    return lambda n: fixed + each * n


def test_break_even() -> None:
    for there, here, exact in (
        (line(5.0, 1e-4), line(3.0, 3e-4), 10_000),
        (line(3.1, 1e-4), line(3.0, 3e-4), 500),
        (line(63.0, 1e-5), line(3.0, 2e-5), 6_000_000),
    ):
        found = break_even(there, here)
        assert found is not None
        assert exact <= found <= 1.1 * exact  # rounded up to two digits
        assert there(found) <= here(found)
    assert break_even(line(5.0, 3e-4), line(3.0, 1e-4)) is None
    assert break_even(line(1.0, 1e-4), line(3.0, 3e-4)) == 100


# ---- the command ----


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that the tests share: each group of settings is measured once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def quick(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> config.Plan:
    """Real runs on few small images; the process of its own and the machine's limits are given."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(measuring, "launched", lambda cfg: (4.0, 400_000_000))

    class Known:
        def as_dict(self) -> dict[str, Any]:
            return HERE.limits

    monkeypatch.setattr(plan.limits, "measure", lambda *_: Known())
    (tmp_path / "run").mkdir()
    return config.Plan(
        data=config.Data(name=DataName.synthetic, n=50_000, classes=3),
        image=config.Image(height=24, width=24),
        plots=False,
        run_dir=str(tmp_path / "run"),
        machine=config.Machine(name="this machine", sample=200),
    )


def content_of(cfg: config.Plan) -> Any:
    return json.loads((Path(cfg.run_dir) / "plan.json").read_text(encoding="utf-8"))


def test_this_machine(quick: config.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    plan.run(quick)
    printed = capsys.readouterr().out
    assert "Plan for this machine, measured on runs of 100 and 200 images" in printed
    assert "train 50,000 images of synthetic" in printed
    assert "fits                yes: host" in printed
    assert "FORECAST" not in printed
    (only,) = content_of(quick)["plans"]
    assert only["label"] == "measured on samples"
    assert {"start", "read", "hog", "boost/sums"} <= {stage["stage"] for stage in only["stages"]}
    assert sum(stage["seconds"] for stage in only["stages"]) == pytest.approx(only["seconds"])


def test_a_gpu_is_a_forecast_and_says_so(quick: config.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    quick.machine = replace(config.machine("h200"), sample=200, price_per_hour=3.6)
    plan.run(quick)
    printed = capsys.readouterr().out
    assert "FORECAST for NVIDIA H200 SXM, from its datasheet; never measured" in printed
    for words in (
        "against this machine",
        "on the device",
        "no GPU shortens",
        "pays",
        "energy",
        "device",
        "takes for granted",
        "datasheet, SXM",
    ):
        assert words in printed
    (only,) = content_of(quick)["plans"]
    assert only["label"] == "forecast, never measured"
    assert only["price"] == pytest.approx(only["seconds"] / 1000.0)
    assert only["watt_hours"] == pytest.approx(700 * only["seconds"] / 3600)


@pytest.mark.parametrize(
    ("value", "words"), [(0.0643, "0.064"), (2.88, "2.9"), (99.7, "100"), (109690.0, "109,690")]
)
def test_energy_has_no_exponent(value: float, words: str) -> None:
    assert plan_tables.watt_hours(value) == words


def test_principal_components_have_their_seconds(quick: config.Plan) -> None:
    """As many as on samples, since a share of the variance says it only after a fit."""
    quick.reduce = config.Reduce(name=config.ReduceName.pca, variance=0.9)
    plan.run(quick)
    content = content_of(quick)
    [found] = content["plans"]
    assert {one["stage"]: one["seconds"] for one in found["stages"]}["reduce"] > 0.0
    kept = content["measured"]["components"]
    assert 1 < kept < 0.8 * 200  # images of a sample that are fitted to
    assert content["work"]["components"] == kept


def test_several_machines_side_by_side(quick: config.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    quick.machines = ["t4", "server_amd"]
    quick.images = 2_000_000
    plan.run(quick)
    printed = capsys.readouterr().out
    assert "all others FORECAST" in printed
    assert printed.index("this machine ") < printed.index("NVIDIA T4") < printed.index("AMD EPYC 9354")
    assert [one["machine"]["name"] for one in content_of(quick)["plans"]] == [
        "NVIDIA T4",
        "Server, one AMD EPYC 9354",
    ]


def test_a_cache_that_cannot_be_written_does_not_cost_the_plan(
    quick: config.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "plain"))
    plan.run(quick)
    told = "".join(capsys.readouterr())
    assert "the measurement is not kept, the next plan measures again: " in told
    assert content_of(quick)["plans"]


def test_a_run_that_does_not_fit_has_no_seconds_but_a_way(
    quick: config.Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    quick.machine = replace(quick.machine, memory_gb=4.0)
    quick.images = 4_000_000  # of 576 bytes of pixels and 324 of features
    plan.run(quick)
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Plan for this machine, measured on runs of 100 and 200 images: it does not fit in memory" in printed
    )
    assert "NO: host" in printed
    assert "scale=outofcore scale.memory_limit=2000MB" in printed
    for words in ("Stages", "cost", "holds it back"):
        assert words not in printed
    (only,) = content_of(quick)["plans"]
    assert (only["seconds"], only["stages"], only["price"]) == (None, [], None)
    most = int(only["memory"]["would_fit"].partition("at most about ")[2].split()[0].replace(",", ""))
    for images, fit in ((most, True), (round(1.1 * most), False)):  # the number it names is where it ends
        quick.images = images
        plan.run(quick)
        (only,) = content_of(quick)["plans"]
        assert only["memory"]["fits"] is fit
        assert (only["seconds"] is not None) is fit


def test_out_of_core_fits_and_costs_its_passes(
    quick: config.Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    quick.machine = replace(quick.machine, memory_gb=4.0)
    quick.images = 4_000_000
    quick.scale = config.Scale(name=config.ScaleName.outofcore, memory_limit="2GB")
    plan.run(quick)
    printed = " ".join(capsys.readouterr().out.split())
    assert "scale=outofcore, 102 passes over 1.3 GB of cell histograms on disk" in printed
    (only,) = content_of(quick)["plans"]
    assert only["memory"]["fits"]
    assert only["memory"]["disk"] == 4_000_000 * (9 * 9 + 2) * 4  # cells of one block, two factors
    seconds = {stage["stage"]: stage["seconds"] for stage in only["stages"]}
    assert seconds["expand"] > 0.0
    assert seconds["write"] > 0.0


def test_histograms_beyond_the_page_cache_are_read_from_the_disk_in_every_pass() -> None:
    cfg = config.Train(run_dir="r", scale=config.Scale(name=config.ScaleName.outofcore, memory_limit="2GB"))
    found = {}
    for n in (100_000, 10_000_000):
        work = describe(cfg, backend="cpu", threads=2, images=n, classes=10, source="synthetic")
        models = {**HERE.models, "expand": StageModel(per_image_round=1e-6)}
        here = replace(HERE, models=models, limits={**HERE.limits, "disk_read": 1e9})
        machine = config.Machine(name="this machine", memory_gb=8.0)
        made = processors.of_this(machine, here, work, counted({}))
        found[n] = next(stage for stage in made.stages if stage.stage == "expand")
    assert found[100_000].limit != "files"
    assert found[10_000_000].limit == "files"
    assert found[10_000_000].seconds == pytest.approx(102 * 8_000_000 * 2912 / 1e9)


def test_each_machine_has_its_price(quick: config.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = replace(quick, machines=["t4", "server_amd"], prices={"t4": 0.36, "this": 3.6})
    plan.run(cfg)
    capsys.readouterr()
    first, second = content_of(cfg)["plans"]
    assert first["price"] == pytest.approx(first["seconds"] * 1e-4)
    assert second["price"] is None
    with pytest.raises(ValueError, match=r"'prices=\{t4: 1\.5, l4: 1\.5\}'"):
        replace(quick, machines=["t4", "l4"], machine=config.Machine(price_per_hour=2.0))
    with pytest.raises(ValueError, match="prices must be among machines"):
        replace(quick, machines=["t4"], prices={"h200": 1.0})


def test_too_few_images(quick: config.Plan) -> None:
    quick.data = replace(quick.data, classes=30)
    quick.images = 40
    with pytest.raises(ConfigError, match=r"^images=40: too few images for 30 classes"):
        plan.run(quick)
    quick.images, quick.data = None, replace(quick.data, n=40)
    with pytest.raises(ConfigError, match=r"^data\.n=40: too few images for 30 classes"):
        plan.run(quick)


def test_an_entry_of_a_user_with_a_missing_field_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "mine.yaml").write_text("name: my card\nkind: gpu\nmemory_gb: 8\n")
    done = python_m("plan", "machine=mine", "--config-dir", str(tmp_path), "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "pipeline plan: machine.bandwidth_gb_s: the gpu entry 'my card' lacks it; add a line "
        "'bandwidth_gb_s: ...' with its memory bandwidth in GB/s to its file in machine/, or give "
        "machine.bandwidth_gb_s=...\n"
    )


MISTAKES = {
    "machine=h300": "no option 'h300' for machine; choose one of: ",
    "machines=[t4,h300]": "no entry 'h300'; choose from: ",
    "machine=t4 machine.bandwidth_gb_s=-1": "machine.bandwidth_gb_s must be above 0",
    "machine=t4 machine.year=20": "machine.year must be at least 1990",
    "machine=[t4,l4] 'prices={t4: -1}'": "prices.t4 must be at least 0",
    "machine=[t4,h300]": "no entry 'h300'; choose from: ",
    "machine=[t4,l4] machine.price_per_hour=2": "machine.price_per_hour must be left out with several machines",
    "split.folds=5": "split.folds is for evaluate; plan is about train",  # was refused after measuring
    "scale=dask": "plan knows one machine at a time",
    "images=3": "images must be from 10 to 10000000000, or null, not 3",
    "images=1000000000000000": "images must be from 10 to 10000000000, or null, not 1000000000000000",
    "data=folder data.path=absent": "absent: no such folder",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_other_bad_input_is_told_in_one_line(told: Callable[..., str], line: str) -> None:
    assert MISTAKES[line] in told("plan", *shlex.split(line), "hydra.run.dir=run")
