"""The memory that stages compute in on the local engine: of the chunks that its threads have in hand, not of all vertices.

A thread holds on to the memory of a chunk's values, and what one stage made of some width lies where another's did.
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
LOSS_COPIES = 3  # of the model's output: rows that count, their probabilities, the gradient


def scratch_bytes(plan: Plan, statistics: Statistics, cores: int, chunk_rows: int | None = None) -> int:
    """Bytes of the values of chunks, of all threads together.

    Args:
        plan: see there.
        statistics: of the graph.
        cores: threads there are.
        chunk_rows: of a chunk; None: as suits the graph.
    """
    return NUMBER_BYTES * rows_in_hand(statistics.vertices, cores, chunk_rows) * numbers_in_hand(plan)


def rows_in_hand(vertices: int, cores: int, chunk_rows: int | None = None) -> int:
    """Vertices of the chunks that threads run a stage on at one time, at the most.

    >>> rows_in_hand(30_000, 2), rows_in_hand(40_000, 2), rows_in_hand(100_000, 2), rows_in_hand(1_000_000, 16)
    (30000, 10000, 25024, 16144)
    """
    chunks, length = even_chunks(vertices, chunk_rows or local_chunk_rows(vertices))
    return min(vertices, sharing_threads(chunks, cores) * length)


def numbers_in_hand(plan: Plan) -> int:
    """Numbers of a row of a chunk that there is memory for: of each width as many as the run of some stage needs at once."""
    most: Counter[int] = Counter()
    seen: set[int] = set()  # passes have steps in common
    for steps in plan.passes:
        sums = {step.output.name for step in steps if isinstance(step, PropagateStep)}
        for step in steps:
            if isinstance(step, PipeStep) and id(step) not in seen and not plan.stage(step.stage).edge_sets:
                most |= _widths(step, plan.stage(step.stage), sums)
                seen.add(id(step))
    return sum(width * count for width, count in most.items())


def _widths(step: PipeStep, stage: Stage, sums: Collection[str]) -> Counter[int]:
    """Of what a run has in hand: sums over edges that are made as it comes to them, values, and gradients of values."""
    backward = step.mode == "backward"
    read = multiplied_inputs(stage) if backward else {i.column for i in stage.inputs}
    found = Counter(i.width for i in stage.inputs if i.column in read and i.column in sums)
    if backward:
        widths = {output.value: output.width for output in stage.outputs}
        found.update(widths[of.value] for of in step.gradients for name in of.columns if name in sums)
    if stage.loss is not None and step.mode in ("turn", "evaluate"):
        found[stage.loss.outputs] += LOSS_COPIES
    own: Counter[int] = Counter()  # models of a batch run one after the other
    for one in stage.each:
        values = Counter[int]() if backward else _values(one, step.mode)
        own |= values + _gradients(one) if step.mode in ("turn", "backward") else values
    return found + own


def _values(stage: Stage, mode: str) -> Counter[int]:
    """Widths of the values that a run makes, but for what lies in its outputs' columns or is kept for backward."""
    elsewhere = {output.value for output in stage.outputs} if mode in ("forward", "predict") else set()
    keeps = multiplied(stage) if mode == "forward" else set()
    last = [call for call in _places(stage) if call.output not in elsewhere | keeps]
    return Counter(call.type.width for call in last if mode != "forward" or not _is_kept(call))


def _is_kept(call: Call) -> bool:
    return operator_name(call.op) in (*ACTIVATIONS, "dropout")


def _places(stage: Stage) -> list[Call]:
    """The last call to write to each place: elementwise operators write over what they read, where a product does not."""
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
    """Widths of the gradients that backward makes: of what products and reductions read, and of outputs, to be changed."""
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
