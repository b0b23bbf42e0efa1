"""Estimates the memory that a plan needs on local, where all of it is in this process, from sizes alone.

Columns and saved values are in memory if there is room for all of them. Under a lesser limit they lie in files, and a
step has in hand only what it works on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from planner.chunks import EDGES_READ, PART_BYTES, slice_width
from planner.estimate import CSR_BYTES_PER_EDGE, column_bytes, columns_bytes, row_bytes
from planner.keeping import saved_row_bytes, trained_stages
from planner.layout import Layout
from planner.lifetimes import byte_changes
from planner.orders.division import EDGE_BYTES, EDGE_NUMBER_BYTES
from planner.physical import Plan, Stage
from planner.scratch import NUMBER_BYTES, rows_in_hand, scratch_bytes
from planner.shares import MIB
from planner.statistics import Statistics
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import learned_held
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.step import Step
from planner.turning import reversed_sets

FEATURE_COPIES = 2  # copies of the features in this process while they are read
LOCAL_EDGE_BYTES = 100  # bytes of an edge on local: its ends, as read and sorted, and both directions' matrices
SUMMED_EDGE_BYTES = 40  # the same of both directions' matrices alone, and of one more while it is made
SUM_EDGE_BYTES = 16  # of these, what is in memory while a sum reads a matrix that lies in files; measured: 10 to 14
ENDS_BYTES = 16  # the two ends of an edge in files
PARTS_READ = 4  # parts of features in memory while they are read: as they came, as numbers, and in the file
ENDS_READ = 2  # parts of edges in files that are in memory while they are counted, or made ready to be summed over
# bytes of a vertex while edges are sorted in files: its edges, counted and summed up, and their run
READ_VERTEX_BYTES = 32
LOCAL_VERTEX_BYTES = 40
COPIED_BYTES = 32 * MIB  # parts of columns in files that threads copy at one time
KEPT_PER_CALL = 2  # copies of the output of a call on edges: one saved for backward, and a gradient
SPARSE_BYTES = 16  # bytes of a non-zero feature: the number with its place, by row and by column
GAPS = 1.2  # measured peak on local, divided by `local_bytes`; the cause was not found
MOST_GAPS = 1.5  # the same where a limit has to hold: 1.1 was measured for GCN, 1.45 for GAT
# the same of a plan whose columns lie in files, and that sums over edges alone: 0.8 to 0.95 were measured
SUM_GAPS = 1.1
MARGIN = 1.1  # how far these bounds are above what is expected


def local_bytes(plan: Plan, statistics: Statistics, layout: Layout) -> int:
    """Return the bytes of a graph in this process and of training on it, if all of them are in memory."""
    kept = sum(stage_kept(stage, within, statistics) for stage, within in trained_stages(plan))
    columns = local_columns(plan, statistics) + _sparse_bytes(plan, statistics)
    scratch = scratch_bytes(plan, statistics, layout.cores, layout.chunk_rows)
    turned = sum(LOCAL_EDGE_BYTES * statistics.edge_count(edges) for edges in reversed_sets(plan))
    graph = reading_bytes(replace(statistics, in_files=False))
    return graph + columns + kept + scratch + turned + learned_held(plan, statistics)


def batches_bytes(plan: Plan, statistics: Statistics, layout: Layout, ahead: int) -> int:
    """Return the bytes of mini-batches on local: of one that trains, and of those that are prepared ahead.

    Args:
        plan: The plan of a batch.
        statistics: The expected sizes of a batch.
        layout: The chunks and the threads.
        ahead: The number of batches that are prepared ahead. They have rows and edges, and no values that are computed.
    """
    static = sum(column_bytes(column, statistics) for column in (*plan.static_columns, *plan.hoisted))
    graph = reading_bytes(replace(statistics, width=0)) + static
    return int(GAPS * (local_bytes(plan, statistics, layout) + ahead * graph))


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
    return graph + static + kept + turned + scratch + COPIED_BYTES + learned_held(plan, statistics)


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


def kept_in_chunks(plan: Plan, statistics: Statistics) -> int:
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
        for _, change in byte_changes(steps, {name: sizes[name] for name in sizes.keys() - stay.keys()}):
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
