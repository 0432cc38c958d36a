"""`python -m pipeline profile`, from the settings to the files it leaves."""

from __future__ import annotations

import json

import pytest

from pipeline import backends, config
from pipeline.commands import profile, profile_checks
from pipeline.config import Backend, BackendName, Classifier, Data, DataName
from pipeline.errors import ConfigError
from pipeline.profiling import advice
from pipeline.reporting.stages import Stages
from tests.programs import python_m

OUT = config.Scale(name=config.ScaleName.outofcore)
PCA = config.Reduce(name=config.ReduceName.pca)


def settings(folder, **more) -> config.Profile:
    return config.Profile(
        run_dir=str(folder),
        classifier=Classifier(n_rounds=6),
        **{
            "data": Data(name=DataName.synthetic, n=400),
            "repeats": 2,
            "plots": False,
            "advice": False,
            **more,
        },
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A profile with everything, and what it wrote."""
    folder = tmp_path_factory.mktemp("profile")
    cfg = settings(
        folder, compare=["cpu", "gpu"], sweep=["dtype"], advice=True, verify_advice=True, budget=2.0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice, "MORE", 1)  # three pairs are enough to see that they are run
        seconds = profile.run(cfg, Stages(typed=("data=synthetic",)))
    return folder, seconds, json.loads((folder / "profile.json").read_text())


def test_every_file_is_there_and_the_model_of_the_measured_runs(found):
    folder, _, _ = found
    names = {path.name for path in folder.iterdir()}
    assert {"profile.json", "profile.html", "trace.json", "sweep_dtype.svg", "train"} <= names
    assert (folder / "train" / "model.npz").exists()
    assert not [name for name in names if name.startswith(".trial")]
    trace = json.loads((folder / "trace.json").read_text())
    assert {event["name"] for event in trace["traceEvents"]} >= {"hog", "boost", "sums", "solve", "save"}


def test_the_stages_make_up_the_run(found):
    _, seconds, report = found
    assert seconds == report["total"]["wall"]
    stages = {stage["name"]: stage for stage in report["stages"]}
    total = sum(stage["wall"] for stage in stages.values())
    assert (
        0.8 * seconds < total < 1.2 * seconds
    )  # medians of stages, and the median of two sums of a short run
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(total / seconds)
    low, high = report["total"]["spread"]
    assert low <= seconds <= high
    assert report["total"]["repeats"] == 2
    assert report["total"]["first"] > 0
    for stage in stages.values():
        assert stage["spread"][0] <= stage["wall"] <= stage["spread"][1]
        assert stage["verdict"]
        assert stage["cause"]
    for name in ("hog", "boost/sums", "boost/update"):
        assert stages[name]["bytes"] > 0, name
        assert stages[name]["gb_per_s"] == pytest.approx(stages[name]["bytes"] / stages[name]["wall"] / 1e9)
    assert stages["boost/sums"]["operations"] > 0
    assert stages["hog"]["memory_peak"] > 0


def test_what_is_paid_once_and_what_measuring_costs_are_told(found):
    _, _, report = found
    assert set(report["first_calls"]) == {"import", "compile", "other"}
    cost = report["measuring"]
    assert cost["spans"] > 40
    assert 0.0 < cost["share"] < 0.5
    assert cost["without_spans"] > 0.0
    assert report["machine"]["limits"]["copy"] > 0.0
    assert report["command"] == ["data=synthetic"]
    assert report["work"]["n_features"] == 3240
    assert report["work"]["rounds"] == 6


def test_a_backend_that_is_absent_keeps_its_row(found):
    _, _, report = found
    rows = {row["backend"]: row for row in report["compare"]}
    assert rows["cpu"]["seconds"] > 0.0
    assert rows["gpu"]["seconds"] is None
    assert "NVIDIA" in rows["gpu"]["reason"] or "CuPy" in rows["gpu"]["reason"]


def test_advice_that_was_followed_has_its_measured_gain(found):
    _, _, report = found
    assert report["gpu"].startswith("NVIDIA L4: ")
    assert "never run" in report["gpu"]
    for one in report["advice"]:
        assert one["measured_seconds"] is not None or "could not be tried" in one["caveat"]


def test_the_command_lines_for_nvidias_profilers_repeat_the_settings(tmp_path):
    lines = profile._profilers(("data=folder", "data.path=my pictures", "backend=cpu", "sweep=[threads]"))
    for line in lines.values():
        assert "data=folder 'data.path=my pictures' backend=gpu repeats=1 advice=false" in line
        assert "sweep" not in line
    assert "--capture-range=cudaProfilerApi" in lines["nsys"]
    assert "--profile-from-start off" in lines["ncu"]


@pytest.mark.parametrize(("more", "line"), [
    ({"sweep": ["thread"]}, "no sweep 'thread'. Did you mean 'threads'?"),
    ({"compare": ["cuda"]}, "compare: no backend 'cuda'"),
    ({"compare": ["gpu"]}, "this machine can run none of these backends"),
    ({"gpu": "cray"}, "gpu: no entry 'cray'"),
    ({"gpu": "laptop_amd"}, "gpu=laptop_amd is no GPU"),
    ({"scale": OUT, "compare": ["cpu"]}, "compare= compares features in memory"),
    ({"scale": config.Scale(name=config.ScaleName.dask)}, "profile measures the work of one process"),
    (
        {"scale": OUT, "sweep": ["images"], "data": Data(name=DataName.folder, path="x")},
        "sweep=images needs the images in memory",
    ),
    ({"scale": OUT, "reduce": PCA}, "reduce=pca finds its components in the features of all images at once"),
    ({"scale": OUT, "backend": Backend(name=BackendName.reference)}, "scale=outofcore works with backend=cpu"),
    ({"split": config.Split(folds=3)}, "split.folds is for evaluate"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_anything_is(tmp_path, more, line):
    with pytest.raises(ConfigError) as raised:
        profile.run(settings(tmp_path, **more))
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "train").exists()


def test_a_run_that_this_machine_cannot_hold_is_refused_with_a_way(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_checks.machines, "memory", lambda: 10**10)
    with pytest.raises(
        ConfigError,
        match=r"needs some 1\d GB of memory, and this machine has 10 GB: add scale=outofcore scale.memory_limit=5000MB",
    ):
        profile.run(settings(tmp_path, data=Data(name=DataName.synthetic, n=800_000)))
    assert not (tmp_path / "train").exists()


def test_an_interrupted_profile_leaves_no_trial(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(profile.limits, "measure", lambda *_: None)
    monkeypatch.setattr(profile, "_report", interrupted)  # after the runs, whose model lies in train by then
    with pytest.raises(KeyboardInterrupt):
        profile.run(settings(tmp_path, repeats=1))
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_filled_again_by_every_run(tmp_path):
    scale = config.Scale(name=config.ScaleName.outofcore, store=str(tmp_path / "store"))
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        found = profile.measured(settings(tmp_path / place, scale=scale))
        assert found.recording.rows["write"].wall > 0.0
    assert not (tmp_path / "store").exists()


def test_one_name_needs_no_brackets_and_a_mistake_is_one_line(tmp_path):
    done = python_m("profile", "sweep=fred", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "pipeline profile: no sweep 'fred'. Choose among: threads, dtype, batch, images, size"
    ]


def test_a_run_without_listeners_is_a_train_run(tmp_path):
    """No recorder is left behind: train pays nothing for the profiler."""
    from pipeline import spans

    cfg = settings(tmp_path)
    profile.measured(profile._settings_of_train(cfg))
    assert spans.span("a") is spans.span("b")


@pytest.mark.slow
def test_a_profile_of_the_gpu_backend(machine, gpu, tmp_path, monkeypatch):
    """Under the double: device seconds, copies with their bytes, and the profiler told when to look."""
    from pipeline.backends.gpu import limits as gpu_limits

    small = gpu_limits.measure(1 << 16, 1 << 16, {"float32": 64, "float64": 64}, 10)
    monkeypatch.setattr(gpu_limits, "measure", lambda: small)
    data = Data(name=DataName.synthetic, n=100)  # the kernels run on the CPU, each thread a fiber
    cfg = settings(tmp_path, backend=Backend(BackendName.gpu), repeats=1, data=data)
    profile.run(cfg)
    report = json.loads((tmp_path / "profile.json").read_text())
    stages = {stage["name"]: stage for stage in report["stages"]}
    assert stages["copy to device"]["to_device"] == 100 * 50 * 100
    assert stages["hog"]["device"] is not None
    assert report["total"]["device_memory"] > 0
    assert report["machine"]["limits"]["device_copy"] > 0
    assert (machine.count["profiler started"], machine.count["profiler stopped"]) == (1, 1)
    assert backends.get("gpu").clock is not None
