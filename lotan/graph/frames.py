"""Graphs as Spark DataFrames, in one form whatever names and types the user's columns have. Nothing is collected."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lotan.graph.arrays import EdgeColumns, GraphArrays, VertexColumns
from lotan.graph.arrow import densify, edge_table, is_sparse, sparse_vertex_table, vertex_tables
from lotan.graph.columns import ColumnNames, edge_columns, require_columns, vertex_columns
from lotan.graph.faults import wrong_edge_type, wrong_id_type, wrong_label_type, wrong_split_type, wrong_type
from lotan.graph.files import EDGES, VERTICES
from lotan.graph.labels import LabelStatistics
from planner.degrees import Degrees
from planner.edge_columns import EdgeData
from planner.spec import SPLITS, Task
from planner.statistics import Profile, Statistics

Tables = tuple[DataFrame, DataFrame]

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBERS = (*_INTEGERS, T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType)
_FEATURES = "array<float>"


def standard_vertices(vertices: DataFrame, names: ColumnNames) -> DataFrame:
    """Return the vertices as id (unchanged), features array<float>, label (int or array<float>) and split (string).

    Raises:
        GraphError: a column is missing or has a wrong type. The values are not checked.
    """
    names = names.present(vertices.columns)
    require_columns("vertices", names.of_vertices(), vertices.columns)
    _check_id(vertices, "vertices", "id")
    return vertices.select(
        F.col("id"),
        _features(vertices, names.feature_columns).alias("features"),
        _label(vertices, names.label).alias("label"),
        _split(vertices, names.split).alias("split"),
    )


def standard_edges(edges: DataFrame, names: ColumnNames, vertices: DataFrame, undirected: bool = False) -> DataFrame:
    """Return the edges as src, dst (both unchanged) and weight float, which is 1 if the graph has no weights.

    If edges have attributes, they follow as edge_attr array<float>; and types as edge_type bigint.

    Raises:
        GraphError: a column is missing or has a wrong type, or the ends have another type than the vertices' ids.
    """
    require_columns("edges", names.of_edges(), edges.columns)
    for column in ("src", "dst"):
        _check_id(edges, "edges", column)
        if _is_string(edges, column) != _is_string(vertices, "id"):
            raise wrong_id_type("edges", column, *(_type(edges, column), _type(vertices, "id")))
    if names.weight is not None and not isinstance(edges.schema[names.weight].dataType, _NUMBERS):
        raise wrong_type("edges", names.weight, _type(edges, names.weight))
    weight = F.lit(1.0) if names.weight is None else named(names.weight)
    chosen = edges.select("src", "dst", weight.cast("float").alias("weight"), *_edge_data(edges, names))
    return _with_reverses(chosen) if undirected else chosen


def _edge_data(edges: DataFrame, names: ColumnNames) -> list[Column]:
    found = []
    if names.edge_features is not None:
        found.append(_features(edges, names.edge_feature_columns, "edges").alias("edge_attr"))
    if names.edge_type is not None:
        if not isinstance(edges.schema[names.edge_type].dataType, _INTEGERS):
            raise wrong_edge_type(names.edge_type, _type(edges, names.edge_type))
        found.append(named(names.edge_type).cast("bigint").alias("edge_type"))
    return found


def normalised(tables: Tables, names: ColumnNames, undirected: bool) -> Tables:
    """Return the tables as an engine reads them, in the form that `Graph.frames` describes."""
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    split = F.coalesce(*(F.when(F.col("split") == name, code) for code, name in enumerate(SPLITS)), F.lit(-1))
    label = F.coalesce("label", F.lit(-1)) if is_class(vertices) else F.col("label")
    return (
        vertices.select(_wide(vertices, "id"), "features", label.alias("label"), split.alias("split")),
        edges.select(_wide(edges, "src"), _wide(edges, "dst"), *edges.columns[2:]),
    )


def is_class(vertices: DataFrame) -> bool:
    """Return True if the labels of standard vertices are classes, False if they are arrays."""
    return isinstance(vertices.schema["label"].dataType, T.IntegerType)


def from_arrays(spark: SparkSession, graph: GraphArrays) -> Tables:
    """Return the normalised form of a graph in memory, which is sent to Spark through Arrow.

    Spark's driver keeps the data that it is sent, and a second copy in its tasks. Zeros of sparse features are therefore
    not sent.
    """
    tasks = spark.sparkContext.defaultParallelism  # instead of one task for each batch
    edges = spark.createDataFrame(edge_table(graph)).coalesce(tasks)
    if not is_sparse(graph):
        return spark.createDataFrame(vertex_tables(graph)).coalesce(tasks), edges
    sent = spark.createDataFrame(sparse_vertex_table(graph)).coalesce(tasks)
    fields = [*(sent.schema[name] for name in ("id", "label", "split"))]
    fields.insert(1, T.StructField("features", T.ArrayType(T.FloatType())))
    return sent.mapInArrow(densify(graph.features.shape[1]), T.StructType(fields)), edges


def collect(tables: Tables, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    """Bring the tables into this process through Arrow."""
    standard = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, standard)
    chosen = names.standard_edges()
    vertices = vertex_columns(standard.toArrow(), chosen)
    return vertices, edge_columns(edges.toArrow(), chosen, vertices.ids)


def save(tables: Tables, names: ColumnNames, undirected: bool, path: str) -> None:
    """Write both tables as directories of Parquet part files."""
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    vertices.write.parquet(f"{path}/{VERTICES}")
    (edges if names.weight is not None else edges.drop("weight")).write.parquet(f"{path}/{EDGES}")


def statistics(tables: Tables, names: ColumnNames, undirected: bool) -> Statistics:
    """Count vertices, edges and splits with two jobs."""
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    split = F.col("split")
    in_splits = F.count_if(split == SPLITS[0]), F.count_if(split.isin(*SPLITS))
    rows = vertices.agg(F.count("*"), F.max(F.size("features")), *in_splits).collect()[0]
    widest = [F.max(F.size("edge_attr"))] if names.edge_features is not None else []
    ends = edges.agg(F.count("*"), F.count_if(F.col("src") == F.col("dst")), *widest).collect()[0]
    sizes = rows[0], ends[0], rows[1] or 0, ends[1]
    data = EdgeData(None if names.edge_features is None else ends[2] or 0, names.edge_type is not None)
    return Statistics(*sizes, names.weight is not None, training=rows[2], evaluated=rows[3], edge_data=data)


def profile(tables: Tables, names: ColumnNames, undirected: bool) -> Profile:
    """Count degrees and nonzero features with two jobs, which return a few hundred rows at the most."""
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    features = F.col("features")
    filled = F.sum(F.size(F.filter(features, lambda value: value != 0)))
    count, of_these, numbers = vertices.agg(F.count("*"), filled, F.sum(F.size(features))).collect()[0]
    ends = edges.select(F.explode(F.array(_end("src", 1, 0), _end("dst", 0, 1))))
    counts = ends.groupBy("col.id").agg(F.sum("col.out").alias("out"), F.sum("col.into").alias("into"))
    classes = [
        F.when(F.col(end) > 0, F.length(F.bin(end))).otherwise(0).alias(f"{end}_class") for end in ("out", "into")
    ]
    found = counts.groupBy(*classes).agg(F.count("*"), F.sum("out"), F.sum("into")).collect()
    out = Degrees.of_classes(((row[0], row[2], row[3]) for row in found if row[0]), count)
    into = Degrees.of_classes(((row[1], row[2], row[4]) for row in found if row[1]), count)
    in_edges = [0] * len(out.vertices)
    for row in found:
        in_edges[row[0]] += row[4]
    return Profile(out, into, (of_these or 0) / max(1, numbers or 0), tuple(in_edges))


def _end(of: str, out: int, into: int) -> Column:
    """Return one end of an edge, with the numbers that the edge adds to that vertex's out-degree and in-degree."""
    return F.struct(F.col(of).alias("id"), F.lit(out).alias("out"), F.lit(into).alias("into"))


def content_hashes(tables: Tables, names: ColumnNames) -> tuple[int, int]:
    """Return the sums of the rows' hashes, of the vertices and of the edges without reverses, with two jobs."""
    sums = []
    for table in normalised(tables, names, undirected=False):
        # the hashes are added as decimals, because a sum of bigints overflows
        hashed = F.xxhash64(*table.columns).cast("decimal(20,0)")
        sums.append(int(table.agg(F.sum(hashed)).collect()[0][0] or 0))
    return sums[0], sums[1]


def label_statistics(tables: Tables, names: ColumnNames) -> LabelStatistics:
    """Count labels with one job."""
    vertices = standard_vertices(tables[0], names)
    label = F.col("label")
    if is_class(vertices):
        known, outputs, binary = label >= 0, F.max(label) + 1, F.lit(True)
    else:
        known = label.isNotNull() & ~F.exists(label, F.isnan)
        outputs = F.max(F.size(label))
        binary = F.bool_and(F.when(known, F.forall(label, lambda value: value.isin(0.0, 1.0))))
    counts = [F.count_if(known & (F.col("split") == name)) for name in SPLITS]
    row = vertices.agg(outputs, F.coalesce(binary, F.lit(True)) if not is_class(vertices) else F.max(binary), *counts)
    width, is_binary, *labelled = row.collect()[0]
    task: Task = "classification" if is_class(vertices) else "multilabel" if is_binary else "regression"
    return LabelStatistics(task, max(width or 0, 0), tuple(labelled))


def training_weight(tables: Tables, names: ColumnNames, weights: Sequence[float]) -> float:
    """Return the sum of the class weights of the labelled training vertices, with one job."""
    vertices = standard_vertices(tables[0], names)
    weight = F.get(F.array(*map(F.lit, weights)), F.col("label"))
    row = vertices.where((F.col("split") == SPLITS[0]) & (F.col("label") >= 0)).agg(F.sum(weight)).collect()[0]
    return float(row[0] or 0.0)


def quoted(column: str) -> str:
    """Return a column's name as Spark's expressions need it, even with a dot, a space or a backtick in it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return "`" + column.replace("`", "``") + "`"


def named(column: str) -> Column:
    """Return the column of that name."""
    return F.col(quoted(column))


def _type(table: DataFrame, column: str) -> str:
    return table.schema[column].dataType.simpleString()


def _is_string(table: DataFrame, column: str) -> bool:
    return isinstance(table.schema[column].dataType, T.StringType)


def _check_id(table: DataFrame, name: str, column: str) -> None:
    if not isinstance(table.schema[column].dataType, (*_INTEGERS, T.StringType)):
        raise wrong_id_type(name, column, _type(table, column), "an integer or string type")


def _wide(table: DataFrame, column: str) -> Column:
    """Return an id column, as bigint if it is an integer, because `xxhash64` of an int differs from that of a bigint."""
    return F.col(column) if _is_string(table, column) else F.col(column).cast("bigint").alias(column)


def _features(table: DataFrame, columns: tuple[str, ...], name: str = "vertices") -> Column:
    kinds = [table.schema[column].dataType for column in columns]
    if len(columns) == 1 and type(kinds[0]).__name__ == "VectorUDT":
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(named(columns[0]), "float32")
    if len(columns) == 1 and isinstance(kinds[0], T.ArrayType) and isinstance(kinds[0].elementType, _NUMBERS):
        return named(columns[0]).cast(_FEATURES)
    for column, kind in zip(columns, kinds, strict=True):
        if not isinstance(kind, _NUMBERS):
            raise wrong_type(name, column, kind.simpleString())
    return F.array(*(named(column).cast("float") for column in columns))


def _label(vertices: DataFrame, column: str | None) -> Column:
    if column is None or isinstance(vertices.schema[column].dataType, T.NullType):
        return F.lit(None).cast("int")
    kind = vertices.schema[column].dataType
    if isinstance(kind, T.BooleanType):
        return named(column).cast("int")
    if isinstance(kind, _INTEGERS):  # clamped, because a cast that overflows fails without naming the row
        clamped = F.greatest(F.lit(-2), F.least(F.lit(2**31 - 1), named(column)))
        return F.when(named(column).isNotNull(), clamped).cast("int")  # greatest and least ignore null
    if isinstance(kind, (T.FloatType, T.DoubleType, T.DecimalType)):
        return F.when(named(column).isNotNull(), F.array(named(column).cast("float")))
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, _NUMBERS):
        return named(column).cast(_FEATURES)
    raise wrong_label_type(column, kind.simpleString())


def _split(vertices: DataFrame, column: str | None) -> Column:
    if column is None or isinstance(vertices.schema[column].dataType, T.NullType):
        return F.lit(None).cast("string")
    if not _is_string(vertices, column):
        raise wrong_split_type(column, _type(vertices, column))
    return named(column)


def _with_reverses(edges: DataFrame) -> DataFrame:
    reversed_edges = edges.select(F.col("dst").alias("src"), F.col("src").alias("dst"), *edges.columns[2:])
    held = edges.select("src", "dst").distinct()
    return edges.unionByName(reversed_edges.join(held, ["src", "dst"], "left_anti"))
