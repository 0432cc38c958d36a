"""Commands on the gpu backend, and what a user is told when something is missing; under the double."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline import backends, config
from pipeline.config import Preprocess, PreprocessName
from pipeline.errors import BackendError
from tests.conftest import ROOT
from tests.cuda_on_host.build import required
from tests.cupy_double import installed
from tests.test_preprocess import STEPS, pictures

# ---- what is missing is said in one line ----


def missing(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)


def change(**settings):
    def apply(machine, monkeypatch):
        for key, value in settings.items():
            monkeypatch.setattr(machine, key, value)

    return apply


def driver(monkeypatch, there):
    device = importlib.import_module("pipeline.backends.gpu.device")
    monkeypatch.setattr(device, "has_driver", lambda: there)


def old_cupy(_, monkeypatch):
    driver(monkeypatch, True)
    monkeypatch.setattr(sys.modules["cupy"], "__version__", "13.6.0")


MISSING = {
    "cupy": (lambda _, patch: (missing(patch, "cupy"), driver(patch, True)), "needs CuPy, which is not installed: "),
    "cupy and driver": (lambda _, patch: (missing(patch, "cupy"), driver(patch, False)), "^this machine has no NVIDIA"),
    "driver": (change(driver=0), "^this machine has no NVIDIA driver, or it is not loaded: install one first"),
    "old driver": (change(driver=11040), "built for CUDA 12.9 but the driver supports CUDA 11.4 only: update"),
    "wrong major": (change(runtime=13000), "CuPy for CUDA 12: .* -m pip install .*\\[gpu-cu12\\]' after"),
    "no device": (change(devices=0), "the driver shows no GPU"),
    "fault": (change(fault="cudaErrorSystemNotReady: not ready"), "no GPU can be used \\(cudaErrorSystemNotReady"),
    "old GPU": (change(capability=(6, 1)), "compute capability 6.1, but CUDA 12 needs at least 7.0"),
    "nvrtc": (change(absent={"nvrtc"}), "NVRTC of CUDA 12 cannot be loaded"),
    "cublas": (change(absent={"cublas"}), "cuBLAS of CUDA 12 cannot be loaded .* pip install 'cupy-cuda12x\\[ctk\\]'"),
    "cusolver": (change(absent={"cusolver"}), "cuSOLVER of CUDA 12 cannot be loaded"),
    "old CuPy": (old_cupy, "CuPy 13.6.0 is installed, but backend=gpu needs 14.0.1 or later: .* -m pip install"),
    "taken": (change(shut="cudaErrorDevicesUnavailable: busy"), "GPU 0 \\(double\\) cannot be opened \\(cudaError"),
}  # fmt: skip


@pytest.mark.parametrize("fault", MISSING)
def test_each_missing_piece_is_one_line(machine, monkeypatch, fault):
    make, words = MISSING[fault]
    make(machine, monkeypatch)
    with pytest.raises(BackendError, match=words) as told:
        backends.choose("gpu")
    assert "\n" not in str(told.value)
    said = []
    assert backends.choose("auto", 0, said.append) == "cpu"
    assert len(said) == 1
    assert said[0].startswith("backend=auto picked cpu: ")
    assert not said[0].endswith("; or use backend=cpu")  # it does


def test_libraries_that_pip_installed_are_found():
    """They are not on the system's search path: CuPy finds them, if its package of libraries is asked."""
    if not all(importlib.util.find_spec(name) for name in ("cupy", "nvidia", "nvidia.cublas")):
        required("CuPy and cuBLAS are not installed (pip install cupy-cuda12x nvidia-cublas-cu12)")
    code = (
        "from pipeline.backends.gpu import device\n"
        "device.LIBRARIES = {name: device.LIBRARIES[name] for name in ('nvrtc', 'cublas')}\n"
        "device._libraries(12090)\n"
        "print('ok')"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert answer.stdout.strip() == "ok", answer.stderr


def test_auto_picks_the_gpu_and_says_so(machine):
    said = []
    assert backends.choose("auto", 0, said.append) == "gpu"
    assert said == [
        "backend=auto picked gpu: device 0, double, 1 GB, driver for CUDA 12.8, CuPy for CUDA 12.9"
    ]


def test_auto_needs_of_the_gpu_what_the_settings_need(machine, gpu, monkeypatch, capsys):
    """Without cuCIM there is no gaussian on the GPU: auto takes the processor and says why, gpu by name ends."""
    from pipeline.commands import steps

    monkeypatch.setitem(sys.modules, "cucim", None)
    auto = config.Backend(name=config.BackendName.auto)
    assert steps.choose_backend(auto, Preprocess(PreprocessName.gaussian)) == "cpu"
    told = " ".join(capsys.readouterr().out.split())
    assert "backend=auto picked cpu: preprocess=gaussian on backend=gpu needs cuCIM" in told
    assert steps.choose_backend(auto, Preprocess(PreprocessName.clahe)) == "gpu"
    with pytest.raises(BackendError, match="needs cuCIM"):
        steps.choose_backend(config.Backend(name=config.BackendName.gpu), Preprocess(PreprocessName.gaussian))


def test_another_device(machine, monkeypatch):
    with pytest.raises(
        BackendError, match=r"backend.device=1 but this machine shows 1 GPU: choose backend.device=0"
    ):
        backends.choose("gpu", 1)
    monkeypatch.setattr(machine, "devices", 2)
    assert backends.choose("gpu", 1) == "gpu"
    assert machine.current == 1
    backends.choose("gpu", 0)


def test_every_thread_works_on_the_gpu_that_was_selected(machine, monkeypatch):
    """CUDA's current device belongs to a thread; a new one starts on the first GPU."""
    monkeypatch.setattr(machine, "devices", 2)
    backends.choose("gpu", 1)
    machine.current = 0  # as a new thread finds it

    def place():
        backends.get("gpu")
        return machine.current

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(place).result() == 1
        machine.current = 0  # what a thread chooses after that is its own affair
        assert pool.submit(place).result() == 0
    backends.choose("gpu", 0)


def test_the_gpu_that_a_user_of_cupy_works_on_is_left_in_place():
    with installed() as machine:
        machine.devices, machine.current = 2, 1
        assert backends.get("gpu").require().device == 1
        assert machine.current == 1


def test_cucim_is_missed_only_where_it_is_needed(machine, gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "cucim", None)
    for step in STEPS:
        if step.name is PreprocessName.gaussian:
            with pytest.raises(
                BackendError, match=r"needs cuCIM, which is not installed: .* -m pip install cucim-cu12;"
            ):
                gpu.preprocess.require(step)
        else:
            gpu.preprocess.require(step)
            gpu.preprocess.apply(gpu.put(pictures("uint8")), step)


def test_a_broken_cucim_is_told_before_any_image_is_read(machine, gpu, monkeypatch):
    monkeypatch.delattr(sys.modules["cucim.skimage.filters"], "gaussian")
    with pytest.raises(
        BackendError, match=r"cuCIM, which is installed but cannot be imported .*: reinstall it"
    ):
        gpu.preprocess.require(Preprocess(PreprocessName.gaussian))
    gpu.preprocess.require(Preprocess(PreprocessName.stretch))


# ---- commands ----


def test_train_and_predict_on_the_device(machine, monkeypatch, tmp_path, capsys):
    from pipeline.commands import predict, train
    from pipeline.model import load_model

    data = config.Data(name=config.DataName.synthetic, n=240, classes=4)
    cfg = config.Train(run_dir=str(tmp_path), plots=False, data=data)
    cfg.image = config.Image(16, 16)
    cfg.hog = config.Hog(pixels_per_cell=[4, 4], cells_per_block=[2, 2])
    cfg.classifier.n_rounds, cfg.classifier.early_stopping = 3, True
    losses = {}
    for name_ in ("cpu", "auto"):
        cfg.backend = config.Backend(name=config.BackendName[name_])
        machine.forget()
        losses[name_] = train.run(cfg)
    assert losses["auto"] == pytest.approx(losses["cpu"], rel=1e-3)
    assert "backend=auto picked gpu" in capsys.readouterr().out
    assert machine.bytes["d2h"] < 100_000  # no feature matrix among it
    assert load_model(tmp_path / "model.npz").backend == "cpu"
    machine.forget()
    predict.run(
        config.Predict(
            model=str(tmp_path / "model.npz"),
            run_dir=str(tmp_path),
            backend=config.Backend(name=config.BackendName.gpu),
            data=data,
        )
    )
    assert machine.count["launch"] > 0
    monkeypatch.setitem(sys.modules, "cupy", None)  # a laptop without CuPy
    model = load_model(tmp_path / "model.npz")
    assert model.predict(np.zeros((2, 16, 16), dtype=np.uint8)).shape == (2,)


def test_no_image_is_read_before_the_gpu_is_found(machine, tmp_path, monkeypatch):
    from pipeline import datasets
    from pipeline.commands import train

    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("images were read"))
    monkeypatch.setattr(machine, "devices", 0)
    cfg = config.Train(run_dir=str(tmp_path), backend=config.Backend(name=config.BackendName.gpu))
    with pytest.raises(BackendError, match="no GPU"):
        train.run(cfg)
    monkeypatch.setattr(machine, "devices", 1)
    monkeypatch.setitem(sys.modules, "cucim", None)
    cfg.preprocess = Preprocess(PreprocessName.gaussian)
    with pytest.raises(BackendError, match="cuCIM"):
        train.run(cfg)
