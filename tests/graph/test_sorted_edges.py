"""Edges are sorted as Python sorts tuples, whatever they have beside their ends, and ids are found in any order."""

from __future__ import annotations

import numpy as np
import pytest

from lotan.graph.arrays import EdgeColumns, positions_of, sort_edges
from lotan.graph.sorted_edges import sort_ends

EDGES, VERTICES = 400, 9


@pytest.mark.parametrize("vertices", [50, 2**40])
def test_ends_are_sorted_as_by_their_order(vertices: int) -> None:
    first, then = np.random.default_rng(1).integers(0, 50, (2, 400))
    order = np.lexsort((then, first))
    found = sort_ends(first, then, vertices)
    assert np.array_equal(found[0], first[order])
    assert np.array_equal(found[1], then[order])


@pytest.mark.parametrize("vertices", [VERTICES, 2**40])
@pytest.mark.parametrize("given", [(), ("weight",), ("types",), ("attributes", "types"), ("weight", "types")])
def test_edges_are_sorted_as_tuples_are(vertices: int, given: tuple[str, ...]) -> None:
    random = np.random.default_rng(1)
    src, dst = random.integers(0, VERTICES, (2, EDGES))
    weight = random.choice([0.0, 0.5, 2.0], EDGES).astype(np.float32) if "weight" in given else None
    attributes = random.integers(0, 2, (EDGES, 2)).astype(np.float32) if "attributes" in given else None
    types = random.integers(0, 3, EDGES) if "types" in given else None
    beside = [column for column in (weight, types, attributes) if column is not None]
    flat = [dst, src, *(column for one in beside for column in (one.T if one.ndim == 2 else [one]))]
    expected = np.array(sorted(zip(*flat, strict=True)))
    edges = EdgeColumns(src, dst, weight, attributes, types)
    found = sort_edges(edges, vertices)
    for again in (found, sort_edges(found, vertices, alike_in_order=True)):
        columns = [again.dst, again.src, again.weight, again.edge_type, again.edge_attr]
        assert np.array_equal(np.column_stack([column for column in columns if column is not None]), expected)


@pytest.mark.parametrize("ids", [[0, 1, 2, 3], [0, 2, 1, 3], [7, -2, 5], [0, 9, 2]])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, object])
def test_ids_are_found_wherever_they_stand(ids: list[int], dtype: type) -> None:
    asked = [3, 0, -1, 7, 12, -2]
    expected = [ids.index(one) if one in ids else -1 for one in asked]
    found = positions_of(np.array(ids), np.array(asked, dtype=dtype))
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert positions_of(np.array([], dtype=np.int64), np.array(asked, dtype=dtype)).tolist() == [-1] * len(asked)
