"""The one place that turns the settings ``data`` and ``image`` into pictures: all at once, or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from pipeline import config
from pipeline.config import DataName
from pipeline.datasets.chunks import gather, packed, parts, stream_files
from pipeline.datasets.digits import count_digits, read_digits
from pipeline.datasets.folder import Entry, Listing, count_up_to, scan
from pipeline.datasets.images import Images, Loaded, Progress, allocate, too_many
from pipeline.datasets.packed import read_packed
from pipeline.datasets.parallel import decoding, enough, started
from pipeline.datasets.stamps import (
    Stamps,
    check_entries,
    check_packed,
    stamp_entries,
    stamp_file,
    stamp_pictures,
)
from pipeline.datasets.synthetic import make_synthetic
from pipeline.datasets.whereabouts import labelled_listing, reading, resolve
from pipeline.errors import ConfigError, DataError
from pipeline.spans import span


def load(
    data: config.Data,
    image: config.Image,
    progress: Progress | None = None,
    expected: Stamps | None = None,
    classes: int = 2,
) -> Loaded:
    """Read a labelled set for training or evaluation.

    Parameters
    ----------
    data, image : settings
    progress : callable, optional
        Called as ``progress(done, total)`` in this thread.
    expected : Stamps, optional
        What the set was when it was read before; it must be the same still.
    classes : int
        Fewest classes: a saved model can be evaluated on pictures of a single one.

    Returns
    -------
    Loaded
        Pictures in a fixed order. Of a packed set they are a memory map: see :func:`check_unchanged`.

    Raises
    ------
    ConfigError
        When settings contradict each other.
    DataError
        When there is no such set, it has no labels, too few classes, or is not the one expected;
        ``TooManyRejected`` above ``data.max_rejected``; ``ChangedError`` if a file changed or vanished after it was
        listed.
    """
    with reading(data):
        loaded = _load(data, image, progress, expected)
        _require_classes(loaded.images, data, classes)
        return loaded


def check_unchanged(loaded: Loaded) -> None:
    """Find out whether a set that ``load`` mapped is the same still: to be asked when its pixels have been read.

    Raises
    ------
    ChangedError
        If it is not. Of other sets ``load`` itself says so.
    """
    if loaded.mapped is not None:
        check_packed(loaded.mapped, loaded.stamps)


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
        loaded = Loaded(images, [], {"read": perf_counter() - begin, "decode": 0.0}, stamps, path)
    elif kind is DataName.digits:
        loaded = Loaded(read_digits(image), [], {"read": 0.0, "decode": perf_counter() - begin})
    elif kind is DataName.synthetic:
        images = make_synthetic(data, image, progress=progress)
        loaded = Loaded(images, [], {"read": 0.0, "decode": perf_counter() - begin})
    else:
        raise DataError(f"data.path={path}: one file is no labelled set; expected a folder or a packed set")
    if expected is not None and loaded.stamps is None:
        expected.compare(stamp_pictures(loaded.images), f"data={data.name.value}")
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
        all is sure to exceed ``data.max_rejected``; the chunk that tips it is not yielded. ``ChangedError`` at the
        end, if a packed set changed meanwhile; of a file of a folder counts what it is when it is read.
    """
    if chunk < 1:
        raise ConfigError(f"chunk={chunk}: expected at least 1 picture")
    with reading(data):
        return _told(_stream(data, image, chunk, progress), data)


def stream_labelled(
    data: config.Data,
    image: config.Image,
    chunk: int | Callable[[int], int],
    progress: Progress | None = None,
    expected: Stamps | None = None,
) -> tuple[Stamps | None, Iterator[Loaded]]:
    """Return the stamps of the files, None for pictures that are made, and the pictures that ``load`` gives.

    They come in the same order, a chunk at a time. With `expected` the files must be what they were. `chunk` may be a
    function of the number of files or pictures: it is asked once they are listed, and the list is in memory.

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
            rows = _rows(chunk, len(listing.entries))
            chunks = stream_files(path, listing, data, image, chunk=rows, progress=progress, same=True)
        elif kind is None:
            raise DataError(
                f"data.path={path}: one file is no labelled set; expected a folder or a packed set"
            )
        else:
            stamps = stamp_file(path) if path is not None and path.is_file() else None
            chunks = _stream(data, image, chunk, progress, stamps)
        if expected is not None and (stamps is not None or path is not None):
            expected.compare(stamps, f"data.path={path}")
        return stamps, _told(chunks, data)


def _told(chunks: Iterator[Loaded], data: config.Data) -> Iterator[Loaded]:
    with reading(data):
        yield from chunks


def _rows(chunk: int | Callable[[int], int], total: int) -> int:
    return chunk if isinstance(chunk, int) else chunk(total)


def _stream(
    data: config.Data,
    image: config.Image,
    chunk: int | Callable[[int], int],
    progress: Progress | None,
    stamps: Stamps | None = None,
) -> Iterator[Loaded]:
    kind, path = resolve(data)
    if kind is DataName.folder:
        assert path is not None
        listing = scan(path)
        rows = _rows(chunk, len(listing.entries))
        return stream_files(path, listing, data, image, chunk=rows, progress=progress)
    if kind is DataName.packed:
        assert path is not None
        if stamps is None and path.is_file():
            stamps = stamp_file(path)
        images = read_packed(path, image, resizable=False)
        return packed(path, images, _rows(chunk, len(images)), progress, stamps)
    if kind is DataName.digits:
        n = count_digits()
        return parts(n, _rows(chunk, n), progress, lambda a, b: read_digits(image, a, b))
    if kind is DataName.synthetic:
        return parts(data.n, _rows(chunk, data.n), progress, lambda a, b: make_synthetic(data, image, a, b))
    assert path is not None
    single = Listing(entries=[Entry(path.name, str(path), -1)])
    return stream_files(path, single, data, image, chunk=_rows(chunk, 1), progress=progress)


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
        check_entries(entries)  # before it is told that what has vanished cannot be read
    images = gather(entries, outcome, pixels, listing.class_names)
    rejected += [found for found in outcome if found is not None]
    decoded = perf_counter()
    total = len(images) + len(rejected)
    if len(rejected) > data.max_rejected * total or not len(images):
        raise too_many(path, rejected, total, data)
    return Loaded(images, rejected, {"read": read - begin, "decode": decoded - read}, stamps)


def _require_classes(images: Images, data: config.Data, classes: int) -> None:
    where = f"data.path={data.path}" if data.path else f"data={data.name.value}"
    if images.labels is None:
        raise DataError(f"{where}: holds no labels; training and evaluation need a class for each picture")
    if len(images.class_names) < classes:
        found = ", ".join(images.class_names)
        raise DataError(f"{where}: a single class ({found}); expected at least two")
