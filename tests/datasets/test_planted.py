"""Generated graphs: skewed, planted, repeatable, in memory and on disk, and never more than a block of them at a time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow.parquet
import pytest

from lotan.cli import main
from lotan.datasets import generate, planted, write_npz, write_parquet
from lotan.datasets.planted import PlantedGraph
from lotan.errors import ConfigurationError
from lotan.graph.graph import Graph


def same(graph, other):
    for name in ("ids", "features", "src", "dst", "label", "split"):
        np.testing.assert_array_equal(getattr(graph.arrays(), name), getattr(other.arrays(), name))


def test_degrees_are_skewed_at_both_ends_and_classes_equal():
    arrays = generate(2000, 20000, width=8, classes=4, seed=1).arrays()
    assert len(arrays.src) == len(arrays.dst) == 20000
    assert np.bincount(arrays.label).tolist() == [500] * 4
    for ends in (arrays.src, arrays.dst):
        degrees = np.sort(np.bincount(ends, minlength=2000))
        assert 0.15 < degrees[-20:].sum() / 20000 < 0.35  # the top hundredth; by the power law's integral 0.23
        assert np.bincount(arrays.label[ends], minlength=4).min() > 0.15 * 20000  # no class has all hubs


def test_popularity_falls_as_a_power_of_the_rank():
    ranks = planted._ranks(np.linspace(0, 1, 1_000_000, endpoint=False), np.int64(10_000))
    assert (ranks.min(), ranks.max()) == (0, 9999)
    share = np.bincount(ranks, minlength=10_000)
    for rank in (10, 100, 1000):
        near, far = share[rank : 2 * rank].sum(), share[2 * rank : 4 * rank].sum()
        assert near / far == pytest.approx(2**-0.2, rel=0.05)  # by the integral of x ** -0.8


def test_edges_and_features_follow_the_class_so_that_neighbours_help():
    arrays = generate(4000, 80000, width=32, classes=8, seed=2).arrays()
    alike = (arrays.label[arrays.src] == arrays.label[arrays.dst]).mean()
    assert alike == pytest.approx(0.7 + 0.3 / 8, abs=0.02)
    sums = arrays.features.copy()
    np.add.at(sums, arrays.dst, arrays.features[arrays.src])
    means = sums / (1 + np.bincount(arrays.dst, minlength=4000))[:, None]
    alone, together = nearest_centroid(arrays, arrays.features), nearest_centroid(arrays, means)
    assert 0.3 < alone < 0.9
    assert together > alone + 0.05


def nearest_centroid(arrays, features):
    """Accuracy on the test vertices of the nearest mean of the training vertices."""
    train, test = arrays.split == 0, arrays.split == 2
    centroids = np.stack([features[train & (arrays.label == one)].mean(0) for one in range(8)])
    distances = ((features[test][:, None] - centroids) ** 2).sum(-1)
    return (distances.argmin(1) == arrays.label[test]).mean()


def test_splits_have_their_shares():
    split = generate(20000, 0, width=1, classes=1).arrays().split
    np.testing.assert_allclose(np.bincount(split) / 20000, [0.54, 0.18, 0.28], atol=0.02)


def test_the_seed_decides_all(tmp_path):
    graph = generate(300, 900, width=4, classes=3, seed=5)
    same(graph, generate(300, 900, width=4, classes=3, seed=5))
    other = generate(300, 900, width=4, classes=3, seed=6).arrays()
    for name in ("features", "src", "dst", "label", "split"):
        assert not np.array_equal(getattr(graph.arrays(), name), getattr(other, name)), name


def test_blocks_are_of_their_size_and_differ(monkeypatch):
    monkeypatch.setattr(planted, "EDGE_ROWS", 100)
    monkeypatch.setattr(planted, "VERTEX_NUMBERS", 100 * 4)
    graph = PlantedGraph(250, 350, width=4, classes=3)
    edges, vertices = list(graph.edge_blocks()), list(graph.vertex_blocks())
    assert [len(block.src) for block in edges] == [100, 100, 100, 50]
    assert [len(block.ids) for block in vertices] == [100, 100, 50]
    assert np.concatenate([block.ids for block in vertices]).tolist() == list(range(250))
    assert not np.array_equal(edges[0].dst, edges[1].dst)
    assert not np.array_equal(vertices[0].features, vertices[1].features)


@pytest.mark.parametrize(("write", "name"), [(write_parquet, "graph"), (write_npz, "graph.npz")])
@pytest.mark.parametrize("edges", [900, 0])
def test_what_is_written_is_the_graph_in_memory(write, name, edges, tmp_path, monkeypatch):
    monkeypatch.setattr(planted, "EDGE_ROWS", 400)
    monkeypatch.setattr(planted, "VERTEX_NUMBERS", 500)
    write(PlantedGraph(300, edges, width=4, classes=3, seed=7), tmp_path / "new" / name)
    same(Graph.read(tmp_path / "new" / name), generate(300, edges, width=4, classes=3, seed=7))
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_a_block_is_a_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(planted, "EDGE_ROWS", 400)
    write_parquet(PlantedGraph(10, 1000, width=4, classes=3), tmp_path / "graph")
    edges = pyarrow.parquet.ParquetFile(tmp_path / "graph" / "edges.parquet").metadata
    assert [edges.row_group(at).num_rows for at in range(edges.num_row_groups)] == [400, 400, 200]


def test_memory_does_not_grow_with_the_edges(tmp_path, monkeypatch):
    monkeypatch.setattr(planted, "EDGE_ROWS", 10_000)

    def peak(edges):
        tracemalloc.start()
        write_parquet(PlantedGraph(100, edges, width=4, classes=3), tmp_path / str(edges))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(500_000) < 1.3 * peak(20_000) + 100_000


@pytest.mark.parametrize("write", [write_parquet, write_npz])
def test_nothing_is_overwritten_and_nothing_half_done_stays(write, tmp_path, monkeypatch):
    place = tmp_path / "graph"
    place.touch()
    with pytest.raises(ConfigurationError, match="exists; name another place"):
        write(PlantedGraph(10, 10, width=4, classes=3), place)
    place.unlink()

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(PlantedGraph, "_edge_block", full)
    with pytest.raises(OSError, match="no space left"):
        write(PlantedGraph(10, 10, width=4, classes=3), place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("form", "file"), [("parquet", "made"), ("npz", "made.npz")])
def test_a_graph_made_by_name_is_found_by_name(form, file, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOTAN_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    shape = ["--vertices", "30", "--edges", "70", "--features", "5", "--classes", "3", "--seed", "9"]
    assert main(["datasets", "generate", "made", *shape, "--format", form]) == 0
    words = f"30 vertices, 70 edges, 5 features, 3 classes, seed 9 written to {tmp_path / 'data' / file}"
    assert words in capsys.readouterr().out
    same(Graph.read("made"), generate(30, 70, 5, 3, 9))
    assert main(["datasets"]) == 0
    assert "made" in capsys.readouterr().out


def test_a_path_is_where_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("LOTAN_DATA", str(tmp_path / "data"))
    place = tmp_path / "deep" / "made"
    assert main(["datasets", "generate", str(place), "--vertices", "9", "--edges", "0", "--classes", "3"]) == 0
    assert Graph.read(place).statistics.vertices == 9


def test_more_classes_than_vertices_are_refused(tmp_path, capsys):
    assert main(["datasets", "generate", str(tmp_path / "made"), "--vertices", "3", "--classes", "4"]) == 2
    assert "3 vertices cannot be of 4 classes" in capsys.readouterr().err


def test_defaults_are_those_of_the_command():
    assert PlantedGraph() == PlantedGraph(169_343, 2_400_000, 128, 40, 0)
