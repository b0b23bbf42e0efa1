"""Estimates of the bytes of columns and of passes, from sizes alone.

`planner.footprint` estimates the memory that a plan needs, and `planner.cost` the seconds that its steps take.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.statistics import Statistics

if TYPE_CHECKING:
    from planner.steps.step import Step  # steps compute their bytes with this module

BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "int8": 1, "bool": 1}
WIDEST = 8  # bytes of a number of any other type; no column has one
CSR_BYTES_PER_EDGE = 8  # a 4-byte position and a 4-byte value
SPARSE_TIMES = 3  # units of work for a non-zero number in a sparse product; a number in a dense one takes 1


def columns_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """Return the bytes of the graph's columns and of the columns that the steps of a pass make, by name.

    A pruned pass makes fewer rows than the column may have in another pass.
    """
    made = (column for step in steps for column in step.columns_made)
    columns = {column.name: column for column in (*plan.static_columns, *plan.hoisted, *made)}
    return {name: column_bytes(column, statistics) for name, column in columns.items()}


def sizes_of_pass(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """Return the bytes of the columns as `columns_bytes` does, and also the bytes of the collections."""
    sizes = columns_bytes(plan, steps, statistics)
    collecting = [step for step in steps if step.makes and not step.columns_made]
    return sizes | {name: step.bytes(statistics, plan) for step in collecting for name in step.makes}


def node_bytes(output: ValueType, statistics: Statistics) -> int:
    """Return the bytes of an operator's output on all vertices, or on all edges of its edge set."""
    rows = statistics.vertices if output.edges is None else statistics.edge_count(output.edges)
    return rows * output.width * BYTES.get(output.dtype, WIDEST)


def row_bytes(column: Column) -> int:
    """Return the bytes of one row."""
    return column.width * BYTES[column.dtype]


def column_bytes(column: Column, statistics: Statistics) -> int:
    """Return the bytes of a column over all of its vertices or edges."""
    if column.few:  # some rows, for millions of vertices
        return row_bytes(column)
    if column.edges is None:
        return statistics.rows_within(column.within) * row_bytes(column)
    return statistics.edge_count(column.edges, column.within) * row_bytes(column)


def widest_column(plan: Plan, statistics: Statistics) -> tuple[str, int]:
    """Return the name of the column that takes the most bytes over all of its rows, and these bytes."""
    sizes = {name: column_bytes(column, statistics) for name, column in plan.columns.items()}
    return max(sizes.items(), key=lambda item: item[1])
