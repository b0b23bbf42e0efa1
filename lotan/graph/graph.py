"""The graph on which a model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lotan.arguments import require_flag
from lotan.borders import spark_translated
from lotan.errors import GraphError
from lotan.files import expanded
from lotan.graph import files, given_arrays, sources, typed_folders
from lotan.graph.arrays import EdgeColumns, GraphArrays, as_given, with_reverses
from lotan.graph.built_in import BUILT_IN
from lotan.graph.column_names import NAME_ARGUMENTS, ColumnNames, column_names, refuse_unknown
from lotan.graph.description import description
from lotan.graph.facts import GraphFacts
from lotan.graph.given_labels import settle
from lotan.graph.given_types import GivenTypes
from lotan.graph.groups import no_groups_here
from lotan.graph.places import is_uri
from lotan.graph.sources import Source
from planner.loss import Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lotan.graph.spark_links import Splits


class VerticesAndEdges(Protocol):
    """The two attributes that Lotan reads of a GraphFrame."""

    vertices: DataFrame
    edges: DataFrame


class Graph(GraphFacts):
    """A graph: vertices with features, and directed edges along which messages flow from src to dst.

    Tables are read when something asks for them, and a bad table raises a GraphError then. The Trainer calls
    `lotan.validation.check.check_graph` before its first epoch, which finds every fault.

    Args:
        vertices: a table with `id` (integers or strings) and the columns named below: a DataFrame of Spark, pandas or
            polars, an Arrow table, or a dict of arrays.
        edges: a table with `src` and `dst`, which have the id's type. It may be in another form than the vertices.
        features: the name of an array column (or Spark ML vector column), the names of several columns of numbers, or
            a pattern of such names, such as "f_*" (default: "features").
        label: the name of a column of integers or strings (classes; -1 or null for none), of arrays of 0 and 1
            (several labels at once), or of floats or arrays of floats (regression). A column of the default name may
            be absent (default: "label").
        split: the name of a column of 'train', 'val', 'test' or null, or of the numbers 0, 1 and 2; or the names of
            three masks. A column of the default name may be absent (default: "split").
        weight: the name of a column of the edges, or None if every edge weighs 1. A column of the default name may be
            absent (default: "weight").
        edge_features: the name of an array column of the edges, or the names of several columns of numbers: the
            attributes of each edge; None for none (default: None).
        edge_type: the name of an integer column of the edges, with types numbered from 0; None for none (default: None).
        undirected: if True, the reverse of every edge is added, with the same weight, attributes and type, unless the
            graph has that edge already. Self-loops gain no reverse, and each of several parallel edges gains one
            (default: False).
        id: the name of the vertices' column of ids (default: "id").
        src: the name of the edges' column of sources (default: "src", or "source" if that is there).
        dst: the name of the edges' column of destinations (default: "dst", or "target" if that is there).
        vertex_weight: the name of a column of the vertices with their weights in the loss, at least 0; None for none. A
            column of the default name may be absent (default: "vertex_weight").
        batch: the name of a column of whole numbers of the vertices, numbered from 0: the group of each vertex, which a
            model takes as `batch`; None for one group (default: None).

    For link tasks the edges may also have the columns `split` and `relation`, see `lotan.LinkPrediction`.

    Raises:
        GraphError: vertices or edges are missing or no table, or a name is no string.
        ConfigurationError: `undirected` is neither True nor False.

    Example:
        >>> import pandas as pd
        >>> vertices = pd.DataFrame({"id": [1, 2], "features": [[0.0, 1.0], [1.0, 0.0]]})
        >>> graph = Graph(vertices, pd.DataFrame({"src": [1], "dst": [2]}), undirected=True)
        >>> graph.statistics.vertices, graph.statistics.edges
        (2, 2)
    """

    def __init__(
        self,
        vertices: Any,
        edges: Any = None,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        split: str | Sequence[str] | None = "split",
        weight: str | None = "weight",
        undirected: bool = False,
        edge_features: str | Sequence[str] | None = None,
        edge_type: str | None = None,
        id: str = "id",
        src: str = "src",
        dst: str = "dst",
        vertex_weight: str | None = "vertex_weight",
        batch: str | None = None,
        **others: Any,
    ) -> None:
        refuse_unknown("Graph", others, (*NAME_ARGUMENTS, "undirected"))
        of_edges = {"weight": weight, "edge_features": edge_features, "edge_type": edge_type, "src": src, "dst": dst}
        names = column_names(features, label, split, id=id, vertex_weight=vertex_weight, batch=batch, **of_edges)
        self._begin(sources.of_tables(vertices, edges, names), undirected)

    @classmethod
    def read(
        cls,
        path_or_name: str | Path,
        undirected: bool = False,
        format: str | None = None,
        spark: SparkSession | None = None,
        **columns: Any,
    ) -> Graph:
        """Read an `.npz` file, a directory with tables of vertices and edges, or a graph by its name.

        A name is that of a built-in graph (`lotan.graph.built_in`) or of a file in `$LOTAN_DATA` or `../shared/data`.
        The rows of a directory are read only when something asks for them, by Arrow or by Spark. A directory with tables of
        several types of vertices is read by `lotan.HeteroGraph.read`.

        Args:
            path_or_name: a path, the URI of a directory, or a name such as "digits".
            undirected: if True, missing reverses of edges are added, as the class describes it (default: False).
            format: the format of the tables, see `read_tables`; None to take it from the files' names (default: None).
            spark: the session that reads what Arrow cannot; None for the active one (default: None).
            columns: names of columns, as in the class. Edges' `weight`, `edge_attr` and `edge_type` are read if they are
                there.

        Raises:
            GraphError: there is no such graph, or a file cannot be read.

        Example:
            >>> Graph.read("digits").statistics.vertices
            1797
        """
        if typed_folders.is_typed(path_or_name):
            from lotan.graph.hetero_graph import HeteroGraph

            if undirected:
                raise GraphError(
                    f"{path_or_name} has several types of vertices, so undirected is not taken: give reverses as relations."
                )
            return HeteroGraph.read(path_or_name, format=format, spark=spark, **columns)
        if str(path_or_name) in BUILT_IN:
            if columns:
                raise GraphError(
                    f"{path_or_name} is built in, and has no columns to name: leave out {', '.join(columns)}."
                )
            given = BUILT_IN[str(path_or_name)].load()
            undirected = require_flag("Graph", "undirected", undirected) or bool(given["undirected"])
            return cls.from_arrays(**{**given, "undirected": undirected})
        return cls._of(sources.of_path(path_or_name, columns, format, spark), undirected)

    @classmethod
    def read_tables(
        cls,
        vertices: str | Path,
        edges: str | Path,
        undirected: bool = False,
        format: str | None = None,
        spark: SparkSession | None = None,
        **columns: Any,
    ) -> Graph:
        """Read two tables by their places: paths, URIs, tables of Spark's catalog, or SQL queries.

        Args:
            vertices: the place of the vertices, such as "s3a://bucket/users", "shop.users" or "SELECT ... FROM users".
            edges: the place of the edges.
            undirected: if True, missing reverses of edges are added, as the class describes it (default: False).
            format: the format of paths and URIs: parquet, csv, json, orc, delta, iceberg, hudi or avro; None to take it from
                the endings of their names, or else Parquet (default: None).
            spark: the session that reads what Arrow cannot; None for the active one (default: None).
            columns: names of columns, as in the class. Edges' `weight`, `edge_attr` and `edge_type` are read if they are
                there.

        Raises:
            GraphError: a table cannot be read, or needs Spark and there is no session.
        """
        tables = sources.places(vertices, edges, format)
        return cls._of(sources.of_places(tables, columns, spark), undirected)

    @classmethod
    def from_graphframe(
        cls,
        graph: VerticesAndEdges,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        split: str | None = "split",
        weight: str | None = "weight",
        undirected: bool = False,
        edge_features: str | Sequence[str] | None = None,
        edge_type: str | None = None,
    ) -> Graph:
        """Return a graph of the vertices and edges of a GraphFrame, or of any object with these two DataFrames.

        Args:
            graph: the GraphFrame.
            features: as in the class.
            label: as in the class.
            split: as in the class.
            weight: as in the class.
            undirected: as in the class.
            edge_features: as in the class.
            edge_type: as in the class.

        Raises:
            GraphError: the object has no vertices and edges.
        """
        if not (hasattr(graph, "vertices") and hasattr(graph, "edges")):
            raise GraphError(f"{type(graph).__name__} has no vertices and edges; expected a GraphFrame.")
        names = features, label, split, weight
        return cls(graph.vertices, graph.edges, *names, undirected, edge_features, edge_type)

    @classmethod
    def from_arrays(
        cls,
        features: npt.NDArray[np.generic] | None = None,
        src: npt.NDArray[np.generic] | None = None,
        dst: npt.NDArray[np.generic] | None = None,
        label: npt.NDArray[np.generic] | None = None,
        split: npt.NDArray[np.generic] | None = None,
        weight: npt.NDArray[np.generic] | None = None,
        ids: npt.NDArray[np.generic] | None = None,
        undirected: bool = False,
        edge_attr: npt.NDArray[np.generic] | None = None,
        edge_type: npt.NDArray[np.generic] | None = None,
        edge_index: npt.NDArray[np.generic] | None = None,
        batch: npt.NDArray[np.generic] | None = None,
        edge_split: npt.NDArray[np.generic] | None = None,
        relation: npt.NDArray[np.generic] | None = None,
        vertex_weight: npt.NDArray[np.generic] | None = None,
        **others: Any,
    ) -> Graph:
        """Return a graph of numpy arrays, or of tensors, lists and others that numpy can convert. They are copied.

        Args:
            features: numbers [vertices, width]. A sparse matrix of scipy becomes dense. None for a graph without features,
                whose model learns rows; `ids`, `label` or `split` then tell the number of vertices (default: None).
            src: ids of the edges' sources [edges].
            dst: ids of the edges' destinations [edges].
            label: integers [vertices] (-1 for none) or strings, or floats [vertices] or [vertices, targets] (NaN for
                none); None for a graph without labels (default: None).
            split: numbers [vertices] with -1 for none, 0 for train, 1 for val and 2 for test, or the splits' names. Or three
                masks [vertices], in a list or by their splits' names. None for a graph without splits (default: None).
            weight: weights [edges], or None if every edge weighs 1 (default: None).
            ids: integers or strings [vertices], or None for 0, 1, ... (default: None).
            undirected: if True, missing reverses of edges are added, as the class describes it (default: False).
            edge_attr: attributes of the edges, numbers [edges, width] or [edges]; None for none (default: None).
            edge_type: types of the edges, integers [edges] from 0; None for none (default: None).
            edge_index: the edges, integers [2, edges], in place of `src` and `dst` (default: None).
            batch: the group of each vertex, whole numbers [vertices] from 0; None for one group (default: None).
            edge_split: the split of each edge, for link tasks: as `split`, but [edges] (default: None).
            relation: the relation of each edge, for link tasks: integers or strings [edges] (default: None).
            vertex_weight: weights of the vertices in the loss, numbers of at least 0 [vertices]; None for equal weights
                (default: None).
            others: arguments of other names, which are refused.

        Raises:
            GraphError: an array has a wrong dtype or shape, the arrays do not fit together, or `others` has an argument of
                another name.

        Example:
            >>> graph = Graph.from_arrays(features=[[0.0], [1.0], [2.0]], src=[0, 1], dst=[1, 2])
            >>> graph.arrays().dst
            array([1, 2])
        """
        given = {"features": features, "src": src, "dst": dst, "label": label, "split": split, "weight": weight}
        given |= {"ids": ids, "edge_attr": edge_attr, "edge_type": edge_type, "edge_index": edge_index}
        given |= {"batch": batch, "edge_split": edge_split, "relation": relation, "vertex_weight": vertex_weight}
        given_arrays.refuse_unknown(others, (*given, "undirected"))
        source = sources.of_columns(*given_arrays.columns_of(given))
        if batch is not None:
            source = replace(source, names=replace(source.names, batch="batch"))
        return cls._of(source, undirected)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """Return the graph of a PyG data object. Its tensors are copied.

        Args:
            data: a `torch_geometric.data.Data` with `x` and `edge_index`. Of edges, `edge_weight`, `edge_attr` and
                `edge_type` are read if they are there. Of vertices, these are: `y`; `train_mask`, `val_mask` and `test_mask`;
                `n_id`, their ids (default: 0, 1, ...); `batch`, their groups; and `vertex_weight`, their weights in the loss.
                An `edge_attr` of one number for each edge is also the weight, unless there is an `edge_weight`.

        Raises:
            GraphError: an attribute is missing, has a wrong shape, or has no place in a graph.
        """
        from lotan.graph.pyg import arrays_of

        return cls.from_arrays(**arrays_of(data))

    def to_pyg(self) -> Any:
        """Return the graph as a `torch_geometric.data.Data`, with the attributes that `from_pyg` reads.

        The vertices are sorted by id, and edges by destination, source, weight, type and attributes. A graph in Spark is
        collected.

        Raises:
            GraphError: PyG is not installed, or the tables make no graph.
        """
        from lotan.graph.pyg import data_of

        return data_of(self.arrays(), self._source.names.batch is not None)

    @property
    def num_vertices(self) -> int:
        """The number of vertices. For a graph in Spark it takes a job."""
        return len(self.ids) if self.origin == "files" else self.statistics.vertices

    @property
    def num_edges(self) -> int:
        """The number of edges, with reverses that `undirected` adds. For a graph in Spark it takes a job."""
        return self.statistics.edges

    def __bool__(self) -> bool:
        """Return True, as every graph has a vertex. Asking takes no job."""
        return True

    def __len__(self) -> int:
        """Return the number of vertices."""
        return self.num_vertices

    def relabelled(
        self,
        label: npt.NDArray[np.generic] | None = None,
        split: npt.NDArray[np.int8] | None = None,
        vertex_weight: npt.NDArray[np.float32] | None = None,
    ) -> Graph:
        """Return this graph, collected, with other labels and splits. Both graphs share all other arrays.

        Args:
            label: labels in the order and form of `arrays()`, or None for a graph without labels (default: None).
            split: splits in the order and form of `arrays()`, or None for a graph without splits (default: None).
            vertex_weight: weights in the order and form of `arrays()`, or None for those of this graph (default: None).
        """
        arrays = self.arrays()
        label = np.full(len(arrays.ids), -1, dtype=np.int64) if label is None else label.copy()
        split = np.full(len(arrays.ids), -1, dtype=np.int8) if split is None else split.copy()
        changed = replace(arrays, label=label, split=split, classes=())
        if vertex_weight is not None:
            changed = replace(changed, vertex_weight=vertex_weight.copy())
        return Graph.of_arrays(changed, self._source.names.standard_edges(), self._source.types)

    @classmethod
    def of_arrays(cls, arrays: GraphArrays, names: ColumnNames | None = None, types: GivenTypes | None = None) -> Graph:
        """Return the graph of arrays that were made already, with reverses among their edges. The arrays are not copied.

        Args:
            arrays: sorted arrays, as `arrays()` returns them.
            names: the names of the columns that they were read from, for words; None for the defaults (default: None).
            types: the types of the vertices, if there are several (default: None).
        """
        source = Source(names or ColumnNames(), load=lambda: as_given(arrays), types=types)
        graph = Graph._of(source, undirected=False)
        graph.__dict__["_arrays"] = arrays
        return graph

    def links_in_spark(self) -> EdgeColumns:
        """Return the edges of a graph in Spark with their types, splits and relations, without weights and attributes.

        Raises:
            GraphError: a column is missing or has a bad value.
        """
        from lotan.graph import spark_links

        return spark_links.link_columns(self._tables, self._names_of_links, self.ids)

    def relations_in_spark(self) -> tuple[int | str, ...]:
        """Return the relations of the edges of a graph in Spark, ascending. Nothing else is collected.

        Raises:
            GraphError: a relation is missing or of a wrong type, or an edge has an unknown split.
        """
        from lotan.graph import spark_links

        return spark_links.relations_of(self._tables, self._names_of_links)

    def messages_in_spark(self, relations: tuple[int | str, ...], drawn: Splits | None) -> Graph:
        """Return a graph in Spark with the edges of training alone, and all vertices in the split of training.

        Args:
            relations: the relations of the edges by their numbers, which are the types of edges that have no others.
            drawn: the function that draws the splits of edges by the keys of their ends, unless a column has them.
        """
        from lotan.graph import spark_links

        vertices, edges = spark_links.message_tables(self._tables, self._names_of_links, relations, drawn)
        weight = None if self.names.weight is None else "weight"
        attributes, types = (name if name in edges.columns else None for name in ("edge_attr", "edge_type"))
        return Graph(
            vertices,
            edges,
            label=None,
            weight=weight,
            undirected=self.undirected,
            edge_features=attributes,
            edge_type=types,
            vertex_weight=None,
        )

    @property
    def _names_of_links(self) -> ColumnNames:
        return self.names.with_links().present_edges(self._tables[1].columns)

    def for_task(self, task: Task | None) -> Graph:
        """Return this graph with labels for a task: whole numbers for classification, floats for other tasks.

        Features and edges are not copied. Labels that the task cannot use are left, for the check to refuse.

        Args:
            task: the task, or None to leave labels as they are.

        Raises:
            GraphError: labels are texts or not whole, and the task needs others.
        """
        if task is None or task == self._task or (task == "classification") == self._has_classes:
            return self
        if task not in self._variants:
            graph = Graph._of(self._source, self.undirected, task)
            graph.__dict__["kept"], graph._mapped = self.kept, self._mapped  # nothing in it depends on labels
            if self._source.tables is None:
                graph.__dict__["_arrays"] = self._with_labels(task)
            self._variants[task] = graph
        return self._variants[task]

    @property
    def _has_classes(self) -> bool:
        if self._source.tables is not None:
            return bool(self.names.as_classes)
        return self.arrays().label.ndim == 1

    @cached_property
    def _variants(self) -> dict[Task, Graph]:
        return {}

    def _with_labels(self, task: Task) -> GraphArrays:
        """Return the arrays with labels for a task, which are read again: those that the graph has may have lost digits."""
        files = self._source.files
        if self._mapped is None or files is None:
            vertices = self._source.read()[0]
        else:
            vertices = files.read_vertices(self.names, self._mapped)
        settled = settle(vertices.label, task, vertices.ids)
        order = np.argsort(vertices.ids, kind="stable")
        return replace(self.arrays(), label=settled.label[order], classes=settled.classes)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the graph as a directory of Parquet, which `read` reads.

        Reverses that `undirected` has added are written as well, so the directory must be read with undirected=False. They
        have the columns `split` and `relation` of their edges too. A link task excludes the reverses of a batch's links only
        if it knows of them, so save its graph without `undirected`, and read it with it.

        Args:
            path: the directory, or the URI of one for a graph in Spark.
            overwrite: if True, a graph that is there is replaced (default: False).

        Raises:
            GraphError: a graph or a saved model is there already, the place is a file, or it cannot be written.
        """
        require_flag("save", "overwrite", overwrite)
        if self._source.names.batch is not None:
            raise no_groups_here("save")
        if self._source.tables is None:
            arrays, links = self.arrays(), self._source.links()
            whole = None if links is None else with_reverses(arrays.ids, links, self.undirected)
            files.write_directory(expanded(path), arrays, overwrite, whole)
            return
        from lotan.graph import frames

        if not is_uri(path):
            path = expanded(path)
            files.require_no_model(path)
        with spark_translated(GraphError, f"The graph cannot be saved at {path}"):
            frames.save(self._tables, self.names, self.undirected, str(path), overwrite)

    def __reduce__(self) -> Any:
        """Pickle the columns of a graph in memory, or the places of a graph in files.

        Raises:
            GraphError: the graph is in Spark.
        """
        return Graph._of, (self._source, self.undirected, self._task)

    def __repr__(self) -> str:
        """Describe the graph in a few lines. What is not known without reading rows or a job of Spark is left out."""
        return description(self)
