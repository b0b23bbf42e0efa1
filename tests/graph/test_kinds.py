"""Every reader takes the same types of columns, and makes the same arrays of them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lotan.errors import GraphError
from lotan.graph.graph import Graph
from tests.night import also_in_spark

pytestmark = pytest.mark.thorough


PLACES = ("pandas", "arrow", "parquet", "spark")
READERS = [*PLACES[:-1], pytest.param("spark", marks=pytest.mark.spark)]
NONE = None


@dataclass(frozen=True)
class Case:
    """A column of the vertices or of the edges, and what a graph makes of it."""

    name: str
    column: str
    values: pa.Array
    expected: Any
    not_on: tuple[str, ...] = ()  # readers whose container cannot hold the type


def tensor_column() -> pa.Array:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(3, 2, 2))


def vectors() -> pa.Array:
    """Return Spark ML vectors as Spark writes them: dense, sparse, and sparse without values."""
    fields = {"type": [1, 0, 0], "size": [None, 2, 2], "indices": [None, [1], []], "values": [[1.0, 2.0], [3.0], []]}
    kinds = (pa.int8(), pa.int32(), pa.list_(pa.int32()), pa.list_(pa.float64()))
    arrays = [pa.array(cells, kind) for cells, kind in zip(fields.values(), kinds, strict=True)]
    return pa.StructArray.from_arrays(arrays, names=list(fields))


IDS = [1, 2, 3]
ROWS = [[1.0, 2.0], [0.0, 3.0], [0.0, 0.0]]
CASES = [
    *(Case(str(kind), "id", pa.array(IDS, kind), IDS) for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint64())),
    Case("decimal(20,0)", "id", pa.array(map(Decimal, IDS), pa.decimal128(20, 0)), IDS),
    Case("decimal(12,2)", "id", pa.array(map(Decimal, IDS), pa.decimal128(12, 2)), IDS),
    Case("whole floats", "id", pa.array(IDS, pa.float64()), IDS),
    Case("large_string", "id", pa.array(list("abc"), pa.large_string()), list("abc")),
    Case("string_view", "id", pa.array(list("abc"), pa.string_view()), list("abc"), not_on=("parquet", "spark")),
    Case("dictionary", "id", pa.array(list("abc")).dictionary_encode(), list("abc")),
    *(
        Case(f"list of {kind}", "features", pa.array(ROWS, pa.list_(kind)), ROWS)
        for kind in (pa.float32(), pa.float64(), pa.int64(), pa.uint8())
    ),
    Case("large_list", "features", pa.array(ROWS, pa.large_list(pa.float32())), ROWS),
    Case("fixed_size_list", "features", pa.array(ROWS, pa.list_(pa.float32(), 2)), ROWS),
    Case("list of half floats", "features", pa.array(ROWS, pa.list_(pa.float16())), ROWS, not_on=("spark",)),
    Case(
        "list of decimals",
        "features",
        pa.array([[Decimal("0.125"), Decimal(2)], [Decimal(0), Decimal(3)], [Decimal(0), Decimal(0)]]),
        [[0.125, 2.0], [0.0, 3.0], [0.0, 0.0]],
    ),
    Case("list of lists", "features", pa.array([[[1.0], [2.0]], [[0.0], [3.0]], [[0.0], [0.0]]]), ROWS),
    Case("tensors", "features", tensor_column(), np.arange(12.0).reshape(3, 4).tolist()),
    Case("vectors", "features", vectors(), ROWS, not_on=("pandas", "spark")),
    *(
        Case(f"column of {kind}", "features", pa.array([1, 0, 1], kind), [[1.0], [0.0], [1.0]])
        for kind in (pa.int16(), pa.uint32(), pa.float32())
    ),
    Case("column of booleans", "features", pa.array([True, False, True]), [[1.0], [0.0], [1.0]]),
    Case("column of decimals", "features", pa.array([Decimal("0.5"), Decimal(0), Decimal(1)]), [[0.5], [0.0], [1.0]]),
    Case(
        "column of half floats", "features", pa.array([0.5, 0, 1], pa.float16()), [[0.5], [0], [1]], not_on=("spark",)
    ),
    Case("integers", "label", pa.array([2, NONE, 0], pa.int64()), [2, -1, 0]),
    Case("unsigned", "label", pa.array([2, NONE, 0], pa.uint8()), [2, -1, 0]),
    Case("booleans", "label", pa.array([True, NONE, False]), [1, -1, 0]),
    Case("whole decimals", "label", pa.array([Decimal(2), NONE, Decimal(0)], pa.decimal128(3, 0)), [2, -1, 0]),
    Case("whole floats, one missing", "label", pa.array([2.0, NONE, 0.0]), [2, -1, 0]),
    Case("floats", "label", pa.array([2.5, NONE, 0.0]), [[2.5], [np.nan], [0.0]]),
    Case("whole floats, all there", "label", pa.array([2.0, 1.0, 0.0]), [[2.0], [1.0], [0.0]]),
    Case("arrays of one integer", "label", pa.array([[2], NONE, [0]]), [2, -1, 0]),
    Case("arrays of one float, one missing", "label", pa.array([[1.0], [np.nan], [0.0]]), [1, -1, 0]),
    Case("arrays of 0 and 1", "label", pa.array([[1, 0], NONE, [0, 1]]), [[1, 0], [np.nan, np.nan], [0, 1]]),
    Case("texts", "label", pa.array(["b", NONE, "a"]), [1, -1, 0]),
    Case("texts, one empty", "label", pa.array(["b", "", "a"]), [1, -1, 0]),
    Case("nothing", "label", pa.nulls(3), [-1, -1, -1], not_on=("spark",)),
    Case("names", "split", pa.array([" Train", "validation", NONE]), [0, 1, -1]),
    Case("numbers", "split", pa.array([0, 2, NONE], pa.int32()), [0, 2, -1]),
    Case("numbers as floats", "split", pa.array([0.0, 1.0, NONE]), [0, 1, -1]),
    Case("unsigned types", "edge_type", pa.array([0, 1, 2], pa.uint8()), [0, 1, 2]),
    Case("decimal weights", "weight", pa.array([Decimal("0.5"), Decimal(1), Decimal(2)]), [0.5, 1.0, 2.0]),
    Case("boolean weights", "weight", pa.array([True, False, True]), [1.0, 0.0, 1.0]),
]
OF_EDGES = ("weight", "edge_type")


def tables(case: Case) -> tuple[pa.Table, pa.Table]:
    ids = case.values if case.column == "id" else pa.array(IDS)
    vertices = {"id": ids, "features": pa.array(ROWS)}
    edges = {"src": ids, "dst": ids}
    table = edges if case.column in OF_EDGES else vertices
    table[case.column] = case.values
    return pa.table(vertices), pa.table(edges)


def graph_of(case: Case, reader: str, request: pytest.FixtureRequest) -> Graph:
    named = {case.column: case.column} if case.column in OF_EDGES else {}
    return graph_of_tables(*tables(case), reader, request, **named)


def graph_of_tables(
    vertices: pa.Table, edges: pa.Table, reader: str, request: pytest.FixtureRequest, **named: str
) -> Graph:
    """Return the graph that a reader makes of two tables. `named` has the columns that files need not name."""
    if reader == "arrow":
        return Graph(vertices, edges, **named)
    if reader == "pandas":
        return Graph(vertices.to_pandas(), edges.to_pandas(), **named)
    folder = request.getfixturevalue("tmp_path")
    pq.write_table(vertices, folder / "vertices.parquet")
    pq.write_table(edges, folder / "edges.parquet")
    graph = Graph.read(folder)
    return graph.on_spark(request.getfixturevalue("spark")) if reader == "spark" else graph


IN_SPARK_BY_DAY = ("decimal(12,2)", "dictionary", "list of int64", "tensors", "column of booleans", "whole floats, one missing",
                   "arrays of 0 and 1", "texts", "names", "decimal weights")  # fmt: skip
"""The types that are read from Spark by day: of each column, those that take a way of their own."""


@pytest.mark.parametrize(
    ("case", "reader"),
    also_in_spark(
        ((case, reader) for case in CASES for reader in PLACES if reader not in case.not_on),
        IN_SPARK_BY_DAY,
        lambda case: f"{case.column}-{case.name}".replace(" ", "_"),
    ),
)
def test_every_reader_makes_the_same_of_a_type(case, reader, request):
    arrays = graph_of(case, reader, request).arrays()
    found = {"id": "ids"}.get(case.column, case.column)
    np.testing.assert_array_equal(np.asarray(getattr(arrays, found)), np.asarray(case.expected))
    if case.name.startswith("texts"):
        assert arrays.classes == ("a", "b")


REFUSED = [
    ("id", pa.array([1.5, 2.0, 3.0]), r"vertices\.id: is of type double"),
    ("id", pa.array([True, False, True]), r"vertices\.id: is of type bool"),
    ("id", pa.array([Decimal("1.5"), Decimal(2), Decimal(3)]), r"vertices\.id: is of type decimal"),
    ("id", pa.array([2.0**60, 2.0, 3.0]), r"vertices\.id: holds (floats|numbers) beyond 2"),
    ("features", pa.array(list("abc")), r"vertices\.features: is of type string"),
    ("features", pa.array([["a"], ["b"], ["c"]]), r"vertices\.features: is of type"),
    ("label", pa.array([["a"], ["b"], ["c"]]), r"vertices\.label: is of type"),
    ("split", pa.array([True, False, True]), r"vertices\.split: is of type bool"),
    ("edge_type", pa.array([0.0, 1.0, 2.0]), r"edges\.edge_type: is of type double"),
    ("weight", pa.array(list("abc")), r"edges\.weight: is of type string"),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("column", "values", "words"), REFUSED, ids=lambda value: None)
def test_every_reader_refuses_the_same_types(column, values, words, reader, request):
    with pytest.raises(GraphError, match=words):
        graph_of(Case("refused", column, values, None), reader, request).arrays()


@pytest.mark.parametrize(
    ("label", "task", "expected"),
    [
        ([0, 1, None], "regression", [[0.0], [1.0], [np.nan]]),
        ([0, 1, -1], "multilabel", [[0.0], [1.0], [np.nan]]),
        ([0, 1, -1], "regression", [[0.0], [1.0], [-1.0]]),
        ([0.0, 1.0, 2.0], "classification", [0, 1, 2]),
        ([0.0, 1.0, None], "multilabel", [[0.0], [1.0], [np.nan]]),
        ([[0.0], [1.0], [2.0]], "classification", [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("reader", READERS)
def test_the_users_task_decides_what_labels_are(label, task, expected, reader, request):
    graph = graph_of(Case("label", "label", pa.array(label), None), reader, request).for_task(task)
    np.testing.assert_array_equal(graph.arrays().label, np.asarray(expected))
    assert graph.arrays().label.dtype == (np.int64 if task == "classification" else np.float32)
    assert graph.for_task(task) is graph


@pytest.mark.parametrize("reader", READERS)
def test_labels_that_a_task_cannot_use_are_named(reader, request):
    halves = graph_of(Case("label", "label", pa.array([0.5, 1.0, None]), None), reader, request)
    with pytest.raises(GraphError, match=r"label: 1 labels that are not whole numbers \(for example id 1: 0\.5\)"):
        halves.for_task("classification").arrays()
    texts = graph_of(Case("label", "label", pa.array(["a", "b", None]), None), reader, request)
    with pytest.raises(GraphError, match=r"label: is of type string"):
        texts.for_task("regression").arrays()


TRAIN = {"train_mask": [True, False, False]}
VAL = {"val_mask": [False, True, False]}


def graph_with_masks(masks: dict[str, list[bool | None]], reader: str, request: pytest.FixtureRequest) -> Graph:
    vertices, edges = tables(Case("features", "features", pa.array(ROWS), None))
    for name, mask in masks.items():
        vertices = vertices.append_column(name, pa.array(mask))
    return graph_of_tables(vertices, edges, reader, request)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        (TRAIN | VAL | {"test_mask": [False, False, None]}, [0, 1, -1]),
        (TRAIN | {"test_mask": [False, False, True]}, [0, -1, 2]),
    ],
    ids=["three", "two"],
)
def test_masks_are_splits(masks, expected, reader, request):
    assert graph_with_masks(masks, reader, request).arrays().split.tolist() == expected


@pytest.mark.parametrize("reader", READERS)
def test_masks_that_share_a_vertex_are_refused(reader, request):
    masks = TRAIN | VAL | {"test_mask": [True, False, False]}
    with pytest.raises(GraphError, match=r"several masks|unknown split"):
        graph_with_masks(masks, reader, request).arrays()


def test_vectors_of_spark_ml_in_pandas_are_features():
    linalg = pytest.importorskip("pyspark.ml.linalg")
    cells = [linalg.Vectors.dense([1.0, 2.0]), linalg.Vectors.sparse(2, {1: 3.0})]
    frame = pd.DataFrame({"id": [1, 2], "features": cells})
    assert Graph(frame, pd.DataFrame({"src": [1], "dst": [2]})).arrays().features.tolist() == [[1.0, 2.0], [0.0, 3.0]]
