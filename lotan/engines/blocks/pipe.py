"""A pipe step as the plain data that `lotan.PipeStep.of` reads; see `jvm/src/main/scala/lotan/PipeStep.scala`.

Tensors of a chunk and of its result have the names that `lotan.stages.tensor_names` gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lotan.engines.base import Handle
from lotan.engines.results import ResultTensor
from lotan.stages import tensor_names
from planner.physical import Gradients, PipeStep, Stage
from planner.spec import EdgeSet

PLAIN_TYPES = {"label": "int64", "split": "int8"}  # on the wire, of columns of plain numbers


@dataclass(frozen=True, eq=False)
class Column:
    """Rows of all vertices: an RDD of one `lotan.Rows` a partition."""

    rows: Any
    width: int  # 0: plain numbers
    static: str | None = None  # its name, where it belongs to the graph
    made: Any = None  # the RDD it is a part of
    sums: Any = None  # the same rows, computed as one pipe comes to them: an RDD of one `lotan.RowReader` a partition


@dataclass(frozen=True, eq=False)
class Collection:
    """Columns that a stage reads at the sources of in-edges."""

    edges: EdgeSet
    columns: Mapping[str, Column]


@dataclass(frozen=True, eq=False)
class Contributions:
    """What a stage returned for its sources, chunk by chunk."""

    rows: Any
    edges: EdgeSet
    made: Any = None


@dataclass(frozen=True)
class Site:
    """For whom a pipe runs."""

    run: str
    number: int  # of the pass
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
    """The step as plain data, and the columns that its fields name by their places in this list.

    Args:
        site: see there.
        step: to run.
        stage: its stage.
        returned: the tensors that come back, in the order of the step's outputs.
        values: columns and collections by name.
        pipes: how many pipes of the pass read each of them, if only to have them ready.
        weighted: whether edges have weights.
        spare: those that the workers do without, as long as they keep what they made of them.
    """
    fields = _Fields(values, pipes, spare)
    plain = {
        "run": site.run,
        "number": site.number,
        "stage": stage.name,
        "mode": step.mode,
        "accumulates": not step.emits,
        "chunk_rows": site.chunk_rows,
        "within": numbered(step.within),
        "fields": [*map(fields.column, step.inputs), *map(fields.gradient, step.gradients)],
        "edges": [
            {
                "edges": edges,
                "sources": fields.sources(edges, step.collections),
                "weighted": weighted,
                "keyed": stage.draws_on(edges),
            }
            for edges in stage.edge_sets
        ],
        "returned": _returned(step, stage, returned),
    }
    return plain, fields.columns


class _Fields:
    """What is sent for a chunk, as plain data; its arguments are those of `pipe_step`."""

    def __init__(self, values: Mapping[str, Handle], pipes: Counter[str], spare: frozenset[str]) -> None:
        self._values, self._pipes, self._spare = values, pipes, spare
        self.columns: list[Column] = []  # those named so far

    def column(self, name: str) -> dict[str, Any]:
        """A column of the chunk's vertices."""
        column = self._values[name]
        return self._field(tensor_names.column(name), [column], name, "float32" if column.width else PLAIN_TYPES[name])

    def gradient(self, gradients: Gradients) -> dict[str, Any]:
        """That of an output: the sum of what came back from all that read it."""
        return self._field(
            tensor_names.output_gradient(gradients.value), [self._values[name] for name in gradients.columns]
        )

    def sources(self, edges: EdgeSet, collections: Sequence[str]) -> list[dict[str, Any]]:
        """The columns at the sources of these edges, of the one collection that is along them, if there is one."""
        along = [name for name in collections if self._values[name].edges == edges][:1]
        return [
            self._field(tensor_names.source(edges, column), [handle], name)
            for name in along
            for column, handle in self._values[name].columns.items()
        ]

    def _field(self, tensor: str, parts: list[Column], name: str = "", dtype: str = "float32") -> dict[str, Any]:
        """`name` is that of a column or collection which other pipes may read too."""
        return {
            "tensor": tensor,
            "columns": [self._place(part) for part in parts],
            "dtype": dtype,
            "static": all(part.static is not None for part in parts),
            "kept": self._pipes[name] > 1,
            "spare": name in self._spare,
        }

    def _place(self, column: Column) -> int:
        for place, known in enumerate(self.columns):
            if known is column:
                return place
        self.columns.append(column)
        return len(self.columns) - 1


def numbered(level: int | None) -> int:
    """A level as Scala has it: -1 for all vertices."""
    return -1 if level is None else level


def _returned(step: PipeStep, stage: Stage, returned: Sequence[ResultTensor]) -> list[dict[str, Any]]:
    """What comes back, each with the place of the edges to whose sources it belongs; -1 for the chunk's vertices."""
    places = {edges: place for place, edges in enumerate(stage.edge_sets)}
    return [
        {
            "tensor": one.name,
            "width": column.width,
            "edges": -1 if one.edges is None else places[one.edges],
            "within": numbered(column.within),
        }
        for column, one in zip(step.outputs, returned, strict=True)
    ]
