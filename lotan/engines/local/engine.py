"""The local engine: one process, torch, no Spark. It is for graphs that fit into memory, and the oracle of every test.

A column is a tensor of rows of vertices, in the order of their levels and then of their ids: all vertices, or those
within a level. A stage runs chunk by chunk. Threads share the chunks if there are enough; otherwise torch's threads
share each operator. If one stage alone reads the sums of a propagate, they are made chunk by chunk as the stage reads
them, and never exist as a whole column. A stage that reads edges itself runs on all its vertices at once. In an evaluation
with edges in files, it runs on some vertices at a time, with all of their in-edges.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor

from lotan.engines.base import Engine, Handle, Outcome, Pass
from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.edge_columns import EdgeColumns
from lotan.engines.local.loaded_graph import Collection, Contributions, LazySums, LoadedGraph
from lotan.engines.local.local_pass import LocalPass
from lotan.engines.local.moves import Moves
from lotan.engines.local.pipe_run import PipeRun
from lotan.engines.local.sums import write_sums
from lotan.engines.local.topology import Edges
from lotan.engines.local.totals import Spread, reduced, sum_of_rows, total
from lotan.engines.local.traits import TRAITS
from lotan.engines.observed import Extent
from lotan.engines.rows_of_types import RowsOfTypes
from lotan.errors import EngineError, LotanError
from lotan.graph.kept_columns import KeptColumns
from lotan.memory.mapped import MappedMemory
from lotan.memory.trim import freed_memory_kept, give_back_freed
from lotan.stages.edges import reduce_edges
from lotan.stages.spill_file import SpillFile
from planner.batch import content_names
from planner.chunks import sharing_threads
from planner.estimate import row_bytes
from planner.holding.budget import Budget
from planner.local_memory import reads_edges_in_parts
from planner.physical import Plan
from planner.steps.collect import CollectStep, GatherStep
from planner.steps.edge_step import EdgeStep
from planner.steps.learned_rows import LearnedRowsGradientStep, LearnedRowsStep
from planner.steps.pipe import PipeStep
from planner.steps.propagate import PropagateStep
from planner.steps.score import ScoreStep
from planner.steps.step import Step
from planner.steps.total import TotalGradientStep, TotalStep

if TYPE_CHECKING:
    import pandas as pd

    from lotan.graph.graph import Graph

Result = TypeVar("Result")


class LocalEngine(Engine):
    """Runs plans in this process.

    Args:
        chunk_rows: The number of vertices that a stage processes at a time; None: a number that suits the graph. It
            changes no random number, and sums only by rounding.
        threads: The number of threads that share the work; None: as many as torch would use. If threads share chunks,
            their number changes no bit of a result. If torch shares operators, it may change the rounding of sums.
        spare: The bytes beyond the plan's needs for columns that the graph keeps for other plans; None: no limit.
        on_disk: True if columns and saved values lie in files, in the folder of temporary files. Their pages count as
            memory of this process only while a chunk of them is worked on.
        budget: The memory that is left for columns, of which then some lie there; None: all lie in files, or none.
        keeps_freed: True if memory that operators free is kept for the next ones until the engine is closed, which takes
            less time and up to twice the memory.
    """

    traits = TRAITS

    def __init__(
        self,
        chunk_rows: int | None = None,
        threads: int | None = None,
        spare: int | None = None,
        on_disk: bool = False,
        keeps_freed: bool = False,
        budget: Budget | None = None,
    ) -> None:
        self._chunk_rows = chunk_rows
        self._until_closed = ExitStack()
        if keeps_freed:
            self._until_closed.enter_context(freed_memory_kept())
        self._crew = Crew(threads)
        self._mapped = MappedMemory() if on_disk else None
        self._file = SpillFile() if on_disk else None
        self._columns = Columns(self._mapped)
        self._graph: LoadedGraph | None = None
        self._kept, self._spare = KeptColumns(), spare  # the kept columns are the graph's
        self._pass: LocalPass | None = None
        self._moves = Moves(budget if on_disk else None)
        self._in_runs = False  # True if the plan's steps on edges run on those that end in some vertices at a time
        self._one_by_one = on_disk  # a lazy sum keeps its whole input in memory until its reader ends

    @property
    def in_files(self) -> bool:
        """True if columns and saved values lie in files."""
        return self._mapped is not None

    @property
    def _loaded(self) -> LoadedGraph:
        if self._graph is None:
            raise EngineError("the local engine has no graph: call load first")
        return self._graph

    @property
    def _running(self) -> LocalPass:
        if self._pass is None:
            raise EngineError("the local engine is not in a pass: call begin first")
        return self._pass

    def lay_out(self, graph: Graph, plan: Plan) -> None:
        """Load the graph's arrays, and make the static columns that `plan` reads."""
        arrays = graph.arrays()
        mapped, of_types = self._mapped, RowsOfTypes(graph)
        self._graph = LoadedGraph(arrays, plan, self._chunk_rows, mapped=mapped, of_types=of_types)
        self._kept = graph.kept
        self._moves.statistics = graph.statistics
        self._settled(None)
        if self._mapped is not None:
            give_back_freed()
        self._crew.sharing = sharing_threads(len(self._graph.chunks), self._crew.threads) > 1

    def turn_to(self, graph: LoadedGraph) -> None:
        """Run the next passes over a graph that was loaded elsewhere. The memory of columns of the one before is freed."""
        self._graph, self._columns = graph, Columns(self._mapped)
        self._moves.statistics = None  # samples differ in size
        self._crew.sharing = sharing_threads(len(graph.chunks), self._crew.threads) > 1

    def adapt(self, plan: Plan) -> None:
        """Compile the stages of another plan."""
        self._loaded.compile(plan)

    def prepare(self, plan: Plan) -> None:
        """Compute the columns that the plan computes once, unless the graph has kept them from an earlier training."""
        names, _ = content_names(plan)
        keys = {
            column.name: (names[column.name], plan.levels, plan.targets, self._chunk_rows) for column in plan.hoisted
        }
        in_files = (
            self._mapped is not None
        )  # kept columns would stay in memory, or in files of an engine that is closed
        known = {name: None if in_files else self._kept.get(key) for name, key in keys.items()}
        if self._spare is not None:
            own = sum(column.nbytes for column in known.values() if column is not None)
            self._kept.shrink(self._spare + own, but=keys.values())
        if all(column is not None for column in known.values()):
            self.adopt(plan, cast(Mapping[str, Tensor], known))
            return
        started = time.perf_counter()
        super().prepare(plan)
        for name, key in () if in_files else keys.items():
            self._kept.put(key, self.static(name), (time.perf_counter() - started) / len(keys))

    def adopt(self, plan: Plan, columns: Mapping[str, Tensor]) -> None:
        """Make computed columns static. The tensors stay the same; the graph refers to its own columns in any case."""
        self._loaded.static.update(columns)

    def static(self, name: str) -> Tensor:
        """Return a static column. [vertices, *shape]."""
        return self._loaded.static[name]

    def rows_of(self, handle: Handle) -> Tensor:
        """Return the rows of a column in the graph's own order. [vertices, *shape]."""
        rows, order = self._whole(handle), self._loaded.order
        return rows if order is None else rows[torch.from_numpy(order.places)]

    def placed(self, rows: Tensor) -> Tensor:
        """Bring rows from the graph's own order into that of this engine's columns: the inverse of `rows_of`."""
        order = self._loaded.order
        return rows if order is None else rows[torch.from_numpy(order.rows)]

    def read(self, handle: Tensor) -> pd.DataFrame:
        """Return a column with the vertices' ids."""
        rows, order = handle.reshape(handle.shape[0], -1).numpy(), self._loaded.order  # [vertices, width]
        rows = rows if order is None else rows[order.places]
        import pandas as pd  # here, for training needs none

        return pd.DataFrame({"id": self._loaded.ids, "values": list(rows)})

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Begin a pass."""
        self._moves.begin(plan, steps, self._columns)
        self._in_runs = self._mapped is not None and reads_edges_in_parts(plan)
        programs, in_memory = self._loaded.programs, self._moves.stages_in_memory
        self._pass = LocalPass(steps, a_pass, programs, self._file, in_memory)

    def load_columns(self, number: int, held: dict[str, Handle]) -> None:
        """Bring columns from files into memory before a step."""
        self._moves.load(number, held, self._loaded.static)

    def store_columns(self, number: int, held: dict[str, Handle]) -> None:
        """Move columns to files after a step."""
        self._moves.store(number, held)

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """Return the gradients and statistics of the pass."""
        columns = {name: self._columns.hand_over(self._whole(handle)) for name, handle in kept.items()}
        done, self._pass = self._running, None
        self._moves.end()
        return Outcome(done.gradients, done.counted.get("turn"), done.counted.get("evaluate"), columns)

    def abort(self) -> None:
        """Forget the results of a failed pass."""
        self._pass = None
        self._moves.end()
        self._columns.forget()
        self._file = None if self._file is None else SpillFile()

    def release(self, handle: Handle) -> None:
        """Count one reader of a column fewer."""
        if isinstance(handle, LazySums):
            self._columns.release(handle.column)
        elif isinstance(handle, Tensor):
            self._columns.release(handle)

    def close(self) -> None:
        """Forget the graph."""
        self._graph = self._pass = None
        if self._mapped is not None:  # files vanish with the last column that somebody holds
            self._mapped, self._file = MappedMemory(self._mapped.folder), SpillFile()
        self._columns = Columns(self._mapped)
        self._crew.close()
        self._until_closed.close()

    def propagate(self, step: PropagateStep, column: Handle) -> Handle:
        """Sum a column along edges by a sparse product. [vertices, *shape] -> [vertices, *shape]."""
        sums = LazySums(self._loaded.product(step), self._columns.share(self._whole(column).contiguous()))
        if step.output.name in self._running.lazy and not self._one_by_one:
            return sums
        found = self._whole(sums, step.output.name)
        self._columns.release(sums.column)
        return self._settled(found)

    def do_one_by_one(self) -> bool:
        """Switch to running each step completely: sums over edges are no longer lazy."""
        self._one_by_one = True
        return True

    def extent(self, step: Step, made: Mapping[str, Handle]) -> Extent | None:
        """Return the rows and bytes of the tensors; None for neighbourhoods, since nothing moves."""
        if isinstance(step, CollectStep | LearnedRowsGradientStep):
            return None
        if isinstance(step, TotalStep):
            return Extent(1, row_bytes(step.output))
        columns = [one.rows if isinstance(one, Contributions) else one for one in made.values()]
        rows = self._loaded.chunks_within(step.within).rows if isinstance(step, PipeStep) else len(columns[0])
        return Extent(rows, sum(column.nbytes for column in columns))

    def _whole(self, handle: Handle, name: str = "") -> Tensor:
        """Return a column as a tensor of all rows. Sums that were lazy become a column of this name."""
        if not isinstance(handle, LazySums):
            return cast(Tensor, handle)
        found = self._columns.new(handle.product.chunks.rows, handle.column.shape[1:], name)
        write_sums(handle, found, self._crew, self._mapped)
        return found

    def _settled(self, result: Result) -> Result:
        """Give back the pages of all columns in files after a step, and return its result."""
        if self._mapped is not None:
            self._mapped.give_all_back()
        return result

    def on_edges(self, step: EdgeStep, columns: Mapping[str, Tensor]) -> Tensor:
        """Run a step on edges. [vertices, *shape], or [edges, heads] for an edge column."""
        loaded = self._loaded
        edges = loaded.sets.within(step.edges, step.within)
        whole = {name: column.contiguous() for name, column in columns.items()}  # a total is one row in memory
        rows = loaded.rows(step.output)
        if self._mapped is not None and self._in_runs:
            return self._settled(self._on_runs(self._mapped, step, edges, whole, rows))
        runs = EdgeColumns(edges, loaded.keys, self._running.randomness, self._crew, self._columns)
        return self._settled(self._columns.stored(runs.run(step, whole, rows), step.output.name))

    def _on_runs(
        self, mapped: MappedMemory, step: EdgeStep, edges: Edges, columns: Mapping[str, Tensor], rows: int
    ) -> Tensor:
        """Run a step on edges in files, on those that end in some vertices after those of others."""
        made = self._columns.new(rows, step.output.shape, step.output.name)
        self._columns.clear(made, edges.ends if step.output.edges is None else edges.block.edges)
        for vertices, some, of_run in edges.runs():
            cut = {name: column[some] if name in step.of_edges else column for name, column in columns.items()}
            on_run = EdgeColumns(of_run, self._loaded.keys, self._running.randomness, self._crew, Columns())
            place = vertices if step.output.edges is None else some
            made[place] = on_run.run(step, cut, place.stop - place.start)
            mapped.give_all_back()
        return made

    def score(self, step: ScoreStep, rows: Handle) -> Tensor:
        """Return the gradient that `scoring` finds for the output rows. [rows, width] -> [rows, width]."""
        return self.scored(self._whole(rows))

    def learned_rows(self, step: LearnedRowsStep) -> Tensor:
        """Return the rows of a parameter in the order of the graph in memory. [vertices, *shape]."""
        loaded, rows = self._loaded, self._running.parameters[step.parameter]
        count = loaded.rows(step.output)
        if step.of_type is not None:
            at, of = loaded.rows_of_type(step.of_type.number, count)
            return self._settled(self._columns.new(count, step.output.shape).zero_().index_copy_(0, at, rows[of]))
        if loaded.rows_of_graph is None:
            return rows[:count]
        out = self._columns.new(count, step.output.shape, step.output.name)
        return self._settled(torch.index_select(rows, 0, loaded.rows_of_graph[:count], out=out))

    def hand_in_rows(self, step: LearnedRowsGradientStep, gradient: Handle) -> None:
        """Hand in the gradient in the order of the parameter: a sparse tensor of the sample's rows, or all rows."""
        loaded, given = self._loaded, self._whole(gradient)
        parameter = self._running.parameters[step.parameter]
        values, places = given.reshape(len(given), *parameter.shape[1:]), loaded.rows_of_graph
        if step.of_type is not None:
            at, places = loaded.rows_of_type(step.of_type.number, len(values))
            values = values[at]
        if loaded.sampled and places is not None:
            places, order = places[: len(values)].sort()
            found = torch.sparse_coo_tensor(
                places[None], values[order], parameter.shape, is_coalesced=True, check_invariants=False
            )
        elif places is None:
            found = values.clone()  # the memory of a column is used again
        else:
            found = torch.zeros_like(parameter).index_copy_(0, places[: len(values)], values)
        self._running.commit({step.parameter: self._settled(found)})

    def total(self, step: TotalStep, columns: Mapping[str, Handle]) -> Tensor:
        """Reduce a column over all vertices. [vertices, *shape] -> [vertices, *shape], all rows in the memory of one."""
        chunks = self._loaded.chunks
        scale = None if step.scale is None else columns[step.scale].reshape(-1, 1)
        column = self._whole(columns[step.input])
        if step.kind == "max":
            row = column.amax(0)  # of parts, one for each chunk
        elif step.of_chunks:
            row = reduced(sum_of_rows([column]), step.kind, chunks.rows)
        else:
            row = total(column, step.kind, chunks, self._crew, scale)
        return self._settled(row.reshape(1, *step.output.shape).expand(chunks.rows, *step.output.shape))

    def total_gradient(self, step: TotalGradientStep, columns: Mapping[str, Handle]) -> Tensor:
        """Add the gradient of a total to other parts of the gradient of a column. [vertices, *shape]."""
        loaded, whole = self._loaded, {name: self._whole(handle) for name, handle in columns.items()}
        chunks, gradient = loaded.chunks, sum_of_rows([whole[name] for name in step.gradients])
        moments = None if step.moments is None else whole[step.moments][:1].reshape(-1)
        spread = Spread(gradient, step.kind, chunks.rows, moments)
        x, scale = (None if name is None else whole[name].reshape(chunks.rows, -1) for name in (step.x, step.scale))
        plus = [whole[name].reshape(chunks.rows, -1) for name in step.plus]
        out = self._columns.new(chunks.rows, step.output.shape, step.output.name)

        def write(number: int) -> None:
            rows = chunks[number]
            of_x, of_scale = (None if one is None else one[rows] for one in (x, scale))
            spread.write(of_x, of_scale, [part[rows] for part in plus], out[rows].view(-1, step.output.width))

        self._crew.run(len(chunks), write)
        return self._settled(out)

    def collect(self, step: CollectStep, columns: Sequence[Tensor]) -> Collection:
        """Return the columns as they are, with the edges to read them by."""
        return Collection(step.edges, dict(zip(step.columns, columns, strict=True)))

    def gather(self, step: GatherStep, contributions: Contributions) -> Tensor:
        """Sum contributions at their source vertices, if the stage has not done so."""
        if contributions.source_gradients == "summed":
            return contributions.rows
        block = self._loaded.sets.within(contributions.edges, step.within).block
        summed = reduce_edges(block.by_source(self._loaded.rows(step.output)), contributions.rows)
        return self._settled(self._columns.stored(summed, step.output.name))

    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage on its vertices."""
        program = self._loaded.programs[step.stage]
        pipe = PipeRun(self._loaded, self._running, self._crew, self._columns, program, step)
        try:
            if not program.stage.edge_sets:
                return self._settled(pipe.in_chunks(values))
            if self._mapped is not None and self._in_runs:
                return pipe.in_runs(values, self._mapped)
            return self._settled(pipe.whole(values))
        except LotanError:
            raise
        except (RuntimeError, ValueError, KeyError) as error:
            raise EngineError(f"stage {step.stage} ({step.mode}) failed: {error}") from error
