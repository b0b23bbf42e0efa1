"""The local engine: one process, torch, no Spark. For graphs that fit, and the oracle of every test.

A column is a tensor of all vertices, sorted by id; a stage runs on one chunk of all rows; propagate is a sparse product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lotan.engines.base import Engine, Handle, Outcome, Pass
from lotan.engines.topology import Edges, edge_sets
from lotan.errors import EngineError, LotanError
from lotan.randomness import Randomness
from lotan.stages import Chunk, EdgeBlock, Saved, StageGradients, StageProgram
from lotan.stages.edges import reduce_edges
from planner.physical import CollectStep, GatherStep, PipeStep, Plan, PropagateStep, Stage, Step
from planner.spec import EdgeSet

if TYPE_CHECKING:
    from lotan.graph import Graph, GraphArrays


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


class LocalEngine(Engine):
    """Runs plans in this process."""

    name = "local"

    def __init__(self) -> None:
        self._arrays: GraphArrays | None = None

    def load(self, graph: Graph, plan: Plan) -> None:
        """Take the graph's arrays, and make the static columns that `plan` reads."""
        arrays = graph.arrays()
        self._arrays = arrays
        self._sets = edge_sets(len(arrays.ids), arrays.src, arrays.dst, arrays.weight)
        self._keys = torch.from_numpy(arrays.keys)
        self._static = {column.name: self._static_column(column.name) for column in plan.static_columns}
        self._programs = {stage.name: StageProgram(stage, plan.source_gradients) for stage in plan.stages}
        self._per_edge = plan.source_gradients == "per_edge"
        self._saved: dict[str, Saved] = {}

    def _static_column(self, name: str) -> Tensor:
        arrays = cast("GraphArrays", self._arrays)
        match name.split("@"):
            case ["features" | "label" | "split"]:
                return torch.from_numpy(getattr(arrays, name))
            case ["in_degree"]:
                return self._sets["graph"].in_degree()
            case ["gcn_scale", "graph" | "self_loops" as edges]:
                return self._sets[cast(EdgeSet, edges)].gcn_scale()
        raise EngineError(f"the plan reads the static column {name!r}, which no graph has")

    def static(self, name: str) -> Tensor:
        """A static column. [vertices, *shape]."""
        return self._static[name]

    def read(self, handle: Tensor) -> pd.DataFrame:
        """A column with the vertices' ids."""
        rows = handle.reshape(handle.shape[0], -1).numpy()
        return pd.DataFrame({"id": cast("GraphArrays", self._arrays).ids, "values": list(rows)})

    def begin(self, plan: Plan, steps: Sequence[Step], a_pass: Pass) -> None:
        """Start a pass; the stages that run backward in it will keep the autograd graphs of their forward run."""
        backward = [step.stage for step in steps if isinstance(step, PipeStep) and step.mode == "backward"]
        self._kept_stages = frozenset(backward)
        self._parameters = a_pass.parameters
        self._randomness = Randomness(a_pass.seed, a_pass.epoch)
        self._gradients: dict[str, Tensor] = {}
        self._statistics: np.ndarray | None = None

    def finish(self, kept: Mapping[str, Handle]) -> Outcome:
        """The gradients and statistics of the pass."""
        self._saved.clear()
        return Outcome(self._gradients, self._statistics, kept)

    def abort(self) -> None:
        """Drop the autograd graphs that wait for their backward."""
        self._saved.clear()

    def release(self, handle: Handle) -> None:
        """Nothing: a tensor is freed with its last reference."""

    def close(self) -> None:
        """Forget the graph."""
        self.__dict__.clear()
        self._arrays = None

    def propagate(self, step: PropagateStep, column: Tensor) -> Tensor:
        """A sparse product. [vertices, *shape] -> [vertices, *shape]."""
        matrix = self._sets[step.edges].matrix(step.weighted, step.reverse)
        return (matrix @ column.reshape(column.shape[0], -1)).view(column.shape)

    def collect(self, step: CollectStep, columns: Sequence[Tensor]) -> Collection:
        """The columns as they are, with the edges to read them by."""
        return Collection(step.edges, dict(zip(step.columns, columns, strict=True)))

    def gather(self, step: GatherStep, contributions: Contributions) -> Tensor:
        """Sum per source vertex what the stage has not summed yet."""
        if not contributions.per_edge:
            return contributions.rows
        block = self._sets[contributions.edges].block
        return reduce_edges(block.by_source(block.rows), contributions.rows)

    def pipe(self, step: PipeStep, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run a stage on all vertices at once."""
        program = self._programs[step.stage]
        try:
            return self._run(step, program, values)
        except LotanError:
            raise
        except (RuntimeError, ValueError, KeyError) as error:
            raise EngineError(f"stage {step.stage} ({step.mode}) failed: {error}") from error

    def _run(self, step: PipeStep, program: StageProgram, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        chunk = self._chunk(program.stage, step, values)
        match step.mode:
            case "forward":
                keep = step.stage in self._kept_stages
                rows, saved = program.forward(chunk, self._parameters, self._randomness, keep)
                if saved is not None:
                    self._saved[step.stage] = saved
                return _named(step, list(rows.values()))
            case "backward":
                sums = {g.value: sum_columns([values[name] for name in g.columns]) for g in step.gradients}
                saved = self._saved.pop(step.stage, None)
                return self._commit(step, program.backward(chunk, self._parameters, self._randomness, sums, saved))
            case "turn":
                self._statistics, gradients = program.turn(chunk, self._parameters, self._randomness)
                return self._commit(step, gradients)
            case "evaluate":
                self._statistics = program.evaluate(chunk, self._parameters)
                return {}
        return _named(step, list(program.predict(chunk, self._parameters).values()))

    def _chunk(self, stage: Stage, step: PipeStep, values: Mapping[str, Handle]) -> Chunk:
        collections: dict[EdgeSet, Collection] = {values[name].edges: values[name] for name in step.collections}
        rows = {}
        for value in stage.inputs:
            held = collections[value.edges].columns if value.edges in collections and value.role == "source" else values
            rows[value.value] = held[value.column].view(-1, *value.shape)
        edges = {name: self._block(stage, self._sets[name], name) for name in stage.edge_sets}
        return Chunk(self._keys, rows, edges, values.get("label"), values.get("split"))

    def _block(self, stage: Stage, edges: Edges, name: EdgeSet) -> EdgeBlock:
        draws = any(call.op == "lotan.dropout" and call.type.edges == name for call in stage.calls)
        return edges.keyed_block(self._keys.numpy()) if draws else edges.block

    def _commit(self, step: PipeStep, found: StageGradients) -> Mapping[str, Handle]:
        """Add a stage's parameter gradients to the pass; a parameter used in several stages has the sum of all."""
        for name, gradient in found.parameters.items():
            earlier = self._gradients.get(name)
            self._gradients[name] = gradient if earlier is None else earlier + gradient
        inputs = {i.value: i for i in self._programs[step.stage].stage.inputs}
        named = _named(step, list(found.inputs.values()))
        for (name, rows), value in zip(named.items(), found.inputs, strict=True):
            if name in step.contributions:
                named[name] = Contributions(rows, cast(EdgeSet, inputs[value].edges), self._per_edge)
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
