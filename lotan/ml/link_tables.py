"""The functions that make a graph of links from a dataset, and that score a dataset of pairs in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

from lotan.borders import spark_translated
from lotan.errors import GraphError
from lotan.graph.arrays import Ids
from lotan.graph.columns import require_columns
from lotan.graph.faults import fault, shown
from lotan.graph.graph import Graph
from lotan.graph.spark_names import named, quoted
from lotan.links.decoders import PREFIX
from lotan.ml.link_params import LinkParams
from lotan.ml.tables import DATASET, Given, table
from lotan.results.links import TrainedDecoder

SRC, DST = ("__src", "__src_row"), ("__dst", "__dst_row")
"""The names of the columns that are joined to pairs: the id of an end, and its row."""


def graph_of_links(params: LinkParams, given: Given, links: DataFrame, whose: str = DATASET) -> Graph:
    """Return the graph of a table of links. Without vertices, the ends of the links are all vertices.

    Args:
        params: the Params, which name the columns.
        given: the tables that were given, of which the vertices are read.
        links: the links. Without a column of splits all are of training.
        whose: the table of links, for the texts of errors. Only a dataset must have splits and labels that Params name.

    Raises:
        GraphError: a column is missing.
    """
    names = {"src": "srcCol", "dst": "dstCol", "relation": "relationCol", "weight": "edgeWeightCol"}
    wanted = {column: params.value(param) for column, param in names.items() if params.value(param) is not None}
    others = {param: params.value(param) for param in ("splitCol", "labelCol") if params.value(param) is not None}
    there = others if whose == DATASET else {p: name for p, name in others.items() if name in links.columns}
    require_columns(whose, [*wanted.values(), *there.values()], links.columns)
    if "labelCol" in there:
        links = links.where(named(there["labelCol"]).cast("double") > 0)
    split = named(there["splitCol"]) if "splitCol" in there else F.lit("train")
    edges = links.select(*(named(name).alias(column) for column, name in wanted.items()), split.alias("split"))
    vertices = table(given.vertices, params, "vertices")
    weight = "weight" if "weight" in wanted else None
    return Graph(
        _ends(edges) if vertices is None else _features(params, vertices),
        edges,
        label=None,
        split=None,
        weight=weight,
        undirected=params.value("undirected"),
    )


def _ends(edges: DataFrame) -> DataFrame:
    return edges.select(F.col("src").alias("id")).union(edges.select("dst")).distinct()


def _features(params: LinkParams, vertices: DataFrame) -> DataFrame:
    identifier, features = params.value("idCol"), params.value("featuresCol")
    require_columns("vertices", [identifier], vertices.columns)
    columns = {"id": identifier, "features": features} if features in vertices.columns else {"id": identifier}
    return vertices.select(*(named(name).alias(column) for column, name in columns.items()))


def rows_in_spark(ids: Ids, rows: torch.Tensor, spark: SparkSession) -> DataFrame:
    """Return the rows of vertices as a DataFrame of `id` and `row` (array of float)."""
    ends = np.arange(0, rows.numel() + 1, rows.shape[1], dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(rows.reshape(-1).numpy()))
    return spark.createDataFrame(pa.table({"id": pa.array(ids), "row": lists}))


@spark_translated(GraphError, "Spark cannot read the dataset")
def check_pairs(params: LinkParams, pairs: DataFrame, rows: DataFrame, relations: tuple[int | str, ...]) -> None:
    """Check by one Spark job that the ends of all pairs are vertices, and that their relations were there in training.

    Raises:
        GraphError: a column is missing or has a wrong type, or a pair has an unknown end or relation.
    """
    ends = [params.value("srcCol"), params.value("dstCol")]
    kinds = [params.value("relationCol")] if relations else []
    require_columns(DATASET, [*ends, *kinds], pairs.columns)
    of_ids = isinstance(rows.schema["id"].dataType, T.StringType)
    for name, texts in [*((end, of_ids) for end in ends), *((kind, isinstance(relations[0], str)) for kind in kinds)]:
        found = pairs.schema[name].dataType
        if isinstance(found, T.StringType) != texts or not isinstance(found, T.StringType | T.IntegralType):
            expected = "strings" if texts else "integers"
            raise fault(DATASET, name, f"is of type {found.simpleString()}, expected {expected}", "Cast the column.")
    joined = with_rows(pairs, params, rows)
    unknown = [(name, F.col(column).isNull()) for name, (column, _) in zip(ends, (SRC, DST), strict=True)]
    unknown += [(name, ~F.coalesce(named(name).isin(list(relations)), F.lit(False))) for name in kinds]
    counts = [F.count_if(bad) for _, bad in unknown]
    examples = [F.min(F.when(bad, named(name))) for name, bad in unknown]
    row = joined.agg(*counts, *examples).collect()[0]
    for place, (name, _) in enumerate(unknown):
        if row[place]:
            what = "relations that were not there in training" if name in kinds else "ids that are no vertices"
            mend = (
                "Give those of training."
                if name in kinds
                else "Give ids of the graph, or other vertices by setVertices."
            )
            raise fault(DATASET, name, what, mend, row[place], shown(row[len(unknown) + place]))


def with_rows(pairs: DataFrame, params: LinkParams, rows: DataFrame) -> DataFrame:
    """Return pairs with the rows of their two ends, which are null for an end that is no vertex."""
    for end, (identifier, row) in ((params.value("srcCol"), SRC), (params.value("dstCol"), DST)):
        renamed = rows.select(F.col("id").alias(identifier), F.col("row").alias(row))
        pairs = pairs.join(renamed, pairs[quoted(end)] == renamed[identifier], "left")
    return pairs


def score_column(decoder: TrainedDecoder, weights: Mapping[str, torch.Tensor], relation: str | None) -> Column:
    """Return the column of scores over pairs that have the rows of their ends (double).

    Args:
        decoder: the decoder.
        weights: the weights of the model and the decoder, by name.
        relation: the column of relations; None: there is none.
    """
    own = {name: tensor for name, tensor in weights.items() if name.startswith(PREFIX)}
    make: Any = pandas_udf  # its types are those of a hundred overloads
    found: Column = make(_scores(decoder, own), "double")(
        F.col(SRC[1]), F.col(DST[1]), F.lit(0) if relation is None else named(relation)
    )
    return found


def _scores(
    trained: TrainedDecoder, weights: Mapping[str, torch.Tensor]
) -> Callable[[pd.Series[float], pd.Series[float], pd.Series[int]], pd.Series[float]]:
    """Return the function that Spark's Python processes run. A closure is all that they are sent."""
    numbers = {name: number for number, name in enumerate(trained.relations)}

    def score(src: pd.Series, dst: pd.Series, relation: pd.Series) -> pd.Series:
        if not len(src):
            return pd.Series([], dtype=np.float64)
        ends = [torch.from_numpy(np.stack(one.to_numpy())) for one in (src, dst)]
        of = torch.tensor(relation.map(numbers).to_numpy(dtype=np.int64)) if numbers else None
        with torch.no_grad():
            found = trained.decoder(weights)(ends[0], of, ends[1])
        return pd.Series(found.numpy().astype(np.float64))

    return score
