"""Mistakes of a user: which errors are some, and what is said of them in one line of plain words."""

from __future__ import annotations

import difflib
import errno
import re
import sys
from typing import Any

from pipeline.errors import PipelineError
from pipeline.files import FULL, remedy
from pipeline.groups import ranges

OUT_OF_MEMORY = {
    "train": "use fewer or smaller images, hog=coarse, or a packed set (data=packed), which is not held in memory",
    "evaluate": "use fewer or smaller images, or a packed set (data=packed), which is not held in memory",
    "predict": "use a smaller chunk, as in chunk=128",
    "benchmark": "use size=small",
    "pack": "use a smaller image.height and image.width, or fewer data.workers",
}
OUT_OF_GPU_MEMORY = (
    "end other programs on this GPU (nvidia-smi), use fewer images or hog=coarse, or backend=cpu"
)
LISTS = {
    "classifier.gamma": "[0.1,1.0]",
    "preprocess.percentiles": "[2,98]",
    "hog.cells_per_block": "[3,3]",
    "hog.pixels_per_cell": "[8,8]",
}
# What a disk, a file system or the rights of a user say no to is no fault of the program, wherever it surfaces.
SYSTEMS = {
    getattr(errno, name)
    for name in (
        "EACCES",
        "EPERM",
        "EROFS",
        "ENOSPC",
        "EFBIG",
        "EDQUOT",
        "EIO",
        "ENAMETOOLONG",
        "ELOOP",
        "EMFILE",
        "ENFILE",
    )
    if hasattr(errno, name)
}
KINDS = {"Integer": "a whole number", "Float": "a number"}


def is_users(error: Exception) -> bool:
    """Tell an error about what the program was given (one line) from a fault of the program (a traceback)."""
    if isinstance(error, PipelineError | MemoryError):
        return True
    if isinstance(error, OSError) and error.errno in SYSTEMS:
        return True
    if "hydra" not in sys.modules:
        return False
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    # A plain ValueError is the user's only where the schema raised it; below, it is a fault of the program.
    return isinstance(error, HydraException | OmegaConfBaseException) or _from_schema(error)


def _from_schema(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        isinstance(error, ValueError) and trace is not None and trace.tb_frame.f_code is ranges.check.__code__
    )


def one_line(error: BaseException, name: str = "") -> str:
    """Return an error as the command line tells it; `name` is the command."""
    # CuPy's class, by its name: CuPy is not imported here.
    if isinstance(error, MemoryError) and type(error).__name__ == "OutOfMemoryError":
        return f"out of GPU memory ({' '.join(str(error).split()) or 'no detail'}); {OUT_OF_GPU_MEMORY}"
    if isinstance(error, MemoryError):
        way = OUT_OF_MEMORY.get(name, "close other programs")
        return f"out of memory ({str(error) or 'no detail'}); {way}"
    if isinstance(error, OSError) and error.strerror and (error.filename or error.errno in FULL):
        where = str(error.filename or "a file of this run")
        told = f"{where if len(where) <= 100 else where[:100] + '...'}: {error.strerror}"
        return f"{told}; {remedy(error)}" if error.errno in FULL else told
    for fault in (error.__cause__, error):
        key, message = getattr(fault, "full_key", None), getattr(fault, "msg", None)
        if key and message:
            return f"{key}: {_plain_words(key, message.splitlines()[0])}"
    return " ".join(str(error).split())


def _plain_words(key: str, message: str) -> str:
    """Say what OmegaConf says of a value, without the names of its classes."""
    if "ListConfig" in message:
        return f"expected two numbers in brackets: write {key}={LISTS.get(key, '[8,8]')}"
    if "not Optional" in message:
        return "null is not possible; give a value, or leave the setting out"
    found = re.fullmatch(r"Value '(.*)' of type '.*' could not be converted to (\w+)", message)
    if found and found[2] in KINDS:
        return f"Value '{found[1]}' is not {KINDS[found[2]]}"
    found = re.fullmatch(r"(Value '.*' is not) a valid bool.*", message)
    if found:
        return f"{found[1]} true or false"
    found = re.search(r"'(dict|list|DictConfig|ListConfig)'", message)
    if found:
        kind = "in braces" if "ict" in found[1] else "in brackets"
        return f"expected a single value, not several {kind}"
    return message


def hint(word: str, known: Any) -> str:
    """Return the question for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" Did you mean '{near[0]}'?" if near else ""
