"""A pipe step as the plain data that `lotan.PipeStep.of` reads; see `jvm/src/main/scala/lotan/PipeStep.scala`.

Tensors of a chunk and of its result have the names that `lotan.engines.rows.pipe_task` gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lotan.engines.base import Handle
from lotan.engines.results import result_tensors
from planner.physical import PipeStep, Stage
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
        values: columns and collections by name.
        pipes: how many pipes of the pass read each of them, if only to have them ready.
        weighted: whether edges have weights.
        spare: those that the workers do without, as long as they keep what they made of them.
    """
    columns: list[Column] = []

    def field(
        tensor: str, parts: list[Column], kept: bool = False, dtype: str = "float32", spare: bool = False
    ) -> dict[str, Any]:
        places = [_place(columns, part) for part in parts]
        static = all(part.static is not None for part in parts)
        flags = {"static": static, "kept": kept, "spare": spare}
        return {"tensor": tensor, "columns": places, "dtype": dtype, **flags}

    fields = [
        field(
            f"column/{name}",
            [values[name]],
            pipes[name] > 1,
            "float32" if values[name].width else PLAIN_TYPES[name],
            name in spare,
        )
        for name in step.inputs
    ]
    for gradient in step.gradients:
        fields.append(field(f"output_gradient/{gradient.value}", [values[name] for name in gradient.columns]))
    edges = []
    for edge_set in stage.edge_sets:
        name = next((name for name in step.collections if values[name].edges == edge_set), None)
        collected: Mapping[str, Column] = values[name].columns if name is not None else {}
        sources = [
            field(f"source/{edge_set}/{column}", [handle], name is not None and pipes[name] > 1, spare=name in spare)
            for column, handle in collected.items()
        ]
        edges.append({"edges": edge_set, "sources": sources, "weighted": weighted, "keyed": stage.draws_on(edge_set)})
    places = {edge_set: place for place, edge_set in enumerate(stage.edge_sets)}
    plain = {
        "run": site.run,
        "number": site.number,
        "stage": stage.name,
        "mode": step.mode,
        "accumulates": not step.emits,
        "chunk_rows": site.chunk_rows,
        "fields": fields,
        "edges": edges,
        "returned": [
            {"tensor": one.name, "width": column.width, "edges": -1 if one.edges is None else places[one.edges]}
            for column, one in zip(step.outputs, result_tensors(step, stage), strict=True)
        ],
    }
    return plain, columns


def _place(columns: list[Column], column: Column) -> int:
    for place, known in enumerate(columns):
        if known is column:
            return place
    columns.append(column)
    return len(columns) - 1
