"""Holding out, validating and folding, by class and by group; duplicates across the sides."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, train_test_split

from pipeline import config
from pipeline.datasets import Images, duplicates_across, folds, split, validation_split, with_groups
from pipeline.errors import ConfigError, DataError

TRACK = r"(\d+)_\d+\.ppm$"


def some(counts: list[int], paths: list[str] | None = None) -> Images:
    labels = np.repeat(np.arange(len(counts), dtype=np.intp), counts)
    n = len(labels)
    pixels = np.arange(n * 6, dtype=np.int64).astype(np.uint8).reshape(n, 2, 3)
    names = tuple(f"c{k}" for k in range(len(counts)))
    return Images(pixels, labels, names, paths or [f"{names[k]}/{i}.png" for i, k in enumerate(labels)])


def tracks(sizes: list[list[int]]) -> Images:
    """Return pictures of tracks numbered from 0 in every class, as in the GTSRB set."""
    paths = [
        f"{k:02d}/{t:05d}_{f:05d}.ppm"
        for k, of_class in enumerate(sizes)
        for t, frames in enumerate(of_class)
        for f in range(frames)
    ]
    return some([sum(of_class) for of_class in sizes], paths)


def is_partition(n: int, *parts: np.ndarray) -> bool:
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_hold_out_is_scikit_learns():
    images = some([50, 30, 20])
    for seed in (0, 3):
        got = split(images, config.Split(seed=seed))
        train, test = train_test_split(
            np.arange(100), test_size=0.2, random_state=seed, stratify=images.labels
        )
        assert np.array_equal(got.train, train)
        assert np.array_equal(got.test, test)
        assert got.train.dtype == np.intp


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(10, 40), min_size=2, max_size=12),
    st.floats(0.2, 0.8),
    st.integers(0, 2**32 - 1),
)
def test_hold_out_is_scikit_learns_for_any_counts_ties_and_order(counts, share, seed):
    images = some(counts)
    images.labels[:] = np.random.default_rng(seed).permutation(images.labels)
    got = split(images, config.Split(test=share, seed=seed))
    n = len(images)
    train, test = train_test_split(np.arange(n), test_size=share, random_state=seed, stratify=images.labels)
    assert np.array_equal(got.train, train)
    assert np.array_equal(got.test, test)


def test_folds_are_scikit_learns():
    images = some([20, 12])
    expected = StratifiedKFold(4, shuffle=True, random_state=1).split(np.zeros(32), images.labels)
    got = list(folds(images, config.Split(seed=1, folds=4)))
    assert len(got) == 4
    for ours, (train, test) in zip(got, expected, strict=True):
        assert np.array_equal(ours.train, train)
        assert np.array_equal(ours.test, test)


def test_validation_lies_within_the_training_part():
    images = some([50, 30, 20])
    outer = split(images, config.Split())
    inner = validation_split(images, outer.train, config.Split())
    assert is_partition(100, inner.train, inner.test, outer.test)
    assert np.bincount(images.labels[inner.test]).tolist() == [4, 2, 2]


@pytest.mark.parametrize(
    ("counts", "options", "words"),
    [
        ([50, 1], {}, r"class 'c1' has 1 picture, split.test=0.2 needs at least 3 pictures of each class: "),
        ([50, 0], {}, r"class 'c1' has 0 pictures.*: mend its files if they could not be read"),
        ([500, 2], {"test": 0.1}, r"class 'c1' has 2 pictures, split.test=0.1 needs at least 5 "),
        ([3, 3, 3], {"test": 0.1}, r"9 pictures give parts of 8 and 1 for 3 classes"),
        ([50, 3], {"test": 0.9}, r"class 'c1' has 3 pictures, split.test=0.9 needs at least 6 "),
    ],
)
def test_a_class_too_small_is_named(counts, options, words):
    with pytest.raises(DataError, match=words):
        split(some(counts), config.Split(**options))


@pytest.mark.parametrize(("counts", "share"), [
    ([20, 2], 0.2), ([20, 1], 0.2), ([200, 2, 3, 201], 0.1), ([9, 1, 8, 2], 0.3), ([5, 2, 61], 0.05), ([50, 3], 0.9),
    ([7, 7, 1], 0.5), ([4, 25, 1, 1], 0.7),
])  # fmt: skip
def test_the_count_the_message_asks_for_is_what_is_needed(counts, share):
    """Of 20 + 2 pictures it asked for 5 of each class, where 3 do."""
    for seed in range(3):
        settings = config.Split(test=share, seed=seed)
        with pytest.raises(DataError) as caught:
            split(some(counts), settings)
        needed = int(re.search(r"needs at least (\d+) pictures of each class: ", str(caught.value))[1])
        assert needed == 3 or counts != [20, 2]
        images = some([max(count, needed) for count in counts])
        for part in split(images, settings):
            assert np.bincount(images.labels[part], minlength=len(counts)).min() >= 1
        with pytest.raises(DataError):
            split(some([max(count, needed - 1) for count in counts]), settings)


def test_a_class_of_the_training_part_is_not_taken_for_the_whole():
    """It said that a class of two pictures had one."""
    images = some([2, 2, 30])
    train = split(images, config.Split(test=0.5)).train
    with pytest.raises(
        DataError,
        match=r"class 'c0' has 1 picture in the training part, split.validation=0.1 needs at least \d+ pictures of "
        r"each class there: add",
    ):
        validation_split(images, train, config.Split(validation=0.1))
    with pytest.raises(
        DataError, match=r"17 pictures in the training part give parts of 16 and 1 for 3 classes"
    ):
        validation_split(some([6, 6, 6]), np.arange(17), config.Split(validation=0.01))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.25, 1 / 3, 0.5, 0.7, 0.8])
def test_the_inverse_of_the_share_is_always_enough(share):
    needed = int(np.ceil(max(1 / share, 1 / (1 - share)) - 1e-9))
    for seed in range(5):
        parts = split(some([200, needed, 201]), config.Split(test=share, seed=seed))
        for part in parts:
            assert np.bincount(some([200, needed, 201]).labels[part], minlength=3).min() >= 1


def test_validation_and_folds_too_small():
    images = some([50, 30, 5])
    with pytest.raises(DataError, match=r"class 'c2' has 5 pictures, split.folds=6 needs at least 6"):
        folds(images, config.Split(folds=6))
    with pytest.raises(ConfigError, match=r"split\.folds=0"):
        folds(images, config.Split())
    with pytest.raises(
        DataError,
        match=r"class 'c2' has 5 pictures in the training part, split.validation=0.05 needs at least \d",
    ):
        validation_split(images, np.arange(85), config.Split(validation=0.05))


def test_pictures_without_labels():
    bare = Images(np.zeros((4, 2, 2), np.uint8), None, (), list("abcd"))
    for call in (split, folds):
        with pytest.raises(DataError, match="no labels"):
            call(bare, config.Split(folds=2))


def test_groups_are_track_and_class():
    images = with_groups(tracks([[3, 2], [2, 2]]), TRACK)
    assert images.groups.tolist() == [
        0,
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
    ]  # track 00000 of another class is another group
    assert with_groups(images, r"^\d+/\d+").groups.tolist() == images.groups.tolist()  # the whole match
    assert with_groups(images, None) is images
    two = some([2, 2], ["a/x-1", "a/x-2", "b/x-1", "b/y-1"])
    assert with_groups(two, r"([xy])-(\d)").groups.tolist() == [0, 1, 2, 3]
    assert with_groups(two, r"(z)?-").groups.tolist() == [0, 0, 1, 1]  # a group that takes no part


def test_group_by_that_cannot_be_used():
    with pytest.raises(ConfigError, match=r"split.group_by=\(: not a regular expression"):
        split(some([5, 5]), config.Split(group_by="("))
    with pytest.raises(DataError, match=r"does not match the path 'c1/7.png'"):
        split(
            some([5, 5], [f"c0/{i}_0.png" for i in range(7)] + ["c1/7.png"] * 3), config.Split(group_by="_")
        )
    with pytest.raises(DataError, match=r"class 'c1' has 1 group, split.test=0.2 with split.group_by"):
        split(tracks([[5, 5], [30]]), config.Split(group_by=TRACK))
    with pytest.raises(DataError, match=r"class 'c0' has 2 groups, split.folds=3 needs at least 3 groups"):
        folds(tracks([[5, 5], [5, 5, 5]]), config.Split(folds=3, group_by=TRACK))


sizes_of_tracks = st.lists(st.lists(st.integers(1, 40), min_size=5, max_size=12), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(sizes=sizes_of_tracks, seed=st.integers(0, 100), share=st.sampled_from([0.1, 0.2, 0.5, 0.8]))
def test_grouped_parts(sizes, seed, share):
    images = with_groups(tracks(sizes), TRACK)
    rule = config.Split(test=share, seed=seed, group_by=TRACK)
    got = split(images, rule)
    assert is_partition(len(images), *got)
    assert not set(images.groups[got.train]) & set(images.groups[got.test])
    for k, of_class in enumerate(sizes):
        held_out = int((images.labels[got.test] == k).sum())
        assert 1 <= held_out < sum(of_class)
        assert abs(held_out - share * sum(of_class)) <= max(of_class)
    again = split(images, rule)
    assert np.array_equal(again.test, got.test)
    inner = validation_split(images, np.arange(len(images)), rule)
    assert not set(images.groups[inner.train]) & set(images.groups[inner.test])


@settings(max_examples=60, deadline=None)
@given(sizes=sizes_of_tracks, seed=st.integers(0, 100), k=st.integers(2, 5))
def test_grouped_folds(sizes, seed, k):
    images = with_groups(tracks(sizes), TRACK)
    parts = list(folds(images, config.Split(folds=k, seed=seed, group_by=TRACK)))
    assert is_partition(len(images), *(part.test for part in parts))
    for part in parts:
        assert is_partition(len(images), *part)
        assert not set(images.groups[part.train]) & set(images.groups[part.test])
        assert np.bincount(images.labels[part.test], minlength=len(sizes)).min() >= 1


def test_grouped_validation_needs_two_groups_in_the_training_part():
    images = tracks([[5, 5], [5, 5, 5]])
    outer = split(images, config.Split(group_by=TRACK))
    with pytest.raises(DataError, match=r"class 'c0' has 1 group in the training part, split.validation=0.1"):
        validation_split(images, outer.train, config.Split(group_by=TRACK))


def test_duplicates_across_the_sides():
    images = some([6, 6])
    pixels = images.pixels.copy()
    pixels[:, 0, 0] = np.arange(12)
    pixels[7] = pixels[2]  # training 2 and held-out 7
    pixels[8] = pixels[2]  # and 8
    pixels[3] = pixels[2]  # training 3 is the same again: told once
    pixels[9] = pixels[10]  # both held out: no matter
    images = Images(pixels, images.labels, images.class_names, images.paths)
    got = duplicates_across(images, np.arange(6), np.arange(6, 12))
    assert got == [("c0/2.png", "c1/7.png"), ("c0/2.png", "c1/8.png")]
    assert duplicates_across(images, np.arange(6), np.arange(0)) == []


def test_subset_and_counts():
    images = with_groups(tracks([[3, 2], [2, 2]]), TRACK)
    for index in ([8, 0], np.array([8, 0]), np.array([8, 0], np.int8)):
        part = images.subset(index)
        assert part.paths == [images.paths[8], images.paths[0]]
        assert part.labels.tolist() == [1, 0]
        assert part.groups.tolist() == [3, 0]
        assert np.array_equal(part.pixels, images.pixels[[8, 0]])
    mask = images.labels == 1
    assert images.subset(mask).counts().tolist() == [0, 4]
    assert images.subset(slice(2, 5)).paths == images.paths[2:5]
    assert len(images.subset([])) == 0
    with pytest.raises(ValueError, match="not known"):
        Images(images.pixels, None, (), images.paths).counts()


@pytest.mark.parametrize(
    "change",
    [
        {"pixels": np.zeros((2, 3), np.uint8)},
        {"pixels": np.zeros((2, 3, 3), np.float32)},
        {"labels": np.zeros(3, np.intp)},
        {"labels": np.zeros(2, np.int16)},
        {"paths": ["a"]},
        {"groups": np.zeros(1, np.intp)},
    ],
)
def test_images_that_do_not_fit_together(change):
    sound = {"pixels": np.zeros((2, 3, 3), np.uint8), "labels": np.zeros(2, np.intp), "paths": ["a", "b"]}
    with pytest.raises(ValueError, match=r"must be|paths for"):
        Images(**({"class_names": ("x",)} | sound | change))
