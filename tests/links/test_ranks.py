"""Ranks against brute force: ties, filters, both ends, and the area under the ROC curve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import lotan
from lotan.links import ranks as module
from lotan.links.decoders import make_decoder
from lotan.links.ranks import area, best_destinations, metrics_of, rank
from tests.links.graphs import linked

WIDTH = 4


def given(relations: int, name: str = "distmult"):
    links = linked(2, relations=relations).links
    torch.manual_seed(0)
    rows = torch.randint(-2, 3, (links.vertices, WIDTH)).float()  # whole numbers, so that many scores are equal
    decoder = make_decoder(lotan.LinkPrediction(decoder=name), WIDTH, links.relations, 0)
    if name == "distmult":
        decoder.relation.data.copy_(torch.randint(-2, 3, decoder.relation.shape))
    return links, rows, decoder


@torch.no_grad()
def brute(links, rows, decoder, ask, filtered: bool) -> list[float]:
    """The destinations of all links first, then the sources."""
    true = set(zip(links.src.tolist(), links.numbers.tolist(), links.dst.tolist(), strict=True))
    found = []
    for is_destination in (True, False):
        for src, relation, dst in zip(ask.src.tolist(), ask.numbers.tolist(), ask.dst.tolist(), strict=True):
            scores = {}
            for vertex in range(links.vertices):
                triple = (src, relation, vertex) if is_destination else (vertex, relation, dst)
                if filtered and triple in true and triple != (src, relation, dst):
                    continue
                number = None if links.relation is None else torch.tensor([relation])
                scores[vertex] = float(decoder(rows[triple[0]][None], number, rows[triple[2]][None]))
            own = scores[dst if is_destination else src]
            better = sum(score > own for score in scores.values())
            equal = sum(score == own for score in scores.values()) - 1
            found.append(1 + better + equal / 2)
    return found


@pytest.mark.parametrize("relations", [0, 3])
def test_ranks_equal_brute_force(relations, monkeypatch):
    monkeypatch.setattr(module, "SCORES", 90)  # two links at a time
    links, rows, decoder = given(relations)
    ask = links.of("val")
    found = rank(decoder, rows, ask, links)
    assert found.raw.tolist() == brute(links, rows, decoder, ask, filtered=False)
    assert found.filtered.tolist() == brute(links, rows, decoder, ask, filtered=True)
    metrics = found.metrics()
    assert metrics["mrr"] == pytest.approx(np.mean(1 / found.filtered))
    assert metrics["raw_hits@3"] == pytest.approx(np.mean(found.raw <= 3))


def test_the_area_is_that_of_scikit_learn(monkeypatch):
    links, rows, decoder = given(0, "dot")
    drawn = module.other_pairs(links.destinations, 50, links.vertices, 7)
    true = set(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    assert len(drawn) == 50
    assert not true.intersection(map(tuple, drawn.tolist()))
    ask = links.of("test")
    drawn = module.other_pairs(links.destinations, len(ask), links.vertices, 7)
    ends = np.concatenate([np.stack([ask.src, ask.dst], 1), drawn])
    scores = (rows[ends[:, 0]] * rows[ends[:, 1]]).sum(1)
    label = np.arange(len(ends)) < len(ask)
    assert area(decoder, rows, ask, links, 7) == pytest.approx(roc_auc_score(label, scores))
    assert "auc" in metrics_of(decoder, rows, ask, links, 7)


def test_the_best_destinations_come_first_and_known_ones_are_left_out(monkeypatch):
    monkeypatch.setattr(module, "SCORES", 90)
    links, rows, decoder = given(3)
    queries = np.array([3, 8, 20]), np.array([0, 2, 1])
    query, row, score = best_destinations(decoder, rows, queries, 5, links.destinations)
    for number in range(3):
        src, relation = int(queries[0][number]), int(queries[1][number])
        known = links.dst[(links.src == src) & (links.numbers == relation)]
        every = decoder.destinations(rows[src][None], torch.tensor([relation]), rows)[0].detach().numpy()
        wanted = [vertex for vertex in np.argsort(-every, kind="stable") if vertex not in known][:5]
        assert row[query == number].tolist() == wanted
        assert score[query == number].tolist() == every[wanted].tolist()
