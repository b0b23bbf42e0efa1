"""A run's command, kept in its folder as the options of `lotan train`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from lotan.cli.outputs import RESULTS
from lotan.errors import ConfigurationError
from lotan.files import write_atomically

COMMAND = "command.json"
PLACES = ("graph", "keys")
"""Options that may be paths, of which the next run needs all."""


def write_command(options: argparse.Namespace, folder: str | Path) -> None:
    """Write the options that settle what is run.

    Args:
        options: of `lotan train`.
        folder: of the run.
    """
    kept = {name: value for name, value in vars(options).items() if name not in ("command", *RESULTS)}
    for name in PLACES:
        if kept[name] is not None and Path(kept[name]).exists():
            kept[name] = str(Path(kept[name]).resolve())
    Path(folder).mkdir(parents=True, exist_ok=True)
    content = json.dumps(kept, indent=2) + "\n"
    write_atomically(Path(folder) / COMMAND, lambda stream: stream.write(content.encode()))


def read_command(folder: str, known: argparse.Namespace) -> dict[str, Any]:
    """The options in a run's folder.

    Args:
        folder: of the run.
        known: the options of `lotan train` with their defaults, for those that a folder of an older version lacks.

    Raises:
        ConfigurationError: there are none, or none that this version can use.
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
        raise ConfigurationError(
            f"{path} has {', '.join(strange)}, of which this version of `lotan train` knows nothing"
        )
    return {**vars(known), **found}
