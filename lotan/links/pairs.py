"""The pairs of a batch: links, the vertices that are drawn against them, and the loss over both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lotan.graph.arrays import runs
from lotan.links.decoders import Decoder
from lotan.links.examples import Known, Links, Positions
from lotan.settings.tasks import ALL, LinkPrediction
from lotan.stages.randomness import Randomness, random_words

SCORES = 1 << 22
"""The scores that are computed at one time, at most: 16 MiB, and as much again for their gradient."""

FULL_BATCH_LINKS = 1024
"""The links that share their negatives in full batch."""

DESTINATIONS, SOURCES = "negative destinations", "negative sources"
"""The names of the draws of negatives."""


@dataclass(frozen=True)
class Side:
    """The candidates at one end of the links of a batch, which all its links share."""

    candidates: Tensor  # rows, int64 [candidates]
    link: Tensor  # the left-out pairs: the number of a link in the batch, int64 [left out]
    candidate: Tensor  # the place of a candidate that is none for it, int64 [left out]

    def part(self, start: int, end: int) -> Side:
        """Return the candidates for the links from `start` to `end`."""
        some = (self.link >= start) & (self.link < end)
        return replace(self, link=self.link[some] - start, candidate=self.candidate[some])


@dataclass(frozen=True)
class Pairs:
    """The links of a batch and their negatives, as rows of a model's output."""

    src: Tensor  # int64 [links]
    dst: Tensor  # int64 [links]
    relation: Tensor | None  # int64 [links]
    destinations: Side
    sources: Side

    @property
    def ends(self) -> Positions:
        """The rows that occur, ascending and each once. [rows]."""
        every = [self.src, self.dst, self.destinations.candidates, self.sources.candidates]
        return np.unique(torch.cat(every).numpy())

    def among(self, rows: Positions) -> Pairs:
        """Return the same pairs as places among some rows, which are ascending."""

        def placed(ends: Tensor) -> Tensor:
            return torch.from_numpy(np.searchsorted(rows, ends.numpy()))

        sides = (replace(one, candidates=placed(one.candidates)) for one in (self.destinations, self.sources))
        return Pairs(placed(self.src), placed(self.dst), self.relation, *sides)

    def parts(self, scores: int = SCORES) -> Iterator[Pairs]:
        """Yield runs of the links that have so few scores that these fit in memory.

        Args:
            scores: The most scores of a run at one end, if it has more than one link.
        """
        candidates = max(1, len(self.destinations.candidates), len(self.sources.candidates))
        some = max(1, scores // candidates)
        if some >= len(self.src):
            yield self
            return
        for start in range(0, len(self.src), some):
            rows = slice(start, start + some)
            relation = None if self.relation is None else self.relation[rows]
            sides = (side.part(start, start + some) for side in (self.destinations, self.sources))
            yield Pairs(self.src[rows], self.dst[rows], relation, *sides)


class Negatives:
    """Draws the negatives of batches. A draw depends on the seed, the epoch and the batch alone.

    Args:
        links: All links of the graph. Negatives are filtered by those of training.
        task: The task.
    """

    def __init__(self, links: Links, task: LinkPrediction) -> None:
        self.training = links.of("train")
        self._task = task
        self._every = torch.arange(links.vertices)

    def pairs(self, chosen: Positions, epoch: int, batch: int) -> Pairs:
        """Return some training links with their negatives.

        Args:
            chosen: Positions among the training links. [links]
            epoch: The epoch.
            batch: The number of the batch in it.
        """
        of = Randomness(self._task.seed, epoch, batch=batch)
        training = self.training
        src, dst, numbers = training.src[chosen], training.dst[chosen], training.numbers[chosen]
        relation = None if training.relation is None else torch.from_numpy(numbers)
        destinations = self._side(DESTINATIONS, training.dst, of, (src, numbers, dst), "destinations")
        sources = self._side(SOURCES, training.src, of, (dst, numbers, src), "sources")
        return Pairs(torch.from_numpy(src), torch.from_numpy(dst), relation, destinations, sources)

    def of_epoch(self, epoch: int) -> Iterator[Pairs]:
        """Yield all training links with their negatives, which are drawn anew for each run of links, for a full batch."""
        count = len(self.training)
        for number, start in enumerate(range(0, count, FULL_BATCH_LINKS)):
            yield self.pairs(np.arange(start, min(count, start + FULL_BATCH_LINKS)), epoch, number)

    def _side(self, name: str, ends: Positions, of: Randomness, links: tuple[Positions, ...], end: str) -> Side:
        given, numbers, own = links
        candidates = self._candidates(name, ends, of)
        if self._task.filtered:
            answers: Known = getattr(self.training, end)
            link, vertex = answers.look_up(given, numbers)
        elif self._task.negatives == ALL:  # a link is no negative of itself
            link, vertex = np.arange(len(own)), own
        else:
            nothing = torch.zeros(0, dtype=torch.int64)
            return Side(candidates, nothing, nothing)
        if self._task.negatives == ALL:
            return Side(candidates, torch.from_numpy(link), torch.from_numpy(vertex))
        return Side(candidates, *_places(link, vertex, candidates.numpy()))

    def _candidates(self, name: str, ends: Positions, of: Randomness) -> Tensor:
        task = self._task
        if task.negatives == ALL:
            return self._every
        keys = np.arange(int(task.negatives))
        words = random_words(of, name, keys, 1)[:, 0].astype(np.uint64)
        count = len(self._every) if task.negative_sampling == "uniform" else len(ends)
        drawn = ((words * np.uint64(count)) >> np.uint64(32)).astype(np.int64)
        return torch.from_numpy(drawn if task.negative_sampling == "uniform" else ends[drawn])


def _places(link: Positions, vertex: Positions, candidates: Positions) -> tuple[Tensor, Tensor]:
    """Return the links and places of the candidates that are among the given pairs of link and vertex."""
    order = np.argsort(candidates, kind="stable")
    placed = candidates[order]
    first = np.searchsorted(placed, vertex)
    counts = np.searchsorted(placed, vertex, side="right") - first
    return torch.from_numpy(np.repeat(link, counts)), torch.from_numpy(order[runs(first, counts)])


@dataclass(frozen=True)
class Scored:
    """The loss over pairs, and its gradients."""

    loss: float  # the sum of the terms
    terms: int  # their number: one for each link and end
    rows: Tensor  # the gradient of the mean term by the rows, [rows, width]
    decoder: dict[str, Tensor]  # the gradient of the mean term by the decoder's parameters, by their names there


def score(
    decoder: Decoder, rows: Tensor, batches: Iterable[Pairs], links: int, loss: str, scores: int = SCORES
) -> Scored:
    """Return the mean loss over pairs and its gradients, computed part by part in bounded memory.

    Args:
        decoder: The decoder.
        rows: The model's output. [rows, width]
        batches: The pairs, all of which the mean is taken over.
        links: The number of links in all of them.
        loss: "softmax" or "bce", see `lotan.LinkPrediction`.
        scores: The most scores that are computed at one time.
    """
    terms = 2 * links
    leaf = rows.detach().requires_grad_()
    parameters = {name: one for name, one in decoder.named_parameters() if one.requires_grad}
    wanted = [leaf, *parameters.values()]
    sums: list[Tensor | None] = [None] * len(wanted)
    total = 0.0
    with torch.enable_grad():
        for batch in batches:
            for part in batch.parts(scores):
                found = _terms(decoder, leaf, part, loss)
                total += float(found.detach())
                gradients = torch.autograd.grad(found / terms, wanted, allow_unused=True)
                sums = [_added(before, now) for before, now in zip(sums, gradients, strict=True)]
    of_rows, *of_decoder = sums
    named = {name: one for name, one in zip(parameters, of_decoder, strict=True) if one is not None}
    return Scored(total, terms, torch.zeros_like(rows) if of_rows is None else of_rows, named)


def _added(before: Tensor | None, now: Tensor | None) -> Tensor | None:
    if before is None or now is None:
        return now if before is None else before
    return before.add_(now)


def _terms(decoder: Decoder, rows: Tensor, pairs: Pairs, loss: str) -> Tensor:
    """Return the sum of the terms of both ends, in float64."""
    src, dst = functional.embedding(pairs.src, rows), functional.embedding(pairs.dst, rows)
    positive = decoder(src, pairs.relation, dst)
    total = torch.zeros((), dtype=torch.float64)
    for side, scores in ((pairs.destinations, decoder.destinations), (pairs.sources, decoder.sources)):
        candidates = functional.embedding(side.candidates, rows)
        negative = scores(src if side is pairs.destinations else dst, pairs.relation, candidates)
        if len(side.link):
            negative = negative.index_put((side.link, side.candidate), negative.new_tensor(-torch.inf))
        total = total + _of_side(positive, negative, side, loss).sum(dtype=torch.float64)
    return total


def _of_side(positive: Tensor, negative: Tensor, side: Side, loss: str) -> Tensor:
    """Return the term of each link. [links], [links, candidates] -> [links]."""
    if loss == "softmax":  # -log(e^p / (e^p + sum of e^n)) = softplus(log(sum of e^n) - p)
        return functional.softplus(negative.logsumexp(1) - positive)
    left_out = torch.bincount(side.link, minlength=len(positive))
    count = (negative.shape[1] - left_out).clamp_min(1)
    return (functional.softplus(-positive) + functional.softplus(negative).sum(1) / count) / 2
