"""How the local engine runs a pipe step: in chunks, on all vertices at once, or on those that some edges end in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from lotan.engines.base import Handle
from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.group_sums import GroupSums
from lotan.engines.local.loaded_graph import Collection, Contributions, LazySums, LoadedGraph
from lotan.engines.local.local_pass import LocalPass
from lotan.graph.sorted_edges import runs_of_ends
from lotan.memory.mapped import MappedMemory
from lotan.stages.chunk import Chunk, EdgeBlock, Saved, padded
from lotan.stages.programs import Program
from lotan.stages.stage_run import StageResult, StageRun
from planner.chunks import EDGES_READ
from planner.loss import TARGETS
from planner.spec import EdgeSet
from planner.steps.pipe import Gradients, PipeStep

T = TypeVar("T")


class PipeRun:
    """Runs a pipe step: its stage, over all vertices or those within a level."""

    def __init__(
        self, graph: LoadedGraph, a_pass: LocalPass, crew: Crew, columns: Columns, program: Program, step: PipeStep
    ) -> None:
        self._graph, self._pass, self._crew, self._columns = graph, a_pass, crew, columns
        self._program, self._step = program, step
        self._chunks = graph.chunks_within(step.within)
        self._keep = step.mode == "forward" and step.stage in a_pass.keeping
        self._sums = {o.value for o in program.stage.outputs if o.few}  # one row for each chunk
        self._few = {i.value for i in program.stage.inputs if i.role == "total"} | self._sums

    def in_chunks(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Threads share the chunks."""
        program, a_pass, step = self._program, self._pass, self._step
        outputs = self._output_columns() if step.emits else self._gradient_columns()
        backward = step.mode == "backward"
        kept = a_pass.saved.pop(step.stage, None) if backward else None

        def work(number: int, sums: Mapping[str, Tensor] | None = None) -> tuple[Saved | None, np.ndarray | None]:
            saved = None if kept is None else a_pass.fetched(kept[number])
            only = program.rereads if saved is not None else None  # what backward has no need of stays where it is
            run = StageRun(
                step.mode,
                self._chunk(number, values, only),
                a_pass.parameters,
                a_pass.randomness,
                {g.value: self._gradient(g, values, number) for g in step.gradients},
                self._keep,
                saved,
                self._places(number, outputs),
                sums,
            )
            found = program.run(run)
            saved = a_pass.stowed(step.stage, found.saved)
            self._settle(number, [*values.values(), *outputs.values()])
            return saved, found.statistics

        done = self._by_group(work) if step.mode in ("backward", "turn") else self._each(work)
        if self._keep:
            a_pass.saved[step.stage] = [saved for saved, _ in done]
        if step.mode in ("turn", "evaluate"):
            counted = cast(list[np.ndarray], [statistics for _, statistics in done])
            a_pass.count(step.mode, np.sum(counted, axis=0))
        return self._named(list(outputs.values()))

    def _settle(self, number: int, handles: Iterable[Handle]) -> None:
        """Give back the pages of a chunk's rows that lie in files."""
        if (mapped := self._columns.mapped) is not None:
            for handle in handles:
                if isinstance(handle, Tensor) and len(handle) > len(self._chunks):  # no total, which has few rows
                    mapped.give_back(handle[self._chunks[number]])

    def _each(self, work: Callable[[int], T]) -> list[T]:
        return self._crew.run(len(self._chunks), work)

    def _by_group(self, work: Callable[[int, Mapping[str, Tensor]], T]) -> list[T]:
        """Run chunks, and add up the gradients of parameters: in float32 within a group, then in float64."""
        groups = self._chunks.groups()
        total = GroupSums({p.name: p.shape for p in self._program.stage.parameters if p.trainable})

        def toil(number: int) -> list[T]:
            sums = total.new()
            results = [work(chunk, sums) for chunk in groups[number]]
            total.take(number, sums)
            return results

        done = self._crew.run(len(groups), toil, len(self._chunks))
        self._pass.commit(total.result())
        return [result for results in done for result in results]

    def _output_columns(self) -> dict[str, Tensor]:
        chunks, outputs = self._chunks, zip(self._program.stage.outputs, self._step.makes, strict=True)
        return {o.value: self._columns.new(len(chunks) if o.few else chunks.rows, o.shape, name) for o, name in outputs}

    def _gradient_columns(self) -> dict[str, Tensor]:
        """Return a column for each input with a gradient; it is zero where the stage does not run.

        The gradient of a total has a row for each chunk.
        """
        inputs = [i for i in self._program.stage.inputs if i.needs_gradient]
        found = {}
        for i, column in zip(inputs, self._step.outputs, strict=True):
            if i.role == "total":
                found[i.value] = self._columns.new(len(self._chunks), i.shape)
                continue
            found[i.value] = self._columns.new(self._graph.rows(column), i.shape, column.name)
            self._columns.clear(found[i.value], self._chunks.rows)
        return found

    def _places(self, number: int, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rows, own = self._chunks[number], slice(number, number + 1)
        return {name: column[own if name in self._few else rows] for name, column in columns.items()}

    def _chunk(self, number: int, values: Mapping[str, Handle], only: frozenset[str] | None = None) -> Chunk:
        """Return a chunk with all inputs, or with those in `only`."""
        rows = self._chunks[number]
        inputs = [i for i in self._program.stage.inputs if only is None or i.value in only]
        sparse = {i.value: i.column for i in inputs if i.sparse and self._program.some_flat}
        dense = [i for i in inputs if i.value not in sparse or not self._program.flat]
        given = {
            i.value: (values[i.column][:1] if i.role == "total" else self._rows(values[i.column], number)).reshape(
                -1, *i.shape
            )
            for i in dense
        }
        targets = {name: values[name][rows] for name in TARGETS if name in values}
        return Chunk(
            self._graph.keys[rows],
            given,
            **targets,
            sparse={value: self._graph.sparse(column, rows) for value, column in sparse.items()},
        )

    def _rows(self, handle: Handle, number: int) -> Tensor:
        return handle.rows(number) if isinstance(handle, LazySums) else handle[self._chunks[number]]

    def _gradient(self, of: Gradients, values: Mapping[str, Handle], number: int) -> Tensor:
        """Return the gradient of an output for a chunk. That of a sum over chunks is the same row for all."""
        columns = [values[name] for name in of.columns]
        return sum_columns([c[:1] if of.value in self._sums else self._rows(c, number) for c in columns])

    def in_runs(self, values: Mapping[str, Handle], mapped: MappedMemory) -> Mapping[str, Handle]:
        """Run the stage on runs of vertices with their in-edges, which lie in files.

        Args:
            values: The columns and collections that it reads.
            mapped: The files, whose pages are given back after each run.
        """
        step, stage = self._step, self._program.stage
        outputs = self._output_columns() if step.emits else {}
        blocks = {name: self._graph.block(stage, name, step.within) for name in stage.edge_sets}
        counts = sum(block.indptr.diff() for block in blocks.values()) + torch.ones(
            self._chunks.rows, dtype=torch.int64
        )
        for run in runs_of_ends(counts.numpy(), EDGES_READ):
            rows = slice(run.start, run.stop)
            chunk = self._some(values, rows, blocks)
            found = self._program.run(StageRun(step.mode, chunk, self._pass.parameters, self._pass.randomness))
            for name, column in found.outputs.items():
                outputs[name][rows] = column
            if found.statistics is not None:
                self._pass.count(step.mode, found.statistics)
            mapped.give_all_back()
        return self._named(list(outputs.values()))

    def _some(self, values: Mapping[str, Handle], rows: slice, blocks: Mapping[EdgeSet, EdgeBlock]) -> Chunk:
        """Return the chunk of some vertices, with copies of their in-edges and of the rows of the sources of these."""
        edges, sources = {}, {}
        for name, block in blocks.items():
            indptr = block.indptr[rows.start : rows.stop + 1]
            some = slice(int(indptr[0]), int(indptr[-1]))
            sources[name], positions = block.positions[some].unique(return_inverse=True)
            weight = None if block.weight is None else block.weight[some].clone()
            columns = {name: column[some].clone() for name, column in block.columns.items()}
            edges[name] = EdgeBlock(indptr - indptr[0], positions, weight, columns=columns)
        collected = {values[name].edges: values[name].columns for name in self._step.collections}
        given = {}
        for i in self._program.stage.inputs:
            if i.role == "source":
                name = cast(EdgeSet, i.edges)
                column = collected[name][i.column].index_select(0, sources[name])
            else:
                column = values[i.column][:1] if i.role == "total" else values[i.column][rows]
            given[i.value] = column.reshape(-1, *i.shape)
        targets = {name: values[name][rows] for name in TARGETS if name in values}
        return Chunk(self._graph.keys[rows], given, edges, **targets)

    def whole(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run the stage on all vertices as one chunk, with torch's threads sharing each operator: for stages that read edges.

        The results have memory of their own. Autograd may pass on a gradient without copying it, and the memory of a
        column is used again once the column is read.
        """
        found = self._in_one(values)
        given = {memory for handle in values.values() for memory in _memories(handle)}
        return {name: self._stored(_apart(handle, given), name) for name, handle in found.items()}

    def _stored(self, handle: Handle, name: str) -> Handle:
        """Return the rows, or a copy in files if columns lie there."""
        if isinstance(handle, Contributions):
            return replace(handle, rows=self._stored(handle.rows, name))
        return self._columns.stored(handle, name)

    def _in_one(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        a_pass, step = self._pass, self._step
        (saved,) = a_pass.saved.pop(step.stage, [None]) if step.mode == "backward" else [None]
        given = {
            g.value: sum_columns([values[name][: 1 if g.value in self._sums else None] for name in g.columns])
            for g in step.gradients
        }
        run = StageRun(step.mode, self._all(values), a_pass.parameters, a_pass.randomness, given, self._keep, saved)
        found = self._program.run(run)
        if self._keep:
            a_pass.saved[step.stage] = [found.saved]
        if found.statistics is not None:
            a_pass.count(step.mode, found.statistics)
        return self._named(list(found.outputs.values())) if step.emits else self._commit(found)

    def _all(self, values: Mapping[str, Handle]) -> Chunk:
        stage, first = self._program.stage, slice(self._chunks.rows)
        collected = {values[name].edges: values[name].columns for name in self._step.collections}
        rows = {}
        for i in stage.inputs:
            column = collected[cast(EdgeSet, i.edges)][i.column] if i.role == "source" else values[i.column]
            some = {"vertex": first, "source": slice(None), "total": slice(1)}[i.role]
            rows[i.value] = column[some].view(-1, *i.shape)
        edges = {name: self._graph.block(stage, name, self._step.within) for name in stage.edge_sets}
        targets = {name: values[name][first] for name in TARGETS if name in values}
        return Chunk(self._graph.keys[first], rows, edges, **targets)

    def _commit(self, found: StageResult) -> Mapping[str, Handle]:
        """Add up the gradients of parameters, and name those of inputs."""
        self._pass.commit(found.parameter_gradients)
        edges = {i.value: i.edges for i in self._program.stage.inputs}
        named = self._named(list(found.input_gradients.values()))
        for column in self._step.outputs:
            if column.name not in self._step.contributions and not column.few:
                named[column.name] = padded(named[column.name], self._graph.rows(column))
        for name, value in zip(list(named), found.input_gradients, strict=True):
            if name in self._step.contributions:
                named[name] = Contributions(named[name], cast(EdgeSet, edges[value]), self._graph.source_gradients)
        return named

    def _named(self, rows: Sequence[Tensor]) -> dict[str, Handle]:
        """Return a stage's results, in its own order, under the names of the step's columns."""
        return {column.name: row for column, row in zip(self._step.outputs, rows, strict=True)}


def _memories(handle: Handle) -> list[int]:
    """Return the memory addresses of a column's rows, or of a collection's columns."""
    columns = handle.columns.values() if isinstance(handle, Collection) else [handle]
    return [column.untyped_storage().data_ptr() for column in columns]


def _apart(handle: Handle, given: set[int]) -> Handle:
    """Return the rows, or a copy of them if they share memory with the given addresses."""
    if isinstance(handle, Contributions):
        return replace(handle, rows=_apart(handle.rows, given))
    return handle.clone() if handle.untyped_storage().data_ptr() in given else handle


def sum_columns(columns: Sequence[Tensor]) -> Tensor:
    """Return the sum of columns of one shape, added in their order."""
    total = columns[0]
    for column in columns[1:]:
        total = total + column.view_as(total)
    return total
