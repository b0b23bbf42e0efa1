"""Graphs from every kind of table: the same arrays, the same frames, ids exactly as they were given."""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import lotan
from lotan.datasets import generate
from lotan.errors import ConfigurationError, GraphError
from lotan.graph.graph import Graph
from lotan.graph.row_keys import vertex_keys

VERTICES = pd.DataFrame(
    {
        "id": [30, 10, 20, 40],
        "features": [[3.0, 0.5], [1.0, 0.5], [2.0, 0.5], [4.0, 0.5]],
        "label": [2, 0, None, 1],
        "split": ["train", "val", None, "test"],
    }
)
EDGES = pd.DataFrame({"src": [10, 10, 20, 40, 10], "dst": [20, 20, 10, 40, 30], "w": [2.0, 1.0, 3.0, 4.0, 5.0]})


def from_spark(spark, vertices=VERTICES, edges=EDGES, **options):
    schema = "id bigint, features array<double>, label int, split string"
    labels = [None if pd.isna(label) else int(label) for label in vertices["label"]]
    rows = list(zip(vertices["id"].tolist(), vertices["features"], labels, vertices["split"], strict=True))
    return Graph(spark.createDataFrame(rows, schema), spark.createDataFrame(edges), **options)


@pytest.mark.parametrize("read_before", [False, True], ids=["before it is read", "after it is read"])
@pytest.mark.parametrize("ids", [None, [1, 2, 5], [5, 1, 2]], ids=["no ids", "sorted ids", "other ids"])
def test_a_graph_shares_no_memory_with_the_arrays_it_was_made_of(ids, read_before):
    ids = None if ids is None else np.array(ids)
    names = np.arange(3) if ids is None else ids
    given = {
        "features": np.arange(6, dtype=np.float32).reshape(3, 2),
        "src": names[[0, 1]],  # copies
        "dst": names[[1, 2]],
        "label": np.arange(3, dtype=np.float32)[:, None],
        "split": np.zeros(3, dtype=np.int8),
        "weight": np.ones(2, dtype=np.float32),
    }
    graph, expected = Graph.from_arrays(**given, ids=ids), Graph.from_arrays(**deepcopy(given), ids=deepcopy(ids))
    if read_before:
        graph.arrays()
    for array in (*given.values(), *([] if ids is None else [ids])):
        array += 1
    for name, array in vars(expected.arrays()).items():
        np.testing.assert_array_equal(getattr(graph.arrays(), name), array, name)


def test_a_graph_that_was_read_shares_no_memory_with_its_data_frames():
    vertices = pd.DataFrame({"id": np.arange(3), "a": np.ones(3, np.float32), "label": np.arange(3)})
    edges = pd.DataFrame({"src": np.array([0, 1]), "dst": np.array([1, 2]), "w": np.ones(2, np.float32)})
    graph = Graph(vertices, edges, features=["a"], weight="w")
    columns = [*(vertices[name].to_numpy() for name in vertices), *(edges[name].to_numpy() for name in edges)]
    arrays = [array for array in vars(graph.arrays()).values() if array is not None]
    assert not any(np.shares_memory(array, column) for array in arrays for column in columns)


def test_labels_given_later_are_copied():
    label, split = np.zeros(5, dtype=np.int64), np.zeros(5, dtype=np.int8)
    graph = generate(5, 4, width=2, classes=2).relabelled(label, split)
    label += 1
    split += 1
    assert not graph.arrays().label.any()
    assert not graph.arrays().split.any()


def test_arrays_are_sorted_and_edges_are_positions():
    arrays = Graph(VERTICES, EDGES, weight="w").arrays()
    assert arrays.ids.tolist() == [10, 20, 30, 40]
    assert arrays.features.tolist() == [[1.0, 0.5], [2.0, 0.5], [3.0, 0.5], [4.0, 0.5]]
    assert arrays.features.dtype == np.float32
    assert arrays.label.tolist() == [0, -1, 2, 1]
    assert arrays.split.tolist() == [1, -1, 0, 2]
    edges = list(zip(arrays.dst.tolist(), arrays.src.tolist(), arrays.weight.tolist(), strict=True))
    assert edges == [(0, 1, 3.0), (1, 0, 1.0), (1, 0, 2.0), (2, 0, 5.0), (3, 3, 4.0)]
    assert arrays.keys.tolist() == vertex_keys(np.array([10, 20, 30, 40])).tolist()


def test_statistics_count_edges_and_self_loops():
    statistics = Graph(VERTICES, EDGES, weight="w").statistics
    assert (statistics.vertices, statistics.edges, statistics.width) == (4, 5, 2)
    assert (statistics.self_loops, statistics.weighted) == (1, True)
    assert statistics.edge_count("self_loops") == 8


@pytest.mark.spark
@pytest.mark.parametrize("undirected", [False, True])
def test_the_profile_is_the_same_wherever_the_graph_is(spark, undirected):
    found = Graph(VERTICES, EDGES, undirected=undirected).profile
    assert from_spark(spark, undirected=undirected).profile == found
    assert found.density == 1.0
    assert found.out_degrees.vertices == ((0, 3, 1) if undirected else (1, 2, 1))


def test_undirected_adds_each_missing_reverse_once():
    arrays = Graph(VERTICES, EDGES, weight="w", undirected=True).arrays()
    edges = sorted(zip(arrays.src.tolist(), arrays.dst.tolist(), arrays.weight.tolist(), strict=True))
    assert edges == [(0, 1, 1.0), (0, 1, 2.0), (0, 2, 5.0), (1, 0, 3.0), (2, 0, 5.0), (3, 3, 4.0)]


def test_undirected_gives_every_parallel_edge_a_reverse():
    graph = Graph.from_arrays(np.ones((2, 1)), np.array([0, 0]), np.array([1, 1]), undirected=True)
    assert (graph.arrays().src.tolist(), graph.arrays().dst.tolist()) == ([1, 1, 0, 0], [0, 0, 1, 1])


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_integer_ids_keep_their_type(dtype):
    vertices = VERTICES.assign(id=VERTICES["id"].astype(dtype))
    graph = Graph(vertices, EDGES)
    assert graph.arrays().ids.dtype == dtype
    assert graph.id_type == {2: "smallint", 4: "int", 8: "bigint"}[np.dtype(dtype).itemsize]


def test_string_ids_are_sorted_as_spark_sorts_them():
    names = {30: "é", 10: "Z", 20: "a", 40: "日"}
    vertices = VERTICES.assign(id=VERTICES["id"].map(names))
    arrays = Graph(vertices, EDGES.assign(src=EDGES["src"].map(names), dst=EDGES["dst"].map(names))).arrays()
    assert arrays.ids.tolist() == ["Z", "a", "é", "日"]
    assert arrays.src.tolist() == [1, 0, 0, 0, 3]


def test_features_of_several_columns():
    vertices = VERTICES.assign(a=[1, 2, 3, 4], b=[0.5, 0.25, 0.125, 0.0])
    assert Graph(vertices, EDGES, features=["b", "a"]).arrays().features.tolist() == [
        [0.25, 2.0],
        [0.125, 3.0],
        [0.5, 1.0],
        [0.0, 4.0],
    ]


def test_tasks_are_told_from_the_labels():
    def task(label):
        graph = Graph(VERTICES.assign(label=label), EDGES)
        return graph.labels.task, graph.labels.outputs, graph.labels.labelled

    assert task([2, 0, None, 1]) == ("classification", 3, (1, 1, 1))
    assert task([[1, 0], [0, 0], None, [1, 1]]) == ("multilabel", 2, (1, 1, 1))
    assert task([0.5, 1.5, None, 2.0]) == ("regression", 1, (1, 1, 1))
    assert task([[0.5, 2.0], [0.0, 1.0], [1.0, 1.0], None]) == ("regression", 2, (1, 1, 0))


@pytest.mark.parametrize(
    ("label", "outputs", "noted"),
    [
        ([3, 1, None, 2], 4, True),
        ([3, 1, None, 2], 5, False),  # an output more than that is no mistake in numbering
        ([2, 0, None, 1], 3, False),
        ([3, 2, None, 2], 4, False),
        (["b", "a", None, "c"], 3, False),
        ([0.5, 1.5, None, 2.0], 1, False),
    ],
)
def test_classes_that_are_numbered_from_1_are_noted(label, outputs, noted):
    """The model would train, with an output for a class that no vertex has."""
    graph = Graph(VERTICES.assign(grade=label).drop(columns="label"), EDGES, label="grade")
    job = lotan.Trainer(lotan.nn.MLP([2, outputs], norm=None), graph, engine="local").job
    notes = [note for note in job.warnings if note.startswith("vertices.grade")]
    assert len(notes) == noted
    assert not noted or ("from 1 to 3" in notes[0] and "vertices['grade'] -= 1" in notes[0] and "3 outputs" in notes[0])


@pytest.mark.spark
def test_spark_finds_the_least_class(spark):
    for label in ([3, 1, None, 2], [2, 0, -1, 1], [None, None, None, None]):
        vertices = VERTICES.assign(label=pd.array(label, dtype="Int64"))
        assert from_spark(spark, vertices).labels == Graph(vertices, EDGES).labels


def test_loss_normalizers_are_those_of_torch():
    graph = Graph.from_arrays(
        np.ones((4, 1)), np.array([0]), np.array([1]), np.array([0, 1, 1, 2]), np.array([0, 0, 0, 1])
    )
    assert graph.loss_spec(None, 3).normalizer == 3
    assert graph.loss_spec(None, 3, [1.0, 0.5, 7.0]).normalizer == 2.0
    assert graph.loss_spec("regression", 2).normalizer == 6
    with pytest.raises(ConfigurationError, match="expected 3 finite numbers"):
        graph.loss_spec(None, 3, [1.0])


def test_loss_without_training_labels_is_refused():
    with pytest.raises(GraphError, match="training set is empty"):
        Graph(VERTICES.drop(columns="split"), EDGES).loss_spec(None, 3)


def test_a_directory_of_parquet_comes_back_as_it_was_saved(tmp_path):
    before = Graph(VERTICES, EDGES, weight="w", undirected=True)
    before.save(tmp_path / "graph")
    after = Graph.read(tmp_path / "graph")
    assert after.origin == "files"
    same_arrays(before.arrays(), after.arrays())
    estimate = after.estimate()
    assert (estimate.vertices, estimate.edges, estimate.width, estimate.weighted) == (4, 6, 2, True)


def test_npz_files_and_names(tmp_path, monkeypatch):
    held = {"num_nodes": 3, "edge_src": [0, 1], "edge_dst": [1, 2], "y": np.array([0, -1, 1], np.int16)}
    sparse = {"x_indptr": [0, 1, 1, 3], "x_indices": [1, 0, 2], "x_data": [1.0, 2.0, 3.0], "x_shape": [3, 3]}
    np.savez(tmp_path / "tiny.npz", **held, **sparse, train_idx=[0], val_idx=[2], test_idx=np.zeros(0, int))
    monkeypatch.setenv("LOTAN_DATA", str(tmp_path))
    graph = Graph.read("tiny")
    assert graph.origin == "memory"
    assert graph.arrays().features.tolist() == [[0, 1, 0], [0, 0, 0], [2, 0, 3]]
    assert graph.arrays().label.tolist() == [0, -1, 1]
    assert graph.arrays().split.tolist() == [0, -1, 1]


@pytest.mark.nightly  # by day: cli, test_training_on_arrays_loads_no_library_that_it_has_no_use_for
@pytest.mark.processes
def test_graphs_in_memory_and_training_there_import_no_spark():
    program = """
import sys, lotan
lotan.Trainer(lotan.nn.MLP([64, 10], norm=None), lotan.Graph.read("digits"), epochs=1, progress=False).fit()
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def same_arrays(one, other):
    for name in ("ids", "features", "label", "split", "src", "dst", "keys"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.weight, other.weight)


@pytest.mark.spark
@pytest.mark.parametrize("undirected", [False, True])
def test_spark_tables_give_the_arrays_of_pandas_tables(spark, undirected):
    graph = from_spark(spark, weight="w", undirected=undirected)
    assert graph.origin == "spark"
    expected = Graph(VERTICES, EDGES, weight="w", undirected=undirected)
    same_arrays(graph.arrays(), expected.arrays())
    assert graph.statistics == expected.statistics
    assert graph.labels == expected.labels
    assert graph.loss_spec(None, 3, [1.0, 2.0, 3.0]) == expected.loss_spec(None, 3, [1.0, 2.0, 3.0])


@pytest.mark.spark
@pytest.mark.parametrize("undirected", [False, True])
def test_frames_are_the_same_from_memory_files_and_spark(spark, tmp_path, undirected):
    in_memory = Graph(VERTICES, EDGES, weight="w", undirected=undirected)
    in_memory.save(tmp_path / "graph")
    graphs = [in_memory, Graph.read(tmp_path / "graph"), from_spark(spark, weight="w", undirected=undirected)]
    frames = [graph.frames(spark) for graph in graphs]
    for table in range(2):
        forms = [sorted(map(tuple, pair[table].collect()), key=str) for pair in frames]
        assert forms[0] == forms[1] == forms[2]
        types = [[(field.name, field.dataType) for field in pair[table].schema] for pair in frames]
        assert types[0] == types[1] == types[2]
    assert [field.dataType.simpleString() for field in frames[0][0].schema] == ["bigint", "array<float>", "int", "int"]
    assert frames[0][1].dtypes == [("src", "bigint"), ("dst", "bigint"), ("weight", "float")]


@pytest.mark.spark
def test_array_labels_of_memory_and_spark_agree(spark):
    vertices = VERTICES.assign(label=[[1.0, 0.0], [0.0, 0.0], None, [1.0, 1.0]])
    schema = "id bigint, features array<float>, label array<int>, split string"
    rows = [
        (i, f, None if lab is None else [int(x) for x in lab], s) for i, f, lab, s in vertices.itertuples(index=False)
    ]
    distributed = Graph(spark.createDataFrame(rows, schema), spark.createDataFrame(EDGES))
    in_memory = Graph(vertices, EDGES)
    assert distributed.labels == in_memory.labels
    forms = [sorted(map(tuple, graph.frames(spark)[0].collect())) for graph in (distributed, in_memory)]
    assert forms[0] == forms[1]


@pytest.mark.spark
def test_ml_vectors_are_features(spark):
    from pyspark.ml.linalg import Vectors

    vertices = spark.createDataFrame([(1, Vectors.dense([1.0, 2.0])), (2, Vectors.sparse(2, {1: 3.0}))], ["id", "v"])
    edges = spark.createDataFrame([(1, 2)], ["src", "dst"])
    assert Graph(vertices, edges, features="v").arrays().features.tolist() == [[1.0, 2.0], [0.0, 3.0]]


@pytest.mark.spark
def test_frames_widen_integer_ids_and_remember_their_type(spark):
    graph = Graph(
        spark.createDataFrame([(1, [1.0]), (2, [2.0])], "id int, features array<float>"),
        spark.createDataFrame([(1, 2)], "src int, dst int"),
    )
    assert graph.frames(spark)[0].dtypes[0] == ("id", "bigint")
    assert graph.id_type == "int"


@pytest.mark.spark
def test_a_spark_graph_is_saved_by_spark(spark, tmp_path):
    from_spark(spark, weight="w", undirected=True).save(tmp_path / "graph")
    after = Graph.read(tmp_path / "graph")
    same_arrays(after.arrays(), Graph(VERTICES, EDGES, weight="w", undirected=True).arrays())
    opened = after.on_spark(spark)
    assert opened.origin == "spark"
    same_arrays(opened.arrays(), after.arrays())


@pytest.mark.spark
def test_anything_with_vertices_and_edges_is_a_graphframe(spark):
    plain = from_spark(spark)
    frame = SimpleNamespace(vertices=plain.tables(spark)[0], edges=plain.tables(spark)[1])
    same_arrays(Graph.from_graphframe(frame, weight="w").arrays(), Graph(VERTICES, EDGES, weight="w").arrays())


@pytest.mark.spark
def test_a_larger_graph_survives_the_way_through_arrow(spark):
    graph = generate(500, 3000, width=5, seed=3)
    again = Graph(*graph.frames(spark), split=None)
    np.testing.assert_array_equal(again.arrays().features, graph.arrays().features)
    np.testing.assert_array_equal(again.arrays().src, graph.arrays().src)
    np.testing.assert_array_equal(again.arrays().label, graph.arrays().label)


@pytest.mark.spark
@pytest.mark.parametrize("label", [np.arange(50) % 3, np.arange(100.0).reshape(50, 2)], ids=["classes", "targets"])
def test_sparse_features_survive_the_way_through_arrow(spark, label):
    features = np.zeros((50, 40), dtype=np.float32)
    features[np.arange(1, 50), np.arange(1, 50) % 40] = np.arange(1, 50)  # the first row has zeros alone
    graph = Graph.from_arrays(features, np.array([0]), np.array([1]), label)
    vertices = graph.frames(spark)[0]
    assert vertices.columns == ["id", "features", "label", "split"]
    rows = vertices.orderBy("id").collect()
    np.testing.assert_array_equal([row.features for row in rows], features)
    np.testing.assert_array_equal([row.label for row in rows], label)


@pytest.mark.spark
@pytest.mark.graphframes
def test_a_graphframe_of_the_library_is_a_graph(spark):
    from graphframes import GraphFrame

    frame = GraphFrame(*from_spark(spark).tables())
    same_arrays(Graph.from_graphframe(frame, weight="w").arrays(), Graph(VERTICES, EDGES, weight="w").arrays())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"features": np.ones(3)}, "features: an array of float64 of shape"),
        ({"dst": np.array([1])}, "dst: 1 entries, but src has 2"),
        ({"weight": np.ones(5)}, "weight: 5 entries, but src has 2"),
        ({"label": np.array([0, 1])}, "label: 2 entries, but features has 3"),
        ({"ids": np.array([0, 1])}, "ids: 2 entries"),
        ({"split": np.array([0, 1, 256])}, "split: holds values other"),  # which int8 would take for 0, train
        ({"split": np.array(["train", "val", "dev"])}, "split: holds values other .*'dev'"),
        ({"features": None}, "features: is None"),
        ({"features": [["a", "b"]] * 3}, "features: an array of <U1"),
        ({"src": np.array([0.5, 1.0])}, "src: an array of float64"),
        ({"src": np.zeros((2, 1), int)}, r"src: an array of int64 of shape \(2, 1\)"),
        ({"ids": np.array([0, "a", None], object)}, "ids: holds 0"),
        ({"ids": np.arange(3, dtype=np.uint64) + np.uint64(2**63)}, "vertices.id: holds numbers beyond 2"),
        ({"label": np.full(3, 2**64 - 1, np.uint64)}, "vertices.label: holds numbers beyond 2"),
        ({"label": [["a"], ["b"], ["c"]]}, "label: holds .*one string for each vertex"),
        ({"label": np.array(["a", 1, None], object)}, r"label: holds \[1\]"),
        ({"weight": ["a", "b"]}, "weight: an array of <U1"),
    ],
)
def test_arrays_that_do_not_fit_together_are_named(changed, message):
    arrays = {"features": np.ones((3, 2)), "src": np.array([0, 1]), "dst": np.array([1, 2])}
    with pytest.raises(GraphError, match=message):
        Graph.from_arrays(**{**arrays, **changed})


def test_lists_make_a_graph_as_arrays_do():
    lists = {"features": [[1.0], [2.0]], "src": [7, 8], "dst": [8, 8], "label": [0, 1], "split": [0, -1], "ids": [7, 8]}
    same_arrays(
        Graph.from_arrays(**lists).arrays(),
        Graph.from_arrays(**{name: np.array(values) for name, values in lists.items()}).arrays(),
    )
    assert len(Graph.from_arrays([[1.0]], [], []).arrays().src) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_idx": np.array([0.5])}, "train_idx holds numbers that are not whole"),
        ({"train_idx": np.array([99])}, "train_idx holds 99, and there are"),
        ({"train_idx": np.array([-1])}, "train_idx holds -1"),  # numpy would take it for the last vertex
        ({"train_idx": np.array([0, 1])}, "val_idx shares 1 vertices with train_idx"),
        ({"y": np.array([2**63, 1, 2], np.uint64)}, "y holds numbers that are not whole, or beyond"),
        ({"edge_src": np.array([np.nan, 1.0])}, "edge_src holds numbers that are not whole"),
        ({"edge_src": np.array([2**63, 1], np.uint64)}, "edge_src holds numbers that are not whole, or beyond"),
        ({"num_nodes": 3.7}, "num_nodes holds numbers that are not whole"),
        ({"x": np.ones((3, 1), complex)}, "x is of type complex128"),
    ],
)
def test_what_an_archive_cannot_mean_is_named(changed, message, tmp_path):
    arrays = {"num_nodes": 3, "x": np.ones((3, 1)), "edge_src": np.array([0, 1]), "edge_dst": np.array([1, 2])}
    splits = {"train_idx": np.array([0]), "val_idx": np.array([1])}
    np.savez(tmp_path / "graph.npz", **{**arrays, **splits, **changed})
    with pytest.raises(GraphError, match=message):
        Graph.read(tmp_path / "graph.npz")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_shape": np.array([10**9, 10**9])}, "2 vertices, but features of shape"),
        ({"x_shape": np.array([2, 10**15])}, "do not fit in memory"),
        ({"x_indices": np.array([0, -1])}, "x_indices holds -1"),
    ],
)
def test_sparse_features_that_cannot_be_are_named(changed, message, tmp_path):
    features = {"x_indptr": np.array([0, 1, 2]), "x_indices": np.array([0, 1]), "x_data": np.ones(2)}
    arrays = {"num_nodes": 2, "edge_src": np.array([0]), "edge_dst": np.array([1]), "x_shape": np.array([2, 2])}
    np.savez(tmp_path / "graph.npz", **{**arrays, **features, **changed})
    with pytest.raises(GraphError, match=message):
        Graph.read(tmp_path / "graph.npz")


def test_an_array_under_an_archives_name_is_refused(tmp_path):
    with open(tmp_path / "graph.npz", "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(GraphError, match="cannot be read as an"):
        Graph.read(tmp_path / "graph.npz")


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        (VERTICES.assign(id=[2**70, 10, 20, 40]), "vertices.id: cannot be read"),
        (VERTICES.assign(id=["\ud800", "b", "c", "d"]), "vertices.id: cannot be read"),
        (VERTICES.assign(id=np.arange(4, dtype=np.uint64) + np.uint64(2**63)), "vertices.id: holds numbers beyond"),
        (VERTICES.assign(label=np.full(4, 2**64 - 1, np.uint64)), "vertices.label: holds numbers beyond"),
        (pd.concat([VERTICES, VERTICES[["id"]]], axis=1), "vertices.id: several columns have this name"),
        (VERTICES.set_axis(pd.MultiIndex.from_product([VERTICES.columns, ["x"]]), axis=1), "there is no column 'id'"),
        (VERTICES[:0], "the table has no rows"),
    ],
)
def test_columns_that_pandas_can_hold_and_a_graph_cannot(vertices, message):
    with pytest.raises(GraphError, match=message):
        Graph(vertices, EDGES).arrays()


@pytest.mark.parametrize("names", [{"features": []}, {"features": [1]}, {"label": 7}, {"weight": 7}])
def test_names_of_columns_are_names(names):
    with pytest.raises(GraphError, match="expected the name of a column"):
        Graph(VERTICES, EDGES, **names)


def test_a_long_id_does_not_fill_the_screen():
    vertices = VERTICES.assign(id=["x" * 10_000, "x" * 10_000, "b", "c"])
    with pytest.raises(GraphError, match="ids that occur more than once") as raised:
        Graph(vertices, EDGES.assign(src="b", dst="c")).arrays()
    assert len(str(raised.value)) < 300


def test_graphs_without_features(tmp_path):
    """The width is 0, from every kind of source; a pattern or another name still has to be there."""
    ids = pd.DataFrame({"id": [3, 1, 2], "label": [0, 1, 0]})
    ends = pd.DataFrame({"src": [3, 1], "dst": [1, 2]})
    np.savez(tmp_path / "bare.npz", num_nodes=3, edge_src=[2, 0], edge_dst=[0, 1])
    graphs = [
        Graph(ids, ends),
        Graph(ids.assign(features=[[1.0]] * 3), ends, features=None),
        Graph.from_arrays(src=[3, 1], dst=[1, 2], ids=[3, 1, 2]),
        Graph.from_pyg(Data(edge_index=torch.tensor([[2, 0], [0, 1]]), num_nodes=3)),
        Graph.read(tmp_path / "bare.npz"),
    ]
    graphs[0].save(tmp_path / "saved")
    graphs.append(Graph.read(tmp_path / "saved"))
    assert graphs[-1].estimate().width == 0
    for graph in graphs:
        assert graph.arrays().features.shape == (3, 0)
        assert graph.arrays().src.tolist() == [2, 0]
    with pytest.raises(GraphError, match="there is no column 'x'"):
        Graph(ids, ends, features="x").arrays()
    with pytest.raises(GraphError, match=r"features: is None; .*Or give ids"):
        Graph.from_arrays(src=[0], dst=[1])
