"""Pictures of a source a chunk at a time: of a list of files, of pictures at hand, or of made ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from pipeline import config
from pipeline.datasets.folder import Entry, Listing
from pipeline.datasets.images import Images, Loaded, Progress, Rejected, allocate, too_many
from pipeline.datasets.parallel import decoding
from pipeline.datasets.stamps import Stamps, check_entries, check_packed


def stream_files(
    path: Path,
    listing: Listing,
    data: config.Data,
    image: config.Image,
    *,
    chunk: int,
    progress: Progress | None,
    same: bool = False,
    elsewhere: bool = False,
) -> Iterator[Loaded]:
    """Yield the pictures of a listing, `chunk` files at a time.

    Parameters
    ----------
    same : whether each file must be what was listed still when its pictures have been taken
    elsewhere : whether it may have been listed on another machine

    Raises
    ------
    TooManyRejected
        As soon as they are.
    ChangedError
        If a file is not what was listed.
    """
    labelled = bool(listing.class_names) and not listing.loose
    names = listing.class_names if labelled else ()
    entries = listing.entries
    total = len(entries) + len(listing.rejected)
    rejected: list[Rejected] = []
    found = list(listing.rejected)  # reported with the first chunk
    with decoding(entries, data, image) as decoder:
        for start in range(0, max(len(entries), 1), chunk):
            begin = perf_counter()
            part = entries[start : start + chunk]
            pixels = allocate(len(part), image)
            outcome = decoder.decode(part, pixels)
            if same:  # what has vanished is no file that cannot be read
                check_entries([one for one, bad in zip(part, outcome, strict=True) if bad], elsewhere)
            images = gather(part, outcome, pixels, names)
            found += [reason for reason in outcome if reason is not None]
            rejected += found
            if len(rejected) > data.max_rejected * total:
                raise too_many(path, rejected, total, data)
            if progress is not None:
                progress(start + len(part), len(entries))
            yield Loaded(images, found, {"read": 0.0, "decode": perf_counter() - begin})
            found = []
            if same:
                check_entries(part, elsewhere)


def slices(images: Images, chunk: int, progress: Progress | None) -> Iterator[Loaded]:
    """Yield pictures that are in memory or mapped, `chunk` at a time, copied."""
    for start in range(0, len(images), chunk):
        begin = perf_counter()
        part = images.subset(slice(start, start + chunk))
        part = replace(part, pixels=np.array(part.pixels))  # read the pages here, once
        if progress is not None:
            progress(start + len(part), len(images))
        yield Loaded(part, [], {"read": perf_counter() - begin, "decode": 0.0})


def packed(
    path: Path,
    images: Images,
    chunk: int,
    progress: Progress | None,
    stamps: Stamps | None,
    elsewhere: bool = False,
) -> Iterator[Loaded]:
    """Yield the pictures of a packed set as :func:`slices` does; ChangedError if it was not what is stamped meanwhile.

    It is asked after the last: whoever stops before has no set.
    """
    yield from slices(images, chunk, progress)
    check_packed(path, stamps, elsewhere)


def parts(
    total: int, chunk: int, progress: Progress | None, make: Callable[[int, int], Images]
) -> Iterator[Loaded]:
    """Yield pictures that make(begin, end) makes, `chunk` at a time."""
    for start in range(0, total, chunk):
        begin = perf_counter()
        images = make(start, min(start + chunk, total))
        if progress is not None:
            progress(start + len(images), total)
        yield Loaded(images, [], {"read": 0.0, "decode": perf_counter() - begin})


def gather(
    entries: list[Entry],
    outcome: list[Rejected | None],
    pixels: np.ndarray,
    class_names: tuple[str, ...],
) -> Images:
    """Close the gaps that rejected files left in ``pixels``, in place, and name the rest."""
    good = [i for i, found in enumerate(outcome) if found is None]
    if len(good) < len(entries):
        for to, source in enumerate(good):
            if to != source:
                pixels[to] = pixels[source]
        pixels = pixels[: len(good)]
    labels = np.array([entries[i].label for i in good], np.intp) if class_names else None
    return Images(pixels, labels, class_names, [entries[i].name for i in good])
