"""Ranks of links among all vertices, whose rows are read partition by partition: see `lotan.links.ranks`.

Scores are those of smaller matrix products than in memory, whose last bit may differ. So vertices with exactly equal rows,
which tie in memory, may differ by one place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lotan.graph.arrays import Positions
from lotan.links.decoders import Decoder
from lotan.links.examples import Known, Links
from lotan.links.ranks import SCORES, Ranks, counted, middle

OWN_LINKS = 64
"""The links whose own scores are computed at one time."""


@dataclass(frozen=True)
class Parts:
    """The positions of vertices, cut into partitions that differ by one vertex at most."""

    vertices: int
    partitions: int

    @property
    def capacity(self) -> int:
        """The vertices of the largest partition."""
        return -(-self.vertices // self.partitions)

    def first(self, partition: int) -> int:
        """Return the position of the first vertex of a partition; that of `partitions` is the number of vertices."""
        return partition * self.vertices // self.partitions

    def count(self, partition: int) -> int:
        """Return the number of vertices of a partition."""
        return self.first(partition + 1) - self.first(partition)

    def partition_of(self, positions: Positions) -> Positions:
        """Return the partition of each position."""
        found: Positions = ((positions + 1) * self.partitions - 1) // self.vertices
        return found


def known_in_parts(every: Positions, column: int, division: Parts, relations: int) -> list[Known]:
    """Return the known answers of queries in each partition.

    Args:
        every: Links as positions of both ends, and relations. [links, 3]
        column: The end that queries give: 0 for sources, whose answers are destinations, or 1.
        division: The partitions.
        relations: The number of relations.
    """
    partition = division.partition_of(every[:, 1 - column])
    order = np.argsort(partition, kind="stable")
    ends = np.searchsorted(partition[order], np.arange(division.partitions + 1))
    found = []
    for number in range(division.partitions):
        some = every[order[ends[number] : ends[number + 1]]]
        found.append(Known.of(some[:, column], some[:, 2], some[:, 1 - column], relations))
    return found


RowsOf = Callable[[int], Tensor]
"""A function from a partition to the model's output for its vertices, which lasts until the next call."""


@dataclass
class _Direction:
    """The links whose ranks are counted at one end."""

    given: Tensor  # the rows of the ends that are given [links, width]
    asked: Positions  # their positions [links]
    numbers: Positions  # the relations as numbers [links]
    wanted: Positions  # the positions of the other ends [links]
    own: Tensor  # the score of each link [links, 1]
    relation: Tensor | None
    scores: Callable[..., Tensor]
    better: np.ndarray  # counts of vertices with a better score, raw and filtered [2, links]
    equal: np.ndarray  # those with the same score, without the link's own


@torch.no_grad()
def rank_in_parts(
    decoder: Decoder,
    rows_of: RowsOf,
    links: Links,
    known: Sequence[tuple[Known, Known]],
    division: Parts,
    most: int = SCORES,
) -> Ranks:
    """Rank links among all vertices, one partition of them after the other.

    Args:
        decoder: The decoder.
        rows_of: The model's output, partition by partition. It is called twice for each.
        links: The links to rank, between positions.
        known: The known answers in each partition: the destinations of sources, and the sources of destinations.
        division: The partitions.
        most: The most scores that are computed at one time.
    """
    ends = np.unique(np.concatenate([links.src, links.dst]))
    held = gathered(rows_of, ends, division)
    rows = [held[torch.from_numpy(np.searchsorted(ends, one))] for one in (links.src, links.dst)]
    del held
    sides = (
        _direction(links, (links.src, rows[0]), (links.dst, rows[1]), decoder.destinations),
        _direction(links, (links.dst, rows[1]), (links.src, rows[0]), decoder.sources),
    )
    for partition in range(division.partitions):
        candidates, first = rows_of(partition), division.first(partition)
        for side, answers in zip(sides, known[partition], strict=True):
            _count(side, candidates, first, answers, most)
        del candidates  # so that the rows of the next partition take the same memory
    raw, filtered = (
        np.concatenate([middle(side.better[number], side.equal[number]) for side in sides]) for number in (0, 1)
    )
    return Ranks(raw, filtered)


def gathered(rows_of: RowsOf, ends: Positions, division: Parts) -> Tensor:
    """Return the rows of some vertices, whose positions are ascending. [ends, width].

    They take their memory at once, and each partition gives its own back: pieces that stay would lie where the rows of a
    partition were, and the next one would take new memory.
    """
    found: Tensor | None = None
    for partition in range(division.partitions):
        first, rows = division.first(partition), rows_of(partition)
        if found is None:
            found = torch.empty(len(ends), rows.shape[1])
        start, end = np.searchsorted(ends, [first, first + division.count(partition)])
        torch.index_select(rows, 0, torch.from_numpy(ends[start:end] - first), out=found[start:end])
        del rows
    assert found is not None  # there is a partition at least
    return found


def _direction(
    links: Links, given: tuple[Positions, Tensor], other: tuple[Positions, Tensor], scores: Callable[..., Tensor]
) -> _Direction:
    """Return the links at one end, with the score of each. Both ends are positions with their rows."""
    relation, own = None if links.relation is None else torch.from_numpy(links.relation), []
    for start, end in _parts(len(links), OWN_LINKS):
        some = None if relation is None else relation[start:end]
        own.append(scores(given[1][start:end], some, other[1][start:end]).diagonal())
    better, equal = np.zeros((2, 2, len(links)), dtype=np.int64)
    return _Direction(
        given=given[1],
        asked=given[0],
        numbers=links.numbers,
        wanted=other[0],
        own=torch.cat(own)[:, None],
        relation=relation,
        scores=scores,
        better=better,
        equal=equal,
    )


def _count(side: _Direction, candidates: Tensor, first: int, known: Known, most: int) -> None:
    """Count the vertices of a partition that score better than, or as well as, each link.

    Args:
        side: The links.
        candidates: The rows of the partition. [vertices of the partition, width]
        first: The position of its first vertex.
        known: The known answers among its vertices.
        most: The most scores that are computed at one time.
    """
    count = len(candidates)
    for start, end in _parts(len(side.given), max(1, most // max(1, count))):
        relation = None if side.relation is None else side.relation[start:end]
        found, own = side.scores(side.given[start:end], relation, candidates), side.own[start:end]
        wanted = side.wanted[start:end] - first
        here = np.flatnonzero((wanted >= 0) & (wanted < count))
        found[torch.from_numpy(here), torch.from_numpy(wanted[here])] = -torch.inf  # a link is no rival of itself
        better, equal = counted(torch.gt, found, own).numpy(), counted(torch.eq, found, own).numpy()
        link, answer = known.look_up(side.asked[start:end], side.numbers[start:end])
        others = answer - first != wanted[link]
        link, answer = link[others], answer[others] - first
        scores, mine = found[torch.from_numpy(link), torch.from_numpy(answer)].numpy(), own.numpy()[link, 0]
        side.better[:, start:end] += better
        side.equal[:, start:end] += equal
        side.better[1, start:end] -= np.bincount(link[scores > mine], minlength=end - start)
        side.equal[1, start:end] -= np.bincount(link[scores == mine], minlength=end - start)


def _parts(count: int, some: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, some):
        yield start, min(count, start + some)
