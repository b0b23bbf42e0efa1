"""Bytes of columns, and of what a pass hands on: estimates from sizes alone.

What a plan keeps in memory: planner.footprint. What its steps take in seconds: planner.cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.physical import Column, Plan
from planner.spec import ValueType
from planner.statistics import Statistics

if TYPE_CHECKING:
    from planner.steps.step import Step  # which says its bytes by these

BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "int8": 1, "bool": 1}
WIDEST = 8  # bytes of a number of any other type, which no column has
CSR_BYTES_PER_EDGE = 8  # a 4-byte position and a 4-byte value
SPARSE_TIMES = 3  # what a number that is not zero takes in a product of sparse rows; 1 is what any takes in a dense one


def columns_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """Bytes of the graph's columns and of those that the steps of a pass make, by name: a pruned pass makes fewer rows."""
    made = (column for step in steps for column in step.columns_made)
    columns = {column.name: column for column in (*plan.static_columns, *plan.hoisted, *made)}
    return {name: column_bytes(column, statistics) for name, column in columns.items()}


def sizes_of_pass(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """As `columns_bytes`, and of the neighbourhoods that are collected."""
    sizes = columns_bytes(plan, steps, statistics)
    collecting = [step for step in steps if step.makes and not step.columns_made]
    return sizes | {name: step.bytes(statistics, plan) for step in collecting for name in step.makes}


def node_bytes(output: ValueType, statistics: Statistics) -> int:
    """Bytes of what an operator with rows yields, on all vertices or all of its edges."""
    rows = statistics.vertices if output.edges is None else statistics.edge_count(output.edges)
    return rows * output.width * BYTES.get(output.dtype, WIDEST)


def row_bytes(column: Column) -> int:
    """Bytes of one row."""
    return column.width * BYTES[column.dtype]


def column_bytes(column: Column, statistics: Statistics) -> int:
    """Bytes of a column over all of its vertices, or over all of its edges."""
    if column.edges is None:
        return statistics.rows_within(column.within) * row_bytes(column)
    return statistics.edge_count(column.edges, column.within) * row_bytes(column)


def widest_column(plan: Plan, statistics: Statistics) -> tuple[str, int]:
    """The column of a plan that takes the most bytes over all vertices, or edges, and how many."""
    sizes = {name: column_bytes(column, statistics) for name, column in plan.columns.items()}
    return max(sizes.items(), key=lambda item: item[1])
