"""The rows of a dataset. One Spark job finds their faults and the largest class."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lotan.borders import spark_translated
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.columns import require_columns
from lotan.graph.faults import example_row, fault, wrong_split_type, wrong_type
from lotan.graph.frames import standard_vertices
from lotan.graph.graph import Graph
from lotan.graph.spark_names import named
from lotan.ml.params import GNNParams
from lotan.ml.tables import DATASET

_LARGEST = 2**31 - 1
_ONE_VS_REST = "mc2b$"  # the beginning of the label columns that Spark's OneVsRest makes
NUMBERS = (
    *(T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    *(T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType),
)


@dataclass(frozen=True, eq=False)
class Fault:
    """One kind of bad row."""

    bad: Column  # true for a bad row
    shown: str  # the column that an example shows
    column: str  # the user's name of the column
    problem: str
    mend: str

    def error(self, count: int, example: Row) -> GraphError:
        """Return the error for a number of bad rows, with one of them as an example."""
        return fault(DATASET, self.column, self.problem, self.mend, count, example_row(example[0], example[1]))


def training_rows(params: GNNParams, dataset: DataFrame, classes: bool) -> DataFrame:
    """Return a dataset's rows as id, label (int for classes, else float) and split (string).

    If there is a weightCol, its numbers follow as vertex_weight (float).

    Raises:
        GraphError: a column is missing or has a wrong type.
    """
    split = params.value("splitCol")
    label, weight = params.value("labelCol"), params.value("weightCol")
    identifier = params.value("idCol")
    if identifier not in dataset.columns and any(name.startswith(_ONE_VS_REST) for name in dataset.columns):
        raise ConfigurationError(
            f"OneVsRest passes on labels and features alone, and a graph needs the column {identifier!r} too; "
            "GNNClassifier tells any number of classes apart without OneVsRest"
        )
    wanted = [name for name in (identifier, label, split, weight) if name]
    require_columns(DATASET, wanted, dataset.columns)
    _check_type(dataset, label)
    if split and not isinstance(dataset.schema[split].dataType, T.StringType):
        raise wrong_split_type(split, dataset.schema[split].dataType.simpleString())
    if weight and not isinstance(dataset.schema[weight].dataType, NUMBERS):
        raise wrong_type(DATASET, weight, dataset.schema[weight].dataType.simpleString())
    known = named(label).isNotNull() & ~F.isnan(named(label).cast("double"))
    if classes:
        known &= named(label) >= 0
    return dataset.select(
        named(params.value("idCol")).alias("id"),
        F.when(known, named(label).cast("double")).cast("int" if classes else "float").alias("label"),
        (named(split) if split else F.when(known, "train")).alias("split"),
        *([named(weight).cast("float").alias("vertex_weight")] if weight else []),
    )


@spark_translated(GraphError, "Spark cannot read the dataset")
def check_rows(params: GNNParams, dataset: DataFrame, whole: Graph, part: bool, classes: bool) -> int:
    """Check that a dataset's rows can be trained on or predicted, and find the largest class.

    Args:
        params: the Params, which name the columns.
        dataset: rows with ids, and with labels if they are trained on.
        whole: the graph.
        part: True if the dataset is a part of the graph's vertices, False if it has all of them.
        classes: True if the labels must be whole numbers.

    Returns:
        The largest label + 1, or 0 without labels.

    Raises:
        GraphError: an id is not in the graph, features differ from the graph's, or a label is no class.
    """
    label = params.value("labelCol") if params.value("labelCol") in dataset.columns else None
    if label:
        _check_type(dataset, label)
    rows = _rows(params, dataset, label)
    faults = _label_faults(params) if label and classes else []
    if part:
        rows = _beside(rows, whole, params, dataset)
        faults += _part_faults(params)
    top = F.max("label") if label and classes else F.lit(None).cast("double")
    counts = [F.count_if(F.coalesce(fault.bad, F.lit(False))) for fault in faults]
    examples = [F.min(F.when(fault.bad, F.struct("id", fault.shown))) for fault in faults]
    largest, *found = rows.agg(top, *counts, *examples).collect()[0]
    for found_fault, count, example in zip(faults, found[: len(faults)], found[len(faults) :], strict=True):
        if count:
            raise found_fault.error(count, example)
    return int(largest) + 1 if largest is not None else 0


def named_classes(dataset: DataFrame, label: str) -> int | None:
    """Return the number of classes in the label's metadata, which StringIndexer writes, or None without metadata."""
    attribute = dataset.schema[label].metadata.get("ml_attr", {})
    return attribute.get("num_vals") or len(attribute.get("vals", ())) or None


def _rows(params: GNNParams, dataset: DataFrame, label: str | None) -> DataFrame:
    require_columns(DATASET, [params.value("idCol")], dataset.columns)
    value = named(label).cast("double") if label else F.lit(None).cast("double")
    return dataset.select(
        named(params.value("idCol")).alias("id"), value.alias("label"), _hash(params, dataset).alias("features")
    )


def _hash(params: GNNParams, dataset: DataFrame) -> Column:
    """Return a hash of each row's features, or null if the dataset has no features."""
    column = params.value("featuresCol")
    if column not in dataset.columns:
        return F.lit(None).cast("bigint")
    kind = dataset.schema[column].dataType
    if type(kind).__name__ == "VectorUDT":
        from pyspark.ml.functions import vector_to_array

        return F.xxhash64(vector_to_array(named(column), "float32"))
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, NUMBERS):
        return F.xxhash64(named(column).cast("array<float>"))
    raise wrong_type(DATASET, column, kind.simpleString())


def _beside(rows: DataFrame, whole: Graph, params: GNNParams, dataset: DataFrame) -> DataFrame:
    standard = standard_vertices(whole.tables()[0], whole.names)
    kinds = [frame.schema["id"].dataType for frame in (rows, standard)]
    if isinstance(kinds[0], T.StringType) != isinstance(kinds[1], T.StringType):
        problem = f"is of type {kinds[0].simpleString()}, and the ids of all vertices are {kinds[1].simpleString()}"
        raise fault(DATASET, params.value("idCol"), problem, "Cast the column.")
    theirs = F.xxhash64("features") if params.value("featuresCol") in dataset.columns else F.lit(None).cast("bigint")
    return rows.join(standard.select("id", theirs.alias("theirs"), F.lit(True).alias("known")), "id", "left")


def _part_faults(params: GNNParams) -> list[Fault]:
    unknown = Fault(
        F.col("known").isNull(),
        "id",
        params.value("idCol"),
        "ids that are not among all vertices",
        "Give all vertices by setVertices: those of every fold, of validation and of test.",
    )
    changed = Fault(
        F.col("known") & (F.col("features") != F.col("theirs")),
        "id",
        params.value("featuresCol"),
        "rows whose features are not those of all vertices",
        "Prepare the vertices before setVertices, or drop the column from the dataset: a graph has one set of features.",
    )
    return [unknown, changed]


def _label_faults(params: GNNParams) -> list[Fault]:
    whole_number = (F.col("label") == F.floor("label")) & F.col("label").between(-1, _LARGEST)
    mend = "Number the classes from 0 (for instance by StringIndexer); null or -1 for none."
    return [
        Fault(
            F.col("label").isNotNull() & ~whole_number,
            "label",
            params.value("labelCol"),
            "labels that are no classes",
            mend,
        )
    ]


def _check_type(dataset: DataFrame, label: str) -> None:
    kind = dataset.schema[label].dataType
    if isinstance(kind, T.StringType):
        raise fault(
            DATASET, label, "is of type string, expected numbers", "Index the classes, for instance by StringIndexer."
        )
    if isinstance(kind, T.ArrayType):
        problem = f"is of type {kind.simpleString()}, expected one number"
        raise fault(DATASET, label, problem, "Train several labels or targets at once with lotan.Trainer.")
    if not isinstance(kind, NUMBERS):
        raise wrong_type(DATASET, label, kind.simpleString())
