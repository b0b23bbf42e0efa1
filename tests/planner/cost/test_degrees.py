"""Degrees in classes, against the degrees themselves."""

from __future__ import annotations

import numpy as np
import pytest

from lotan.datasets import generate
from lotan.exploring.calibration import trained_on
from lotan.graph.arrays import degrees
from planner.degrees import Degrees
from planner.statistics import Statistics

VERTICES, PARTITIONS = 3000, 8


@pytest.fixture(scope="module")
def ends() -> np.ndarray:
    """Vertices that edges begin at, a few of them great hubs."""
    random = np.random.default_rng(0)
    return (VERTICES * random.random(20_000) ** 4).astype(np.int64)


def test_classes_hold_all_vertices_and_edges(ends):
    found = degrees(ends, VERTICES)
    counts = np.bincount(ends, minlength=VERTICES)
    assert (sum(found.vertices), sum(found.edges)) == (VERTICES, len(ends))
    assert found.vertices[0] == np.count_nonzero(counts == 0)
    assert found.vertices[3] == np.count_nonzero((counts >= 4) & (counts < 8))
    assert found.edges[3] == counts[(counts >= 4) & (counts < 8)].sum()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_quantile_lies_in_the_class_of_the_true_one(ends, share):
    counts = np.sort(np.bincount(ends, minlength=VERTICES))
    true = counts[int(np.ceil(share * VERTICES)) - 1]
    found = degrees(ends, VERTICES).quantile(share)
    assert int(found).bit_length() == int(true).bit_length()


def test_replication_is_that_of_vertices_placed_at_random(ends):
    """Each edge's other end is in a partition drawn by itself; counted, over several draws."""
    random, found = np.random.default_rng(1), []
    for _ in range(20):
        pairs = np.stack([ends, random.integers(PARTITIONS, size=len(ends))])
        found.append(np.unique(pairs, axis=1).shape[1] / VERTICES)
    assert degrees(ends, VERTICES).replication(PARTITIONS) == pytest.approx(np.mean(found), rel=0.02)


def test_even_degrees_where_nobody_has_counted():
    assert Degrees.even(10, 25) == Degrees((0, 0, 10), (0, 0, 25))
    assert Degrees.even(10, 5) == Degrees((5, 5), (0, 5))
    assert Statistics(10, 5, 1).degrees().replication(4) == pytest.approx(0.5)
    assert Degrees.even(4, 0).replication(4) == 0


def test_a_partition_replicates_nothing_twice():
    assert Degrees((0, 0, 3), (0, 0, 9)).replication(1) == 1


@pytest.mark.parametrize("training", [40, 400])
def test_levels_of_a_graph_with_hubs_are_estimated_by_both_degrees(training):
    """Against levels that are counted; most edges end at few vertices, which are reached first."""
    graph = trained_on(generate(VERTICES, 10 * VERTICES), training)
    arrays = graph.arrays()
    within, known = arrays.split == 0, arrays.statistics
    for level in range(4):
        assert known.rows_within(level) == pytest.approx(within.sum(), rel=0.25)
        assert known.edge_count("graph", level) == pytest.approx(within[arrays.dst].sum(), rel=0.5)
        within[arrays.src[within[arrays.dst]]] = True


def test_levels_where_nobody_has_counted_degrees():
    known = Statistics(vertices=1000, edges=4000, width=8, training=100)
    assert [known.rows_within(level) for level in (0, 1, None)] == [100, 410, 1000]
    assert known.edge_count("graph", 1) == known.edge_count("self_loops", 1) - 410 == pytest.approx(1640, abs=3)
