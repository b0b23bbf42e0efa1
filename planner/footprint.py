"""Estimates the memory that a plan needs on each engine, from the sizes of its columns alone, before anything is loaded.

Memory is of two kinds. The bytes *in hand* are what tasks work on, and they must lie in the heap together. The bytes
*held* are columns that are read later, and values that workers save between forward and backward. If memory is short,
held bytes go to the disk or are computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from planner.chunks import CHUNK_ROWS, EDGES_READ, PART_BYTES, slice_width
from planner.estimate import CSR_BYTES_PER_EDGE, column_bytes, columns_bytes, row_bytes
from planner.keeping import multiplied_inputs, saved_row_bytes
from planner.layout import Layout
from planner.orders.division import EDGE_BYTES, EDGE_NUMBER_BYTES
from planner.physical import Plan, Stage
from planner.scratch import NUMBER_BYTES, rows_in_hand, scratch_bytes
from planner.shares import DRIVER_BYTES, LEAST_HEAP, MIB, MOST_SHARED, fixed_bytes, heap_for, least_limit
from planner.statistics import Statistics
from planner.steps.collect import CollectStep
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep, learned_parameters
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step
from planner.topology import topology
from planner.traits import EngineTraits
from planner.turning import reversed_sets

SPARK_HEAP = 160 * MIB  # Spark's own heap, measured after a garbage collection
PARTS_LOADED = 3  # copies of a partition's rows while it is built: as they came, in one piece, sorted
EDGES_LOADED = 64  # bytes of an edge in that time
PACKED = 32 * MIB  # bytes of a task that sorts rows by partition, see `Packing` in Scala
SENT = 128 << 10  # bytes of a task for each partition that it writes rows for: buffers of Spark's files, and our own
FEATURE_COPIES = 2  # copies of the features in this process while they are read
LOCAL_EDGE_BYTES = 100  # bytes of an edge on local: its ends, as read and sorted, and both directions' matrices
SUMMED_EDGE_BYTES = 40  # the same of both directions' matrices alone, and of one more while it is made
SUM_EDGE_BYTES = 16  # of these, what is in memory while a sum reads a matrix that lies in files; measured: 10 to 14
ENDS_BYTES = 16  # the two ends of an edge in files
PARTS_READ = 4  # parts of features in memory while they are read: as they came, as numbers, and in the file
ENDS_READ = 2  # parts of edges in files that are in memory while they are counted, or made ready to be summed over
READ_VERTEX_BYTES = (
    32  # bytes of a vertex while edges are sorted in files: its edges, counted and summed up, and their run
)
LOCAL_VERTEX_BYTES = 40
COPIED_BYTES = 32 * MIB  # parts of columns in files that threads copy at one time
KEPT_PER_CALL = 2  # copies of the output of a call on edges: one saved for backward, and a gradient
KEY_BYTES = 8  # bytes of a vertex's row key
UNFREED_BYTES = 32 << 20  # of rows that the driver sent in earlier passes, and that its JVM has not freed yet
# copies of learned rows: the model's, two of the optimizer's state, the best ones, and a gradient, or later the result
LEARNED_COPIES = 5
MODEL_COPIES = (
    3  # of them, those in the driver's process if the others lie in Spark: the model's, the best and the result
)
# copies of learned rows in Spark: before and after a step, each with two parts of a state, the best ones, and a gradient
SPARK_COPIES = 8
SPARSE_BYTES = 16  # bytes of a non-zero feature: the number with its place, by row and by column
BLOCKS_IN_TURN = (
    3  # blocks of a task whose sums read other partitions one at a time: its own, its edges both ways again
)
PARTS_IN_TURN = (
    3  # partitions of a column that such a task holds: rows of one, the sums, and rows to be put into a file
)
ROWS_HEAP = 320 * MIB  # Spark's own heap on rows, with generated operators and their garbage
ROW_COPIES = 3  # copies of columns in that heap: held, and passed on by operators; fitted to one graph
GAPS = 1.2  # measured peak on local, divided by `local_bytes`; the cause was not found
MOST_GAPS = 1.5  # the same where a limit has to hold: 1.1 was measured for GCN, 1.45 for GAT
SUM_GAPS = (
    1.1  # the same of a plan whose columns lie in files, and that sums over edges alone: 0.8 to 0.95 were measured
)
MARGIN = 1.1  # how far these bounds are above what is expected
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
    on_disk: int = 0  # bytes of columns, and on local of saved values, that may lie in files under a lesser limit
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
            on_disk=local_columns(plan, statistics) + _kept_in_chunks(plan, statistics) + graph_on_disk(statistics),
        )
    copies = MODEL_COPIES if layout.rows_in_spark and not layout.rows_in_checkpoints else LEARNED_COPIES
    of_rows = _learned_held(plan, statistics, copies)  # in the process of the driver
    fixed = fixed_bytes(layout.crew) + of_rows
    columns = held(plan, statistics)
    # Columns pass through the shared memory of tasks, one chunk at a time.
    outside = _workers_hold(plan, statistics, layout) + min(layout.crew.tasks * MOST_SHARED, columns)
    if traits.spills:  # Spark's own operators spill to the disk without our help
        peak = fixed + outside + min(2 * LEAST_HEAP, ROWS_HEAP + int(ROW_COPIES * columns))
        return Footprint(engine, peak, least_limit(LEAST_HEAP, layout.crew, layout.saved) + of_rows)
    needed = in_hand(plan, statistics, layout) + _rows_sent(plan, statistics)
    kept = _learned_held(plan, statistics, SPARK_COPIES) if layout.rows_in_spark else 0
    heap = int(GARBAGE * (needed + columns + kept))
    least_heap = heap_for(int(GARBAGE * needed))
    least = least_limit(least_heap, layout.crew, layout.saved) + of_rows
    return Footprint(engine, fixed + outside + heap, least, heap, least_heap, layout.in_turn, on_disk=columns)


def without_rows(found: Footprint, plan: Plan, statistics: Statistics) -> Footprint:
    """Return a footprint on local if the learned rows lie in files."""
    rows = _learned_held(plan, statistics)
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


def local_bytes(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes of a graph in this process and of training on it, if all of them are in memory."""
    kept = sum(stage_kept(stage, within, statistics) for stage, within in trained_stages(plan))
    columns = local_columns(plan, statistics) + _sparse_bytes(plan, statistics)
    scratch = scratch_bytes(plan, statistics, layout.cores, layout.chunk_rows)
    turned = sum(LOCAL_EDGE_BYTES * statistics.edge_count(edges) for edges in reversed_sets(plan))
    graph = reading_bytes(replace(statistics, in_files=False))
    return graph + columns + kept + scratch + turned + _learned_held(plan, statistics)


def _learned_held(plan: Plan, statistics: Statistics, copies: int = LEARNED_COPIES) -> int:
    """Return the bytes of all copies of learned rows. The plan of a batch does not count those of the whole graph again."""
    return 0 if statistics.sampled else copies * learned_bytes(plan, statistics)


def _rows_sent(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of the rows that the driver sends to their vertices in a pass, which its JVM holds meanwhile.

    They are learned rows, the gradient of the rows of which the driver scores pairs, and some of earlier passes.
    """
    if statistics.sampled:
        return 0
    scored = [step.output for step in plan.train if isinstance(step, ScoreStep)]
    sent = learned_bytes(plan, statistics) + sum(column_bytes(column, statistics) for column in scored)
    return sent and sent + UNFREED_BYTES


def learned_bytes(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of one copy of the parameters that have a row for each vertex."""
    return 4 * sum(step.numbers(statistics.vertices) for step in learned_parameters(plan).values())


def local_least_bytes(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes on local if columns and saved values lie in files: the floor, and what a step has in hand."""
    in_hand = [
        step_in_hand(plan, step, sizes, statistics, layout)
        for steps in plan.passes
        for sizes in [columns_bytes(plan, steps, statistics)]
        for step in steps
    ]
    return max(reading_bytes(statistics), local_floor(plan, statistics, layout) + max(in_hand, default=0))


def local_floor(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes that are in memory on local throughout a run whose columns and saved values lie in files.

    These are the graph, the chunks that threads work on, and what a step that reads edges itself saves for backward.
    """
    stay = [column for column in plan.static_columns if column.name != "features"]  # features are part of the graph
    of_edges = [(stage, within) for stage, within in trained_stages(plan) if stage.edge_sets]
    kept = sum(stage_kept(stage, within, statistics) for stage, within in of_edges)
    turned = sum(LOCAL_EDGE_BYTES * statistics.edge_count(edges) for edges in reversed_sets(plan))
    static = sum(column_bytes(column, statistics) for column in stay) + _sparse_bytes(plan, statistics)
    scratch = scratch_bytes(plan, statistics, layout.cores, layout.chunk_rows)
    graph = _graph_held(plan, statistics) if statistics.in_files else reading_bytes(statistics)
    return graph + static + kept + turned + scratch + COPIED_BYTES + _learned_held(plan, statistics)


def local_expected(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes of `local_floor` that are expected. That function returns an upper bound of them.

    Matrices that lie in files are in memory while a sum reads them, and the chunks of threads while a stage runs.
    """
    floor = local_floor(plan, statistics, layout)
    if not statistics.in_files or statistics.weighted or _reads_edges(plan) or edges_in_files(plan, statistics):
        return floor  # more of each edge stays in memory, or no matrix of all
    graph, scratch = _graph_held(plan, statistics), scratch_bytes(plan, statistics, layout.cores, layout.chunk_rows)
    read = graph - (SUMMED_EDGE_BYTES - SUM_EDGE_BYTES) * statistics.edges
    return floor - graph - scratch + max(read, scratch)


def local_gaps(plan: Plan) -> float:
    """Return the measured peak on local under a limit, divided by what was estimated: an upper bound."""
    return MOST_GAPS if _reads_edges(plan) else SUM_GAPS


def _reads_edges(plan: Plan) -> bool:
    """Return True if some step reads edges itself, and not only sums over them."""
    steps = (step for steps in plan.passes for step in steps)
    return any(isinstance(step, EdgeStep) for step in steps) or any(stage.edge_sets for stage in plan.stages)


def edges_in_files(plan: Plan, statistics: Statistics) -> bool:
    """Return True if the edges of a graph in files stay there on local: the plan only evaluates, and reads parts of them."""
    return statistics.in_files and reads_edges_in_parts(plan)


def reads_edges_in_parts(plan: Plan) -> bool:
    """Return True if local reads edges that lie in files a part at a time: the plan does not train, and no step hinders it.

    Sums do not, and neither do steps and stages that need all in-edges of one vertex, but no others. The edges are the
    graph's own, or those with self-loops. What loops get as attributes is found on all edges, and static columns are of all.
    """
    every = *plan.prepare, *plan.evaluate, *plan.predict
    steps = [step for step in every if isinstance(step, PropagateStep | EdgeStep)]
    sets = {step.edges for step in steps}.union(*(stage.edge_sets for stage in plan.stages))
    in_runs = all(isinstance(step, PropagateStep) or step.in_runs for step in steps) and all(map(_in_runs, plan.stages))
    whole = plan.train or any(column.edges for column in plan.static_columns)
    return not whole and in_runs and sets <= {"graph", "self_loops"}


def _in_runs(stage: Stage) -> bool:
    """Return True if a stage may run on some vertices after others, with their in-edges and what the graph's own edges have."""
    columns = {name for edges in stage.edge_sets for name in stage.edge_columns(edges)}
    drawn = any(map(stage.draws_on, stage.edge_sets))
    few = stage.edge_sets and any(output.few for output in stage.outputs)
    return not (drawn or few) and columns <= {"edge_attr", "edge_type"}


def _numbers_on_edges(plan: Plan) -> int:
    """Return the most numbers that a stage computes on an edge."""
    calls = ((call for one in stage.each for call in one.calls if call.type.edges) for stage in plan.stages)
    return max((sum(call.type.width for call in of_stage) for of_stage in calls), default=0)


def _graph_held(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of a graph in memory while a plan runs on it, if features and the ends of edges lie in files."""
    if edges_in_files(plan, statistics):
        of_edge = LOCAL_EDGE_BYTES + NUMBER_BYTES * _numbers_on_edges(plan) if _reads_edges(plan) else 0
        of_run = of_edge * min(EDGES_READ, statistics.edges)
        return _parts_of_edges(statistics) + of_run + LOCAL_VERTEX_BYTES * statistics.vertices
    of_edge = LOCAL_EDGE_BYTES if _reads_edges(plan) else SUMMED_EDGE_BYTES
    of_edge += FEATURE_COPIES * 4 * statistics.edge_data.numbers
    return of_edge * statistics.edges + LOCAL_VERTEX_BYTES * statistics.vertices


def step_in_hand(plan: Plan, step: Step, sizes: Mapping[str, int], statistics: Statistics, layout: Layout) -> int:
    """Return the bytes of the columns in files that a step of a pass has in hand at one time.

    Args:
        plan: The plan.
        step: The step.
        sizes: The bytes of each column of its pass, by name.
        statistics: The sizes of the graph.
        layout: The chunks and the threads.
    """
    touched = sum(sizes.get(name, 0) for name in {*step.reads, *step.makes})
    if isinstance(step, EdgeStep) and edges_in_files(plan, statistics):
        of_edges = sum(sizes.get(name, 0) for name in {*step.of_edges, *(step.makes if step.output.edges else ())})
        share = min(1.0, EDGES_READ / max(1, statistics.edge_count(step.edges, step.within)))
        return touched - of_edges + int(share * of_edges)
    part = min(1.0, rows_in_hand(statistics.vertices, layout.cores, layout.chunk_rows) / max(1, statistics.vertices))
    if isinstance(step, PropagateStep):
        width = row_bytes(step.output) // NUMBER_BYTES
        summed = NUMBER_BYTES * statistics.vertices * slice_width(statistics.vertices, width)
        return summed + int(part * sizes.get(step.output.name, 0))
    return int(part * touched) if works_in_parts(plan, step) else touched


def works_in_parts(plan: Plan, step: Step) -> bool:
    """Return True if a step on local reads and writes columns in files part by part."""
    chunked = isinstance(step, PipeStep) and not plan.stage(step.stage).edge_sets
    return chunked or isinstance(step, PropagateStep)


def _kept_in_chunks(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of the saved values of stages that run in chunks."""
    stages = [(stage, within) for stage, within in trained_stages(plan) if not stage.edge_sets]
    return sum(stage_kept(stage, within, statistics) for stage, within in stages)


def local_columns(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of columns on local: all static ones, and the memory in which the passes make the others.

    A column takes over the memory of an earlier one only if both have the same size, and no memory is given back. So
    the memory for columns of one size is that of the most that are alive together in any pass.
    """
    stay = {column.name: column_bytes(column, statistics) for column in (*plan.static_columns, *plan.hoisted)}
    lent: dict[int, int] = {}  # bytes, by the size of a column
    for steps in plan.passes:
        alive: Counter[int] = Counter()
        sizes = columns_bytes(plan, steps, statistics)
        for _, change in _changes(steps, {name: sizes[name] for name in sizes.keys() - stay.keys()}, _reads):
            size = abs(change)
            alive[size] += change
            lent[size] = max(lent.get(size, 0), alive[size])
    return sum(stay.values()) + sum(lent.values())


def _sparse_bytes(plan: Plan, statistics: Statistics) -> int:
    """Return the bytes of the sparse features that stages read, once for each level up to which such a stage runs."""
    sparse = {stage.name for stage in plan.stages if any(i.sparse for i in stage.inputs)}
    levels = {s.within for steps in plan.passes for s in steps if isinstance(s, PipeStep) and s.stage in sparse}
    rows = sum(map(statistics.rows_within, levels))
    return int(SPARSE_BYTES * statistics.density * statistics.width * rows)


def reading_bytes(statistics: Statistics) -> int:
    """Return the bytes of a graph while this process reads and sorts it, without the bytes of training."""
    if statistics.in_files:
        parts = PARTS_READ * min(PART_BYTES, 4 * statistics.width * statistics.vertices) + _parts_of_edges(statistics)
        of_edge = EDGE_BYTES + EDGE_NUMBER_BYTES * (statistics.weighted + statistics.edge_data.numbers)
        read = of_edge * min(EDGES_READ, statistics.edges)
        return (LOCAL_VERTEX_BYTES + READ_VERTEX_BYTES) * statistics.vertices + parts + read
    of_vertex = LOCAL_VERTEX_BYTES + FEATURE_COPIES * 4 * statistics.width
    of_edge = LOCAL_EDGE_BYTES + FEATURE_COPIES * 4 * statistics.edge_data.numbers
    return of_vertex * statistics.vertices + of_edge * statistics.edges


def _parts_of_edges(statistics: Statistics) -> int:
    return ENDS_READ * min(PART_BYTES, ENDS_BYTES // 2 * statistics.edges)


def graph_on_disk(statistics: Statistics) -> int:
    """Return the bytes of features and edges in files: as they were read, in the order of a plan, and as a matrix."""
    edges = statistics.edges + statistics.edge_count("self_loops")
    of_edge = ENDS_BYTES + 4 * (statistics.weighted + statistics.edge_data.numbers + statistics.edge_data.typed)
    copies = 2 * (4 * statistics.width * statistics.vertices + of_edge * edges) + CSR_BYTES_PER_EDGE * edges
    return copies if statistics.in_files else 0


def stage_kept(stage: Stage, within: int | None, statistics: Statistics) -> int:
    """Return the bytes of a stage's saved values on local, and of the gradients that backward makes of them."""
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
    """Return the stages that run forward and later backward, each with the level up to which its backward runs."""
    levels = {s.stage: s.within for s in plan.train if isinstance(s, PipeStep) and s.mode == "backward"}
    return [(stage, levels[stage.name]) for stage in plan.stages if stage.name in levels]


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


def _reads(step: Step) -> Collection[str]:
    return step.reads


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
        return _alive(steps, columns_bytes(plan, steps, statistics), found)

    once = columns_bytes(plan, plan.prepare, statistics)
    stay = {column.name for column in (*plan.static_columns, *plan.hoisted)}
    others = {name: size for name, size in once.items() if name not in stay}
    prepared = sum(once[name] for name in stay) + _alive(plan.prepare, others, found)
    lasting = sum(once[name] for name in plan.lasting)
    return max(prepared, lasting + max(map(alive, plan.passes[1:])))


def _alive(steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]]) -> int:
    """Return the most bytes that are alive at any step."""
    return max(accumulate((change for _, change in _changes(steps, sizes, read)), initial=0))


def alive_bytes(plan: Plan, steps: Sequence[Step], statistics: Statistics) -> list[int]:
    """Return the bytes of the columns that exist while each step of a pass runs, static columns included.

    Args:
        plan: The plan.
        steps: One of the plan's passes.
        statistics: The statistics of the graph.
    """
    sizes = columns_bytes(plan, steps, statistics)
    there = {column.name for column in plan.static_columns} if steps == plan.prepare else plan.lasting
    stay = {column.name for column in plan.hoisted}  # counted from the step of `prepare` that makes them
    changes = Counter({0: sum(sizes[name] for name in there)})
    for place, change in _changes(steps, {name: size for name, size in sizes.items() if name not in stay}, _reads):
        changes[place] += change
    for place, step in enumerate(steps):
        changes[place] += sum(sizes[name] for name in stay.intersection(step.makes))
    return list(accumulate(changes[place] for place in range(len(steps))))


def _changes(
    steps: Sequence[Step], sizes: Mapping[str, int], read: Callable[[Step], Collection[str]]
) -> list[tuple[int, int]]:
    """Return the places of steps at which columns are made or freed, each with the change in bytes, in order.

    At one place, freed columns come first. A sum that a pipe reads is made by the pipe itself, so the pipe counts as
    the reader of the column that is summed.
    """
    sums = {step.output.name: step.input for step in steps if isinstance(step, PropagateStep)}
    last: dict[str, int] = {}
    for place, step in enumerate(steps):
        spends = isinstance(step, PipeStep | PropagateStep)  # columns with other readers stay until the end
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
