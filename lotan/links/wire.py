"""The pairs of a mini-batch and their decoder as data for the wire, for workers that train on whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lotan.errors import ModelError, StageError
from lotan.links.decoder_calls import DecoderOfCalls
from lotan.links.decoders import PREFIX, Decoder, make_decoder
from lotan.links.pairs import Pairs, Scored, Side, score
from lotan.settings.tasks import DECODERS, LINK_LOSSES, LinkPrediction
from lotan.stages.codec import decode_spec, encode_spec
from lotan.stages.fields import Reader, size_of
from lotan.stages.tensor_names import ROWS_OF_TYPE
from planner.spec import Spec

OWN = "own"
"""The name that stands for a decoder of the user's own."""

PAIRS = "pairs/"
"""The first part of the names of a batch's pairs, among the parameters of its pass."""

_SIDES = ("destinations", "sources")


def encode_pairs(pairs: Pairs) -> dict[str, np.ndarray]:
    """Return the pairs of a batch as arrays by name. `decode_pairs` is the inverse."""
    found = {"src": pairs.src, "dst": pairs.dst}
    if pairs.relation is not None:
        found["relation"] = pairs.relation
    for name in _SIDES:
        side = getattr(pairs, name)
        found |= {f"{name}/candidates": side.candidates, f"{name}/link": side.link, f"{name}/candidate": side.candidate}
    return {f"{PAIRS}{name}": tensor.numpy() for name, tensor in found.items()}


def decode_pairs(given: Mapping[str, Tensor], rows: int, relations: int) -> Pairs:
    """Return the pairs of a batch.

    Args:
        given: The tensors by name.
        rows: The number of rows that are scored.
        relations: The number of relations.

    Raises:
        StageError: If a tensor is missing, or a number is none of a row, link, candidate or relation.
    """

    def read(name: str, below: int) -> Tensor:
        found = given.get(f"{PAIRS}{name}")
        if found is None or found.dtype != torch.int64 or found.dim() != 1:
            raise StageError(f"the pairs of a batch came without whole numbers {name!r}")
        if len(found) and not (int(found.min()) >= 0 and int(found.max()) < below):
            raise StageError(f"the pairs of a batch: {name!r} has numbers that are not below {below}")
        return found

    src, dst = read("src", rows), read("dst", rows)
    relation = read("relation", relations) if f"{PAIRS}relation" in given else None
    if len(dst) != len(src) or (relation is not None and len(relation) != len(src)):
        raise StageError(f"the pairs of a batch: {len(src)} sources, and other numbers of destinations or relations")
    sides = []
    for name in _SIDES:
        candidates = read(f"{name}/candidates", rows)
        link, candidate = read(f"{name}/link", len(src)), read(f"{name}/candidate", len(candidates))
        if len(link) != len(candidate):
            raise StageError(f"the pairs of a batch: {name!r} leaves out {len(link)} links and {len(candidate)} places")
        sides.append(Side(candidates, link, candidate))
    return Pairs(src, dst, relation, *sides)


def encode_scorer(
    task: LinkPrediction, width: int, relations: int, scores: int, own: Spec | None = None
) -> dict[str, Any]:
    """Return what a worker needs to score pairs, as data for msgpack: a `PairScorer`.

    Args:
        task: The task.
        width: The number of outputs of the model.
        relations: The number of relations; 1 if there are none.
        scores: The most scores that are computed at one time.
        own: A decoder of the user's own, traced; None: the decoder has a name.
    """
    decoder = {"decoder": task.decoder} if own is None else {"decoder": OWN, "own": encode_spec(own)}
    return {**decoder, "width": width, "relations": relations, "loss": task.loss, "scores": scores}


class PairScorer:
    """Scores the pairs of batches in a worker.

    Args:
        data: The data that `encode_scorer` has returned.

    Raises:
        StageError: If a field is missing or unknown.
    """

    def __init__(self, data: Any) -> None:
        read = Reader(data, "scorer")
        decoder, self._loss = read.choice("decoder", (*DECODERS, OWN)), read.choice("loss", LINK_LOSSES)
        width, self._relations, self._scores = (
            size_of(read.field(name), "scorer") for name in ("width", "relations", "scores")
        )
        if decoder == OWN:
            self._decoder: Decoder = DecoderOfCalls(decode_spec(read.field("own")))
            return
        try:
            self._decoder = make_decoder(LinkPrediction(decoder=decoder), width, self._relations, seed=0)
        except ModelError as error:
            raise StageError(f"scorer: {error}") from error

    def score(self, rows: Tensor, parameters: Mapping[str, Tensor], targets: int) -> Scored:
        """Return the loss of a batch and its gradients.

        Args:
            rows: The model's output, whose first rows are those of the targets. [rows, width]
            parameters: The parameters of the pass, among which are those of the decoder, and the pairs.
            targets: The number of targets.

        Raises:
            StageError: If a tensor is missing, or does not fit.
        """
        pairs = decode_pairs(parameters, targets, self._relations)
        with torch.no_grad():
            for name, parameter in self._decoder.named_parameters():
                given = parameters.get(f"{PREFIX}{name}")
                if given is None or given.shape != parameter.shape:
                    raise StageError(f"a batch came without the decoder's parameter {name!r}")
                parameter.copy_(given)
        return score(self._decoder, rows, [pairs], len(pairs.src), self._loss, self._scores)


def of_model(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters of the model among those of a pass."""
    others = PAIRS, PREFIX, ROWS_OF_TYPE
    return {name: tensor for name, tensor in parameters.items() if not name.startswith(others)}
