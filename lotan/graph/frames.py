"""Graphs as Spark DataFrames, in one form whatever names and types the user's columns have. Nothing is collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from lotan.errors import GraphError
from lotan.graph import spark_labels
from lotan.graph.arrays import EdgeColumns, GraphArrays, VertexColumns
from lotan.graph.arrow import densify, edge_table, is_sparse, sparse_vertex_table, vertex_tables
from lotan.graph.column_names import EDGE_SPLIT, RELATION, ColumnNames
from lotan.graph.columns import MOST_EXACT, edge_columns, require_columns, vertex_columns
from lotan.graph.faults import (
    fault,
    wrong_edge_type,
    wrong_id_type,
    wrong_mask_type,
    wrong_split_type,
    wrong_type,
)
from lotan.graph.files import EDGES, VERTICES
from lotan.graph.groups import GroupNumbers
from lotan.graph.kinds import Kind, accepts, accepts_whole, kind_of_spark
from lotan.graph.labels import LabelStatistics, TrainingWeights
from lotan.graph.spark_names import named
from lotan.graph.spark_tables import require_room
from lotan.graph.splits import NOTHING, SPELLINGS
from planner.degrees import Degrees
from planner.edge_columns import EdgeData
from planner.loss import Task
from planner.spec import SPLITS
from planner.statistics import Profile, Statistics

Tables = tuple[DataFrame, DataFrame]

_FEATURES = "array<float>"


def standard_vertices(vertices: DataFrame, names: ColumnNames) -> DataFrame:
    """Return the vertices as id (integer or string), features array<float>, label (int or array<float>) and split (string).

    Weights of vertices follow as vertex_weight float, if the graph has them.

    Raises:
        GraphError: a column is missing or has a wrong type. The values are not checked.
    """
    names = names.present(vertices.columns)
    require_columns("vertices", names.of_vertices(), vertices.columns)
    weights = []
    if names.vertex_weight is not None:
        if not accepts("number", _kind(vertices, names.vertex_weight)):
            raise wrong_type("vertices", names.vertex_weight, _type(vertices, names.vertex_weight))
        weights = [named(names.vertex_weight).cast("float").alias("vertex_weight")]
    return vertices.select(
        id_of(vertices, "vertices", names.id).alias("id"),
        _with_groups(vertices, names).alias("features"),
        spark_labels.standard(vertices, names).alias("label"),
        split_of(vertices, names).alias("split"),
        *weights,
    )


def _with_groups(vertices: DataFrame, names: ColumnNames) -> Column:
    """Return the features, with the number of the group as the last of them if the graph has groups."""
    features = features_of(vertices, names.feature_columns)
    return features if names.batch is None else F.concat(features, features_of(vertices, (names.batch,)))


def groups(vertices: DataFrame, column: str) -> int:
    """Count the groups of vertices with one job, which checks their numbers.

    Raises:
        GraphError: see `lotan.graph.groups.GroupNumbers.count`.
    """
    require_columns("vertices", [column], vertices.columns)
    if not accepts("number", _kind(vertices, column)):
        raise wrong_type("vertices", column, _type(vertices, column))
    number = named(column).cast("double")
    bad = F.coalesce(F.isnan(number) | (number < 0) | (number != F.floor(number)), F.lit(True))
    fine = F.when(~bad, number)
    row = vertices.agg(F.count_if(bad), F.max(fine), F.count_distinct(fine)).collect()[0]
    example = vertices.where(bad).select(named(column)).head() if row[0] else None
    return GroupNumbers(row[0], None if example is None else example[0], row[1] or 0.0, row[2]).count(column)


def standard_edges(edges: DataFrame, names: ColumnNames, vertices: DataFrame, undirected: bool = False) -> DataFrame:
    """Return the edges as src, dst (integers or strings) and weight float, which is 1 if the graph has no weights.

    If edges have attributes, they follow as edge_attr array<float>; and types as edge_type bigint.

    Raises:
        GraphError: a column is missing or has a wrong type, or the ends have another type than the vertices' ids.
    """
    names = names.present_edges(edges.columns)
    require_columns("edges", names.of_edges(), edges.columns)
    ends = []
    for end, column in (("src", names.src), ("dst", names.dst)):
        ends.append(id_of(edges, "edges", column).alias(end))
        if _is_string(edges, column) != _is_string(vertices, "id"):
            raise wrong_id_type("edges", column, *(_type(edges, column), _type(vertices, "id")))
    if names.weight is not None and not accepts("number", _kind(edges, names.weight)):
        raise wrong_type("edges", names.weight, _type(edges, names.weight))
    weight = F.lit(1.0) if names.weight is None else named(names.weight)
    chosen = edges.select(*ends, weight.cast("float").alias("weight"), *_edge_data(edges, names))
    return _with_reverses(chosen) if undirected else chosen


def _edge_data(edges: DataFrame, names: ColumnNames) -> list[Column]:
    found = []
    if names.edge_features is not None:
        found.append(features_of(edges, names.edge_feature_columns, "edges").alias("edge_attr"))
    if names.edge_type is not None:
        kind = _kind(edges, names.edge_type)
        if not accepts_whole("edge type", kind):
            raise wrong_edge_type(names.edge_type, _type(edges, names.edge_type))
        found.append(named(names.edge_type).cast("bigint").alias("edge_type"))
    standard = {EDGE_SPLIT: names.edge_split, RELATION: names.relation}  # checked where they are read
    return [*found, *(named(column).alias(name) for name, column in standard.items() if column is not None)]


def normalised(tables: Tables, names: ColumnNames, undirected: bool) -> Tables:
    """Return the tables as an engine reads them, in the form that `Graph.frames` describes."""
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    split = F.coalesce(*(F.when(F.col("split") == name, code) for code, name in enumerate(SPLITS)), F.lit(-1))
    label = F.coalesce("label", F.lit(-1)) if is_class(vertices) else F.col("label")
    return (
        vertices.select(
            wide(vertices, "id"), "features", label.alias("label"), split.alias("split"), *_listed(vertices)
        ),
        edges.select(wide(edges, "src"), wide(edges, "dst"), *edges.columns[2:]),
    )


def _listed(vertices: DataFrame) -> list[Column]:
    """Return the weights of vertices as an array of one number, which engines carry as they carry features."""
    name = "vertex_weight"
    return [F.array(name).alias(name)] if name in vertices.columns else []


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
    fields = [field for field in sent.schema.fields if field.name not in ("positions", "values")]
    fields.insert(1, T.StructField("features", T.ArrayType(T.FloatType())))
    return sent.mapInArrow(densify(graph.features.shape[1]), T.StructType(fields)), edges


def collect(tables: Tables, names: ColumnNames) -> tuple[VertexColumns, EdgeColumns]:
    """Bring the tables into this process through Arrow."""
    standard = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, standard)
    chosen = names.standard_edges()
    vertices = vertex_columns(standard.toArrow(), chosen)
    return vertices, edge_columns(edges.toArrow(), chosen, vertices.ids)


def link_tables(tables: Tables, names: ColumnNames, rows: int) -> tuple[pa.Table, Callable[[], Iterator[pa.Table]]]:
    """Return the ids of the vertices, and a function that yields the edges part by part, one partition after the other.

    Args:
        tables: the tables.
        names: the names of their columns.
        rows: the edges of a part, at most.
    """
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices)
    edges = edges if names.weight is not None else edges.drop("weight")
    schema = to_arrow_schema(edges.schema)

    def parts() -> Iterator[pa.Table]:
        left = edges.toLocalIterator()
        while some := list(islice(left, rows)):
            columns = zip(*some, strict=True)
            yield pa.Table.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
            )

    return vertices.select("id").toArrow(), parts


def save(tables: Tables, names: ColumnNames, undirected: bool, path: str, overwrite: bool) -> None:
    """Write both tables as directories of Parquet part files. Texts of classes are written as texts.

    Splits and relations of edges are written as they are, if they are there.

    Raises:
        GraphError: a graph is there and `overwrite` is False, or it is the one that Spark reads.
    """
    require_room(tables, path, (VERTICES, EDGES), overwrite)
    names = names.with_links().present_edges(tables[1].columns)
    vertices = standard_vertices(tables[0], names)
    edges = standard_edges(tables[1], names, vertices, undirected)
    if names.classes:
        texts = F.array(*map(F.lit, names.classes))
        vertices = vertices.withColumn("label", F.get(texts, F.col("label")))
    if not names.present(tables[0].columns).feature_columns:
        vertices = vertices.drop("features")
    mode = "overwrite" if overwrite else "error"  # Spark Connect knows it by this name alone
    vertices.write.mode(mode).parquet(f"{path}/{VERTICES}")
    (edges if names.weight is not None else edges.drop("weight")).write.mode(mode).parquet(f"{path}/{EDGES}")


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


def vertices_of_type(vertices: DataFrame, place: int, number: int) -> int:
    """Return how many vertices have a number at a place of their features, with one job."""
    return vertices.where(F.col("features")[place] == float(number)).count()


def edges_by_type(edges: DataFrame, types: int) -> tuple[int, ...]:
    """Return the number of edges of each type, with one job. The types are numbered, in a column `edge_type`."""
    counts = {row[0]: row[1] for row in edges.groupBy("edge_type").count().collect()}
    return tuple(counts.get(number, 0) for number in range(types))


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
    counts = [F.col("split") == name for name in SPLITS]
    if is_class(vertices):
        least = F.coalesce(F.min(F.when(label >= 0, label)), F.lit(0))
        labelled = [F.count_if((label >= 0) & count) for count in counts]
        row = vertices.agg(F.max(label) + 1, least, *labelled).collect()[0]
        return LabelStatistics("classification", max(row[0] or 0, 0), tuple(row[2:]), names.classes, least=row[1])
    given = F.coalesce(F.filter(label, lambda value: ~F.isnan(value)), F.array().cast(_FEATURES))
    found = F.size(given)
    complete = (found > 0) & (found == F.size(label))
    row = vertices.agg(
        F.max(F.size(label)),
        F.coalesce(F.bool_and(F.forall(given, lambda value: value.isin(0.0, 1.0))), F.lit(True)),
        F.coalesce(F.sum(F.when(counts[0], found)), F.lit(0)),
        F.count_if(counts[0] & complete),
        *(F.count_if((found > 0) & count) for count in counts),
    ).collect()[0]
    task: Task = "multilabel" if row[1] else "regression"
    return LabelStatistics(task, max(row[0] or 0, 0), tuple(row[4:]), entries=row[2], complete=row[3])


def class_counts(tables: Tables, names: ColumnNames) -> tuple[int, ...]:
    """Return the number of training vertices of each class, with one job that returns a row for each class."""
    vertices = standard_vertices(tables[0], names)
    training = vertices.where((F.col("split") == SPLITS[0]) & (F.col("label") >= 0))
    counts = {row[0]: row[1] for row in training.groupBy("label").count().collect()}
    return tuple(counts.get(number, 0) for number in range(max(counts, default=-1) + 1))


def training_weights(tables: Tables, names: ColumnNames) -> TrainingWeights:
    """Return the sums of the weights of training vertices, with one job that returns a row for each class."""
    vertices = standard_vertices(tables[0], names)
    training, label, weight = vertices.where(F.col("split") == SPLITS[0]), F.col("label"), F.col("vertex_weight")
    weight = weight.cast("double")
    if is_class(vertices):
        sums = {row[0]: row[1] for row in training.where(label >= 0).groupBy("label").agg(F.sum(weight)).collect()}
        classes = tuple(float(sums.get(number, 0.0)) for number in range(max(sums, default=-1) + 1))
        return TrainingWeights(sum(classes), classes)
    known = F.size(F.coalesce(F.filter(label, lambda value: ~F.isnan(value)), F.array().cast(_FEATURES)))
    some, whole = F.when(known > 0, weight), F.when((known > 0) & (known == F.size(label)), weight)
    row = training.agg(F.sum(some), F.sum(weight * known), F.sum(whole)).collect()[0]
    return TrainingWeights(row[0] or 0.0, (), row[1] or 0.0, row[2] or 0.0)


def _type(table: DataFrame, column: str) -> str:
    return table.schema[column].dataType.simpleString()


def _kind(table: DataFrame, column: str) -> Kind:
    return kind_of_spark(table.schema[column].dataType)


def _is_string(table: DataFrame, column: str) -> bool:
    return isinstance(table.schema[column].dataType, T.StringType)


def id_of(table: DataFrame, name: str, column: str) -> Column:
    """Return an id column: integers and strings as they are, decimals and floats, which `settled` has checked, as bigint."""
    kind = _kind(table, column)
    if not accepts("id", kind):
        raise wrong_id_type(name, column, _type(table, column), "an integer or string type")
    return named(column) if kind.base in ("integer", "text") else named(column).cast("bigint")


def wide(table: DataFrame, column: str) -> Column:
    """Return an id column, as bigint if it is an integer, because `xxhash64` of an int differs from that of a bigint."""
    return F.col(column) if _is_string(table, column) else F.col(column).cast("bigint").alias(column)


def features_of(table: DataFrame, columns: tuple[str, ...], name: str = "vertices") -> Column:
    """Return features, or the attributes of edges, as array<float>."""
    if not columns:
        return F.array().cast(_FEATURES)
    kind = _kind(table, columns[0])
    if len(columns) == 1 and kind.base == "vector":
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(named(columns[0]), "float32")
    if len(columns) == 1 and kind.depth and accepts("features", kind):
        rows = named(columns[0])
        for _ in range(kind.depth - 1):
            rows = F.flatten(rows)
        return rows.cast(_FEATURES)
    for column in columns:
        if not accepts("number", _kind(table, column)):
            raise wrong_type(name, column, _type(table, column))
    return F.array(*(named(column).cast("float") for column in columns))


def split_of(vertices: DataFrame, names: ColumnNames) -> Column:
    """Return the split as one of `SPLITS` or null. What is no split stays as it is, for the check to find."""
    if names.split is None:
        return F.lit(None).cast("string")
    if not isinstance(names.split, str):
        return _masked(vertices, names.split)
    kind = _kind(vertices, names.split)
    if not accepts("split", kind):
        raise wrong_split_type(names.split, _type(vertices, names.split))
    column = named(names.split)
    if kind.base == "text":
        plain = F.lower(F.trim(column))
        found = F.when(plain.isin(*NOTHING), F.lit(None).cast("string"))
        for split, texts in SPELLINGS.items():
            found = found.when(plain.isin(*texts), split)
        return found.otherwise(column)
    if kind.base == "real":
        column = F.when(~F.isnan(column), column)
    found = F.when(column == -1, F.lit(None).cast("string"))
    for code, split in enumerate(SPLITS):
        found = found.when(column == code, split)
    return found.otherwise(column.cast("string"))


def _masked(vertices: DataFrame, columns: tuple[str, ...]) -> Column:
    given = [(column, split) for column, split in zip(columns, SPLITS, strict=True) if column]
    for column, _ in given:
        if not accepts("mask", _kind(vertices, column)):
            raise wrong_mask_type(column, _type(vertices, column))
    taken = [F.when(named(column).cast("boolean"), split) for column, split in given]
    joined = F.concat_ws(" and ", *taken)  # a vertex in two masks gets a text that is no split
    return F.when(joined != "", joined)


def require_session(table: DataFrame) -> None:
    """Check that a table's session still runs.

    Raises:
        GraphError: the session was stopped.
    """
    context = getattr(table.sparkSession, "_sc", None)  # a session of Spark Connect has none
    if context is not None and context._jsc is None:
        raise GraphError(
            "The Spark session of this graph was stopped, and its tables went with it. Read the tables again, and make "
            "the graph anew."
        )


def settled(tables: Tables, names: ColumnNames, task: Task | None) -> ColumnNames:
    """Return the names as the tables have them, with the reading of labels. Integer ids and labels take no job.

    Decimal and float ids are checked to be whole numbers, with one job a table.

    Raises:
        GraphError: a column is missing, an id is no whole number, or labels do not fit the task.
    """
    vertices, edges = tables
    names = names.present(vertices.columns).present_edges(edges.columns)
    require_columns("vertices", names.of_vertices(), vertices.columns)
    require_columns("edges", names.of_edges(), edges.columns)
    _check_whole(vertices, "vertices", names.id)
    _check_whole(edges, "edges", names.src, names.dst)
    return spark_labels.settled(vertices, names, task)


def _check_whole(table: DataFrame, name: str, *columns: str) -> None:
    """Refuse ids that are decimals or floats and no whole numbers that a bigint holds."""
    kinds = {column: _kind(table, column) for column in columns}
    doubtful = [column for column, kind in kinds.items() if kind.base in ("decimal", "real") and not kind.depth]
    if not doubtful:
        return
    tests = []
    for column in doubtful:
        value, real = named(column), kinds[column].base == "real"
        whole, most = (F.rint(value), MOST_EXACT) if real else (F.floor(value), 2**63 - 1)
        tests += [F.count_if(value != whole), F.count_if(F.abs(value) > F.lit(most))]
    found = table.agg(*tests).collect()[0]
    for place, column in enumerate(doubtful):
        if found[2 * place]:
            raise wrong_id_type(name, column, _type(table, column), "an integer or string type")
        if found[2 * place + 1]:
            problem = "holds numbers beyond 2**53 as floats, or beyond 2**63 - 1"
            raise fault(name, column, problem, "Give the ids as strings.")


def _with_reverses(edges: DataFrame) -> DataFrame:
    reversed_edges = edges.select(F.col("dst").alias("src"), F.col("src").alias("dst"), *edges.columns[2:])
    held = edges.select("src", "dst").distinct()
    return edges.unionByName(reversed_edges.join(held, ["src", "dst"], "left_anti"))
