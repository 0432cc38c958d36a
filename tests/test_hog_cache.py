"""Compiled kernels on disk: many processes at once, no writable folder, a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching

from pipeline.backends.cpu import jit
from tests.conftest import ROOT

# One kernel, one index on disk, a version for each type; the work of compiling HoG's would say no more here.
KERNELS = """
from pipeline.backends.cpu import jit

@jit.part
def twice(x):
    return x + x

@jit.kernel
def fill(x, out):
    for i in range(len(x)):
        out[i] = twice(x[i]) + 0.5
"""
PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
from kernels import fill
from pipeline.backends.cpu import jit
folder, dtype = Path(sys.argv[1]), sys.argv[2]
x = np.arange(5).astype(dtype)
out = np.zeros(5)
print("ready", flush=True)
while not (folder / "go").exists():
    time.sleep(0.001)
jit.prepare(fill, x, out)
fill(x, out)
np.testing.assert_array_equal(out, 2.0 * x + 0.5)
print(sum(fill.stats.cache_hits.values()), sum(fill.stats.cache_misses.values()))
"""


def start(folder, dtype):
    path = os.pathsep.join([str(folder), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), dtype],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_start_at_once_share_one_cache_without_mixing_kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    first = [start(tmp_path, dtype) for dtype in ("uint8", "float32", "uint8")]
    (tmp_path / "go").touch()
    answers = [process.communicate(timeout=200)[0].split() for process in first]
    assert [process.returncode for process in first] == [0, 0, 0]
    assert sorted(answers) == [["0", "1"], ["0", "1"], ["1", "0"]]  # one of the two uint8 processes waited
    for dtype in ("uint8", "float32"):
        later = start(tmp_path, dtype)
        assert later.communicate(timeout=200)[0].split() == ["1", "0"]
        assert later.returncode == 0


def add(a, b):
    return a + b


def test_without_any_writable_folder_kernels_still_work(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])  # as in a read-only installation
    compiled = jit.kernel(add)
    assert compiled.stats.cache_path is None
    jit.prepare(compiled, 1, 2)
    assert compiled(1, 2) == 3


def test_a_disk_that_fills_up_does_not_stop_the_work(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)
    compiled = jit.kernel(add)
    jit.prepare(compiled, 1.0, 2.0)
    assert compiled(1.0, 2.0) == 3.0


def test_a_change_in_any_file_of_the_folder_discards_machine_code(tmp_path):
    (tmp_path / "kernels.py").write_text("")
    before = jit._stamp(tmp_path)
    assert jit._stamp(tmp_path) == before
    (tmp_path / "parts.py").write_text("")
    assert jit._stamp(tmp_path) != before
    compiled = jit.kernel(add)
    assert compiled._cache._cache_file._source_stamp == jit._stamp(Path(__file__).parent)


def test_errors_of_a_kernel_are_not_swallowed():
    compiled = jit.kernel(add)
    with pytest.raises(Exception, match=r"add|No implementation"):
        jit.prepare(compiled, np.zeros(3), "text")
