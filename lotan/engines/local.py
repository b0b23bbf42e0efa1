"""The local engine: one process, torch, no Spark. For graphs that fit, and the oracle of every test.

A column is a tensor of all vertices, sorted by id; a stage runs on one chunk of all rows; propagate is a sparse product.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lotan.engines.base import Engine, Handle, Outcome, Pass
from lotan.engines.edge_columns import EdgeColumns
from lotan.engines.topology import Edges, EdgeSets
from lotan.errors import EngineError, LotanError
from lotan.randomness import Randomness
from lotan.stages import Chunk, EdgeBlock, Saved, StageGradients, StageProgram
from lotan.stages.edges import reduce_edges
from planner.physical import CollectStep, EdgeStep, GatherStep, PipeStep, Plan, PropagateStep, Stage, Step
from planner.spec import EdgeSet

if TYPE_CHECKING:
    from lotan.graph import Graph, GraphArrays

ALIGNMENT = 64  # bytes: a cache line, as torch's own allocator has it


@dataclass(frozen=True)
class Collection:
    """The neighbourhoods of all vertices: nothing is copied, for all sources are here."""

    edges: EdgeSet
    columns: Mapping[str, Tensor]  # by column name, [vertices, *shape]


@dataclass(frozen=True)
class Contributions:
    """What a stage returned for its sources: a row per vertex, or per edge."""

    rows: Tensor
    edges: EdgeSet
    per_edge: bool


class _Loaded:
    """A graph in memory, and the programs of a plan over it."""

    def __init__(self, arrays: GraphArrays, plan: Plan) -> None:
        self.sets = EdgeSets(Edges(len(arrays.ids), arrays.src, arrays.dst, arrays.weight))
        self.ids = arrays.ids
        self.keys = torch.from_numpy(arrays.keys)
        self.static = {column.name: self._column(column.name, arrays) for column in plan.static_columns}
        self.programs = {stage.name: StageProgram(stage, plan.source_gradients) for stage in plan.stages}
        self.per_edge = plan.source_gradients == "per_edge"

    def _column(self, name: str, arrays: GraphArrays) -> Tensor:
        match name.split("@"):
            case ["features" | "label" | "split"]:
                return _aligned(getattr(arrays, name))
            case ["in_degree"]:
                return self.sets["graph"].in_degree()
            case ["gcn_scale", "graph" | "self_loops" as edges]:
                return self.sets[cast(EdgeSet, edges)].gcn_scale()
        raise EngineError(f"the plan reads the static column {name!r}, which no graph has")

    def block(self, stage: Stage, name: EdgeSet) -> EdgeBlock:
        """The in-edges of all vertices, with row keys if the stage draws random numbers on edges."""
        edges = self.sets[name]
        draws = any(call.op == "lotan.dropout" and call.type.edges == name for call in stage.calls)
        return edges.keyed_block(self.keys.numpy()) if draws else edges.block


def _aligned(array: np.ndarray) -> Tensor:
    """The array, or a copy if it lies askew: the last bit of a matrix product depends on how its operands are aligned."""
    if array.ctypes.data % ALIGNMENT:
        return torch.tensor(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # no stage writes to inputs
        return torch.from_numpy(array)


class _Running:
    """What a pass gathers beside columns."""

    def __init__(self, steps: Sequence[Step], a_pass: Pass) -> None:
        self.parameters = a_pass.parameters
        self.randomness = Randomness(a_pass.seed, a_pass.epoch)
        # The stages that run backward in this pass keep the autograd graph of their forward run until then.
        self.keeping = {step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"}
        self.saved: dict[str, Saved] = {}
        self.gradients: dict[str, Tensor] = {}
        self.statistics: np.ndarray | None = None

    def commit(self, gradients: Mapping[str, Tensor]) -> None:
        """Add a stage's parameter gradients; a parameter used in several stages has the sum of all."""
        for name, gradient in gradients.items():
            earlier = self.gradients.get(name)
            self.gradients[name] = gradient if earlier is None else earlier + gradient


class LocalEngine(Engine):
    """Runs plans in this process."""

    name = "local"

    def __init__(self) -> None:
        self._graph: _Loaded | None = None
        self._pass: _Running | None = None

    @property
    def _loaded(self) -> _Loaded:
        if self._graph is None:
            raise EngineError("the local engine has no graph: call load first")
        return self._graph

    @property
    def _running(self) -> _Running:
        if self._pass is None:
            raise EngineError("the local engine is not in a pass: call begin first")
        return self._pass

    def load(self, graph: Graph, plan: Plan) -> None:
        """Take the graph's arrays, and make the static columns that `plan` reads."""
        self._graph = _Loaded(graph.arrays(), plan)

    def static(self, name: str) -> Tensor:
        """A static column. [vertices, *shape]."""
        return self._loaded.static[name]

    def read(self, handle: Tensor) -> pd.DataFrame:
        """A column with the vertices' ids."""
        rows = handle.reshape(handle.shape[0], -1).numpy()  # [vertices, width]
        return pd.DataFrame({"id": self._loaded.ids, "values": list(rows)})

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Start a pass."""
        self._pass = _Running(steps, a_pass)

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """The gradients and statistics of the pass."""
        done, self._pass = self._running, None
        return Outcome(done.gradients, done.statistics, kept)

    def abort(self) -> None:
        """Drop what the pass has gathered."""
        self._pass = None

    def release(self, handle: Handle) -> None:
        """Nothing: a tensor is freed with its last reference."""

    def close(self) -> None:
        """Forget the graph."""
        self._graph = self._pass = None

    def propagate(self, step: PropagateStep, column: Tensor) -> Tensor:
        """A sparse product. [vertices, *shape] -> [vertices, *shape]."""
        matrix = self._loaded.sets[step.edges].matrix(step.weighted, step.reverse)
        return (matrix @ column.reshape(column.shape[0], -1)).view(column.shape)

    def on_edges(self, step: EdgeStep, columns: Mapping[str, Tensor]) -> Tensor:
        """Arithmetic on edges. [vertices, *shape], or for an edge column [edges, heads]."""
        loaded = self._loaded
        return EdgeColumns(loaded.sets[step.edges], loaded.keys, self._running.randomness).run(step, columns)

    def collect(self, step: CollectStep, columns: Sequence[Tensor]) -> Collection:
        """The columns as they are, with the edges to read them by."""
        return Collection(step.edges, dict(zip(step.columns, columns, strict=True)))

    def gather(self, step: GatherStep, contributions: Contributions) -> Tensor:
        """Sum per source vertex what the stage has not summed yet."""
        if not contributions.per_edge:
            return contributions.rows
        block = self._loaded.sets[contributions.edges].block
        return reduce_edges(block.by_source(block.rows), contributions.rows)

    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage on all vertices at once."""
        program = self._loaded.programs[step.stage]
        try:
            return self._run(step, program, self._chunk(program.stage, step, values), values)
        except LotanError:
            raise
        except (RuntimeError, ValueError, KeyError) as error:
            raise EngineError(f"stage {step.stage} ({step.mode}) failed: {error}") from error

    def _run(
        self, step: PipeStep, program: StageProgram, chunk: Chunk, values: Mapping[str, Handle]
    ) -> Mapping[str, Handle]:
        running = self._running
        parameters, randomness = running.parameters, running.randomness
        match step.mode:
            case "forward":
                rows, saved = program.forward(chunk, parameters, randomness, step.stage in running.keeping)
                if saved is not None:
                    running.saved[step.stage] = saved
                return _named(step, list(rows.values()))
            case "backward":
                given = {g.value: sum_columns([values[name] for name in g.columns]) for g in step.gradients}
                saved = running.saved.pop(step.stage, None)
                return self._commit(step, program, program.backward(chunk, parameters, randomness, given, saved))
            case "turn":
                running.statistics, found = program.turn(chunk, parameters, randomness)
                return self._commit(step, program, found)
            case "evaluate":
                running.statistics = program.evaluate(chunk, parameters)
                return {}
        return _named(step, list(program.predict(chunk, parameters).values()))

    def _chunk(self, stage: Stage, step: PipeStep, values: Mapping[str, Handle]) -> Chunk:
        """All vertices as one chunk."""
        collected = {values[name].edges: values[name].columns for name in step.collections}
        rows = {}
        for value in stage.inputs:
            columns = values if value.role == "vertex" else collected[value.edges]
            rows[value.value] = columns[value.column].view(-1, *value.shape)
        edges = {name: self._loaded.block(stage, name) for name in stage.edge_sets}
        return Chunk(self._loaded.keys, rows, edges, values.get("label"), values.get("split"))

    def _commit(self, step: PipeStep, program: StageProgram, found: StageGradients) -> Mapping[str, Handle]:
        """Add up the gradients of parameters, and name those of inputs."""
        self._running.commit(found.parameters)
        edges = {i.value: i.edges for i in program.stage.inputs}
        named = _named(step, list(found.inputs.values()))
        for name, value in zip(list(named), found.inputs, strict=True):
            if name in step.contributions:
                named[name] = Contributions(named[name], cast(EdgeSet, edges[value]), self._loaded.per_edge)
        return named


def _named(step: PipeStep, rows: Sequence[Tensor]) -> dict[str, Handle]:
    """A stage's results, in its own order, under the names of the step's columns."""
    return {column.name: row for column, row in zip(step.outputs, rows, strict=True)}


def sum_columns(columns: Sequence[Tensor]) -> Tensor:
    """The sum of columns of one shape, in their order."""
    total = columns[0]
    for column in columns[1:]:
        total = total + column.view_as(total)
    return total
