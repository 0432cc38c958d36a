"""Steps that several commands take: read images, compute features, reduce them, build the classifier."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import backends, config, datasets, model
from pipeline.boosting import LogitBoostClassifier
from pipeline.errors import ConfigError, DataError
from pipeline.features import HogExtractor, HogLayout, PcaReducer
from pipeline.files import atomic
from pipeline.model import fitted_extractor
from pipeline.reporting import tables
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages

if TYPE_CHECKING:
    from pipeline.backends.protocol import Backend

log = logging.getLogger(__name__)


def choose_backend(settings: config.Backend, step: config.Preprocess | None = None) -> str:
    """Return the name of the backend to use, before any image is read; "auto" is settled here, and told.

    Raises
    ------
    BackendError
        If this machine cannot run it, or lacks what the preprocessing step needs there.
    """

    def needs(backend: Backend) -> None:
        if step is not None:
            backend.preprocess.require(step)

    return backends.choose(settings.name.name, settings.device, lambda line: tables.say(f"  {line}"), needs)


def read(
    data: config.Data,
    image: config.Image,
    run_dir: str,
    stages: Stages,
    expected: datasets.Stamps | None = None,
    classes: int = 2,
) -> datasets.Loaded:
    """Read all images, of so many classes at least, and list the rejected files in rejected.csv of the run folder.

    With `expected` they must be the files that they were.
    """
    listed = Path(run_dir) / "rejected.csv"
    with stages("read"), progress("read") as advance, rejected_kept(listed):
        loaded = datasets.load(data, image, advance, expected, classes)
    datasets.write_rejected(listed, loaded.rejected)
    return loaded


@contextmanager
def rejected_kept(listed: Path) -> Iterator[None]:
    """Write the list of rejected files also when they are so many that the run stops."""
    try:
        yield
    except datasets.TooManyRejected as error:
        datasets.write_rejected(listed, error.rejected)
        raise DataError(f"{error} (all are listed in {listed})") from error


def require_labels(images: datasets.Images, data: config.Data) -> np.ndarray:
    """Return the labels, or say that there are none."""
    if images.labels is None:
        raise DataError(
            f"data.path={data.path} has no labels; sort the images into one subfolder per class, "
            "or add an array 'labels' to the packed set"
        )
    return images.labels


def check_layout(hog: config.Hog, image: config.Image) -> HogLayout:
    """Return the HoG layout, before any image is read; an image smaller than a block is a ConfigError."""
    try:
        return HogLayout(
            (image.height, image.width),
            hog.orientations,
            _pair(hog.pixels_per_cell),
            _pair(hog.cells_per_block),
        )
    except ValueError as error:
        raise ConfigError(f"image and hog do not fit: {error}") from error


def extractor(hog: config.Hog, image: config.Image, backend: str) -> HogExtractor:
    """Return the HoG transformer that the settings describe, for images of one size."""
    unfitted = HogExtractor(
        orientations=hog.orientations,
        pixels_per_cell=_pair(hog.pixels_per_cell),
        cells_per_block=_pair(hog.cells_per_block),
        block_norm=hog.block_norm,
        transform_sqrt=hog.transform_sqrt,
        dtype=hog.dtype.name,
        backend=backend,
    )
    return fitted_extractor(unfitted, image)


def classifier(settings: config.Classifier, backend: str) -> LogitBoostClassifier:
    """Return the unfitted classifier that the settings describe."""
    return LogitBoostClassifier(
        learner=settings.learner.name,
        n_rounds=settings.n_rounds,
        learning_rate=settings.learning_rate,
        z_max=settings.z_max,
        clip=settings.clip.name,
        l2=settings.l2,
        subspace_size=settings.subspace_size,
        n_components=settings.n_components,
        gamma=_pair(settings.gamma),
        trim=settings.trim,
        early_stopping=settings.early_stopping,
        patience=settings.patience,
        class_weight=settings.class_weight,
        dtype=settings.dtype.name,
        random_state=settings.random_state,
        backend=backend,
        gram_precision=settings.gram_precision,
    )


def features(
    pixels: np.ndarray,
    index: np.ndarray,
    step: config.Preprocess,
    hog: HogExtractor,
    chunk: int,
    *,
    stages: Stages,
    advance: Any,
    paths: Sequence[str],
    reduced: bool = False,
) -> Any:
    """Return the HoG features of the images at `index`, `chunk` images at a time.

    `pixels` may be a memory map. The features lie where the backend works: on a GPU they stay there, until other work
    needs the room.

    Raises
    ------
    ConfigError
        If they and the pixels are more than this machine has memory.
    DataError
        If a feature is not finite, naming the image.
    """
    check_room(len(index), hog, 0 if isinstance(pixels, np.memmap) else pixels.nbytes, reduced)
    X = model.features(pixels, index, step, hog, chunk, advance, stages)
    with stages("hog"):  # on a GPU this also waits for the work that is queued
        bad = backends.get(hog.backend).first_not_finite(X)
    if bad is not None:
        raise DataError(
            f"{paths[int(index[bad])]}: its HoG features are not finite; remove the image or use another "
            "preprocess="
        )
    return backends.get(hog.backend).resident(X)


def check_room(n: int, hog: HogExtractor, pixels: int, reduced: bool) -> None:
    """Refuse features of `n` images that are more than there is memory, beside so many bytes of pixels.

    The system would end the program without a word. On a GPU features find a place of their own. Out of core they can
    be all but `reduced`.
    """
    import psutil

    p = hog.layout_.n_features
    features, there = n * p * np.dtype(hog.dtype).itemsize, psutil.virtual_memory().total
    if (0 if hog.backend == "gpu" else features) + pixels > there:
        from pipeline.reporting.plan_tables import size

        without = "reduce=none " if reduced else ""
        beside = f" beside {size(pixels)} of pixels" if pixels else ""
        raise ConfigError(
            f"the HoG features of {n:,} images, {p:,} of each, need {size(features)} of memory{beside}, and this "
            f"machine has {size(there)}: choose smaller images (image.height=, image.width=) or larger cells "
            f"(hog=coarse); train can have features on disk, too, by {without}scale=outofcore "
            f"scale.memory_limit={there // 2_000_000}MB"
        )


def check_made(data: config.Data, image: config.Image, hog: HogExtractor, reduced: bool) -> None:
    """Refuse pictures that will be made, and their features, if they are more than there is memory."""
    if data.name is config.DataName.synthetic:
        check_room(data.n, hog, data.n * image.height * image.width, reduced)


def reducer(settings: config.Reduce, hog: HogExtractor) -> PcaReducer | None:
    """Return the unfitted reduction that the settings describe, before any image is read; None for none."""
    if settings.name is config.ReduceName.none:
        return None
    p = hog.layout_.n_features
    if settings.components is not None and settings.components > p:
        raise ConfigError(
            f"reduce.components={settings.components} is more than the {p} HoG features of an image: give fewer"
        )
    return PcaReducer(settings.components, settings.variance, hog.backend, hog.dtype)


def fit_reducer(reducer: PcaReducer | None, X: Any, stages: Stages) -> None:
    """Fit the reduction, if there is one, to the HoG features of the images that the classifier is fitted to."""
    if reducer is None:
        return
    n, p = X.shape
    if reducer.components is not None and reducer.components > min(n, p):
        raise ConfigError(
            f"reduce.components={reducer.components} cannot be found in {n} training images of {p} HoG features: "
            f"give at most {min(n, p)}"
        )
    with stages("reduce"):
        try:
            reducer.fit(X)
        except ValueError as error:
            raise ConfigError(f"the features cannot be reduced: {' '.join(str(error).split())}") from error


def reduced(reducer: PcaReducer | None, X: Any, stages: Stages) -> Any:
    """Return what the fitted reduction makes of HoG features: X itself where there is none."""
    if reducer is None:
        return X
    with stages("reduce"):
        return backends.get(reducer.backend).resident(reducer.transform(X))


def source(data: config.Data) -> str:
    """Return in words where the images come from: the path if there is one, else the name of the built-in set."""
    return tables.shown(str(data.path), 200) if data.path else data.name.name


def _pair(values: Sequence[Any]) -> tuple[Any, Any]:
    return values[0], values[1]


def twins(
    images: datasets.Images, parts: Sequence[tuple[np.ndarray, np.ndarray]], folder: Path
) -> list[tuple[str, str]]:
    """Find held-out images that equal a training image, list them in duplicates.csv and warn.

    They make the figures look too good. `parts` are (training, held-out) indices: one split, or the folds.
    """
    pairs = [
        pair for train, held_out in parts for pair in datasets.duplicates_across(images, train, held_out)
    ]
    return tell_twins(pairs, folder)


def tell_twins(pairs: list[tuple[str, str]], folder: Path) -> list[tuple[str, str]]:
    """List pairs of equal images in duplicates.csv and warn; return them."""
    if pairs:
        path = folder / "duplicates.csv"
        with atomic(path) as stream:
            csv.writer(stream).writerows([("training", "held_out"), *pairs])
        log.warning(
            "%d held-out images equal a training image (first: %s = %s; all in %s); "
            "remove them, or keep them on one side with split.group_by",
            len(pairs),
            *pairs[0],
            path,
        )
    return pairs


def only_local(cfg: config.Train, command: str) -> None:
    """Refuse settings of scale that only ``train`` has."""
    if cfg.scale.name is not config.ScaleName.local:
        raise ConfigError(
            f"scale={cfg.scale.name.value} is for train (scale=dask for predict, too); {command} works in memory: "
            "leave it out"
        )
