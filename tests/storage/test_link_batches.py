"""Batches over partitions: each training link once an epoch, and everything that a batch reads is in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lotan
from lotan.stages.randomness import Randomness
from lotan.storage.edge_readers import LinkReader
from lotan.storage.link_batches import pairs_of, sets_of_epoch
from lotan.storage.partitioned_graph import open_partitioned
from lotan.storage.placement import Placement
from lotan.storage.set_graph import InMemory
from planner.orders.beta import beta
from planner.orders.comet import comet
from tests.links.graphs import graph


@pytest.mark.parametrize("negatives", [30, "all"])
@pytest.mark.parametrize("sampling", ["uniform", "degree"])
def test_an_epoch_has_every_link_once_with_negatives_in_memory(tmp_path: Path, negatives, sampling: str) -> None:
    task = lotan.LinkPrediction("distmult", negatives=negatives, negative_sampling=sampling)
    reader = LinkReader(graph(5, vertices=50, edges=600), task)
    stored, _ = open_partitioned(tmp_path, reader, reader.summary(), 8, 0)
    firsts = []
    for epoch, order in ((1, comet(8, 4, 4, 0, 1)), (2, beta(8, 3, 0, 2))):
        links, batches = [], 0
        for of_set in sets_of_epoch(stored, order, 16, Randomness(0, epoch)):
            memory = InMemory(stored.placement, of_set.held)
            assert of_set.first == batches
            for number, start in enumerate(range(0, len(of_set.records), 16)):
                records = of_set.records[start : start + 16]
                pairs = pairs_of(records, of_set.records, memory, task, Randomness(0, epoch, batch=number), True)
                assert set(stored.placement.partition_of(pairs.ends)) <= set(of_set.held)
                links += records.tolist()
                batches += 1
                for side, own in ((pairs.destinations, pairs.dst), (pairs.sources, pairs.src)):
                    if negatives == "all":  # a link is no negative of itself
                        assert (side.candidates[side.candidate] == own[side.link]).all()
                        assert len(side.link) == len(records)
                    else:
                        assert len(side.candidates) == 30
                    if sampling == "degree" and negatives != "all":
                        column = 1 if side is pairs.destinations else 0
                        assert set(side.candidates.tolist()) <= set(of_set.records[:, column].tolist())
        assert sorted(links) == sorted(
            row for a in range(8) for b in range(8) for row in stored.bucket((a, b)).tolist()
        )
        firsts.append(links[:5])
    assert firsts[0] != firsts[1]


def test_vertices_in_memory_are_numbered_one_after_the_other() -> None:
    placement = Placement(43, 8, 0)
    memory = InMemory(placement, (1, 4, 7))
    positions = memory.positions(np.arange(len(memory)))
    assert len(memory) == sum(placement.count(one) for one in (1, 4, 7))
    assert sorted(set(placement.partition_of(positions))) == [1, 4, 7]
    assert np.array_equal(np.unique(positions), positions)
    assert np.array_equal(memory.numbers(positions), np.arange(len(memory)))
