"""Estimates the memory that a plan needs on each engine, from the sizes of its columns alone, before anything is loaded.

Memory is of two kinds. The bytes *in hand* are what tasks work on, and they must lie in the heap together. The bytes
*held* are columns that are read later, and values that workers save between forward and backward. If memory is short,
held bytes go to the disk or are computed again. `planner.local_memory` estimates what is special to local.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.chunks import CHUNK_ROWS
from planner.estimate import column_bytes, columns_bytes, row_bytes
from planner.keeping import multiplied_inputs, saved_row_bytes, trained_stages
from planner.layout import Layout
from planner.lifetimes import most_alive
from planner.local_memory import (
    GAPS,
    MOST_GAPS,
    graph_on_disk,
    kept_in_chunks,
    local_bytes,
    local_columns,
    local_gaps,
    local_least_bytes,
    reading_bytes,
)
from planner.physical import Plan
from planner.shares import DRIVER_BYTES, LEAST_HEAP, MIB, MOST_SHARED, fixed_bytes, heap_for, least_limit
from planner.spark_disk import BLOCKS_IN_TURN, EDGES_LOADED, PARTS_LOADED, blocks_disk_bytes
from planner.statistics import Statistics
from planner.steps.collect import CollectStep
from planner.steps.learned_rows import (
    LEARNED_COPIES,
    LearnedRowsGradientStep,
    LearnedRowsStep,
    learned_bytes,
    learned_held,
)
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step
from planner.topology import topology
from planner.traits import EngineTraits

SPARK_HEAP = 160 * MIB  # Spark's own heap, measured after a garbage collection
PACKED = 32 * MIB  # bytes of a task that sorts rows by partition, see `Packing` in Scala
SENT = 128 << 10  # bytes of a task for each partition that it writes rows for: buffers of Spark's files, and our own
KEY_BYTES = 8  # bytes of a vertex's row key
UNFREED_BYTES = 32 << 20  # of rows that the driver sent in earlier passes, and that its JVM has not freed yet
# copies of learned rows in the driver's process if the others lie in Spark: the model's, the best and the result
MODEL_COPIES = 3
# copies of learned rows in Spark: before and after a step, each with two parts of a state, the best ones, and a gradient
SPARK_COPIES = 8
# partitions of a column that such a task holds: rows of one, the sums, and rows to be put into a file
PARTS_IN_TURN = 3
ROWS_HEAP = 320 * MIB  # Spark's own heap on rows, with generated operators and their garbage
ROW_COPIES = 3  # copies of columns in that heap: held, and passed on by operators; fitted to one graph
GARBAGE = 1.5  # heap size, divided by reachable bytes: large arrays need room in one piece


@dataclass(frozen=True)
class Footprint:
    """The memory of all processes of a job on this host, in bytes."""

    engine: str
    peak: int  # if it may use as much as it can
    least: int  # least limit under which it runs; may exceed `peak`, because a limit is divided in fixed shares
    heap: int = 0  # the part of `peak` in Spark's heap; 0: Spark's default heap is enough
    least_heap: int = 0  # least heap with which it runs
    in_turn: bool = False  # sums over edges have to read other partitions one at a time, which takes longer
    partitions: int | None = None  # least number of partitions, if the usual number needs more than the limit
    # least limit under which no column lies in a file; None: the engine decides that as it runs
    in_memory: int | None = None
    # bytes of columns and edges that may lie on a disk under a lesser limit, and on local of saved values
    on_disk: int = 0
    alone: bool = True  # False: the run holds more than the graph and what its plan makes, such as batches or scores

    def spills(self, limit: int | None) -> bool:
        """Return True if it is sure that columns lie in files under a limit."""
        return limit is not None and self.in_memory is not None and limit < self.in_memory

    def times(self, models: int) -> Footprint:
        """Return an upper bound on the footprint of several such plans that are trained together."""
        return replace(self, peak=models * self.peak, heap=models * self.heap)


def footprint(traits: EngineTraits, plan: Plan, statistics: Statistics, layout: Layout) -> Footprint:
    """Estimate the memory that an engine needs for a plan that is made for it."""
    engine = traits.name
    if traits.memory == "process":
        total, least = local_bytes(plan, statistics, layout), local_least_bytes(plan, statistics, layout)
        return Footprint(
            engine,
            peak=DRIVER_BYTES + int(GAPS * total),
            least=DRIVER_BYTES + int(local_gaps(plan) * min(least, total)),
            in_memory=DRIVER_BYTES + int(MOST_GAPS * total),
            on_disk=local_columns(plan, statistics) + kept_in_chunks(plan, statistics) + graph_on_disk(statistics),
        )
    copies = MODEL_COPIES if layout.rows_in_spark and not layout.rows_in_checkpoints else LEARNED_COPIES
    of_rows = learned_held(plan, statistics, copies)  # in the process of the driver
    fixed = fixed_bytes(layout.crew) + of_rows
    columns = held(plan, statistics)
    # Columns pass through the shared memory of tasks, one chunk at a time.
    outside = _workers_hold(plan, statistics, layout) + min(layout.crew.tasks * MOST_SHARED, columns)
    if traits.spills:  # Spark's own operators spill to the disk without our help
        peak = fixed + outside + min(2 * LEAST_HEAP, ROWS_HEAP + int(ROW_COPIES * columns))
        least = least_limit(LEAST_HEAP, layout.crew, layout.saved) + of_rows
        return Footprint(engine, peak, least, on_disk=ROW_COPIES * columns + EDGES_LOADED * statistics.edges)
    needed = in_hand(plan, statistics, layout) + _rows_sent(plan, statistics)
    kept = learned_held(plan, statistics, SPARK_COPIES) if layout.rows_in_spark else 0
    heap = int(GARBAGE * (needed + columns + kept))
    least_heap = heap_for(int(GARBAGE * needed))
    least = least_limit(least_heap, layout.crew, layout.saved) + of_rows
    on_disk = blocks_disk_bytes(plan, statistics, layout, columns + kept)
    return Footprint(engine, fixed + outside + heap, least, heap, least_heap, layout.in_turn, on_disk=on_disk)


def without_rows(found: Footprint, plan: Plan, statistics: Statistics) -> Footprint:
    """Return a footprint on local if the learned rows lie in files."""
    rows = learned_held(plan, statistics)
    if not rows:
        return found
    assert found.in_memory is not None  # local says so
    reading = DRIVER_BYTES + int(local_gaps(plan) * reading_bytes(statistics))
    return replace(
        found,
        peak=found.peak - int(GAPS * rows),
        least=max(reading, found.least - int(local_gaps(plan) * rows)),
        in_memory=found.in_memory - int(MOST_GAPS * rows),
    )


def _rows_sent(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of the rows that the driver sends to their vertices in a pass, which its JVM holds meanwhile.

    They are learned rows, the gradient of the rows of which the driver scores pairs, and some of earlier passes.
    """
    if statistics.sampled:
        return 0
    scored = [step.output for step in plan.train if isinstance(step, ScoreStep)]
    sent = learned_bytes(plan, statistics) + sum(column_bytes(column, statistics) for column in scored)
    return sent and sent + UNFREED_BYTES


# --- blocks: in hand --------------------------------------------------------------------------------------------------


def in_hand(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes of Spark's heap that are needed at one time, however much lies on the disk."""
    loading = _loading(plan, statistics, layout)
    passes = [
        _WorkingSet(plan, steps, columns_bytes(plan, steps, statistics), layout).most for steps in plan.passes if steps
    ]
    blocks = topology(plan, statistics, layout.partitions)
    if layout.in_turn and reads_in_turn(plan):
        blocks = int(blocks * min(1.0, BLOCKS_IN_TURN * layout.at_once))
        passes = [one + _sent(layout) for one in passes]  # the first one sends edges to where they are summed over
    return SPARK_HEAP + blocks + max([loading, *passes])


def reads_in_turn(plan: Plan) -> bool:
    """Return True if no step of a plan needs all partitions at one time, except sums over edges, which can do without."""
    return all(
        isinstance(step, PropagateStep | LearnedRowsStep | LearnedRowsGradientStep | ScoreStep)
        or (isinstance(step, PipeStep) and not step.collections)
        for steps in plan.passes
        for step in steps
    )


def _loading(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    rows = sum(row_bytes(column) for column in plan.static_columns) * statistics.vertices
    of_edge = EDGES_LOADED + PARTS_LOADED * 4 * statistics.edge_data.numbers
    built = int(layout.at_once * (PARTS_LOADED * rows + of_edge * statistics.edges))
    packed = min(layout.crew.tasks * PACKED, rows)
    return max(built, packed) + _sent(layout)


def _sent(layout: Layout) -> int:
    """Return the bytes of the buffers of tasks that write rows for every partition."""
    return layout.crew.tasks * SENT * layout.partitions


class _WorkingSet:
    """The columns that the tasks of a pass have in hand."""

    def __init__(self, plan: Plan, steps: Sequence[Step], sizes: Mapping[str, int], layout: Layout) -> None:
        self._steps, self._sizes, self._layout = steps, sizes, layout
        self._made_at = {name: place for place, step in enumerate(steps) for name in step.makes}
        needed = [_needed(plan, step) for step in steps]
        rows = [*map(self._read_as_rows, needed)]
        self._whole = [*map(self._read_whole, steps, needed)]
        self._sources = [*map(self._made_before, rows, self._whole)]
        summed: Sequence[Collection[str]] = [()] * len(steps)
        if layout.in_turn and reads_in_turn(plan):
            summed, self._whole = self._whole, [frozenset()] * len(steps)
        self._parts = [*map(self._in_parts, steps, rows, self._whole)]
        for parts, columns in zip(self._parts, summed, strict=True):
            parts += [name for name in columns for _ in range(PARTS_IN_TURN)]

    @property
    def most(self) -> int:
        """The bytes of the step that needs the most. The step that computes one of its inputs meanwhile is included."""
        return max(
            self._of(place) + max((self._of(source, whole) for source in self._sources[place]), default=0)
            for place, whole in enumerate(self._whole)
        )

    def _of(self, place: int, besides: Collection[str] = ()) -> int:
        """Return the bytes of the step at a place, without the columns in `besides`."""
        sizes = self._sizes
        everywhere = sum([sizes[name] for name in self._whole[place] if name not in besides])
        parts = sum([sizes[name] for name in self._parts[place] if name not in besides])
        return everywhere + int(self._layout.at_once * parts)

    def _made_before(self, rows: Collection[str], whole: Collection[str]) -> set[int]:
        """Return the places of the steps that make the columns that a step reads."""
        return {self._made_at[name] for name in (*rows, *whole) if name in self._made_at}

    def _maker(self, name: str) -> Step | None:
        place = self._made_at.get(name)
        return None if place is None else self._steps[place]

    def _in_parts(self, step: Step, rows: Collection[str], whole: Collection[str]) -> list[str]:
        """Return the columns of which a task has only the rows of its own partition."""
        if isinstance(step, PropagateStep):  # a pipe that reads the sum makes it
            return []
        made = [column.name for column in step.columns_made]
        return [name for name in dict.fromkeys([*rows, *made]) if name not in whole]

    def _read_as_rows(self, needed: Collection[str]) -> list[str]:
        """Return the columns that lie in the task's partition as rows."""
        made = (name for name in needed if name in self._sizes)
        return [name for name in made if not isinstance(self._maker(name), PropagateStep | CollectStep)]

    def _read_whole(self, step: Step, needed: Collection[str]) -> frozenset[str]:
        """Return the columns of which every task reads all partitions, also through sums that a pipe makes itself."""
        if not isinstance(step, PipeStep):
            return frozenset(step.read_whole)
        made = [*map(self._maker, needed)]
        sums = {source.input for source in made if isinstance(source, PropagateStep)}
        return frozenset(sums.union(*(source.columns for source in made if isinstance(source, CollectStep))))


def _needed(plan: Plan, step: Step) -> Collection[str]:
    """Return the names that a step reads if forward runs were saved. Backward then does without some inputs of its stage."""
    if not isinstance(step, PipeStep) or step.mode != "backward":
        return step.reads
    stage = plan.stage(step.stage)
    read = multiplied_inputs(stage)
    again = {i.column for i in stage.inputs if i.column in read or stage.edge_sets}
    gradients = {name for gradient in step.gradients for name in gradient.columns}
    return {name for name in step.inputs if name in again} | gradients | {*step.collections}


# --- blocks: held -----------------------------------------------------------------------------------------------------


def held(plan: Plan, statistics: Statistics) -> int:
    """Return the most bytes of columns that are alive together: static ones, and those of a pass until their last reader."""

    def found(step: Step) -> Collection[str]:
        return _needed(plan, step)

    def alive(steps: Sequence[Step]) -> int:
        return most_alive(steps, columns_bytes(plan, steps, statistics), found)

    once = columns_bytes(plan, plan.prepare, statistics)
    stay = {column.name for column in (*plan.static_columns, *plan.hoisted)}
    others = {name: size for name, size in once.items() if name not in stay}
    prepared = sum(once[name] for name in stay) + most_alive(plan.prepare, others, found)
    lasting = sum(once[name] for name in plan.lasting)
    return max(prepared, lasting + max(map(alive, plan.passes[1:])))


def _workers_hold(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes that all workers together may keep: static inputs, and the saved values of forward runs."""
    lasting = plan.lasting
    columns = [column for column in (*plan.static_columns, *plan.hoisted) if column.name in lasting]
    pipes = [step for steps in plan.passes for step in steps if isinstance(step, PipeStep)]
    static = KEY_BYTES * _rows_held(pipes, statistics, layout)
    for column in columns:
        readers = [step for step in pipes if column.name in step.inputs]
        static += row_bytes(column) * _rows_held(readers, statistics, layout)
    kept = sum(statistics.rows_within(within) * saved_row_bytes(stage) for stage, within in trained_stages(plan))
    may_keep = kept if layout.saved is None else layout.workers * layout.saved
    return static + min(kept, may_keep)


def _rows_held(readers: Sequence[PipeStep], statistics: Statistics, layout: Layout) -> int:
    """Return the rows that workers keep of a column with these readers.

    These are the rows of all vertices. In addition, the chunk in which a level ends is kept once more, cut to that
    level.
    """
    *others, _ = sorted({statistics.vertices, *(statistics.rows_within(step.within) for step in readers)})
    chunks = layout.partitions * (layout.chunk_rows or CHUNK_ROWS)
    return statistics.vertices + sum(min(rows, chunks) for rows in others)
