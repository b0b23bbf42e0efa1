"""Pairs and decoders over the wire: a worker finds the loss of this process, and refuses what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lotan
from lotan.errors import StageError
from lotan.links.decoders import PREFIX, make_decoder
from lotan.links.pairs import Negatives, score
from lotan.links.wire import PairScorer, decode_pairs, encode_pairs, encode_scorer
from tests.links.graphs import linked

WIDTH = 6


def over_the_wire(task: lotan.LinkPrediction, relations: int = 3) -> tuple[Any, dict[str, Any], torch.Tensor]:
    found = linked(1, relations=relations)
    whole = Negatives(found.links, task).pairs(np.arange(20), 1, 0)
    pairs = whole.among(whole.ends)
    given = {name: torch.from_numpy(array) for name, array in encode_pairs(pairs).items()}
    return pairs, given, torch.randn(len(whole.ends) + 3, WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("relations", [3, 0])
@pytest.mark.parametrize("name", ["dot", "distmult", "complex", "transe"])
def test_a_worker_finds_the_same_loss_and_gradients(name: str, relations: int) -> None:
    task = lotan.LinkPrediction(name, negatives=12, filtered=True, loss="bce")
    pairs, given, rows = over_the_wire(task, relations)
    decoder = make_decoder(task, WIDTH, max(1, relations), seed=3)
    own = {f"{PREFIX}{one}": tensor.detach() for one, tensor in decoder.named_parameters()}
    scorer = PairScorer(encode_scorer(task, WIDTH, max(1, relations), 50))
    found = scorer.score(rows, given | own, len(rows) - 3)
    wanted = score(decoder, rows, [pairs], 20, "bce", 50)
    assert (found.loss, found.terms) == (wanted.loss, wanted.terms)
    assert torch.equal(found.rows, wanted.rows)
    assert found.decoder.keys() == wanted.decoder.keys()
    assert all(torch.equal(gradient, wanted.decoder[one]) for one, gradient in found.decoder.items())


def test_what_does_not_fit_is_refused() -> None:
    task = lotan.LinkPrediction("distmult", negatives=12)
    _, given, rows = over_the_wire(task)
    count = len(rows) - 3
    with pytest.raises(StageError, match="'src' has numbers that are not below 2"):
        decode_pairs(given, 2, 3)
    with pytest.raises(StageError, match="'relation' has numbers that are not below 1"):
        decode_pairs(given, count, 1)
    with pytest.raises(StageError, match="without whole numbers 'sources/link'"):
        decode_pairs({name: one for name, one in given.items() if name != "pairs/sources/link"}, count, 3)
    with pytest.raises(StageError, match="other numbers of destinations"):
        decode_pairs(given | {"pairs/dst": given["pairs/dst"][1:]}, count, 3)
    with pytest.raises(StageError, match="without the decoder's parameter 'relation'"):
        PairScorer(encode_scorer(task, WIDTH, 3, 50)).score(rows, given, count)
    with pytest.raises(StageError, match="field 'decoder' is 'mine'"):
        PairScorer({**encode_scorer(task, WIDTH, 3, 50), "decoder": "mine"})
