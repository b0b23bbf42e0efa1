"""Scores of pairs in Spark: the rows of their ends are joined to them, and Spark's Python processes run the decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from lotan.graph.columns import require_columns
from lotan.graph.faults import fault, shown
from lotan.graph.spark_names import named, quoted
from lotan.graph.table_kinds import is_pandas
from lotan.links.decoders import PREFIX
from lotan.results.links import TrainedDecoder

SRC, DST = ("__src", "__src_row"), ("__dst", "__dst_row")
"""The names of the columns that are joined to pairs: the id of an end, and its row."""


@dataclass(frozen=True)
class PairColumns:
    """The names of the columns of pairs."""

    src: str = "src"
    dst: str = "dst"
    relation: str | None = "relation"  # read only if the links of training had relations
    score: str = "score"  # the one that is added
    table: str = "pairs"  # the name of the table, for the texts of errors
    other_vertices: str = "predict on another graph"  # how to have other vertices, for the texts of errors


def held_rows(frame: pd.DataFrame | DataFrame, id_type: str, spark: SparkSession) -> DataFrame:
    """Return the rows of vertices as a Spark DataFrame of `id` and `row` (array of float), which outlives the engine.

    Rows of an engine in Spark stay there. Spark drops them when no plan refers to them.

    Args:
        frame: The rows as an engine returns them, with `id` and `values`.
        id_type: Spark's name for the type of ids.
        spark: The session, to which rows of this process are sent.
    """
    if not is_pandas(frame):
        found: DataFrame = frame.select(frame["id"].cast(id_type).alias("id"), frame["values"].alias("row"))
        return found.localCheckpoint()
    rows = np.stack(frame["values"].to_numpy())
    ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(rows.reshape(-1)))
    return spark.createDataFrame(pa.table({"id": pa.array(frame["id"]), "row": lists}))


def scored_in_spark(
    pairs: DataFrame, rows: DataFrame, decoder: TrainedDecoder, weights: Mapping[str, torch.Tensor], names: PairColumns
) -> DataFrame:
    """Return pairs with a further column, their score (double). Its values are computed when Spark needs them.

    Args:
        pairs: The pairs. All their columns are kept, in their order.
        rows: The rows of all vertices, from `held_rows`.
        decoder: The decoder.
        weights: The weights of the model and the decoder, by name.
        names: The names of the columns of pairs.

    Raises:
        GraphError: If a column is missing or has a wrong type, or a pair has an unknown end or relation.
    """
    check_pairs(pairs, rows, decoder.relations, names)
    own = {name: tensor for name, tensor in weights.items() if name.startswith(PREFIX)}
    make: Any = pandas_udf  # its types are those of a hundred overloads
    relation = named(names.relation) if decoder.relations and names.relation is not None else F.lit(0)
    added: Column = make(_scores(decoder, own), "double")(F.col(SRC[1]), F.col(DST[1]), relation)
    kept = [pairs[quoted(name)] for name in pairs.columns]
    return _with_rows(pairs, rows, names).select(*kept, added.alias(names.score))


@spark_translated(GraphError, "Spark cannot read the pairs")
def check_pairs(pairs: DataFrame, rows: DataFrame, relations: tuple[int | str, ...], names: PairColumns) -> None:
    """Check by one Spark job that the ends of all pairs are vertices, and that their relations were there in training.

    Raises:
        GraphError: If a column is missing or has a wrong type, or a pair has an unknown end or relation.
    """
    ends = [names.src, names.dst]
    kinds = [names.relation] if relations and names.relation is not None else []
    require_columns(names.table, [*ends, *kinds], pairs.columns)
    of_ids = isinstance(rows.schema["id"].dataType, T.StringType)
    for name, texts in [*((end, of_ids) for end in ends), *((kind, isinstance(relations[0], str)) for kind in kinds)]:
        found = pairs.schema[name].dataType
        if isinstance(found, T.StringType) != texts or not isinstance(found, T.StringType | T.IntegralType):
            expected = "strings" if texts else "integers"
            raise fault(
                names.table, name, f"is of type {found.simpleString()}, expected {expected}", "Cast the column."
            )
    joined = _with_rows(pairs, rows.select("id", F.lit(True).alias("row")), names)
    unknown = [(name, F.col(row).isNull()) for name, (_, row) in zip(ends, (SRC, DST), strict=True)]
    unknown += [(name, ~F.coalesce(named(name).isin(list(relations)), F.lit(False))) for name in kinds]
    counts = [F.count_if(bad) for _, bad in unknown]
    examples = [F.min(F.when(bad, named(name))) for name, bad in unknown]
    row = joined.agg(*counts, *examples).collect()[0]
    for place, (name, _) in enumerate(unknown):
        if row[place]:
            known = name not in kinds
            what = "ids that are no vertices" if known else "relations that were not there in training"
            mend = f"Give ids of the graph, or {names.other_vertices}." if known else "Give those of training."
            raise fault(names.table, name, what, mend, row[place], shown(row[len(unknown) + place]))


def _with_rows(pairs: DataFrame, rows: DataFrame, names: PairColumns) -> DataFrame:
    """Return pairs with the rows of their two ends, which are null for an end that is no vertex."""
    for end, (identifier, row) in ((names.src, SRC), (names.dst, DST)):
        renamed = rows.select(F.col("id").alias(identifier), F.col("row").alias(row))
        pairs = pairs.join(renamed, pairs[quoted(end)] == renamed[identifier], "left")
    return pairs


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
