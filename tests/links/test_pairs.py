"""Negatives and the loss over pairs: draws are uniform, filtered ones are true ones, and gradients are autograd's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import lotan
from lotan.links import pairs as module
from lotan.links.decoders import make_decoder
from lotan.links.pairs import Negatives, score
from tests.links.graphs import linked

WIDTH = 6


def negatives(seed: int = 0, relations: int = 3, **settings) -> Negatives:
    return Negatives(linked(seed, relations=relations).links, lotan.LinkPrediction(**settings))


def left_out(side) -> set[tuple[int, int]]:
    return set(zip(side.link.tolist(), side.candidate.tolist(), strict=True))


def test_uniform_draws_are_uniform_and_differ_between_batches_and_ends():
    drawn = negatives(negatives=40, seed=3)
    batches = [drawn.pairs(np.arange(4), epoch, batch) for epoch in range(1, 11) for batch in range(40)]
    for end in ("destinations", "sources"):
        counts = np.bincount(torch.cat([getattr(one, end).candidates for one in batches]).numpy(), minlength=40)
        assert chisquare(counts).pvalue > 0.01
    first, second = batches[:2]
    assert not torch.equal(first.destinations.candidates, second.destinations.candidates)
    assert not torch.equal(first.destinations.candidates, first.sources.candidates)
    assert torch.equal(first.sources.candidates, drawn.pairs(np.arange(2), 1, 0).sources.candidates)


def test_draws_by_degree_are_in_proportion_to_training_links():
    drawn = negatives(negatives=40, negative_sampling="degree")
    every = [drawn.pairs(np.arange(1), epoch, 0).destinations.candidates for epoch in range(1, 400)]
    counts = np.bincount(torch.cat(every).numpy(), minlength=40)
    degrees = np.bincount(drawn.training.dst, minlength=40)
    assert (counts[degrees == 0] == 0).all()
    wanted = degrees[degrees > 0] / degrees.sum() * counts.sum()
    assert chisquare(counts[degrees > 0], wanted).pvalue > 0.01


@pytest.mark.parametrize("count", [40, "all"])
@pytest.mark.parametrize("relations", [0, 3])
def test_filtered_negatives_are_never_true_and_all_others_stay(count, relations):
    drawn = negatives(relations=relations, negatives=count, filtered=True)
    training = drawn.training
    true = set(zip(training.src.tolist(), training.numbers.tolist(), training.dst.tolist(), strict=True))
    chosen = np.arange(0, len(training), 3)
    found = drawn.pairs(chosen, 1, 0)
    for side, is_destination in ((found.destinations, True), (found.sources, False)):
        out = left_out(side)
        for link, row in enumerate(chosen):
            for place, vertex in enumerate(side.candidates.tolist()):
                src, dst = (training.src[row], vertex) if is_destination else (vertex, training.dst[row])
                assert ((link, place) in out) == ((int(src), int(training.numbers[row]), int(dst)) in true)


def test_of_all_vertices_only_the_link_itself_is_no_negative():
    found = negatives(negatives="all").pairs(np.arange(5), 1, 0)
    assert left_out(found.destinations) == set(enumerate(found.dst.tolist()))


def by_hand(decoder, rows, found, loss: str) -> torch.Tensor:
    """The mean term: every pair is scored by itself, and torch's losses compare the scores of each link."""
    terms = []
    for side, is_destination in ((found.destinations, True), (found.sources, False)):
        out, count = left_out(side), len(side.candidates)
        positive = decoder(rows[found.src], found.relation, rows[found.dst])
        ends = [one.repeat_interleave(count) for one in (found.src, found.dst)]
        ends[is_destination] = side.candidates.repeat(len(found.src))
        relation = None if found.relation is None else found.relation.repeat_interleave(count)
        negative = decoder(rows[ends[0]], relation, rows[ends[1]]).view(-1, count)
        for link in range(len(found.src)):
            others = negative[link, [place for place in range(count) if (link, place) not in out]]
            if loss == "softmax":
                terms.append(-torch.log_softmax(torch.cat([positive[link : link + 1], others]), 0)[0])
            else:
                logits = torch.nn.functional.binary_cross_entropy_with_logits
                one, zeros = torch.ones_like(positive[link]), torch.zeros_like(others)
                terms.append((logits(positive[link], one) + logits(others, zeros)) / 2)
    return torch.stack(terms).mean()


@pytest.mark.parametrize("loss", ["softmax", "bce"])
@pytest.mark.parametrize("name", ["dot", "distmult", "complex", "transe"])
@pytest.mark.parametrize("filtered", [False, True])
def test_gradients_are_those_of_autograd(name, loss, filtered, monkeypatch):
    """The gradients of all rows and of the relations, also where the links are scored part by part."""
    monkeypatch.setattr(module, "SCORES", 60)
    drawn = negatives(negatives=12, filtered=filtered)
    decoder = make_decoder(lotan.LinkPrediction(decoder=name), WIDTH, 3, 0).double()
    torch.manual_seed(1)
    rows = torch.randn(40, WIDTH, dtype=torch.float64, requires_grad=True)
    batches = [drawn.pairs(np.arange(11), 1, 0), drawn.pairs(np.arange(11, 14), 1, 1)]
    found = score(decoder, rows, batches, 14, loss)
    total = sum(by_hand(decoder, rows, one, loss) * len(one.src) for one in batches) / 14
    wanted = torch.autograd.grad(total, [rows, *decoder.parameters()])
    assert found.terms == 28
    assert found.loss / found.terms == pytest.approx(float(total.detach()), rel=1e-9)
    torch.testing.assert_close(found.rows, wanted[0])
    torch.testing.assert_close(list(found.decoder.values()), list(wanted[1:]))


def test_a_batch_among_its_own_rows_has_the_same_loss():
    drawn = negatives(negatives=7)
    whole = drawn.pairs(np.arange(9), 1, 0)
    own = whole.ends
    rows, decoder = torch.randn(40, WIDTH), make_decoder(lotan.LinkPrediction(decoder="distmult"), WIDTH, 3, 0)
    assert len(own) == len(set(own.tolist()))
    assert (np.diff(own) > 0).all()
    one = score(decoder, rows, [whole], 9, "softmax")
    other = score(decoder, rows[torch.from_numpy(own)], [whole.among(own)], 9, "softmax")
    assert one.loss == pytest.approx(other.loss, rel=1e-6)
    torch.testing.assert_close(one.rows[torch.from_numpy(own)], other.rows)


def test_a_link_all_of_whose_negatives_are_left_out_adds_nothing():
    graph = lotan.Graph.from_arrays(np.zeros((2, 1)), [0, 0], [0, 1], edge_split=[0, 0])
    from lotan.links.examples import link_graph

    drawn = Negatives(
        link_graph(graph, lotan.LinkPrediction()).links, lotan.LinkPrediction(negatives="all", filtered=True)
    )
    rows = torch.randn(2, 3)
    found = score(make_decoder(lotan.LinkPrediction(), 3, 1, 0), rows, [drawn.pairs(np.arange(2), 1, 0)], 2, "softmax")
    assert torch.isfinite(found.rows).all()
    assert np.isfinite(found.loss)
