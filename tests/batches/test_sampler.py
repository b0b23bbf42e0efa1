"""The sampler keeps what MariusGNN's algorithms promise, on random graphs with loops, doubled edges and lonely vertices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from lotan.batches.draws import choose
from lotan.batches.sampler import Sample, Sampler
from lotan.graph.arrays import GraphArrays
from lotan.stages.randomness import Randomness
from tests.exactness.cases import sample as random_graph

FANOUTS = [(2,), (3, 2), (2, "all", 1), ("all", "all")]


def arrays_of(seed: int) -> GraphArrays:
    return random_graph(seed, vertices=40, edges=200, weighted=bool(seed % 2)).graph.arrays()


def draw(arrays: GraphArrays, fanouts: tuple, targets: np.ndarray, of: Randomness | None = None) -> Sample:
    return Sampler(arrays).sample(targets, fanouts, of or Randomness(0, 1))


@pytest.mark.parametrize("fanouts", FANOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_the_invariants_of_dense(seed: int, fanouts: tuple) -> None:
    arrays = arrays_of(seed)
    targets = np.flatnonzero(np.arange(40) % 7 == 3)
    found = draw(arrays, fanouts, targets)
    assert len(set(found.rows.tolist())) == len(found.rows)
    assert found.rows[: len(targets)].tolist() == targets.tolist()
    assert len(found.counts) == len(fanouts) + 1
    assert found.counts[-1] == len(found.rows)
    # each edge is an edge of the graph between the vertices that it names, and no edge is there twice
    assert (arrays.src[found.edges] == found.rows[found.src]).all()
    assert (arrays.dst[found.edges] == found.rows[found.dst]).all()
    assert len(set(found.edges.tolist())) == len(found.edges)
    assert (np.diff(found.dst * len(found.rows) + found.src) >= 0).all()
    degrees = np.bincount(arrays.dst, minlength=40)
    drawn = np.bincount(found.dst, minlength=len(found.rows))
    level = np.searchsorted(found.counts, np.arange(len(found.rows)), side="right")
    for vertex, hops in enumerate(level):  # the fanout of a vertex is that of the level in which it was met
        most = 0 if hops == len(fanouts) else fanouts[hops]
        degree = degrees[found.rows[vertex]]
        assert drawn[vertex] == (degree if most == "all" else min(degree, most))
    for vertex in range(
        found.counts[0], len(found.rows)
    ):  # a vertex of a level was met by an edge into the level before
        ends = found.dst[found.src == vertex]
        assert level[ends].min() == level[vertex] - 1


def test_all_edges_give_the_neighbourhood() -> None:
    """Against a brute-force walk."""
    arrays, targets = arrays_of(2), np.array([0, 5])
    found = draw(arrays, ("all", "all"), targets)
    reached, edges = [set(targets.tolist())], set()
    for _ in range(2):
        into = [e for e in range(len(arrays.src)) if arrays.dst[e] in set().union(*reached)]
        edges.update(into)
        reached.append({int(arrays.src[e]) for e in into} - set().union(*reached))
    starts = [0, *found.counts]
    levels = [found.rows[start:end].tolist() for start, end in zip(starts, found.counts, strict=False)]
    assert levels == [sorted(level) for level in reached]
    assert set(found.edges.tolist()) == edges


def test_the_draws_belong_to_the_vertex_and_not_to_the_batch_around_it() -> None:
    arrays = arrays_of(1)
    of = Randomness(seed=3, epoch=2, batch=4)
    together, alone = draw(arrays, (2,), np.arange(40), of), draw(arrays, (2,), np.array([0]), of)
    assert set(alone.edges.tolist()) == set(together.edges[together.rows[together.dst] == 0].tolist())
    again = draw(arrays, (2,), np.arange(40), of)
    assert (again.edges == together.edges).all()
    for other in (Randomness(3, 2, batch=5), Randomness(3, 3, batch=4), Randomness(4, 2, batch=4)):
        assert (draw(arrays, (2,), np.arange(40), other).edges != together.edges).any()


def test_a_sampler_forgets_a_batch_also_if_it_fails() -> None:
    arrays = arrays_of(0)
    sampler, targets = Sampler(arrays), np.array([0, 3])
    first = sampler.sample(targets, (2, 2), Randomness(0, 1))
    with pytest.raises(TypeError):
        sampler.sample(np.array([1, 2]), (None,), Randomness(0, 1))
    again = sampler.sample(targets, (2, 2), Randomness(0, 1))
    assert (first.rows == again.rows).all()
    assert (first.edges == again.edges).all()


@pytest.mark.parametrize(("degree", "count"), [(5, 2), (7, 6), (40, 3)])
def test_every_choice_is_equally_likely(degree: int, count: int) -> None:
    """Chi-squared of single numbers, and of sets where there are few of them, on a fixed seed."""
    vertices = 20_000
    keys = np.random.default_rng(1).integers(-(2**63), 2**63, vertices)
    found = choose(np.full(vertices, degree), count, keys, Randomness(0, 1))
    assert (np.diff(found, axis=1) > 0).all()  # without replacement
    assert found.min() >= 0
    assert found.max() < degree
    counted = np.bincount(found.ravel(), minlength=degree)
    expected = vertices * count / degree
    # counts of a draw without replacement vary less than those of independent draws, by this factor
    score = ((counted - expected) ** 2 / expected).sum() * (degree - 1) / (degree - count)
    assert score < chi2.ppf(0.999, degree - 1)
    sets, how_often = np.unique(found, axis=0, return_counts=True)
    if degree < 10:
        possible = {(5, 2): 10, (7, 6): 7}[degree, count]
        assert len(sets) == possible
        score = ((how_often - vertices / possible) ** 2 / (vertices / possible)).sum()
        assert score < chi2.ppf(0.999, possible - 1)


def test_a_vertex_without_in_edges_is_a_batch() -> None:
    arrays = arrays_of(0)
    lonely = int(np.flatnonzero(np.bincount(arrays.dst, minlength=40) == 0)[-1])
    found = draw(arrays, (2, 2), np.array([lonely]))
    assert (found.rows.tolist(), found.counts, len(found.edges)) == ([lonely], (1, 1, 1), 0)


def test_a_fanout_beyond_all_numbers_takes_every_edge() -> None:
    arrays, targets = arrays_of(0), np.arange(5)
    assert draw(arrays, (2**63,), targets).edges.tolist() == draw(arrays, ("all",), targets).edges.tolist()
