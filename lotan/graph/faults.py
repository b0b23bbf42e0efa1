"""The errors for bad tables. They have one form of sentence, whichever engine finds the fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lotan.arguments import nearest
from lotan.errors import GraphError
from planner.spec import SPLITS

EXAMPLES = 3  # number of rows that are shown if one row may not explain the fault

_SPLIT_MEND = f"A split is one of {', '.join(map(repr, SPLITS))}, or null for none; 0, 1 and 2 stand for them."


def fault(table: str, column: str, problem: str, mend: str, count: int | None = None, example: str = "") -> GraphError:
    """Build the error for one kind of bad row.

    Args:
        table: "vertices", "edges" or a file.
        column: the column at fault, or "" for the whole table.
        problem: the fault, in the plural, such as "ids that occur more than once".
        mend: the advice to the user.
        count: the number of rows at fault (default: None, to leave it out).
        example: one or a few such rows, as `example_row` writes them (default: none).

    >>> print(fault("vertices", "features", "rows that hold NaN", "Replace them.", 3, "id 7: nan"))
    vertices.features: 3 rows that hold NaN (for example id 7: nan). Replace them.
    """
    place = f"{table}.{column}" if column else table
    number = "" if count is None else f"{count:,} "
    such = f" (for example {example})" if example else ""
    return GraphError(f"{place}: {number}{problem}{such}. {mend}")


def example_row(identifier: object, value: object) -> str:
    """Return a row's id and a value of it in words.

    >>> example_row(np.int64(7), "nan")
    'id 7: nan'
    """
    text = str(value)
    return f"id {shown(identifier)}: {text if len(text) <= 80 else text[:77] + '...'}"


def shown(identifier: object) -> str:
    """Return an id as Python prints it, without the middle of a long one.

    >>> shown(np.int64(7)), shown("x" * 1000)
    ('7', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxx'")
    """
    text = repr(plain(identifier))
    return text if len(text) <= 60 else f"{text[:38]}...{text[-20:]}"


def reason(error: BaseException) -> str:
    """Return a library's error text as one line.

    >>> reason(ValueError("one   two."))
    'one two'
    """
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= 200 else text[:197] + "..."


def plain(value: object) -> object:
    """Return a numpy scalar as a Python object, so that it is printed as the user wrote it."""
    return value.item() if isinstance(value, np.generic) else value


def missing_column(table: str, column: str, present: Iterable[str]) -> GraphError:
    """Build the error for a missing column. It suggests a column with a similar name."""
    names = list(present)
    close = nearest(column, names)
    hint = f"Did you mean {close!r}? " if close else ""
    return GraphError(
        f"{table}: there is no column {column!r}; the columns are {', '.join(names) or 'none'}. "
        f"{hint}Rename the column, or name another where the graph is made (on the command line by an option such as --label, "
        "of an estimator by a Param such as labelCol)."
    )


def doubled_ids(count: int, examples: Sequence[object]) -> GraphError:
    """Build the error for ids that occur more than once. `examples` has up to three of them."""
    mend = "Keep one row per vertex (for instance dropDuplicates on id)."
    return fault(
        "vertices",
        "id",
        "ids that occur more than once",
        mend,
        count,
        ", ".join(f"id {shown(example)}" for example in examples),
    )


def null_ids(table: str, column: str, count: int, rows: Sequence[Mapping[str, object]]) -> GraphError:
    """Build the error for rows without an id. `rows` has up to three of them, which are shown by their other cells."""
    examples = []
    for row in rows:
        cells = [f"{name} {plain(value)}" for name, value in row.items() if name != column and value is not None]
        text = ", ".join(cells)
        examples.append(text if len(text) <= 60 else text[:57] + "...")
    rows_shown = "; ".join(f"the row with {text}" for text in examples if text)
    return fault(table, column, "rows whose id is null", "Give them an id, or drop them.", count, rows_shown)


def dangling_edges(count: int, pairs: Sequence[tuple[object, object]]) -> GraphError:
    """Build the error for edges whose source or destination is no vertex. `pairs` has up to three of them."""
    examples = ", ".join(f"{shown(src)} -> {shown(dst)}" for src, dst in pairs)
    mend = "Add the missing vertices, or drop these edges."
    return fault("edges", "src, dst", "edges with an end that is not among the vertices", mend, count, examples)


def table_changed() -> GraphError:
    """Build the error for edges that are others at a second reading."""
    return fault("edges", "", "the table changed while it was read", "Train on a table that nobody writes to.")


def no_vertices() -> GraphError:
    """Build the error for an empty graph."""
    return fault("vertices", "", "the table has no rows", "A graph needs at least one vertex.")


def null_rows(
    column: str, count: int, example: str, table: str = "vertices", mend: str = "Replace them by numbers"
) -> GraphError:
    """Build the error for rows that are null in a column without nulls."""
    return fault(table, column, "rows that are null", f"{mend}, or drop the rows.", count, example)


def nulls_inside(column: str, count: int, example: str, table: str = "vertices") -> GraphError:
    """Build the error for arrays that hold a null."""
    return fault(table, column, "arrays that hold a null", "Replace it by a number.", count, example)


def ragged(column: str, count: int, width: int, example: str, table: str = "vertices") -> GraphError:
    """Build the error for rows of different widths."""
    problem = f"rows that are shorter than the longest ({width:,} numbers)"
    return fault(table, column, problem, "Give every row the same width.", count, example)


def wrong_type(table: str, column: str, given: str) -> GraphError:
    """Build the error for a column that must have numbers and has another type."""
    return fault(table, column, f"is of type {given}, expected numbers", "Cast the column, or name another.")


def wrong_edge_type(column: str, given: str) -> GraphError:
    """Build the error for types of edges that are not integers."""
    return fault("edges", column, f"is of type {given}, expected integers", "Number the types of edges from 0.")


def wrong_id_type(table: str, column: str, given: str, expected: str) -> GraphError:
    """Build the error for ids of a wrong type."""
    return fault(table, column, f"is of type {given}, expected {expected}", "Cast the column; ids are long or string.")


def oversized(table: str, column: str, example: object, mend: str) -> GraphError:
    """Build the error for unsigned numbers that do not fit into int64."""
    return fault(table, column, "holds numbers beyond 2**63 - 1", mend, example=str(plain(example)))


def doubled_column(table: str, column: str) -> GraphError:
    """Build the error for a name that several columns have."""
    return fault(table, column, "several columns have this name", "Rename all but one, or drop them.")


def wrong_label_type(column: str, given: str) -> GraphError:
    """Build the error for labels that are neither numbers nor arrays of them."""
    mend = "Give classes as integers 0, 1, ..., several labels as an array of 0 and 1, targets as floats."
    return fault("vertices", column, f"is of type {given}, expected numbers or arrays of numbers", mend)


def wrong_relation_type(column: str, given: str) -> GraphError:
    """Build the error for relations that are neither integers nor strings."""
    return fault(
        "edges",
        column,
        f"is of type {given}, expected integers or strings",
        "Name each relation by a whole number or a text; numbers that measure something are edge_features.",
    )


def wrong_split_type(column: str, given: str, table: str = "vertices") -> GraphError:
    """Build the error for splits that are neither strings nor whole numbers."""
    return fault(table, column, f"is of type {given}, expected string or 0, 1 and 2", _SPLIT_MEND)


def wrong_mask_type(column: str, given: str) -> GraphError:
    """Build the error for masks that are not true and false."""
    return fault(
        "vertices", column, f"is of type {given}, expected booleans", "A mask is true for the split's vertices."
    )


def overlapping_masks(columns: Sequence[str], count: int, example: str) -> GraphError:
    """Build the error for vertices that several masks have."""
    mend = "A vertex is in one split at most."
    return fault("vertices", ", ".join(columns), "vertices that several masks have", mend, count, example)


def unknown_splits(column: str, count: int, example: str, table: str = "vertices") -> GraphError:
    """Build the error for unknown names of splits."""
    return fault(table, column, "rows of an unknown split", _SPLIT_MEND, count, example)
