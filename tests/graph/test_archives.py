"""Archives of arrays: PyG's names, masks, labels of every kind, and arrays that mean nothing to a graph."""

from __future__ import annotations

import numpy as np
import pytest

from lotan.errors import GraphError
from lotan.graph.graph import Graph

PLAIN = {"x": np.ones((3, 1)), "edge_src": np.array([0, 1]), "edge_dst": np.array([1, 2])}


def read(folder, **arrays):
    np.savez(folder / "graph.npz", **arrays)
    return Graph.read(folder / "graph.npz")


def test_the_names_of_pyg(tmp_path):
    masks = {"train_mask": np.array([True, False, False]), "val_mask": np.array([False, True, False])}
    index = np.array([[0, 1], [1, 2]])
    graph = read(tmp_path, x=np.ones((3, 1)), edge_index=index, y=np.array([[1], [0], [2]]), **masks)
    assert (graph.arrays().src.tolist(), graph.arrays().dst.tolist()) == ([0, 1], [1, 2])
    assert graph.arrays().label.tolist() == [1, 0, 2]
    assert graph.arrays().split.tolist() == [0, 1, -1]
    assert graph.notes == ()


@pytest.mark.parametrize("kind", [bool, np.int64, np.float32])
def test_an_index_may_be_a_mask(kind, tmp_path):
    graph = read(tmp_path, **PLAIN, train_idx=np.array([0, 0, 1], kind), val_idx=np.array([0]))
    assert graph.arrays().split.tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    "split",
    [
        np.array(["Train", "", "valid"]),
        np.array([b"train", b"none", b"val"]),
        np.array([0, -1, 1]),
        np.array([0, np.nan, 1]),
    ],
    ids=["text", "bytes", "integers", "floats"],
)
def test_splits_may_be_names_in_one_array(split, tmp_path):
    graph = read(tmp_path, **PLAIN, split=split)
    assert graph.arrays().split.tolist() == [0, -1, 1]
    assert graph.notes == ()


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.array(["b", "a", "b"]), [1, 0, 1]),
        (np.array([1.0, np.nan, 0.0]), [1, -1, 0]),
        (np.array([1.5, 2.0, 0.0]), [[1.5], [2.0], [0.0]]),
        (np.array([[1, 0], [0, 1], [1, 1]]), [[1, 0], [0, 1], [1, 1]]),
    ],
)
def test_labels_follow_the_rule_of_all_readers(y, expected, tmp_path):
    np.testing.assert_array_equal(read(tmp_path, **PLAIN, y=y).arrays().label, np.asarray(expected))


def test_unknown_arrays_are_named(tmp_path):
    graph = read(tmp_path, **PLAIN, degree=np.ones(3), names=np.array(["a", "b", "c"]))
    assert graph.notes == ("graph.npz: the arrays degree, names are not read, as they mean nothing to a graph",)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"train_mask": np.array([True, False])}, r"train_mask is of type bool and shape \(2,\), not 3 times"),
        ({"train_mask": np.array([0, 1, 2])}, "train_mask is of type int64"),
        ({"train_mask": np.ones(3, bool), "train_idx": np.array([0])}, "both say which vertices are in 'train'"),
        ({"train_mask": np.ones(3, bool), "val_idx": np.array([0])}, "val_idx shares 1 vertices with train_mask"),
        ({"split": np.array(["train", "dev", ""])}, "split holds 'dev'; a split is one of 'train', 'val', 'test'"),
        ({"split": np.array([0, 1])}, r"split is of type int64 and shape \(2,\), not 3 names of splits"),
        ({"split": np.zeros(3, int), "val_idx": np.array([0])}, "split and val_idx both say"),
        ({"split": np.array(["train", None, "val"])}, r"holds Python objects.*np\.array\(values, dtype=str\)"),
        ({"edge_index": np.zeros((3, 2), int)}, r"edge_index of shape \(3, 2\)"),
        ({"y": np.zeros((3, 1, 1))}, "y is of type float64 and shape"),
    ],
)
def test_arrays_that_contradict_are_refused(changed, words, tmp_path):
    with pytest.raises(GraphError, match=words):
        read(tmp_path, **PLAIN, **changed)


def test_columns_cannot_be_named_in_an_archive(tmp_path):
    np.savez(tmp_path / "graph.npz", **PLAIN)
    with pytest.raises(GraphError, match="has arrays, and no columns to name: leave out features"):
        Graph.read(tmp_path / "graph.npz", features="x")
