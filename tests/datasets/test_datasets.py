"""Built-in, found and generated graphs."""

from __future__ import annotations

import numpy as np
import pytest

from lotan import datasets
from lotan.graph.built_in import NEIGHBOURS
from lotan.graph.graph import Graph


def test_digits_is_what_its_docstring_says():
    arrays = Graph.read("digits").arrays()
    assert arrays.features.shape == (1797, 64)
    assert (arrays.features.min(), arrays.features.max()) == (0, 1)
    assert [int((arrays.split == code).sum()) for code in (0, 1, 2)] == [200, 300, 1297]
    assert np.bincount(arrays.label[arrays.split == 0]).tolist() == [20] * 10
    assert np.bincount(arrays.dst).min() >= NEIGHBOURS
    forward, backward = set(zip(arrays.src, arrays.dst, strict=True)), set(zip(arrays.dst, arrays.src, strict=True))
    assert forward == backward
    assert len(forward) == len(arrays.src)
    assert not (arrays.src == arrays.dst).any()


def test_neighbours_of_digits_are_the_nearest_and_of_equally_near_ones_the_first():
    """So they depend on no rounding: not on the processor, and not on the number of threads."""
    arrays = Graph.read("digits").arrays()
    pixels = np.rint(16 * arrays.features).astype(np.int64)
    edges = set()
    for vertex, point in enumerate(pixels):
        distance = np.square(pixels - point).sum(axis=1)
        distance[vertex] = distance.max() + 1
        nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS].tolist()
        edges |= {(other, vertex) for other in nearest} | {(vertex, other) for other in nearest}
    assert set(zip(arrays.src.tolist(), arrays.dst.tolist(), strict=True)) == edges


def test_neighbours_of_digits_are_mostly_of_one_class():
    arrays = Graph.read("digits").arrays()
    assert (arrays.label[arrays.src] == arrays.label[arrays.dst]).mean() > 0.9


def test_available_lists_built_in_and_found_graphs(tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", num_nodes=1)
    Graph.read("digits").save(tmp_path / "tables")
    (tmp_path / "notes.txt").write_text("no graph")
    (tmp_path / "kg.v1").mkdir()
    (tmp_path / "kg.v1" / "train.txt").write_text("a\tr\tb\n")
    monkeypatch.setenv("LOTAN_DATA", str(tmp_path))
    found = {one.name: one for one in datasets.available()}
    assert found["digits"].place == "built in"
    assert found["mine"].place == str(tmp_path / "mine.npz")
    assert found["tables"].place == str(tmp_path / "tables")
    assert found["kg.v1"].place == str(tmp_path / "kg.v1")
    assert "notes" not in found


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "vertices", "edges", "width", "classes", "labelled"),
    [
        ("cora", 2708, 10556, 1433, 7, (140, 500, 1000)),
        ("citeseer", 3327, 9228, 3703, 6, (120, 500, 1000)),
        ("amazon_photo", 7650, 238162, 745, 8, (160, 240, 7250)),
        ("minesweeper", 10000, 78804, 7, 2, (5000, 2500, 2500)),
    ],
)
def test_public_graphs_are_read_by_path(data, name, vertices, edges, width, classes, labelled):
    graph = Graph.read(data(f"{name}.npz"))
    assert (graph.statistics.vertices, graph.statistics.edges, graph.statistics.width) == (vertices, edges, width)
    assert (graph.labels.task, graph.labels.outputs, graph.labels.labelled) == ("classification", classes, labelled)
