"""The types of vertices of a graph as they were given, by which ids in one table become ids of a type again.

In the table of all vertices, a graph in memory numbers vertices by type, then by id. A graph in Spark has texts such as
"author:7". So the same id may occur in several types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.graph.table_kinds import is_pandas
from planner.vertex_types import Relation, VertexTypes

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

SEPARATOR = ":"
"""The sign between a type and an id, in Spark."""

_SQL_INTEGERS = {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"}  # by number of bytes


@dataclass(frozen=True)
class GivenTypes:
    """The types of vertices of a graph, and how to find the ids that its tables were given with."""

    types: VertexTypes
    id_types: tuple[str, ...]  # Spark's names for the types of the ids, by type of vertices
    ids: tuple[npt.NDArray[Any], ...] = ()  # in memory: the sorted ids of each type

    @property
    def id_type(self) -> str:
        """Spark's name for the type of the ids of the vertices that have labels."""
        return self.id_types[self.types.target]

    @property
    def first(self) -> int:
        """The number of the first vertex of the type that has labels, in memory."""
        return self._first(self.types.target)

    def _first(self, number: int) -> int:
        return sum(len(ids) for ids in self.ids[:number])

    def rows_of_type(self, number: int, joint: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """Return the positions of the vertices of a type in the table of all, and their ids as given, in ascending order.

        Args:
            number: the number of the type.
            joint: the ids in the table of all vertices, ascending.
        """
        if self.ids:
            first, ids = self._first(number), self.ids[number]
            return np.arange(first, first + len(ids)), ids
        prefix, textual = f"{self.types.names[number]}{SEPARATOR}", self.id_types[number] == "string"
        places = np.array([at for at, one in enumerate(joint) if one.startswith(prefix)], dtype=np.int64)
        texts = [one[len(prefix) :] for one in joint[places]]
        ids = np.array(texts if textual else [int(one) for one in texts], dtype=object if textual else np.int64)
        order = np.argsort(ids, kind="stable")
        return places[order], ids[order]

    def joint_id(self, vertex: int | str) -> int | str | None:
        """Return the id in the table of all vertices of a vertex that has labels, or None if there is no such vertex.

        In Spark, an id for which there is no vertex is not found out.

        Args:
            vertex: the id that the vertex was given with.
        """
        if isinstance(vertex, str) != (self.id_type == "string"):
            return None
        if not self.ids:
            return f"{self.types.task}{SEPARATOR}{vertex}"
        ids = self.ids[self.types.target]
        place = int(np.searchsorted(ids, np.array([vertex], dtype=object if self.id_type == "string" else np.int64))[0])
        return self.first + place if place < len(ids) and ids[place] == vertex else None

    def given_ids(self, joint: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the types of vertices, and the ids that they were given with.

        Args:
            joint: their ids in the table of all vertices.

        Returns:
            The names of the types [rows], and the ids [rows], both as objects.
        """
        if self.ids:
            ends = np.cumsum([len(ids) for ids in self.ids])
            number = np.searchsorted(ends, joint, side="right")
            firsts = ends - [len(ids) for ids in self.ids]
            given = [self.ids[kind][one - firsts[kind]] for kind, one in zip(number, joint, strict=True)]
            names = [self.types.names[kind] for kind in number]
        else:
            parts = [str(one).split(SEPARATOR, 1) for one in joint]
            names = [name for name, _ in parts]
            texts = {name: kind == "string" for name, kind in zip(self.types.names, self.id_types, strict=True)}
            given = [one if texts[name] else int(one) for name, one in parts]
        found = np.empty((2, len(joint)), dtype=object)
        found[0], found[1] = names, [one.item() if isinstance(one, np.generic) else one for one in given]
        return found[0], found[1]

    def of_task(self, frame: pd.DataFrame | DataFrame) -> pd.DataFrame | DataFrame:
        """Return the rows of the vertices of the type that has labels, with the ids that they were given with.

        Args:
            frame: rows with `id`, as engines read them, and other columns.
        """
        if not self.ids:
            return self._by_prefix(frame)
        ids, first = self.ids[self.types.target], self.first
        if is_pandas(frame):
            return _in_range(frame, ids, first)
        others = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields[1:])
        schema = f"id {self.id_type}, {others}"
        return frame.mapInPandas(_restoring(ids, first), schema)

    def _by_prefix(self, frame: Any) -> Any:
        prefix = f"{self.types.task}{SEPARATOR}"
        if is_pandas(frame):
            rows = frame[frame["id"].str.startswith(prefix)]
            plain = rows["id"].str.slice(len(prefix))
            return rows.assign(id=plain if self.id_type == "string" else plain.astype("int64"))
        from pyspark.sql import functions as F

        plain = F.substring("id", len(prefix) + 1, 2**30).cast(self.id_type)
        return frame.where(F.col("id").startswith(prefix)).withColumn("id", plain)


def _in_range(frame: pd.DataFrame, ids: npt.NDArray[Any], first: int) -> pd.DataFrame:
    numbers = frame["id"].to_numpy() - first
    here = (numbers >= 0) & (numbers < len(ids))
    return frame[here].assign(id=ids[numbers[here]]).reset_index(drop=True)


def _restoring(ids: npt.NDArray[Any], first: int) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return the function that Spark's Python processes run on batches of rows."""

    def run(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield _in_range(batch, ids, first)

    return run


def sql_type_of(column: str) -> str:
    """Return Spark's name for the type of ids that lie in a column of a type, such as "bigint" for a decimal."""
    return column if column in (*_SQL_INTEGERS.values(), "string") else "bigint"


def sql_type(ids: npt.NDArray[Any]) -> str:
    """Return Spark's name for the type of ids in memory."""
    return "string" if ids.dtype == object else _SQL_INTEGERS[ids.dtype.itemsize]


def check_types(vertices: Any, edges: Any) -> tuple[tuple[str, ...], tuple[Relation, ...]]:
    """Return the types of vertices and the relations that tables are given for, both sorted.

    Raises:
        GraphError: the tables are no mappings, a name is no text, or a relation names an unknown type of vertices.
    """
    if not hasattr(vertices, "items") or not hasattr(edges, "items"):
        raise GraphError(
            "Expected tables by type: HeteroGraph({'paper': papers, 'author': authors}, {('author', 'writes', 'paper'): writes})."
        )
    if not vertices or not edges:
        raise GraphError(f"There are no {'edges' if vertices else 'vertices'}; give at least one table of each.")
    for name in vertices:
        if not isinstance(name, str) or not name or SEPARATOR in name:
            raise GraphError(
                f"{name!r} cannot be the name of a type of vertices; expected a text without {SEPARATOR!r}."
            )
    for relation in edges:
        if not (isinstance(relation, tuple) and len(relation) == 3 and all(isinstance(part, str) for part in relation)):
            raise GraphError(
                f"{relation!r} is not a relation; expected the type of the sources, a name, and the type of the destinations."
            )
        for end in (relation[0], relation[2]):
            if end not in vertices:
                raise GraphError(
                    f"edges {said(relation)}: there are no vertices of type {end!r}; the types are {', '.join(vertices)}. "
                    "Give a table for it, or leave these edges out."
                )
    return tuple(sorted(vertices)), tuple(sorted(edges))


def types_with(
    widths: tuple[int, ...], names: tuple[str, ...], relations: tuple[Relation, ...], task: str
) -> VertexTypes:
    """Return the types of vertices whose features have these widths."""
    return VertexTypes(names, widths, relations, task)


def said(relation: Relation) -> str:
    """Return a relation in words.

    >>> said(("author", "writes", "paper"))
    'author -> writes -> paper'
    """
    return " -> ".join(relation)


def task_of(given: str | None, labelled: list[str], split: list[str], names: tuple[str, ...]) -> str:
    """Return the type of vertices whose labels are the task.

    Args:
        given: the type that the user names, or None.
        labelled: the types with labels.
        split: the types with splits.
        names: all types.

    Raises:
        GraphError: no type, or more than one, may be meant.
    """
    if given is not None:
        if given not in names:
            raise GraphError(f"task_type is {given!r}; expected one of the types of vertices: {', '.join(names)}.")
        return given
    both = [name for name in labelled if name in split]
    for found in (both, labelled, split):
        if len(found) == 1:
            return found[0]
    if labelled:
        raise GraphError(
            f"Vertices of the types {', '.join(labelled)} have labels; say which to train on: task_type={labelled[0]!r}."
        )
    if len(names) == 1:
        return names[0]
    raise GraphError(f"No vertices have labels; say which to train on or to predict: task_type={names[0]!r}.")
