"""A pipe step as the plain data that `lotan.PipeStep.of` reads; see `jvm/src/main/scala/lotan/PipeStep.scala`.

The tensors of a chunk and of its result have the names that `lotan.stages.tensor_names` gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lotan.engines.base import Handle
from lotan.engines.results import ResultTensor
from lotan.stages import tensor_names
from planner.physical import Stage
from planner.spec import EdgeSet
from planner.steps.pipe import Gradients, PipeStep

PLAIN_TYPES = {"label": "int64", "split": "int8"}  # types on the wire of columns of plain numbers


@dataclass(frozen=True, eq=False)
class Column:
    """The rows of all vertices: an RDD of one `lotan.Rows` per partition."""

    rows: Any
    width: int  # numbers per row; 0: plain numbers
    static: str | None = None  # the column's name, if it belongs to the graph
    made: Any = None  # the RDD that the column is a part of
    sums: Any = None  # the same rows, computed as a pipe reads them: an RDD of one `lotan.RowReader` per partition


@dataclass(frozen=True, eq=False)
class Collection:
    """The columns that a stage reads at the sources of in-edges."""

    edges: EdgeSet
    columns: Mapping[str, Column]


@dataclass(frozen=True, eq=False)
class Contributions:
    """The sums of the rows that a stage returned for its sources, by partition of the chunks."""

    rows: Any
    edges: EdgeSet
    made: Any = None


@dataclass(frozen=True)
class Site:
    """The run, the pass and the chunk size that a pipe belongs to."""

    run: str
    number: int  # number of the pass
    chunk_rows: int


def pipe_step(
    site: Site,
    step: PipeStep,
    stage: Stage,
    returned: Sequence[ResultTensor],
    values: Mapping[str, Handle],
    pipes: Counter[str],
    weighted: bool,
    spare: frozenset[str] = frozenset(),
) -> tuple[dict[str, Any], list[Column]]:
    """Return the step as plain data, and the list of columns to whose positions its fields refer.

    Args:
        site: The run, the pass and the chunk size.
        step: The step to run.
        stage: The step's stage.
        returned: The tensors that come back, in the order of the step's outputs.
        values: Columns and collections by name.
        pipes: The number of pipes in the pass that read or offer each of them.
        weighted: True if edges have weights.
        spare: The names that workers do not need while they have saved the forward run.
    """
    fields = _Fields(values, pipes, spare)
    totals = {i.column for i in stage.inputs if i.role == "total"}
    sums = {o.value for o in stage.outputs if o.few}
    plain = {
        "run": site.run,
        "number": site.number,
        "stage": stage.name,
        "mode": step.mode,
        "accumulates": not step.emits,
        "chunk_rows": site.chunk_rows,
        "within": numbered(step.within),
        "fields": [
            *(fields.column(name, name in totals) for name in step.inputs),
            *(fields.gradient(gradients, gradients.value in sums) for gradients in step.gradients),
        ],
        "edges": [
            {
                "edges": edges,
                "sources": fields.sources(edges, step.collections),
                "weighted": weighted,
                "keyed": stage.draws_on(edges),
                "columns": list(stage.edge_columns(edges)),
            }
            for edges in stage.edge_sets
        ],
        "returned": _returned(step, stage, returned),
    }
    return plain, fields.columns


class _Fields:
    """The tensors that are sent for a chunk, as plain data. Its arguments are those of `pipe_step`."""

    def __init__(self, values: Mapping[str, Handle], pipes: Counter[str], spare: frozenset[str]) -> None:
        self._values, self._pipes, self._spare = values, pipes, spare
        self.columns: list[Column] = []  # the columns referred to so far

    def column(self, name: str, one: bool) -> dict[str, Any]:
        """Describe a column of the chunk's vertices. `one` is True if all its rows are alike, so that one is sent."""
        column = self._values[name]
        dtype = "float32" if column.width else PLAIN_TYPES[name]
        return self._field(tensor_names.column(name), [column], name, dtype, one)

    def gradient(self, gradients: Gradients, one: bool) -> dict[str, Any]:
        """Describe an output's gradient: the sum of the gradients from all steps that read it. `one` is as for `column`."""
        parts = [self._values[name] for name in gradients.columns]
        return self._field(tensor_names.output_gradient(gradients.value), parts, one=one)

    def sources(self, edges: EdgeSet, collections: Sequence[str]) -> list[dict[str, Any]]:
        """Describe the columns at the sources of these edges, of the collection along them, if there is one."""
        along = [name for name in collections if self._values[name].edges == edges][:1]
        return [
            self._field(tensor_names.source(edges, column), [handle], name)
            for name in along
            for column, handle in self._values[name].columns.items()
        ]

    def _field(
        self, tensor: str, parts: list[Column], name: str = "", dtype: str = "float32", one: bool = False
    ) -> dict[str, Any]:
        """Describe a tensor; `name` is given for a column or collection that other pipes may read too."""
        return {
            "tensor": tensor,
            "columns": [self._place(part) for part in parts],
            "dtype": dtype,
            "static": all(part.static is not None for part in parts),
            "kept": self._pipes[name] > 1,
            "spare": name in self._spare,
            "one": one,
        }

    def _place(self, column: Column) -> int:
        for place, known in enumerate(self.columns):
            if known is column:
                return place
        self.columns.append(column)
        return len(self.columns) - 1


def numbered(level: int | None) -> int:
    """Return a level in Scala's form: -1 for all vertices."""
    return -1 if level is None else level


def _returned(step: PipeStep, stage: Stage, returned: Sequence[ResultTensor]) -> list[dict[str, Any]]:
    """Describe the tensors that come back, each with the position of the edges to whose sources it belongs; -1: the vertices."""
    places = {edges: place for place, edges in enumerate(stage.edge_sets)}
    return [
        {
            "tensor": one.name,
            "width": column.width,
            "edges": -1 if one.edges is None else places[one.edges],
            "within": numbered(column.within),
            "one": column.few,
        }
        for column, one in zip(step.outputs, returned, strict=True)
    ]
