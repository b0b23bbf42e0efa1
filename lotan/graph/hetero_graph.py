"""The graph with several types of vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotan.arguments import require_flag
from lotan.errors import GraphError
from lotan.files import expanded
from lotan.graph import hetero_pyg, typed_folders, typed_tables
from lotan.graph.column_names import NAME_ARGUMENTS, column_names, refuse_unknown
from lotan.graph.given_tables import form_of, from_pandas_on_spark, repeatable
from lotan.graph.given_types import GivenTypes
from lotan.graph.graph import Graph
from lotan.graph.table_kinds import is_spark
from planner.vertex_types import Relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HeteroGraph(Graph):
    """A graph with several types of vertices, and a table of edges for each relation between them.

    A relation is (type of the sources, name, type of the destinations). Ids are those of a type, so the same id may occur in
    several types. Features may differ in width from type to type, and a type may have none. Models for such a graph take
    `x_dict` and `edge_index_dict`, as those of PyG's `HeteroConv`, `to_hetero`, `HANConv` and `HGTConv` do. One type has the
    labels and splits that a model is trained on. Tables in this process are read at once. Tables in Spark stay there, but
    one job for each type finds the width of its features.

    Args:
        vertices: for each type a table with `id` and the columns named below, in the forms that `lotan.Graph` takes. A column
            `features` of this default name may be absent.
        edges: for each relation a table with `src` and `dst`.
        features: as in `lotan.Graph`, in the tables of all types (default: "features").
        label: as in `lotan.Graph` (default: "label").
        split: as in `lotan.Graph` (default: "split").
        weight: the name of a column of edges, which relations may lack; None if every edge weighs 1 (default: "weight").
        edge_features: the columns of the edges' attributes, named as features are. They may differ in number from relation to
            relation, and a relation may have none; None for no attributes (default: None).
        task_type: the type of vertices whose labels are to be learnt; None for the one that has labels (default: None).
        id: as in `lotan.Graph` (default: "id").
        src: as in `lotan.Graph` (default: "src", or "source" if that is there).
        dst: as in `lotan.Graph` (default: "dst", or "target" if that is there).

    Raises:
        GraphError: a table cannot be read, or a relation names an unknown type of vertices. An edge names an id that is not
            among the vertices of its type. Several types have labels, and `task_type` is None.

    Example:
        >>> import pandas as pd
        >>> papers = pd.DataFrame({"id": [7, 8], "features": [[0.0, 1.0], [1.0, 0.0]], "label": [0, 1]})
        >>> authors = pd.DataFrame({"id": ["ann", "bob"], "features": [[1.0], [2.0]]})
        >>> writes = pd.DataFrame({"src": ["ann", "bob"], "dst": [7, 8]})
        >>> graph = HeteroGraph({"paper": papers, "author": authors}, {("author", "writes", "paper"): writes})
        >>> graph.num_vertices, graph.vertex_types.task
        (4, 'paper')
    """

    def __init__(
        self,
        vertices: Mapping[str, Any],
        edges: Mapping[Relation, Any],
        features: str | Sequence[str] = "features",
        label: str | None = "label",
        split: str | Sequence[str] | None = "split",
        weight: str | None = "weight",
        task_type: str | None = None,
        id: str = "id",
        src: str = "src",
        dst: str = "dst",
        vertex_weight: str | None = "vertex_weight",
        edge_features: str | Sequence[str] | None = None,
        **others: Any,
    ) -> None:
        takes = [name for name in NAME_ARGUMENTS if name not in ("edge_type", "batch")]
        refuse_unknown("HeteroGraph", others, (*takes, "task_type"), by_type=True)
        names = column_names(features, label, split, weight, edge_features, None, id, src, dst, vertex_weight)
        given = [_tables(tables, what) for tables, what in ((vertices, "vertices"), (edges, "edges"))]
        if any(is_spark(table) for tables in given if hasattr(tables, "values") for table in tables.values()):
            from lotan.graph import typed_frames

            source, task = typed_frames.source_of(given[0], given[1], names, task_type)
        else:
            source, task = typed_tables.source_of(given[0], given[1], names, task_type)
        self._begin(source, False, task)

    @classmethod
    def read(  # type: ignore[override]  # there are no reverses to add, and no graphs by name
        cls, path: str | Path, format: str | None = None, spark: SparkSession | None = None, **columns: Any
    ) -> HeteroGraph:
        """Read a folder with `vertices/TYPE.parquet` and `edges/SOURCE__NAME__DESTINATION.parquet`.

        Args:
            path: the folder.
            format: the format of the tables; None to take it from the files' endings, or else Parquet (default: None).
            spark: the session that reads the tables; None to read them in this process (default: None).
            columns: the names of columns and `task_type`, as in the class. Columns `weight` and `edge_attr` of edges are read
                if they are there.

        Raises:
            GraphError: there is no such folder, or a table cannot be read.
        """
        vertices, edges = typed_folders.tables_of(path, format, spark)
        found = [list(getattr(table, "column_names", None) or table.columns) for table in edges.values()]
        for argument, name in (("weight", "weight"), ("edge_features", "edge_attr")):
            if argument not in columns and any(name in names for names in found):
                columns[argument] = name
        return cls(vertices, edges, **columns)

    @classmethod
    def from_pyg(cls, data: Any, task_type: str | None = None) -> HeteroGraph:
        """Return the graph of a PyG data object with several types of vertices. Its tensors are copied.

        Args:
            data: a `torch_geometric.data.HeteroData`. Of each type of vertices, `x`, `y`, `n_id` (the ids), `train_mask`,
                `val_mask` and `test_mask` are read if they are there. Of each relation, these are `edge_index`, `edge_weight`
                and `edge_attr`, [edges, width] or [edges].
            task_type: as in the class (default: None).

        Raises:
            GraphError: an attribute is missing, has a wrong shape, or has no place in a graph.
        """
        vertices, edges = hetero_pyg.tables_of(data)
        weight, attributes = (
            name if any(name in table for table in edges.values()) else None for name in ("edge_weight", "edge_attr")
        )
        return cls(vertices, edges, weight=weight, edge_features=attributes, task_type=task_type)

    def to_pyg(self) -> Any:
        """Return the graph as a `torch_geometric.data.HeteroData`, with the attributes that `from_pyg` reads.

        The vertices of a type are sorted by id. A graph in Spark is collected.

        Raises:
            GraphError: PyG is not installed, or the tables make no graph.
        """
        return hetero_pyg.data_of(self.arrays(), self._given)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the graph as a folder of Parquet, which `read` reads.

        Args:
            path: the folder.
            overwrite: if True, a graph that is there is replaced (default: False).

        Raises:
            GraphError: a graph is there already, it is in Spark, or it cannot be written.
        """
        require_flag("save", "overwrite", overwrite)
        if self.origin == "spark":
            raise GraphError("A HeteroGraph in Spark is not written as a whole. Write its tables, as they were given.")
        hetero_pyg.write(expanded(path), self.arrays(), self._given, overwrite)

    def __repr__(self) -> str:
        """Describe the graph by its types and relations."""
        types = self._given.types
        said = [f"{name} {width:,} features" for name, width in zip(types.names, types.widths, strict=True)]
        relations = [types.said(number) for number in range(len(types.relations))]
        lines = [
            f"HeteroGraph in {'this process' if self.origin == 'memory' else self.origin.capitalize()}",
            f"vertices: {', '.join(said)}; labels: {types.task}",
            f"edges: {', '.join(relations)}",
        ]
        return "\n  ".join(lines)

    @property
    def _given(self) -> GivenTypes:
        assert self._source.types is not None, "it was made of tables by type"
        return self._source.types

    def __reduce__(self) -> Any:
        """Pickle the columns of a graph in memory.

        Raises:
            GraphError: the graph is in Spark.
        """
        return HeteroGraph._of, (self._source, False, self._task)


def _tables(given: Any, what: str) -> Any:
    """Return tables, each in a form that can be read."""
    if not hasattr(given, "items"):
        return given  # the check of the types says what was expected
    found = {key: from_pandas_on_spark(table) for key, table in given.items()}
    for table in found.values():
        form_of(table, what)
    return {key: repeatable(table) for key, table in found.items()}
