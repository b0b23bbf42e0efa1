"""Ranks over partitions are those of all rows in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import lotan
from lotan.links.decoders import make_decoder
from lotan.links.examples import link_graph
from lotan.links.ranks import rank
from lotan.links.ranks_in_parts import rank_in_parts
from lotan.storage.edge_readers import LinkReader
from lotan.storage.partitioned_graph import open_partitioned
from lotan.storage.ranks import StoredLinks
from tests.links.graphs import columns


@pytest.mark.parametrize("decoder", ["dot", "distmult", "complex", "transe"])
@pytest.mark.parametrize(("relations", "undirected"), [(3, False), (0, False), (3, True)])
def test_they_equal_those_in_memory(tmp_path: Path, decoder: str, relations: int, undirected: bool) -> None:
    torch.manual_seed(1)
    task = lotan.LinkPrediction(decoder)
    held = columns(2, vertices=43, edges=400, relations=relations)
    if undirected:  # one of the links between two vertices
        kept = np.unique(np.sort([held["src"], held["dst"]], axis=0), axis=1, return_index=True)[1]
        held = {name: one if name == "features" else one[kept] for name, one in held.items()}
    of_links = lotan.Graph.from_arrays(**held, undirected=undirected)
    links = link_graph(of_links, task).links
    scorer = make_decoder(task, 6, links.relations, 0)
    rows = torch.randn(43, 6)
    if decoder == "transe":  # vertices with equal scores; the last bit of a matrix product depends on its shape
        rows[7] = rows[3]
    reader = LinkReader(of_links, task)
    stored, _ = open_partitioned(tmp_path, reader, reader.summary(), 5, 0)
    placement = stored.placement

    def rows_of(partition: int) -> torch.Tensor:
        positions = placement.first(partition) + np.arange(placement.count(partition))
        return rows[torch.from_numpy(placement.rows(positions))]

    others = StoredLinks(stored)
    for split in ("val", "test"):
        wanted = rank(scorer, rows, links.of(split), links).metrics()
        for most in (1 << 20, 20):
            found = rank_in_parts(scorer, rows_of, others.of(split), others.known(), placement, most).metrics()
            assert found == pytest.approx(wanted, rel=1e-12), split
