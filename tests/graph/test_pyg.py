"""Graphs of PyG: what is read, what is written, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from lotan.errors import GraphError
from lotan.graph.graph import Graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.data import Data, HeteroData


def example(**others):
    given = {
        "x": torch.arange(8.0).view(4, 2),
        "edge_index": torch.tensor([[3, 0, 1, 1], [0, 1, 1, 2]]),
        "y": torch.tensor([0, 2, 1, -1]),
        "train_mask": torch.tensor([True, True, False, False]),
        "val_mask": torch.tensor([False, False, True, False]),
    }
    return Data(**{**given, **others})


def test_reads_features_edges_labels_and_masks():
    arrays = Graph.from_pyg(example(edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))).arrays()
    assert arrays.features.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert list(zip(arrays.src, arrays.dst, arrays.weight, strict=True)) == [(3, 0, 1), (0, 1, 2), (1, 1, 3), (1, 2, 4)]
    assert arrays.label.tolist() == [0, 2, 1, -1]
    assert arrays.split.tolist() == [0, 0, 1, -1]


@pytest.mark.parametrize("weight", [torch.rand(4), torch.rand(4, 1)])
def test_one_number_an_edge_is_its_weight(weight):
    arrays = Graph.from_pyg(example(edge_attr=weight)).arrays()
    assert sorted(arrays.weight) == sorted(weight.flatten().tolist())


def test_reads_attributes_and_types_of_edges():
    attributes, types = torch.tensor([[1.0, 5], [2, 6], [3, 7], [4, 8]]), torch.tensor([0, 2, 1, 0])
    graph = Graph.from_pyg(example(edge_attr=attributes, edge_type=types))
    assert graph.arrays().weight is None
    data = graph.to_pyg()
    assert data.edge_index.tolist() == [[3, 0, 1, 1], [0, 1, 1, 2]]
    assert torch.equal(data.edge_attr, attributes)
    assert torch.equal(data.edge_type, types)
    again = Graph.from_pyg(data).arrays()
    assert np.array_equal(again.edge_attr, attributes)
    assert again.edge_type.tolist() == types.tolist()


def test_weights_and_attributes_may_both_be_there():
    arrays = Graph.from_pyg(example(edge_weight=torch.full((4,), 2.0), edge_attr=torch.rand(4))).arrays()
    assert arrays.weight.tolist() == [2.0] * 4
    assert arrays.edge_attr.shape == (4, 1)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (torch.tensor([[0], [1], [1], [0]]), "classification"),
        (torch.rand(4), "regression"),
        (torch.tensor([[0.0, 1.0]] * 4), "multilabel"),
    ],
)
def test_labels_decide_the_task(y, task):
    assert Graph.from_pyg(example(y=y)).labels.task == task


def test_goes_there_and_back():
    ids = torch.tensor([40, 10, 30, 20])
    graph = Graph.from_pyg(example(edge_weight=torch.rand(4), n_id=ids))
    assert graph.arrays().ids.tolist() == [10, 20, 30, 40]
    data = graph.to_pyg()
    assert data.validate()
    assert data.n_id.tolist() == [10, 20, 30, 40]
    again = Graph.from_pyg(data).arrays()
    for name, value in vars(graph.arrays()).items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, getattr(again, name)), name


def test_ids_may_be_strings():
    graph = Graph.from_arrays([[1.0], [2.0]], ["b"], ["a"], ids=["b", "a"])
    data = graph.to_pyg()
    assert data.n_id == ["a", "b"]
    assert data.edge_index.tolist() == [[1], [0]]
    assert Graph.from_pyg(data).arrays().ids.tolist() == ["a", "b"]


def test_nothing_is_shared_with_the_data():
    graph = Graph.from_pyg(data := example())
    data.x.fill_(9)
    graph.to_pyg().x.fill_(8)
    assert graph.arrays().features[0].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Data(edge_index=torch.zeros(2, 0, dtype=torch.long)), "has no x"),
        (Data(x=torch.ones(2, 1)), "has no edge_index; .*ToSparseTensor"),
        (example(edge_index=torch.tensor([[0, 9], [1, 1]])), r"data.edge_index: names vertex 9; expected 0 to 3"),
        (example(edge_index=torch.tensor([[0, -1], [1, 1]])), r"names vertex -1"),
        (example(edge_index=torch.tensor([[0.0], [1.0]])), r"float32 of shape \[2, 1\]; expected integers"),
        (example(edge_attr=torch.ones(3, 2)), r"data.edge_attr: has shape \[3, 2\].*data.edge_attr = None"),
        (example(edge_attr=torch.ones(4, 2, 2)), r"data.edge_attr: has shape \[4, 2, 2\], .*expected numbers each"),
        (example(edge_weight=torch.ones(3)), r"data.edge_weight: has shape \[3\]"),
        (example(edge_type=torch.zeros(3, dtype=torch.long)), r"data.edge_type: has shape \[3\]"),
        (example(edge_type=torch.zeros(4)), "edge_type: .*integers from 0"),
        (example(y=torch.tensor([1])), "labels of whole graphs do not train"),
        (example(train_mask=torch.ones(4, 10, dtype=torch.bool)), r"data.train_mask\[:, 0\]"),
        (
            example(train_mask=torch.tensor([0, 1])),
            r"data.train_mask: is int64 of shape \[2\]; expected booleans, \[4\]",
        ),
        (example(test_mask=torch.ones(4, dtype=torch.bool)), "data.test_mask: .* another mask has too"),
        (example(x=torch.ones(4, 1).to_sparse()), "data.x: .*dense tensor"),
        (example(n_id=torch.arange(3)), r"data.n_id: has shape \[3\]"),
        (HeteroData(a={"x": torch.ones(1, 1)}), "several types of vertices"),
        (3, "int has no x"),
    ],
)
def test_says_what_is_wrong(data, words):
    with pytest.raises(GraphError, match=words):
        Graph.from_pyg(data)
