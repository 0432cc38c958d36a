"""A process that helps to read small files: half of the time of one is Python, which runs one thread at a time.

``processes`` starts this file as a program, ``python -I -S helper.py PLAIN SITE DESCRIPTOR WHO COUNT``. It imports the
codecs of Pillow and nothing else, and is at work 15 ms later. An order is a line of numbers on its standard input, the
answer, when it is done, the processor time in ns; where the files lie, which of them are taken, and the pixels are in
memory that all processes share. Whatever is not a plain file is left to the process that gave the order, which knows
the rules and the reasons.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

BATCH = 16  # files that are taken at a time
UNREAD, DONE, LEFT = 0, 1, 2  # what became of a file


def places(n: int, tail: int) -> tuple[int, int, int, int]:
    """Return where `tail` bytes into the memory lie: batches taken, what became of each file, sizes, and paths."""
    files = tail + -(-n // BATCH)
    sizes = -(-(files + n) // 8) * 8
    return tail, files, sizes, sizes + 8 * n


def turns(n: int, who: int, count: int, taken: Any, start: int = 0) -> Iterator[range]:
    """Yield batches of files until all are taken, and take them: first the own share, then others' from their ends.

    Nothing locks. Should two processes take a batch in the same instant, both read it and write the same pixels.

    Parameters
    ----------
    n : files
    who, count : number of this process, and of all
    taken : mutable bytes, one for each batch from `start` on
    """
    batches = -(-n // BATCH)
    for k in range(count):
        other = (who + k) % count
        share = range(batches * other // count, batches * (other + 1) // count)
        for batch in share if k == 0 else reversed(share):
            if not taken[start + batch]:
                taken[start + batch] = 1
                yield range(batch * BATCH, min(n, (batch + 1) * BATCH))


def _serve(order: list[int], memory: mmap.mmap, read: Any, who: int, count: int, parent: int) -> None:
    n, tail, width, height, padded, most = order
    taken, files, sizes, paths = places(n, tail)
    size = struct.unpack_from(f"{n}q", memory, sizes)
    path = memory[paths:].split(b"\0")
    target, length = (width, height, bool(padded)), width * height
    for batch in turns(n, who, count, memory, taken):
        if os.getppid() != parent:
            sys.exit("the process that gave the order is gone")
        for i in batch:
            try:
                found = read(path[i], size[i], most, target)
            except OSError:  # to be told by who gave the order
                found = None
            if found is not None:
                memory[i * length : (i + 1) * length] = found[2]
            memory[files + i] = LEFT if found is None else DONE


def main() -> None:
    """Serve orders until there are no more."""
    from importlib.machinery import SourceFileLoader

    plain, site, *numbers = sys.argv[1:]
    descriptor, who, count = map(int, numbers)
    parent = os.getppid()
    sys.path.append(site)
    names: dict[str, Any] = {"__name__": "plain"}
    exec(SourceFileLoader("plain", plain).get_code("plain"), names)  # type: ignore[arg-type]
    told = 0
    for line in sys.stdin.buffer:
        with mmap.mmap(descriptor, 0) as memory:
            _serve([int(word) for word in line.split()], memory, names["read"], who, count, parent)
        worked = time.process_time_ns()
        os.write(1, b"%d\n" % (worked - told))
        told = worked


if __name__ == "__main__":
    main()
