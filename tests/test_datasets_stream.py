"""Streaming a set in chunks, and settings that contradict each other."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets import TooManyRejected, load, stream
from pipeline.errors import ConfigError, DataError
from tests.pictures import SIZE, folder_data, picture, two_classes_in


@pytest.fixture
def two_classes(tmp_path):
    return two_classes_in(tmp_path / "set")


@pytest.mark.parametrize("chunk", [1, 7, 40, 1000])
def test_stream_equals_load(two_classes, chunk):
    (two_classes / "a" / "03.png").write_bytes(b"")
    whole = load(folder_data(two_classes), SIZE)
    seen = []
    parts = list(
        stream(folder_data(two_classes), SIZE, chunk, lambda done, total: seen.append((done, total)))
    )
    assert max(len(part.images) for part in parts) <= chunk
    assert np.array_equal(np.concatenate([part.images.pixels for part in parts]), whole.images.pixels)
    assert np.array_equal(np.concatenate([part.images.labels for part in parts]), whole.images.labels)
    assert [path for part in parts for path in part.images.paths] == whole.images.paths
    assert [row for part in parts for row in part.rejected] == whole.rejected
    assert seen[-1] == (40, 40)


def test_stream_of_flat_folder_single_file_and_mixture_has_no_labels(two_classes):
    auto = config.Data(name=DataName.auto)
    for path, paths in (
        (two_classes / "a", [f"{i:02d}.png" for i in range(20)]),
        (two_classes / "a" / "03.png", ["03.png"]),
    ):
        auto.path = str(path)
        (part,) = stream(auto, SIZE, 100)
        assert part.images.labels is None
        assert part.images.class_names == ()
        assert part.images.paths == paths
    picture(two_classes / "loose.png")
    auto.path = str(two_classes)
    (part,) = stream(auto, SIZE, 100)
    assert part.images.labels is None
    assert len(part.images) == 41
    with pytest.raises(DataError, match="one file"):
        load(config.Data(name=DataName.auto, path=str(two_classes / "a" / "03.png")), SIZE)


def test_stream_stops_above_the_share(two_classes):
    for i in range(5):
        (two_classes / "a" / f"{i:02d}.png").write_bytes(b"")
    parts = stream(folder_data(two_classes), SIZE, 4)
    assert len(next(parts).rejected) == 4
    with pytest.raises(TooManyRejected, match="5 of 40") as caught:
        next(parts)
    assert len(caught.value.rejected) == 5
    with pytest.raises(TooManyRejected, match="empty file"):
        next(stream(config.Data(name=DataName.auto, path=str(two_classes / "a" / "00.png")), SIZE, 4))


def test_contradictions_are_told_before_any_work(two_classes, tmp_path):
    np.savez(tmp_path / "p.npz", images=np.zeros((2, 8, 12), np.uint8))
    for name, path, error, words in (
        (DataName.digits, two_classes, ConfigError, "add data=folder"),
        (DataName.synthetic, two_classes, ConfigError, "add data=folder"),
        (DataName.folder, None, ConfigError, "needs data.path"),
        (DataName.auto, None, ConfigError, "needs data.path"),
        (DataName.packed, two_classes, ConfigError, "add data=folder"),
        (DataName.packed, two_classes / "a" / "01.png", ConfigError, "npz or .npy"),
        (DataName.folder, tmp_path / "p.npz", ConfigError, "add data=packed"),
        (DataName.auto, tmp_path / "gone", DataError, "no such file"),
        (DataName.packed, tmp_path / "gone.npz", DataError, "no such file"),
    ):
        data = config.Data(name=name, path=None if path is None else str(path))
        for call in (lambda data=data: load(data, SIZE), lambda data=data: stream(data, SIZE, 10)):
            with pytest.raises(error, match=words) as caught:
                call()
            assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="chunk=0"):
        stream(folder_data(two_classes), SIZE, 0)
