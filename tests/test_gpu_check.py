"""scripts/check_gpu.py: its Python runs to the end under the double, and on a GPU where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import backends
from tests.conftest import ROOT
from tests.cuda_on_host.build import need_compiler
from tests.cupy_double import installed

SCRIPTS = str(ROOT / "scripts")


@pytest.fixture
def checks(monkeypatch):
    """Return the modules of the script, imported afresh."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import check_gpu
    from gpu_checks import care, common, faults, parity, show, speed, stages, training

    yield SimpleNamespace(
        check_gpu=check_gpu, common=common, parity=parity, care=care, speed=speed, faults=faults, show=show,
        stages=stages, training=training,
    )  # fmt: skip
    for name in [n for n in sys.modules if n == "check_gpu" or n.split(".")[0] == "gpu_checks"]:
        del sys.modules[name]


@pytest.fixture
def machine():
    need_compiler()
    with installed() as double:
        double.memory = 2 << 30
        backends.get("gpu")
        yield double


def test_every_section_runs_to_its_end_under_the_double(machine, checks, tmp_path, capsys):
    """A dry run: it shows that no line of the script fails at once, nothing of a GPU."""
    sizes = checks.common.Sizes(
        images=(4, 6), image_shape=(24, 32), parity_images=3, parity_step=4, random_features=32,
        components=(200, 40), classes=3, training_rows=500, training_columns=24, rounds=2, repeats=2, timings=1,
        leak_rounds=1, transfer_bytes=1 << 16, copy_bytes=1 << 16,
    )  # fmt: skip
    status = checks.check_gpu.run(sizes, 1, tmp_path)
    shown = capsys.readouterr().out
    content = json.loads((tmp_path / "check_gpu.json").read_text())
    assert content["failed"] == []
    assert status == 0
    sections = content["sections"]
    assert set(sections) > {
        "HoG parity",
        "components parity",
        "training parity",
        "memory",
        "leaks",
        "bandwidths",
    }
    assert len(sections["training parity"]) >= 20
    for n in (4, 6):
        timed = {k: v for k, v in sections[f"stages, {n} images"].items() if isinstance(v, dict)}
        for values in timed.values():
            assert {"ms", "MB", "GB/s", "share of copy", "GFLOP/s"} == set(values)
            assert values["ms"] > 0.0
        assert all(timed[name]["GB/s"] > 0.0 for name in STAGES if name != "round of subspace: solve")
        copies = {k: v for k, v in sections[f"transfers, {n} images"].items() if k.startswith("copy ")}
        assert len(copies) == 5
        assert all(values["share of bus"] > 0.0 for values in copies.values())
        assert all(f"{name:<44} {n:>7} " in shown for name in (*STAGES, *copies))
    assert "copy on the device GB/s" in shown


STAGES = (
    "preprocess=stretch", "preprocess=gaussian", "preprocess=equalize", "preprocess=clahe", "HoG", "look for NaN",
    "reduce=pca, fit and reduce", "means and variances", "softmax, weights, responses", "scores moved, log-loss",
    "componentwise sums", "columns of subspace", "fit of subspace", "fit of subspace, tf32", "values of subspace",
    "columns of random_features", "fit of random_features", "values of random_features", "fit of ridge",
    "fit of ridge, tf32", "values of ridge", "prediction, linear", "prediction, random features, a round",
    "round of subspace: columns", "round of subspace: sums", "round of subspace: solve", "round of subspace: update",
    "round of ridge: sums", "round of componentwise: sums", "round of componentwise: solve",
    "round of random_features: columns", "fit of 2 rounds of componentwise",
)  # fmt: skip


def test_a_section_that_fails_is_reported_and_the_next_runs(machine, checks, capsys):
    report = checks.check_gpu.Report()
    report.section("first", lambda: 1 / 0)
    report.section("second", lambda: {"value": 1.0, "failed": ["is off"]})
    report.section("third", lambda: {"value": 2.0})
    assert report.failed == ["first: ZeroDivisionError: division by zero", "second: is off"]
    assert "third                  ok" in capsys.readouterr().out


def test_parity_notices_a_wrong_result(machine, checks, monkeypatch):
    gpu = backends.get("gpu")
    right = gpu.wls.gather

    def wrong(*arguments):
        out = right(*arguments)
        out[:1] = out[:1] * 1.01
        return out

    monkeypatch.setattr(gpu.wls, "gather", wrong)
    sizes = checks.common.Sizes(classes=3, training_rows=200, training_columns=12, rounds=2)
    found = checks.training.training_parity(sizes, np.random.default_rng(0))
    assert any("subspace" in line for line in found["failed"])


def classes_of_pairs(noise=0.0, n=600, p=8):
    """Return float32 rows whose columns come in pairs, the second with noise, of three classes, and labels."""
    random = np.random.default_rng(2)
    y = random.integers(0, 3, n)
    X = random.normal(size=(n, p)) + 0.5 * np.eye(3, p)[y]
    return np.stack([X, X + noise * random.normal(size=X.shape)], axis=2).reshape(n, -1).astype(np.float32), y


@pytest.mark.parametrize(("noise", "size", "rounding"), [(0.0, 1e-5, True), (0.1, 3e-2, False)])
def test_other_features_are_excused_only_where_rounding_decides(
    machine, checks, monkeypatch, noise, size, rounding
):
    """The gains of the first column of each pair are put back: by rounding, or so far that a worse one is chosen."""
    monkeypatch.setattr("pipeline.boosting.estimator.PROMOTED", 0)
    wls = backends.get("gpu").wls
    right = wls.componentwise_sums

    def off(X, *rest):
        sums = right(X, *rest)
        sums.xr[::2] = sums.xr[::2] * (1.0 - size)
        return sums

    monkeypatch.setattr(wls, "componentwise_sums", off)
    result = checks.training.compare("componentwise", *classes_of_pairs(noise), "float32", 4)
    assert result.found["type"] == "float32"
    assert (result.rounding == 1) is rounding
    assert any("rounding does not explain it" in line for line in result.wrong) is not rounding


def test_what_rounding_decides_again_and_again_fails(machine, checks, monkeypatch):
    sizes = checks.common.Sizes(classes=3, training_rows=60, training_columns=6, rounds=2)
    monkeypatch.setattr(checks.common, "LEARNERS", ("componentwise",))
    monkeypatch.setattr(checks.training, "explained", lambda *_: True)
    monkeypatch.setattr(checks.training, "first_difference", lambda *_: 1)
    found = checks.training.training_parity(sizes, np.random.default_rng(0))
    assert len(found["failed"]) == 4
    assert all("rounding decided between features in each of 3 sets" in line for line in found["failed"])
    assert found["componentwise J=3 float32"]["rounding decided in rounds"] == [2, 2]


def test_columns_drawn_from_the_seed_are_never_excused(machine, checks, monkeypatch):
    """Nor is a class of three whose feature is far from the best."""
    monkeypatch.setattr(checks.training, "first_difference", lambda *_: 0)
    X, y = classes_of_pairs()
    result = checks.training.compare("subspace", X, y, "float32", 2)
    assert "rounding does not explain it" in result.wrong[0]
    random = np.random.default_rng(0)
    x, W, R = random.normal(size=(300, 5)), random.random((300, 2)), random.normal(size=(300, 2))
    x -= x.mean(axis=0)
    gains = [np.square((x * r[:, None]).sum(0) - (x.T @ w) * r.sum() / w.sum()) / (
        (x * x).T @ w - (x.T @ w) ** 2 / w.sum()) for w, r in zip(W.T, R.T, strict=True)]  # fmt: skip
    allowed = checks.training.may_be_chosen(x, W, R, 2.2e-16)
    np.testing.assert_array_equal(allowed, np.stack(gains, axis=1) == np.max(gains, axis=1))


def test_long_runs_are_repeated_less_often(machine, checks, monkeypatch):
    common = checks.common
    for length, runs in ((1.0, 3 + 20), (50.0, 3 + 10), (400.0, 2 + 3), (4000.0, 2 + 3)):
        calls = []
        monkeypatch.setattr(common, "_ms", lambda work, length=length: (work(), length)[1])
        assert common.median_ms(lambda calls=calls: calls.append(1), 20, 0.5) == length
        assert len(calls) == runs


def test_without_a_gpu_the_script_says_so(machine, checks, monkeypatch, capsys):
    monkeypatch.setattr(machine, "devices", 0)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py"])
    assert checks.check_gpu.main() == 2
    assert "check_gpu: the driver shows no GPU" in capsys.readouterr().err


def test_each_planted_fault_has_its_place(checks):
    faults = checks.faults
    text = (ROOT / "pipeline/backends/gpu/wls.cu").read_text()
    for name in faults.FAULTS:
        assert (faults.faulty(text, name) == text) == (name == "none")
    shell = (ROOT / "scripts/check_gpu.sh").read_text()
    assert all(f" {name} 9" in shell for name in faults.FAULTS if name != "none")
    subprocess.run(["bash", "-n", str(ROOT / "scripts" / "check_gpu.sh")], check=True)


def test_what_the_sanitizer_runs_runs(machine, checks):
    machine.forget()
    checks.faults.sanitize("none")
    assert machine.count["launch"] >= 12


def test_what_a_planted_fault_breaks_leaves_the_verdict_to_the_sanitizer(machine, checks, monkeypatch):
    """It gives its own exit status only to a program that succeeds, and memcheck ends the context at a fault."""

    def ended(_):
        raise RuntimeError("cudaErrorLaunchFailure: unspecified launch failure")

    monkeypatch.setattr(checks.faults, "sanitize", ended)
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "bounds"])
    assert checks.check_gpu.main() == 0
    monkeypatch.setattr(sys, "argv", ["check_gpu.py", "--sanitize", "none"])
    with pytest.raises(RuntimeError, match="LaunchFailure"):
        checks.check_gpu.main()


# ---- on a GPU ----


@pytest.fixture
def device_checks(checks):
    """Return the script's modules, sizes that take seconds, and random numbers."""
    sizes = checks.common.Sizes(
        parity_images=40, training_rows=1500, training_columns=100, rounds=8, repeats=5, leak_rounds=20
    )
    return checks, sizes, np.random.default_rng(0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("module", "section"),
    [("parity", "hog_parity"), ("parity", "sums_parity"), ("training", "training_parity")],
)
def test_the_device_gives_what_the_cpu_gives(device_checks, module, section):
    checks, sizes, random = device_checks
    assert getattr(getattr(checks, module), section)(sizes, random)["failed"] == []


@pytest.mark.gpu
@pytest.mark.parametrize("section", ["repeatability", "memory", "leaks"])
def test_the_device_repeats_and_keeps_to_its_memory(device_checks, section):
    checks, sizes, random = device_checks
    assert getattr(checks.care, section)(sizes, random)["failed"] == []


def test_only_images_in_which_rounding_decides_are_excused(checks):
    common = checks.common
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 60, 60), dtype=np.uint8)
    assert not common.rounding_decides(pixels, 9, False).any()  # integers are exact
    assert not common.rounding_decides(random.random((6, 60, 60)), 9, False).any()  # no edge is met by chance
    planted = np.zeros((2, 5, 5))
    planted[1, 2, 3], planted[1, 3, 2] = 1.0, np.sqrt(3.0)  # 60 degrees, an edge of 9 bins
    assert common.rounding_decides(planted, 9, False).tolist() == [False, True]
    assert common.rounding_decides(planted, 7, False).tolist() == [False, False]
