"""Edges that are read part by part and sorted in files are those that are sorted in memory, and few are there at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import lotan
from lotan.engines.local.level_order import order_by_level
from lotan.errors import GraphError
from lotan.graph import arrays, edges_in_files
from lotan.graph.arrays import EdgeColumns, GraphArrays
from lotan.graph.edges_in_files import sort_in_files
from lotan.memory.mapped import MappedMemory
from lotan.validation.check import check_graph

VERTICES, EDGES, MOST = 50, 600, 40


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges_in_files, "EDGES_READ", MOST)
    monkeypatch.setattr("lotan.memory.mapped.PART_BYTES", 100)
    parts = EdgeColumns.parts
    monkeypatch.setattr(EdgeColumns, "parts", lambda self, rows=arrays.EDGES_READ: parts(self, min(rows, 37)))
    read = edges_in_files.table_parts
    monkeypatch.setattr(edges_in_files, "table_parts", lambda *given: read(*given[:3], 23))


def ends(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random edges with a hub, parallel edges, self-loops, and vertices without in-edges."""
    random = np.random.default_rng(seed)
    src, dst = random.integers(0, VERTICES, EDGES), random.integers(0, VERTICES - 9, EDGES)
    src[:300] %= 7
    dst[:100] = 11
    return src, dst


def written(folder: Path, given: str, text_ids: bool = False, undirected: bool = False) -> lotan.Graph:
    random = np.random.default_rng(1)
    ids = np.array([f"v{number}" for number in range(VERTICES)]) if text_ids else np.arange(VERTICES) * 3
    order = random.permutation(VERTICES)
    vertices = {
        "id": ids[order].tolist(),
        "features": pa.array(random.random((VERTICES, 2)).tolist(), pa.list_(pa.float32())),
        "label": random.integers(0, 3, VERTICES).tolist(),
        "split": random.choice(["train", "val", None, None, None], VERTICES).tolist(),
    }
    src, dst = ends()
    edges: dict[str, Any] = {"src": ids[src].tolist(), "dst": ids[dst].tolist()}
    if "weight" in given:
        edges["weight"] = random.choice([0.0, 0.5, 2.0], EDGES).tolist()
    if "attributes" in given:
        edges["more"] = pa.array(random.integers(0, 2, (EDGES, 2)).tolist(), pa.list_(pa.float32()))
    if "types" in given:
        edges["kind"] = random.integers(0, 3, EDGES).tolist()
    parquet.write_table(pa.table(vertices), folder / "vertices.parquet")
    parquet.write_table(pa.table(edges), folder / "edges.parquet")
    names = {"edge_features": "more"} if "attributes" in given else {}
    names |= {"edge_type": "kind"} if "types" in given else {}
    return lotan.Graph.read(folder, undirected, **names)


def require_equal(found: GraphArrays, wanted: GraphArrays) -> None:
    for field in fields(GraphArrays):
        ours, theirs = getattr(found, field.name), getattr(wanted, field.name)
        assert np.array_equal(ours, theirs) if isinstance(theirs, np.ndarray) else ours == theirs, field.name


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("given", ["nothing", "weight", "weight, attributes and types", "types"])
def test_arrays_in_files_are_those_in_memory(tmp_path: Path, given: str, undirected: bool) -> None:
    graph = written(tmp_path, given, text_ids=given == "weight", undirected=undirected)
    in_files = graph.in_files()
    whole, found = graph.arrays(), in_files.arrays()
    require_equal(found, whole)
    columns = found.src, found.dst, found.weight, found.edge_attr, found.edge_type
    assert all(column is None or column.ctypes.data in MappedMemory._maps for column in columns)
    assert in_files.statistics == graph.statistics
    assert in_files.profile == graph.profile
    assert check_graph(in_files, None, None, None) == check_graph(graph, None, None, None)


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("given", ["nothing", "weight, attributes and types"])
@pytest.mark.parametrize("deepest", [0, 2])
def test_the_order_of_levels_in_files_is_that_in_memory(tmp_path: Path, given: str, deepest: int) -> None:
    graph = written(tmp_path, given)
    found = graph.in_files().arrays()
    order, wanted = (order_by_level(one, deepest) for one in (found, graph.arrays()))
    assert order is not None
    assert wanted is not None
    assert order.counts == wanted.counts
    assert np.array_equal(order.rows, wanted.rows)
    placed = order.placed(found, MappedMemory())
    require_equal(placed, wanted.placed(graph.arrays()))
    columns = placed.src, placed.dst, placed.weight, placed.edge_attr, placed.edge_type
    assert all(column is None or column.ctypes.data in MappedMemory._maps for column in columns)


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("undirected", [False, True])
def test_no_more_edges_are_sorted_at_one_time_than_may_be(monkeypatch: pytest.MonkeyPatch, undirected: bool) -> None:
    src, dst = ends()
    counts, sort = [], arrays.sort_ends
    monkeypatch.setattr(arrays, "sort_ends", lambda *given: counts.append(len(given[0])) or sort(*given))
    sort_in_files(EdgeColumns(src, dst, None).parts, VERTICES, MappedMemory(), undirected)
    hubs = np.bincount(dst, minlength=VERTICES) + undirected * np.bincount(src, minlength=VERTICES)
    assert sum(count > MOST for count in counts) <= int((hubs > MOST).sum())
    assert max(counts) <= max(MOST, hubs.max())


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("undirected", [False, True])
def test_a_graph_without_edges_is_read_into_files(tmp_path: Path, undirected: bool) -> None:
    written(tmp_path, "weight")
    edges = parquet.read_table(tmp_path / "edges.parquet")
    parquet.write_table(edges.slice(0, 0), tmp_path / "edges.parquet")
    graph = lotan.Graph.read(tmp_path, undirected)
    require_equal(graph.in_files().arrays(), graph.arrays())


@pytest.mark.usefixtures("few_at_a_time")
def test_errors_count_the_edges_of_all_parts(tmp_path: Path) -> None:
    graph = written(tmp_path, "nothing")
    edges = parquet.read_table(tmp_path / "edges.parquet").to_pandas()
    edges.loc[[30, 31, 200, 599], "src"] = 1
    edges.to_parquet(tmp_path / "edges.parquet")
    with pytest.raises(GraphError) as wanted:
        graph.arrays()
    with pytest.raises(GraphError) as found:
        graph.in_files().arrays()
    assert "4 edges with an end that is not among the vertices" in str(found.value)
    assert str(found.value) == str(wanted.value)


@pytest.mark.usefixtures("few_at_a_time")
def test_edges_with_other_numbers_of_attributes_are_refused(tmp_path: Path) -> None:
    graph = written(tmp_path, "attributes")
    edges = parquet.read_table(tmp_path / "edges.parquet").to_pandas()
    edges["more"] = [[1.0] if row >= 500 else [1.0, 2.0] for row in range(EDGES)]
    edges.to_parquet(tmp_path / "edges.parquet")
    with pytest.raises(GraphError, match=r"edges.more: .* shorter than the longest \(2 numbers\)"):
        graph.in_files().arrays()


@pytest.mark.parametrize("change", [1, -1])
def test_a_table_that_changes_while_it_is_read_is_refused(change: int) -> None:
    (src, dst), readings = ends(), []

    def parts() -> Iterator[EdgeColumns]:
        readings.append(None)
        rows = EDGES + change * (len(readings) > 1)
        yield EdgeColumns(np.resize(src, rows), np.resize(dst, rows), None)

    with pytest.raises(GraphError, match="the table changed while it was read"):
        sort_in_files(parts, VERTICES, MappedMemory())
