"""A trained model: preprocessing, HoG, reduction and classifier together; saved and loaded.

What the file is like, :mod:`pipeline.model_file` says. It does not know which backend made it.
"""

from __future__ import annotations

import dataclasses
import os
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import backends, config, model_file
from pipeline.boosting import LogitBoostClassifier
from pipeline.errors import ModelError
from pipeline.features import HogExtractor, HogLayout, PcaReducer
from pipeline.features.images import features
from pipeline.model_file import REDUCE
from pipeline.software import software


@dataclasses.dataclass
class Model:
    """Everything that turns pixels into class probabilities.

    Attributes
    ----------
    extractor : HogExtractor
    classifier : LogitBoostClassifier
        Fitted on class indices: ``classifier.classes_`` holds indices into `class_names`.
    class_names : tuple of str
    image : config.Image
        The size that images must have.
    preprocess : config.Preprocess
    summary : dict
        How the model was trained, for people; JSON-able.
    reducer : PcaReducer or None
        What makes fewer features of the HoG features before the classifier sees them; fitted.
    """

    extractor: HogExtractor
    classifier: LogitBoostClassifier
    class_names: tuple[str, ...]
    image: config.Image
    preprocess: config.Preprocess
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    reducer: PcaReducer | None = None

    @property
    def backend(self) -> str:
        """The backend that computes features and probabilities; settable at any time."""
        return self.classifier.backend

    @backend.setter
    def backend(self, name: str) -> None:
        backends.get(name)
        self.extractor.set_params(backend=name)
        self.classifier.set_params(backend=name)
        if self.reducer is not None:
            self.reducer.set_params(backend=name)

    @property
    def n_features(self) -> int:
        """Features of an image as the classifier sees them: HoG features, or what their reduction leaves."""
        return self.extractor.layout_.n_features if self.reducer is None else self.reducer.n_components_

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Return the features (n, n_features) of images uint8 (n, height, width), as the classifier takes them.

        They are HoG features, reduced if the model does so.

        Raises
        ------
        ModelError
            If the images have another size or type than the model was trained on.
        """
        if not len(self._checked(pixels)):
            return np.empty((0, self.n_features), dtype=self.extractor.dtype)
        return backends.get(self.backend).get(self._features(pixels))

    def _features(self, pixels: np.ndarray) -> Any:
        """Return the features where the backend works."""
        pixels = self._checked(pixels)
        return features(pixels, None, self.preprocess, self.extractor, len(pixels), reducer=self.reducer)

    def _checked(self, pixels: np.ndarray) -> np.ndarray:
        """Return the images, if they have the size and type that the model was trained on."""
        pixels = np.asarray(pixels)
        wanted = (self.image.height, self.image.width)
        if pixels.ndim != 3 or pixels.shape[1:] != wanted:
            found = "x".join(map(str, pixels.shape[1:])) if pixels.ndim == 3 else f"an array {pixels.shape}"
            raise ModelError(
                f"the model was trained on images of {wanted[0]}x{wanted[1]} (rows x columns), these are "
                f"{found}; "
                f"resize them, or pack them again with image.height={wanted[0]} image.width={wanted[1]}"
            )
        if pixels.dtype != np.uint8:
            raise ModelError(f"the model takes 8-bit images (uint8, 0 to 255), not {pixels.dtype}")
        return pixels

    def predict_proba(self, pixels: np.ndarray) -> np.ndarray:
        """Return probabilities (n, n_classes) of images uint8 (n, height, width), columns as `class_names`.

        A class without training images has probability 0.
        """
        if not len(self._checked(pixels)):
            return np.zeros((0, len(self.class_names)))
        return self.proba_of_features(self._features(pixels))

    def proba_of_features(self, features: Any) -> np.ndarray:
        """Return probabilities (n, n_classes) from what :meth:`features` gives, on the host or the device."""
        proba = self.classifier.predict_proba(features)
        full = np.zeros((len(proba), len(self.class_names)), dtype=proba.dtype)
        full[:, np.asarray(self.classifier.classes_, dtype=np.intp)] = proba
        return full

    def cell_importances(self) -> np.ndarray:
        """Return how much each HoG cell of the image matters, float64 (cell rows, cell columns), summing to 1.

        The classifier's ``feature_importances_``, summed over the blocks and orientations of each cell. If the features
        are reduced, they are brought back to HoG features first: :meth:`PcaReducer.feature_importances`.
        """
        layout = self.extractor.layout((self.image.height, self.image.width))
        values = self.classifier.feature_importances_
        if self.reducer is not None:
            values = self.reducer.feature_importances(values, getattr(self.classifier, "coef_", None))
        return layout.per_cell(values)

    def predict(self, pixels: np.ndarray) -> np.ndarray:
        """Return the name of the most probable class of each image, shape (n,)."""
        return np.array(self.class_names)[self.predict_proba(pixels).argmax(axis=1)]


def fitted_extractor(extractor: HogExtractor, image: config.Image) -> HogExtractor:
    """Return the transformer, prepared for images of the given size: it learns nothing but their size."""
    return extractor.fit(np.zeros((1, image.height, image.width), dtype=np.uint8))


def save_model(path: str | Path, model: Model) -> None:
    """Write a model file. An older file at `path` stays whole unless the new one is complete on the disk.

    Raises
    ------
    OutputError
        If the file cannot be written (disk full, no permission, ...).
    """
    arrays, classifier = model.classifier.state()
    extractor, size = model.extractor, model.image
    layout = HogLayout(
        (size.height, size.width),
        extractor.orientations,
        extractor.pixels_per_cell,
        extractor.cells_per_block,
    )
    header: dict[str, Any] = {
        "image": _plain(size),
        "preprocess": _plain(model.preprocess),
        "hog": {k: v for k, v in extractor.get_params().items() if k != "backend"},
        "layout": {"cells": layout.cells, "blocks": layout.blocks, "n_features": layout.n_features},
        "class_names": list(model.class_names),
        "classifier": classifier,
        "software": software(),
        "summary": model.summary,
    }
    if model.reducer is not None:
        reducing, header["reduce"] = model.reducer.state()
        arrays |= {f"{REDUCE}{name}": array for name, array in reducing.items()}
    model_file.write(path, arrays, header, version=1 if model.reducer is None else model_file.VERSION)


def load_model(path: str | Path, backend: str = "cpu") -> Model:
    """Read a model file.

    Parameters
    ----------
    path : str or Path
    backend : str
        Who computes features and probabilities; any backend reads any model.

    Raises
    ------
    ModelError
        If the file is missing, is no model, is damaged, or has a newer format than this program knows.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must name a model file, as in 'runs/train/.../model.npz', not {path!r}")
    arrays, header = model_file.read(Path(path))
    try:
        hog: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["hog"].items()}
        preprocess = dict(header["preprocess"], name=config.PreprocessName[header["preprocess"]["name"]])
        image = config.Image(**dict(header["image"], fit=config.Fit[header["image"]["fit"]]))
        model = Model(
            extractor=fitted_extractor(HogExtractor(**hog), image),
            classifier=LogitBoostClassifier.from_state(arrays, header["classifier"]),
            class_names=tuple(header["class_names"]),
            image=image,
            preprocess=config.Preprocess(**preprocess),
            summary=header["summary"],
            reducer=_reducer(arrays, header),
        )
        _check_parts(model)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ModelError(f"{path} lacks or misstates {error}; it was not written by this program") from error
    model.backend = backend
    return model


def _reducer(arrays: dict[str, np.ndarray], header: dict[str, Any]) -> PcaReducer | None:
    """Return the reduction that the file holds, if it holds one."""
    parts = {k.removeprefix(REDUCE): array for k, array in arrays.items() if k.startswith(REDUCE)}
    if header["version"] < 2:
        return None
    return PcaReducer.from_state(parts, header["reduce"])


def _check_parts(model: Model) -> None:
    """Refuse a classifier, a reduction, an extractor and names that do not belong together (ValueError)."""
    names, classifier, layout = model.class_names, model.classifier, model.extractor.layout_
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError("class_names: distinct texts are expected")
    classes = classifier.classes_
    if classes.dtype.kind not in "iu" or not set(classes.tolist()) <= set(range(len(names))):
        raise ValueError(f"classes: they must be indices into the {len(names)} class_names")
    reducer = model.reducer
    if reducer is not None and (reducer.n_features_in_, reducer.dtype) != (
        layout.n_features,
        model.extractor.dtype,
    ):
        raise ValueError(
            f"reduce: it takes {reducer.n_features_in_} {reducer.dtype} features, HoG gives {layout.n_features} "
            f"{model.extractor.dtype} ones"
        )
    if classifier.n_features_in_ != model.n_features:
        source = "HoG gives" if reducer is None else "the reduction leaves"
        raise ValueError(
            f"n_features: the classifier takes {classifier.n_features_in_} features, {source} {model.n_features}"
        )
    if not isinstance(model.summary, dict):
        raise ValueError("summary: a table is expected")


def _plain(settings: Any) -> dict[str, Any]:
    """Return a dataclass as JSON-able containers, enums by name."""
    items = dataclasses.asdict(settings).items()
    return {key: value.name if isinstance(value, Enum) else value for key, value in items}
