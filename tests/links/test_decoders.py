"""Decoders: the scores of PyG's models of knowledge graphs, and one matrix for the scores of each pair by itself."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg

import lotan
from lotan.errors import ModelError
from lotan.links.decoders import make_decoder

VERTICES, RELATIONS, WIDTH = 12, 3, 6


class Bilinear(torch.nn.Module):
    """A decoder of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(torch.randn(RELATIONS, WIDTH, WIDTH))

    def forward(self, src, relation, dst):
        return torch.einsum("ni,nij,nj->n", src, self.matrix[relation], dst)


@pytest.fixture
def given():
    torch.manual_seed(0)
    ends = torch.randint(0, VERTICES, (2, 9))
    return torch.randn(VERTICES, WIDTH), *ends, torch.randint(0, RELATIONS, (9,))


def decoder(name, relations: int = RELATIONS):
    return make_decoder(lotan.LinkPrediction(decoder=name), WIDTH, relations, seed=1)


@pytest.mark.parametrize("name", ["distmult", "complex", "transe"])
def test_scores_are_those_of_pyg(name, given):
    rows, src, dst, relation = given
    ours = decoder(name)
    half = WIDTH // 2
    kind = {"distmult": pyg.DistMult, "complex": pyg.ComplEx, "transe": pyg.TransE}[name]
    theirs = kind(VERTICES, RELATIONS, half if name == "complex" else WIDTH)
    parts = {"node_emb": rows, "rel_emb": ours.relation}
    if name == "complex":
        parts |= {"node_emb_im": rows[:, half:], "rel_emb_im": ours.relation[:, half:]}
        parts |= {"node_emb": rows[:, :half], "rel_emb": ours.relation[:, :half]}
    with torch.no_grad():
        for part, value in parts.items():
            getattr(theirs, part).weight.copy_(value)
        torch.testing.assert_close(ours(rows[src], relation, rows[dst]), theirs(src, relation, dst))


@pytest.mark.parametrize("name", ["dot", "distmult", "complex", "transe", Bilinear()], ids=str)
def test_a_matrix_has_the_score_of_each_pair(name, given):
    rows, src, dst, relation = given
    one = decoder(name)
    to, of = one.destinations(rows[src], relation, rows), one.sources(rows[dst], relation, rows)
    for column in range(VERTICES):
        same = torch.full_like(src, column)
        torch.testing.assert_close(to[:, column], one(rows[src], relation, rows[same]))
        torch.testing.assert_close(of[:, column], one(rows[same], relation, rows[dst]))


def test_links_without_relations_have_one_row():
    one = decoder("distmult", 1)
    rows = torch.randn(4, WIDTH)
    torch.testing.assert_close(one(rows, None, rows), (rows * rows) @ one.relation[0])


def test_an_odd_width_cannot_be_complex():
    with pytest.raises(ModelError, match=r"halves each row .* have 5 numbers; .* an even number"):
        make_decoder(lotan.LinkPrediction(decoder="complex"), 5, 2, 0)


def test_a_decoder_returns_a_score_for_each_link():
    wrong = make_decoder(lotan.LinkPrediction(decoder=torch.nn.Bilinear(2, 2, 3)), 2, 1, 0)
    wrong.module.forward = lambda src, relation, dst: src
    with pytest.raises(ModelError, match=r"returned \(4, 2\) for 4 links; expected scores of shape \(4,\)"):
        wrong(torch.zeros(4, 2), None, torch.zeros(4, 2))
