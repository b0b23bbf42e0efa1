"""Attributes and types of edges through every door, and the errors for bad ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import lotan
from lotan.errors import GraphError
from lotan.graph.fingerprint import fingerprint
from lotan.validation.check import check_graph
from planner.edge_columns import EdgeData

SRC, DST = np.array([0, 1, 1, 2, 2]), np.array([1, 2, 2, 2, 0])
ATTRIBUTES = np.array([[1, 2], [5, 6], [3, 4], [7, 8], [9, 0]], dtype=np.float32)
TYPES = np.array([0, 1, 1, 0, 2])
SORTED = np.array([4, 0, 2, 1, 3])  # by destination, source, type, attributes


def frames(**columns) -> tuple[pd.DataFrame, pd.DataFrame]:
    vertices = pd.DataFrame({"id": [0, 1, 2], "features": [[0.0], [1.0], [2.0]]})
    edges = pd.DataFrame({"src": SRC, "dst": DST, "a": ATTRIBUTES[:, 0], "b": ATTRIBUTES[:, 1], "relation": TYPES})
    edges["features"] = list(ATTRIBUTES)
    return vertices, edges.assign(**columns)


def arrays(**options) -> lotan.Graph:
    given = {"features": np.zeros((3, 1)), "src": SRC, "dst": DST, "edge_attr": ATTRIBUTES, "edge_type": TYPES}
    return lotan.Graph.from_arrays(**{**given, **options})


def assert_holds(graph: lotan.Graph) -> None:
    found = graph.arrays()
    np.testing.assert_array_equal(found.src, SRC[SORTED])
    np.testing.assert_array_equal(found.edge_attr, ATTRIBUTES[SORTED])
    np.testing.assert_array_equal(found.edge_type, TYPES[SORTED])
    assert found.edge_attr.dtype == np.float32
    assert graph.statistics.edge_data == EdgeData(2, True)


@pytest.mark.parametrize("edge_features", [["a", "b"], "features"])
def test_pandas(edge_features):
    assert_holds(lotan.Graph(*frames(), edge_features=edge_features, edge_type="relation"))


def test_arrays():
    assert_holds(arrays())


def test_one_number_for_each_edge_is_a_width_of_one():
    assert arrays(edge_attr=ATTRIBUTES[:, 0]).arrays().edge_attr.shape == (5, 1)


def test_npz(tmp_path):
    rest = {"num_nodes": 3, "x": np.zeros((3, 1)), "edge_src": SRC, "edge_dst": DST}
    np.savez(tmp_path / "graph.npz", **rest, edge_attr=ATTRIBUTES, edge_type=TYPES)
    assert_holds(lotan.Graph.read(tmp_path / "graph.npz"))
    np.savez(tmp_path / "short.npz", **rest, edge_attr=ATTRIBUTES[1:])
    with pytest.raises(GraphError, match="5 edges, but edge_attr of shape"):
        lotan.Graph.read(tmp_path / "short.npz")


def test_saved_and_read(tmp_path):
    arrays().save(tmp_path)
    graph = lotan.Graph.read(tmp_path)
    assert graph.estimate().edge_data == EdgeData(2, True)
    assert_holds(graph)
    assert fingerprint(graph) == fingerprint(arrays())


def test_relabelled():
    assert_holds(arrays().relabelled(label=np.array([0, 1, 0])))


def test_reverses_have_the_same_attributes_and_type():
    graph = arrays(src=[0, 2], dst=[1, 2], edge_attr=ATTRIBUTES[:2], edge_type=TYPES[:2], undirected=True)
    found = graph.arrays()
    assert found.src.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(found.edge_attr, ATTRIBUTES[[0, 0, 1]])
    assert found.edge_type.tolist() == [0, 0, 1]


def test_every_attribute_and_type_is_in_the_fingerprint():
    other, others = ATTRIBUTES.copy(), TYPES.copy()
    other[3, 1], others[3] = 0.5, 1
    found = {fingerprint(arrays(**change)) for change in ({}, {"edge_attr": other}, {"edge_type": others})}
    assert len(found) == 3


def test_a_graph_without_edges():
    graph = arrays(src=[], dst=[], edge_attr=np.zeros((0, 2)), edge_type=np.zeros(0, dtype=int))
    assert graph.statistics.edge_data == EdgeData(2, True)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({}, {"edge_features": ["a", "c"]}, "edges: there is no column 'c'"),
        ({}, {"edge_type": "kind"}, "edges: there is no column 'kind'"),
        ({"a": [1, None, 2, 3, 4]}, {"edge_features": "a"}, "NaN or an infinite"),
        ({"a": ["x"] * 5}, {"edge_features": ["a"]}, "edges.a: is of type string"),
        ({"relation": [0, 1, None, 0, 1]}, {"edge_type": "relation"}, "edges.relation: is of type double"),
        ({"relation": pd.array([0, 1, None, 0, 1], "Int64")}, {"edge_type": "relation"}, "1 rows that are null"),
        ({"relation": ["x"] * 5}, {"edge_type": "relation"}, "edges.relation: is of type string"),
        ({"relation": [0, 1, -1, 0, 1]}, {"edge_type": "relation"}, "1 types that are not among 0, 1, ..."),
        ({"features": [[1.0], [1.0], None, [1.0], [1.0]]}, {"edge_features": "features"}, "1 rows that are null"),
        ({"features": [[1.0], [1.0], [None], [1.0], [1.0]]}, {"edge_features": "features"}, "hold a null"),
        ({"features": [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]]}, {"edge_features": "features"}, "4 rows that are sh"),
        ({"features": [[1.0], [np.nan], [1.0], [1.0], [1.0]]}, {"edge_features": "features"}, "NaN or an infinite"),
    ],
)
def test_bad_columns(columns, options, text):
    with pytest.raises(GraphError) as raised:
        check_graph(lotan.Graph(*frames(**columns), **options), None, None, None)
    assert text in str(raised.value)
    assert "edges" in str(raised.value)


def test_bad_arrays():
    with pytest.raises(GraphError, match="edge_attr: 4 entries, but src has 5"):
        arrays(edge_attr=ATTRIBUTES[1:])
    with pytest.raises(GraphError, match="edge_type: an array of float64"):
        arrays(edge_type=np.ones(5))
    with pytest.raises(GraphError, match="edge_features is 3; expected the name"):
        lotan.Graph(*frames(), edge_features=3)


def on_spark(spark, **columns) -> tuple:
    """The tables of `frames` in Spark."""
    vertices, edges = frames(**columns)
    kinds = "src long, dst long, a float, b float, relation long, features array<float>"
    rows = [
        (*map(int, row[:2]), *row[2:4], int(row[4]), None if row[5] is None else list(map(float, row[5])))
        for row in edges.itertuples(index=False)
    ]
    return spark.createDataFrame(vertices, "id long, features array<float>"), spark.createDataFrame(rows, kinds)


@pytest.mark.spark
def test_spark(spark, tmp_path):
    graph = lotan.Graph(*on_spark(spark), edge_features=["a", "b"], edge_type="relation")
    assert_holds(graph)
    assert_holds(lotan.Graph(*on_spark(spark), edge_features="features", edge_type="relation"))
    check_graph(graph, None, None, 1)
    graph.save(tmp_path / "saved")
    assert_holds(lotan.Graph.read(tmp_path / "saved"))
    assert_holds(lotan.Graph.read(tmp_path / "saved").on_spark(spark))
    edges = arrays().frames(spark)[1]
    assert edges.columns == ["src", "dst", "weight", "edge_attr", "edge_type"]
    both = lotan.Graph(*on_spark(spark), edge_features=["a", "b"], edge_type="relation", undirected=True)
    found, expected = both.arrays(), arrays(undirected=True).arrays()
    np.testing.assert_array_equal(found.edge_attr, expected.edge_attr)
    np.testing.assert_array_equal(found.edge_type, expected.edge_type)
    assert both.frames(spark)[1].count() == len(expected.src)
    assert fingerprint(graph) != fingerprint(lotan.Graph(*on_spark(spark), edge_features=["a", "b"]))


@pytest.mark.nightly  # by day in memory
@pytest.mark.spark
def test_bad_columns_in_spark(spark):
    faults = [
        ({"features": [[1.0], [1.0], None, [1.0], [1.0]]}, {"edge_features": "features"}, "1 rows that are null"),
        ({"features": [[1.0], [1.0, 2.0], [1.0], [1.0], [1.0]]}, {"edge_features": "features"}, "4 rows that are sh"),
        ({"a": [1.0, float("nan"), 1.0, 1.0, 1.0]}, {"edge_features": ["b", "a"]}, "NaN or an infinite number"),
        ({"relation": [0, 1, -1, 0, 1]}, {"edge_type": "relation"}, "1 types that are not among 0, 1, ..."),
        ({}, {"edge_type": "a"}, "edges.a: is of type float, expected integers"),
        ({}, {"edge_features": ["a", "none"]}, "edges: there is no column 'none'"),
    ]
    for columns, options, text in faults:
        with pytest.raises(GraphError) as raised:
            check_graph(lotan.Graph(*on_spark(spark, **columns), **options), None, None, None)
        assert text in str(raised.value)
