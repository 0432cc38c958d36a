"""Dividing labelled pictures into parts: held out, validation, folds; by class, and by group where asked.

Without groups this is scikit-learn's stratified ``train_test_split`` and ``StratifiedKFold``, index for
index. With ``split.group_by`` near-copies (frames of one track, pictures of one object) stay on one side: see
``with_groups``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.images import Images
from pipeline.errors import ConfigError, DataError

_FAR = 10_000  # pictures of a class: nobody asks for fewer than that by one


class Split(NamedTuple):
    """Indices of the two sides, in the order in which the rule drew them."""

    train: np.ndarray  # intp
    test: np.ndarray  # intp


def split(images: Images, settings: config.Split) -> Split:
    """Hold out ``split.test`` of the pictures, stratified by class.

    Raises
    ------
    ConfigError
        When ``split.group_by`` is no regular expression.
    DataError
        When the pictures have no labels, a path does not match ``split.group_by``, or a class is too small to
        lie on both sides; the message names the class, its count and what is needed.
    """
    labels = _labels(images)
    images = with_groups(images, settings.group_by)
    everything = np.arange(len(images), dtype=np.intp)
    if images.groups is None:
        return _stratified(
            images, labels, everything, share=settings.test, seed=settings.seed, setting="split.test"
        )
    return _by_group(images, labels, everything, settings, setting="split.test")


def validation_split(images: Images, train: np.ndarray, settings: config.Split) -> Split:
    """Set ``split.validation`` of the training part aside, by the same rules.

    Parameters
    ----------
    images : Images
    train : ndarray of int
        Indices into ``images``.

    Returns
    -------
    Split
        Indices into ``images``; ``test`` is the validation part.
    """
    labels = _labels(images)
    images = with_groups(images, settings.group_by)
    train = np.asarray(train, dtype=np.intp)
    if images.groups is None:
        return _stratified(
            images, labels, train, share=settings.validation, seed=settings.seed, setting="split.validation"
        )
    return _by_group(images, labels, train, settings, setting="split.validation")


def folds(images: Images, settings: config.Split) -> Iterator[Split]:
    """Yield ``split.folds`` pairs; each picture is held out once, and each class lies in every fold.

    Raises
    ------
    ConfigError, DataError
        As ``split``; at the call, not at the first fold.
    """
    labels = _labels(images)
    k = settings.folds
    if k < 2:
        raise ConfigError(f"split.folds={k}: cross-validation needs at least 2 folds")
    images = with_groups(images, settings.group_by)
    unit = "pictures" if images.groups is None else "groups"
    for label, name in enumerate(images.class_names):
        mine = labels == label
        count = int(mine.sum()) if images.groups is None else len(np.unique(images.groups[mine]))
        if count < k:
            raise DataError(_too_small(images, name, count, unit, f"split.folds={k}", k))
    if images.groups is None:
        return _stratified_folds(labels, settings)
    return _group_folds(labels, images.groups, settings)


def with_groups(images: Images, group_by: str | None) -> Images:
    r"""Return the images with ``groups`` filled in, or as they are when ``group_by`` is None.

    The regular expression is searched in each path (relative to ``data.path``, forward slashes). What its
    groups match, or the whole match where it has none, together with the class, is the group: in
    ``00/00003_00017.ppm`` the expression ``(\d+)_\d+\.ppm$`` finds track 00003 of class 00, which is another
    than track 00003 of class 01.
    """
    if group_by is None:
        return images
    try:
        pattern = re.compile(group_by)
    except re.error as error:
        raise ConfigError(f"split.group_by={group_by}: not a regular expression: {error}") from error
    labels = _labels(images)
    number: dict[tuple[object, ...], int] = {}
    groups = np.empty(len(images), np.intp)
    for i, path in enumerate(images.paths):
        match = pattern.search(path)
        if match is None:
            raise DataError(
                f"split.group_by={group_by} does not match the path {path!r}: every picture needs a group"
            )
        key = (int(labels[i]), *(match.groups() or (match.group(),)))
        groups[i] = number.setdefault(key, len(number))
    return replace(images, groups=groups)


def _labels(images: Images) -> np.ndarray:
    if images.labels is None:
        raise DataError(
            "the pictures have no labels: training and evaluation need one class for each picture"
        )
    return images.labels


def _too_small(images: Images, name: str, count: int, unit: str, setting: str, needed: int) -> str:
    found = unit.removesuffix("s") if count == 1 else unit
    among = _among(setting)
    remedy = "add pictures, change the setting or remove the class"
    if images.made is DataName.synthetic:
        remedy = "give more with data.n=, fewer classes with data.classes=, or change the setting"
    elif images.made is DataName.digits:
        remedy = "change the setting"
    elif images.made is DataName.packed:
        remedy = "change the setting, or pack the set again, with more pictures or without the class"
    elif count == 0:
        remedy = "mend its files if they could not be read (rejected.csv lists them), or remove the class"
    needs = f"{setting} needs at least {needed} {unit} of each class{' there' if among else ''}"
    return f"class {name!r} has {count} {found}{among}, {needs}: {remedy}"


def _among(setting: str) -> str:
    """Return of what the setting takes a share, unless it is of all pictures."""
    return " in the training part" if setting.startswith("split.validation") else ""


def _more(images: Images) -> str:
    """Return how there come to be more pictures, before another remedy; of the digits there are no more."""
    if images.made is DataName.digits:
        return ""
    if images.made is DataName.packed:
        return "pack the set again with more pictures or "
    return "give more with data.n= or " if images.made is DataName.synthetic else "add pictures or "


def _needed(counts: np.ndarray, share: float, seed: int) -> int:
    """Return the class size from which on this draw leaves a picture of each class on each side.

    How many that takes depends on the other classes: what is left over by rounding goes to the largest remainders.
    """
    surely = max(2, math.ceil(1.0 / share - 1e-9), math.ceil(1.0 / (1.0 - share) - 1e-9))
    needed = surely + 1
    while needed > 2 and surely < _FAR and _on_both_sides(np.maximum(counts, needed - 1), share, seed):
        needed -= 1
    return min(needed, surely)


def _on_both_sides(counts: np.ndarray, share: float, seed: int) -> bool:
    total = int(counts.sum())
    train = _shares(counts, total - math.ceil(share * total), np.random.RandomState(seed))
    return bool(((train > 0) & (train < counts)).all())


def _stratified(
    images: Images, labels: np.ndarray, among: np.ndarray, *, share: float, seed: int, setting: str
) -> Split:
    mine = labels[among]
    counts = np.bincount(mine, minlength=len(images.class_names))
    n_test = math.ceil(share * len(among))
    n_classes = len(counts)
    smallest = int(counts.argmin())
    where = f"{setting}={share}"
    if counts[smallest] < 2:
        name, needed = images.class_names[smallest], _needed(counts, share, seed)
        raise DataError(_too_small(images, name, int(counts[smallest]), "pictures", where, needed))
    if min(n_test, len(among) - n_test) < n_classes:
        raise DataError(
            f"{where}: {len(among)} pictures{_among(setting)} give parts of {len(among) - n_test} and {n_test} "
            f"for {n_classes} classes; "
            f"each part needs at least one picture of each class: {_more(images)}change the share"
        )
    train, test = (among[side] for side in _stratified_draw(mine, n_test, seed))
    for part in (train, test):
        missing = np.flatnonzero(np.bincount(labels[part], minlength=n_classes) == 0)
        if missing.size:
            count = int(counts[missing[0]])
            needed = max(_needed(counts, share, seed), count + 1)
            name = images.class_names[missing[0]]
            raise DataError(_too_small(images, name, count, "pictures", where, needed))
    return Split(train, test)


def _stratified_draw(labels: np.ndarray, n_test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of both sides, exactly those of scikit-learn's ``train_test_split(stratify=labels)``.

    Written here because importing ``sklearn.model_selection`` takes longer than HoG of ten thousand images. Every
    draw from the random numbers is made in scikit-learn's order: shares, one permutation for each class, and one for
    each side.
    """
    rng = np.random.RandomState(seed)  # scikit-learn's generator
    counts = np.bincount(labels)
    counts_train = _shares(counts, len(labels) - n_test, rng)
    counts_test = _shares(counts - counts_train, n_test, rng)
    order = np.argsort(labels, kind="stable")
    train, test = [], []
    for members, n, m in zip(np.split(order, np.cumsum(counts)[:-1]), counts_train, counts_test, strict=True):
        shuffled = members[rng.permutation(len(members))]
        train.append(shuffled[:n])
        test.append(shuffled[n : n + m])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))


def _shares(counts: np.ndarray, total: int, rng: np.random.RandomState) -> np.ndarray:
    """Return how many of `total` each class gets by its count: largest remainders first, ties drawn at random."""
    exact = counts / counts.sum() * total
    given = np.floor(exact)
    left = int(total - given.sum())
    for remainder in np.unique(exact - given)[::-1]:
        if left <= 0:
            break
        tied = np.flatnonzero(exact - np.floor(exact) == remainder)
        chosen = rng.choice(tied, size=min(len(tied), left), replace=False)
        given[chosen] += 1
        left -= len(chosen)
    return given.astype(int)


def _by_group(
    images: Images,
    labels: np.ndarray,
    among: np.ndarray,
    settings: config.Split,
    *,
    setting: str,
) -> Split:
    """Give whole groups of each class, in random order, to the test side until its share is met."""
    assert images.groups is not None
    share = settings.test if setting == "split.test" else settings.validation
    rng = np.random.default_rng(settings.seed)
    held_out = np.zeros(len(images), bool)
    for label, name in enumerate(images.class_names):
        mine = among[labels[among] == label]
        numbers, sizes = np.unique(images.groups[mine], return_counts=True)
        if len(numbers) < 2:
            where = f"{setting}={share} with split.group_by={settings.group_by}"
            raise DataError(_too_small(images, name, len(numbers), "groups", where, 2))
        order = rng.permutation(len(numbers))
        chosen = _nearest(sizes[order], share * len(mine))
        held_out[mine[np.isin(images.groups[mine], numbers[order][chosen])]] = True
    return Split(among[~held_out[among]], among[held_out[among]])


def _nearest(sizes: np.ndarray, target: float) -> np.ndarray:
    """Return which groups to hold out, bool: at least one, never all, their sum near ``target``."""
    chosen = np.zeros(len(sizes), bool)
    total = 0
    for i, size in enumerate(sizes):
        if abs(total + size - target) < abs(total - target) and chosen.sum() < len(sizes) - 1:
            chosen[i] = True
            total += size
    if not chosen.any():
        chosen[sizes.argmin()] = True
    return chosen


def _stratified_folds(labels: np.ndarray, settings: config.Split) -> Iterator[Split]:
    from sklearn.model_selection import StratifiedKFold

    folding = StratifiedKFold(settings.folds, shuffle=True, random_state=settings.seed)
    for train, test in folding.split(np.zeros(len(labels)), labels):
        yield Split(train, test)


def _group_folds(labels: np.ndarray, groups: np.ndarray, settings: config.Split) -> Iterator[Split]:
    """Give each group, largest first, to the fold with the fewest pictures of its class, then of all."""
    rng = np.random.default_rng(settings.seed)
    k = settings.folds
    fold_of = np.empty(int(groups.max()) + 1, np.intp)
    totals = np.zeros(k, np.intp)
    for label in np.unique(labels):
        numbers, sizes = np.unique(groups[labels == label], return_counts=True)
        order = rng.permutation(len(numbers))
        order = order[np.argsort(-sizes[order], kind="stable")]
        mine = np.zeros(k, np.intp)
        for g in order:
            fold = np.lexsort((totals, mine))[0]
            fold_of[numbers[g]] = fold
            mine[fold] += sizes[g]
            totals[fold] += sizes[g]
    where = fold_of[groups]
    for fold in range(k):
        yield Split(np.flatnonzero(where != fold), np.flatnonzero(where == fold))
