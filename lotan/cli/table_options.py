"""The options of row tables, which several commands share."""

from __future__ import annotations

import argparse
from typing import Any

NAMES = ("tables", "asynchrony", "table_memory")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for learned rows that lie in tables."""
    group = parser.add_argument_group("row tables", "for learned rows in mini-batches")
    group.add_argument(
        "--tables",
        metavar="N|URL,URL,...",
        help="processes to start that hold the rows, or addresses of `lotan table` (default: the rows are in this process)",
    )
    group.add_argument(
        "--asynchrony",
        choices=("optimistic", "plain", "none"),
        default="optimistic",
        help="optimistic: rows are read ahead and repaired, with the results of none; plain: they may be out of date;\n"
        "none: one batch after the other (default: optimistic)",
    )
    group.add_argument(
        "--table-memory",
        metavar="SIZE",
        help="memory for the rows of each table that is started (default: its share of the free memory)",
    )


def table_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of row tables as settings of a Trainer; those of commands without them are left out."""
    found = {name: getattr(options, name) for name in NAMES if hasattr(options, name)}
    tables = found.get("tables")
    return found | ({"tables": int(tables)} if tables is not None and tables.isdecimal() else {})
