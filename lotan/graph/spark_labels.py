"""Labels in Spark: the rule of `lotan.graph.given_labels`, as expressions, so that nothing is collected."""

from __future__ import annotations

import math
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lotan.graph.column_names import ColumnNames
from lotan.graph.faults import example_row, wrong_label_type
from lotan.graph.given_labels import MOST_TEXTS, no_classes, too_many_texts
from lotan.graph.kinds import Kind, accepts, kind_of_spark
from lotan.graph.spark_names import named
from planner.loss import Task


def settled(vertices: DataFrame, names: ColumnNames, task: Task | None) -> ColumnNames:
    """Return the names with the reading of labels: as classes or as numbers, and the texts that stand for classes.

    Integers that the task does not concern need no job; others take one.

    Args:
        vertices: the user's vertices.
        names: the names, as the table has them.
        task: the user's task, or None.

    Raises:
        GraphError: labels have a wrong type, do not fit the task, or are more texts than classes can be.
    """
    if names.label is None:
        return replace(names, as_classes=True)
    kind = _kind(vertices, names.label)
    if not accepts("label", kind):
        raise wrong_label_type(names.label, vertices.schema[names.label].dataType.simpleString())
    if kind.base == "nothing":
        return replace(names, as_classes=True)
    if kind.base == "text":
        if task not in (None, "classification"):
            raise wrong_label_type(names.label, "string")
        return replace(names, as_classes=True, classes=_texts(vertices, names.label))
    if kind.depth == 0 and kind.whole:
        return replace(names, as_classes=task in (None, "classification"), as_missing=_minus_one(task))
    if task in ("multilabel", "regression"):
        return replace(names, as_classes=False, as_missing=_minus_one(task) if kind.whole else None)
    return replace(names, as_classes=_are_classes(vertices, names, kind, task))


def _minus_one(task: Task | None) -> int | None:
    """Return the number that stands for no label of a task of several labels."""
    return -1 if task == "multilabel" else None


def _are_classes(vertices: DataFrame, names: ColumnNames, kind: Kind, task: Task | None) -> bool:
    """Return True if floats, or arrays, are classes, with one job."""
    column = named(str(names.label))
    value = F.get(column, F.lit(0)) if kind.depth else column
    number = value.cast("double")
    missing = number.isNull() | F.isnan(number)
    wrong = F.coalesce(~missing & ((number != F.rint(number)) | (F.abs(number) == float("inf"))), F.lit(False))
    widest = F.max(F.size(column)) if kind.depth else F.lit(1)
    example = F.min(F.when(wrong, F.struct(named(names.id), number)))
    row = vertices.agg(
        widest, F.count_if(wrong), F.count_if(F.coalesce(missing, F.lit(True))), F.count("*"), example
    ).collect()[0]
    if row[0] is not None and row[0] > 1:
        return False
    if task == "classification" and row[1]:
        raise no_classes(row[1], example_row(row[4][0], row[4][1]))
    if task == "classification" or kind.whole:
        return True
    return bool(not row[1] and 0 < row[2] < row[3])


def _texts(vertices: DataFrame, column: str) -> tuple[str, ...]:
    rows = vertices.select(named(column)).where(named(column) != "").distinct().limit(MOST_TEXTS + 1).collect()
    if len(rows) > MOST_TEXTS:
        raise too_many_texts(column)
    return tuple(sorted(row[0] for row in rows))


def standard(vertices: DataFrame, names: ColumnNames) -> Column:
    """Return the labels as int, for classes, or array<float>.

    Args:
        vertices: the user's vertices.
        names: the names, if possible with the reading that `settled` has found; else types alone decide.

    Raises:
        GraphError: labels have a wrong type.
    """
    if names.label is None:
        return F.lit(None).cast("int")
    kind, column = _kind(vertices, names.label), named(names.label)
    if not accepts("label", kind) or (kind.base == "text" and names.as_classes is None):
        raise wrong_label_type(names.label, vertices.schema[names.label].dataType.simpleString())
    if kind.base == "nothing":
        return F.lit(None).cast("int")
    if kind.base == "text":
        return _indexed(column, names.classes)
    classes = kind.whole and not kind.depth if names.as_classes is None else names.as_classes
    if classes:
        return _classes(F.get(column, F.lit(0)) if kind.depth else column, kind)
    if kind.depth:
        nan = F.lit(math.nan).cast("float")  # an unknown entry
        return F.transform(column.cast("array<float>"), lambda value: F.coalesce(value, nan))
    known = column.isNotNull()
    if names.as_missing is not None:
        known &= column != names.as_missing
    return F.when(known, F.array(column.cast("float")))


def _classes(column: Column, kind: Kind) -> Column:
    if kind.base == "boolean":
        return column.cast("int")
    known = column.isNotNull() if kind.base != "real" else column.isNotNull() & ~F.isnan(column)
    # clamped, because a cast that overflows fails without naming the row; greatest and least ignore null
    return F.when(known, F.greatest(F.lit(-2), F.least(F.lit(2**31 - 1), column))).cast("int")


def _indexed(column: Column, classes: tuple[str, ...]) -> Column:
    if not classes:
        return F.lit(None).cast("int")
    position = F.array_position(F.array(*map(F.lit, classes)), column) - 1
    return F.when(column != "", position).cast("int")


def _kind(vertices: DataFrame, column: str) -> Kind:
    return kind_of_spark(vertices.schema[column].dataType)
