"""Images shared out among the threads that the backend keeps."""

import multiprocessing
import operator
import threading
import time
import weakref

import numpy as np
import pytest

from pipeline.backends import host
from pipeline.backends.cpu import hog as cpu
from pipeline.backends.cpu import wls_kernels
from pipeline.backends.cpu.images_shared import share_images
from pipeline.features import HogLayout

LAYOUT = HogLayout((24, 24))


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(wls_kernels.numba, "get_num_threads", lambda: 2)


def pictures(n):
    return np.random.default_rng(0).integers(0, 256, (n, 24, 24), dtype=np.uint8)


def described(images):
    return cpu.hog(images, LAYOUT, "L2-Hys", False, "float32")


class Doubler:
    """Doubles; notes what it wrote, and does what it is told before the first part."""

    chunk, prepared = 10, True

    def __init__(self, before=lambda: None):
        self.before, self.parts = before, []

    def __call__(self, source, out, parts):
        for part in parts:
            self.before()
            out[part] = 2 * source[part]
            self.parts.append(part)


@pytest.mark.parametrize("n", [0, 1, 64, 65, 128, 333])
def test_every_image_is_written_once(n):
    workers = []
    source, out = np.arange(n), np.zeros(n, int)

    def make():
        workers.append(Doubler())
        return workers[-1]

    share_images(make, source, out, 64)
    np.testing.assert_array_equal(out, 2 * source)
    taken = sorted((part.start, part.stop) for worker in workers for part in worker.parts)
    assert [begin for begin, _ in taken] == [0, *(end for _, end in taken)][: len(taken)]
    assert len(workers) <= min(
        2, -(-n // 64)
    )  # another thread costs more than it saves, and a worker, memory


def test_two_threads_work_at_the_same_time():
    assert threads_that_meet() == 2


def threads_that_meet():
    """Return how many threads work at the same time."""
    both = threading.Barrier(2, timeout=60)  # breaks where one takes all the parts
    met = []

    def before():
        if threading.get_ident() not in met:
            met.append(threading.get_ident())
            both.wait()

    share_images(lambda: Doubler(before), np.arange(200), np.zeros(200, int), 64)
    return len(met)


def test_a_thread_that_works_for_another_caller_is_not_waited_for():
    begun, go_on = threading.Event(), threading.Event()

    def long():
        begun.set()
        assert go_on.wait(60)  # as long as the images are not done

    others = [wls_kernels._pool().submit(long) for _ in range(wls_kernels._pool()._max_workers)]
    assert begun.wait(60)
    images = pictures(200)
    found = described(images)
    go_on.set()
    for other in others:
        other.result()
    np.testing.assert_array_equal(found, np.concatenate([described(images[:60]), described(images[60:])]))


def test_images_within_a_share_do_not_wait_for_themselves():
    images, found = pictures(200), {}

    def work(i):
        found[i] = described(images)
        assert wls_kernels._threads(9, True) == 1  # this one: others may wait for it

    wls_kernels.share(work, 4, parallel=True)
    for i in range(4):
        np.testing.assert_array_equal(found[i], described(images))


def test_no_room_for_a_second_worker_ends_the_work():
    made, go_on = [], threading.Event()

    def make():
        if made:
            go_on.set()
            raise MemoryError("no room for another")
        made.append(Doubler(lambda: go_on.wait(60)))
        return made[0]

    with pytest.raises(MemoryError, match="no room for another"):
        share_images(make, np.arange(4000), np.zeros(4000, int), 64)
    assert len(made[0].parts) < 4000 // 10 // 2  # it did not go on to the end


def test_what_is_cancelled_holds_no_arrays():
    """It stays in the pool's queue until a thread comes by: under load fits took 2.9 MB more, at times."""
    go_on, memory = threading.Event(), np.zeros(1000)
    kept = weakref.ref(memory)
    others = wls_kernels._pool()
    for _ in range(others._max_workers):
        others.submit(go_on.wait, 60)
    try:
        shared = wls_kernels.Shared(lambda i, array=memory: array.sum(), 2, parallel=True)
        assert shared._others
        shared.finish()
        del shared, memory
        assert kept() is None
    finally:
        go_on.set()


@pytest.mark.parametrize("here", [True, False])
def test_an_error_ends_the_work_of_both_threads(here):
    """No matter on which thread: it is raised, and nobody takes another part."""
    both, late = threading.Barrier(2, timeout=60), []

    class Failing(Doubler):
        def __call__(self, source, out, parts):
            next(parts)
            both.wait()
            if (threading.current_thread() is threading.main_thread()) is here:
                raise KeyboardInterrupt
            for _ in range(60_000):
                if not operator.length_hint(parts):
                    return
                time.sleep(0.001)
            late.append(parts)

    with pytest.raises(KeyboardInterrupt):
        share_images(Failing, np.arange(400), np.zeros(400, int), 64)
    assert not late


def describe_in_child(queue):
    queue.put((threads_that_meet(), described(pictures(200))))


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    wanted = described(pictures(200))  # the parent's threads exist before the fork
    child = context.Process(target=describe_in_child, args=(queue,))
    child.start()
    try:
        met, found = queue.get(timeout=90)
        assert met == 2
        np.testing.assert_array_equal(found, wanted)
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [0, 7, 2589, 2590, 10_000])
def test_arrays_begin_at_a_cache_line_and_large_ones_at_a_huge_page(rows, dtype):
    found = host.empty((rows, 3240), dtype)
    assert (found.shape, found.dtype) == ((rows, 3240), np.dtype(dtype))
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert found.flags.aligned
    if found.nbytes >= host.MAPPED:
        assert found.ctypes.data % host.HUGE_PAGE == 0
        found[-1] = 3  # its memory goes as far as it does
        assert (found[-1] == 3).all()
    else:
        assert found.size == 0 or found.ctypes.data % host.CACHE_LINE == 0


def test_large_features_do():
    layout = HogLayout((50, 100))
    images = np.zeros((2600, 50, 100), np.uint8)
    assert cpu.hog(images, layout, "L2-Hys", False, "float32").ctypes.data % host.HUGE_PAGE == 0
    out = host.map_images(images, None, lambda batch, out: None, layout.n_features, "float32", 100)
    assert out.ctypes.data % host.HUGE_PAGE == 0
