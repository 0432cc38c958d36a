"""Packages that the command line does not import before they are needed."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from types import ModuleType

import pytest

from pipeline import postponed

SLOW = """
import time
print("loaded")
time.sleep(0.05)
VALUE = 5
from slow_package import inner
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A package that says when its code runs, postponed."""
    folder = tmp_path / "slow_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(SLOW)
    (folder / "inner.py").write_text("import slow_package\nDEEP = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    postponed.postpone("slow_package")
    yield sys.modules["slow_package"]
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_import_alone_loads_nothing(slow, capsys):
    assert importlib.import_module("slow_package") is slow
    assert capsys.readouterr().out == ""
    assert slow.VALUE == 5
    assert slow.inner.DEEP == 7
    assert type(slow) is ModuleType
    assert capsys.readouterr().out == "loaded\n"


@pytest.mark.parametrize("use", ["from slow_package import VALUE", "from slow_package.inner import DEEP"])
def test_a_name_or_a_module_inside_loads_it(slow, capsys, use):
    exec(use, {})
    assert slow.inner.DEEP == 7
    assert capsys.readouterr().out == "loaded\n"


def test_a_missing_name_is_an_attribute_error(slow):
    for _ in range(2):
        with pytest.raises(AttributeError, match="no_such_name"):
            slow.no_such_name  # noqa: B018


def test_threads_that_ask_at_once_wait_for_one_load(slow, capsys):
    found = []
    threads = [threading.Thread(target=lambda: found.append(slow.VALUE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [5] * 8
    assert capsys.readouterr().out == "loaded\n"


def test_what_is_loaded_already_or_not_installed_stays_as_it_is():
    postponed.postpone("threading")
    assert sys.modules["threading"] is threading
    postponed.postpone("no_such_package")
    assert "no_such_package" not in sys.modules


def test_scikit_learn_finds_what_it_needs_later():
    program = """
import sys
from pipeline import postponed
postponed.import_sklearn()
assert type(sys.modules["scipy.stats"]).__name__ == "_Postponed" and "pandas" not in sys.modules
import numpy
from sklearn.utils.validation import check_array
assert check_array(numpy.ones((2, 1))).sum() == 2
assert type(sys.modules["scipy.stats"]).__name__ == "_Postponed"
from sklearn.model_selection import train_test_split
assert len(train_test_split(range(10))[0]) == 7
import statsmodels.api as api
assert abs(api.WLS([1.0, 2.0], [1.0, 1.0]).fit().params[0] - 1.5) < 1e-12
import pandas, scipy.stats
assert scipy.stats.norm.cdf(0.0) == 0.5 and type(scipy.stats).__name__ == "module"
assert check_array(pandas.DataFrame({"a": [1.0, 2.0]})).tolist() == [[1.0], [2.0]]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_train_without_plots_imports_neither_matplotlib_nor_pandas(tmp_path):
    program = f"""
import sys
from pipeline import cli
sys.argv = ["pipeline", "train", "plots=false", "data=synthetic", "data.n=60", "data.classes=2",
            "classifier.n_rounds=2", "hydra.run.dir={tmp_path}"]
try:
    cli.main()
except SystemExit as end:
    assert not end.code, end.code
assert "matplotlib" not in sys.modules and "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, stdout=subprocess.DEVNULL)
