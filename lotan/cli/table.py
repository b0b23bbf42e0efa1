"""The command `lotan table`."""

from __future__ import annotations

import argparse
from pathlib import Path

DEFAULT_BIND = "tcp://127.0.0.1:5571"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the table's address, keys, memory and files."""
    parser.add_argument(
        "--bind",
        default=DEFAULT_BIND,
        metavar="URL",
        help="address to listen on, which `lotan train --tables` is given. A port of * takes any free port. Beyond loopback,\n"
        f"--keys is needed (default: {DEFAULT_BIND})",
    )
    parser.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="directory of CurveZMQ keys, as `lotan router` makes it (default: no keys)",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory for rows and their timestamps, such as 2g. A run whose rows need more is refused (default: no limit)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="folder for the rows after each epoch and a journal of updates, from which a table that was killed is as it was\n"
        "when it is started again (default: its rows are lost)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the address, then hold rows until Ctrl-C."""
    from lotan.settings.byte_sizes import byte_count
    from messenger.table_process import serve

    limit = None if options.memory is None else byte_count("--memory", options.memory)
    serve(options.bind, options.keys, limit, options.folder)
    return 0
