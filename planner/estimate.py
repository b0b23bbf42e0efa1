"""What the steps of a plan hand on, in rows and bytes: estimates from sizes alone.

What a plan keeps in memory: planner.footprint. What its steps take in seconds: planner.cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.physical import (
    CollectStep,
    Column,
    EdgeStep,
    GatherStep,
    PipeStep,
    Plan,
    PropagateStep,
    Step,
    columns_made,
)
from planner.spec import ValueType
from planner.statistics import Statistics

BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "int8": 1, "bool": 1}
WIDEST = 8  # bytes of a number of any other type, which no column has
CSR_BYTES_PER_EDGE = 8  # a 4-byte position and a 4-byte value
SPARSE_TIMES = 3  # what a number that is not zero takes in a product of sparse rows; 1 is what any takes in a dense one


def step_rows(step: Step, statistics: Statistics) -> int:
    """Rows that a step hands on: vertices, or edges where it makes an edge column or neighbourhoods are collected."""
    if isinstance(step, EdgeStep) and step.output.edges is not None:
        return statistics.edge_count(step.output.edges, step.output.within)
    if isinstance(step, CollectStep):
        return statistics.edge_count(step.edges, step.within)
    return statistics.rows_within(step.within if isinstance(step, PipeStep) else step.output.within)


def step_bytes(step: Step, statistics: Statistics, plan: Plan) -> int:
    """Bytes of what a step hands on."""
    match step:
        case PropagateStep() | GatherStep() | EdgeStep():
            return step_rows(step, statistics) * row_bytes(step.output)
        case PipeStep():
            return sum(column_bytes(column, statistics) for column in step.outputs)
        case CollectStep():
            width = sum(row_bytes(plan.columns[name]) for name in step.columns)
            return step_rows(step, statistics) * (CSR_BYTES_PER_EDGE + width)


def columns_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """Bytes of the graph's columns and of those that the steps of a pass make, by name: a pruned pass makes fewer rows."""
    made = (column for step in steps for column in columns_made(step))
    columns = {column.name: column for column in (*plan.static_columns, *plan.hoisted, *made)}
    return {name: column_bytes(column, statistics) for name, column in columns.items()}


def sizes_of_pass(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> dict[str, int]:
    """As `columns_bytes`, and of the neighbourhoods that are collected."""
    sizes = columns_bytes(plan, steps, statistics)
    return sizes | {step.output: step_bytes(step, statistics, plan) for step in steps if isinstance(step, CollectStep)}


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
