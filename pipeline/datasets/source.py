"""The one place that turns the settings ``data`` and ``image`` into pictures: all at once, or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.digits import count_digits, read_digits
from pipeline.datasets.folder import Entry, Listing, count_up_to, scan
from pipeline.datasets.images import Images, Loaded, Progress, Rejected, TooManyRejected, allocate
from pipeline.datasets.packed import read_packed
from pipeline.datasets.parallel import decoding, enough, started
from pipeline.datasets.stamps import Stamps, stamp_entries, stamp_file, stamp_pictures
from pipeline.datasets.synthetic import make_synthetic
from pipeline.errors import ConfigError, DataError
from pipeline.files import expanded
from pipeline.spans import span

PACKED_SUFFIXES = (".npz", ".npy")


def load(
    data: config.Data,
    image: config.Image,
    progress: Progress | None = None,
    expected: Stamps | None = None,
) -> Loaded:
    """Read a labelled set for training or evaluation.

    Parameters
    ----------
    data, image : settings
    progress : callable, optional
        Called as ``progress(done, total)`` in this thread.
    expected : Stamps, optional
        What the set was when it was read before; it must be the same still.

    Returns
    -------
    Loaded
        Pictures in a fixed order. Of a packed set they are a memory map.

    Raises
    ------
    ConfigError
        When settings contradict each other.
    DataError
        When there is no such set, it has no labels, a single class, or is not the one expected;
        ``TooManyRejected`` above ``data.max_rejected``.
    """
    with reading(data):
        return _load(data, image, progress, expected)


def _load(
    data: config.Data, image: config.Image, progress: Progress | None, expected: Stamps | None
) -> Loaded:
    kind, path = resolve(data)
    begin = perf_counter()
    if kind is DataName.folder:
        assert path is not None
        loaded = _load_folder(path, data, image, progress, expected)
    elif kind is DataName.packed:
        assert path is not None
        stamps = stamp_file(path) if path.is_file() else None
        if expected is not None:
            expected.compare(stamps, str(path))
        images = read_packed(path, image)
        loaded = Loaded(images, [], {"read": perf_counter() - begin, "decode": 0.0}, stamps)
    elif kind is DataName.digits:
        loaded = Loaded(read_digits(image), [], {"read": 0.0, "decode": perf_counter() - begin})
    elif kind is DataName.synthetic:
        images = make_synthetic(data, image, progress=progress)
        loaded = Loaded(images, [], {"read": 0.0, "decode": perf_counter() - begin})
    else:
        raise DataError(f"data.path={path}: one file is no labelled set; expected a folder or a packed set")
    if expected is not None and loaded.stamps is None:
        expected.compare(stamp_pictures(loaded.images), f"data={data.name.value}")
    _require_classes(loaded.images, data)
    return loaded


def stream(
    data: config.Data, image: config.Image, chunk: int, progress: Progress | None = None
) -> Iterator[Loaded]:
    """Yield a set of any kind, a chunk of pictures at a time; memory does not grow with their number.

    Labels are given where the source has them: a packed set with labels, or a folder all of whose files lie
    in class folders. A flat folder and a single file have none. A chunk may be empty when all its files were
    rejected.

    Raises
    ------
    ConfigError, DataError
        As ``load``, at the call. ``TooManyRejected`` on the way, as soon as the share of rejected files among
        all is sure to exceed ``data.max_rejected``; the chunk that tips it is not yielded.
    """
    if chunk < 1:
        raise ConfigError(f"chunk={chunk}: expected at least 1 picture")
    with reading(data):
        return _told(_stream(data, image, chunk, progress), data)


def stream_labelled(
    data: config.Data,
    image: config.Image,
    chunk: int,
    progress: Progress | None = None,
    expected: Stamps | None = None,
) -> tuple[Stamps | None, Iterator[Loaded]]:
    """Return the stamps of the files, None for pictures that are made, and the pictures that ``load`` gives.

    They come in the same order, a chunk at a time. With `expected` the files must be what they were.

    Raises
    ------
    ConfigError, DataError
        As ``load``; on the way where ``load`` would decode.
    """
    with reading(data):
        kind, path = resolve(data)
        if kind is DataName.folder:
            assert path is not None
            listing = labelled_listing(path)
            stamps: Stamps | None = stamp_entries(listing.entries)
            chunks = stream_files(path, listing, data, image, chunk=chunk, progress=progress)
        elif kind is None:
            raise DataError(
                f"data.path={path}: one file is no labelled set; expected a folder or a packed set"
            )
        else:
            stamps = stamp_file(path) if path is not None and path.is_file() else None
            chunks = _stream(data, image, chunk, progress)
        if expected is not None and (stamps is not None or path is not None):
            expected.compare(stamps, f"data.path={path}")
        return stamps, _told(chunks, data)


def _told(chunks: Iterator[Loaded], data: config.Data) -> Iterator[Loaded]:
    with reading(data):
        yield from chunks


@contextmanager
def reading(data: config.Data) -> Iterator[None]:
    """Say of what the system refuses that it is the set, not the file that is being written meanwhile."""
    try:
        yield
    except OSError as error:
        path = str(data.path)
        path = path if len(path) <= 100 else path[:100] + "..."
        raise DataError(f"data.path={path}: cannot be read: {error.strerror or error}") from error


def _stream(
    data: config.Data, image: config.Image, chunk: int, progress: Progress | None
) -> Iterator[Loaded]:
    kind, path = resolve(data)
    if kind is DataName.folder:
        assert path is not None
        return stream_files(path, scan(path), data, image, chunk=chunk, progress=progress)
    if kind is DataName.packed:
        assert path is not None
        return slices(read_packed(path, image, resizable=False), chunk, progress)
    if kind is DataName.digits:
        return parts(count_digits(), chunk, progress, lambda a, b: read_digits(image, a, b))
    if kind is DataName.synthetic:
        return parts(data.n, chunk, progress, lambda a, b: make_synthetic(data, image, a, b))
    assert path is not None
    single = Listing(entries=[Entry(path.name, str(path), -1)])
    return stream_files(path, single, data, image, chunk=chunk, progress=progress)


def resolve(data: config.Data) -> tuple[DataName | None, Path | None]:
    """Return the kind of source, None for a single picture file, and the path."""
    reads_files = data.name in (DataName.auto, DataName.folder, DataName.packed)
    if not reads_files:
        if data.path is not None:
            raise ConfigError(
                f"data.path={data.path} is given, but data={data.name.value} reads no files: "
                "add data=folder or data=packed"
            )
        return data.name, None
    if not data.path:
        raise ConfigError(
            f"data={data.name.value} needs data.path: give a folder of pictures or a packed set"
        )
    path = expanded(data.path)
    packed = path.suffix.lower() in PACKED_SUFFIXES and not path.is_dir()
    if data.name is DataName.packed:
        if path.is_dir():
            raise ConfigError(f"data.path={path} is a folder, but data=packed reads a file: add data=folder")
        if not packed:
            raise ConfigError(f"data.path={path}: a packed set ends in .npz or .npy")
        return DataName.packed, path
    if data.name is DataName.folder:
        if packed and path.is_file():
            raise ConfigError(f"data.path={path} is a packed set: add data=packed")
        return DataName.folder, path
    if not path.exists():
        raise DataError(f"data.path={path}: no such file or folder")
    if path.is_dir():
        return DataName.folder, path
    if not path.is_file():
        raise DataError(f"data.path={path}: a device or pipe; expected a folder, a packed set or a picture")
    return (DataName.packed, path) if packed else (None, path)


def labelled_listing(path: Path) -> Listing:
    """Return the pictures in class folders, and as rejected what lies beside them."""
    listing = scan(path)
    if not listing.class_names:
        raise DataError(
            f"data.path={path}: {len(listing.entries)} files but no class folders; "
            "expected data.path/CLASS/picture"
        )
    entries = [entry for entry in listing.entries if entry.label >= 0]
    filled = {entry.label for entry in entries}
    empty = [name for label, name in enumerate(listing.class_names) if label not in filled]
    if entries and empty:
        more = f" (and {len(empty) - 1} more)" if len(empty) > 1 else ""
        raise DataError(
            f"data.path={path}: the class folder {empty[0]} holds no pictures{more}; add some, or remove it"
        )
    rejected = list(listing.rejected)
    rejected += [Rejected(entry.name, "lies beside the class folders: no class") for entry in listing.loose]
    return replace(listing, entries=entries, rejected=rejected)


def _load_folder(
    path: Path,
    data: config.Data,
    image: config.Image,
    progress: Progress | None,
    expected: Stamps | None,
) -> Loaded:
    begin = perf_counter()
    # processes that may help get ready while the files are listed
    with started(count_up_to(enough(data), path), data, image) as helpers:
        listing = labelled_listing(path)
        stamps = stamp_entries(listing.entries)
        if expected is not None:
            expected.compare(stamps, f"data.path={path}")
        entries, rejected = listing.entries, list(listing.rejected)
        pixels = allocate(len(entries), image)
        read = perf_counter()
        with span("decode"), decoding(entries, data, image, helpers) as decoder:
            outcome = decoder.decode(entries, pixels, progress)
    images = _gather(entries, outcome, pixels, listing.class_names)
    rejected += [found for found in outcome if found is not None]
    decoded = perf_counter()
    total = len(images) + len(rejected)
    if len(rejected) > data.max_rejected * total or not len(images):
        raise too_many(path, rejected, total, data)
    return Loaded(images, rejected, {"read": read - begin, "decode": decoded - read}, stamps)


def stream_files(
    path: Path,
    listing: Listing,
    data: config.Data,
    image: config.Image,
    *,
    chunk: int,
    progress: Progress | None,
) -> Iterator[Loaded]:
    """Yield the pictures of a listing, `chunk` files at a time; TooManyRejected as soon as they are."""
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
            images = _gather(part, outcome, pixels, names)
            found += [reason for reason in outcome if reason is not None]
            rejected += found
            if len(rejected) > data.max_rejected * total:
                raise too_many(path, rejected, total, data)
            if progress is not None:
                progress(start + len(part), len(entries))
            yield Loaded(images, found, {"read": 0.0, "decode": perf_counter() - begin})
            found = []


def slices(images: Images, chunk: int, progress: Progress | None) -> Iterator[Loaded]:
    """Yield pictures that are in memory or mapped, `chunk` at a time, copied."""
    for start in range(0, len(images), chunk):
        begin = perf_counter()
        part = images.subset(slice(start, start + chunk))
        part = replace(part, pixels=np.array(part.pixels))  # read the pages here, once
        if progress is not None:
            progress(start + len(part), len(images))
        yield Loaded(part, [], {"read": perf_counter() - begin, "decode": 0.0})


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


def _gather(
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


def too_many(path: Path, rejected: list[Rejected], total: int, data: config.Data) -> TooManyRejected:
    """Return the error of a set of `total` files of which too many were rejected."""
    first = rejected[0]
    share = 100 * len(rejected) / total
    return TooManyRejected(
        f"data.path={path}: {len(rejected)} of {total} files rejected ({share:.1f} %), data.max_rejected is "
        f"{data.max_rejected:g}; first: {first.path}: {first.reason}; "
        "mend or remove the files, or raise data.max_rejected",
        rejected,
    )


def _require_classes(images: Images, data: config.Data) -> None:
    where = f"data.path={data.path}" if data.path else f"data={data.name.value}"
    if images.labels is None:
        raise DataError(f"{where}: holds no labels; training and evaluation need a class for each picture")
    if len(images.class_names) < 2:
        found = ", ".join(images.class_names)
        raise DataError(f"{where}: a single class ({found}); expected at least two")
