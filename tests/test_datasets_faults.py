"""What is no fault of a picture: files that change under the reader, processes that stop, and limits of this one."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image, ImageFile

from pipeline.datasets import decode as rules
from pipeline.datasets import helper, load, parallel, plain, processes, reasons
from pipeline.datasets.decode import decode
from pipeline.datasets.folder import scan
from pipeline.datasets.packed import read_packed
from pipeline.datasets.reasons import DecodeError
from pipeline.datasets.source import stream
from pipeline.errors import DataError
from tests.pictures import SIZE, folder_data, two_classes_in
from tests.programs import environment

needs_processes = pytest.mark.skipif(not processes.available(), reason="needs Linux: memory without a name")


@pytest.fixture
def two_classes(tmp_path):
    return two_classes_in(tmp_path / "set")


@pytest.fixture
def helped(monkeypatch):
    """Have one process help; return the list of those started."""
    started: list[subprocess.Popen[bytes]] = []
    honest = processes.Helpers._started
    monkeypatch.setattr(
        processes.Helpers, "_started", lambda self, who: started.append(honest(self, who)) or started[-1]
    )
    monkeypatch.setattr(parallel, "helping", lambda *_: 1)
    monkeypatch.setattr(parallel, "SMALL", 1 << 30)
    return started


# ---- files that become something else ----


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def listening(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


def in_time(work):
    """Run what might wait for ever in a thread, and return what it returns."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it waits, or has failed"
    return found[0]


@needs_pipes
@pytest.mark.parametrize("kind", [pipe, device, listening])
@pytest.mark.parametrize("way", ["threads", pytest.param("processes", marks=needs_processes)])
def test_what_takes_the_place_of_a_listed_file_is_rejected(two_classes, request, monkeypatch, kind, way):
    monkeypatch.chdir(two_classes)  # the name of a socket must be short
    if way == "processes":
        request.getfixturevalue("helped")
    chunks = stream(folder_data(two_classes, max_rejected=0.5), SIZE, 20)
    first = next(chunks)
    (two_classes / "b" / "07.png").unlink()
    kind((two_classes / "b" / "07.png").relative_to(two_classes))
    rest = in_time(lambda: list(chunks))
    assert len(first.images) == 20
    assert [len(one.images) for one in rest] == [19]
    [rejected] = rest[0].rejected
    assert rejected.path == "b/07.png"
    assert rejected.reason in ("not a regular file", os.strerror(errno.ENXIO))  # the latter of a socket


@needs_pipes
def test_every_reader_of_files_refuses_a_pipe_at_once(tmp_path, monkeypatch):
    pipe(tmp_path / "a")
    for reader in (
        lambda: plain.read(str(tmp_path / "a"), 0, 10**9, None),
        lambda: rules._read_gray(tmp_path / "a", 10**9),
        lambda: read_packed(tmp_path / "a", SIZE),
    ):

        def refused(reader=reader):
            with pytest.raises((OSError, DecodeError, DataError), match="not a regular file"):
                reader()
            return True

        assert in_time(refused)
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: True)  # it was a file just now

    def late():
        with pytest.raises(DataError, match=r"cannot be read as a packed set.*not a regular file"):
            read_packed(tmp_path / "a", SIZE)
        return True

    assert in_time(late)


# ---- what is short in this process ----

SHORT = [
    (OSError(errno.EMFILE, "Too many open files"), r"can open no more files than \d+: raise the limit, as in ulimit"),
    (OSError(errno.ENFILE, "Too many open files in system"), "this machine can open no more files"),
    (MemoryError(), "no memory is left to read pictures: use fewer data.workers"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "no memory is left to read pictures"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words"), SHORT, ids=["EMFILE", "ENFILE", "MemoryError", "ENOMEM"])
@pytest.mark.parametrize("where", ["short", "open", "load", "list"])
def test_what_is_short_in_this_process_ends_the_run(two_classes, monkeypatch, error, words, where):
    def fail(*_args, **_options):
        raise error

    def listed(path):
        if "set" in str(path) and str(path) != str(two_classes):
            raise error
        return honest(path)

    honest = os.scandir
    monkeypatch.setattr(reasons, "_has_room", lambda: False)
    if where == "list":
        if isinstance(error, MemoryError):
            pytest.skip("the system says it with a number")
        monkeypatch.setattr(os, "scandir", listed)
    elif where == "short":
        monkeypatch.setattr(plain, "_content", fail)
    else:
        monkeypatch.setattr(plain, "read", lambda *_: None)
        owner = Image if where == "open" else ImageFile.ImageFile
        monkeypatch.setattr(owner, where, fail)
    with pytest.raises(DataError, match=words) as caught:
        load(folder_data(two_classes, max_rejected=1.0), SIZE)
    assert "\n" not in str(caught.value)


def test_a_file_that_asks_for_too_much_is_rejected_where_there_is_memory(two_classes, monkeypatch):
    def fail(*_args, **_options):
        raise MemoryError

    monkeypatch.setattr(plain, "read", lambda *_: None)
    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(DecodeError, match="not enough memory to decode it"):
        decode(two_classes / "a" / "00.png")


def test_a_file_for_which_others_left_no_memory_is_read_again_alone(two_classes, monkeypatch):
    whole = load(folder_data(two_classes), SIZE)
    honest, failed = parallel.to_bytes, set()

    def short(path, *more):
        if path not in failed:
            failed.add(path)
            raise DecodeError(reasons.NO_MEMORY)
        return honest(path, *more)

    monkeypatch.setattr(parallel, "to_bytes", short)
    found = load(folder_data(two_classes), SIZE)
    assert len(failed) == 40
    assert found.rejected == []
    assert np.array_equal(found.images.pixels, whole.images.pixels)


def test_threads_that_the_system_refuses_end_the_run_in_one_line(two_classes, monkeypatch):
    def refuse(_self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(DataError, match=r"can't start new thread: no memory is left.*use fewer data.workers"):
        load(folder_data(two_classes), SIZE)


LIMITED = """
import os, resource, sys
from pipeline import config
from pipeline.datasets import load
from pipeline.errors import DataError
data = config.Data(name=config.DataName.folder, path=sys.argv[1], workers=int(sys.argv[2]), max_rejected=1.0)
load(data, config.Image(8, 12))  # all that is imported late
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
while True:
    try:
        held.append(os.dup(0))
    except OSError:
        break
for _ in range(int(sys.argv[3])):
    os.close(held.pop())
try:
    print(len(load(data, config.Image(8, 12)).images))
except DataError as error:
    print(error)
"""


@needs_processes
@pytest.mark.parametrize("workers", ["1", "3"])
@pytest.mark.parametrize("free", range(5))
def test_no_sound_file_is_rejected_when_the_descriptors_run_out(two_classes, workers, free):
    command = [sys.executable, "-c", LIMITED, str(two_classes), workers, str(free)]
    run = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.stderr
    assert (
        run.stdout == "40\n" or "this process can open no more files than 64: raise the limit" in run.stdout
    )
    assert free or run.stdout != "40\n"


# ---- processes that help ----


@needs_processes
def test_a_process_with_many_open_files_reads_with_helpers(two_classes, helped):
    """select() takes no descriptors above 1,023."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1500:
        pytest.skip("this system lets a process have few files")
    whole = load(folder_data(two_classes), SIZE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1100:
            held.append(os.dup(held[0]))
        again = load(folder_data(two_classes), SIZE)
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(helped) == 2
    assert np.array_equal(again.images.pixels, whole.images.pixels)


@needs_processes
def test_files_of_a_process_that_is_stopped_are_read_here(two_classes, helped, monkeypatch, caplog):
    whole = load(folder_data(two_classes), SIZE)
    monkeypatch.setattr(processes, "SILENT", 0.3)
    chunks = stream(folder_data(two_classes), SIZE, 20)
    first = next(chunks)
    process = helped[-1]
    process.send_signal(signal.SIGSTOP)

    monkeypatch.setattr(helper, "turns", lambda *_: ())  # all files are the other's
    with caplog.at_level(logging.WARNING):
        second = in_time(lambda: next(chunks))
    assert np.array_equal(np.concatenate([first.images.pixels, second.images.pixels]), whole.images.pixels)
    assert [record.getMessage() for record in caplog.records] == [
        "a process that helped to read files has told nothing for 0.3 s: its files are read here"
    ]
    assert process.returncode == -signal.SIGKILL
    assert next(chunks, None) is None


def test_a_folder_that_cannot_be_listed_for_its_rights_is_still_rejected(two_classes, monkeypatch):
    def closed(path):
        if str(path).endswith("b"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return honest(path)

    honest = os.scandir
    monkeypatch.setattr(os, "scandir", closed)
    found = scan(two_classes)
    assert [one.reason for one in found.rejected] == ["folder that cannot be listed: Permission denied"]
