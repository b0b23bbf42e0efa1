"""The values that a forward run saves for its backward, and the cost of not saving them.

A worker whose memory for saved values is full writes them to a file, or computes them again.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from planner.kernels import (
    ACTIVATIONS,
    VIEWS,
    contracted,
    is_product,
    multiplicands,
    never_made,
    numbers_taken,
)
from planner.physical import Plan, Stage
from planner.spec import PRODUCTS, Call, operator_name
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep

# These rates are those of one worker with one thread, and only their ratios matter. `planner.rates` prices the same
# work for whole epochs. Its fit shares seconds among rates that rise together, so a single rate may be several times
# too low. Sums do not suffer from that, but a choice between two single rates would change with each fit. The choice
# also has to hold for all engines that have workers.
DISK_RATE = 1.2e9  # bytes a second, written or read: 4e9 in the page cache, 1e9 or less while that grows
SENT_RATE = 0.5e9  # bytes a second of rows sent again, most of them sums over edges made just for this
VALUES = 0.5e9  # numbers a second of elementwise operators, dropout included
MULTIPLICATIONS = 50e9  # multiplications, each with an addition, a second of matrix products


def seconds_again(stage: Stage, statistics: Statistics) -> float:
    """Return the extra seconds of backward for each vertex if nothing was saved.

    The stage's inputs are sent again, and all values that backward reads are computed again.
    """
    read = set(_kept(stage))
    rows = [i for i in stage.inputs if i.role != "total"]  # a total is one row, whatever the number of vertices
    sent = [i for i in rows if i.role == "source" or (i.needs_gradient and i.value not in read)]
    again: list[Call] = []
    for call in reversed(stage.calls):
        if stage.edge_sets or call.output in read:
            again.append(call)
            read.update(call.reads)
    parameters, inside = {parameter.name for parameter in stage.parameters}, never_made(stage)
    free = [c for c in again if operator_name(c.op) == "add" and parameters & set(c.reads)]
    # A view computes nothing, nor does a call inside another call's kernel. A bias is added while a product is made.
    free += [c for c in again if operator_name(c.op) in VIEWS or c.output in inside]
    return recompute_seconds(
        resent=sum(i.width for i in sent),
        computed=sum(_rows(call, statistics) * numbers_taken(stage, call) for call in again if call not in free),
        factors=_factors(stage, again, statistics),
    )


def _factors(stage: Stage, calls: Sequence[Call], statistics: Statistics) -> float:
    """Return the multiplications of these calls' matrix products, for each vertex."""
    products = [call for call in calls if is_product(call)]
    return sum(_rows(call, statistics) * call.type.width * contracted(stage, call) for call in products)


def _rows(call: Call, statistics: Statistics) -> float:
    """Return the rows of a value for each vertex: 1, or the mean number of in-edges if the rows are edges."""
    if call.type.edges is not None:
        return statistics.edge_count(call.type.edges) / max(1, statistics.vertices)
    return float(call.type.rows == "vertex")


def spill_seconds(kept: float) -> float:
    """Return the seconds to write and read the saved values of a row, given their bytes."""
    return 2 * kept / DISK_RATE


def recompute_seconds(resent: float, computed: float, factors: float) -> float:
    """Return the seconds to compute a row again.

    Args:
        resent: The numbers of its inputs that have to be sent again.
        computed: The numbers of all values that have to be computed.
        factors: The multiplications of the matrix products among them.
    """
    return 4 * resent / SENT_RATE + computed / VALUES + factors / MULTIPLICATIONS


def saved_row_bytes(stage: Stage) -> int:
    """Return the bytes that a forward run saves for each vertex.

    It saves the outputs of activations, and the values that `multiplied` names, unless they are inputs. A ReLU before a
    dropout is saved as the dropout's output. If autograd runs the stage, outputs of products and dropout are saved too.
    If the stage reads edges, the output of every call on vertices is.
    """
    return sum(map(_saved_row_bytes, stage.each))


def _saved_row_bytes(stage: Stage) -> int:
    kept = _kept(stage) - stage.alike
    return sum(4 * call.type.width for call in stage.on_vertices if stage.edge_sets or _is_kept(call, kept))


def kept_bytes(stage: Stage, statistics: Statistics) -> float:
    """Return the bytes that a forward run saves for each vertex, with the values on its in-edges."""
    kept = _kept(stage) - stage.alike
    calls = [call for call in stage.calls if stage.edge_sets or _is_kept(call, kept)]
    return sum(4 * _rows(call, statistics) * call.type.width for call in calls)


def _is_kept(call: Call, kept: Set[str]) -> bool:
    """Return True if a call's output is saved. A view of a value is not, because the value is saved under its own name."""
    return call.output in kept and operator_name(call.op) not in VIEWS


def multiplied_inputs(stage: Stage) -> Set[str]:
    """Return the columns whose values are factors that a gradient needs, as in `multiplied`."""
    read = [(one, multiplied(one)) for one in stage.each]
    return {i.column for one, values in read for i in one.inputs if i.value in values}


def multiplied(stage: Stage) -> Set[str]:
    """Return the names of the values that gradients need because something with a gradient is multiplied by them.

    The other factor is a matrix, the vectors of heads, or another value. If a factor is a view, the value that it shows
    is named too.
    """
    found = {name for call in stage.calls if is_product(call) for name in call.reads}
    found.update(name for dots in stage.head_dots.values() for name in (dots.x, dots.vectors))
    found |= multiplicands(stage) - never_made(stage)
    found.update(one.x for one in stage.normalisations.values())
    for call in reversed(stage.calls):
        if call.output in found and operator_name(call.op) in VIEWS:
            found.update(call.reads)
    return found


def _kept(stage: Stage) -> Set[str]:
    """Return the names of the computed values that backward reads. Parameters may be among them."""
    calls = stage.on_vertices
    outputs = {call.output for call in calls if operator_name(call.op) in ACTIVATIONS}
    relus = {call.output for call in calls if operator_name(call.op) == "relu"}
    if stage.run_by_autograd:
        also = ("dropout", *PRODUCTS)
        return outputs | {call.output for call in calls if operator_name(call.op) in also} | multiplied(stage)
    for call in calls:
        if operator_name(call.op) == "dropout" and (over := relus & set(call.reads)):
            outputs = outputs - over | {call.output}
    return outputs | multiplied(stage)


def trained_stages(plan: Plan) -> list[tuple[Stage, int | None]]:
    """Return the stages that run forward and later backward, each with the level up to which its backward runs."""
    levels = {s.stage: s.within for s in plan.train if isinstance(s, PipeStep) and s.mode == "backward"}
    return [(stage, levels[stage.name]) for stage in plan.stages if stage.name in levels]
