"""The model file: what goes in comes out, and damage never passes for a model."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest

from pipeline import config, files
from pipeline.boosting import LogitBoostClassifier
from pipeline.errors import ModelError, OutputError
from pipeline.features import HogExtractor
from pipeline.model import Model, fitted_extractor, load_model, save_model
from pipeline.model_file import VERSION

SIZE = config.Image(height=24, width=32)


def pictures(n=60, seed=0):
    """Stripes in three directions with noise: uint8 (n, 24, 32) and labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    rows, cols = np.mgrid[: SIZE.height, : SIZE.width]
    waves = np.stack([rows, cols, rows + cols])[labels] + rng.integers(0, 8, (n, 1, 1))
    return (120 + 80 * np.sin(waves) + rng.normal(0, 12, waves.shape)).clip(0, 255).astype(np.uint8), labels


def make_model(learner="subspace", rounds=3, labels=None, preprocess=None):
    pixels, all_labels = pictures()
    labels = all_labels if labels is None else labels
    hog = fitted_extractor(HogExtractor(cells_per_block=(2, 2)), SIZE)
    step = preprocess or config.Preprocess()
    model = Model(hog, LogitBoostClassifier(learner=learner), ("down", "across", "slanted"), SIZE, step)
    model.classifier.set_params(n_rounds=rounds, subspace_size=20, n_components=16, random_state=0)
    model.classifier.fit(model.features(pixels), labels)
    model.summary = {"note": "größe"}
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    model = make_model()
    save_model(path, model)
    return path, model


@pytest.mark.parametrize("learner", ["subspace", "componentwise", "random_features"])
def test_a_model_survives_the_file(tmp_path, learner):
    stretch = config.Preprocess(name=config.PreprocessName.stretch, percentiles=[1.0, 99.0])
    model = make_model(learner, preprocess=stretch)
    save_model(tmp_path / "model.npz", model)
    found = load_model(tmp_path / "model.npz")
    pixels, labels = pictures(30, seed=1)
    np.testing.assert_array_equal(found.predict_proba(pixels), model.predict_proba(pixels))
    assert (found.class_names, found.image, found.preprocess) == (model.class_names, SIZE, stretch)
    assert found.summary == {"note": "größe"}
    assert (found.predict(pixels) == np.array(model.class_names)[labels]).mean() > 0.9


def test_importances_of_cells(saved):
    _, model = saved
    found = model.cell_importances()
    layout = model.extractor.layout((SIZE.height, SIZE.width))
    assert found.shape == layout.cells == (3, 4)
    assert found.sum() == pytest.approx(1.0)
    corner = layout.cell_index() == 0
    assert found[0, 0] == pytest.approx(model.classifier.feature_importances_[corner].sum())


def test_the_file_does_not_know_the_backend(saved):  # xgboost PR#8632
    path, model = saved
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
    assert '"backend"' not in json.dumps(header)
    pixels, _ = pictures(20, seed=2)
    other = load_model(path, backend="reference")
    assert (other.extractor.backend, other.classifier.backend) == ("reference", "reference")
    np.testing.assert_allclose(other.predict_proba(pixels), model.predict_proba(pixels), atol=1e-5)


def test_a_class_without_training_images_gets_probability_zero():
    model = make_model(labels=np.arange(60) % 2 * 2)  # classes 0 and 2 of 3
    proba = model.predict_proba(pictures(9)[0])
    assert proba.shape == (9, 3)
    assert (proba[:, 1] == 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-6)


def test_wrong_images_are_refused(saved):
    _, model = saved
    with pytest.raises(ModelError, match=r"24x32 .*these are 50x100.*image.height=24 image.width=32"):
        model.predict(np.zeros((2, 50, 100), np.uint8))
    with pytest.raises(ModelError, match=r"an array \(24, 32\)"):
        model.predict(np.zeros((24, 32), np.uint8))
    with pytest.raises(ModelError, match="not float64"):
        model.predict(np.zeros((2, 24, 32)))


def refusal(path):
    """Return the message of the ModelError, which must be one line that names the file."""
    with pytest.raises(ModelError) as caught:
        load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def altered(path, out, change):
    """Rewrite a model file after `change` has altered its arrays and header."""
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    change(arrays, header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(out, **arrays)
    return out


def test_what_is_no_model_is_refused(saved, tmp_path):
    path, _ = saved
    assert "does not exist" in refusal(tmp_path / "absent.npz")
    assert "folder" in refusal(tmp_path)
    assert f"did you mean {path}" in refusal(path.parent)
    text = tmp_path / "text.npz"
    text.write_text("path,reason\n")
    assert "no model file" in refusal(text)
    (tmp_path / "void.npz").write_bytes(b"")
    assert "no model file" in refusal(tmp_path / "void.npz")
    np.savez(tmp_path / "pack.npz", images=np.zeros((2, 3, 3), np.uint8))
    assert "no model file" in refusal(tmp_path / "pack.npz")
    np.savez(tmp_path / "objects.npz", header=np.array([{}], dtype=object))
    assert "cannot be read" in refusal(tmp_path / "objects.npz")  # never unpickled
    np.savez(tmp_path / "other.npz", header=np.frombuffer(b"[1]", np.uint8))
    assert "no model file" in refusal(tmp_path / "other.npz")
    np.savez(tmp_path / "unmarked.npz", header=np.frombuffer(b"{}", np.uint8))
    assert "format mark" in refusal(tmp_path / "unmarked.npz")


def test_a_newer_format_is_refused(saved, tmp_path):
    newer = altered(saved[0], tmp_path / "newer.npz", lambda _, header: header.update(version=VERSION + 1))
    assert f"format {VERSION + 1}" in refusal(newer)
    assert "update hogboost" in refusal(newer)


def test_altered_content_is_refused(saved, tmp_path):
    def coefficient(arrays, _):
        arrays["classifier.coef"] = arrays["classifier.coef"] + 1e-12

    assert "damaged" in refusal(altered(saved[0], tmp_path / "a.npz", coefficient))
    swapped = altered(saved[0], tmp_path / "b.npz", lambda _, header: header["class_names"].reverse())
    assert "damaged" in refusal(swapped)


def test_every_cut_and_flipped_byte_is_noticed(saved, tmp_path):
    whole = saved[0].read_bytes()
    path = tmp_path / "model.npz"
    for cut in np.linspace(0, len(whole) - 1, 12).astype(int):
        path.write_bytes(whole[:cut])
        refusal(path)
    rng = np.random.default_rng(0)
    reference = load_model(saved[0]).predict_proba(pictures(5)[0])
    for place in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        try:
            found = load_model(path)
        except ModelError:
            continue
        # a bit that carries no content, such as the archive's time stamps
        np.testing.assert_array_equal(found.predict_proba(pictures(5)[0]), reference)


HEADERS = {
    "a bracket that opens": "{'descr': '<f8', 'fortran_order': False, 'shape': (3,",
    "quotes that open": "{'descr': '''<f8",
    "a huge number": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + 40 * "9" + ",)}",
    "a number too long to read": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + 5000 * "9" + ",)}",
    "indentation": "  {'descr': '<f8',\n 'fortran_order': False}",
    "a number of Python 2": "{'descr': '<f8', 'fortran_order': False, 'shape': (3L,)}",
    "deep brackets": 3000 * "(" + 3000 * ")",
    "more than memory": "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}",
}


@pytest.mark.parametrize("member", ["header", "classifier.coef"])
@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
@pytest.mark.filterwarnings("error")
def test_a_damaged_description_of_an_array_is_one_short_line(saved, tmp_path, member, text):
    """They ended in tracebacks, in a line of 5,000 characters, or below a remark of NumPy's."""
    path, line = tmp_path / "model.npz", text.encode()
    with zipfile.ZipFile(saved[0]) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == f"{member}.npy":
                content = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(line) + 1) + line + b"\n" + bytes(24)
            new.writestr(name, content)
    with pytest.raises(ModelError) as refused:
        load_model(path)
    assert len(str(refused.value)) < 300 + len(str(path))


def test_a_shortage_of_memory_is_no_damage(saved, monkeypatch):
    """A good model was "damaged or no model file", and a good checkpoint passed over."""

    def short(*_args, **_named):
        raise MemoryError

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", short)
    with pytest.raises(MemoryError):
        load_model(saved[0])


class FullDisk(io.BytesIO):
    """A file on a disk that is full."""

    def __init__(self, handle, *_args, **_kwargs):
        super().__init__()
        os.close(handle)

    def write(self, _data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_model_whole(saved, tmp_path, monkeypatch, step):
    path = tmp_path / "model.npz"
    shutil.copy(saved[0], path)

    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "write":
        monkeypatch.setattr(files.os, "fdopen", FullDisk)
    elif step == "fsync":
        monkeypatch.setattr(files.os, "fsync", full)
    else:
        monkeypatch.setattr(files.Path, "replace", full)
    with pytest.raises(OutputError, match=r"No space left on device.*unchanged"):
        save_model(path, saved[1])
    monkeypatch.undo()
    assert path.read_bytes() == saved[0].read_bytes()
    assert os.listdir(tmp_path) == ["model.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX resource limits")
def test_a_real_limit_on_the_file_size_leaves_the_old_model_whole(saved, tmp_path):
    path = tmp_path / "model.npz"
    shutil.copy(saved[0], path)
    code = """
        import resource, sys
        from pipeline.errors import OutputError
        from pipeline.model import load_model, save_model
        model = load_model(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            save_model(sys.argv[1], model)
        except OutputError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout
    assert path.read_bytes() == saved[0].read_bytes()
    assert os.listdir(tmp_path) == ["model.npz"]


def test_a_file_in_the_way_is_told_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is not a folder"), files.atomic(tmp_path / "file" / "x.csv"):
        pytest.fail("the block must not run")
    with pytest.raises(OutputError, match="a folder of this name"), files.atomic(tmp_path):
        pytest.fail("the block must not run")


def test_atomic_keeps_the_old_file_when_the_block_fails(tmp_path):
    path = tmp_path / "deep" / "labels.csv"
    with files.atomic(path) as stream:
        stream.write("old \udcff\n")  # a file name that is not UTF-8 keeps its bytes
    with pytest.raises(ZeroDivisionError), files.atomic(path) as stream:
        stream.write(f"new {1 / 0}")
    assert path.read_bytes() == b"old \xff\n"
    assert os.listdir(path.parent) == ["labels.csv"]
