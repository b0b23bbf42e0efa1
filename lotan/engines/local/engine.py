"""The local engine: one process, torch, no Spark. For graphs that fit, and the oracle of every test.

A column is a tensor of rows of vertices, in the order of their levels and then of their ids: of all, or of those up to a level.
A stage runs chunk by chunk; threads share chunks where there are enough, and else torch's threads each operator. The sums
of a propagate that one stage alone reads are made chunk by chunk too, as that stage comes to them, and never lie in
memory as a column. A stage that reads edges itself runs on all its vertices at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import pandas as pd
from torch import Tensor

from lotan.engines.base import Engine, Handle, Outcome, Pass
from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.edge_columns import EdgeColumns
from lotan.engines.local.loaded_graph import Collection, Contributions, LazySums, LoadedGraph
from lotan.engines.local.local_pass import LocalPass
from lotan.engines.local.pipe_run import PipeRun
from lotan.engines.observed import Extent
from lotan.errors import EngineError, LotanError
from lotan.graph.kept_columns import KeptColumns
from lotan.stages.edges import reduce_edges
from planner.batch import content_names
from planner.chunks import sharing_threads
from planner.physical import CollectStep, EdgeStep, GatherStep, PipeStep, Plan, PropagateStep, Step

if TYPE_CHECKING:
    from lotan.graph import Graph


class LocalEngine(Engine):
    """Runs plans in this process.

    Args:
        chunk_rows: vertices that a stage runs on at a time, None: as suits the graph. It changes no random number; sums are the
            same but for rounding.
        threads: that share the work, None: as many as torch would use. Where they share chunks, their number changes no bit
            of a result; where torch shares operators, it may have sums round otherwise.
        spare: bytes beside what the plan needs, that columns which the graph keeps for other plans may take; None: no limit.
    """

    name = "local"

    def __init__(self, chunk_rows: int | None = None, threads: int | None = None, spare: int | None = None) -> None:
        self._chunk_rows = chunk_rows
        self._crew = Crew(threads)
        self._columns = Columns()
        self._graph: LoadedGraph | None = None
        self._kept, self._spare = KeptColumns(), spare  # of the graph
        self._pass: LocalPass | None = None
        self._one_by_one = False

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
        """Take the graph's arrays, and make the static columns that `plan` reads."""
        arrays = graph.arrays()
        self._graph, self._kept = LoadedGraph(arrays, plan, self._chunk_rows), graph.kept
        self._crew.sharing = sharing_threads(len(self._graph.chunks), self._crew.threads) > 1

    def adapt(self, plan: Plan) -> None:
        """Compile other stages."""
        self._loaded.compile(plan)

    def prepare(self, plan: Plan) -> None:
        """Compute what the plan computes once, unless the graph has it from an earlier training."""
        names, _ = content_names(plan)
        keys = {
            column.name: (names[column.name], plan.levels, plan.targets, self._chunk_rows) for column in plan.hoisted
        }
        known = {name: self._kept.get(key) for name, key in keys.items()}
        if self._spare is not None:
            own = sum(column.nbytes for column in known.values() if column is not None)
            self._kept.shrink(self._spare + own, but=keys.values())
        if all(column is not None for column in known.values()):
            self.adopt(plan, cast(Mapping[str, Tensor], known))
            return
        started = time.perf_counter()
        super().prepare(plan)
        for name, key in keys.items():
            self._kept.put(key, self.static(name), (time.perf_counter() - started) / len(keys))

    def adopt(self, plan: Plan, columns: Mapping[str, Tensor]) -> None:
        """Tensors stay what they are; the graph holds on to its own in any case."""
        self._loaded.static.update(columns)

    def static(self, name: str) -> Tensor:
        """A static column. [vertices, *shape]."""
        return self._loaded.static[name]

    def read(self, handle: Tensor) -> pd.DataFrame:
        """A column with the vertices' ids."""
        rows, order = handle.reshape(handle.shape[0], -1).numpy(), self._loaded.order  # [vertices, width]
        rows = rows if order is None else rows[order.places]
        return pd.DataFrame({"id": self._loaded.ids, "values": list(rows)})

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Start a pass."""
        self._pass = LocalPass(steps, a_pass, self._loaded.programs)

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """The gradients and statistics of the pass."""
        columns = {name: self._columns.hand_over(self._whole(handle)) for name, handle in kept.items()}
        done, self._pass = self._running, None
        return Outcome(done.gradients, done.counted.get("turn"), done.counted.get("evaluate"), columns)

    def abort(self) -> None:
        """Drop what the pass has gathered."""
        self._pass = None
        self._columns.forget()

    def release(self, handle: Handle) -> None:
        """One reader fewer of a column."""
        if isinstance(handle, LazySums):
            self._columns.release(handle.column)
        elif isinstance(handle, Tensor):
            self._columns.release(handle)

    def close(self) -> None:
        """Forget the graph."""
        self._graph = self._pass = None
        self._columns = Columns()
        self._crew.close()

    def propagate(self, step: PropagateStep, column: Handle) -> Handle:
        """A sparse product. [vertices, *shape] -> [vertices, *shape]."""
        sums = LazySums(self._loaded.product(step), self._columns.share(self._whole(column).contiguous()))
        if step.output.name in self._running.lazy and not self._one_by_one:
            return sums
        found = self._whole(sums)
        self._columns.release(sums.column)
        return found

    def do_one_by_one(self) -> bool:
        """Sums over edges are made at once, too."""
        self._one_by_one = True
        return True

    def extent(self, step: Step, made: Mapping[str, Handle]) -> Extent | None:
        """Of the tensors; of neighbourhoods none, for nothing moves."""
        if isinstance(step, CollectStep):
            return None
        columns = [one.rows if isinstance(one, Contributions) else one for one in made.values()]
        rows = self._loaded.chunks_within(step.within).rows if isinstance(step, PipeStep) else len(columns[0])
        return Extent(rows, sum(column.nbytes for column in columns))

    def _whole(self, handle: Handle) -> Tensor:
        """A column as a tensor of all rows."""
        if not isinstance(handle, LazySums):
            return handle
        column, chunks = handle.column, handle.product.chunks
        found = self._columns.new(chunks.rows, column.shape[1:])
        self._crew.run(len(chunks), lambda number: found[chunks[number]].copy_(handle.rows(number)))
        return found

    def on_edges(self, step: EdgeStep, columns: Mapping[str, Tensor]) -> Tensor:
        """Arithmetic on edges. [vertices, *shape], or for an edge column [edges, heads]."""
        loaded = self._loaded
        edges = loaded.sets.within(step.edges, step.within)
        runs = EdgeColumns(edges, loaded.keys, self._running.randomness, self._crew, self._columns)
        return runs.run(step, columns, loaded.rows(step.output))

    def collect(self, step: CollectStep, columns: Sequence[Tensor]) -> Collection:
        """The columns as they are, with the edges to read them by."""
        return Collection(step.edges, dict(zip(step.columns, columns, strict=True)))

    def gather(self, step: GatherStep, contributions: Contributions) -> Tensor:
        """Sum per source vertex what the stage has not summed yet."""
        if contributions.source_gradients == "summed":
            return contributions.rows
        block = self._loaded.sets.within(contributions.edges, step.within).block
        return reduce_edges(block.by_source(self._loaded.rows(step.output)), contributions.rows)

    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage."""
        program = self._loaded.programs[step.stage]
        pipe = PipeRun(self._loaded, self._running, self._crew, self._columns, program, step)
        try:
            return pipe.whole(values) if program.stage.edge_sets else pipe.in_chunks(values)
        except LotanError:
            raise
        except (RuntimeError, ValueError, KeyError) as error:
            raise EngineError(f"stage {step.stage} ({step.mode}) failed: {error}") from error
