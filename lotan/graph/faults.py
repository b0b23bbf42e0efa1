"""How a bad table is reported: one form of sentence, whichever engine found it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np

from lotan.errors import GraphError


def fault(table: str, column: str, problem: str, mend: str, count: int | None = None, example: str = "") -> GraphError:
    """Build the error for one kind of bad row.

    Args:
        table: "vertices", "edges" or a file.
        column: the column at fault, "" for the whole table.
        problem: what is wrong, in the plural: "ids that occur more than once".
        mend: what the user can do.
        count: how many rows are at fault.
        example: one or a few of them, as `example_row` writes them.

    >>> print(fault("vertices", "features", "rows that hold NaN", "Replace them.", 3, "id 7: nan"))
    vertices.features: 3 rows that hold NaN (for example id 7: nan). Replace them.
    """
    place = f"{table}.{column}" if column else table
    number = "" if count is None else f"{count:,} "
    shown = f" (for example {example})" if example else ""
    return GraphError(f"{place}: {number}{problem}{shown}. {mend}")


def example_row(identifier: object, value: object) -> str:
    """Write one row.

    >>> example_row(np.int64(7), "nan")
    'id 7: nan'
    """
    text = str(value)
    return f"id {plain(identifier)!r}: {text if len(text) <= 80 else text[:77] + '...'}"


def plain(value: object) -> object:
    """A numpy scalar as Python's own, so that it prints as the user wrote it."""
    return value.item() if isinstance(value, np.generic) else value


def missing_column(table: str, column: str, present: Iterable[str]) -> GraphError:
    """Build the error for a column that is not there; suggests one whose name is close."""
    names = list(present)
    close = get_close_matches(column, names, n=1, cutoff=0.6)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return GraphError(
        f"{table}: there is no column {column!r}; the columns are {', '.join(names) or 'none'}. "
        f"{hint}Rename the column, or name another where the graph is made."
    )


def doubled_ids(count: int, example: object) -> GraphError:
    """Build the error for ids that occur more than once."""
    mend = "Keep one row per vertex (for instance dropDuplicates on id)."
    return fault("vertices", "id", "ids that occur more than once", mend, count, f"id {plain(example)!r}")


def null_ids(table: str, column: str, count: int) -> GraphError:
    """Build the error for rows without an id."""
    return fault(table, column, "rows whose id is null", "Give them an id, or drop them.", count)


def dangling_edges(count: int, pairs: Sequence[tuple[object, object]]) -> GraphError:
    """Build the error for edges whose source or destination is no vertex; `pairs` are up to three of them."""
    shown = ", ".join(f"{plain(src)!r} -> {plain(dst)!r}" for src, dst in pairs)
    mend = "Add the missing vertices, or drop these edges."
    return fault("edges", "src, dst", "edges with an end that is not among the vertices", mend, count, shown)
