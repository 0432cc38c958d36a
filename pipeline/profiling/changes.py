"""Overrides as they are typed, applied to settings without the command line: what is advised is what is run."""

from __future__ import annotations

import json
import shlex
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pipeline import config
from pipeline.errors import ConfigError

Settings = TypeVar("Settings")


def overridden(settings: Settings, text: str) -> Settings:
    """Return the settings with overrides such as ``"hog.dtype=float32 backend.threads=0"``; the old ones stay.

    Raises
    ------
    ConfigError
        If a setting does not exist, or its value cannot be read.
    ValueError
        If a value is out of range.
    """
    changes: dict[str, Any] = {}
    for word in shlex.split(text):
        *groups, last = word.partition("=")[0].split(".")
        node = changes
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = word
    return _replaced(settings, changes)


def _replaced(node: Any, changes: dict[str, Any]) -> Any:
    """Return a node of the settings with all of its changes at once: some are only allowed together."""
    kinds, new = get_type_hints(type(node)), {}
    for key, change in changes.items():
        word = change if isinstance(change, str) else str(next(iter(change.values())))
        if key not in kinds:
            raise ConfigError(f"'{word}' names no setting; write group.setting=value")
        if isinstance(change, dict):
            new[key] = _replaced(getattr(node, key), change)
            continue
        try:
            new[key] = _value(kinds[key], word.partition("=")[2])
        except (KeyError, json.JSONDecodeError) as error:
            raise ConfigError(f"'{word}': the value cannot be read as {kinds[key]}") from error
    return replace(node, **new)


def _value(kind: Any, text: str) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        if text == "null":
            return None
        kind = next(one for one in get_args(kind) if one is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[text]
    return text if kind is str else json.loads(text)


def scratch(cfg: config.Train) -> AbstractContextManager[str]:
    """Return a context with a folder inside ``run_dir``, on the same disk, that is removed at its end."""
    return TemporaryDirectory(prefix=".trial-", dir=Path(cfg.run_dir))


def with_rounds(cfg: config.Train, rounds: int) -> config.Train:
    """Return the settings with so many boosting rounds."""
    return replace(cfg, classifier=replace(cfg.classifier, n_rounds=rounds))


def quiet(done: str) -> None:
    """Tell nobody what is being measured."""


Tell = Callable[[str], None]  # told in a few words what is being measured now
