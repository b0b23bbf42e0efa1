"""The graph on which a model is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from lotan.errors import GraphError
from lotan.graph import files
from lotan.graph.arrays import EdgeColumns, GraphArrays, VertexColumns, assemble
from lotan.graph.built_in import BUILT_IN
from lotan.graph.columns import ColumnNames, arrow_table, edge_columns, is_pandas, vertex_columns
from lotan.graph.given_arrays import columns_of
from lotan.graph.kept_columns import KeptColumns
from lotan.graph.labels import (
    LabelStatistics,
    check_class_weights,
    label_statistics,
    loss_spec,
    require_training_labels,
    training_weight,
)
from planner.spec import LossSpec, Task
from planner.statistics import Profile, Statistics

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

Origin = Literal["memory", "files", "spark"]

_SQL_INTEGERS = {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"}  # by number of bytes


class VerticesAndEdges(Protocol):
    """The two attributes that Lotan reads of a GraphFrame."""

    vertices: DataFrame
    edges: DataFrame


class Graph:
    """A graph: vertices with features, and directed edges along which messages flow from src to dst.

    Tables are read when something asks for them, and a bad table raises a GraphError then. The Trainer calls
    `lotan.validation.check_graph` before its first epoch, which finds every fault.

    Args:
        vertices: a Spark or pandas DataFrame with `id` (an integer or string type) and the columns named below.
        edges: a DataFrame of the same kind with `src` and `dst`, which have the id's type.
        features: the name of an array column (or Spark ML vector column), or the names of several columns of numbers
            (default: "features").
        label: the name of a column of integers (classes; -1 or null for none), of arrays of 0 and 1 (several labels
            at once), or of floats or arrays of floats (regression). A column of the default name may be absent
            (default: "label").
        split: the name of a column of 'train', 'val', 'test' or null. A column of the default name may be absent
            (default: "split").
        weight: the name of a column of the edges, or None if every edge weighs 1 (default: None).
        edge_features: the name of an array column of the edges, or the names of several columns of numbers: the
            attributes of each edge; None for none (default: None).
        edge_type: the name of an integer column of the edges, with types numbered from 0; None for none (default: None).
        undirected: if True, the reverse of every edge is added, with the same weight, attributes and type, unless the
            graph has that edge already. Self-loops gain no reverse, and each of several parallel edges gains one
            (default: False).

    Raises:
        GraphError: vertices and edges are not two pandas or two Spark DataFrames, or a name is no string.

    Example:
        >>> import pandas as pd
        >>> vertices = pd.DataFrame({"id": [1, 2], "features": [[0.0, 1.0], [1.0, 0.0]]})
        >>> graph = Graph(vertices, pd.DataFrame({"src": [1], "dst": [2]}), undirected=True)
        >>> graph.statistics.vertices, graph.statistics.edges
        (2, 2)
    """

    def __init__(
        self,
        vertices: DataFrame | pd.DataFrame,
        edges: DataFrame | pd.DataFrame,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        split: str | None = "split",
        weight: str | None = None,
        undirected: bool = False,
        edge_features: str | Sequence[str] | None = None,
        edge_type: str | None = None,
    ) -> None:
        self.names = _column_names(features, label, split, weight, edge_features, edge_type)
        self.undirected = undirected
        self._tables: tuple[DataFrame, DataFrame] | None = None
        self._directory: Path | None = None
        self._load: Callable[[], tuple[VertexColumns, EdgeColumns]] = self._collect
        if _is_spark(vertices) and _is_spark(edges):
            self._tables = vertices, edges
        elif is_pandas(vertices) and is_pandas(edges):
            self._load = lambda: _from_pandas(vertices, edges, self.names)
        else:
            raise GraphError(
                f"Vertices are a {type(vertices).__name__} and edges a {type(edges).__name__}; "
                "expected two pandas DataFrames or two Spark DataFrames."
            )

    @classmethod
    def read(cls, path_or_name: str | Path, undirected: bool = False) -> Graph:
        """Read an `.npz` file, a directory of Parquet, or a graph by its name.

        A name is that of a built-in graph (`lotan.graph.built_in`) or of a file in `$LOTAN_DATA` or `../shared/data`.
        The rows of a directory are read only when something asks for them, by Arrow or by Spark.

        Args:
            path_or_name: a path, or a name such as "digits".
            undirected: if True, missing reverses of edges are added, as the class describes it (default: False).

        Raises:
            GraphError: there is no such graph, or a file cannot be read.

        Example:
            >>> Graph.read("digits").statistics.vertices
            1797
        """
        if str(path_or_name) in BUILT_IN:
            return cls.from_arrays(**BUILT_IN[str(path_or_name)].load())
        path = files.find(path_or_name)
        if path.suffix == ".npz":
            vertices, edges = files.read_npz(path)
            return cls._of(lambda: (vertices, edges), undirected)
        names = files.column_names(path)
        graph = cls._of(lambda: files.read_directory(path, names), undirected, names)
        graph._directory = path
        return graph

    @classmethod
    def from_graphframe(
        cls,
        graph: VerticesAndEdges,
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        split: str | None = "split",
        weight: str | None = None,
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
        features: npt.NDArray[np.generic],
        src: npt.NDArray[np.generic],
        dst: npt.NDArray[np.generic],
        label: npt.NDArray[np.generic] | None = None,
        split: npt.NDArray[np.generic] | None = None,
        weight: npt.NDArray[np.generic] | None = None,
        ids: npt.NDArray[np.generic] | None = None,
        undirected: bool = False,
        edge_attr: npt.NDArray[np.generic] | None = None,
        edge_type: npt.NDArray[np.generic] | None = None,
    ) -> Graph:
        """Return a graph of numpy arrays, or of objects that numpy can convert to arrays. They are copied.

        Args:
            features: numbers [vertices, width].
            src: ids of the edges' sources [edges].
            dst: ids of the edges' destinations [edges].
            label: integers [vertices] (-1 for none), or floats [vertices] or [vertices, targets] (NaN for none);
                None for a graph without labels (default: None).
            split: int8 [vertices] with -1 for none, 0 for train, 1 for val and 2 for test; None for a graph without
                splits (default: None).
            weight: weights [edges], or None if every edge weighs 1 (default: None).
            ids: integers or strings [vertices], or None for 0, 1, ... (default: None).
            undirected: if True, missing reverses of edges are added, as the class describes it (default: False).
            edge_attr: attributes of the edges, numbers [edges, width] or [edges]; None for none (default: None).
            edge_type: types of the edges, integers [edges] from 0; None for none (default: None).

        Raises:
            GraphError: an array has a wrong dtype or shape, or the arrays do not fit together.

        Example:
            >>> graph = Graph.from_arrays(features=[[0.0], [1.0], [2.0]], src=[0, 1], dst=[1, 2])
            >>> graph.arrays().dst
            array([1, 2])
        """
        given = {"features": features, "src": src, "dst": dst, "label": label, "split": split, "weight": weight}
        vertices, edges = columns_of({**given, "ids": ids, "edge_attr": edge_attr, "edge_type": edge_type})
        return cls._of(lambda: (vertices, edges), undirected)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """Return the graph of a PyG data object. Its tensors are copied.

        Args:
            data: a `torch_geometric.data.Data` with `x` and `edge_index`. These are read if they are there:
                `edge_weight`, or else an `edge_attr` of one number for each edge; `y`; `train_mask`, `val_mask` and
                `test_mask`; and `n_id`, the ids of the vertices (default: 0, 1, ...).

        Raises:
            GraphError: an attribute is missing, has a wrong shape, or has no place in a graph.
        """
        from lotan.graph.pyg import arrays_of

        return cls.from_arrays(**arrays_of(data))

    def to_pyg(self) -> Any:
        """Return the graph as a `torch_geometric.data.Data`, with the attributes that `from_pyg` reads.

        The vertices are sorted by id, and edges by destination, source and weight. A graph in Spark is collected.

        Raises:
            GraphError: PyG is not installed, or the tables make no graph.
        """
        from lotan.graph.pyg import data_of

        return data_of(self.arrays())

    @classmethod
    def _of(
        cls,
        load: Callable[[], tuple[VertexColumns, EdgeColumns]],
        undirected: bool,
        names: ColumnNames | None = None,
    ) -> Graph:
        graph = cls.__new__(cls)
        graph.names = names or ColumnNames()
        graph.undirected = undirected
        graph._tables, graph._directory, graph._load = None, None, load
        return graph

    @property
    def origin(self) -> Origin:
        """The place of the tables: "memory", "files" or "spark"."""
        if self._tables is not None:
            return "spark"
        return "memory" if self._directory is None else "files"

    def arrays(self) -> GraphArrays:
        """Return the graph in this process's memory. A graph in Spark is collected.

        Later calls return the same arrays, so they must not be written to.

        Raises:
            GraphError: the tables make no graph.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> GraphArrays:
        return assemble(*self._load(), self.undirected)

    @cached_property
    def kept(self) -> KeptColumns:
        """The columns that were computed from the graph in this process."""
        return KeptColumns()

    def relabelled(
        self, label: npt.NDArray[np.generic] | None = None, split: npt.NDArray[np.int8] | None = None
    ) -> Graph:
        """Return this graph, collected, with other labels and splits. Both graphs share all other arrays.

        Args:
            label: labels in the order and form of `arrays()`, or None for a graph without labels (default: None).
            split: splits in the order and form of `arrays()`, or None for a graph without splits (default: None).
        """
        arrays = self.arrays()
        label = np.full(len(arrays.ids), -1, dtype=np.int64) if label is None else label.copy()
        split = np.full(len(arrays.ids), -1, dtype=np.int8) if split is None else split.copy()
        graph = Graph.__new__(Graph)
        graph.names, graph.undirected = self.names.standard_edges(), False  # reverses are among the edges
        graph._tables, graph._directory, graph._load = None, None, self._load
        graph.__dict__["_arrays"] = replace(arrays, label=label, split=split)
        return graph

    @cached_property
    def statistics(self) -> Statistics:
        """The sizes that the Planner needs. For a graph in Spark they take two jobs."""
        if self._tables is None:
            return self.arrays().statistics
        from lotan.graph import frames

        return frames.statistics(self._tables, self.names, self.undirected)

    @cached_property
    def profile(self) -> Profile:
        """The degrees and the density on which costs depend. For a graph in Spark they take two jobs."""
        if self._tables is None:
            found = self.arrays().statistics.profile
            assert found is not None  # the statistics of arrays have a profile
            return found
        from lotan.graph import frames

        return frames.profile(self._tables, self.names, self.undirected)

    def estimate(self) -> Statistics:
        """Return `statistics`, but for files an upper bound from their footers, which is known without reading rows."""
        if self._directory is None:
            return self.statistics
        return files.estimate(self._directory, self.names, self.undirected)

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Return the tables as every engine on Spark reads them. Nothing is collected.

        Args:
            spark: the session of the tables. Tables of a graph from Spark belong to the session of its DataFrames.

        Returns:
            Two tables. The vertices have id (bigint or string), features array<float>, label (int with -1 for none, or
            array<float> with null for none) and split (int, -1 for none). The edges, reverses included, have src, dst
            and weight float (1 if the graph has no weights). If edges have attributes, edge_attr array<float> follows;
            if they have types, edge_type bigint.

        Raises:
            GraphError: a column is missing or has a wrong type.
        """
        from lotan.graph import frames

        if self.origin == "memory":
            return frames.from_arrays(spark, self.arrays())
        return frames.normalised(self.tables(spark), self.names, self.undirected)

    def tables(self, spark: SparkSession | None = None) -> tuple[DataFrame, DataFrame]:
        """Return the tables unchanged: those of a graph from Spark, or of files that `spark` opens.

        Raises:
            GraphError: the graph is in memory, a file cannot be read, or the graph is in files and `spark` is None.
        """
        if self._tables is not None:
            return self._tables
        if self._directory is None or spark is None:
            raise GraphError(f"A graph from {self.origin} has no Spark tables; `frames(spark)` makes them.")
        files.check_readable(self._directory)  # its errors are better than Spark's
        return (
            spark.read.parquet(str(self._directory / files.VERTICES)),
            spark.read.parquet(str(self._directory / files.EDGES)),
        )

    def on_spark(self, spark: SparkSession) -> Graph:
        """Return a graph whose files Spark opens, instead of this process. A graph without files is returned unchanged."""
        if self.origin != "files":
            return self
        graph = Graph.__new__(Graph)
        graph.names, graph.undirected = self.names, self.undirected
        graph._tables, graph._directory, graph._load = self.tables(spark), None, graph._collect
        return graph

    @cached_property
    def id_type(self) -> str:
        """The type of the ids in Spark SQL, such as "int", "bigint" or "string". Predictions have ids of this type."""
        if self._tables is not None:
            return self._tables[0].schema["id"].dataType.simpleString()
        ids = self.arrays().ids
        return "string" if ids.dtype == object else _SQL_INTEGERS[ids.dtype.itemsize]

    def save(self, path: str | Path) -> None:
        """Write the graph as a directory of Parquet, which `read` reads.

        Reverses that `undirected` has added are written as well, so the directory must be read with undirected=False.

        Raises:
            pyspark.errors.AnalysisException: the graph is in Spark, and the directory has a graph already.
        """
        if self._tables is None:
            files.write_directory(Path(path), self.arrays())
            return
        from lotan.graph import frames

        frames.save(self._tables, self.names, self.undirected, str(path))

    @cached_property
    def labels(self) -> LabelStatistics:
        """The task that the labels suggest, and counts of them."""
        if self._tables is None:
            return label_statistics(self.arrays())
        from lotan.graph import frames

        return frames.label_statistics(self._tables, self.names)

    def loss_spec(self, task: Task | None, outputs: int, class_weights: Sequence[float] | None = None) -> LossSpec:
        """Return the loss over the training vertices, with torch's reduction="mean".

        Args:
            task: the task, or None for the one that the labels suggest.
            outputs: width of the model's output.
            class_weights: the argument `weight` of torch's loss: one number for each class, or for each label of a
                multi-label task (default: None, for equal weights).

        Raises:
            GraphError: no training vertex has a label.
            ConfigurationError: the class weights do not fit.
        """
        task = task or self.labels.task
        weights = None if class_weights is None else check_class_weights(task, outputs, class_weights)
        require_training_labels(self.labels)
        total = self._training_weight(weights) if weights and task == "classification" else None
        return loss_spec(self.labels, task, outputs, weights, total)

    def _training_weight(self, weights: Sequence[float]) -> float:
        if self._tables is None:
            return training_weight(self.arrays(), weights)
        from lotan.graph import frames

        return frames.training_weight(self._tables, self.names, weights)

    def _collect(self) -> tuple[VertexColumns, EdgeColumns]:
        from lotan.graph import frames

        assert self._tables is not None
        return frames.collect(self._tables, self.names)


def _column_names(
    features: Any, label: Any, split: Any, weight: Any, edge_features: Any = None, edge_type: Any = None
) -> ColumnNames:
    for name, column in (("label", label), ("split", split), ("weight", weight), ("edge_type", edge_type)):
        if column is not None and not isinstance(column, str):
            raise GraphError(f"{name} is {column!r}; expected the name of a column, or None.")
    attributes = None if edge_features is None else _one_or_several("edge_features", edge_features)
    return ColumnNames(_one_or_several("features", features), label, split, weight, attributes, edge_type)


def _one_or_several(argument: str, given: Any) -> str | tuple[str, ...]:
    several = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if not several or not all(isinstance(name, str) for name in several):
        raise GraphError(f"{argument} is {given!r}; expected the name of a column, or a list of such names.")
    return given if isinstance(given, str) else tuple(several)


def _is_spark(table: object) -> bool:
    """Return True for a Spark DataFrame, classic or Connect. Spark is not imported."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(table).__mro__
    )


def _from_pandas(vertices: pd.DataFrame, edges: pd.DataFrame, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    names = names.present(list(vertices.columns))
    columns = vertex_columns(arrow_table(vertices, "vertices", names.of_vertices(), names.label), names)
    return columns, edge_columns(arrow_table(edges, "edges", names.of_edges()), names, columns.ids)
