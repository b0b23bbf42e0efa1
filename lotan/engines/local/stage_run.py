"""The run of a stage on the local engine: in chunks, or on all vertices at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
from torch import Tensor

from lotan.engines.base import Handle
from lotan.engines.local.columns import Columns
from lotan.engines.local.crew import Crew
from lotan.engines.local.group_sums import GroupSums
from lotan.engines.local.loaded_graph import Collection, Contributions, LazySums, LoadedGraph
from lotan.engines.local.local_pass import LocalPass
from lotan.stages import Chunk, Program, Saved, StageGradients
from lotan.stages.chunk import padded
from planner.physical import PipeStep
from planner.spec import EdgeSet

T = TypeVar("T")


class StageRun:
    """The run of one step's stage, over all vertices or those within a level."""

    def __init__(
        self, graph: LoadedGraph, a_pass: LocalPass, crew: Crew, columns: Columns, program: Program, step: PipeStep
    ) -> None:
        self._graph, self._pass, self._crew, self._columns = graph, a_pass, crew, columns
        self._program, self._step = program, step
        self._chunks = graph.chunks_within(step.within)

    def in_chunks(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run the stage chunk by chunk; threads share the chunks."""
        match self._step.mode:
            case "forward" | "predict":
                return self._forward(values)
            case "backward":
                return self._backward(values)
            case "turn":
                return self._turn(values)
        program, a_pass = self._program, self._pass
        found = self._each(lambda number: program.evaluate(self._chunk(number, values), a_pass.parameters))
        a_pass.count(self._step.mode, np.sum(found, axis=0))
        return {}

    def _forward(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        program, a_pass, step = self._program, self._pass, self._step
        outputs = {o.value: self._columns.new(self._chunks.rows, o.shape) for o in program.stage.outputs}
        keep = step.mode == "forward" and step.stage in a_pass.keeping

        def work(number: int) -> Saved | None:
            chunk, into = self._chunk(number, values), self._places(number, outputs)
            if step.mode == "predict":
                program.predict(chunk, a_pass.parameters, into)
                return None
            return program.forward(chunk, a_pass.parameters, a_pass.randomness, keep, into)[1]

        saved = self._each(work)
        if keep:
            a_pass.saved[step.stage] = saved
        return self._named(list(outputs.values()))

    def _backward(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        program, a_pass, step = self._program, self._pass, self._step
        saved = a_pass.saved.pop(step.stage)
        found = self._gradient_columns()

        def work(number: int, sums: Mapping[str, Tensor]) -> None:
            chunk, into = self._chunk(number, values, program.rereads), self._places(number, found)
            given = {g.value: self._total([values[name] for name in g.columns], number) for g in step.gradients}
            program.backward(chunk, a_pass.parameters, a_pass.randomness, given, saved[number], into, sums)

        self._by_group(work)
        return self._named(list(found.values()))

    def _turn(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        program, a_pass = self._program, self._pass
        found = self._gradient_columns()

        def work(number: int, sums: Mapping[str, Tensor]) -> np.ndarray:
            chunk, into = self._chunk(number, values), self._places(number, found)
            return program.turn(chunk, a_pass.parameters, a_pass.randomness, into, sums)[0]

        a_pass.count(self._step.mode, np.sum(self._by_group(work), axis=0))
        return self._named(list(found.values()))

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

    def _gradient_columns(self) -> dict[str, Tensor]:
        """Return a column for each input with a gradient; it is zero where the stage does not run."""
        inputs = [i for i in self._program.stage.inputs if i.needs_gradient]
        found = {}
        for i, column in zip(inputs, self._step.outputs, strict=True):
            found[i.value] = self._columns.new(self._graph.rows(column), i.shape)
            found[i.value][self._chunks.rows :] = 0.0
        return found

    def _places(self, number: int, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rows = self._chunks[number]
        return {name: column[rows] for name, column in columns.items()}

    def _chunk(self, number: int, values: Mapping[str, Handle], only: frozenset[str] | None = None) -> Chunk:
        """Return a chunk with all inputs, or with those in `only`."""
        rows = self._chunks[number]
        inputs = [i for i in self._program.stage.inputs if only is None or i.value in only]
        sparse = {i.value: i.column for i in inputs if i.sparse and self._program.some_flat}
        dense = [i for i in inputs if i.value not in sparse or not self._program.flat]
        given = {i.value: self._rows(values[i.column], number).reshape(-1, *i.shape) for i in dense}
        label, split = values.get("label"), values.get("split")
        return Chunk(
            self._graph.keys[rows],
            given,
            label=None if label is None else label[rows],
            split=None if split is None else split[rows],
            sparse={value: self._graph.sparse(column, rows) for value, column in sparse.items()},
        )

    def _rows(self, handle: Handle, number: int) -> Tensor:
        return handle.rows(number) if isinstance(handle, LazySums) else handle[self._chunks[number]]

    def _total(self, handles: Sequence[Handle], number: int) -> Tensor:
        return sum_columns([self._rows(handle, number) for handle in handles])

    def whole(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        """Run the stage on all vertices as one chunk, with torch's threads sharing each operator: for stages that read edges.

        The results have memory of their own. Autograd may pass on a gradient without copying it, and the memory of a
        column is used again once the column is read.
        """
        found = self._in_one(values)
        given = {memory for handle in values.values() for memory in _memories(handle)}
        return {name: _apart(handle, given) for name, handle in found.items()}

    def _in_one(self, values: Mapping[str, Handle]) -> Mapping[str, Handle]:
        program, a_pass, step = self._program, self._pass, self._step
        chunk, parameters, randomness = self._all(values), a_pass.parameters, a_pass.randomness
        match step.mode:
            case "forward":
                rows, saved = program.forward(chunk, parameters, randomness, step.stage in a_pass.keeping)
                a_pass.saved[step.stage] = [saved]
                return self._named(list(rows.values()))
            case "backward":
                given = {g.value: sum_columns([values[name] for name in g.columns]) for g in step.gradients}
                (saved,) = a_pass.saved.pop(step.stage, [None])
                return self._commit(program.backward(chunk, parameters, randomness, given, saved))
            case "turn":
                statistics, found = program.turn(chunk, parameters, randomness)
                a_pass.count(step.mode, statistics)
                return self._commit(found)
            case "evaluate":
                a_pass.count(step.mode, program.evaluate(chunk, parameters))
                return {}
        return self._named(list(program.predict(chunk, parameters).values()))

    def _all(self, values: Mapping[str, Handle]) -> Chunk:
        stage, first = self._program.stage, slice(self._chunks.rows)
        collected = {values[name].edges: values[name].columns for name in self._step.collections}
        rows = {}
        for i in stage.inputs:
            column = values[i.column][first] if i.role == "vertex" else collected[cast(EdgeSet, i.edges)][i.column]
            rows[i.value] = column.view(-1, *i.shape)
        edges = {name: self._graph.block(stage, name, self._step.within) for name in stage.edge_sets}
        label, split = (None if target is None else target[first] for target in map(values.get, ("label", "split")))
        return Chunk(self._graph.keys[first], rows, edges, label, split)

    def _commit(self, found: StageGradients) -> Mapping[str, Handle]:
        """Add up the gradients of parameters, and return those of inputs under the names of the step's columns."""
        self._pass.commit(found.parameters)
        edges = {i.value: i.edges for i in self._program.stage.inputs}
        named = self._named(list(found.inputs.values()))
        for column in self._step.outputs:
            if column.name not in self._step.contributions:
                named[column.name] = padded(named[column.name], self._graph.rows(column))
        for name, value in zip(list(named), found.inputs, strict=True):
            if name in self._step.contributions:
                named[name] = Contributions(named[name], cast(EdgeSet, edges[value]), self._graph.per_edge)
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
