"""What must not be lost or misread: inputs, models and devices named as outputs, odd sets, odd names."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import threading
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from pipeline import config, datasets, files
from pipeline.archive import checksum
from pipeline.commands import doctor, evaluate, pack, predict, steps
from pipeline.config import DataName
from pipeline.datasets import load, stream
from pipeline.errors import DataError, ModelError, OutputError
from pipeline.features import HogExtractor
from pipeline.model import load_model, save_model
from pipeline.reporting import help as texts
from pipeline.reporting import plots, tables
from pipeline.reporting import progress as reporting
from tests.programs import started
from tests.test_model import SIZE, make_model, pictures

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 24, 32), np.uint8)
TEXT = {"images": PIXELS, "labels": np.array(["b", "a", "b", "a"])}
NUMBERS = {"images": PIXELS, "labels": np.array([0, 1, 0, 1])}


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    save_model(path, make_model())
    return path.read_bytes()


@pytest.fixture
def here(tmp_path, monkeypatch, model_bytes):
    """A working folder with a model, a packed set and a folder of pictures."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.npz").write_bytes(model_bytes)
    np.savez(tmp_path / "set.npz", **NUMBERS)
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(PIXELS[i]).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path


@pytest.fixture
def call(here, call):
    """As everywhere, in that folder."""
    return call


# ---- files that are written ----


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX pipes")
def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_text()), daemon=True)
    reader.start()
    with files.atomic(path) as stream_:
        stream_.write("a,b\n")
    reader.join(10)
    assert got == ["a,b\n"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("target", ["old.csv", "not yet.csv"])
def test_a_link_is_followed_and_stays_a_link(tmp_path, target):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "kept" / target)
    with files.atomic(link) as stream_:
        stream_.write("new")
    assert link.is_symlink()
    assert (tmp_path / "kept" / target).read_text() == "new"


@pytest.mark.parametrize(
    ("out", "path", "words"),
    [
        ("model.npz", "photos", "is the file of model"),
        ("set.npz", "set.npz", "is the file of data.path"),
        ("photos/a/0.png", "photos/a/0.png", "is the file of data.path"),
        ("photos/a/0.png", "photos", "something else than predictions"),
        ("link", "photos", "is the file of model"),
        ("notes.txt", "photos", "something else than predictions"),
    ],
)
def test_predict_replaces_no_input_and_no_other_file(here, out, path, words):
    (here / "notes.txt").write_text("dear diary")
    (here / "link").symlink_to(here / "model.npz")
    before = (here / out).read_bytes()
    cfg = config.Predict(model="model.npz", out=out, run_dir=str(here))
    cfg.data = config.Data(name=DataName.auto, path=path)
    with pytest.raises(OutputError, match=words):
        predict.run(cfg)
    assert (here / out).read_bytes() == before


def test_predict_replaces_its_own_csv(here):
    cfg = config.Predict(model="model.npz", out="p.csv", run_dir=str(here))
    cfg.data = config.Data(name=DataName.auto, path="photos")
    for _ in range(2):
        predict.run(cfg)
    assert len((here / "p.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("line", "setting", "what"),
    [
        ("predict model=model.npz data.path=photos", "out=nope/x.csv", "a file"),
        ("pack data.path=photos", "out=nope/x.npz", "a file"),
        ("predict scale=dask model=model.npz data.path=photos", "out=nope/parts", "a folder"),
        ("train scale=outofcore data.path=photos", "scale.store=nope/chunks", "a folder"),
    ],
)
def test_a_folder_that_is_not_there_is_not_made(told, here, monkeypatch, line, setting, what):
    """It may be misspelt: said before anything is read."""
    monkeypatch.setattr(
        "pipeline.datasets.folder._list", lambda *_: pytest.fail("read before the output was checked")
    )
    name, *words = line.split()
    assert told(name, *words, setting) == (
        f"pipeline {name}: {setting}: there is no folder nope; give {what} in one that exists, or make it first"
    )
    assert not (here / "nope").exists()


def test_a_folder_whose_name_is_too_long_is_said_with_the_setting(told, here):
    name = "n" * 300
    words = told("pack", "data.path=photos", f"out={name}/x.npz")
    assert words == (
        f"pipeline pack: out={name}/x.npz: {name} cannot be looked at (File name too long); give a file in a folder "
        "that can"
    )


@pytest.mark.parametrize(
    ("out", "data", "words"),
    [
        ("model.npz", "photos", "no packed set"),
        ("set.npz", "set.npz", "is data.path"),
        ("no.npz", "photos", "no packed"),
    ],
)
def test_pack_replaces_packed_sets_only(here, out, data, words):
    (here / "no.npz").write_text("not an archive")
    before = (here / out).read_bytes()
    cfg = config.Pack(out=out, image=SIZE, run_dir=str(here))
    cfg.data = config.Data(name=DataName.auto, path=data)
    with pytest.raises(OutputError, match=words):
        pack.run(cfg)
    assert (here / out).read_bytes() == before


def test_pack_replaces_an_older_pack(here):
    cfg = config.Pack(out="set.npz", image=SIZE, run_dir=str(here))
    cfg.data = config.Data(name=DataName.folder, path="photos")
    pack.run(cfg)
    assert len(np.load("set.npz")["files"]) == 4


@pytest.mark.parametrize("name", ["train", "predict", "evaluate"])
@pytest.mark.parametrize("folder", ["hydra.run.dir=keep", "hydra.run.dir=${oc.env:KEEP}"])
def test_a_run_folder_with_a_model_is_refused(call, here, model_bytes, monkeypatch, name, folder):
    (here / "keep").mkdir()
    (here / "keep" / "model.npz").write_bytes(model_bytes)
    (here / "keep" / "config.yaml").write_text("old")
    monkeypatch.setenv("KEEP", "keep")
    model = [] if name == "train" else ["model=model.npz"]
    status, _, err = call(name, *model, "data.path=photos", folder)
    assert status == 2
    assert "already holds model.npz of another run" in err
    assert err.count("\n") == 1
    assert (here / "keep" / "model.npz").read_bytes() == model_bytes
    assert (here / "keep" / "config.yaml").read_text() == "old"
    if "$" not in folder:
        assert sorted(os.listdir(here / "keep")) == ["config.yaml", "model.npz"]


def test_a_run_folder_may_have_a_name_with_spaces_and_signs(call, here, model_bytes):
    """hydra.run.dir=my run é was no word of Hydra's grammar."""
    status, _, err = call("predict", "model=model.npz", "data.path=set.npz", "hydra.run.dir=my run's é (1)")
    assert (status, err) == (0, "")
    folder = here / "my run's é (1)"
    assert (folder / "predictions.csv").is_file()
    (folder / "model.npz").write_bytes(model_bytes)
    status, _, err = call("train", "data.path=photos", "hydra.run.dir=my run's é (1)")
    assert (status, err.count("\n"), "already holds model.npz" in err) == (2, 1, True)


def test_two_runs_do_not_write_into_one_folder(call, here):
    """The second one is refused while the first is at work, and not afterwards."""
    (here / "mine").mkdir()
    line = ("predict", "model=model.npz", "data.path=photos", "hydra.run.dir=mine")
    with files.occupied(here / "mine"):
        status, _, error = call(*line)
        assert status == 2
        assert re.fullmatch(
            r"pipeline predict: another run is writing into .*mine at this moment; .*\n", error
        )
        assert not (here / "mine" / "predictions.csv").exists()
    assert call(*line)[0] == 0


def test_a_sweep_without_figures_has_no_column_for_them(call, here):
    status, out, _ = call("predict", "-m", "model=model.npz", "data.path=photos,set.npz")
    assert status == 0
    assert "Sweep" in out
    assert "log-loss" not in out


def test_jobs_of_a_sweep_do_not_share_a_file(call, here):
    one = ["predict", "-m", "model=model.npz", "chunk=1,2", "data.path=photos"]
    status, _, err = call(*one, "out=p.csv")
    assert status == 2
    assert "out=p.csv was already written by another job of this sweep" in err
    status, _, err = call(*one, "out=p${hydra:job.num}.csv")
    assert status == 0, err
    assert (here / "p0.csv").exists()
    assert (here / "p1.csv").exists()


def test_doctor_sees_that_runs_is_a_file(here):
    advice = []
    (here / "runs").write_text("")
    told = dict(doctor._disk(here, advice))
    assert told["writable"].startswith("NO")
    assert "is a file" in advice[0]


# ---- sets ----


def saved(path, **arrays):
    np.savez(path, **arrays)
    return config.Data(name=DataName.packed, path=str(path))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({**TEXT, "classes": np.array(["a", "c"])}, "labels holds 'b', which is not among classes"),
        ({**NUMBERS, "labels": np.array([0, -1, 0, 1])}, "labels from -1"),
        ({**NUMBERS, "classes": np.array(["a", ""])}, "empty name"),
        ({**TEXT, "labels": np.array(["a", "", "a", ""])}, "empty name"),
        ({**NUMBERS, "classes": np.array([])}, "classes is empty"),
        ({**NUMBERS, "classes": np.array(["a", "a"])}, "classes holds 'a' twice"),
        ({**NUMBERS, "classes": np.array([["a", "b"]])}, "expected text"),
        ({**NUMBERS, "classes": np.array(["a", None], object)}, "Python objects, which are never read"),
    ],
)
def test_labels_that_fit_no_class(tmp_path, arrays, words):
    with pytest.raises(DataError, match=words) as caught:
        load(saved(tmp_path / "p.npz", **arrays), SIZE)
    assert "allow_pickle" not in str(caught.value)


def test_text_labels_take_the_order_of_classes(tmp_path):
    found = load(saved(tmp_path / "p.npz", **TEXT, classes=np.array(["b", "a"])), SIZE).images
    assert found.class_names == ("b", "a")
    assert found.labels.tolist() == [0, 1, 0, 1]


def test_names_in_bytes_are_text(tmp_path):
    arrays = {**TEXT, "labels": TEXT["labels"].astype("S"), "classes": np.array([b"b", b"a"])}
    found = load(saved(tmp_path / "p.npz", **arrays), SIZE).images
    assert found.class_names == ("b", "a")
    assert found.labels.tolist() == [0, 1, 0, 1]
    del arrays["classes"]
    assert load(saved(tmp_path / "p.npz", **arrays), SIZE).images.class_names == ("a", "b")


def test_a_name_that_begins_with_a_tilde_is_a_name(here, call):
    (here / "photos").rename(here / "~photos")
    (here / "model.npz").rename(here / "~model.npz")
    status, _, error = call("predict", "model=~model.npz", "data.path=~photos", "out=~labels.csv")
    assert (status, error) == (0, "")
    assert (here / "~labels.csv").read_text().startswith("path,label,")


def test_what_cannot_be_read_is_not_said_of_the_file_being_written(here, call):
    """The set is read while the CSV is open: a fault of the one is no fault of the other."""
    for line in ("predict model=model.npz out=labels.csv", "pack out=new.npz"):
        status, _, error = call(*line.split(), f"data.path={'x' * 300}")
        assert status == 2
        assert re.fullmatch(r"pipeline \w+: (data.path=)?x{100}\.\.\.: .*File name too long\n", error)
    assert not (here / "labels.csv").exists()


def test_progress_that_nobody_reads_ends_nothing(monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stderr", Gone())
    with reporting.progress("boost", "rounds") as advance:
        monkeypatch.setattr(reporting.time, "perf_counter", lambda: 1e6)
        advance(1, 10)
        advance(5, 10)


def test_pickles_and_pieces_are_told_in_our_words(tmp_path):
    np.save(tmp_path / "pickle.npy", np.array([{}, 1], object))
    np.save(tmp_path / "piece.npy", PIXELS)
    (tmp_path / "piece.npy").write_bytes((tmp_path / "piece.npy").read_bytes()[:400])
    np.savez(tmp_path / "piece.npz", **NUMBERS)
    (tmp_path / "piece.npz").write_bytes((tmp_path / "piece.npz").read_bytes()[:400])
    (tmp_path / "raw.npy").write_bytes(b"\x80\x04}.")
    expected = {
        "pickle.npy": "never read",
        "piece.npy": "cut short",
        "piece.npz": "cut short or not an .npz",
        "raw.npy": "a Python pickle",
    }
    for name, words in expected.items():
        with pytest.raises(DataError, match=words) as caught:
            load(config.Data(name=DataName.packed, path=str(tmp_path / name)), SIZE)
        assert "allow_pickle" not in str(caught.value)


def test_predict_is_not_told_to_set_the_image_size(tmp_path):
    data = saved(tmp_path / "p.npz", **NUMBERS)
    with pytest.raises(DataError, match=r"again with image.height=8 image.width=12") as caught:
        stream(data, config.Image(8, 12), 2)
    assert "add image.height" not in str(caught.value)


def test_an_empty_class_folder_is_named(here):
    (here / "photos" / "c").mkdir()
    with pytest.raises(DataError, match="the class folder c holds no pictures"):
        load(config.Data(name=DataName.folder, path="photos"), SIZE)


def test_pack_tells_of_a_class_without_pictures_and_what_to_type_next(call, here):
    """train refused the set and said of neither; the words to type had no quotes."""
    (here / "photos" / "c d").mkdir()
    (here / "photos" / "c d" / "1.png").write_text("bad")
    size = ("image.height=24", "image.width=32")
    status, out, err = call("pack", "data.path=photos", "out=my set.npz", *size, "data.max_rejected=0.5")
    assert status == 0
    assert "pipeline train data=packed 'data.path=my set.npz'" in out
    assert "the class c d is of no picture: train will refuse my set.npz; mend or remove what " in err
    status, _, err = call("train", "data.path=my set.npz", *size)
    assert (status, err.count("\n")) == (2, 1)
    assert "class 'c d' has 0 pictures" in err
    assert "pack the set again, with more pictures or without the class" in err


def test_advice_where_every_file_was_rejected_can_be_followed(told, tmp_path):
    for label in "ab":
        (tmp_path / "bad" / label).mkdir(parents=True)
        (tmp_path / "bad" / label / "x.png").write_bytes(b"")
    line = told("train", "data.path=bad", "data.max_rejected=1")
    assert "nothing is left: mend the files, or give others" in line
    assert "raise" not in line


def test_images_that_were_not_given_are_asked_for():
    """`evaluate model=M` alone scores the digits, whose classes no other model knows."""
    images = datasets.load(config.Data(), config.Image()).images
    with pytest.raises(DataError, match=r"data=digits has others: give images with data.path=\.\.\.$"):
        evaluate._labels_of_model(images, images.labels, ("car", "van"))


def test_what_a_full_stream_loses_is_not_blamed_on_the_run_folder(tmp_path):
    with open("/dev/full", "w") as full:
        run = started("train", "--cfg", "job", cwd=tmp_path, stdout=full)
        _, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert err.count("\n") == 1
    assert "No space left on device" in err
    assert "run folder" not in err


def test_an_address_is_no_path(told):
    """It was told as a path that lost a slash."""
    line = told("train", "data.path=https://example.org/photos.npz")
    assert (
        "data.path=https://example.org/photos.npz is an address; pictures are read from disk: download them"
        in line
    )
    assert told("train", "data.path=file:///photos").endswith("give the path alone, data.path=/photos")


def test_a_regular_expression_is_shown_as_it_was_typed(told):
    line = told("train", "data.path=photos", r"split.group_by=(\d+)_\d+\.png")
    assert r"split.group_by=(\d+)_\d+\.png does not match the path" in line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX pipes")
def test_pipes_are_not_read(tmp_path):
    for name in ("p", "p.npz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(DataError, match=r"pipe|not a regular file"):
            stream(config.Data(name=DataName.auto, path=str(tmp_path / name)), SIZE, 2)
        with pytest.raises(ModelError, match="a device or pipe"):
            load_model(tmp_path / name)


# ---- models and features ----


@pytest.mark.parametrize(
    "line", ["train", "predict model=model.npz", "evaluate model=model.npz", "pack out=x.npz"]
)
def test_a_model_is_no_set_of_images(told, here, line):
    name, *words = line.split()
    data = "data=packed" if name == "pack" else "data=auto"
    assert told(name, *words, data, "data.path=model.npz").startswith(
        f"pipeline {name}: data.path=model.npz: a model, not images: give it as model=... to predict or evaluate, and "
        "in data.path= the folder or packed set"
    )


def test_a_model_labels_no_images(here):
    model = load_model("model.npz")
    none = pictures()[0][:0]
    assert model.predict(none).shape == (0,)
    assert model.predict_proba(none).shape == (0, 3)
    assert model.features(none).shape == (0, model.extractor.layout_.n_features)
    with pytest.raises(ModelError, match="24x32"):
        model.predict(np.zeros((0, 5, 5), np.uint8))
    with pytest.raises(TypeError, match="must name a model file"):
        load_model(None)


@pytest.mark.parametrize("version", [None, "1", 0, True, -3])
def test_a_strange_version_is_damage(here, version):
    with np.load("model.npz") as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    header["version"] = version
    np.savez("odd.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    with pytest.raises(ModelError, match="is damaged: its header has no format version"):
        load_model("odd.npz")


def crafted(path, change):
    """Write the model of the working folder with another content and a checksum that fits it."""
    with np.load("model.npz") as archive:
        arrays = {name.removeprefix("classifier."): archive[name] for name in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    header.pop("sha256")
    change(arrays, header)
    header["sha256"] = checksum(arrays, header)
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=text, **{f"classifier.{name}": array for name, array in arrays.items()})


@pytest.mark.parametrize("name", ["classes", "center", "coef", "intercept", "feature_importances", "rank"])
@pytest.mark.parametrize(
    "change", [lambda a: a[:-1].ravel(), lambda a: np.array(["x"]), lambda a: np.float64(1.0)]
)
def test_arrays_of_a_model_that_do_not_fit_each_other(here, name, change):
    """The kernels do not look at bounds: a coefficient too few would be read from elsewhere."""
    crafted("odd.npz", lambda arrays, _: arrays.update({name: change(arrays[name])}))
    with pytest.raises(ModelError, match="lacks or misstates"):
        load_model("odd.npz")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("class_names", ["a"], "classes: they must be indices into the 1 class_names"),
        ("class_names", ["a", "a", "b"], "class_names: distinct texts are expected"),
        ("class_names", ["a", None, 3], "class_names: distinct texts are expected"),
        ("hog", [], "lacks or misstates"),
        ("hog", {"orientations": 5}, "n_features: the classifier takes"),
        ("summary", "x", "summary: a table is expected"),
    ],
)
def test_a_header_that_does_not_fit_the_arrays(here, key, value, words):
    crafted("odd.npz", lambda _, header: header.update({key: value}))
    with pytest.raises(ModelError, match=words):
        load_model("odd.npz")


def test_a_model_with_objects_is_refused_in_our_words(tmp_path):
    np.savez(tmp_path / "m.npz", header=np.array([{}], object))
    with pytest.raises(ModelError, match="never read") as caught:
        load_model(tmp_path / "m.npz")
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize("name", ["transform_sqrt", "check_finite"])
def test_a_flag_must_be_true_or_false(name):
    with pytest.raises(ValueError, match=f"{name} must be True or False, not 'no'"):
        HogExtractor(**{name: "no"}).fit(PIXELS)


@pytest.mark.parametrize(("dtype", "scale"), [("float64", 1e200), ("float32", 1e36)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pixels_too_large_are_refused(dtype, scale):
    pixels = PIXELS.astype(dtype)
    pixels[2] *= scale
    extractor = HogExtractor(cells_per_block=(2, 2), backend="reference")  # nothing to compile
    with pytest.raises(ValueError, match="image 2 has pixels so large"):
        extractor.fit_transform(pixels)
    extractor.set_params(check_finite=False).fit_transform(pixels)


# ---- names and progress ----


def test_names_fit_one_line():
    assert tables.shown("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert len(tables.shown("x" * 200)) == 40
    assert tables.shown("画像") == "画像"
    assert tables.mistakes([(2, "a\n", "b")]) == "a\\n taken for b (2)"
    assert tables.mistakes([]) == "none"


def test_plots_of_odd_names_are_silent(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.confusion_matrix(np.eye(2, dtype=int), ["画像\n" * 50, "$x"], tmp_path / "c.png")
    ink = np.asarray(Image.open(tmp_path / "c.png").convert("L")) < 250
    for edge in (ink[:, :4], ink[:, -4:], ink[:4], ink[-4:]):
        assert not edge.any()  # nothing is cut at the rim


def test_a_slow_stage_tells_every_ten_seconds(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: clock[0])
    with reporting.progress("boost", "rounds") as advance:
        for done in range(1, 41):
            clock[0] += 3.0
            advance(done, 1000)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("boost")]
    assert [line.split()[1] for line in lines] == [f"{done}/1000" for done in range(4, 41, 4)]


def test_help_explains_every_key_of_hog_and_classifier():
    rows = {key: remark for key, _, remark in texts.settings(config.Train, {})}
    keys = [key for key in config.keys(config.Train) if key.startswith(("hog.", "classifier."))]
    assert len(keys) > 20
    assert [key for key in keys if not re.sub(r"(; )?one of .*", "", rows[key])] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 ms"), (99.4, "99.4 s"), (99.6, "1 min 40 s"), (119.7, "2 min 00 s"), (3599.9, "60 min 00 s")],
)
def test_a_minute_has_sixty_seconds(value, text):
    assert tables.seconds(value) == text


def test_one_of_a_thing_has_no_s():
    assert [tables.count(n, "image") for n in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
    assert tables.count(2, "class", "classes") == "2 classes"


def test_doctor_misses_only_what_the_program_needs():
    """Every package it looks for is one that the installation brings, directly or through another."""
    root = Path(__file__).resolve().parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {re.split(r"[^\w-]", entry)[0].lower() for entry in project["dependencies"]}
    assert set(doctor.PACKAGES) - {"llvmlite", "omegaconf"} <= stated


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (config.Data(name=DataName.auto, path="my photos"), "my photos"),
        (config.Data(name=DataName.packed, path="set.npz"), "set.npz"),
        (config.Data(name=DataName.digits), "digits"),
    ],
)
def test_the_source_is_named_and_not_how_it_was_found(data, text):
    assert steps.source(data) == text


def test_features_larger_than_memory_are_refused_before_they_are_made(told, monkeypatch):
    """75 pictures of 16384 x 16384 pixels would have made 100 GB of features: the system ended the program."""
    import psutil

    there = SimpleNamespace(total=10 * 10**6)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: there)
    line = told("train", "data=digits")
    assert (
        "HoG features of 1,797 images, 3,240 of each, need 23 MB of memory beside 9 MB of pixels, and this machine has "
        "10 MB: "
    ) in line
    assert line.endswith("by scale=outofcore scale.memory_limit=5MB")


@pytest.mark.parametrize("words", ["train", "evaluate split.folds=2"])
def test_pictures_larger_than_memory_are_refused_before_they_are_made(told, monkeypatch, words):
    """200 pictures of 8000 x 8000 pixels were being made for minutes, for 64 GB of features and 13 of pixels."""
    monkeypatch.setattr(datasets, "load", None)
    line = told(*words.split(), "data=synthetic", "data.n=100000", "image.height=8000", "image.width=8000")
    assert "of memory beside 6400.0 GB of pixels, and this machine has" in line
