"""Ranks of links among all vertices, whose rows are read partition by partition: see `lotan.links.ranks`.

Scores are those of smaller matrix products than in memory, whose last bit may differ. So vertices with exactly equal rows,
which tie in memory, may differ by one place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lotan.graph.arrays import Positions
from lotan.links.decoders import Decoder
from lotan.links.examples import TRAIN, Known, Links
from lotan.links.ranks import SCORES, Ranks, counted, middle
from lotan.storage.partitioned_graph import PartitionedGraph
from planner.spec import SPLITS

OWN_LINKS = 64
"""The links whose own scores are computed at one time."""


class StoredLinks:
    """The links of validation and test, and what is known of their ends.

    Args:
        graph: The graph on the disk. Its training links are read once, bucket by bucket.
    """

    def __init__(self, graph: PartitionedGraph) -> None:
        others = graph.others()
        self._links = graph.links_of(others, others[:, 3])
        self._graph = graph
        self._known: tuple[Known, Known] | None = None

    def of(self, split: str) -> Links:
        """Return the links of a split, between positions."""
        return self._links.of(split)

    def known(self) -> tuple[Known, Known]:
        """Return the destinations of the sources that are asked for, and the sources of such destinations."""
        if self._known is None:
            self._known = self._answers(0), self._answers(1)
        return self._known

    def _answers(self, column: int) -> Known:
        """Return the other ends of all links that begin (0) or end (1) where a link of validation or test does."""
        relations, links = self._links.relations, self._links
        asked = np.unique((links.src, links.dst)[column] * relations + links.numbers)
        found = [np.stack([links.src, links.dst, links.numbers], axis=1)]
        partitions = self._graph.placement.partitions
        for number in range(partitions**2):
            records = self._graph.bucket(divmod(number, partitions)).astype(np.int64)
            found.append(records[np.isin(records[:, column] * relations + records[:, 2], asked)])
        every = np.concatenate(found)
        return Known.of(every[:, column], every[:, 2], every[:, 1 - column], relations)


RowsOf = Callable[[int], Tensor]
"""A function from a partition to the model's output for its vertices, which lasts until the next call."""


@dataclass
class _Direction:
    """The links whose ranks are counted at one end."""

    given: Tensor  # the rows of the ends that are given [links, width]
    wanted: Positions  # the positions of the others [links]
    own: Tensor  # the score of each link [links, 1]
    relation: Tensor | None
    scores: Callable[..., Tensor]
    link: Positions  # the links of known answers [answers]
    answer: Positions  # their positions [answers]
    better: np.ndarray  # counts of vertices with a better score, raw and filtered [2, links]
    equal: np.ndarray  # those with the same score, without the link's own


@torch.no_grad()
def rank_stored(
    decoder: Decoder,
    rows_of: RowsOf,
    links: Links,
    known: tuple[Known, Known],
    graph: PartitionedGraph,
    most: int = SCORES,
) -> Ranks:
    """Rank links among all vertices, one partition of them after the other.

    Args:
        decoder: The decoder.
        rows_of: The model's output, partition by partition. It is called twice for each.
        links: The links to rank, between positions.
        known: What is known of their ends, see `StoredLinks.known`.
        graph: The graph.
        most: The most scores that are computed at one time.
    """
    ends = np.unique(np.concatenate([links.src, links.dst]))
    gathered = _gathered(rows_of, ends, graph)
    src, dst = (gathered[torch.from_numpy(np.searchsorted(ends, one))] for one in (links.src, links.dst))
    relation = None if links.relation is None else torch.from_numpy(links.relation)
    sides = (
        _direction(src, dst, links.dst, relation, decoder.destinations, known[0].look_up(links.src, links.numbers)),
        _direction(dst, src, links.src, relation, decoder.sources, known[1].look_up(links.dst, links.numbers)),
    )
    for partition in range(graph.placement.partitions):
        candidates, first = rows_of(partition), graph.placement.first(partition)
        for side in sides:
            _count(side, candidates, first, most)
    raw, filtered = (
        np.concatenate([middle(side.better[number], side.equal[number]) for side in sides]) for number in (0, 1)
    )
    return Ranks(raw, filtered)


def _gathered(rows_of: RowsOf, ends: Positions, graph: PartitionedGraph) -> Tensor:
    """Return the rows of some vertices, whose positions are ascending. [ends, width]."""
    placement, found = graph.placement, []
    for partition in range(placement.partitions):
        first = placement.first(partition)
        start, end = np.searchsorted(ends, [first, first + placement.count(partition)])
        found.append(rows_of(partition)[torch.from_numpy(ends[start:end] - first)])
    return torch.cat(found)


def _direction(
    given: Tensor,
    other: Tensor,
    wanted: Positions,
    relation: Tensor | None,
    scores: Callable[..., Tensor],
    answers: tuple[Positions, Positions],
) -> _Direction:
    own = []
    for start in range(0, len(given), OWN_LINKS):
        some = slice(start, start + OWN_LINKS)
        own.append(scores(given[some], None if relation is None else relation[some], other[some]).diagonal())
    link, answer = answers
    others = answer != wanted[link]
    counts = np.zeros((2, 2, len(given)), dtype=np.int64)
    return _Direction(
        given, wanted, torch.cat(own)[:, None], relation, scores, link[others], answer[others], counts[0], counts[1]
    )


def _count(side: _Direction, candidates: Tensor, first: int, most: int) -> None:
    """Count the vertices of a partition that score better than, or as well as, each link."""
    count = len(candidates)
    for start, end in _parts(len(side.given), max(1, most // max(1, count))):
        relation = None if side.relation is None else side.relation[start:end]
        found, own = side.scores(side.given[start:end], relation, candidates), side.own[start:end]
        wanted = side.wanted[start:end] - first
        here = np.flatnonzero((wanted >= 0) & (wanted < count))
        found[torch.from_numpy(here), torch.from_numpy(wanted[here])] = -torch.inf  # a link is no rival of itself
        better, equal = counted(torch.gt, found, own).numpy(), counted(torch.eq, found, own).numpy()
        known = slice(*np.searchsorted(side.link, [start, end]))
        answer = side.answer[known] - first
        there = (answer >= 0) & (answer < count)
        link, answer = side.link[known][there] - start, answer[there]
        scores, mine = found[torch.from_numpy(link), torch.from_numpy(answer)].numpy(), own.numpy()[link, 0]
        side.better[:, start:end] += better
        side.equal[:, start:end] += equal
        side.better[1, start:end] -= np.bincount(link[scores > mine], minlength=end - start)
        side.equal[1, start:end] -= np.bincount(link[scores == mine], minlength=end - start)


def _parts(count: int, some: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, some):
        yield start, min(count, start + some)


def metrics_of_stored(
    decoder: Decoder, rows_of: RowsOf, links: StoredLinks, split: str, graph: PartitionedGraph, most: int = SCORES
) -> dict[str, float]:
    """Return the ranks' metrics of a split, as `lotan.links.ranks` names them; {} if it has no links."""
    assert SPLITS.index(split) != TRAIN
    asked = links.of(split)
    return rank_stored(decoder, rows_of, asked, links.known(), graph, most).metrics() if len(asked) else {}
