"""Options for the places of results, and checks that the places can be written to before there are results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from lotan.errors import ConfigurationError
from lotan.files import LONGEST_NAME

LONGEST = LONGEST_NAME - len(".unfinished")  # bytes of a file name: a suffix follows it while the file is written
RESULTS: Mapping[str, str | None] = {
    "checkpoint_dir": "DIR",
    "checkpoint_batches": "N",
    "storage_dir": "DIR",
    "resume": None,
    "resume_with": "NAME=NUMBER[,...]",
    "log_dir": "DIR",
    "mlflow": None,
    "report": "FILE",
    "html": "FILE",
    "save": "DIR",
    "save_best": "DIR",
    "quiet": None,
}
"""Options for the places of results, which do not change the run, each with its metavar (None: a flag)."""


def option_name(name: str) -> str:
    """Return the name of an option as the command line has it.

    >>> option_name("log_dir")
    '--log-dir'
    """
    return "--" + name.replace("_", "-")


def add_result_options(parser: argparse._ActionsContainer, **helps: str) -> None:
    """Add options of `RESULTS` to a command.

    Args:
        parser: The parser, or a group of one, to which they are added.
        helps: The help text of each option, in order.
    """
    for name, said in helps.items():
        taken = RESULTS[name]
        form: dict[str, Any] = {"metavar": taken, "type": os.path.expanduser}
        if taken is None:
            form = {"action": "store_true"}
        elif name == "checkpoint_batches":
            form = {"metavar": taken, "type": int}
        elif name == "resume_with":
            form = {"metavar": taken, "type": changes_of}
        parser.add_argument(option_name(name), help=said, **form)


def changes_of(text: str) -> dict[str, float | None]:
    """Return the settings that a run goes on with.

    >>> changes_of("lr=0.001,patience=20"), changes_of("patience=none")
    ({'lr': 0.001, 'patience': 20}, {'patience': None})

    Raises:
        argparse.ArgumentTypeError: a part of the text is no name with a number.
    """
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        try:
            found[name] = None if value == "none" else int(value) if name == "patience" else float(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is no name with a number, as in lr=0.001,patience=20") from None
    return found


def check_outputs(options: argparse.Namespace, *, files: Sequence[str], directories: Sequence[str]) -> None:
    """Check that all results of a training command can be written, before anything is read.

    Args:
        options: The options of the command, which has --checkpoint-dir and --resume.
        files: Names of options for files, such as `report`.
        directories: Names of options for directories, such as `save`.

    Raises:
        ConfigurationError: If a place cannot be written to; the message has the option.
    """
    if getattr(options, "resume_with", None):
        options.resume = True
    if options.resume and options.checkpoint_dir is None:
        raise ConfigurationError("--resume was given without --checkpoint-dir; name the directory to resume from")
    for name in files:
        check_file(option_name(name), getattr(options, name))
    for name in ("checkpoint_dir", *directories):
        check_directory(option_name(name), getattr(options, name))
    from lotan.graph.files import has_graph  # imported here, because it takes longer than --help

    for name in {"save", "save_best"}.intersection(directories):
        if (given := getattr(options, name)) is not None and has_graph(Path(given)):
            raise ConfigurationError(
                f"{option_name(name)} {given} has a saved graph, and a model needs a folder of its own; name another place"
            )
    places: dict[Path, str] = {}
    for name in (*files, "checkpoint_dir", *directories):
        given = getattr(options, name)
        if given is not None and (first := places.setdefault(Path(given).absolute(), name)) != name:
            raise ConfigurationError(
                f"{option_name(first)} and {option_name(name)} are both {given}; name another place"
            )


def check_file(option: str, given: str | None) -> None:
    """Check that a file can be put in a place. Devices and pipes are refused, because files are replaced as a whole.

    Raises:
        ConfigurationError: If the file cannot be written; the message has the option.
    """
    if given is None:
        return
    _check_named(option, given)
    path = Path(given)
    if path.is_dir() or not path.name:
        raise ConfigurationError(f"{option} {given} is a directory; name a file in it")
    # /dev/stdout may lead to a file if it is redirected, but cannot be replaced
    place = path.absolute()
    of_system = place.parent == Path("/dev") or place.is_relative_to("/proc")
    if of_system or (path.exists() and not path.is_file()):
        raise ConfigurationError(f"{option} {given} is a device or a pipe; name an ordinary file")
    _check_parent(option, given, path.parent)


def check_directory(option: str, given: str | None) -> None:
    """Check that a directory exists or can be made.

    Raises:
        ConfigurationError: If it cannot be made or written to; the message has the option.
    """
    if given is not None:
        _check_named(option, given)
        _check_parent(option, given, Path(given))


def _check_named(option: str, given: str) -> None:
    if not given.strip():
        raise ConfigurationError(f"{option} is empty; name a place, or leave the option out")
    if any(len(os.fsencode(part)) > LONGEST for part in Path(given).parts):
        raise ConfigurationError(
            f"{option} {given[:40]}... has a name of more than {LONGEST} bytes; name another place"
        )


def _check_parent(option: str, given: str, directory: Path) -> None:
    """Check that the nearest existing directory at or above `directory` takes new entries. The check leaves nothing behind."""
    nearest = next(place for place in (directory, *directory.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise ConfigurationError(
            f"{option} {given} cannot be written: {nearest} is not a directory; name another place"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{option} {given} cannot be written: no permission in {nearest}; name another place")
    try:  # the user root has every permission, but some file systems take no files at all
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{option} {given} cannot be written: {nearest} takes no files ({error.strerror}); name another place"
        ) from error
