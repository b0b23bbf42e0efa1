"""The part of a graph on which the output of one vertex depends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lotan.arguments import described
from lotan.errors import GraphError, ModelError
from lotan.graph.graph import Graph
from planner.edge_sets import is_reversed
from planner.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

Positions = npt.NDArray[np.intp]


class Neighbourhood(NamedTuple):
    """A part of a graph around one vertex."""

    graph: Graph  # the part, in this process's memory
    hops: npt.NDArray[np.int64]  # [vertices]: the fewest edges from each vertex to the one in the middle
    middle: int  # the row of the vertex in the middle


def hops_of(spec: Spec) -> int:
    """Return the number of edges from the farthest vertex whose features an output depends on.

    Raises:
        ModelError: The model sums over edges turned round.
    """
    if any(call.type.edges is not None and is_reversed(call.type.edges) for call in spec.calls):
        raise ModelError(
            "the model sums over edges turned round, so a vertex depends on what its out-edges lead to as well; explanations "
            "follow in-edges alone"
        )
    depth = dict.fromkeys((parameter.name for parameter in spec.parameters), 0)
    for call in spec.calls:
        along_edges = call.op == "lotan.scatter" and call.arguments[1] == "source"
        depth[call.output] = max((depth[name] for name in call.reads), default=0) + along_edges
    return depth[spec.output]


def neighbourhood(graph: Graph, vertex: int | str, hops: int, most_edges: int) -> Neighbourhood:
    """Return the in-edges of all vertices within some hops of a vertex, with both ends of each.

    A model of `hops` sums along edges computes the same output for the vertex on the part as on the whole graph. All
    vertices that take part have all their in-edges there, so their degrees are the same. A graph in Spark is not
    collected. Each hop joins its edges with the vertices that were reached.

    Args:
        graph: The graph.
        vertex: The vertex's id; in a graph of several types, that of a vertex of the type that has labels.
        hops: The number of hops.
        most_edges: The most edges of the part.

    Raises:
        GraphError: There is no such vertex, or the part has more than `most_edges` edges.
    """
    is_number = isinstance(vertex, int | np.integer) and not isinstance(vertex, bool) and abs(int(vertex)) < 2**63
    if not is_number and not isinstance(vertex, str):
        raise _unknown(vertex)
    types = graph.given_types
    joint = vertex if types is None else types.joint_id(vertex)
    reader = _InSpark(graph, most_edges) if graph.origin == "spark" else _InMemory(graph)
    middle = None if joint is None else reader.known(joint)
    if middle is None:
        raise _unknown(vertex)
    found = {middle: 0}
    edges = []
    frontier, count = list(found), 0
    for hop in range(hops + 1):
        part = reader.into(frontier)
        count += len(part["src"])
        if count > most_edges:
            raise GraphError(
                f"vertex {vertex!r} depends on more than {most_edges:,} edges within {hop + 1} hops. "
                "Give a greater most_edges."
            )
        edges.append(part)
        frontier = [one for one in dict.fromkeys(part["src"].tolist()) if one not in found]
        found |= dict.fromkeys(frontier, hop + 1)
    joined: dict[str, Any] = {name: np.concatenate([part[name] for part in edges]) for name in edges[0]}
    ids = np.array(list(found), dtype=object if isinstance(next(iter(found)), str) else np.int64)
    order = np.argsort(ids, kind="stable")
    small = Graph.from_arrays(reader.features(ids[order]), ids=ids[order], **joined)
    reached = np.array(list(found.values()), dtype=np.int64)[order]
    return Neighbourhood(small, reached, int(np.flatnonzero(reached == 0)[0]))


def _unknown(vertex: object) -> GraphError:
    return GraphError(f"the graph has no vertex {described(vertex)}. Give one of the ids in the column of ids.")


class _InMemory:
    """Reads edges and features of a graph in this process's memory, by the ids of its vertices."""

    def __init__(self, graph: Graph) -> None:
        self._arrays = graph.arrays()
        ends = np.arange(len(self._arrays.ids) + 1)
        self._first = np.searchsorted(self._arrays.dst, ends)  # edges are sorted by destination

    def known(self, vertex: int | str) -> Any:
        """Return the id of a vertex in the type that the reader uses, or None if there is no such vertex."""
        if isinstance(vertex, str) != (self._arrays.ids.dtype == object):
            return None
        rows = self._rows([vertex])
        return self._arrays.ids[rows].tolist()[0] if self._arrays.ids[rows[0]] == vertex else None

    def _rows(self, ids: Any) -> Positions:
        """Return the rows of ids that are in the graph. Other ids get a row as well, so `known` compares the id there."""
        given = np.asarray(ids, dtype=self._arrays.ids.dtype)
        return np.minimum(np.searchsorted(self._arrays.ids, given), len(self._arrays.ids) - 1)

    def into(self, ids: list[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the in-edges of vertices, as the arguments of `Graph.from_arrays` for edges."""
        arrays, rows = self._arrays, self._rows(ids)
        spans = [np.arange(self._first[row], self._first[row + 1]) for row in rows]
        chosen = np.concatenate([*spans, np.zeros(0, dtype=np.intp)]).astype(np.intp)
        found = {"src": arrays.ids[arrays.src[chosen]], "dst": arrays.ids[arrays.dst[chosen]]}
        columns = {"weight": arrays.weight, "edge_attr": arrays.edge_attr, "edge_type": arrays.edge_type}
        return found | {name: column[chosen] for name, column in columns.items() if column is not None}

    def features(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the features of vertices, [ids, width]."""
        return self._arrays.features[self._rows(ids)]


class _InSpark:
    """Reads edges and features of a graph in Spark, by joins with the vertices that were reached."""

    def __init__(self, graph: Graph, most_edges: int) -> None:
        self._spark = graph.tables()[0].sparkSession
        self._vertices, self._edges = graph.frames(self._spark)
        self._weighted, self._width = graph.statistics.weighted, graph.statistics.edge_data.width
        self._most = most_edges

    def known(self, vertex: int | str) -> Any:
        """Return the id of a vertex in the type that the reader uses, or None if there is no such vertex."""
        text = dict(self._vertices.dtypes)["id"] == "string"
        if isinstance(vertex, str) != text or not self._vertices.where(self._vertices["id"] == vertex).take(1):
            return None
        return vertex if text else int(vertex)

    def _named(self, name: str, ids: list[Any]) -> Any:
        """Return ids as a table with one column of that name."""
        kind = dict(self._vertices.dtypes)["id"]
        return self._spark.createDataFrame([(one,) for one in ids], f"{name} {kind}")

    def into(self, ids: list[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the in-edges of vertices, as the arguments of `Graph.from_arrays` for edges."""
        from pyspark.sql import functions as F

        chosen = self._edges.join(F.broadcast(self._named("dst", ids)), "dst").limit(self._most + 1)
        rows: pd.DataFrame = chosen.toPandas()
        kind = object if dict(self._vertices.dtypes)["id"] == "string" else np.int64
        found = {name: rows[name].to_numpy(dtype=kind) for name in ("src", "dst")}
        if self._weighted:
            found["weight"] = rows["weight"].to_numpy(dtype=np.float32)
        if "edge_type" in rows:
            found["edge_type"] = rows["edge_type"].to_numpy(dtype=np.int64)
        if self._width is not None:
            found["edge_attr"] = np.array(rows["edge_attr"].tolist(), dtype=np.float32).reshape(len(rows), self._width)
        return found

    def features(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the features of vertices, [ids, width]."""
        from pyspark.sql import functions as F

        chosen = self._vertices.join(F.broadcast(self._named("id", ids.tolist())), "id").select("id", "features")
        rows: pd.DataFrame = chosen.toPandas()
        given = dict(zip(rows["id"], rows["features"], strict=True))
        return np.array([given[one] for one in ids.tolist()], dtype=np.float32)
