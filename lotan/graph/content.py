"""The content of a graph: its two tables in the form that a reader asks for."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from lotan.arguments import require_flag
from lotan.errors import GraphError
from lotan.graph.arrays import EdgeColumns, GraphArrays, Ids, VertexColumns, assemble, assembled
from lotan.graph.column_names import ColumnNames
from lotan.graph.columns import require_columns
from lotan.graph.edges_in_files import sort_in_files, with_rows
from lotan.graph.feature_parts import vertices_in_parts
from lotan.graph.file_tables import open_table
from lotan.graph.given_types import GivenTypes, sql_type, sql_type_of
from lotan.graph.kept_columns import KeptColumns
from lotan.graph.labels import TrainingWeights, training_weights
from lotan.graph.link_parts import LinkParts, link_parts, parts_of_tables
from lotan.graph.sources import Source
from lotan.graph.table_kinds import is_connect
from lotan.memory.mapped import MappedMemory
from lotan.memory.trim import give_back_freed
from planner.loss import Task
from planner.vertex_types import VertexTypes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Origin = Literal["memory", "files", "spark"]


class GraphContent:
    """The tables of a graph as arrays, as Spark's DataFrames, and as they were given. `Graph` is the class that users make.

    Attributes:
        undirected: True if the missing reverses of edges are added.
    """

    _source: Source
    _task: Task | None  # the user's task, which says what labels are; None if labels are to tell
    undirected: bool
    _mapped: MappedMemory | None = None  # files for the features and the edges; None: they lie in memory

    def _begin(self, source: Source, undirected: bool, task: Task | None = None) -> None:
        self._source, self._task = source, task
        self.undirected = require_flag("Graph", "undirected", undirected)

    @classmethod
    def _of(cls, source: Source, undirected: bool, task: Task | None = None) -> Self:
        """Return the graph of a source."""
        graph = cls.__new__(cls)
        graph._begin(source, undirected, task)
        return graph

    @property
    def origin(self) -> Origin:
        """The place of the tables: "memory", "files" or "spark"."""
        if self._source.tables is not None:
            return "spark"
        return "memory" if self._source.files is None else "files"

    @property
    def on_connect(self) -> bool:
        """True if the tables are those of a session of Spark Connect, which gives no access to Spark's JVM."""
        return self._source.tables is not None and is_connect(self._source.tables[0])

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on columns and arrays that were given and are not read."""
        return self._source.notes

    @property
    def vertex_types(self) -> VertexTypes | None:
        """The types of vertices and the relations of a graph that has several, or None."""
        return None if self._source.types is None else self._source.types.types

    @property
    def given_types(self) -> GivenTypes | None:
        """The types of vertices with the ids that they were given with, or None if the graph has one type."""
        return self._source.types

    @cached_property
    def names(self) -> ColumnNames:
        """The names of the columns. For tables in Spark, they tell how labels are read, which may take a job."""
        if self._source.tables is None:
            return self._source.names
        from lotan.graph import frames

        return frames.settled(self._tables, self._source.names, self._task)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """The columns of the vertices that features are made of, in their order. A pattern is those that it matches."""
        return self._source.names.feature_columns

    @property
    def _tables(self) -> tuple[DataFrame, DataFrame]:
        """The tables of a graph in Spark, whose session still runs."""
        tables = self._source.tables
        assert tables is not None, "the graph is in Spark"
        from lotan.graph import frames

        frames.require_session(tables[0])
        return tables

    @property
    def has_vertex_weights(self) -> bool:
        """True if the vertices have weights in the loss."""
        if self._source.tables is None:
            return self.arrays().vertex_weight is not None
        return self.names.vertex_weight is not None

    @cached_property
    def training_weights(self) -> TrainingWeights:
        """The sums of the weights of the training vertices, for a graph that has them. In Spark they take a job."""
        if self._source.tables is None:
            return training_weights(self.arrays())
        from lotan.graph import frames

        return frames.training_weights(self._tables, self.names)

    def arrays(self) -> GraphArrays:
        """Return the graph in this process's memory. A graph in Spark is collected.

        Later calls return the same arrays, so they must not be written to.

        Raises:
            GraphError: the tables make no graph.
        """
        return self._arrays

    @cached_property
    def _arrays(self) -> GraphArrays:
        if self._source.tables is not None:
            from lotan.graph import frames

            names = self.names
            found = assemble(*frames.collect(self._tables, names), self.undirected, names.task)
            return replace(found, classes=names.classes)
        if self._mapped is None:
            return assemble(*self._source.read(), self.undirected, self._task)
        found = self._read_into_files(self._mapped)
        give_back_freed()
        return found

    def _read_into_files(self, mapped: MappedMemory) -> GraphArrays:
        """Read a graph in files part by part, with features and edges in files of this process."""
        places = self._source.files
        assert places is not None, "in_files makes no other graphs"

        def edges(ids: Ids) -> EdgeColumns:
            parts = with_rows(places.edges_in_parts(self.names, ids), ids)
            return sort_in_files(parts, len(ids), mapped, self.undirected)

        return assembled(places.read_vertices(self.names, mapped), edges, self._task, mapped)

    @property
    def reads_in_parts(self) -> bool:
        """True if features and edges of a graph in files do not lie in memory, or need not, as nothing was read yet."""
        return self._mapped is not None or (self._source.files is not None and "_arrays" not in self.__dict__)

    def in_files(self) -> Self:
        """Return the graph with features and edges in files of this process, into which they are read part by part.

        Their pages are in memory only while somebody works on them.
        """
        found = self._of(self._source, self.undirected, self._task)
        found._mapped = MappedMemory()
        return found

    @cached_property
    def ids(self) -> Ids:
        """The ids of the vertices, ascending. Of a graph in Spark or in files they are all that is read. [vertices].

        Raises:
            GraphError: there are no vertices, or an id is null.
        """
        if self._source.files is not None and "_arrays" not in self.__dict__:
            return self._source.files.ids(self.names)
        if self._source.tables is None:
            return self.arrays().ids
        from lotan.graph import spark_links

        return spark_links.ids_of(self._tables, self.names)

    def linked_columns(self) -> tuple[VertexColumns, EdgeColumns]:
        """Return the columns as they were given, with the splits and relations of edges, which link tasks read.

        They are in this process's memory. A graph in Spark is collected.

        Raises:
            GraphError: a column is missing, or it has a bad value.
        """
        if self._source.tables is None:
            return self._source.read_linked()
        from lotan.graph import frames

        return frames.collect(self._tables, self.names.with_links().present_edges(self._tables[1].columns))

    def link_parts(self, rows: int) -> LinkParts:
        """Return the ids of the vertices, and the edges with their splits and relations part by part.

        Files and tables in Spark are read part by part, so that they need not fit in memory.

        Args:
            rows: the edges of a part, at most.

        Raises:
            GraphError: a column is missing or has a bad value.
        """
        if self._source.tables is None:
            return link_parts(self._source, rows)
        from lotan.graph import frames

        names = self.names.with_links().present_edges(self._tables[1].columns)
        return parts_of_tables(*frames.link_tables(self._tables, names, rows), names)

    def features_in_parts(self) -> VertexColumns:
        """Return the ids and features of the vertices, in the order in which they were given. No edge is read.

        Of files, the features are read part by part into a file of this process.

        Raises:
            GraphError: a column is missing or has a bad value, or the graph is in Spark.
        """
        if self._source.tables is not None:
            raise GraphError(
                "The features of a graph in Spark are not stored in partitions so far. Save it by graph.save(path), and read it "
                "by lotan.Graph.read(path)."
            )
        if self._source.files is None:
            return self._source.read_linked()[0]
        place = self._source.files.vertices
        table = open_table(place)
        names = replace(self._source.names, label=None, split=None, vertex_weight=None).present(table.schema.names)
        require_columns("vertices", names.of_vertices(), table.schema.names)
        return vertices_in_parts(place, table, names, MappedMemory())

    def with_links(self) -> Self:
        """Return the graph in this process's memory, with the splits and relations of its edges if they are there.

        Raises:
            GraphError: the tables make no graph.
        """
        if self._source.tables is None and self._source.files is None:
            return self
        from lotan.graph.sources import of_columns

        return self._of(of_columns(*self.linked_columns()), self.undirected, self._task)

    @cached_property
    def kept(self) -> KeptColumns:
        """The columns that were computed from the graph in this process."""
        return KeptColumns()

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
        if self.origin == "files":
            return self.on_spark(spark).frames(spark)
        return frames.normalised(self._tables, self.names, self.undirected)

    def tables(self, spark: SparkSession | None = None) -> tuple[DataFrame, DataFrame]:
        """Return the tables unchanged: those of a graph from Spark, or of files that `spark` opens.

        Raises:
            GraphError: the graph is in memory, a file cannot be read, or the graph is in files and `spark` is None.
        """
        if self._source.tables is not None:
            return self._tables
        if self._source.files is None or spark is None:
            raise GraphError(f"A graph from {self.origin} has no Spark tables; `frames(spark)` makes them.")
        from lotan.graph import spark_tables

        vertices, edges = (spark_tables.read(spark, place) for place in self._source.files)
        return vertices, edges

    def on_spark(self, spark: SparkSession) -> Self:
        """Return a graph whose files Spark opens, instead of this process. A graph without files is returned unchanged."""
        if self.origin != "files":
            return self
        source = replace(self._source, files=None, tables=self.tables(spark))
        return self._of(source, self.undirected, self._task)

    def of_task(self, frame: Any) -> tuple[Any, str]:
        """Return the rows of the vertices that have labels, which are all but in a graph of several types, and the ids' type.

        Args:
            frame: rows of a DataFrame of pandas or Spark, with `id` as engines read it, and other columns.
        """
        types = self._source.types
        return (frame, self.id_type) if types is None else (types.of_task(frame), types.id_type)

    @cached_property
    def id_type(self) -> str:
        """The type of the ids in Spark SQL, such as "int", "bigint" or "string". Predictions have ids of this type."""
        if self._source.tables is not None:
            return sql_type_of(self._tables[0].schema[self.names.id].dataType.simpleString())
        return sql_type(self.arrays().ids)
