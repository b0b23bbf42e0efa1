"""What a plan moves and keeps, in rows and bytes: enough to choose an engine and to read a plan by.

Upper estimates from sizes alone; seconds are not estimated.
"""

from __future__ import annotations

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
from planner.spec import EdgeSet, Statistics

BYTES = {"float32": 4, "int32": 4, "float64": 8, "int64": 8, "int8": 1, "bool": 1}
CSR_BYTES_PER_EDGE = 8  # a 4-byte position and a 4-byte value
SPARSE = (PropagateStep, CollectStep, EdgeStep)  # steps that run along the edges, one way or the other
KEPT_PER_CALL = 2  # a call keeps its output for backward, and backward makes a gradient of the same size


def step_rows(step: Step, statistics: Statistics) -> int:
    """Rows that a step hands on: vertices, or edges where it makes an edge column or neighbourhoods are collected."""
    if isinstance(step, EdgeStep) and step.output.edges is not None:
        return statistics.edge_count(step.output.edges)
    return statistics.edge_count(step.edges) if isinstance(step, CollectStep) else statistics.vertices


def step_bytes(step: Step, statistics: Statistics, plan: Plan) -> int:
    """Bytes of what a step hands on."""
    match step:
        case PropagateStep() | GatherStep() | EdgeStep():
            return step_rows(step, statistics) * row_bytes(step.output)
        case PipeStep():
            return statistics.vertices * sum(row_bytes(column) for column in step.outputs)
        case CollectStep():
            widths = {column.name: row_bytes(column) for column in _columns(plan)}
            return statistics.edge_count(step.edges) * (CSR_BYTES_PER_EDGE + sum(widths[name] for name in step.columns))


def row_bytes(column: Column) -> int:
    """Bytes of one row."""
    return column.width * BYTES[column.dtype]


def widest_column(plan: Plan, statistics: Statistics) -> tuple[str, int]:
    """The column of a plan that takes the most bytes over all vertices, or edges, and how many."""
    sizes = {column.name: _count(column, statistics) * row_bytes(column) for column in _columns(plan)}
    return max(sizes.items(), key=lambda item: item[1])


def _count(column: Column, statistics: Statistics) -> int:
    return statistics.vertices if column.edges is None else statistics.edge_count(column.edges)


def _columns(plan: Plan) -> list[Column]:
    """Every column of a plan, static ones included."""
    made = [column for steps in (plan.train, plan.predict) for step in steps for column in columns_made(step)]
    return [*plan.static_columns, *made]


def peak_bytes_local(plan: Plan, statistics: Statistics) -> int:
    """Peak bytes of training in one process: static columns, the edges both ways, and all that backward needs."""
    static = sum(row_bytes(column) for column in plan.static_columns)
    kept, messages = 0, 0
    for stage in plan.stages:
        for call in stage.calls:
            if call.type.rows == "vertex":
                kept += KEPT_PER_CALL * call.type.width * BYTES[call.type.dtype]
            elif call.type.rows == "edge" and call.type.edges is not None:
                edges = statistics.edge_count(call.type.edges)
                messages += KEPT_PER_CALL * edges * call.type.width * BYTES[call.type.dtype]
    edge_columns = [step for step in plan.train if isinstance(step, EdgeStep) and step.output.edges is not None]
    messages += sum(step_bytes(step, statistics, plan) for step in edge_columns)
    sparse = sum(2 * CSR_BYTES_PER_EDGE * statistics.edge_count(edges) for edges in _edge_sets(plan))
    return statistics.vertices * (static + kept) + messages + sparse


def _edge_sets(plan: Plan) -> set[EdgeSet]:
    return {step.edges for step in (*plan.train, *plan.evaluate) if isinstance(step, SPARSE)}
