"""Counts the work of a stage's run: products, elementwise numbers, random draws, and the rows that come and go."""

from __future__ import annotations

from collections.abc import Set
from functools import reduce
from math import ceil, prod
from operator import add

from planner.chunks import SAVED_BYTES, chunk_count, chunk_rows, chunks_in_group, sharing_threads
from planner.estimate import SPARSE_TIMES, row_bytes
from planner.keeping import saved_row_bytes, trained_stages
from planner.kernels import VIEWS, computing, contracted, is_product, numbers_taken
from planner.layout import Layout
from planner.neighbours import NEIGHBOUR_OPERATORS, operations
from planner.physical import Plan, Stage
from planner.spec import DRAWS, Call, operator_name, quantile_of
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.traits import EngineTraits
from planner.work import Work

LOSS = 4  # operations on each number of an output, for a loss and its gradient
BACKWARD_ON_EDGES = 2  # time of autograd's backward on edges, divided by that of forward
SCATTERED = 0.25  # operations on each number of a row that is summed while it is brought to its edges
SORTED_ON_EDGES = 30  # operations on each number that a quantile over in-edges sorts twice
SOFTMAX_ON_EDGES = 5  # operations on each number of a softmax over in-edges that autograd runs


def pipe_work(
    step: PipeStep, plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout, beyond: float
) -> Work:
    """Return the work of one run of a stage. `beyond` is the result of `beyond_memory`."""
    stage, vertices = plan.stage(step.stage), statistics.rows_within(step.within)
    forward, backward = step.mode != "backward", step.mode in ("turn", "backward")
    rows = _columns_bytes(step, plan, vertices)
    chunks = chunk_count(vertices, traits, layout)
    turns = max(1.0, chunks / _sharing(chunks, traits, layout))  # chunks that each thread or worker runs in turn
    handed_in = _handed_in(stage, vertices, traits, layout) if backward else 0.0
    if stage.edge_sets:
        found = reduce(add, (_on_edges(one, step.within, statistics) for one in stage.each))
        found *= forward + BACKWARD_ON_EDGES * backward
        found.calls *= 1 if traits.chunking == "whole" else turns  # on one process, such a stage is a single chunk
        found.piped_bytes, found.parameter_numbers = rows, handed_in
        return found
    runs = [_rerun(stage, statistics.density)] if forward else []
    if backward:
        runs += [_backward(one, statistics.density) for one in stage.each]
    found = reduce(add, runs)
    if stage.loss is not None and step.mode in ("turn", "evaluate"):
        found.numbers += LOSS * stage.loss.outputs * len(stage.each)
    found *= vertices
    found.calls = sum(len(computing(one)) for one in stage.each) * (forward + backward) * turns
    found.piped_bytes, found.parameter_numbers = rows, handed_in
    return found + _kept_elsewhere(step, stage, statistics, beyond) if beyond else found


def _sharing(chunks: int, traits: EngineTraits, layout: Layout) -> int:
    """Return the number of threads or workers that share the chunks of a stage."""
    return sharing_threads(chunks, layout.cores) if traits.in_process else layout.workers


def _columns_bytes(step: PipeStep, plan: Plan, vertices: int) -> float:
    """Return the bytes of the rows that a run reads and makes.

    Rows that workers have from an earlier epoch are not sent again, so they are left out.
    """
    stage = plan.stage(step.stage)
    if step.mode == "backward":
        widths = {output.value: prod(output.shape) for output in stage.outputs}
        given = sum(widths[gradient.value] * len(gradient.columns) for gradient in step.gradients)
    else:
        columns = {i.column: i.width for i in stage.inputs if i.role == "vertex" and not i.static}
        given = sum(columns.values())
    return vertices * (4.0 * given + sum(row_bytes(column) for column in step.outputs if not column.few))


def _rerun(stage: Stage, density: float) -> Work:
    """Return the work of a stage's forward for one row, for all models."""
    return reduce(add, (_forward(one, density) for one in stage.each))


def _forward(stage: Stage, density: float) -> Work:
    """Return the work of forward for one row."""
    found = Work()
    for call in computing(stage):
        if is_product(call):
            found += _product(stage, call, density)
        else:
            found.numbers += numbers_taken(stage, call)
            found.draws += call.type.width if call.op in DRAWS else 0
    return _by_who_runs(stage, found)


def _backward(stage: Stage, density: float) -> Work:
    """Return the work of backward for one row.

    It makes the gradient of each value that needs one. A product also makes the gradient of its parameter.
    """
    wanted = _wanted(stage)
    trained = {parameter.name for parameter in stage.parameters if parameter.trainable}
    trained |= {call.output for call in stage.calls if call.type.rows == "none" and call.output in wanted}
    found = Work()
    for call in computing(stage):
        if call.output not in wanted:
            continue
        if is_product(call):
            read = set(call.reads)
            times = bool(read & trained) + bool(read & (wanted - trained))
            found += _product(stage, call, density) * times
        else:
            found.numbers += numbers_taken(stage, call)
    return _by_who_runs(stage, found)


def _by_who_runs(stage: Stage, found: Work) -> Work:
    """Count the numbers of a stage that autograd runs as another unit of work, which has a rate of its own."""
    if stage.run_by_autograd:
        found.numbers, found.autograd_numbers = 0.0, found.numbers
    return found


def _wanted(stage: Stage) -> Set[str]:
    """Return the names of the values whose gradients backward computes, and of the trained parameters."""
    inputs = {i.value for i in stage.inputs if i.needs_gradient}
    return stage.computed_from(inputs | {parameter.name for parameter in stage.parameters if parameter.trainable})


def _product(stage: Stage, call: Call, density: float) -> Work:
    """Return the work of a product for one row. Of a sparse row, only the non-zero numbers count, each as SPARSE_TIMES."""
    width, factors = call.type.width, float(contracted(stage, call))
    if not stage.sparse.isdisjoint(call.reads):
        factors *= density * SPARSE_TIMES
    maps = prod(call.type.shape[:-1])  # for a row [heads, channels], one map for each head
    return Work(multiply_adds=width * factors, product_numbers=width + maps * factors)


def _on_edges(stage: Stage, within: int | None, statistics: Statistics) -> Work:
    """Return the work of one forward run of a stage that reads edges. Autograd runs every operator over all rows at once."""
    found = Work()
    for call in stage.calls:
        if call.type.rows == "none" or operator_name(call.op) in VIEWS:
            continue
        if call.op in NEIGHBOUR_OPERATORS:
            found.calls += 1
            found.multiply_adds += operations(stage, call, statistics, within)
        edges = str(call.arguments[2]) if _sorts(call) else call.type.edges
        rows = statistics.rows_within(within) if edges is None else statistics.edge_count(edges, within)
        factors = contracted(stage, call) if is_product(call) else 0
        made = rows * call.type.width
        found.calls += 1
        found.autograd_numbers += made * _operations(stage, call)
        found.multiply_adds += made * factors
        found.draws += made if call.op in DRAWS else 0
    return found


def _sorts(call: Call) -> bool:
    """Return True if a call takes a quantile over in-edges, which sorts their messages."""
    return call.op == "lotan.aggregate" and quantile_of(call.arguments[1]) is not None


def _operations(stage: Stage, call: Call) -> float:
    """Return the operations counted for each number that a call makes, in a stage that reads edges."""
    if call.op == "lotan.edge_softmax":
        return SOFTMAX_ON_EDGES
    if _sorts(call):
        return SORTED_ON_EDGES
    if call.op != "lotan.scatter":
        return 1
    readers = {reader.op for reader in stage.readers.get(call.output, ())}
    return SCATTERED if readers == {"lotan.aggregate"} else 1


def _handed_in(stage: Stage, vertices: int, traits: EngineTraits, layout: Layout) -> float:
    """Return the numbers of parameters' gradients that are handed in, counted once for each time."""
    parts = layout.partitions
    if traits.chunking == "whole":
        chunks, length = chunk_count(vertices, traits, layout), chunk_rows(vertices, traits, layout)
        parts = ceil(chunks / chunks_in_group(chunks, length))
    return parts * sum(prod(parameter.shape) for parameter in stage.parameters if parameter.trainable)


def beyond_memory(plan: Plan, statistics: Statistics, traits: EngineTraits, layout: Layout) -> float:
    """Return the share of the saved values of forward runs for which workers have no memory."""
    if traits.memory == "process":
        return 0.0
    kept = sum(statistics.rows_within(within) * saved_row_bytes(stage) for stage, within in trained_stages(plan))
    room = layout.workers * (SAVED_BYTES if layout.saved is None else layout.saved)
    return max(0.0, 1 - room / kept) if kept else 0.0


def _kept_elsewhere(step: PipeStep, stage: Stage, statistics: Statistics, beyond: float) -> Work:
    """Return the work of backward for saved values without room in memory: a file is read, or they are computed again."""
    if not beyond or step.mode != "backward":
        return Work()
    rows = statistics.rows_within(step.within)
    if stage.overflow == "file":
        return Work(spilled_bytes=beyond * rows * saved_row_bytes(stage))
    return _rerun(stage, statistics.density) * (beyond * rows)
