"""A process that helps to read small files: half of the time of one is Python, which runs one thread at a time.

``processes`` starts this file as a program, ``python -I -S -B helper.py PLAIN SITE DESCRIPTOR WHO COUNT``. It imports
the codecs of Pillow and nothing else. An order is a line of numbers on its standard input. The files' paths, which of
them are taken, and a few slots for pictures lie in memory that all processes share. Of every batch of files it has read
into a slot it tells on its standard output; a byte on its standard input says that a slot is free again. Whatever is
not a plain file is left to the process that gave the order, which knows the rules and the reasons.
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
    from typing import Any, NoReturn

BATCH = 16  # files that are taken at a time
LEFT, DONE = 0, 1  # what became of a file
TOLD = struct.Struct(f"<q{BATCH}s")  # number of a batch, what became of its files
END = -1  # instead of a number: no more batches, and then the processor time in ns


def places(n: int, count: int, slots: int, length: int) -> tuple[int, int, int]:
    """Return where in the memory lie, after the slots: which batches are taken, sizes, and paths.

    Parameters
    ----------
    n : files
    count : processes, of which all but one have slots
    slots : for each
    length : bytes of a picture
    """
    taken = (count - 1) * slots * BATCH * length
    sizes = -(-(taken + -(-n // BATCH)) // 8) * 8
    return taken, sizes, sizes + 8 * n


def turns(n: int, who: int, count: int, taken: Any, start: int = 0) -> Iterator[int]:
    """Yield batches until all are taken, and take them: first the own share, then others' from their ends.

    Nothing locks. Should two processes take a batch in the same instant, both read it, to the same pixels.

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
                yield batch


def files_of(batch: int, n: int) -> range:
    """Return the numbers of the files of a batch."""
    return range(batch * BATCH, min(n, (batch + 1) * BATCH))


def _serve(order: list[int], memory: Any, read: Any, who: int, count: int) -> None:
    n, width, height, padded, most, slots = order
    target, length = (width, height, bool(padded)), width * height
    taken, sizes, paths = places(n, count, slots, length)
    size = struct.unpack_from(f"{n}q", memory, sizes)
    path = memory[paths:].split(b"\0")
    first, free = (who - 1) * slots, slots
    for number, batch in enumerate(turns(n, who, count, memory, taken)):
        if free == 0:
            free = len(os.read(0, slots)) or _orphaned()
        free -= 1
        at = (first + number % slots) * BATCH * length
        state = bytearray(BATCH)
        for k, i in enumerate(files_of(batch, n)):
            try:
                found = read(path[i], size[i], most, target)
            except OSError:  # to be told by who gave the order
                continue
            if found is not None:
                memory[at + k * length : at + (k + 1) * length] = found[2]
                state[k] = DONE
        os.write(1, TOLD.pack(batch, bytes(state)))
    while free < slots:  # so that none is left over for the next order
        free += len(os.read(0, slots - free)) or _orphaned()


def _orphaned() -> NoReturn:
    sys.exit("the process that gave the order is gone")


def _line() -> bytes:
    """Return the next line of the standard input, and nothing behind it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line


def main() -> None:
    """Serve orders until there are no more."""
    from importlib.machinery import SourceFileLoader

    plain, site, *numbers = sys.argv[1:]
    descriptor, who, count = map(int, numbers)
    sys.path.append(site)
    names: dict[str, Any] = {"__name__": "plain"}
    exec(SourceFileLoader("plain", plain).get_code("plain"), names)  # type: ignore[arg-type]
    told = 0
    while line := _line():
        memory = mmap.mmap(descriptor, 0)
        _serve([int(word) for word in line.split()], memory, names["read"], who, count)
        worked = time.process_time_ns()
        os.write(1, TOLD.pack(END, b"%d" % (worked - told)))
        told = worked
        memory.close()


if __name__ == "__main__":
    main()
