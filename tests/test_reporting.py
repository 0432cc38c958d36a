"""Figures, tables, plots and progress."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics as truth

from pipeline.cli import Outcome
from pipeline.reporting import help as texts
from pipeline.reporting import plots, tables
from pipeline.reporting import progress as reporting
from pipeline.reporting.metrics import confused, score
from pipeline.reporting.progress import progress
from pipeline.reporting.stages import Stages
from tests.conftest import ROOT

NAMES = ("cat", "dog", "emu")


def test_scores_equal_scikit_learns():
    rng = np.random.default_rng(0)
    labels, proba = rng.integers(0, 3, 200), rng.dirichlet([1, 1, 1], 200)
    found, predicted = score(labels, proba, NAMES), proba.argmax(axis=1)
    assert found.accuracy == pytest.approx(truth.accuracy_score(labels, predicted))
    assert found.balanced_accuracy == pytest.approx(truth.balanced_accuracy_score(labels, predicted))
    assert found.log_loss == pytest.approx(truth.log_loss(labels, proba))
    np.testing.assert_array_equal(found.confusion, truth.confusion_matrix(labels, predicted))
    expected = np.array(truth.precision_recall_fscore_support(labels, predicted)).T
    rows = [list(found.per_class[name].values()) for name in NAMES]
    np.testing.assert_allclose(rows, expected)


def test_a_class_that_does_not_occur_counts_in_no_mean():
    proba = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    found = score(np.array([0, 1]), proba, NAMES)
    assert found.balanced_accuracy == 1.0
    assert found.per_class["emu"] == {"precision": None, "recall": None, "f1": None, "support": 0}


def test_probability_zero_gives_a_finite_loss_and_nan_an_error():
    proba = np.array([[0.0, 1.0, 0.0]])
    assert score(np.array([0]), proba, NAMES).log_loss == pytest.approx(-np.log(np.finfo(float).eps))
    with pytest.raises(FloatingPointError, match="1 images"):
        score(np.array([0]), np.full((1, 3), np.nan), NAMES)


def test_confused_names_the_most_frequent_mistakes_first():
    labels = np.array([0, 0, 0, 1, 2])
    proba = np.eye(3)[[1, 1, 0, 2, 2]]
    assert confused(score(labels, proba, NAMES), NAMES) == [(2, "cat", "dog"), (1, "dog", "emu")]


@pytest.mark.parametrize("n", [2, 10, 43])
def test_confusion_matrix_is_drawn_for_few_and_many_classes(tmp_path, n):
    names = [f"a rather long class name number {i} $" for i in range(n)]
    confusion = np.diag(np.arange(1, n + 1))
    confusion[0, 1] = 1000
    plots.confusion_matrix(confusion, names, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert 500 < picture.width < 3000
        assert 0.65 < picture.height / picture.width < 1.1
        dark = np.asarray(picture.convert("RGB")).astype(int)
    blue = (dark[..., 2] > dark[..., 0] + 40).sum()
    assert blue > 2000 / n  # the cells are there


@pytest.mark.parametrize(
    ("train", "validation", "kept"),
    [([1.0], [], 1), ([1.0, 0.5, 0.2], [1.0, 0.6, 0.7], 2), ([0.0, 0.0], [], 2)],
)
def test_learning_curve_is_drawn(tmp_path, train, validation, kept):
    plots.learning_curve(train, validation, kept, tmp_path / "l.png")
    with Image.open(tmp_path / "l.png") as picture:
        assert picture.size == (832, 520)


def test_plots_leave_pyplot_alone(tmp_path):
    plots.learning_curve([1.0, 0.5], [], 2, tmp_path / "l.png")
    if "matplotlib.pyplot" in sys.modules:  # another test or library may have loaded it
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_a_cache_that_cannot_be_written_is_no_news(tmp_path):
    (tmp_path / "file").write_text("")
    environment = {key: value for key, value in os.environ.items() if key != "MPLCONFIGDIR"}
    environment |= {
        name: str(tmp_path / "file" / "x") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", "import pipeline.reporting.plots"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_progress_off_a_terminal_is_a_line_every_tenth(caplog, capsys):
    with caplog.at_level(logging.INFO), progress("boost", "rounds") as advance:
        for done in range(1, 201):
            advance(done, 200, f"training {done}")
    lines = [record.message for record in caplog.records]
    assert len(lines) == 10
    assert lines[0].startswith("boost 20/200 rounds  training 20  ")
    assert capsys.readouterr().err == ""  # nothing is printed about a stage of a moment


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("before", "line"), [(0, "boost 10/100 rounds  9 s left"), (40, "boost 42/140 rounds  10 s left")]
)
def test_the_first_round_which_compiles_says_nothing_of_those_to_come(monkeypatch, caplog, before, line):
    """The first took 5 s and the others .1 s each: after ten of a hundred, 9 s are left, not 50; resumed, too."""
    clock = iter([0.0, 5.0, *(5.0 + 0.1 * i for i in range(1, 100))])
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: next(clock))
    with caplog.at_level(logging.INFO), progress("boost", "rounds", before) as advance:
        for done in range(before + 1, before + 11):
            advance(done, before + 100)
    assert caplog.messages[-1] == line


def test_there_is_no_estimate_before_there_is_anything_to_go_by(caplog):
    with caplog.at_level(logging.INFO), progress("predict") as advance:
        advance(1024, 3000)
        advance(3000, 3000)
    assert caplog.messages == ["predict 1024/3000 images", "predict 3000/3000 images  0 s left"]


def test_progress_on_a_terminal_is_a_bar(monkeypatch, caplog):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with caplog.at_level(logging.INFO), progress("boost", "rounds") as advance:
        advance(0, 0)
        advance(5, 10, "training 0.5")
        advance(10, 10, "training 0.25")
    assert "10/10 rounds" in terminal.getvalue()
    assert "training 0.25" in terminal.getvalue()
    assert any("10/10" in record.message for record in caplog.records)


def test_stages_add_up():
    stages = Stages()
    for _ in range(2):
        with stages("hog"):
            pass
    with pytest.raises(ValueError, match="x"), stages("boost"):
        raise ValueError("x")
    assert list(stages.seconds) == ["hog", "boost"]
    assert stages.total == sum(stages.seconds.values()) >= 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "0 ms"), (0.05, "50 ms"), (1.25, "1.2 s"), (99.9, "1 min 40 s"), (3723, "62 min 03 s")],
)
def test_durations_read_as_people_write_them(value, text):
    assert tables.seconds(value) == text


def test_names_with_brackets_are_printed_as_they_are(capsys):
    tables.facts("Title [bold]", [("path", "/data/[red]x")])
    tables.table("T", ("class", "n"), [("[/b]", 1)])
    out = capsys.readouterr().out
    assert "Title [bold]" in out
    assert "/data/[red]x" in out
    assert "[/b]" in out


def test_help_shows_the_comment_of_each_setting():
    from pipeline import config

    rows = {
        key: (value, note) for key, value, note in texts.settings(config.Predict, {"data": {"path": None}})
    }
    assert "images in memory at a time" in rows["chunk"][1]
    assert rows["data.path"][0] == "null"
    assert rows["backend.threads"][1].startswith("0: every core")
    assert "run_dir" not in rows


def test_cell_importances_are_drawn(tmp_path):
    importances = np.arange(72.0).reshape(6, 12) / np.arange(72.0).sum()
    plots.cell_importances(importances, tmp_path / "c.png")
    assert Image.open(tmp_path / "c.png").size[0] > 300


@pytest.mark.parametrize("figure", ["log-loss", "seconds"])
def test_a_table_of_a_sweep_names_its_figure(figure, capsys):
    jobs = [Outcome([f"seed={number}", "plots=false"], 0.5, None) for number in range(2)]
    tables.sweep_table(jobs, figure)
    told = capsys.readouterr().out
    assert figure in told
    assert "seed=1" in told
    assert "plots" not in told
