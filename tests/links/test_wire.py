"""Pairs and decoders over the wire: a worker finds the loss of this process, and refuses what does not fit."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
import torch

import lotan
from lotan.errors import ModelError, StageError
from lotan.links.decoders import PREFIX, OwnDecoder, make_decoder
from lotan.links.pairs import Negatives, score
from lotan.links.traced_decoder import decoder_spec
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


class Bilinear(torch.nn.Module):
    """A decoder as a user writes it, with a row for each relation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.relation, self.both = torch.nn.Embedding(3, WIDTH), torch.nn.Linear(2 * WIDTH, 1)

    def forward(self, src: Any, relation: Any, dst: Any) -> Any:
        rows = src if relation is None else src * self.relation(relation)
        return self.both(torch.cat([rows * dst, (src - dst).abs()], dim=1)).squeeze(1)


@pytest.mark.parametrize("relations", [3, 0])
def test_a_worker_runs_a_traced_decoder(relations: int) -> None:
    task = lotan.LinkPrediction(Bilinear(), negatives=12, filtered=True)
    pairs, given, rows = over_the_wire(task, relations)
    decoder = OwnDecoder(task.decoder)
    own = {f"{PREFIX}{one}": tensor.detach() for one, tensor in decoder.named_parameters()}
    data = encode_scorer(task, WIDTH, max(1, relations), 50, decoder_spec(decoder, WIDTH, relations or None))
    found = PairScorer(msgpack.unpackb(msgpack.packb(data))).score(rows, given | own, len(rows) - 3)
    wanted = score(decoder, rows, [pairs], 20, "softmax", 50)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-6)
    torch.testing.assert_close(found.rows, wanted.rows)
    assert found.decoder.keys() == wanted.decoder.keys()
    for name, gradient in wanted.decoder.items():
        torch.testing.assert_close(found.decoder[name], gradient)


class Dropping(Bilinear):
    def forward(self, src: Any, relation: Any, dst: Any) -> Any:
        return super().forward(torch.nn.functional.dropout(src, 0.5), relation, dst)


class Comparing(Bilinear):
    def forward(self, src: Any, relation: Any, dst: Any) -> Any:
        return super().forward(src, relation, dst).softmax(0)


@pytest.mark.parametrize(("kind", "words"), [(Dropping, "it draws random numbers in"), (Comparing, "rows of one link")])
def test_a_decoder_that_is_more_than_calls_on_a_link_is_refused(kind: type[Bilinear], words: str) -> None:
    with pytest.raises(ModelError, match=rf"the decoder {kind.__name__} cannot be written down .*{words}"):
        decoder_spec(OwnDecoder(kind()), WIDTH, 3)


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
