"""The reduce stage: PcaReducer, the commands that use it, and the model file that holds it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import pipeline
from pipeline import PcaReducer, config
from pipeline.boosting import LogitBoostClassifier
from pipeline.commands import evaluate, predict, steps, train
from pipeline.errors import ConfigError, ModelError
from pipeline.features import HogExtractor
from pipeline.model import Model, features, fitted_extractor, load_model, save_model
from tests.test_commands import rows
from tests.test_model import SIZE, altered, pictures, refusal
from tests.test_pca import falling

PCA_GROUP = config.ReduceName.pca

# ---- the transformer ----


@pytest.mark.parametrize(
    "reducer",
    [PcaReducer(), PcaReducer(variance=0.9, dtype="float64"), PcaReducer(components=1)],
    ids=["default", "share", "one"],
)
def test_it_is_a_scikit_learn_transformer(reducer):
    check_estimator(reducer)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_equals_scikit_learn(backend):
    X = falling(120, 40)
    wanted = PCA(0.8, svd_solver="full").fit(X)
    got = PcaReducer(variance=0.8, backend=backend, dtype="float64").fit(X)
    assert got.n_components_ == wanted.n_components_
    np.testing.assert_allclose(got.explained_variance_, wanted.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(got.explained_variance_ratio_, wanted.explained_variance_ratio_, rtol=1e-8)
    np.testing.assert_allclose(got.components_, wanted.components_, atol=1e-9)
    np.testing.assert_allclose(got.transform(X), wanted.transform(X), atol=1e-9)
    assert list(got.get_feature_names_out()[:2]) == ["pcareducer0", "pcareducer1"]
    assert pipeline.PcaReducer is PcaReducer


def test_the_type_of_what_comes_out():
    X = falling(30, 8)
    for given in ("float32", "float64"):
        for asked in ("float32", "float64"):
            reducer = PcaReducer(components=3, dtype=asked).fit(X.astype(given))
            assert reducer.transform(X.astype(given)).dtype == reducer.components_.dtype == asked


def test_a_memory_map_is_reduced_as_it_is(tmp_path):
    X = falling(60, 9).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(PcaReducer(3).fit_transform(mapped), PcaReducer(3).fit_transform(X))


@pytest.mark.parametrize("shape", [(8000, 200), (200, 8000)], ids=["tall", "wide"])
def test_no_copy_of_the_features_is_made(monkeypatch, shape):
    """Beyond blocks of rows or columns, that is, and the Gram matrix."""
    from pipeline.backends.cpu import pca, wls_blocks

    for module in (pca, wls_blocks):
        monkeypatch.setattr(module, "BUFFER", 1 << 15)
    X = falling(*shape, rank=20).astype(np.float32)
    reducer = PcaReducer(components=4)
    reducer.fit(X[:300])  # what is loaded or compiled at the first call
    tracemalloc.start()
    reducer.fit(X)
    fitting = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    reducer.transform(X)
    transforming = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fitting < 0.6 * X.nbytes
    assert transforming < 0.3 * X.nbytes


def test_images_become_reduced_features_in_chunks():
    """The HoG features of all images are never there together."""
    model = reduced_model()
    pixels = np.broadcast_to(pictures(4)[0][:1], (20_000, SIZE.height, SIZE.width))
    hog_bytes = 4 * len(pixels) * model.extractor.layout_.n_features
    features(pixels[:300], None, model.preprocess, model.extractor, 300, reducer=model.reducer)
    tracemalloc.start()
    found = features(pixels, None, model.preprocess, model.extractor, 500, reducer=model.reducer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.shape == (20_000, model.n_features)
    assert peak < found.nbytes + 0.2 * hog_bytes


def test_the_default_is_that_of_the_command():
    """It could not be fitted: neither components nor variance was given."""
    X = falling(40, 12)
    given, told = PcaReducer(variance=config.Reduce(config.ReduceName.pca).variance), PcaReducer()
    np.testing.assert_array_equal(told.fit_transform(X), given.fit_transform(X))
    assert told.get_params()["variance"] is None
    again = PcaReducer.from_state(*told.state())
    np.testing.assert_array_equal(again.transform(X), told.transform(X))


MISTAKES = {
    "both": (PcaReducer(3, 0.9), "components=3 and variance=0.9 cannot both be given: leave one out"),
    "too many": (PcaReducer(11), "components=11 cannot be found in 10 rows of 20 features: give at most 10"),
    "zero": (PcaReducer(0), "components must be an integer of at least 1, not 0"),
    "fraction": (PcaReducer(2.5), "components must be an integer of at least 1, not 2.5"),
    "truth": (PcaReducer(True), "components must be an integer of at least 1, not True"),
    "all": (PcaReducer(variance=1.0), "variance must be a share above 0 and below 1, not 1.0"),
    "nan": (PcaReducer(variance=float("nan")), "variance must be a share above 0 and below 1, not nan"),
    "text": (PcaReducer(variance="0.9"), "variance must be a share above 0 and below 1, not '0.9'"),
    "dtype": (PcaReducer(2, dtype="float16"), "dtype must be one of float32, float64, not 'float16'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_one_line(mistake):
    reducer, words = MISTAKES[mistake]
    with pytest.raises(ValueError, match=r"must|cannot") as told:
        reducer.fit(falling(10, 20))
    assert str(told.value).startswith(words)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_features_too_large_to_square_are_refused(backend):
    with pytest.raises(ValueError, match="are too large to be squared; scale the features"):
        PcaReducer(2, backend=backend).fit(falling(10, 5) * 1e200)


def test_importances_of_a_linear_model_are_those_of_its_hog_coefficients():
    """With every component kept, a rotation changes nothing: standard deviation times mean |coefficient|."""
    rng = np.random.default_rng(0)
    X = falling(200, 6)
    reducer = PcaReducer(6, dtype="float64").fit(X)
    coef = rng.normal(size=(3, 6))  # of the original features
    found = reducer.feature_importances(np.full(6, np.nan), coef @ reducer.components_.T)
    wanted = X.std(axis=0) * np.abs(coef).mean(axis=0)
    np.testing.assert_allclose(found, wanted / wanted.sum(), rtol=1e-9)


def test_importances_without_coefficients_spread_through_the_squared_loadings():
    X = falling(100, 12, rank=4)
    reducer = PcaReducer(5, dtype="float64").fit(X)  # the fifth is zero
    given = np.array([0.1, 0.0, 0.6, 0.3, 0.0])
    found = reducer.feature_importances(given)
    v, C = reducer.explained_variance_, reducer.components_
    g = np.where(v > 0, given / np.sqrt(np.where(v > 0, v, 1.0)), 0.0)
    wanted = [np.sqrt(sum(v * C[:, f] ** 2)) * np.sqrt(sum(C[:, f] ** 2 * g**2)) for f in range(12)]
    np.testing.assert_allclose(found, np.array(wanted) / sum(wanted), rtol=1e-12)
    np.testing.assert_array_equal(reducer.feature_importances(np.zeros(5)), np.zeros(12))


@pytest.mark.parametrize("learner", ["subspace", "componentwise", "random_features"])
def test_the_only_cell_that_tells_the_classes_apart_is_the_most_important(learner):
    """Cells are their own blocks here; the signal lies in row 1, column 2."""
    rng = np.random.default_rng(3)
    labels = np.arange(160) % 2
    pixels = rng.integers(0, 60, (160, 24, 32))
    rows, cols = np.mgrid[:8, :8]
    waves = np.where(labels[:, None, None] == 0, rows, cols)
    pixels[:, 8:16, 16:24] = 120 + 80 * np.sin(waves + rng.integers(0, 8, (160, 1, 1)))
    hog = fitted_extractor(HogExtractor(cells_per_block=(1, 1)), SIZE)
    reducer = PcaReducer(variance=0.9)
    Z = reducer.fit_transform(hog.transform(pixels.astype(np.uint8)))
    classifier = LogitBoostClassifier(learner, n_rounds=20, subspace_size=16, n_components=64, random_state=0)
    model = Model(hog, classifier.fit(Z, labels), ("a", "b"), SIZE, config.Preprocess(), reducer=reducer)
    found = model.cell_importances()
    assert found.shape == (3, 4)
    assert found.sum() == pytest.approx(1.0)
    assert np.unravel_index(found.argmax(), found.shape) == (1, 2)


# ---- the model file ----


def reduced_model(**parameters):
    pixels, labels = pictures()
    hog = fitted_extractor(HogExtractor(cells_per_block=(2, 2)), SIZE)
    reducer = PcaReducer(**(parameters or {"variance": 0.99}))
    Z = reducer.fit_transform(hog.transform(pixels))
    classifier = LogitBoostClassifier(n_rounds=3, subspace_size=20, random_state=0).fit(Z, labels)
    names = ("down", "across", "slanted")
    return Model(hog, classifier, names, SIZE, config.Preprocess(), reducer=reducer)


def content(path):
    with np.load(path, allow_pickle=False) as archive:
        return json.loads(archive["header"].tobytes()), archive.files


def test_a_reduced_model_survives_the_file(tmp_path):
    model = reduced_model()
    save_model(tmp_path / "model.npz", model)
    header, names = content(tmp_path / "model.npz")
    assert header["version"] == 2
    assert header["reduce"] == {"components": None, "variance": 0.99, "dtype": "float32"}
    assert {"reduce.mean", "reduce.components"} < set(names)
    found = load_model(tmp_path / "model.npz")
    pixels, labels = pictures(30, seed=1)
    np.testing.assert_array_equal(found.predict_proba(pixels), model.predict_proba(pixels))
    np.testing.assert_array_equal(found.features(pixels), model.features(pixels))
    np.testing.assert_array_equal(found.cell_importances(), model.cell_importances())
    assert found.features(pixels).shape == (30, model.n_features) == (30, model.reducer.n_components_)
    assert found.features(pixels[:0]).shape == (0, model.n_features)
    assert (found.predict(pixels) == np.array(model.class_names)[labels]).mean() > 0.9
    other = load_model(tmp_path / "model.npz", backend="reference")
    assert other.reducer.backend == "reference"
    np.testing.assert_allclose(other.predict_proba(pixels), model.predict_proba(pixels), atol=1e-5)


def test_one_image_at_a_time_gives_the_same():
    model = reduced_model()
    pixels, _ = pictures(7, seed=4)
    single = np.concatenate([model.features(image[None]) for image in pixels])
    np.testing.assert_allclose(single, model.features(pixels), atol=1e-6)
    np.testing.assert_allclose(
        model.features(pixels), model.reducer.transform(model.extractor.transform(pixels)), atol=1e-6
    )


def test_a_model_without_reduction_is_a_file_of_the_first_format(tmp_path):
    """So programs that know no other still read it; and files from before there was a reduction are read."""
    model = reduced_model()
    model.reducer = None
    model.classifier.fit(model.features(pictures()[0]), pictures()[1])
    save_model(tmp_path / "model.npz", model)
    header, names = content(tmp_path / "model.npz")
    assert header["version"] == 1
    assert "reduce" not in header
    assert not [name for name in names if name.startswith("reduce.")]
    assert load_model(tmp_path / "model.npz").reducer is None


def resealed(change):
    """Return a change of a model file after which its checksum is right again."""
    from pipeline.archive import checksum

    def apply(arrays, header):
        change(arrays, header)
        header.pop("sha256")
        header["sha256"] = checksum(
            {k.removeprefix("classifier."): v for k, v in arrays.items() if k != "header"}, header
        )

    return apply


def put(name, value):
    return lambda arrays, _: arrays.update({f"reduce.{name}": value(arrays[f"reduce.{name}"])})


BROKEN = {
    "mean": (put("mean", lambda a: a[:-1]), "mean: it is float64"),
    "kind": (put("components", lambda a: a.astype(np.float64)), "components: it is float64"),
    "vector": (put("components", lambda a: a[0]), "components: it is float32"),
    "nan": (put("components", lambda a: a * np.nan), "its arrays must be finite"),
    "narrow": (put("components", lambda a: a[:, :-1]), "mean: it is float64"),
    "fewer": (
        lambda arrays, _: arrays.update({k: v[:2] for k, v in arrays.items() if k in (
            "reduce.components", "reduce.explained_variance", "reduce.explained_variance_ratio")}),
        "the classifier takes",
    ),
    "absent": (lambda arrays, _: arrays.pop("reduce.mean"), "lacks or misstates 'mean'"),
    "no header": (lambda _, header: header.pop("reduce"), "lacks or misstates 'reduce'"),
    "no table": (lambda _, header: header.update(reduce={"size": 3}), "unexpected keyword argument 'size'"),
    "number": (lambda _, header: header["reduce"].update(components=2), "cannot both be given"),
    "old": (lambda _, header: header.update(version=1), "the classifier takes"),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("reduced") / "model.npz"
    save_model(path, reduced_model())
    return path


@pytest.mark.parametrize("fault", BROKEN)
def test_parts_that_do_not_fit_are_refused(saved, tmp_path, fault):
    change, words = BROKEN[fault]
    assert words in refusal(altered(saved, tmp_path / "broken.npz", resealed(change)))


def test_an_altered_component_is_noticed(saved, tmp_path):
    change = put("components", lambda a: a + np.float32(1e-6))
    assert "damaged" in refusal(altered(saved, tmp_path / "broken.npz", change))


def test_images_of_another_size_are_refused(saved):
    with pytest.raises(ModelError, match="24x32"):
        load_model(saved).predict(np.zeros((1, 50, 100), np.uint8))


# ---- the commands ----


def settings(kind, run_dir, n=180, **groups):
    """Return small and fast settings of a command on synthetic images."""
    run_dir.mkdir(exist_ok=True)
    cfg = kind(
        run_dir=str(run_dir), data=config.Data(name=config.DataName.synthetic, n=n, classes=3, difficulty=0.2)
    )
    if hasattr(cfg, "backend"):
        cfg.backend.threads = 1
    if isinstance(cfg, config.Train):
        cfg.plots = False
        cfg.image = config.Image(height=24, width=40)
        cfg.hog = config.Hog(cells_per_block=[2, 2])
        cfg.classifier = config.Classifier(n_rounds=8, subspace_size=24)
    for name, value in groups.items():
        setattr(cfg, name, value)
    return cfg


def read(path):
    return json.loads((Path(path) / "metrics.json").read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("run")
    stop = config.Classifier(n_rounds=8, subspace_size=24, early_stopping=True)
    reduce = config.Reduce(PCA_GROUP, variance=0.9)
    return run_dir, train.run(settings(config.Train, run_dir, classifier=stop, reduce=reduce, plots=True))


def test_train_tells_what_was_reduced(trained, capsys):
    run_dir, figure = trained
    metrics, model = read(run_dir), load_model(run_dir / "model.npz")
    assert figure == metrics["test"]["log_loss"]
    assert metrics["test"]["accuracy"] > 0.8
    assert metrics["features"] == model.extractor.layout_.n_features == 288
    assert metrics["components"] == model.summary["components"] == model.reducer.n_components_ < 100
    assert 0.9 < metrics["explained_variance"] < 0.95
    assert list(metrics["seconds"])[-5:-1] == ["reduce", "boost", "evaluate", "save"]
    assert (run_dir / "cell_importance.png").exists()


def test_one_principal_component_is_told_in_the_singular(tmp_path, capsys):
    one = config.Reduce(PCA_GROUP, components=1)
    train.run(settings(config.Train, tmp_path / "run", n=60, reduce=one))
    assert "; reduced to 1 principal component, " in " ".join(capsys.readouterr().out.split())


def test_only_the_images_fitted_to_decide_the_components(trained):
    """Neither held-out nor watched images have a say."""
    from pipeline import datasets

    run_dir, _ = trained
    cfg, model = settings(config.Train, run_dir), load_model(run_dir / "model.npz")
    images = datasets.load(cfg.data, cfg.image).images
    fitted, _ = datasets.split(images, cfg.split)
    fitted, watched = datasets.validation_split(images, fitted, cfg.split)
    assert len(watched)
    hog = model.extractor.transform(np.asarray(images.pixels)[fitted])
    wanted = PCA(0.9, svd_solver="full").fit(hog.astype(np.float64))
    np.testing.assert_allclose(model.reducer.mean_, wanted.mean_, rtol=1e-6)
    np.testing.assert_allclose(model.reducer.explained_variance_, wanted.explained_variance_, rtol=1e-6)


def test_the_cpu_backend_trains_what_the_reference_does(tmp_path):
    found = {}
    for name in ("cpu", "reference"):
        cfg = settings(config.Train, tmp_path / name, 90, reduce=config.Reduce(PCA_GROUP, components=12))
        cfg.backend.name, cfg.hog.dtype = config.BackendName[name], config.FloatType.float64
        cfg.classifier = config.Classifier(n_rounds=3, subspace_size=6)
        train.run(cfg)
        found[name] = [
            [float(row[key]) for key in row if key.startswith("p_")]
            for row in rows(tmp_path / name / "predictions.csv")
        ]
    np.testing.assert_allclose(found["cpu"], found["reference"], atol=2e-6)


def test_the_work_of_a_run_knows_the_components(tmp_path):
    from pipeline.commands.profile import measured

    cfg = settings(config.Train, tmp_path, 90, reduce=config.Reduce(PCA_GROUP, components=14))
    run = measured(cfg)
    assert "reduce" in run.seconds
    assert (run.work.features, run.work.components, run.work.inputs, run.work.columns) == (288, 14, 14, 14)
    assert run.trained.features.shape == (90, 14)
    cfg.reduce = config.Reduce()
    run = measured(cfg)
    assert "reduce" not in run.seconds
    assert (run.work.components, run.work.inputs, run.work.columns) == (None, 288, 24)


def test_predict_and_evaluate_reduce_as_in_training(trained, tmp_path):
    run_dir, _ = trained
    model = str(run_dir / "model.npz")
    predict.run(settings(config.Predict, tmp_path / "p", model=model, chunk=50))
    evaluate.run(
        settings(config.Evaluate, tmp_path / "e", model=model, hog=config.Hog(cells_per_block=[2, 2]))
    )
    predicted = {row["path"]: row for row in rows(tmp_path / "p" / "predictions.csv")}
    scored = {row["path"]: row for row in rows(tmp_path / "e" / "predictions.csv")}
    for row in rows(run_dir / "predictions.csv"):
        for key in [key for key in row if key.startswith("p_")]:
            assert float(predicted[row["path"]][key]) == pytest.approx(float(row[key]), abs=1e-5)
            assert float(scored[row["path"]][key]) == pytest.approx(float(row[key]), abs=1e-5)
    with pytest.raises(ConfigError, match="reduce comes from the model"):
        evaluate.run(
            settings(config.Evaluate, tmp_path / "x", model=model, reduce=config.Reduce(PCA_GROUP, 7))
        )


def test_every_fold_fits_its_own_components(tmp_path, monkeypatch):
    """To its training images, and to no other."""
    fitted = []
    plain = PcaReducer.fit

    def noted(self, X, y=None):
        fitted.append((len(X), float(X.sum())))
        return plain(self, X, y)

    monkeypatch.setattr(PcaReducer, "fit", noted)
    stop = config.Classifier(n_rounds=4, subspace_size=12, early_stopping=True)
    cfg = settings(
        config.Evaluate, tmp_path, 90, split=config.Split(folds=3, validation=0.2), classifier=stop
    )
    cfg.reduce = config.Reduce(PCA_GROUP, components=10)
    evaluate.run(cfg)
    assert [count for count, _ in fitted] == [48, 48, 48]  # 90 less 30 held out and 12 watched
    assert len({total for _, total in fitted}) == 3
    assert read(tmp_path)["test"]["accuracy"] > 0.6
    assert "reduce" in read(tmp_path)["seconds"]


def test_a_packed_set_is_trained_on_as_it_lies_on_the_disk(tmp_path):
    from PIL import Image

    from pipeline.commands import pack

    pixels, labels = pictures(48)
    for name in "abc":
        (tmp_path / "photos" / name).mkdir(parents=True)
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        Image.fromarray(image).save(tmp_path / "photos" / "abc"[label] / f"{number}.png")
    out = tmp_path / "set.npz"
    pack.run(settings(config.Pack, tmp_path / "p", image=SIZE, out=str(out), data=config.Data(
        name=config.DataName.auto, path=str(tmp_path / "photos"))))  # fmt: skip
    figures = []
    for number, path in enumerate((out, tmp_path / "photos")):
        cfg = settings(config.Train, tmp_path / str(number), image=SIZE, reduce=config.Reduce(PCA_GROUP))
        cfg.data = config.Data(name=config.DataName.auto, path=str(path))
        figures.append(train.run(cfg))
    assert figures[0] == figures[1]


def test_too_many_components_are_told_with_both_numbers(tmp_path, monkeypatch):
    for kind, groups in ((config.Train, {}), (config.Evaluate, {"split": config.Split(folds=3)})):
        cfg = settings(kind, tmp_path, 60, reduce=config.Reduce(PCA_GROUP, components=280), **groups)
        rows_ = 48 if kind is config.Train else 40
        with pytest.raises(ConfigError) as told:
            (train if kind is config.Train else evaluate).run(cfg)
        assert str(told.value) == (
            f"reduce.components=280 cannot be found in {rows_} training images of 288 HoG features: "
            f"give at most {rows_}"
        )
        monkeypatch.setattr(steps, "read", lambda *_: pytest.fail("images were read"))
        cfg.reduce = config.Reduce(PCA_GROUP, components=289)
        with pytest.raises(ConfigError, match=r"reduce\.components=289 is more than the 288 HoG features"):
            (train if kind is config.Train else evaluate).run(cfg)
        monkeypatch.undo()


REFUSED = {
    "both": ({"name": PCA_GROUP, "components": 3, "variance": 0.9}, "reduce.variance must be null where reduce.comp"),
    "none": ({"components": 3}, "reduce.components must be null without reduce=pca, not 3"),
    "no variance": ({"variance": 0.9}, "reduce.variance must be null without reduce=pca, not 0.9"),
    "zero": ({"name": PCA_GROUP, "components": 0}, "reduce.components must be at least 1, not 0"),
    "share": ({"name": PCA_GROUP, "variance": 1.5}, "reduce.variance must be a share above 0 and below 1, not 1.5"),
    "nan": ({"name": PCA_GROUP, "variance": float("nan")}, "reduce.variance must be a share above 0 and below 1"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_settings_that_make_no_sense(fault):
    given, words = REFUSED[fault]
    with pytest.raises(ValueError, match=r"reduce\.") as told:
        config.Reduce(**given)
    assert str(told.value).startswith(words)


def test_the_share_is_95_percent_unless_said_otherwise():
    assert config.Reduce(PCA_GROUP).variance == 0.95
    assert config.Reduce(PCA_GROUP, components=5).variance is None
    assert config.Reduce().variance is None


def test_a_scikit_learn_pipeline():
    pixels, labels = pictures()
    steps_ = HogExtractor(cells_per_block=(2, 2)), PcaReducer(variance=0.95), LogitBoostClassifier(n_rounds=5)
    model = make_pipeline(*steps_).fit(pixels, labels)
    assert model.score(*pictures(30, seed=1)) > 0.9


def test_profile_refuses_to_scale_up_the_components_of_a_sample(tmp_path):
    from pipeline.commands import profile

    cfg = settings(config.Profile, tmp_path, reduce=config.Reduce(PCA_GROUP), compare=["reference", "cpu"])
    with pytest.raises(ConfigError, match=r"leave reference out of compare=, or reduce=pca out"):
        profile.run(cfg)
