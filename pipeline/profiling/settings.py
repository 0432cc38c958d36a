"""Settings as flat keys, and as the words of a command line that gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from typing import Any

from pipeline import config
from pipeline.groups.unused import unused


def leaves(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, plain value) of every setting, nested ones with dots."""
    for one in dataclasses.fields(settings):
        value = getattr(settings, one.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{one.name}.")
        else:
            yield prefix + one.name, value.name if isinstance(value, Enum) else value


def overrides(cfg: config.Train) -> list[str]:
    """Return the words of a command line of ``train`` that give these settings.

    The run folder is left out, and so is what has no effect: ``train`` refuses it.
    """
    without = {"run_dir", *unused(cfg, "train")}
    return [f"{key}={_word(value)}" for key, value in leaves(cfg) if key not in without]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_word, value)) + "]"
    if isinstance(value, str):
        # Hydra's grammar: within quotes a backslash counts only before a quote, and is doubled there.
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + "'"
    return repr(value)
