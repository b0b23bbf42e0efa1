"""Checks of a graph in Spark. They take a fixed number of jobs, which return only counts and a few examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from lotan.errors import GraphError
from lotan.graph import faults
from lotan.graph.faults import EXAMPLES
from lotan.graph.frames import is_class, standard_edges, standard_vertices
from lotan.graph.graph import Graph
from lotan.validation import complaints
from lotan.validation.demands import Demands, GraphReport
from planner.spec import SPLITS, Bound


@dataclass(frozen=True, eq=False)
class Fault:
    """One kind of bad row."""

    bad: Column  # true or false for every row, never null
    error: Callable[..., GraphError]  # builds the error from the number of bad rows and the first EXAMPLES of them


@dataclass(frozen=True)
class Sizes:
    """The counts that one job returns for the vertices, beside their faults."""

    rows: int
    narrowest: int | None
    widest: int | None
    narrowest_label: int | None
    widest_label: int | None
    training: int


def check_frames(graph: Graph, demands: Demands) -> GraphReport:
    """Check a graph in Spark, as `lotan.validation.check.check_graph` describes it."""
    raw_vertices, raw_edges = graph.tables()
    vertices = standard_vertices(raw_vertices, graph.names)
    edges = standard_edges(raw_edges, graph.names, vertices, graph.undirected)
    sizes = _check_vertices(vertices, demands)
    _check_doubled(vertices)
    complaints.check_edge_data(graph.statistics.edge_data, demands)
    edge_count, self_loops = _check_edges(edges, demands)
    _check_dangling(edges, vertices)
    if demands.in_edges is not None:
        _check_in_edges(edges, demands, demands.in_edges[0])
    targets, pairs = _count_ends(edges)
    return GraphReport(sizes.rows, edge_count, sizes.widest or 0, self_loops, edge_count - pairs, sizes.rows - targets)


def _count_ends(edges: DataFrame) -> tuple[int, int]:
    """Return the number of vertices with in-edges, and the number of distinct pairs of ends, with one job.

    One shuffle by destination serves both. Two counts of distinct values in one aggregate took twice the processor time.
    """
    sources = edges.repartition("dst").groupBy("dst", "src").agg(F.lit(1)).groupBy("dst").count()
    targets, pairs = sources.agg(F.count("*"), F.coalesce(F.sum("count"), F.lit(0))).collect()[0]
    return targets, pairs


def _check_vertices(vertices: DataFrame, demands: Demands) -> Sizes:
    """Check every vertex, in one job. A fault that may cause others is raised before these."""
    presence, contents = _presence_faults(), _content_faults()
    labels = [*_label_faults(vertices, demands), *_weight_faults(vertices)] if demands.task is not None else []
    labels = [*_number_faults("features", demands, lambda row: repr(row.id)), *labels]
    kinds = [*presence, *contents, *labels]
    sizes, counts = _count_all(vertices, kinds)
    if sizes.rows == 0:
        raise faults.no_vertices()
    _raise_first(vertices, presence, counts, "id")
    _check_ragged(vertices, "features", sizes.narrowest, sizes.widest)
    _raise_first(vertices, contents, counts, "id")
    complaints.check_width(sizes.widest or 0, demands)
    if demands.task is not None:
        complaints.check_label_kind(is_class(vertices), demands)
        if sizes.training == 0:
            raise complaints.empty_training_set()
        _check_ragged(vertices, "label", sizes.narrowest_label, sizes.widest_label)
        complaints.check_label_width(sizes.widest_label or 0, demands)
    _raise_first(vertices, labels, counts, "id")
    return sizes


def _count_all(vertices: DataFrame, kinds: list[Fault]) -> tuple[Sizes, dict[Fault, int]]:
    label_size = F.lit(None).cast("int") if is_class(vertices) else F.size("label")
    label_size = F.when(F.col("label").isNotNull(), label_size)  # older versions of Spark return -1 for null
    widths = [F.min(F.size("features")), F.max(F.size("features")), F.min(label_size), F.max(label_size)]
    training = F.count_if(F.coalesce(F.col("split") == SPLITS[0], F.lit(False)))
    row = vertices.agg(F.count("*"), *widths, training, *(F.count_if(kind.bad) for kind in kinds)).collect()[0]
    return Sizes(*row[:6]), dict(zip(kinds, row[6:], strict=True))


def _raise_first(table: DataFrame, kinds: list[Fault], counts: dict[Fault, int], key: str) -> None:
    for kind in kinds:
        if counts[kind]:
            raise kind.error(counts[kind], *table.where(kind.bad).orderBy(key).limit(EXAMPLES).collect())


def _check_ragged(vertices: DataFrame, column: str, narrowest: int | None, widest: int | None) -> None:
    if narrowest is not None and widest is not None and narrowest < widest:
        _raise_ragged(vertices, column, widest)


def _raise_ragged(vertices: DataFrame, column: str, width: int) -> None:
    narrower = vertices.where(F.col(column).isNotNull() & (F.size(column) < width))
    count, first = narrower.agg(F.count("*"), F.min(F.struct("id", F.size(column)))).collect()[0]
    raise faults.ragged(column, count, width, faults.example_row(first[0], f"{first[1]} numbers"))


def _presence_faults() -> list[Fault]:
    nothing = F.col("features").isNull()
    return [
        Fault(F.col("id").isNull(), _null_ids("vertices", "id")),
        Fault(nothing, lambda count, row, *_: faults.null_rows("features", count, faults.example_row(row.id, "null"))),
    ]


def _null_ids(table: str, column: str) -> Callable[..., GraphError]:
    return lambda count, *rows: faults.null_ids(table, column, count, [row.asDict() for row in rows])


def _content_faults() -> list[Fault]:
    features, split = F.col("features"), F.col("split")
    return [
        Fault(
            _any(features, F.isnull),
            lambda count, row, *_: faults.nulls_inside("features", count, faults.example_row(row.id, "null")),
        ),
        Fault(_any(features, _infinite), lambda count, row, *_: complaints.not_finite(count, row.id, row.features)),
        Fault(
            F.coalesce(~split.isin(*SPLITS), F.lit(False)),
            lambda count, row, *_: faults.unknown_splits("split", count, faults.example_row(row.id, row.split)),
        ),
    ]


def _label_faults(vertices: DataFrame, demands: Demands) -> list[Fault]:
    label = F.col("label")
    if is_class(vertices):
        return [*_class_range(label, demands.outputs), _missing(F.coalesce(label < 0, F.lit(True)), vertices)]
    missing = F.coalesce(F.forall(label, F.isnan), F.lit(True))
    several = demands.task == "multilabel"
    bad = (lambda value: F.abs(value) == float("inf")) if several else _infinite  # an unknown entry of several is NaN
    kinds = [
        Fault(
            ~missing & _any(label, bad),
            lambda count, row, *_: complaints.labels_not_finite(count, row.id, row.label),
        ),
    ]
    if several:
        other = ~missing & _any(label, lambda value: ~(value.isin(0.0, 1.0) | F.isnan(value)))
        kinds.append(Fault(other, lambda count, row, *_: complaints.labels_not_binary(count, row.id, row.label)))
    return [*kinds, _missing(missing, vertices)]


def _weight_faults(vertices: DataFrame) -> list[Fault]:
    if "vertex_weight" not in vertices.columns:
        return []
    weight = F.col("vertex_weight")
    return [
        Fault(
            weight.isNull(),
            lambda count, row, *_: faults.null_rows("vertex_weight", count, faults.example_row(row.id, "null")),
        ),
        Fault(
            F.coalesce(_infinite(weight) | (weight < 0), F.lit(False)),
            lambda count, row, *_: complaints.bad_vertex_weights(count, row.id, row.vertex_weight),
        ),
    ]


def _class_range(label: Column, outputs: int | None) -> list[Fault]:
    if outputs is None:
        return []
    outside = F.coalesce((label < -1) | (label >= outputs), F.lit(False))
    return [Fault(outside, lambda count, row, *_: complaints.labels_out_of_range(count, row.id, row.label, outputs))]


def _missing(missing: Column, vertices: DataFrame) -> Fault:
    needed = F.coalesce(F.col("split").isin(*SPLITS), F.lit(False))

    def error(count: int, row: Row, *_: Row) -> GraphError:
        found = (
            {one[0] for one in vertices.select("label").distinct().limit(4).collect()} if is_class(vertices) else set()
        )
        signs = found - {None} == {-1, 1}
        return complaints.missing_labels(count, row.id, row.split, signs)

    return Fault(missing & needed, error)


def _any(array: Column, test: Callable[[Column], Column]) -> Column:
    return F.coalesce(F.exists(array, test), F.lit(False))


def _number_faults(column: str, demands: Demands, name: Callable[[Row], str]) -> list[Fault]:
    """Return the faults of numbers that layers take as types. `name` gives the words for a row."""
    return [_number_fault(column, bound, name) for bound in demands.bounds if bound.column == column]


def _number_fault(column: str, bound: Bound, name: Callable[[Row], str]) -> Fault:
    def error(count: int, row: Row, *_: Row) -> GraphError:
        return complaints.numbers_out_of_range(bound, count, f"{name(row)}: {row[column][bound.place]}")

    number = F.col(column)[bound.place]
    outside = F.coalesce((number <= -1) | (number >= bound.limit), F.lit(False))
    return Fault(outside, error)


def _infinite(value: Column) -> Column:
    return F.isnan(value) | (F.abs(value) == float("inf"))


def _check_doubled(vertices: DataFrame) -> None:
    doubled = vertices.groupBy("id").count().where("count > 1")
    count = doubled.count()
    if count:
        shown = doubled.orderBy("id").limit(EXAMPLES).collect()
        raise faults.doubled_ids(count, [row.id for row in shown])


def _check_edges(edges: DataFrame, demands: Demands) -> tuple[int, int]:
    """Check every edge, in one job. Return the number of edges and the number of self-loops."""
    kinds = [*_edge_faults(demands), *_attribute_faults(edges, demands), *_type_faults(edges, demands)]
    loops = F.count_if(F.coalesce(F.col("src") == F.col("dst"), F.lit(False)))
    count, self_loops, *bad = edges.agg(F.count("*"), loops, *(F.count_if(kind.bad) for kind in kinds)).collect()[0]
    _raise_first(edges, kinds, dict(zip(kinds, bad, strict=True)), "src")
    return count, self_loops


def _edge_faults(demands: Demands) -> list[Fault]:
    weight = F.col("weight")
    kinds = [
        Fault(F.col("src").isNull(), _null_ids("edges", "src")),
        Fault(F.col("dst").isNull(), _null_ids("edges", "dst")),
        Fault(
            weight.isNull(),
            lambda count, row, *_: faults.null_rows("weight", count, f"{row.src!r} -> {row.dst!r}: null", "edges"),
        ),
        Fault(
            F.coalesce(_infinite(weight), F.lit(False)),
            lambda count, row, *_: complaints.bad_weights(count, row.src, row.dst, row.weight, negative=False),
        ),
    ]
    if demands.normalised_weights:
        negative = F.coalesce(weight < 0, F.lit(False))
        kinds.append(
            Fault(
                negative,
                lambda count, row, *_: complaints.bad_weights(count, row.src, row.dst, row.weight, negative=True),
            )
        )
    return kinds


def _attribute_faults(edges: DataFrame, demands: Demands) -> list[Fault]:
    """Return the faults of attributes. All rows must be as wide as the widest."""
    if "edge_attr" not in edges.columns:
        return []
    attributes = F.col("edge_attr")
    widest = edges.agg(F.max(F.size(attributes))).collect()[0][0] or 0
    return [
        *_number_faults("edge_attr", demands, _edge),
        Fault(attributes.isNull(), lambda count, row, *_: faults.null_rows("edge_attr", count, _edge(row), "edges")),
        Fault(
            F.coalesce(F.size(attributes) < widest, F.lit(False)),
            lambda count, row, *_: faults.ragged("edge_attr", count, widest, _edge(row), "edges"),
        ),
        Fault(
            _any(attributes, F.isnull),
            lambda count, row, *_: faults.nulls_inside("edge_attr", count, _edge(row), "edges"),
        ),
        Fault(
            _any(attributes, _infinite),
            lambda count, row, *_: complaints.attributes_not_finite(count, row.src, row.dst, row.edge_attr),
        ),
    ]


def _type_faults(edges: DataFrame, demands: Demands) -> list[Fault]:
    if "edge_type" not in edges.columns:
        return []
    types = F.col("edge_type")
    outside = F.coalesce((types < 0) | (types >= complaints.type_limit(demands)), F.lit(False))
    return [
        Fault(types.isNull(), lambda count, row, *_: faults.null_rows("edge_type", count, _edge(row), "edges")),
        Fault(
            outside,
            lambda count, row, *_: complaints.types_out_of_range(count, row.src, row.dst, row.edge_type, demands),
        ),
    ]


def _check_in_edges(edges: DataFrame, demands: Demands, most: int) -> None:
    """Check that no vertex has more than `most` in-edges."""
    counts = edges.groupBy("dst").agg(F.count("*").alias("count")).where(F.col("count") > most)
    for row in counts.orderBy(F.desc("count"), "dst").limit(1).collect():
        raise complaints.too_many_in_edges(row["dst"], row["count"], demands)


def _edge(row: Row) -> str:
    return f"{row.src!r} -> {row.dst!r}"


def _check_dangling(edges: DataFrame, vertices: DataFrame) -> None:
    known = vertices.select("id", F.lit(True).alias("known"))
    held = edges.select("src", "dst")
    for end in ("src", "dst"):
        side = known.select(F.col("id").alias(end), F.col("known").alias(f"{end}_known"))
        held = held.join(side, end, "left")
    dangling = held.where(F.col("src_known").isNull() | F.col("dst_known").isNull())
    count = dangling.count()
    if count:
        shown = dangling.orderBy("src", "dst").limit(EXAMPLES).collect()
        raise faults.dangling_edges(count, [(row.src, row.dst) for row in shown])
