"""Tables in many containers make the same graph, and what is no table is named with the line that converts it."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from lotan.errors import GraphError
from lotan.graph.graph import Graph
from lotan.graph.hetero_graph import HeteroGraph

VERTICES = {"id": [3, 1, 2], "features": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "label": [0, 1, 0]}
EDGES = {"src": [1, 2], "dst": [2, 3]}


class Stream:
    """A table of another library, which speaks Arrow's stream and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FORMS = {
    "pandas": pd.DataFrame,
    "arrow": pa.table,
    "a stream of Arrow": lambda table: Stream(pa.table(table)),
    "a stream that is read once": lambda table: pa.table(table).to_reader(),
    "a record batch": lambda table: pa.table(table).to_batches()[0],
    "lists": dict,
    "arrays": lambda table: {name: np.array(cells) for name, cells in table.items()},
    "tensors": lambda table: {name: torch.tensor(cells) for name, cells in table.items()},
    "tensors in cells": lambda table: pd.DataFrame(
        {name: [torch.tensor(cell) for cell in cells] if name == "features" else cells for name, cells in table.items()}
    ),
    "matrices in cells": lambda table: pd.DataFrame(
        {name: [np.array([cell]) for cell in cells] if name == "features" else cells for name, cells in table.items()}
    ),
    "big-endian arrays": lambda table: {
        name: np.array(cells).astype(np.array(cells).dtype.newbyteorder(">")) for name, cells in table.items()
    },
}


def same(one: Graph, other: Graph) -> None:
    for name, array in vars(one.arrays()).items():
        np.testing.assert_array_equal(getattr(other.arrays(), name), array, name)


@pytest.mark.parametrize("of_edges", ["pandas", "arrow", "arrays", "a stream that is read once"])
@pytest.mark.parametrize("form", FORMS)
def test_every_container_makes_the_same_graph(form, of_edges):
    same(Graph(FORMS[form](VERTICES), FORMS[of_edges](EDGES)), Graph(pd.DataFrame(VERTICES), pd.DataFrame(EDGES)))


def test_streams_that_are_read_once_make_a_graph_by_types():
    once = FORMS["a stream that is read once"]
    relation = "paper", "cites", "paper"
    assert len(HeteroGraph({"paper": once(VERTICES)}, {relation: once(EDGES)}).arrays().src) == len(EDGES["src"])


def test_sparse_columns_and_big_endian_columns_of_pandas():
    frame = pd.DataFrame({"id": np.array([1, 2], ">i8"), "a": pd.arrays.SparseArray([0.0, 2.0]), "b": [1, 2]})
    graph = Graph(frame, pd.DataFrame({"src": [1], "dst": [2]}), features=["a", "b"])
    assert graph.arrays().features.tolist() == [[0.0, 1.0], [2.0, 2.0]]


def test_sparse_matrices_of_scipy_are_features():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0]]))
    for graph in (
        Graph({"id": [0, 1], "features": matrix}, {"src": [0], "dst": [1]}),
        Graph.from_arrays(matrix, [0], [1]),
    ):
        assert graph.arrays().features.tolist() == [[0.0, 1.0], [2.0, 0.0]]


def test_ids_may_be_the_index_and_ends_may_have_the_names_of_networkx():
    frame = pd.DataFrame(VERTICES).set_index("id")
    edges = pd.DataFrame(EDGES).rename(columns={"src": "source", "dst": "target"})
    same(Graph(frame, edges), Graph(pd.DataFrame(VERTICES), pd.DataFrame(EDGES)))
    frame, ends = frame.rename_axis("user"), pd.DataFrame(EDGES).set_index(["src", "dst"])
    same(Graph(frame, ends, id="user"), Graph(pd.DataFrame(VERTICES), pd.DataFrame(EDGES)))
    with pytest.raises(GraphError, match="there is no column 'id'; the columns are features, label, user"):
        Graph(frame, ends).arrays()


def test_names_of_ids_and_ends_are_given():
    vertices = pd.DataFrame(VERTICES).rename(columns={"id": "user"})
    edges = pd.DataFrame(EDGES).rename(columns={"src": "from", "dst": "to"})
    same(Graph(vertices, edges, id="user", src="from", dst="to"), Graph(VERTICES, EDGES))


def test_what_is_no_table_is_named_with_the_line_that_converts_it():
    networkx, scipy = pytest.importorskip("networkx"), pytest.importorskip("scipy.sparse")
    for edges, words in (
        (networkx.path_graph(3), "networkx.to_pandas_edgelist"),
        (networkx.path_graph(3).edges, "networkx.to_pandas_edgelist"),
        (scipy.eye(3, format="csr"), r"src, dst = adjacency\.nonzero\(\)"),
        ([(1, 2)], "Edges are a list, which is no table"),
        ("edges.parquet", r"lotan\.Graph\.read_tables"),
        (None, "Edges are missing"),
    ):
        with pytest.raises(GraphError, match=words):
            Graph(VERTICES, edges)
    with pytest.raises(GraphError, match=r"networkx\.to_pandas_edgelist"):
        Graph(networkx.path_graph(3))
    with pytest.raises(GraphError, match="columns have different lengths: src has 2, dst has 1"):
        Graph(VERTICES, {"src": [1, 2], "dst": [2]}).arrays()


def test_advice_fits_the_fault():
    with pytest.raises(GraphError, match=r"features: cannot be read: .*\. Cast the column to numbers or strings"):
        Graph({**VERTICES, "features": np.ones((3, 2), complex)}, EDGES).arrays()
    with pytest.raises(GraphError, match=r"id: cannot be read: .*\. Give every row of the column the same type"):
        Graph({**VERTICES, "id": [1, "b", 3]}, EDGES).arrays()
    with pytest.raises(GraphError, match="label: holds more than 10,000 different texts"):
        Graph.from_arrays(np.ones((10_001, 1)), [], [], label=[str(number) for number in range(10_001)]).arrays()


@pytest.mark.parametrize(
    "features", [torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, 2).to_sparse()], ids=["bfloat16", "sparse"]
)
def test_tensors_of_other_types_and_layouts_are_features(features):
    for graph in (
        Graph.from_arrays(features, [0], [1]),
        Graph({"id": [0, 1], "features": features}, {"src": [0], "dst": [1]}),
    ):
        assert graph.arrays().features.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_columns_of_files_that_look_like_data_and_are_not_read_are_named(tmp_path):
    pd.DataFrame(VERTICES).to_parquet(tmp_path / "vertices.parquet")
    pd.DataFrame(EDGES).assign(edge_weight=1.0, weight=1.0).to_parquet(tmp_path / "edges.parquet")
    said = (
        "edges: the column edge_weight is not read; name it where the graph is made, as weight, edge_features or edge_type",
    )
    assert Graph.read(tmp_path).notes == said
    assert Graph.read_tables(tmp_path / "vertices.parquet", tmp_path / "edges.parquet").notes == said
    assert Graph.read(tmp_path, weight="edge_weight").notes == ()


def test_columns_that_look_like_data_and_are_not_read_are_named():
    edges = pd.DataFrame(EDGES).assign(edge_weight=1.0, edge_type=0, when=1)
    graph = Graph(VERTICES, edges)
    assert graph.notes == (
        "edges: the columns edge_weight, edge_type are not read; name them where the graph is made, as weight, "
        "edge_features or edge_type",
    )
    assert Graph(VERTICES, edges, weight="edge_weight", edge_type="edge_type").notes == ()
    vertices = pd.DataFrame(VERTICES).rename(columns={"label": "y"})
    assert Graph(vertices, EDGES).notes == (
        "vertices: there is no column label, and y is not read; name it where the graph is made, as label",
    )
    assert Graph(vertices, EDGES, label="y").notes == Graph(vertices, EDGES, features=["y"]).notes == ()


@pytest.mark.parametrize(
    ("make", "names", "message"),
    [
        (Graph.from_arrays, {"edge_weight": [1.0]}, "'edge_weight': pass it as weight"),
        (Graph.from_arrays, {"x": [[1.0]], "y": [0]}, "'x': pass it as features"),
        (Graph.from_arrays, {"val_mask": [True]}, "pass one array split"),
        (Graph.from_arrays, {"lable": [0]}, "did you mean 'label'"),
        (partial(Graph, VERTICES, EDGES), {"edge_attr": "a"}, "name its columns by edge_features"),
        (partial(Graph, VERTICES, EDGES), {"task": "regression"}, "pass it to the Trainer"),
        (partial(HeteroGraph, {}, {}), {"undirected": True}, "give the reverses as relations"),
    ],
    ids=str,
)
def test_arguments_of_other_names_are_refused(make, names, message):
    with pytest.raises(GraphError, match=message):
        make(**names)


def test_labels_that_are_ids_are_refused_and_may_be_numbers_to_predict():
    graph = Graph.from_arrays([[1.0], [2.0]], [0], [1], label=[5, 2**40], split=[0, 0])
    with pytest.raises(GraphError, match="classes are numbered up to 1,099,511,627,776"):
        _ = graph.labels.outputs
    assert graph.for_task("regression").labels.outputs == 1
    assert "2 vertices, 1 features; labels: 1,099,511,627,777 classes" in repr(graph)


def test_every_reader_takes_the_column_weight(tmp_path):
    edges = pd.DataFrame(EDGES).assign(weight=2.5)
    Graph(VERTICES, edges).save(tmp_path)
    tables = tmp_path / "vertices.parquet", tmp_path / "edges.parquet"
    typed = HeteroGraph({"v": VERTICES}, {("v", "to", "v"): edges})
    for graph in (Graph(VERTICES, edges), Graph.read(tmp_path), Graph.read_tables(*tables), typed):
        assert set(graph.arrays().weight) == {2.5}
        assert graph.names.weight_words(graph.statistics.weighted) == "column weight"
    for graph in (Graph(VERTICES, edges, weight=None), Graph.read(tmp_path, weight=None), Graph(VERTICES, EDGES)):
        assert graph.arrays().weight is None
        assert graph.names.weight_words(graph.statistics.weighted) == "none"
    assert HeteroGraph({"v": VERTICES}, {("v", "to", "v"): EDGES}).arrays().weight is None


def test_arrays_take_tensors_an_edge_index_and_names():
    graph = Graph.from_arrays(
        torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True),
        edge_index=torch.tensor([[0, 1], [1, 2]]),
        label=["b", "a", None],
        split=["train", "Validation", None],
    )
    arrays = graph.arrays()
    assert (arrays.src.tolist(), arrays.dst.tolist()) == ([0, 1], [1, 2])
    assert (arrays.label.tolist(), arrays.classes) == ([1, 0, -1], ("a", "b"))
    assert arrays.split.tolist() == [0, 1, -1]
    with pytest.raises(GraphError, match="src and dst were given too"):
        Graph.from_arrays([[1.0]], [0], [0], edge_index=[[0], [0]])
    scipy = pytest.importorskip("scipy.sparse")
    with pytest.raises(GraphError, match=r"edge_index: is a sparse matrix.*src, dst = adjacency\.nonzero\(\)"):
        Graph.from_arrays([[1.0]], edge_index=scipy.eye(1))
    with pytest.raises(GraphError, match=r"edge_index: is int64 of shape \[2\]"):
        Graph.from_arrays([[1.0]], edge_index=[0, 0])


def test_splits_are_three_masks_in_order_or_by_name():
    train, val, test = [True, False, False], [False, True, False], [False, False, False]
    by_name = {"train": torch.tensor(train), "valid": np.array(val)}
    for split in ([train, val, test], torch.tensor([train, val, test]), by_name):
        assert Graph.from_arrays(np.ones((3, 1)), [0], [1], split=split).arrays().split.tolist() == [0, 1, -1]
    for split, words in (
        ({"trian": train}, "by 'trian'"),
        ({"train": [0, 1, 1]}, "expected masks of booleans"),
        ([train] * 3, "1 vertices"),
    ):
        with pytest.raises(GraphError, match=words):
            Graph.from_arrays(np.ones((3, 1)), [0], [1], split=split)
    columns = VERTICES | {"a": train, "b": val}
    graph = Graph(columns, EDGES, split={"validation": "b", "train": "a"})
    assert graph.arrays().split.tolist() == [1, -1, 0]  # in the order of ids, which are 3, 1, 2
    with pytest.raises(GraphError, match="columns of masks by 'train', 'val' and 'test'"):
        Graph(columns, EDGES, split={"train": "a", "other": "b"})
    for features in ({"a", "b"}, {"a": 1}):
        with pytest.raises(GraphError, match="no order of columns"):
            Graph(columns, EDGES, features=features)


def test_a_graph_says_what_it_is(tmp_path):
    graph = Graph(VERTICES, EDGES, undirected=True)
    assert (graph.num_vertices, graph.num_edges, len(graph)) == (3, 4, 3)
    assert repr(graph) == (
        "Graph in this process\n  3 vertices, 2 features; labels: 2 classes\n  4 edges, undirected; weights: none\n"
        "  splits: train 0, val 0, test 0"
    )
    graph.save(tmp_path / "graph")
    assert "3 vertices, 2 features; label: label, split: split" in repr(Graph.read(tmp_path / "graph"))
    (tmp_path / "graph" / "edges.parquet").write_text("")
    assert repr(Graph(VERTICES, {"src": [1], "dst": [9]})).endswith("drop these edges.")


def test_graphs_in_memory_and_in_files_can_be_pickled(tmp_path):
    graph = Graph(VERTICES, EDGES, undirected=True)
    graph.save(tmp_path / "graph")
    relabelled = graph.relabelled(np.array([5, 4, 3]), np.zeros(3, np.int8))
    for one in (graph, Graph.read(tmp_path / "graph"), relabelled, graph.for_task("regression")):
        same(pickle.loads(pickle.dumps(one)), one)


@pytest.mark.spark
def test_one_table_in_memory_and_one_in_spark(spark):
    expected = Graph(VERTICES, EDGES)
    vertices, edges = (spark.createDataFrame(pd.DataFrame(table)) for table in (VERTICES, EDGES))
    for graph in (
        Graph(pd.DataFrame(VERTICES), edges),
        Graph(vertices, pd.DataFrame(EDGES)),
        Graph(FORMS["arrays"](VERTICES), edges),
        Graph(vertices.pandas_api(), edges),
    ):
        assert graph.origin == "spark"
        same(graph, expected)
    assert "vertices: id, features, label" in repr(Graph(vertices, edges))
    with pytest.raises(GraphError, match="in Spark cannot be pickled"):
        pickle.dumps(Graph(vertices, edges))
