"""Ranks of links among all vertices, and the metrics that follow from them.

A link is ranked twice: its destination among all destinations for its source and relation, and its source likewise. Of
vertices with equal scores, half count as better: the rank is the mean of the best and the worst that it could be. The
*filtered* rank leaves out vertices that make another known link (Bordes et al. 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lotan.links.decoders import Decoder
from lotan.links.examples import Known, Links, Positions
from lotan.stages.randomness import Randomness, random_words

SCORES = 1 << 22
"""The scores that are computed at one time, at most: 16 MiB."""

EXACT = 1 << 24
"""The first whole number that float32 cannot tell from the next one."""

HITS = (1, 3, 10)

PAIRS = "pairs without a link"
"""The name of the draws of pairs that a link is compared with for the area under the ROC curve."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of links, from 1. The destinations of all links come first, and then the sources."""

    raw: NDArray[np.float64]  # [2 * links]
    filtered: NDArray[np.float64]  # [2 * links]

    def metrics(self) -> dict[str, float]:
        """Return the mean reciprocal rank and the share of links among the first 1, 3 and 10, filtered and raw."""
        found = {}
        for prefix, ranks in (("", self.filtered), ("raw_", self.raw)):
            found[f"{prefix}mrr"] = float((1 / ranks).mean())
            found |= {f"{prefix}hits@{k}": float((ranks <= k).mean()) for k in HITS}
        return found


@torch.no_grad()
def rank(decoder: Decoder, rows: Tensor, links: Links, known: Links, most: int = SCORES) -> Ranks:
    """Rank links among all vertices, chunk by chunk in bounded memory.

    Args:
        decoder: The decoder.
        rows: The model's output for all vertices. [vertices, width]
        links: The links to rank.
        known: All links of the graph, which are left out of the filtered ranks.
        most: The most scores that are computed at one time.
    """
    src, dst, numbers = links.src, links.dst, links.numbers
    has_relations = links.relation is not None
    raw, filtered = [], []
    for given, wanted, answers, scores in (
        (src, dst, known.destinations, decoder.destinations),
        (dst, src, known.sources, decoder.sources),
    ):
        some = max(1, most // max(1, len(rows)))
        for start in range(0, len(given), some):
            part = slice(start, start + some)
            relation = torch.from_numpy(numbers[part]) if has_relations else None
            found = scores(rows[torch.from_numpy(given[part])], relation, rows)
            ranks = _ranks(found, wanted[part], *answers.look_up(given[part], numbers[part]))
            raw.append(ranks[0])
            filtered.append(ranks[1])
    return Ranks(np.concatenate(raw), np.concatenate(filtered))


def _ranks(
    scores: Tensor, wanted: Positions, link: Positions, answer: Positions
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the raw and the filtered rank of each row's wanted column.

    Args:
        scores: [rows, vertices].
        wanted: The column of each row. [rows]
        link: The rows of known answers. [answers]
        answer: Their columns. [answers]
    """
    column = torch.from_numpy(wanted)[:, None]
    own = scores.gather(1, column)
    better, equal = counted(torch.gt, scores, own), counted(torch.eq, scores, own) - 1
    raw = middle(better.numpy(), equal.numpy())
    others = answer != wanted[link]
    link, answer = link[others], answer[others]
    of_known, of_own = scores[torch.from_numpy(link), torch.from_numpy(answer)].numpy(), own.numpy()[link, 0]
    counts = (np.bincount(link, of_known > of_own, len(wanted)), np.bincount(link, of_known == of_own, len(wanted)))
    return raw, middle(better.numpy() - counts[0], equal.numpy() - counts[1])


def counted(compare: Callable[..., Tensor], scores: Tensor, own: Tensor) -> Tensor:
    """Return in how many columns of each row a comparison holds. [rows, columns], [rows, 1] -> [rows].

    A product with ones takes a seventh of the time of a sum of bools.
    """
    if scores.shape[1] >= EXACT:
        return torch.count_nonzero(compare(scores, own), 1)
    return (compare(scores, own, out=torch.empty_like(scores)) @ scores.new_ones(scores.shape[1])).long()


def middle(better: NDArray[np.number], equal: NDArray[np.number]) -> NDArray[np.float64]:
    """Return the mean of the best and the worst rank.

    >>> middle(np.array([0, 2]), np.array([0, 1])).tolist()
    [1.0, 3.5]
    """
    return np.asarray(1 + better + equal / 2, dtype=np.float64)


@torch.no_grad()
def area(decoder: Decoder, rows: Tensor, links: Links, known: Links, seed: int, most: int = SCORES) -> float:
    """Return the area under the ROC curve of links without relations, beside as many pairs that are no known link.

    The pairs are drawn by a hash, uniformly, and are the same in every evaluation. NaN if every pair is a link.

    Args:
        decoder: The decoder.
        rows: The model's output for all vertices. [vertices, width]
        links: The links.
        known: All links of the graph.
        seed: The seed of the drawn pairs.
        most: The most numbers of rows at one end that are read at one time.
    """
    pairs = other_pairs(known.destinations, len(links), links.vertices, seed)
    return area_beside(decoder, rows, (links.src, links.dst), pairs, most)


@torch.no_grad()
def area_beside(
    decoder: Decoder, rows: Tensor, links: tuple[Positions, Positions], pairs: Positions, most: int = SCORES
) -> float:
    """Return the area under the ROC curve of links without relations beside pairs. NaN if there are no pairs.

    Args:
        decoder: The decoder.
        rows: The model's output for some vertices. [rows, width]
        links: Both ends of the links, as places among the rows. [links]
        pairs: Both ends of the pairs. [pairs, 2]
        most: The most numbers of rows at one end that are read at one time.
    """
    if not len(pairs):
        return float("nan")
    ends = [links, (pairs[:, 0], pairs[:, 1])]
    positive, negative = (scores_of(decoder, rows, src, dst, None, most).numpy() for src, dst in ends)
    order = np.sort(negative)
    below = np.searchsorted(order, positive), np.searchsorted(order, positive, side="right")
    return float((below[0] + below[1]).mean() / 2 / len(order))


def other_pairs(known: Known, count: int, vertices: int, seed: int) -> Positions:
    """Return drawn pairs of different vertices that are no known link, at most `count`. [pairs, 2]."""
    found = np.zeros((0, 2), dtype=np.int64)
    for turn in range(20):  # a turn fails for few pairs, unless nearly all are links
        words = random_words(Randomness(seed, 0, batch=turn), PAIRS, np.arange(2 * count), 2).astype(np.uint64)
        pairs = ((words * np.uint64(vertices)) >> np.uint64(32)).astype(np.int64)
        link, answer = known.look_up(pairs[:, 0], np.zeros(len(pairs), dtype=np.int64))
        is_known = np.zeros(len(pairs), dtype=bool)
        is_known[link[answer == pairs[link, 1]]] = True
        found = np.concatenate([found, pairs[~is_known & (pairs[:, 0] != pairs[:, 1])]])
        if len(found) >= count:
            break
    return found[:count]


@torch.no_grad()
def scores_of(
    decoder: Decoder, rows: Tensor, src: Positions, dst: Positions, relation: Positions | None, most: int = SCORES
) -> Tensor:
    """Return the scores of links, chunk by chunk: of at most `most` numbers of rows at one end. [links]."""
    some, found = max(1, most // max(1, rows.shape[1])), []
    for start in range(0, len(src), some):
        part = slice(start, start + some)
        numbers = None if relation is None else torch.from_numpy(relation[part])
        ends = (rows[torch.from_numpy(one[part])] for one in (src, dst))
        found.append(decoder(next(ends), numbers, next(ends)))
    return torch.cat(found) if found else torch.zeros(0)


@torch.no_grad()
def best_destinations(
    decoder: Decoder,
    rows: Tensor,
    queries: tuple[Positions, Positions | None],
    k: int,
    left_out: Known | None = None,
) -> tuple[Positions, Positions, NDArray[np.float32]]:
    """Return the best destinations of each query, best first. Of equal scores, the lower row comes first.

    Args:
        decoder: The decoder.
        rows: The model's output for all vertices. [vertices, width]
        queries: The sources [queries], and their relations or None.
        k: The number of destinations of a query, at most.
        left_out: The destinations that are left out; None: none.

    Returns:
        The number of the query, the row of the destination and the score of each result. All [results].
    """
    src, relation = queries
    some, found = max(1, SCORES // max(1, len(rows))), []
    for start in range(0, max(1, len(src)), some):  # once for no queries, whose results are empty
        part = slice(start, start + some)
        numbers = None if relation is None else torch.from_numpy(relation[part])
        scores = decoder.destinations(rows[torch.from_numpy(src[part])], numbers, rows).clone()
        if left_out is not None:
            of = np.zeros(len(src[part]), dtype=np.int64) if relation is None else relation[part]
            query, vertex = left_out.look_up(src[part], of)
            scores[torch.from_numpy(query), torch.from_numpy(vertex)] = -torch.inf
        best = scores.sort(dim=1, descending=True, stable=True)
        values, places = best.values[:, :k].numpy(), best.indices[:, :k].numpy()
        query, place = np.nonzero(values > -np.inf)
        found.append((query + start, places[query, place], values[query, place]))
    return tuple(np.concatenate(one) for one in zip(*found, strict=True))  # type: ignore[return-value]


def metrics_of(
    decoder: Decoder, rows: Tensor, links: Links, known: Links, seed: int, most: int = SCORES
) -> Mapping[str, float]:
    """Return the metrics of some links: ranks, and the area under the ROC curve if they have no relations.

    At most `most` scores are computed at one time.
    """
    found = rank(decoder, rows, links, known, most).metrics()
    return found | ({"auc": area(decoder, rows, links, known, seed, most)} if links.relation is None else {})
