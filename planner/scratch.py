"""Estimates the memory in which stages compute on the local engine: that of the chunks that threads run at one time.

A thread holds on to the memory of its chunk's values. Values of the same width in different stages share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from planner.chunks import even_chunks, local_chunk_rows, sharing_threads
from planner.keeping import multiplied, multiplied_inputs
from planner.kernels import ACTIVATIONS, computing, head_dots, is_head_mean, is_product, numbers_taken
from planner.physical import Plan, Stage
from planner.spec import Call, operator_name
from planner.statistics import Statistics
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep

NUMBER_BYTES = 4
LOSS_COPIES = 3  # copies of the model's output: rows that count, their probabilities, the gradient


def scratch_bytes(plan: Plan, statistics: Statistics, cores: int, chunk_rows: int | None = None) -> int:
    """Return the bytes of the values of chunks, for all threads together.

    Args:
        plan: The plan.
        statistics: The statistics of the graph.
        cores: The number of threads.
        chunk_rows: The most vertices in a chunk; None: the default for the graph.
    """
    return NUMBER_BYTES * rows_in_hand(statistics.vertices, cores, chunk_rows) * numbers_in_hand(plan)


def rows_in_hand(vertices: int, cores: int, chunk_rows: int | None = None) -> int:
    """Return the most vertices that all threads run a stage on at one time.

    >>> rows_in_hand(30_000, 2), rows_in_hand(40_000, 2), rows_in_hand(100_000, 2), rows_in_hand(1_000_000, 16)
    (30000, 10000, 25024, 16144)
    """
    chunks, length = even_chunks(vertices, chunk_rows or local_chunk_rows(vertices))
    return min(vertices, sharing_threads(chunks, cores) * length)


def numbers_in_hand(plan: Plan) -> int:
    """Return the numbers for which there is memory in each row of a chunk.

    There are as many values of each width as some run of a stage needs at one time.
    """
    most: Counter[int] = Counter()
    seen: set[int] = set()  # passes share steps
    for steps in plan.passes:
        sums = {step.output.name for step in steps if isinstance(step, PropagateStep)}
        for step in steps:
            if isinstance(step, PipeStep) and id(step) not in seen and not plan.stage(step.stage).edge_sets:
                most |= _widths(step, plan.stage(step.stage), sums)
                seen.add(id(step))
    return sum(width * count for width, count in most.items())


def _widths(step: PipeStep, stage: Stage, sums: Collection[str]) -> Counter[int]:
    """Return the widths of the values that a run has in hand: sums over edges that it makes, values, and their gradients."""
    backward = step.mode == "backward"
    read = multiplied_inputs(stage) if backward else {i.column for i in stage.inputs}
    found = Counter(i.width for i in stage.inputs if i.column in read and i.column in sums)
    if backward:
        widths = {output.value: output.width for output in stage.outputs}
        found.update(widths[of.value] for of in step.gradients for name in of.columns if name in sums)
    if stage.loss is not None and step.mode in ("turn", "evaluate"):
        found[stage.loss.outputs] += LOSS_COPIES
    own: Counter[int] = Counter()  # the models of a batch run one after the other
    for one in stage.each:
        values = Counter[int]() if backward else _values(one, step.mode)
        own |= values + _gradients(one) if step.mode in ("turn", "backward") else values
    return found + own


def _values(stage: Stage, mode: str) -> Counter[int]:
    """Return the widths of the values that a run makes, without those in its outputs' columns or saved for backward."""
    elsewhere = {output.value for output in stage.outputs} if mode in ("forward", "predict") else set()
    keeps = multiplied(stage) if mode == "forward" else set()
    last = [call for call in _places(stage) if call.output not in elsewhere | keeps]
    return Counter(call.type.width for call in last if mode != "forward" or not _is_kept(call))


def _is_kept(call: Call) -> bool:
    return operator_name(call.op) in (*ACTIVATIONS, "dropout")


def _places(stage: Stage) -> list[Call]:
    """Return the last call that writes to each place in memory.

    Elementwise operators overwrite their input, unless a product needs it. A product has a place of its own.
    """
    found: list[Call] = []
    read = multiplied(stage)
    for call in computing(stage):
        first = next(iter(call.reads), None)
        over = [place for place, other in enumerate(found) if other.output == first and first not in read]
        if over and not is_product(call) and found[over[0]].type.width == call.type.width:
            found[over[0]] = call
        else:
            found.append(call)
    return found


def _gradients(stage: Stage) -> Counter[int]:
    """Return the widths of the gradients that backward makes.

    There is one for each input of a product or reduction, and one for each output, because backward changes it in
    place.
    """
    widths = {i.value: i.width for i in stage.inputs if i.needs_gradient}
    widths |= {call.output: call.type.width for call in computing(stage)}
    products = [call for call in computing(stage) if is_product(call)]
    made = {call.output for call in products}
    found = Counter(widths[name] for call in products for name in call.reads if name in widths)
    dots = head_dots(stage)
    reductions = [call for call in computing(stage) if call.output in dots or is_head_mean(call)]
    found.update(numbers_taken(stage, call) for call in reductions)
    found.update(output.width for output in stage.outputs if output.value not in made)
    return found
