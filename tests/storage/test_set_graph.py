"""The graph of partitions: read part by part into files, it is the one that is made in memory at one time."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lotan
from lotan.graph.arrays import GraphArrays
from lotan.memory.mapped import MappedMemory
from lotan.storage import set_graph
from lotan.storage.edge_readers import LinkReader
from lotan.storage.link_batches import types_of
from lotan.storage.partitioned_graph import open_partitioned
from lotan.storage.set_graph import InMemory, VertexRows, arrays_in_files, arrays_of_set
from tests.links.graphs import columns


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("numbers", [0, 1, 3])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("most", [set_graph.EDGES_READ, 10])
def test_edges_in_files_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undirected: bool, numbers: int, typed: bool, most: int
) -> None:
    monkeypatch.setattr(set_graph, "EDGES_READ", most)
    random = np.random.default_rng(6)
    given: dict[str, Any] = columns(4, vertices=45, edges=300)
    if undirected:  # some links are there in both directions, and some in one
        kept = np.unique(np.stack([given["src"], given["dst"]]), axis=1, return_index=True)[1]
        given = {name: one if name == "features" else one[kept] for name, one in given.items()}
        given["edge_split"] = np.zeros(len(kept), dtype=np.int8)
    edges = len(given["src"])
    if not typed:
        given.pop("relation", None)
    if numbers:
        given["weight"] = random.uniform(0.1, 2.0, edges).astype(np.float32)
    if numbers > 1:
        given["edge_attr"] = random.normal(size=(edges, numbers - 1)).astype(np.float32)
    reader = LinkReader(lotan.Graph.from_arrays(**given, undirected=undirected), lotan.LinkPrediction("distmult"))
    graph, _ = open_partitioned(tmp_path, reader, reader.summary(), 7, 0)
    every, vertices, types = range(7), VertexRows.without_labels(reader.ids), types_of(graph)
    wanted = arrays_of_set(graph, InMemory(graph.placement, every), every, vertices, types)
    found = arrays_in_files(graph, vertices, MappedMemory(str(tmp_path)), types)
    assert len(found.src) > 0
    for one in fields(GraphArrays):
        ours, theirs = getattr(found, one.name), getattr(wanted, one.name)
        assert np.array_equal(ours, theirs) if isinstance(theirs, np.ndarray) else ours == theirs, one.name
