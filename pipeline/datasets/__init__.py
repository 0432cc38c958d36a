"""Files become one uint8 array: a folder, a packed set, the built-in digits or made-up pictures."""

from pipeline.datasets.images import (
    Images,
    Loaded,
    Progress,
    Rejected,
    TooManyRejected,
    duplicates_across,
    write_rejected,
)
from pipeline.datasets.packing import PackReport, pack
from pipeline.datasets.source import check_unchanged, load, stream, stream_labelled
from pipeline.datasets.split import Split, folds, split, validation_split, with_groups
from pipeline.datasets.stamps import Stamps, stamp_pictures

__all__ = [
    "Images",
    "Loaded",
    "PackReport",
    "Progress",
    "Rejected",
    "Split",
    "Stamps",
    "TooManyRejected",
    "check_unchanged",
    "duplicates_across",
    "folds",
    "load",
    "pack",
    "split",
    "stamp_pictures",
    "stream",
    "stream_labelled",
    "validation_split",
    "with_groups",
    "write_rejected",
]
