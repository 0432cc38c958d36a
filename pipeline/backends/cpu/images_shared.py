"""Images shared out among threads, in chunks that do not depend on what the threads do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def share_images(make: Callable[[], Any], source: np.ndarray, out: np.ndarray, per_thread: int) -> None:
    """Let workers, one for each thread, write their rows of `out` from those of `source`.

    Parameters
    ----------
    make : returns a worker: worker(source, out) writes rows, worker.compile(out) compiles before threads start
    per_thread : images below which starting another thread costs more than it saves
    """
    from numba import get_num_threads

    n = len(source)
    threads = min(get_num_threads(), -(-n // per_thread))
    bounds = [n * i // threads for i in range(threads + 1)] if threads else [0]
    parts = [slice(first, last) for first, last in itertools.pairwise(bounds)]
    workers = [make() for _ in parts]
    if threads == 1:
        workers[0](source, out)
    elif threads:
        workers[0].compile(out)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda worker, part: worker(source[part], out[part]), workers, parts))
