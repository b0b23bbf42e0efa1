"""The graph a model is trained on."""

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

_SQL_INTEGERS = {1: "tinyint", 2: "smallint", 4: "int", 8: "bigint"}  # by bytes


class VerticesAndEdges(Protocol):
    """What a GraphFrame shows of itself."""

    vertices: DataFrame
    edges: DataFrame


class Graph:
    """Vertices with features, and directed edges along which messages flow, src to dst.

    Args:
        vertices: Spark or pandas DataFrame with `id` (an integer or string type) and the columns named below.
        edges: DataFrame of the same kind with `src` and `dst`, of the id's type.
        features: an array (or Spark ML vector) column, or several columns of numbers.
        label: integers (classes, -1 or null for none), arrays of 0 and 1 (several labels at once), or floats or arrays
            of them (regression). The default may be absent.
        split: 'train', 'val', 'test' or null. The default may be absent.
        weight: a column of the edges; None for weights of 1.
        undirected: add the reverse, with the same weight, of every edge whose reverse is not there yet. Self-loops gain
            none; parallel edges one each.

    Tables are read when something asks for them, and bad ones raise a GraphError then: all that can be wrong is found
    by `lotan.validation.check_graph`, which the Trainer calls before its first epoch.
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
    ) -> None:
        self.names = _column_names(features, label, split, weight)
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
        """Read an `.npz` file, a directory of Parquet, or a graph by name.

        Names are the built-in ones (see `lotan.graph.built_in`), then files in `$LOTAN_DATA` and `../shared/data`. A
        directory is opened only when something asks for its rows, by Arrow or by Spark.

        Raises:
            GraphError: nothing of that name, or an unreadable file.
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
    ) -> Graph:
        """The vertices and edges of a GraphFrame, or of anything that has these two DataFrames."""
        if not (hasattr(graph, "vertices") and hasattr(graph, "edges")):
            raise GraphError(f"{type(graph).__name__} has no vertices and edges; expected a GraphFrame.")
        return cls(graph.vertices, graph.edges, features, label, split, weight, undirected)

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
    ) -> Graph:
        """A graph from numpy arrays, or what becomes one. They are copied: written to later, they change no graph.

        Args:
            features: [vertices, width].
            src: [edges], ids.
            dst: [edges], ids.
            label: integers [vertices] (-1 = none), or floats [vertices] or [vertices, targets] (NaN = none).
            split: int8 [vertices]: -1 none, 0 train, 1 val, 2 test.
            weight: [edges].
            ids: [vertices]; None for 0, 1, ...
            undirected: see the class.

        Raises:
            GraphError: arrays that do not fit together.
        """
        given = {"features": features, "src": src, "dst": dst, "label": label, "split": split, "weight": weight}
        vertices, edges = columns_of({**given, "ids": ids})
        return cls._of(lambda: (vertices, edges), undirected)

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
        """Where the tables are."""
        if self._tables is not None:
            return "spark"
        return "memory" if self._directory is None else "files"

    def arrays(self) -> GraphArrays:
        """The graph in this process's memory; collects a Spark graph. Kept for later calls: not to be written to.

        Raises:
            GraphError: tables that make no graph: see `lotan.graph.columns` and `lotan.graph.arrays`.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> GraphArrays:
        return assemble(*self._load(), self.undirected)

    @cached_property
    def kept(self) -> KeptColumns:
        """What was computed once from it in this process."""
        return KeptColumns()

    def relabelled(
        self, label: npt.NDArray[np.generic] | None = None, split: npt.NDArray[np.int8] | None = None
    ) -> Graph:
        """This graph, collected, with other labels and splits, as in `arrays()`; None for none. The rest is shared."""
        arrays = self.arrays()
        label = np.full(len(arrays.ids), -1, dtype=np.int64) if label is None else label.copy()
        split = np.full(len(arrays.ids), -1, dtype=np.int8) if split is None else split.copy()
        graph = Graph.__new__(Graph)
        graph.names, graph.undirected = ColumnNames(weight=self.names.weight), False  # reverses are among the edges
        graph._tables, graph._directory, graph._load = None, None, self._load
        graph.__dict__["_arrays"] = replace(arrays, label=label, split=split)
        return graph

    @cached_property
    def statistics(self) -> Statistics:
        """What the Planner wants to know; one or two Spark jobs for a Spark graph."""
        if self._tables is None:
            return self.arrays().statistics
        from lotan.graph import frames

        return frames.statistics(self._tables, self.names, self.undirected)

    @cached_property
    def profile(self) -> Profile:
        """What costs depend on beside sizes; two Spark jobs for a Spark graph, of which a few hundred rows come back."""
        if self._tables is None:
            found = self.arrays().statistics.profile
            assert found is not None  # arrays count at once
            return found
        from lotan.graph import frames

        return frames.profile(self._tables, self.names, self.undirected)

    def estimate(self) -> Statistics:
        """What is known without reading rows: as `statistics`, but for files an upper bound, from their footers."""
        if self._directory is None:
            return self.statistics
        return files.estimate(self._directory, self.names, self.undirected)

    def frames(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """The tables as every engine on Spark reads them, wherever they are; nothing is collected.

        Returns:
            Vertices: id (bigint or string), features array<float>, label (int, -1 for none; or array<float>, null for
            none), split (int, -1 for none). Edges, reverses included: src, dst, weight float (1 where there is none).
            Those of a graph from Spark belong to the session of its DataFrames.

        Raises:
            GraphError: a column is missing or of a type that cannot be.
        """
        from lotan.graph import frames

        if self.origin == "memory":
            return frames.from_arrays(spark, self.arrays())
        return frames.normalised(self.tables(spark), self.names, self.undirected)

    def tables(self, spark: SparkSession | None = None) -> tuple[DataFrame, DataFrame]:
        """The tables as they came, of a graph from Spark, or from files that `spark` opens."""
        if self._tables is not None:
            return self._tables
        if self._directory is None or spark is None:
            raise GraphError(f"A graph from {self.origin} has no Spark tables; `frames(spark)` makes them.")
        files.check_readable(self._directory)  # whose errors are better than Spark's
        return (
            spark.read.parquet(str(self._directory / files.VERTICES)),
            spark.read.parquet(str(self._directory / files.EDGES)),
        )

    def on_spark(self, spark: SparkSession) -> Graph:
        """This graph with its files opened by Spark instead of read into this process; other graphs as they are."""
        if self.origin != "files":
            return self
        graph = Graph.__new__(Graph)
        graph.names, graph.undirected = self.names, self.undirected
        graph._tables, graph._directory, graph._load = self.tables(spark), None, graph._collect
        return graph

    @cached_property
    def id_type(self) -> str:
        """The ids' own type in Spark SQL's words, for predictions to have it back: "int", "bigint", "string" ..."""
        if self._tables is not None:
            return self._tables[0].schema["id"].dataType.simpleString()
        ids = self.arrays().ids
        return "string" if ids.dtype == object else _SQL_INTEGERS[ids.dtype.itemsize]

    def save(self, path: str | Path) -> None:
        """Write the graph as a directory of Parquet that `read` reads: reverses included, so read it as directed.

        Raises:
            GraphError: a graph from Spark, and `path` already holds one.
        """
        if self._tables is None:
            files.write_directory(Path(path), self.arrays())
            return
        from lotan.graph import frames

        frames.save(self._tables, self.names, self.undirected, str(path))

    @cached_property
    def labels(self) -> LabelStatistics:
        """What the labels say of the task."""
        if self._tables is None:
            return label_statistics(self.arrays())
        from lotan.graph import frames

        return frames.label_statistics(self._tables, self.names)

    def loss_spec(self, task: Task | None, outputs: int, class_weights: Sequence[float] | None = None) -> LossSpec:
        """The loss over the training vertices, with torch's reduction="mean".

        Args:
            task: None for the one that the labels suggest: see `LabelStatistics`.
            outputs: width of the model's output.
            class_weights: the `weight` of torch's loss: one per class, or per label of a multi-label task.

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


def _column_names(features: Any, label: Any, split: Any, weight: Any) -> ColumnNames:
    several = [features] if isinstance(features, str) else list(features) if isinstance(features, Iterable) else []
    if not several or not all(isinstance(name, str) for name in several):
        raise GraphError(f"features is {features!r}; expected the name of a column, or a list of such names.")
    for name, column in (("label", label), ("split", split), ("weight", weight)):
        if column is not None and not isinstance(column, str):
            raise GraphError(f"{name} is {column!r}; expected the name of a column, or None.")
    return ColumnNames(features if isinstance(features, str) else tuple(several), label, split, weight)


def _is_spark(table: object) -> bool:
    """Whether it is a Spark DataFrame, classic or Connect; asked without importing Spark."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(table).__mro__
    )


def _from_pandas(vertices: pd.DataFrame, edges: pd.DataFrame, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    names = names.present(list(vertices.columns))
    columns = vertex_columns(arrow_table(vertices, "vertices", names.of_vertices(), names.label), names)
    return columns, edge_columns(arrow_table(edges, "edges", names.of_edges()), names, columns.ids)
