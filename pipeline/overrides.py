"""The words of a command line: which are flags, which are settings, and which do not exist."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pipeline import config
from pipeline.config import CONF
from pipeline.errors import ConfigError
from pipeline.files import expanded
from pipeline.groups.unused import OF_THE_MODEL, unused
from pipeline.messages import LISTS, hint, one_line
from pipeline.processor import usable_cores

log = logging.getLogger(__name__)

FLAGS = {"-m", "--multirun", "-r", "--run", "--resolve", "--hydra-help", "--version", "-h", "--help"}
FLAGS_WITH_VALUE = {"-c", "--cfg", "-p", "--package", "-i", "--info", "-cd", "--config-dir"}
CHOICES = {
    "cfg": ("job", "hydra", "all"),
    "info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
LONG = {"-m": "--multirun", "-r": "--run", "-c": "--cfg", "-i": "--info"}
EXCLUSIVE = {"--run", "--multirun", "--cfg", "--info"}
# Paths and regular expressions are free text: they may hold the characters of Hydra's override grammar.
FREE_TEXT = {
    *("data.path", "model", "out", "resume", "split.group_by", "scale.store"),
    *("scale.tls_ca", "scale.tls_cert", "scale.tls_key", "hydra.run.dir", "hydra.sweep.dir"),
}


def groups_of(name: str, extra: Path | None = None) -> dict[str, list[str]]:
    """Return the groups of a command with their options, from the folders that hold them."""
    from omegaconf import OmegaConf

    content: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml"))
    defaults = content["defaults"]
    names = [key for entry in defaults if isinstance(entry, dict) for key in entry if " " not in key]
    roots = [CONF, *([extra] if extra else [])]
    return {g: sorted(p.stem for root in roots for p in (root / g).glob("*.yaml")) for g in names}


def lacking(name: str) -> set[str]:
    """Return the groups that a command does not have."""
    return {folder.name for folder in CONF.iterdir() if folder.is_dir()} - {"hydra", *groups_of(name)}


def in_whole_numbers(name: str, argument: str) -> str:
    """Write a whole number such as 1e6 or 20.0, which Hydra takes for a fraction, as one: 1000000.

    Only for settings that are whole numbers; several values of a sweep one by one.
    """
    key, equals, value = argument.partition("=")
    if not equals or key.lstrip("+") not in _whole_keys(config.SCHEMAS[name]):
        return argument
    return key + equals + ",".join(_as_whole(one) for one in value.split(","))


def _whole_keys(schema: type, prefix: str = "") -> set[str]:
    found = set()
    for name, kind in get_type_hints(schema).items():
        if isinstance(kind, type) and is_dataclass(kind):
            found |= _whole_keys(kind, f"{prefix}{name}.")
        elif kind is int or int in get_args(kind):
            found.add(prefix + name)
    return found


def _as_whole(text: str) -> str:
    if not re.fullmatch(r"[+-]?(\d+\.\d*|\d+(?=[eE])|\.\d+)([eE][+-]?\d{1,2})?", text):
        return text
    number = Decimal(text)
    return str(int(number)) if abs(number) < 10**18 and number == number.to_integral_value() else text


def quoted(argument: str, sweep: bool) -> str:
    """Quote a free-text value that Hydra's grammar would misread, as in data.path=photos(1)."""
    key, equals, value = argument.partition("=")
    if not equals or key.lstrip("+") not in FREE_TEXT or value[:1] in ("'", '"') or value in ("", "null"):
        return argument
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(argument)
        if (parsed.is_sweep_override() and sweep) or parsed.value() == value:
            return argument
    except HydraException:
        pass  # the quoted form below says the same in Hydra's grammar
    # Hydra's grammar: within quotes a backslash counts only before a quote, and is doubled there.
    inner = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"{key}='{inner}'"


def sorted_out(name: str, arguments: Sequence[str]) -> tuple[list[str], list[str], Path | None]:
    """Return the flags (each with its value), the overrides, and the folder of --config-dir."""
    flags: list[str] = []
    overrides: list[str] = []
    extra = None
    known = set(config.keys(config.SCHEMAS[name]))
    rest = iter(arguments)
    for argument in rest:
        flag, _, value = argument.partition("=")
        if flag in FLAGS_WITH_VALUE:
            value = value or next(rest, "")
            choices = CHOICES.get(LONG.get(flag, flag).lstrip("-"), ())
            if not value or (choices and value not in choices):
                wanted = f"one of {', '.join(choices)}" if choices else "a value behind it"
                raise ConfigError(f"{flag} needs {wanted}" + (f", not '{value}'" if value else ""))
            flags += [flag, value]
            extra = Path(value) if flag in ("-cd", "--config-dir") else extra
        elif argument in FLAGS:
            flags.append(argument)
        elif argument.startswith("-"):
            key = flag.lstrip("-")
            advice = f" Settings are key=value without dashes: {key}=..." if key in known else ""
            raise ConfigError(
                f"no flag '{flag}'.{advice or hint(flag, FLAGS | FLAGS_WITH_VALUE)}{_see(name)}"
            )
        else:
            overrides.append(argument)
    _check_flags(flags)
    return flags, overrides, extra


def _check_flags(flags: Sequence[str]) -> None:
    """Refuse flags that do not go together, in our words."""
    given = dict.fromkeys(LONG.get(flag, flag) for flag in flags)  # an ordered set
    modes = [flag for flag in given if flag in EXCLUSIVE]
    if len(modes) > 1:
        raise ConfigError(f"{' and '.join(modes)} exclude each other; give one of them")
    if "--resolve" in given and not {"--cfg", "-h", "--help"} & set(given):
        raise ConfigError("--resolve goes with --cfg, as in --cfg job --resolve")


def check(name: str, overrides: Sequence[str], sweep: bool, extra: Path | None) -> None:
    """Refuse a setting or option that does not exist, before Hydra advises to add it with a +."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, groups = OverridesParser.create(), groups_of(name, extra)
    others = lacking(name)
    known = set(config.keys(config.SCHEMAS[name])) - {"run_dir"}  # Hydra's run folder: hydra.run.dir
    known = {key for key in known if key.partition(".")[0] not in others}
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            meant = _meant(text, name, groups)
            raise ConfigError(f"'{text}' is not of the form key=value{meant}.{_see(name)}")
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            key, _, value = text.partition("=")
            within = value.replace("'", "\\'")
            advice = f"put such a value in two pairs of quotes: \"{key}='{within}'\""
            if value.startswith("(") and key in LISTS:
                advice = f"a list is written in square brackets: {key}={LISTS[key]}"
            reason = one_line(error).partition(" expecting ")[0]  # what follows names the grammar's symbols
            raise ConfigError(f"cannot read '{' '.join(text.split())}' ({reason}); {advice}") from error
        group = override.key_or_group.partition(".")[0]
        if group in others:
            raise ConfigError(_no_group(name, group, text))
        _check_sign(text, override, known | set(groups))
        _check_override(override, known, groups, _see(name))
        if override.is_sweep_override() and not sweep and not override.key_or_group.startswith("hydra"):
            raise ConfigError(f"several values in '{text}' need --multirun; for a list, write key=[1,2]")


def _no_group(name: str, group: str, text: str) -> str:
    """Return the message for a group, or a setting in it, of other commands."""
    text = text.lstrip("+~")
    if name == "predict" and group in OF_THE_MODEL:
        why = f"the model fixes {OF_THE_MODEL[group]}"
    elif name == "evaluate" and group == "scale":
        why = "it works in memory, where train can do without (predict labels any number of images, chunk by chunk)"
    else:
        others = [command for command in config.SCHEMAS if group in groups_of(command)]
        why = f"that is for {' and '.join([', '.join(others[:-1]), others[-1]] if others[1:] else others)}"
    return f"{name} has no group '{group}': {why}; leave {text} out"


def _is_place(text: str) -> bool:
    """Tell whether a word may name a file or folder: there is one, or it is written like one."""
    return any(sign in text for sign in "/\\.~") or expanded(text).exists()


def _meant(text: str, name: str, groups: dict[str, list[str]]) -> str:
    """Return what a word without an equals sign may be meant to say, as the end of a sentence; or nothing."""
    chosen = [f"{group}={text}" for group, options in groups.items() if text in options]
    if chosen:
        return f": write {' or '.join(chosen)}"
    if "data" not in groups or text.startswith("~") or not text.strip():
        return ""
    known = config.keys(config.SCHEMAS[name])
    model = f", and model={text} if it is a model" if "model" in known and text.endswith(".npz") else ""
    return f": write data.path={text} if the images lie there{model}"


def _see(name: str) -> str:
    return f" See: python -m pipeline {name} --help"


def _check_sign(text: str, override: Any, known: set[str]) -> None:
    """Refuse Hydra's + (add) and ~ (remove) for what always exists."""
    key = override.key_or_group
    if key not in known:
        return
    if override.is_delete():
        raise ConfigError(f"'{text}': a setting cannot be taken away; give it another value: {key}=...")
    if override.is_add() and not override.is_force_add():
        raise ConfigError(f"'{text}': {key} exists already; write it without the +")


def _check_override(override: Any, known: set[str], groups: dict[str, list[str]], more: str) -> None:
    key = override.key_or_group
    if key == "hydra" or key.startswith(("hydra.", "hydra/")):
        return
    if key in groups:
        values = override.sweep_iterator() if override.is_sweep_override() else [override.value()]
        for value in values:
            name = "null" if value is None else str(value)
            if name not in groups[key]:
                if key == "data" and _is_place(name):
                    raise ConfigError(
                        f"data={name}: data= chooses among {', '.join(groups[key])}; where the images lie is said "
                        f"with data.path={name}"
                    )
                choices, near = ", ".join(groups[key]), hint(name, groups[key])
                raise ConfigError(f"no option '{name}' for {key}; choose one of: {choices}.{near}")
    elif key not in known:
        near = _same_name(override, known, groups) or hint(key, known | set(groups))
        raise ConfigError(f"no setting '{key}'.{near}{more}")


def _same_name(override: Any, known: set[str], groups: dict[str, list[str]]) -> str:
    """Return the question for settings that have the name given, or nearly so, in another group; or nothing."""
    group, _, last = override.key_or_group.rpartition(".")
    inner = {key: key.rpartition(".")[2] for key in known if "." in key}
    names = [last] if group else difflib.get_close_matches(last, set(inner.values()), 3, 0.8)
    found = sorted(key for key in inner if inner[key] in names)
    if not found:
        return ""
    choices = [f"'{key}'" for key in found[:4]]
    group, value = found[0].partition(".")[0], override.input_line.partition("=")[2]
    if len(found) == 1 and value in groups.get(group, ()):
        choices.insert(0, f"'{group}={value}'")
    return f" Did you mean {' or '.join(choices)}?"


def refuse_unused(name: str, settings: Any, typed: Sequence[str], sweep: bool) -> None:
    """Refuse a setting that was typed and can have no effect; in a sweep, whose other jobs may use it, warn.

    What comes from the files of ``conf/``, and a typed value that is the default, are nobody's mistake; of what a
    saved model fixes, the default is one.

    Parameters
    ----------
    name : the command
    settings : its dataclass
    typed : overrides of the command line, of this job
    sweep : whether it is one job of several

    Raises
    ------
    ConfigError
    """
    without = unused(settings, name)
    for text in typed:
        key = text.partition("=")[0].lstrip("+")
        if key not in without:
            continue
        _, belongs, found, fixed = without[key]
        if not fixed:
            value, default = (_value(one, key) for one in (settings, config.SCHEMAS[name]()))
            if value is None or value == default:
                continue
        told = f"{text.lstrip('+')} has no effect with {found}: {key} belongs to {belongs}"
        if not sweep:
            other = f"give up {found.partition(',')[0]}" if fixed else "choose what it belongs to"
            raise ConfigError(f"{told}; leave it out" + ("" if belongs == "train" else f", or {other}"))
        log.warning("%s", told)


def _value(settings: Any, key: str) -> Any:
    return reduce(getattr, key.split("."), settings)


def warn_of_threads(settings: Any) -> None:
    """Warn of more threads than this process has cores: they gain nothing. Dask's workers may have more cores."""
    backend, scale = getattr(settings, "backend", None), getattr(settings, "scale", None)
    if scale is not None and scale.name is config.ScaleName.dask:
        return
    key = "threads" if backend is None else "backend.threads"
    threads, cores = getattr(backend or settings, "threads", 0), usable_cores()
    if threads > cores:
        log.warning(
            "%s=%d is more than the %d core%s that this process may use: more threads than that gain nothing; "
            "leave it out for one each",
            *(key, threads, cores, "s" * (cores != 1)),
        )
