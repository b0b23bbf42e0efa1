"""Levels against a walk along edges from every vertex."""

from __future__ import annotations

import numpy as np
import pytest

from lotan.engines.local.level_order import order_by_level
from lotan.graph.arrays import GraphArrays
from tests.exactness.cases import sample, trained_on


def walked(arrays: GraphArrays, most: int, splits: tuple[int, ...] = (0,)) -> list[int]:
    """The hops from each vertex to one of some splits; `most` + 1 if there are more, or no way."""
    found = []
    for start in range(len(arrays.ids)):
        reached, hops = {start}, 0
        while hops <= most and not any(arrays.split[row] in splits for row in reached):
            reached |= {int(dst) for src, dst in zip(arrays.src, arrays.dst, strict=True) if src in reached}
            hops += 1
        found.append(hops)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("deepest", [0, 1, 4])
@pytest.mark.parametrize(("targets", "splits"), [("train", (0,)), ("split", (0, 1, 2))])
def test_vertices_are_in_the_order_of_their_levels(seed, deepest, targets, splits):
    arrays = trained_on(sample(seed, vertices=20, edges=25), [seed, 15]).graph.arrays()
    order, levels = order_by_level(arrays, deepest, targets), np.array(walked(arrays, deepest, splits))
    assert order.counts == tuple(int((levels <= level).sum()) for level in range(deepest + 1))
    assert sorted(order.rows) == list(range(20))
    placed = list(zip(levels[order.rows], order.rows, strict=True))
    assert placed == sorted(placed)


def test_the_graph_in_that_order_is_the_same_graph():
    arrays = trained_on(sample(2, vertices=20, edges=40, weighted=True), [4]).graph.arrays()
    placed = order_by_level(arrays, 2).placed(arrays)

    def edges(of: GraphArrays) -> list[tuple[int, int, float]]:
        return sorted(zip(of.ids[of.src], of.ids[of.dst], of.weight, strict=True))

    assert edges(placed) == edges(arrays)
    ends = list(zip(placed.dst, placed.src, strict=True))
    assert ends == sorted(ends)
    rows = np.argsort(placed.ids)
    for name in ("features", "label", "split", "keys"):
        assert (getattr(placed, name)[rows] == getattr(arrays, name)).all()


def test_a_plan_that_prunes_nothing_needs_no_order():
    assert order_by_level(sample(1).graph.arrays(), None) is None
