"""The command of a run, recorded in its folder as the options of `lotan train`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from lotan.cli.outputs import RESULTS
from lotan.errors import ConfigurationError
from lotan.files import expanded, write_atomically

COMMAND = "command.json"
PLACES = ("graph", "vertices", "edges", "keys")
"""Options that may be paths. They are written as absolute paths."""


def write_command(options: argparse.Namespace, folder: str | Path) -> None:
    """Write the options that determine a run into its folder.

    A run that went on with other settings is not determined by options, so that its folder has none.

    Args:
        options: The options of `lotan train`.
        folder: The folder of the run.
    """
    if options.resume_with:
        (Path(folder) / COMMAND).unlink(missing_ok=True)
        return
    kept = {name: value for name, value in vars(options).items() if name not in ("command", *RESULTS)}
    for name in PLACES:
        if kept[name] is not None and _exists(kept[name]):
            kept[name] = str(expanded(kept[name]).resolve())
    file, colon, factory = kept["model"].rpartition(":")
    if colon and file.endswith(".py"):
        kept["model"] = f"{expanded(file).resolve()}:{factory}"
    Path(folder).mkdir(parents=True, exist_ok=True)
    content = json.dumps(kept, indent=2) + "\n"
    write_atomically(Path(folder) / COMMAND, lambda stream: stream.write(content.encode()))


def _exists(place: str) -> bool:
    try:
        return expanded(place).exists()
    except OSError:  # a query, which is too long for a file's name
        return False


def read_command(folder: str, known: argparse.Namespace) -> dict[str, Any]:
    """Return the options in a run's folder.

    Args:
        folder: The folder of the run.
        known: The options of `lotan train` with their defaults. They stand in for options that an older version did not
            write.

    Raises:
        ConfigurationError: If there are no options, or if this version cannot use them.
    """
    path = Path(folder) / COMMAND
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(
            f"{folder} holds no {COMMAND} ({error.strerror}): name a folder that `lotan train --log-dir` wrote, or "
            "that of a model of `lotan tune --log-dir`"
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is no JSON: {error}; name a folder that `lotan train --log-dir` wrote"
        ) from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no options; name a folder that `lotan train --log-dir` wrote")
    strange = sorted(set(found) - set(vars(known)))
    if strange:
        raise ConfigurationError(f"{path} has {', '.join(strange)}, of which this version of `lotan train` knows none")
    return {**vars(known), **found}
