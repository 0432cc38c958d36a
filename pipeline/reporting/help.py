"""The text that ``python -m pipeline [COMMAND] --help`` prints."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any


def usage(briefs: Mapping[str, str]) -> str:
    """Return the overview of all commands."""
    width = max(map(len, briefs))
    lines = [f"  {name:{width}}  {brief}" for name, brief in briefs.items()]
    return "\n".join(
        [
            "usage: python -m pipeline COMMAND [key=value ...]",
            "",
            *lines,
            "",
            "Settings and examples of one command: python -m pipeline COMMAND --help",
            "First steps:                          python -m pipeline train",
        ]
    )


def _comments(schema: type) -> dict[str, str]:
    """Return the trailing comment of each field of a dataclass, read from its source."""
    found: dict[str, str] = {}
    for cls in reversed(schema.__mro__):
        if not dataclasses.is_dataclass(cls):
            continue
        try:
            source = inspect.getsource(cls)
        except OSError:  # byte code without source: the help goes without the comments
            continue
        for name, text in re.findall(r"^    (\w+): [^#\n]*#\s*(.+)$", source, flags=re.MULTILINE):
            found[name] = text
    return found


def _choices(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(item.name for item in kind)
    return ""


def settings(schema: type, values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (key, value, remark) of every setting of a schema, nested ones with dots.

    Parameters
    ----------
    schema : dataclass
    values : mapping
        The composed settings as plain containers.
    prefix : str
    """
    notes = _comments(schema)
    kinds = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind, value = kinds[field.name], values.get(field.name)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from settings(kind, value or {}, f"{prefix}{field.name}.")
        elif field.name != "run_dir":
            remark = "; ".join(filter(None, (notes.get(field.name, ""), _choices(kind))))
            yield prefix + field.name, _shown(value), remark


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return value.name
    if value == "???":
        return "(required)"
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value) or "''"


def command_help(
    name: str,
    about: str,
    groups: Mapping[str, Sequence[str]],
    rows: Sequence[tuple[str, str, str]],
    examples: Sequence[str],
) -> str:
    """Return the help of one command: what it does, groups with their options, settings, examples."""
    lines = [f"usage: python -m pipeline {name} [key=value ...]", "", about, ""]
    if groups:
        width = max(map(len, groups))
        lines += ["Groups, each a bundle of settings (group=option):"]
        lines += [f"  {group:{width}}  {', '.join(options)}" for group, options in groups.items()]
        lines += [""]
    key_width, value_width = (max(len(row[i]) for row in rows) for i in (0, 1))
    lines += ["Settings with their present values (key=value):"]
    lines += [f"  {key:{key_width}}  {value:{value_width}}  {note}".rstrip() for key, value, note in rows]
    lines += ["", "Examples:"]
    lines += [f"  python -m pipeline {name} {example}".rstrip() for example in examples]
    kept = ", which must hold no model yet" if name == "train" else ""
    lines += [
        "",
        f"hydra.run.dir=FOLDER names the run folder{kept}. --multirun runs every combination",
        "of values separated by commas; --cfg job shows the settings as YAML; --hydra-help tells Hydra's own",
        "options.",
    ]
    return "\n".join(lines)
