"""Files read by several processes: the same as by threads, whatever becomes of the processes."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from pipeline import config, spans
from pipeline.datasets import folder, helper, load, parallel, plain, processes
from pipeline.datasets.source import stream
from tests.conftest import DATA, shared_data
from tests.pictures import SIZE, folder_data, two_classes_in
from tests.programs import environment

pytestmark = pytest.mark.skipif(not processes.available(), reason="needs Linux: memory without a name")
PADDED = config.Image(16, 20, config.Fit.pad)


@pytest.fixture
def two_classes(tmp_path):
    return two_classes_in(tmp_path / "set")


@pytest.fixture
def helpers(monkeypatch):
    """Have `count` processes help with however few files; note those that are started."""
    started: list[subprocess.Popen[bytes]] = []
    honest = processes.Helpers._started

    def noted(self, who):
        started.append(honest(self, who))
        return started[-1]

    def ask(count: int) -> list[subprocess.Popen[bytes]]:
        monkeypatch.setattr(parallel, "helping", lambda *_: count)
        monkeypatch.setattr(parallel, "SMALL", 1 << 30)
        return started

    monkeypatch.setattr(processes.Helpers, "_started", noted)
    yield ask
    assert all(process.returncode is not None for process in started)  # ended and waited for


def kinds(root: Path) -> Path:
    """Make files of every plain kind, and some that are not, in two classes."""
    rng = np.random.default_rng(0)
    for i in range(150):
        rows, cols = rng.integers(1, 120, 2)
        mode = ("L", "RGB", "RGBA", "P", "LA")[i % 5]
        rough = Image.fromarray(rng.integers(0, 256, (5, 7, 4)).astype(np.uint8)).resize((cols, rows))
        place = root / "ab"[i % 2] / f"größe {i:03d}"
        place.parent.mkdir(parents=True, exist_ok=True)
        rough.convert(mode).save(place, "PNG")
        rough.convert("L" if i % 2 else "RGB").save(place.with_suffix(".jpg"), "JPEG", progressive=i % 3 == 0)
    with open(os.fsencode(root / "a") + b"/\xff.png", "wb") as file:  # a name that is no UTF-8
        file.write((root / "a" / "größe 000").read_bytes())
    return root


def everything(data: config.Data, image: config.Image) -> tuple:
    images, rejected, _, stamps, *_ = load(data, image)
    return (
        images.pixels.tobytes(), images.pixels.shape, images.labels.tolist(), images.paths, rejected,
        stamps.names, stamps.sizes.tolist(), stamps.times.tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("image", [SIZE, PADDED, config.Image(300, 200)])
@pytest.mark.parametrize("count", [1, 3])
def test_processes_read_what_threads_read(tmp_path, helpers, image, count):
    root = kinds(tmp_path / "set")
    shutil.copytree(DATA / "nasty", root / "c")
    data = folder_data(root, max_rejected=1.0)
    by_threads = everything(data, image)
    assert len(by_threads[4]) >= 5
    assert len(helpers(count)) == 0
    assert everything(data, image) == by_threads
    assert len(helpers(count)) == count


def test_the_large_nasty_set_and_relative_paths(helpers, monkeypatch):
    monkeypatch.chdir(shared_data())
    data, images = folder_data(Path("data/nasty"), max_rejected=1.0), config.Image(50, 100)
    chunks = list(stream(data, images, 50))
    helpers(2)
    again = list(stream(data, images, 50))
    assert [one.rejected for one in again] == [one.rejected for one in chunks]
    assert [one.images.paths for one in again] == [one.images.paths for one in chunks]
    for one, other in zip(again, chunks, strict=True):
        assert np.array_equal(one.images.pixels, other.images.pixels)
    assert sum(len(one.rejected) for one in chunks) > 20


def test_most_plain_files_need_not_be_read_again(tmp_path, helpers, monkeypatch):
    root, left = kinds(tmp_path / "set"), []
    honest = processes.Helpers.read
    monkeypatch.setattr(processes.Helpers, "read", lambda *args: left.append(honest(*args)) or left[-1])
    helpers(2)
    load(folder_data(root), SIZE)
    # palettes and gray with alpha are 60 of 301; what this process takes it reads to the end
    assert len(left[0]) <= 60


def test_a_set_of_files_that_are_not_plain_is_left_to_threads_soon(tmp_path, helpers, monkeypatch):
    for i in range(400):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        Image.new("L", (6, 5), i % 256).save(tmp_path / "ab"[i % 2] / f"{i}.bmp")
    by_threads = everything(folder_data(tmp_path), SIZE)
    monkeypatch.setattr(processes, "_MANY", 32)
    left, honest = [], processes.Helpers.read
    monkeypatch.setattr(processes.Helpers, "read", lambda *args: left.append(honest(*args)) or left[-1])

    def slow(*args):
        for batch in turns(*args):
            time.sleep(0.02)  # the other has gone through its share by then
            yield batch

    turns = helper.turns
    monkeypatch.setattr(helper, "turns", slow)
    helpers(1)
    assert everything(folder_data(tmp_path), SIZE) == by_threads
    assert 300 < len(left[0]) < 400


def test_chunks_of_a_stream_keep_their_pictures(two_classes, helpers):
    (two_classes / "a" / "03.png").write_bytes(b"")
    data = folder_data(two_classes, max_rejected=0.5)
    whole = load(data, SIZE)
    started = helpers(1)
    chunks = list(stream(data, SIZE, 7))
    assert len(started) == 1
    assert [len(chunk.images) for chunk in chunks] == [6, 7, 7, 7, 7, 5]
    assert np.array_equal(np.concatenate([chunk.images.pixels for chunk in chunks]), whole.images.pixels)


def test_progress_goes_up_to_the_number_of_files(two_classes, helpers):
    seen: list[tuple[int, int]] = []
    helpers(2)
    load(folder_data(two_classes), SIZE, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (40, 40)


# ---- processes that die ----


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("sys.exit(3)", "status 3"),
        ("sys.exit('no codec')", "no codec"),
    ],
)
def test_files_of_a_process_that_dies_are_read_here(
    two_classes, helpers, tmp_path, monkeypatch, caplog, end, why
):
    """It takes all files, makes pictures of its own, and dies before it has told of a batch."""
    by_threads = everything(folder_data(two_classes), SIZE)
    (tmp_path / "bad.py").write_text(
        "import mmap, os, sys\n"
        "n, width, height, _, _, slots = map(int, sys.stdin.buffer.readline().split())\n"
        "taken = slots * 16 * width * height\n"
        "memory = mmap.mmap(int(sys.argv[3]), 0)\n"
        "memory[taken:taken + 3] = bytes([1, 1, 1])\n"
        "memory[:taken] = bytes([9]) * taken\n"
        "os.write(1, bytes(23))\n" + end  # one byte less than the report of a batch
    )
    monkeypatch.setattr(processes, "_PROGRAM", tmp_path / "bad.py")
    honest = helper.turns

    def late(*args):  # this process takes what is left when that one has ended
        time.sleep(0.3)
        return honest(*args)

    monkeypatch.setattr(helper, "turns", late)
    helpers(1)
    with caplog.at_level(logging.WARNING):
        assert everything(folder_data(two_classes), SIZE) == by_threads
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"a process that helped to read files ended early ({why}): its files are read here"]


def test_a_process_killed_between_orders_and_one_killed_at_once(two_classes, helpers, caplog):
    data = folder_data(two_classes)
    whole = load(data, SIZE)
    started = helpers(2)
    chunks = stream(data, SIZE, 20)
    first = next(chunks)
    started[0].kill()
    started[0].wait()
    second = next(chunks)
    assert np.array_equal(np.concatenate([first.images.pixels, second.images.pixels]), whole.images.pixels)
    assert next(chunks, None) is None
    assert len(caplog.records) == 1


def test_an_unknown_pillow_is_told_and_read_the_long_way(two_classes, tmp_path, helpers, monkeypatch, caplog):
    by_threads = everything(folder_data(two_classes), SIZE)
    text = Path(plain.__file__).read_text().replace("_core.zip_decoder", "_core.zip_decoder_of_old")
    (tmp_path / "plain.py").write_text(text)
    monkeypatch.setattr(processes, "_PLAIN", tmp_path / "plain.py")
    monkeypatch.setattr(plain, "_core", None)
    helpers(1)
    assert everything(folder_data(two_classes), SIZE) == by_threads
    told = " ".join(record.getMessage() for record in caplog.records)
    assert told.count("is unknown to the short way") == 1
    assert "AttributeError" in told


# ---- interrupts ----


def test_an_interrupt_ends_the_processes(two_classes, helpers):
    def stop(done, total):
        raise KeyboardInterrupt

    before = psutil.Process().num_fds()
    started = helpers(2)
    with pytest.raises(KeyboardInterrupt):
        load(folder_data(two_classes), SIZE, stop)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
    assert psutil.Process().num_fds() == before


def test_a_fault_here_ends_the_processes(two_classes, helpers, monkeypatch):
    def fault(*_):
        raise AttributeError("ours")

    monkeypatch.setattr(parallel, "to_bytes", fault)
    helpers(1)
    with pytest.raises(AttributeError, match="ours"):
        load(folder_data(two_classes), SIZE)


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from pipeline import config, datasets
from pipeline.datasets import parallel, processes
parallel.helping = lambda *_: 2
honest = processes.Helpers._started
def noted(self, who):
    process = honest(self, who)
    print(process.pid, flush=True)
    return process
processes.Helpers._started = noted
def stay(done, total):
    print("at work", flush=True)
    time.sleep(60)
data = config.Data(name=config.DataName.folder, path=sys.argv[1])
loaded = datasets.load(data, config.Image(8, 12), stay if len(sys.argv) > 2 else None)
print(len(loaded.images))
"""  # a program without `if __name__ == "__main__"`: processes that import it again would start themselves


def program(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=environment(), start_new_session=True
    )


def test_a_program_without_a_guard_reads_with_processes(two_classes):
    out, err = program(str(two_classes)).communicate(timeout=60)
    assert out.split()[2:] == ["40"]
    assert err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_program_that_is_ended(two_classes, number):
    run = program(str(two_classes), "stay")
    assert run.stdout is not None
    helping = [psutil.Process(int(run.stdout.readline())) for _ in range(2)]
    assert run.stdout.readline() == "at work\n"
    begin = time.monotonic()
    os.killpg(run.pid, number)  # as the terminal does
    run.communicate(timeout=30)
    assert not psutil.wait_procs(helping, timeout=30)[1]
    assert time.monotonic() - begin < 30


# ---- when there are processes ----


def test_how_many_processes_help(monkeypatch):
    few, many, data = parallel.FEWEST, 3 * parallel.FEWEST, config.Data(workers=4)
    assert parallel.helping(few - 1, data, SIZE) == 0
    assert parallel.helping(few, data, SIZE) == 1
    assert parallel.helping(many, data, SIZE) == 3
    assert parallel.helping(10 * many, data, SIZE) == 3
    assert parallel.enough(data) == many
    assert parallel.helping(many, data, config.Image(1024, 1024)) == 3
    assert parallel.helping(many, data, config.Image(1024, 1025)) == 0
    assert parallel.helping(many, config.Data(workers=1), SIZE) == 0
    assert parallel.enough(config.Data(workers=1)) == 0
    monkeypatch.setattr(parallel, "usable_cores", lambda: 2)
    assert parallel.helping(many, config.Data(), SIZE) == 1


def test_large_files_are_for_threads(two_classes, helpers, monkeypatch):
    helpers(1)
    asked = []
    monkeypatch.setattr(processes.Helpers, "read", lambda _, paths, *rest: asked.append(len(paths)) or [])
    sizes = [path.stat().st_size for path in two_classes.rglob("*.png")]
    monkeypatch.setattr(parallel, "SMALL", sum(sizes) / 40)
    load(folder_data(two_classes), SIZE)
    assert asked == [40]
    monkeypatch.setattr(parallel, "SMALL", sum(sizes) / 40 - 0.1)
    load(folder_data(two_classes), SIZE)
    list(stream(folder_data(two_classes), SIZE, 7))
    assert asked == [40]


def test_processes_start_when_there_are_enough_files(two_classes, monkeypatch):
    started: list[int] = []
    honest = processes.Helpers.__init__
    monkeypatch.setattr(
        processes.Helpers, "__init__", lambda self, count: started.append(count) or honest(self, count)
    )
    for fewest, count in ((41, []), (40, [1]), (20, [1, 2]), (1, [1, 2, 3])):
        monkeypatch.setattr(parallel, "FEWEST", fewest)
        load(folder_data(two_classes, workers=4), SIZE)
        assert started == count
    assert folder.count_up_to(5, two_classes / "none") == folder.count_up_to(0, two_classes) == 0


def test_threads_read_where_there_can_be_no_processes(two_classes, helpers, monkeypatch, caplog):
    by_threads = everything(folder_data(two_classes), SIZE)

    def refused(*_args, **_options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    started = helpers(1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processes.subprocess, "Popen", refused)
        assert everything(folder_data(two_classes), SIZE) == by_threads
    assert "Resource temporarily unavailable" in caplog.records[0].getMessage()
    with monkeypatch.context() as elsewhere:
        elsewhere.delattr(os, "memfd_create")
        assert everything(folder_data(two_classes), SIZE) == by_threads
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "frozen", True, raising=False)
        assert everything(folder_data(two_classes), SIZE) == by_threads
    assert started == []


def test_threads_read_where_there_is_no_memory_to_share(two_classes, helpers, monkeypatch, caplog):
    by_threads = everything(folder_data(two_classes), SIZE)
    helpers(1)
    monkeypatch.setattr(processes, "_SLOTS", 1 << 50)
    assert everything(folder_data(two_classes), SIZE) == by_threads
    assert "no memory to share" in caplog.records[0].getMessage()


def test_slots_are_used_again_and_again(tmp_path, helpers, monkeypatch):
    root = kinds(tmp_path / "set")
    by_threads = everything(folder_data(root), SIZE)
    helpers(2)
    monkeypatch.setattr(processes, "_SLOTS", 1)
    monkeypatch.setattr(processes, "_BYTES", 0)
    honest = helper.turns
    for wait in (0.0, 0.01):  # this process is slow: the slots are full

        def slow(*args, wait=wait):
            for batch in honest(*args):
                time.sleep(wait)
                yield batch

        monkeypatch.setattr(helper, "turns", slow)
        assert everything(folder_data(root), SIZE) == by_threads


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 500])
def test_every_file_is_taken_once(n, count):
    taken = bytearray(-(-n // helper.BATCH))
    working = [helper.turns(n, who, count, taken) for who in range(count)]
    found: list[int] = []
    while working:  # by turns
        for one in list(working):
            batch = next(one, None)
            if batch is None:
                working.remove(one)
            else:
                found += helper.files_of(batch, n)
    assert sorted(found) == list(range(n))


def test_what_helpers_work_is_counted(two_classes, helpers):
    helpers(1)
    before = spans.elsewhere()
    load(folder_data(two_classes), SIZE)
    assert 10**6 < spans.elsewhere() - before < 10**10  # a start takes 10 ms
