"""Would a GPU help: a forecast for a measured run, from a datasheet."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline import config
from pipeline.config import Data, DataName
from pipeline.profiling.devices import DEVICE_START
from pipeline.profiling.outlook import outlook
from pipeline.profiling.work import describe

CFG = config.Train(run_dir="", data=Data(name=DataName.synthetic))
WORK = describe(CFG, backend="cpu", threads=2, images=10_000, classes=10)
SECONDS = {"read": 0.3, "hog": 0.6, "boost/sums": 3.0, "boost/update": 1.0, "save": 0.5, "all": 5.4}


@pytest.fixture
def l4():
    return config.machine("l4")


def test_what_no_gpu_does_takes_what_it_took(l4):
    found = outlook(CFG, WORK, SECONDS, l4)
    assert 0.8 < found.seconds < 2.0  # reading and saving, and a little
    assert found.gain == pytest.approx(5.4 - found.seconds)
    assert "a forecast from its datasheet, never run" in found.words


def test_a_run_that_only_reads_and_saves_gains_nothing(l4):
    found = outlook(CFG, WORK, {"read": 3.0, "save": 2.0, "all": 5.0}, l4)
    assert found.pays_from is None
    assert found.gain <= 0.0
    assert "it pays not for any number of images" in found.words


def test_it_pays_from_where_its_start_is_won_back(l4):
    """Everything goes with the images: 100 us of work an image less, and DEVICE_START more."""
    found = outlook(CFG, WORK, {"hog": 1.0, "all": 1.0}, l4)
    assert found.pays_from is not None
    assert found.pays_from >= DEVICE_START / 1e-4
    slow = dataclasses.replace(l4, bandwidth_gb_s=1.0, clock_ghz=0.01, link_gb_s=0.01)
    assert outlook(CFG, WORK, {"hog": 1.0, "all": 1.0}, slow).pays_from is None


def test_a_gpu_is_advised_only_where_its_start_is_won_back(l4):
    """A warm run gains, but a program that starts, trains and ends does not."""
    few = dataclasses.replace(WORK, images=600)
    found = outlook(CFG, few, {"hog": 0.3, "all": 0.3}, l4)
    assert found.gain > 0.0
    assert found.pays_from is not None
    assert found.pays_from > 600
    assert not found.pays
    many = dataclasses.replace(WORK, images=found.pays_from * 2)
    assert outlook(CFG, many, {"hog": many.images * 5e-4, "all": many.images * 5e-4}, l4).pays
    assert not outlook(CFG, WORK, {"read": 3.0, "save": 2.0, "all": 5.0}, l4).pays
