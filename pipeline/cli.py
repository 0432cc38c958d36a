"""The command line: ``python -m pipeline COMMAND key=value ...`` on Hydra.

Hydra composes ``conf/COMMAND.yaml`` over the schema in :mod:`pipeline.config`. The result becomes plain
dataclasses here and goes to ``run`` in ``pipeline/commands/COMMAND.py``. A user's mistake is told in one line
with exit status 2.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pipeline import config, interrupts, postponed, run_folder
from pipeline.commands import COMMANDS
from pipeline.errors import ConfigError, OutputError
from pipeline.files import atomic, expanded, occupied
from pipeline.interrupts import Stopped
from pipeline.messages import hint, is_users, one_line
from pipeline.overrides import (
    CONF,
    check,
    groups_of,
    in_whole_numbers,
    lacking,
    quoted,
    refuse_unused,
    sorted_out,
    warn_of_threads,
)
from pipeline.reporting import help as texts
from pipeline.reporting.stages import Stages


class Outcome(NamedTuple):
    """How one job ended: its overrides, its figure, and the message of its failure."""

    overrides: tuple[str, ...]
    figure: float | None
    failure: str | None


def main() -> NoReturn:
    """Run the command that the command line names, and exit with its status."""
    started = time.perf_counter()
    gc.disable()  # until the command begins: imports leave no garbage, and looking for it takes a tenth of their time
    _prepare_streams()
    try:
        interrupts.catch_signals()
        sys.exit(_dispatch(sys.argv[1:], started))
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Stopped) else signal.SIGINT
        what = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        advice = error.advice if isinstance(error, Stopped) else ""
        if advice.startswith("after"):  # a round; a checkpoint of it lies on the disk
            _complain(f"{what} {advice}")
        else:
            _complain(f"{what}; nothing that was being written was kept half-finished{advice}")
        sys.exit(128 + number)
    except BrokenPipeError:  # the reader of a pipe went away, as in `... --help | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        gc.enable()


def _prepare_streams() -> None:
    """Make both streams take whatever is printed: closed ones (``>&-``) too, and names their encoding lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  as long as the process
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _raise_stopped(error: Exception) -> None:
    """Raise the signal again where a library, interrupted half-way, made another error of it."""
    try:
        interrupts.check()
    except Stopped as stopped:
        raise stopped from error


def _dispatch(argv: Sequence[str], started: float) -> int:
    briefs = {name: command.brief for name, command in COMMANDS.items()}
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(texts.usage(briefs))
        return 0
    if argv[0] == "--version":
        from pipeline import __version__

        print(f"hogboost {__version__}")
        return 0
    name, arguments = argv[0], list(argv[1:])
    try:
        if name not in COMMANDS:
            raise ConfigError(f"no command '{name}'.{hint(name, COMMANDS)} Commands: {', '.join(COMMANDS)}")
        return _command(name, arguments, started)
    except Exception as error:
        _raise_stopped(error)
        if not is_users(error):
            raise
        _complain(one_line(error, name), name)
        return 2


def _command(name: str, arguments: list[str], started: float) -> int:
    from pipeline import resumed

    config.register(name)
    flags, overrides, extra = sorted_out(name, arguments)
    overrides = bracketed(name, overrides)
    sweep = bool({"-m", "--multirun"} & set(flags))
    overrides = [quoted(in_whole_numbers(name, override), sweep) for override in overrides]
    check(name, overrides, sweep, extra)
    given = {override.partition("=")[0].lstrip("+") for override in overrides}
    if name == "plan":  # Hydra takes no new key into a group without being told to
        overrides = [re.sub(r"^prices=", "++prices=", one) for one in overrides]
    takes_data = name in ("train", "evaluate", "profile", "plan")
    folder = resumed.folder(name, overrides)
    if takes_data and "data.path" in given and not {"data", "data.name"} & given and folder is None:
        overrides.append("data=auto")  # a path alone says that the images come from there
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "hydra.run.dir" and "$" not in value and name != "doctor" and folder is None:
            run_folder.refuse_used(
                Path(value.strip("'\"").replace("\\'", "'")), kept=False
            )  # before Hydra writes there
    if "--version" in flags:
        return _dispatch(["--version"], started)
    if {"-h", "--help"} & set(flags):
        print(_help(name, overrides))
        return 0
    if folder is not None and "--cfg" not in flags and "-c" not in flags:
        overrides += resumed.prepared(folder, given, sweep)
    if {"--cfg", "-c", "--info", "-i", "--hydra-help"} & set(flags):  # nothing is run
        return _run(name, [*overrides, *flags], started, None)
    overrides, notes = run_folder.taken_over(name, overrides)
    with run_folder.sweep_kept(overrides) if sweep else nullcontext():
        return _run(name, [*overrides, *flags], started, notes)  # argparse wants the overrides together


def bracketed(name: str, overrides: Sequence[str]) -> list[str]:
    """Return the overrides with brackets where a list is meant, which may be typed as one name."""
    if name == "plan":  # a group holds one entry
        overrides = [re.sub(r"^machine=\[", "machines=[", one) for one in overrides]
    if name in ("profile", "plan"):
        overrides = [re.sub(r"^(sweep|compare|machines)=(\w+)$", r"\1=[\2]", one) for one in overrides]
    return list(overrides)


def _run(name: str, arguments: list[str], started: float, notes: str | None) -> int:
    """Let Hydra compose the settings, and run the command once, or once per job of a sweep.

    `notes` is the sub-folder of the run folder for what Hydra would write.
    """
    import hydra
    from hydra.errors import HydraException

    outcomes: list[Outcome] = []
    task = _task(name, outcomes, started, notes)
    sys.argv = [f"pipeline {name}", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then hands its errors to us instead of printing and exiting
    try:
        with _composed_once(arguments):
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(task)()
    except (OSError, ValueError) as error:
        cause = error.__cause__ or error
        if outcomes or not isinstance(cause, OSError) or isinstance(cause, HydraException):
            raise
        if cause.filename is None:  # a stream, not the folder
            raise cause from error
        folder = "sweep.dir" if {"-m", "--multirun"} & set(arguments) else "run.dir"
        raise OutputError(
            f"the run folder cannot be written: {cause.filename}: {cause.strerror}; "
            f"start in a folder that you may write, or give another with hydra.{folder}=..."
        ) from error
    if len(outcomes) > 1:
        from pipeline.reporting.tables import sweep_table

        sweep_table(outcomes, "seconds" if name == "profile" else "log-loss")
    return 2 if any(outcome.failure for outcome in outcomes) else 0


@contextmanager
def _composed_once(arguments: Sequence[str]) -> Iterator[None]:
    """Spare Hydra the composition that it makes for ``hydra.mode`` alone, unless something given may name a mode.

    It takes .23 of the 1.75 s of a start. Without a mode Hydra goes by its flags.
    """
    from hydra._internal.hydra import Hydra

    if any(one.lstrip("+").startswith(("hydra=", "hydra.mode", "-cd", "--config-dir")) for one in arguments):
        yield
        return
    composed = Hydra.get_mode
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = composed  # type: ignore[method-assign]


def _refuse_same_out(settings: Any, written: set[str]) -> None:
    """Refuse the file of another job of the same sweep."""
    out = getattr(settings, "out", None)
    if out is None:
        return
    place = os.path.realpath(expanded(out))
    if place in written:
        raise ConfigError(
            f"out={out} was already written by another job of this sweep; let it differ from job to job, as in "
            "'out=labels_${hydra:job.num}.csv', or leave it out"
        )
    written.add(place)


def _task(
    name: str, outcomes: list[Outcome], started: float, notes: str | None
) -> Callable[[Any], float | None]:
    """Return the function that Hydra calls for each job. A user's mistake is recorded, so a sweep goes on."""
    written: set[str] = set()  # what out= of the jobs so far names

    def task(cfg: Any) -> float | None:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        given: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
        overrides = tuple(given)
        outcomes.append(Outcome(overrides, None, "failed"))  # stands if an unforeseen error passes through
        try:
            folder = Path(HydraConfig.get().runtime.output_dir)
            with nullcontext() if name == "doctor" else occupied(folder):
                settings = _settings(cfg, name, notes)
                _refuse_same_out(settings, written)
                if name not in ("benchmark", "doctor", "pack"):
                    postponed.import_sklearn()
                run = importlib.import_module(f"pipeline.commands.{name}").run
                gc.enable()
                figure = run(settings, Stages(started if len(outcomes) == 1 else None, overrides))
        except Exception as error:
            _raise_stopped(error)
            if not is_users(error):
                raise
            message = one_line(error, name)
            outcomes[-1] = Outcome(overrides, None, message)
            _complain(message, name)
            return None
        outcomes[-1] = Outcome(overrides, figure, None)
        return figure

    task.__module__ = f"pipeline.commands.{name}"  # Hydra names the job, its folder and its log after it
    return task


def _settings(cfg: Any, name: str, notes: str | None) -> Any:
    """Return the composed settings as dataclasses, and keep them, resolved, in the run folder."""
    import logging

    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    from pipeline import resumed

    OmegaConf.update(cfg, "run_dir", HydraConfig.get().runtime.output_dir)
    resuming = name == "train" and cfg.resume is not None
    if resuming:
        cfg = resumed.settings(cfg, list(HydraConfig.get().overrides.task))
    elif name != "doctor":
        run_folder.refuse_used(Path(cfg.run_dir), kept=True)
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise ConfigError(f"{missing[0]} must be given: {missing[0]}=...")
    logging.captureWarnings(True)
    settings: Any = OmegaConf.to_object(cfg)  # runs the range checks of the schema
    sweep = HydraConfig.get().mode is RunMode.MULTIRUN
    refuse_unused(name, settings, list(HydraConfig.get().overrides.task), sweep)
    warn_of_threads(settings)
    if notes is not None and not resuming:  # what the run began with stays as it is
        run_folder.write_notes(cfg, Path(settings.run_dir) / notes)
        with atomic(Path(settings.run_dir) / "config.yaml") as stream:
            stream.write(OmegaConf.to_yaml(cfg, resolve=True))
    return settings


def _complain(message: str, name: str = "") -> None:
    sys.stdout.flush()
    print(f"pipeline {name}".rstrip() + f": {message}", file=sys.stderr)


def _help(name: str, overrides: Sequence[str]) -> str:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        values = OmegaConf.to_container(compose(name, list(overrides)), resolve=False)
    command = COMMANDS[name]
    others = lacking(name)
    rows = [row for row in texts.settings(config.SCHEMAS[name], values)  # type: ignore[arg-type]
            if row[0].partition(".")[0] not in others]  # fmt: skip
    return texts.command_help(name, command.about, groups_of(name), rows, command.examples)
