"""What a forward run keeps for its backward, and what it costs to do without where a worker has no memory left for it."""

from __future__ import annotations

from collections.abc import Sequence, Set

from planner.kernels import (
    ACTIVATIONS,
    VIEWS,
    contracted,
    head_dots,
    is_product,
    multiplicands,
    never_made,
    numbers_taken,
    run_by_autograd,
)
from planner.physical import Stage
from planner.spec import PRODUCTS, Call, operator_name
from planner.statistics import Statistics

# Of one worker with one thread; only their ratios matter. `planner.rates` prices the same work, so that whole epochs come
# out right: a fit that shares their seconds among rates that rise together, so that one of them may come out several times too
# low. Sums do not mind, but a choice between two single rates would turn with each fit; and it has to hold for every engine
# that has workers.
DISK_RATE = 1.2e9  # bytes a second, written and read: 4e9 while the page cache holds it, 1e9 or less as it first grows
SENT_RATE = 0.5e9  # bytes a second: rows of a column, most of them sums over edges that are made for this alone
VALUES = 0.5e9  # numbers a second of elementwise operators, dropout's among them
MULTIPLICATIONS = 50e9  # with as many additions, a second, of matrix products


def seconds_again(stage: Stage, statistics: Statistics) -> float:
    """What backward pays for a vertex of which nothing was kept: its inputs once more, and what leads to what it reads."""
    read = set(_kept(stage))
    sent = [i for i in stage.inputs if i.role == "source" or (i.needs_gradient and i.value not in read)]
    again: list[Call] = []
    for call in reversed(stage.calls):
        if stage.edge_sets or call.output in read:
            again.append(call)
            read.update(call.reads)
    parameters, inside = {parameter.name for parameter in stage.parameters}, never_made(stage)
    free = [c for c in again if operator_name(c.op) == "add" and parameters & set(c.reads)]
    # A view computes nothing, nor does what is part of another's kernel, and a bias is added as a product is made.
    free += [c for c in again if operator_name(c.op) in VIEWS or c.output in inside]
    return recompute_seconds(
        resent=sum(i.width for i in sent),
        computed=sum(_rows(call, statistics) * numbers_taken(stage, call) for call in again if call not in free),
        factors=_factors(stage, again, statistics),
    )


def _factors(stage: Stage, calls: Sequence[Call], statistics: Statistics) -> float:
    """Multiplications in these calls' matrix products, for a vertex."""
    products = [call for call in calls if is_product(call)]
    return sum(_rows(call, statistics) * call.type.width * contracted(stage, call) for call in products)


def _rows(call: Call, statistics: Statistics) -> float:
    """Rows of a value for each vertex: 1, or where they are edges as many as end in one on average."""
    if call.type.edges is not None:
        return statistics.edge_count(call.type.edges) / max(1, statistics.vertices)
    return float(call.type.rows == "vertex")


def spill_seconds(kept: float) -> float:
    """To write and read a row of so many bytes."""
    return 2 * kept / DISK_RATE


def recompute_seconds(resent: float, computed: float, factors: float) -> float:
    """To make a row again.

    Args:
        resent: numbers of its inputs that have to be sent once more.
        computed: numbers of all values on the way.
        factors: multiplications of matrix products among them.
    """
    return 4 * resent / SENT_RATE + computed / VALUES + factors / MULTIPLICATIONS


def saved_row_bytes(stage: Stage) -> int:
    """Bytes of a row that is kept between forward and backward.

    What a matrix, the vectors of heads or what else has a gradient were multiplied with, unless it is an input, and the
    outputs of activations; a ReLU's lies in that of the dropout that follows it. Where autograd runs a stage, outputs of
    products and of dropout besides, and of a stage that reads edges the output of every call.
    """
    return sum(map(_saved_row_bytes, stage.each))


def _saved_row_bytes(stage: Stage) -> int:
    kept = _kept(stage)
    return sum(4 * call.type.width for call in stage.on_vertices if stage.edge_sets or _is_kept(call, kept))


def kept_bytes(stage: Stage, statistics: Statistics) -> float:
    """As `saved_row_bytes`, with what is kept of a vertex's in-edges."""
    kept = _kept(stage)
    calls = [call for call in stage.calls if stage.edge_sets or _is_kept(call, kept)]
    return sum(4 * _rows(call, statistics) * call.type.width for call in calls)


def _is_kept(call: Call, kept: Set[str]) -> bool:
    """What is seen in another shape is kept once, under the name that it was made by."""
    return call.output in kept and operator_name(call.op) not in VIEWS


def multiplied_inputs(stage: Stage) -> Set[str]:
    """The columns that a matrix, the vectors of heads or what else has a gradient are multiplied with."""
    read = [(one, multiplied(one)) for one in stage.each]
    return {i.column for one, values in read for i in one.inputs if i.value in values}


def multiplied(stage: Stage) -> Set[str]:
    """The values that a matrix, the vectors of heads or what else has a gradient are multiplied with: its gradient needs them.

    By the names that they are read by, and if these are views, by those that they were made by.
    """
    found = {name for call in stage.calls if is_product(call) for name in call.reads}
    found.update(name for dots in head_dots(stage).values() for name in (dots.x, dots.vectors))
    found |= multiplicands(stage)
    for call in reversed(stage.calls):
        if call.output in found and operator_name(call.op) in VIEWS:
            found.update(call.reads)
    return found


def _kept(stage: Stage) -> Set[str]:
    """Those that backward reads, of what is computed; parameters are named too."""
    calls = stage.on_vertices
    outputs = {call.output for call in calls if operator_name(call.op) in ACTIVATIONS}
    relus = {call.output for call in calls if operator_name(call.op) == "relu"}
    if run_by_autograd(stage):
        also = ("dropout", *PRODUCTS)
        return outputs | {call.output for call in calls if operator_name(call.op) in also} | multiplied(stage)
    for call in calls:
        if operator_name(call.op) == "dropout" and (over := relus & set(call.reads)):
            outputs = outputs - over | {call.output}
    return outputs | multiplied(stage)
