"""What the run itself knows of images whose features lie elsewhere, and what it refuses to do with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline import config, datasets
from pipeline.datasets import whereabouts
from pipeline.errors import ConfigError

SMALL = 1 << 17  # numbers in a training set up to which the classifier works in float64 whatever is asked


@dataclass
class Known:
    """Labels, names and digests of images.

    Attributes
    ----------
    images : without pixels: a constant stands in for them
    digests : void (n,), of the pixels of each image
    seconds : of reading and decoding
    stamps : what the files were
    """

    images: datasets.Images
    digests: np.ndarray
    rejected: list[datasets.Rejected]
    seconds: dict[str, float]
    stamps: datasets.Stamps


@dataclass
class Listing:
    """What is heard of images, some at a time, in their order."""

    labels: list[np.ndarray] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)  # 16 bytes each
    rejected: list[datasets.Rejected] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: {"read": 0.0, "decode": 0.0})

    def add(
        self,
        labels: np.ndarray,
        paths: Sequence[str],
        digests: Sequence[bytes],
        rejected: Sequence[datasets.Rejected],
        seconds: dict[str, float],
    ) -> None:
        """Take up some more images."""
        self.labels.append(labels)
        self.paths += paths
        self.digests += digests
        self.rejected += rejected
        for key, value in seconds.items():
            self.seconds[key] = self.seconds.get(key, 0.0) + value

    def known(
        self,
        cfg: config.Train,
        class_names: tuple[str, ...],
        stamps: datasets.Stamps | None,
        expected: datasets.Stamps | None,
    ) -> Known:
        """Return what is known when all have been read.

        Parameters
        ----------
        stamps : of the files; None: the pictures are made, and their digests say what they are
        expected : what such pictures must be

        Raises
        ------
        DataError
            If they are not.
        """
        stand_in = np.broadcast_to(np.uint8(0), (len(self.paths), cfg.image.height, cfg.image.width))
        labels = np.concatenate(self.labels).astype(np.intp)
        if stamps is None:
            stamps = datasets.Stamps.of_digests(self.digests, labels)
            if expected is not None:
                expected.compare(stamps, f"data={cfg.data.name.value}")
        kind, _ = whereabouts.resolve(cfg.data)
        made = kind if kind is config.DataName.packed or not cfg.data.path else None
        images = datasets.Images(stand_in, labels, class_names, self.paths, made=made)
        digests = np.frombuffer(b"".join(self.digests), "V16")
        return Known(images, digests, self.rejected, self.seconds, stamps)


def check(cfg: config.Train) -> None:
    """Refuse, before any image is read, what needs all images at once.

    Raises
    ------
    ConfigError
    """
    scale = f"scale={cfg.scale.name.value}"
    if cfg.reduce.name is not config.ReduceName.none:
        raise ConfigError(
            f"reduce={cfg.reduce.name.value} finds its components in the features of all images at once, which "
            f"{scale} does not have; use reduce=none or scale=local"
        )
    if cfg.classifier.trim > 0.0:
        raise ConfigError(
            f"classifier.trim={cfg.classifier.trim} needs the weights of all images at once, which {scale} does not "
            "have; use classifier.trim=0 or scale=local"
        )


def columns(cfg: config.Train, p: int) -> int:
    """Return how many columns of p a round of the learner fits."""
    settings = cfg.classifier
    q = {"subspace": min(settings.subspace_size, p), "random_features": settings.n_components}
    return q.get(settings.learner.name, p)


def item(cfg: config.Train, numbers: int) -> int:
    """Return the bytes of a number in which a training set of so many is fitted."""
    return 8 if cfg.classifier.dtype is config.FloatType.float64 or numbers <= SMALL else 4


def duplicates_across(
    digests: np.ndarray, paths: list[str], train: np.ndarray, test: np.ndarray
) -> list[tuple[str, str]]:
    """Return what :func:`pipeline.datasets.duplicates_across` finds, from a digest of each image.

    Parameters
    ----------
    digests : void (n,), 16 bytes each

    Notes
    -----
    By sorting, which takes 40 bytes for an image; a table of a million would take 130 MB.
    """
    rows = np.concatenate([train, test]).astype(np.intp)
    high, low = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)[rows].T
    order = np.lexsort((low, high))  # equal ones in the order of rows: first those to fit
    if not len(order):
        return []
    new = np.ones(len(order), dtype=bool)
    new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    twins = np.flatnonzero((order >= len(train)) & (first < len(train)))
    twins = twins[np.argsort(order[twins])]  # in the order of those held out
    return [(paths[rows[a]], paths[rows[b]]) for a, b in zip(first[twins], order[twins], strict=True)]


def in_order(index: np.ndarray, rising: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return rising(sorted index), which has a row for each number, in the order of the numbers as given."""
    order = np.argsort(index, kind="stable")
    found = rising(index[order])
    proba = np.empty_like(found)
    proba[order] = found
    return proba
