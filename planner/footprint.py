"""The memory that a plan needs on each engine, before anything is loaded: from the sizes of its columns alone.

What tasks have *in hand* has to lie in the heap together; what is *held* beside it (columns that are read later, and what
workers keep between forward and backward) goes to the disk where memory is short, or is computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from planner.chunks import CHUNK_ROWS
from planner.estimate import column_bytes, columns_bytes, row_bytes
from planner.keeping import multiplied_inputs, saved_row_bytes
from planner.layout import Layout
from planner.physical import Plan, Stage
from planner.scratch import scratch_bytes
from planner.shares import DRIVER_BYTES, LEAST_HEAP, MIB, MOST_SHARED, fixed_bytes, heap_for, least_limit
from planner.statistics import Statistics
from planner.steps.collect import CollectStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.topology import topology
from planner.traits import EngineTraits

SPARK_HEAP = 160 * MIB  # of Spark itself, measured after a collection
PARTS_LOADED = 3  # times the rows of a partition while it is put together: as they came, in one piece, sorted
EDGES_LOADED = 64  # bytes of an edge meanwhile
FEATURE_COPIES = 2  # of the features in this process while they are read
LOCAL_EDGE_BYTES = 100  # of an edge there: its ends, as read and sorted, and the matrices of both directions
LOCAL_VERTEX_BYTES = 40
KEPT_PER_CALL = 2  # a call on edges keeps its output for backward, and backward makes a gradient of the same size
KEY_BYTES = 8  # of a vertex: its row key
SPARSE_BYTES = 16  # of a number that is not zero: with its place, by row and by column
ROWS_HEAP = 320 * MIB  # of Spark with generated operators, and what they leave behind, on rows
ROW_COPIES = 3  # of columns in Spark's heap there: as they are held, and as operators pass them on; fitted to one graph
GAPS = 1.2  # of what training takes on local by `local_bytes`; why was not found
MOST_GAPS = 1.5  # where a limit is to hold: 1.1 was measured of GCN, 1.45 of GAT
GARBAGE = 1.5  # of a heap by what is reachable in it: large arrays need room in one piece


@dataclass(frozen=True)
class Footprint:
    """Bytes of all processes of the job on this host."""

    engine: str
    peak: int  # with all the memory it could use
    least: int  # limit under which it runs; may be more than `peak`, for a limit is divided in fixed shares
    heap: int = 0  # of `peak`, what lies in Spark's heap; 0 where Spark's own default will do
    least_heap: int = 0  # under which it runs
    partitions: int | None = None  # at least so many, where as many as usual would need more than the limit

    def times(self, models: int) -> Footprint:
        """Of so many alike, at the most."""
        return replace(self, peak=models * self.peak, heap=models * self.heap)


def footprint(traits: EngineTraits, plan: Plan, statistics: Statistics, layout: Layout) -> Footprint:
    """The memory that an engine needs for a plan of its own."""
    engine = traits.name
    if traits.memory == "process":
        total = local_bytes(plan, statistics, layout)
        return Footprint(engine, DRIVER_BYTES + int(GAPS * total), DRIVER_BYTES + int(MOST_GAPS * total))
    fixed = fixed_bytes(layout.crew)
    columns = held(plan, statistics)
    # Columns pass through the shared memory of tasks, a chunk at a time.
    outside = _workers_hold(plan, statistics, layout) + min(layout.crew.tasks * MOST_SHARED, columns)
    if traits.spills:  # Spark's own operators go to the disk by themselves
        peak = fixed + outside + min(2 * LEAST_HEAP, ROWS_HEAP + int(ROW_COPIES * columns))
        return Footprint(engine, peak, least_limit(LEAST_HEAP, layout.crew, layout.saved))
    needed = in_hand(plan, statistics, layout)
    heap = int(GARBAGE * (needed + columns))
    least_heap = heap_for(int(GARBAGE * needed))
    least = least_limit(least_heap, layout.crew, layout.saved)
    return Footprint(engine, fixed + outside + heap, least, heap, least_heap)


def local_bytes(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Bytes of a graph in this process and of training on it there: nothing of it can lie elsewhere."""
    kept = sum(_local_kept(stage, within, statistics) for stage, within in trained_stages(plan))
    columns = local_columns(plan, statistics) + _sparse_bytes(plan, statistics)
    scratch = scratch_bytes(plan, statistics, layout.cores, layout.chunk_rows)
    return reading_bytes(statistics) + columns + kept + scratch


def local_columns(plan: Plan, statistics: Statistics) -> int:
    """Bytes of columns: static ones, and of each size as many as are alive together in some pass, for memory is lent again.

    Only a column of the same size takes it over; memory that no pass needs any more is not given back.
    """
    stay = {column.name: column_bytes(column, statistics) for column in (*plan.static_columns, *plan.hoisted)}
    lent: dict[int, int] = {}  # bytes, by size of a column
    for steps in plan.passes:
        alive: Counter[int] = Counter()
        sizes = columns_bytes(plan, steps, statistics)
        for _, change in _changes(steps, {name: sizes[name] for name in sizes.keys() - stay.keys()}, _reads):
            size = abs(change)
            alive[size] += change
            lent[size] = max(lent.get(size, 0), alive[size])
    return sum(stay.values()) + sum(lent.values())


def _sparse_bytes(plan: Plan, statistics: Statistics) -> int:
    """Bytes of the features as stages read them that are given what is not zero: once for each level up to which some do."""
    sparse = {stage.name for stage in plan.stages if any(i.sparse for i in stage.inputs)}
    levels = {s.within for steps in plan.passes for s in steps if isinstance(s, PipeStep) and s.stage in sparse}
    rows = sum(map(statistics.rows_within, levels))
    return int(SPARSE_BYTES * statistics.density * statistics.width * rows)


def reading_bytes(statistics: Statistics) -> int:
    """Bytes of a graph that is read into this process and sorted there, without what training makes of it."""
    of_vertex = FEATURE_COPIES * 4 * statistics.width + LOCAL_VERTEX_BYTES
    return of_vertex * statistics.vertices + LOCAL_EDGE_BYTES * statistics.edges


def _local_kept(stage: Stage, within: int | None, statistics: Statistics) -> int:
    """Bytes that a stage keeps for its backward, and what that makes of them."""
    if not stage.edge_sets:
        return statistics.rows_within(within) * saved_row_bytes(stage)
    rows = {"vertex": statistics.rows_within(within), "none": 0}
    return sum(
        KEPT_PER_CALL
        * 4
        * call.type.width
        * rows.get(call.type.rows, statistics.edge_count(call.type.edges or "graph", within))
        for one in stage.each
        for call in one.calls
    )


def trained_stages(plan: Plan) -> list[tuple[Stage, int | None]]:
    """The stages that run forward and later backward, each with the level up to which it does."""
    levels = {s.stage: s.within for s in plan.train if isinstance(s, PipeStep) and s.mode == "backward"}
    return [(stage, levels[stage.name]) for stage in plan.stages if stage.name in levels]


# --- blocks: in hand --------------------------------------------------------------------------------------------------


def in_hand(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Bytes of Spark's heap that must be there at one time, whatever lies on the disk."""
    loading = _loading(plan, statistics, layout)
    passes = [
        _WorkingSet(plan, steps, columns_bytes(plan, steps, statistics), layout).most for steps in plan.passes if steps
    ]
    return SPARK_HEAP + topology(plan, statistics, layout.partitions) + max([loading, *passes])


def _loading(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    rows = sum(row_bytes(column) for column in plan.static_columns) * statistics.vertices
    return int(layout.at_once * (PARTS_LOADED * rows + EDGES_LOADED * statistics.edges))


class _WorkingSet:
    """What the tasks of a pass have in hand."""

    def __init__(self, plan: Plan, steps: Sequence[Step], sizes: Mapping[str, int], layout: Layout) -> None:
        self._steps, self._sizes, self._layout = steps, sizes, layout
        self._made_at = {name: place for place, step in enumerate(steps) for name in step.makes}
        needed = [_needed(plan, step) for step in steps]
        rows = [*map(self._read_as_rows, needed)]
        self._whole = [*map(self._read_whole, steps, needed)]
        self._parts = [*map(self._in_parts, steps, rows, self._whole)]
        self._sources = [*map(self._made_before, rows, self._whole)]

    @property
    def most(self) -> int:
        """Bytes, of the step that needs the most: with that of its inputs which is computed for it meanwhile."""
        return max(
            self._of(place) + max((self._of(source, whole) for source in self._sources[place]), default=0)
            for place, whole in enumerate(self._whole)
        )

    def _of(self, place: int, besides: Collection[str] = ()) -> int:
        """Of the step there."""
        sizes = self._sizes
        everywhere = sum([sizes[name] for name in self._whole[place] if name not in besides])
        parts = sum([sizes[name] for name in self._parts[place] if name not in besides])
        return everywhere + int(self._layout.at_once * parts)

    def _made_before(self, rows: Collection[str], whole: Collection[str]) -> set[int]:
        """The places of the steps that make what a step reads."""
        return {self._made_at[name] for name in (*rows, *whole) if name in self._made_at}

    def _maker(self, name: str) -> Step | None:
        place = self._made_at.get(name)
        return None if place is None else self._steps[place]

    def _in_parts(self, step: Step, rows: Collection[str], whole: Collection[str]) -> list[str]:
        """The columns of which a task has the rows of its own partition alone."""
        if isinstance(step, PropagateStep):  # which is made as a pipe comes to it
            return []
        made = [column.name for column in step.columns_made]
        return [name for name in dict.fromkeys([*rows, *made]) if name not in whole]

    def _read_as_rows(self, needed: Collection[str]) -> list[str]:
        """The columns that lie in the task's partition as rows."""
        made = (name for name in needed if name in self._sizes)
        return [name for name in made if not isinstance(self._maker(name), PropagateStep | CollectStep)]

    def _read_whole(self, step: Step, needed: Collection[str]) -> frozenset[str]:
        """The columns of which every task reads all partitions: through sums that are made as a pipe comes to them, too."""
        if not isinstance(step, PipeStep):
            return frozenset(step.read_whole)
        made = [*map(self._maker, needed)]
        sums = {source.input for source in made if isinstance(source, PropagateStep)}
        return frozenset(sums.union(*(source.columns for source in made if isinstance(source, CollectStep))))


def _reads(step: Step) -> Collection[str]:
    return step.reads


def _needed(plan: Plan, step: Step) -> Collection[str]:
    """What a step reads; a backward does without the inputs that it reads only where its forward run was not kept."""
    if not isinstance(step, PipeStep) or step.mode != "backward":
        return step.reads
    stage = plan.stage(step.stage)
    read = multiplied_inputs(stage)
    again = {i.column for i in stage.inputs if i.column in read or stage.edge_sets}
    gradients = {name for gradient in step.gradients for name in gradient.columns}
    return {name for name in step.inputs if name in again} | gradients | {*step.collections}


# --- blocks: held -----------------------------------------------------------------------------------------------------


def held(plan: Plan, statistics: Statistics) -> int:
    """Bytes of the columns that are alive together, at the most: static ones, and those of a pass until they are spent."""

    def found(step: Step) -> Collection[str]:
        return _needed(plan, step)

    def alive(steps: Sequence[Step]) -> int:
        return _alive(steps, columns_bytes(plan, steps, statistics), found)

    once = columns_bytes(plan, plan.prepare, statistics)
    stay = {column.name for column in (*plan.static_columns, *plan.hoisted)}
    others = {name: size for name, size in once.items() if name not in stay}
    prepared = sum(once[name] for name in stay) + _alive(plan.prepare, others, found)
    lasting = sum(once[name] for name in plan.lasting)
    return max(prepared, lasting + max(map(alive, plan.passes[1:])))


def _alive(steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]]) -> int:
    """The most at any step."""
    return max(accumulate((change for _, change in _changes(steps, sizes, read)), initial=0))


def alive_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> list[int]:
    """Bytes of the columns that are there while each step of a pass runs, static ones among them.

    Args:
        plan: see there.
        steps: one of plan.passes.
        statistics: of the graph.
    """
    sizes = columns_bytes(plan, steps, statistics)
    there = {column.name for column in plan.static_columns} if steps == plan.prepare else plan.lasting
    stay = {column.name for column in plan.hoisted}  # from where `prepare` makes them
    changes = Counter({0: sum(sizes[name] for name in there)})
    for place, change in _changes(steps, {name: size for name, size in sizes.items() if name not in stay}, _reads):
        changes[place] += change
    for place, step in enumerate(steps):
        changes[place] += sum(sizes[name] for name in stay.intersection(step.makes))
    return list(accumulate(changes[place] for place in range(len(steps))))


def _changes(
    steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]]
) -> list[tuple[int, int]]:
    """At which step columns come and go, and how many bytes more or less there are then; what goes stands before what comes.

    Sums that a pipe reads are made as it comes to them, so what they are sums of is read by it.
    """
    sums = {step.output.name: step.input for step in steps if isinstance(step, PropagateStep)}
    last: dict[str, int] = {}
    for place, step in enumerate(steps):
        spends = isinstance(step, PipeStep | PropagateStep)  # what others read stays to the end
        for name in read(step):
            last[sums.get(name, name)] = place if spends else len(steps)
    born = {name: place for place, step in enumerate(steps) for name in step.makes}  # collections have no size
    found: list[tuple[int, int]] = []
    for name, first in born.items():
        size, gone = sizes.get(name), last.get(name, first)
        if size and name not in sums and gone >= first:
            found += (first, size), (gone + 1, -size)
    return sorted(found)


def _workers_hold(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Bytes that all workers together keep where they may: static inputs, and of forward runs what backward reads."""
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
    """Rows that workers hold of what these read: of all vertices, and the chunk in which a level ends once more."""
    *others, _ = sorted({statistics.vertices, *(statistics.rows_within(step.within) for step in readers)})
    chunks = layout.partitions * (layout.chunk_rows or CHUNK_ROWS)
    return statistics.vertices + sum(min(rows, chunks) for rows in others)
